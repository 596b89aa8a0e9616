//! Checks that, whatever fails in the network, every message arrives once, in order and with its bytes, and that
//! nothing is left over.
//!
//! Small random plans: topology, switch, workload, faults, both transports. The checkers of the run verify them (see
//! `rnic_fabric::check`); in addition, drops must have a cause that the plan contains; and neither the order of
//! nodes, parts and threads nor encoding packets as bytes may make a difference.

mod common;

use common::*;
use proptest::prelude::*;
use rnic_fabric::Report;

/// Strategy that picks the text for a key.
fn one_of(choices: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    proptest::sample::select(choices)
}

const TOPOLOGIES: [&str; 8] = [
    "topology = { kind = \"point-to-point\" }",
    "topology = { kind = \"star\", hosts = 3 }",
    "topology = { kind = \"star\", hosts = 6 }",
    "topology = { kind = \"fat-tree\", k = 4 }",
    "topology = { kind = \"leaf-spine\", spines = 2, leaves = 3, hosts_per_leaf = 2 }",
    "topology = { kind = \"clos\", pods = 2, leaves = 2, spines = 2, cores = 1, hosts_per_leaf = 2 }",
    "topology = { kind = \"rail-optimised\", servers = 3, nics = 2, spines = 2 }",
    "topology = { kind = \"file\", file = \"graph.topo\" }",
];

const SWITCHES: [&str; 5] = [
    "{ model = \"input-queued\", buffer = \"30KB\" }",
    "{ model = \"input-queued\", buffer = \"150KB\", pfc = { threshold = \"20KB\" } }",
    "{ model = \"input-queued\", buffer = \"40KB\", ecn = { kmin = \"3KB\", kmax = \"20KB\", pmax = \"50%\" } }",
    "{ model = \"shared-buffer\", buffer = \"60KB\", alpha = \"1/2\" }",
    "{ model = \"shared-buffer\", buffer = \"900KB\", alpha = \"1/8\", pfc = {} }",
];

/// Workloads for every topology: they need two hosts, which every topology has.
const WORKLOADS: [&str; 13] = [
    "{ kind = \"closed-loop\", op = \"write\", message = \"9KB\", depth = 8, count = 30, queue_pairs = 3 }",
    "{ kind = \"closed-loop\", op = \"write-imm\", message = 1, depth = 16, count = 60 }",
    "{ kind = \"closed-loop\", op = \"send\", message = \"5KB\", depth = 4, count = 40, queue_pairs = 2 }",
    "{ kind = \"closed-loop\", op = \"read\", message = \"7KB\", depth = 20, count = 40 }",
    "{ kind = \"closed-loop\", op = \"fetch-add\", message = 8, depth = 20, count = 60 }",
    "{ kind = \"closed-loop\", op = \"compare-swap\", message = 8, depth = 1, count = 40 }",
    "{ kind = \"permutation\", bytes = \"150KB\", op = \"send\", message = \"40KB\", depth = 2 }",
    "{ kind = \"poisson\", load = \"40%\", size = \"20KB\", duration = \"50us\", op = \"send\" }",
    "{ kind = \"closed-loop\", op = \"read-write\", message = \"6KB\", depth = 3, duration = \"60us\", \
       queue_pairs = 4 }",
    "{ kind = \"closed-loop\", op = \"read-write\", message = \"6KB\", depth = 3, duration = \"60us\", \
       think = \"7us\", queue_pairs = 4 }",
    "{ kind = \"incast\", senders = 1, bytes = \"60KB\", repeats = 2, interval = \"40us\", op = \"write\", \
       background = { load = \"30%\", sizes = \"uniform:1KB-20KB\" } }",
    "{ kind = \"collective\", collective = \"all-reduce\", bytes = \"60KB\", count = 3 }",
    "{ kind = \"collective\", collective = \"all-to-all\", bytes = \"40KB\", count = 4, connections = 2 }",
];

const FAULTS: [&str; 10] = [
    "{ kind = \"drop\", probability = \"2%\" }",
    "{ kind = \"drop\", probability = \"5%\", packets = \"acks\" }",
    "{ kind = \"burst\", probability = \"0.2%\", length = 5 }",
    "{ kind = \"burst\", probability = \"0.2%\", end = \"30%\", loss = \"80%\" }",
    "{ kind = \"reorder\", probability = \"2%\", displacement = 4 }",
    "{ kind = \"duplicate\", probability = \"3%\" }",
    "{ kind = \"corrupt\", probability = \"1%\" }",
    "{ kind = \"delay\", jitter = \"2us\" }",
    "{ kind = \"mark\", probability = \"5%\" }",
    "{ kind = \"down\", from = \"15us\", until = \"45us\", links = \"host-1>*\" }",
];

/// Resources of the NICs: mostly not modelled, or much too small.
const NICS: [&str; 5] = [
    "",
    "",
    "nic = { qpc_entries = 2, bus_reads = 3, receive_buffer = \"60KB\" }\n",
    "nic = { bus_reads = 3, translation_entries = 3, region = \"40KiB\", cq_entries = 2, cqs = 3 }\n",
    "nic = { qpc_cache = \"4KB\", bus_rate = \"40Gbps\", wqe_fetch = \"ahead\", cycle = \"0us\" }\n",
];

#[derive(Debug, Clone)]
struct Case {
    text: String,
    seed: u64,
}

fn cases() -> impl Strategy<Value = Case> {
    let faults = proptest::collection::vec(one_of(&FAULTS), 0..4);
    let parts = (one_of(&TOPOLOGIES), one_of(&SWITCHES), one_of(&WORKLOADS), one_of(&TRANSPORTS), faults);
    let wire = (one_of(&["direct", "encoded"]), one_of(&NICS));
    let numbers = (proptest::sample::select(&[256u32, 1_024, 4_096][..]), wire, any::<u64>());
    (parts, numbers).prop_map(|((topology, switch, workload, transport, faults), (mtu, (wire, nic), seed))| {
        let switch = if topology.contains("point") { String::new() } else { format!("switch = {switch}\n") };
        let faults = faults.join(", ");
        let text = format!(
            "mtu = {mtu}\npayload = \"checked\"\nwire = \"{wire}\"\n{topology}\n\
             links = {{ rate = \"100Gbps\", delay = \"1us\" }}\n{switch}transport = {transport}\n{nic}\
             workload = {workload}\nfault = [{faults}]\n"
        );
        Case { text, seed }
    })
}

/// Switches for plans with classes, which divide their buffers.
const DIVIDED: [&str; 5] = [
    "{ model = \"input-queued\", buffer = \"60KB\" }",
    "{ model = \"input-queued\", buffer = \"900KB\", pfc = {} }",
    "{ model = \"input-queued\", buffer = \"90KB\", ecn = { kmin = \"3KB\", kmax = \"20KB\", pmax = \"50%\" } }",
    "{ model = \"shared-buffer\", buffer = \"150KB\", alpha = \"1/2\" }",
    "{ model = \"shared-buffer\", buffer = \"3MB\", alpha = \"1/8\", pfc = {} }",
];

/// Classes of the groups `a` and `b`; the first choice is no classes.
const CLASSES: [&str; 7] = [
    "",
    "{ x = {}, y = { acks = \"x\" } }",
    "{ x = {}, y = {} }",
    "{ x = { weight = 7 }, y = { weight = 2, pfc = false } }",
    "{ x = { priority = 1 }, y = {} }",
    "{ x = { priority = 3, pfc = false }, y = { weight = 5 }, z = {} }",
    "{ x = {}, y = { priority = 7 }, z = { weight = 1000 } }",
];

/// Transports of groups, of both families.
const ANY_FAMILY: [&str; 4] = [TRANSPORTS[0], TRANSPORTS[1], TRANSPORTS[2], "{ name = \"falcon\", flows = 2 }"];

/// Plans of two or three groups of traffic with transports of their own, with classes and without.
fn mixed_cases() -> impl Strategy<Value = Case> {
    let faults = proptest::collection::vec(one_of(&FAULTS), 0..3);
    let group = || (one_of(&WORKLOADS), one_of(&ANY_FAMILY));
    let groups = (group(), group(), one_of(&ANY_FAMILY));
    let parts = (one_of(&TOPOLOGIES), one_of(&DIVIDED), one_of(&CLASSES), one_of(&["direct", "encoded"]), faults);
    let numbers = (proptest::sample::select(&[256u32, 1_024, 4_096][..]), any::<u64>());
    (parts, groups, numbers).prop_map(|((topology, switch, classes, wire, faults), (a, b, of_third), (mtu, seed))| {
        let switch = if topology.contains("point") { String::new() } else { format!("switch = {switch}\n") };
        let acknowledges_every_packet = b.1.contains("\"irn\"");
        let classes = if switch.contains("pfc") { classes.to_owned() } else { classes.replace(", pfc = false", "") };
        let classes = if acknowledges_every_packet { classes } else { classes.replace("{ acks = \"x\" }", "{}") };
        // There may be one group of collectives.
        let b_workload = if a.0.contains("collective") && b.0.contains("collective") { WORKLOADS[1] } else { b.0 };
        let with = |workload: &str, transport: &str, class: &str| {
            let class = if classes.is_empty() { String::new() } else { format!("class = \"{class}\", ") };
            workload.replacen("{ ", &format!("{{ {class}transport = {transport}, "), 1)
        };
        let third = if classes.contains("z = ") { with(WORKLOADS[3], of_third, "z") } else { String::new() };
        let third = if third.is_empty() { third } else { format!("c = {third}\n") };
        let faults = faults.join(", ");
        let header = if classes.is_empty() { String::new() } else { format!("classes = {classes}\n") };
        let text = format!(
            "mtu = {mtu}\npayload = \"checked\"\nwire = \"{wire}\"\n{topology}\n\
             links = {{ rate = \"100Gbps\", delay = \"1us\" }}\n{switch}{header}fault = [{faults}]\n\
             [traffic]\na = {}\nb = {}\n{third}",
            with(a.0, a.1, "x"),
            with(b_workload, b.1, "y"),
        );
        Case { text, seed }
    })
}

/// Checks that every packet crosses a link, and that packets are only lost where a fault or a full buffer may lose
/// them.
fn assert_losses_have_causes(report: &Report, case: &Case) {
    let sent = report.packets_sent + report.packets_retransmitted + report.acks_sent;
    assert!(report.packet_hops >= sent, "fewer packet-hops than packets: {case:?}");
    let dropped = report.drops.buffer + report.drops.nic + report.drops.fault + report.drops.corrupt;
    assert_eq!(dropped, report.packets_dropped, "{case:?}");
    let loses_nothing = !case.text.contains("kind = \"drop\"")
        && !case.text.contains("burst")
        && !case.text.contains("down")
        && !case.text.contains("corrupt");
    assert!(
        !loses_nothing || report.drops.fault + report.drops.corrupt == 0,
        "packets were lost without a cause: {case:?}"
    );
    // PFC reserves buffer for what a link can carry: duplicates and delayed packets exceed that.
    let keeps_arrival_rate = !["duplicate", "reorder", "delay\""].iter().any(|fault| case.text.contains(fault));
    let has_pfc = case.text.contains("pfc") && !case.text.contains("pfc = false");
    let lossless = case.text.contains("point-to-point") || has_pfc && keeps_arrival_rate;
    assert!(!lossless || report.drops.buffer == 0, "a lossless switch dropped packets: {case:?}");
}

fn check_case(case: &Case) {
    let report = run(&case.text, &[], case.seed);
    assert_losses_have_causes(&report, case);
    assert_independent_of_order_and_parts(&report, &case.text, &[], case.seed, &format!("{case:?}"));
    let plain = run(&case.text, &[("wire", "direct"), ("payload", "none")], case.seed);
    assert_eq!(report.trace_hash, plain.trace_hash, "{case:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_message_arrives_once_and_no_resource_leaks(case in cases()) {
        check_case(&case);
    }

    #[test]
    fn every_message_of_every_group_and_class_arrives_once(case in mixed_cases()) {
        check_case(&case);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    #[ignore = "a minute or two"]
    fn every_message_arrives_once_in_many_more_plans(case in cases()) {
        check_case(&case);
    }

    #[test]
    #[ignore = "some minutes"]
    fn every_message_of_every_group_and_class_arrives_once_in_many_more_plans(case in mixed_cases()) {
        check_case(&case);
    }
}
