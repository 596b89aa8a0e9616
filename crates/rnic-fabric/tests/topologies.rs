//! Own topologies: graphs from files beside the same networks of built-in kinds, links of different rates, and every
//! kind in several forms of the same run.

mod common;

use common::*;
use rnic_fabric::topology::{self, Clos, LinkClass, Topology};
use rnic_fabric::{Plan, Report, Simulation};

/// Returns a network as a file; `values` returns rate and delay of a link of a class.
fn as_file(topology: &Topology, values: impl Fn(LinkClass) -> &'static str) -> String {
    let hosts = (0..topology.hosts).map(|host| format!("host {}\n", topology.name(host)));
    let switches = topology.switches.iter().map(|switch| format!("switch {}\n", switch.name));
    let name = |node| topology.name(node);
    let link = |link: &topology::LinkSpec| {
        format!("link {} {} {}\n", name(link.a.node), name(link.b.node), values(link.class))
    };
    hosts.chain(switches).chain(topology.links.iter().map(link)).collect()
}

/// Runs a plan whose topology is `file`.
fn run_file(text: &str, with: &[(&str, &str)], file: &str, seed: u64) -> Report {
    let with = [with, &[("topology", r#"{ kind = "file", file = "it.topo" }"#)]].concat();
    let plan =
        Plan::from_toml_with(text, &with, &mut |_| Ok(file.to_owned())).unwrap_or_else(|error| panic!("{error}"));
    let report = finish(Simulation::new(&plan, seed).expect("the plan is valid"));
    report.check().unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(report.flows_unfinished, 0);
    report
}

/// A file that describes a fat-tree, leaf and spine, or a Clos has the trace, the ideal times and every other number of
/// the built-in kind: the same routes, hash by hash, and the same timeouts and caps.
#[test]
fn a_file_gives_the_same_run_as_the_built_in_kind() {
    let rates = r#"{ rate = "40Gbps", delay = "2us", fabric = { rate = "100Gbps", delay = "1us" },
        core = { rate = "50Gbps", delay = "3us" } }"#;
    let values = |class| match class {
        LinkClass::Host => "40Gbps 2us",
        LinkClass::Fabric => "100Gbps 1us",
        _ => "50Gbps 3us",
    };
    let shape = Clos { pods: 3, leaves: 2, spines: 2, cores: 2, hosts_per_leaf: 2 };
    let kinds = [
        (r#"{ kind = "fat-tree", k = 4 }"#, topology::fat_tree(4)),
        (r#"{ kind = "leaf-spine", spines = 3, leaves = 4, hosts_per_leaf = 3 }"#, topology::leaf_spine(3, 4, 3)),
        (
            r#"{ kind = "clos", pods = 3, leaves = 2, spines = 2, cores = 2, hosts_per_leaf = 2 }"#,
            topology::clos(shape),
        ),
    ];
    let transports = [r#"{ name = "irn", cap_packets = "bdp" }"#, r#"{ name = "falcon" }"#, r#"{ name = "roce-gbn" }"#];
    for (kind, network) in &kinds {
        let file = as_file(network, values);
        for (transport, multipath) in transports.into_iter().zip(["ecmp", "wcmp", "ecmp"]) {
            let with = [("links", rates), ("transport", transport), ("switch.multipath", multipath)];
            let with = [&with[..], &[("workload.duration", "300us")]].concat();
            let built_in = run(TREE, &[&with[..], &[("topology", *kind)]].concat(), 5);
            let own = run_file(TREE, &with, &file, 5);
            assert!(built_in.records.len() > 10, "{kind}: only {} flows", built_in.records.len());
            assert_eq!(built_in.trace_hash, own.trace_hash, "{kind}, {transport}, {multipath}");
            assert_eq!(built_in.records, own.records, "{kind}, {transport}, {multipath}");
            assert_eq!(built_in.to_json(), own.to_json(), "{kind}, {transport}, {multipath}");
        }
    }
}

/// Spines of different rates, by weight: as `links.fabric.spines` gives them, and as a file does.
#[test]
fn weights_of_a_file_are_the_rates_of_its_links() {
    let kind = r#"{ kind = "leaf-spine", spines = 2, leaves = 2, hosts_per_leaf = 4 }"#;
    let links = r#"{ rate = "25Gbps", delay = "1us", fabric = { rate = "100Gbps", spines = ["100Gbps", "20Gbps"] } }"#;
    let with = [("links", links), ("transport", r#"{ name = "falcon" }"#), ("switch.multipath", "wcmp")];
    let built_in = run(TREE, &[&with[..], &[("topology", kind)]].concat(), 2);
    let file =
        as_file(
            &topology::leaf_spine(2, 2, 4),
            |class| if class == LinkClass::Host { "25Gbps 1us" } else { "100Gbps 1us" },
        );
    let file = file.lines().map(|line| match line.contains("spine-1 ") {
        true => line.replace("100Gbps", "20Gbps") + "\n",
        false => line.to_owned() + "\n",
    });
    let own = run_file(TREE, &with[1..], &file.collect::<String>(), 2);
    assert_eq!((built_in.trace_hash, built_in.records), (own.trace_hash, own.records));
}

/// One flow of 10 MB from host 0 to host 1, alone.
const ALONE: &str = r#"
    name = "alone"
    mtu = 1024
    topology = { kind = "file", file = "it.topo" }
    switch = { model = "input-queued", buffer = "20MB" }
    transport = { name = "irn", cap_packets = 0, rto_high = "1s", rto_low = "1s" }
    workload = { kind = "trace", file = "flows.csv" }
"#;

fn alone(file: &str, flows: &str, with: &[(&str, &str)]) -> Report {
    let mut files = |name: &str| Ok(if name == "flows.csv" { flows } else { file }.to_owned());
    let plan = Plan::from_toml_with(ALONE, with, &mut files).unwrap_or_else(|error| panic!("{error}"));
    let report = finish(Simulation::new(&plan, 1).expect("the plan is valid"));
    report.check().unwrap_or_else(|failure| panic!("{failure}"));
    report
}

/// A link of 10 Gbit/s between others of 100 Gbit/s limits a flow to its rate, in the run and in the ideal time.
#[test]
fn a_slow_link_limits_flows_to_its_rate() {
    let file = "host a b c\nswitch s t\nlink a s 100Gbps 1us\nlink b t 100Gbps 1us\nlink c s 100Gbps 1us\n\
                link s t 10Gbps 3us\n";
    let report = alone(file, "0us,0,1,10MB\n100ms,0,2,10MB\n", &[]);
    let [slow, fast] = &report.records[..] else { panic!("{:?}", report.records) };
    assert_eq!((slow.fct, fast.fct), (slow.ideal, fast.ideal));
    // 9766 frames of 1024 bytes with 78 bytes of headers (RoCE), preamble and gap: 8 ms of payload at 10 Gbit/s.
    let payload_us = 10e6 * 8.0 / 10e3;
    let ratio = slow.fct.as_us_f64() / payload_us;
    assert!((1.05..1.11).contains(&ratio), "{} us", slow.fct.as_us_f64());
    assert!((9.9..10.1).contains(&(slow.fct.as_us_f64() / fast.fct.as_us_f64())), "{:?}", report.records);
    // Four links: a, s>t, b, and three propagation delays of 5 us are in the time of a small flow.
    let small = alone(file, "0us,0,1,100\n", &[]).records[0];
    assert_eq!(small.fct, small.ideal);
    assert!((5.0..5.4).contains(&small.fct.as_us_f64()), "{}", small.fct.as_us_f64());
}

/// On any paths, no flow is faster than its ideal time.
#[test]
fn the_ideal_time_is_that_of_the_best_path() {
    let file = "host a b\nswitch s t near far\nlink a s 100Gbps 1us\nlink b t 100Gbps 1us\n\
                link s near 10Gbps 1us\nlink near t 10Gbps 1us\nlink s far 100Gbps 8us\nlink far t 100Gbps 8us\n";
    let spray = [("transport.paths", "spray"), ("transport.spray_paths", "64"), ("transport.nack_threshold", "500")];
    for (bytes, best_us) in [("1KB", 5.9), ("1MB", 105.0)] {
        let flows: String = (0..32).map(|index| format!("{}ms,0,1,{bytes}\n", 2 * index)).collect();
        let report = alone(file, &flows, &spray);
        assert!(report.records.iter().all(|flow| flow.fct >= flow.ideal), "{bytes}");
        let ideal = report.records[0].ideal.as_us_f64();
        assert!((best_us * 0.95..best_us * 1.05).contains(&ideal), "{bytes}: {ideal}");
    }
}

/// Each host's load is relative to its own link.
#[test]
fn poisson_offers_each_host_the_load_of_its_own_link() {
    let file =
        "host fast slow sink\nswitch s\nlink fast s 100Gbps 1us\nlink slow s 10Gbps 1us\nlink sink s 100Gbps 1us\n";
    let workload = r#"{ kind = "poisson", load = "5%", size = "10KB", duration = "20ms" }"#;
    let report = alone(file, "", &[("workload", workload), ("switch.buffer", "200KB"), ("transport", "irn")]);
    let sent = |host| report.records.iter().filter(|flow| flow.src == host).map(|flow| flow.bytes).sum::<u64>() as f64;
    for (host, gbps) in [(0, 100.0), (1, 10.0), (2, 100.0)] {
        let expected = 0.05 * gbps * 1e9 / 8.0 * 20e-3;
        let ratio = sent(host) / expected;
        assert!((0.8..1.2).contains(&ratio), "host {host}: {ratio}");
    }
}

/// The kinds that are new, small.
const KINDS: [&str; 4] = [
    r#"{ kind = "clos", pods = 2, leaves = 2, spines = 2, cores = 2, hosts_per_leaf = 2, oversubscription = "3/2" }"#,
    r#"{ kind = "dragonfly", groups = 4, switches_per_group = 2, hosts_per_switch = 2, global_links = 2 }"#,
    r#"{ kind = "rail-optimised", servers = 4, nics = 4, spines = 2 }"#,
    r#"{ kind = "file", file = "graph.topo" }"#,
];

#[test]
fn every_kind_gives_the_same_run_in_every_form() {
    for kind in KINDS {
        for transport in [TRANSPORTS[0], "{ name = \"falcon\", flows = 4 }"] {
            let with = [("topology", kind), ("transport", transport), ("workload.duration", "300us")];
            let faults = [&with[..], &[FAULTS]].concat();
            for with in [&with[..], &faults] {
                let what = format!("{with:?}");
                let report = run(TREE, with, 7);
                assert!(report.flows > 20, "{what}: {} flows", report.flows);
                assert_independent_of_order_and_parts(&report, TREE, with, 7, &what);
                let mut in_four = Simulation::in_parts(&plan(TREE, with), 7, 4).expect("the plan is valid");
                in_four.set_runner(Box::new(Threads));
                assert_eq!(report.to_json(), finish(in_four).to_json(), "in 4 parts: {what}");
                let encoded = [with, &[("wire", "encoded"), ("payload", "checked")]].concat();
                assert_eq!(report.trace_hash, run(TREE, &encoded, 7).trace_hash, "encoded: {what}");
            }
        }
    }
}

/// The plans that show the new kinds, with less traffic.
#[test]
fn plans_of_every_kind_run() {
    let short = ("workload.duration", "200us");
    for (text, with, hosts) in [
        (include_str!("../../../plans/clos.toml"), short, 64),
        (include_str!("../../../plans/dragonfly.toml"), ("workload.bytes", "100KB"), 72),
        (include_str!("../../../plans/rail-optimised.toml"), ("workload.bytes", "200KB"), 64),
        (include_str!("../../../plans/own-topology.toml"), short, 8),
    ] {
        let file = include_str!("../../../plans/own-topology.topo");
        let plan = Plan::from_toml_with(text, &[with], &mut |_| Ok(file.to_owned()));
        let plan = plan.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((plan.topology.hosts(), plan.warnings()), (hosts, Vec::new()), "{}", plan.name);
        let report = finish(Simulation::new(&plan, 1).expect("the plan is valid"));
        report.check().unwrap_or_else(|failure| panic!("{failure}"));
        assert!(report.flows > 0 && report.flows_unfinished == 0, "{}: {} flows", plan.name, report.flows);
    }
}

/// A lone flow takes its ideal time on every kind.
#[test]
fn a_lone_flow_has_a_slowdown_of_one_on_every_kind() {
    for kind in KINDS {
        for bytes in ["100", "5000", "300KB"] {
            let with = [
                ("topology", kind),
                ("transport", r#"{ name = "irn", cap_packets = 0, rto_high = "1s", rto_low = "1s" }"#),
                ("workload", r#"{ kind = "incast", senders = 1, bytes = 1, jitter = 0 }"#),
                ("workload.bytes", bytes),
                ("links.core", r#"{ rate = "25Gbps", delay = "4us" }"#),
                ("switch.buffer", "10MB"),
            ];
            for seed in 0..4 {
                let flow = run(TREE, &with, seed).records[0];
                assert!(flow.fct >= flow.ideal, "{kind}, {bytes}: {flow:?}");
                // Two paths of the file, and several of the dragonfly with another order of links, are not alike.
                let has_one_length = !kind.contains("file") && !kind.contains("dragonfly");
                assert!(flow.fct == flow.ideal || !has_one_length, "{kind}, {bytes}: {flow:?}");
            }
        }
    }
}

fn warnings(kind: &str, switch: &str) -> Vec<String> {
    plan(TREE, &[("topology", kind), ("switch", switch)]).warnings()
}

/// With PFC a dragonfly has a circle of buffers, which the warning names, and networks with routes up and down have
/// none.
#[test]
fn pfc_on_cyclic_routes_is_warned_of_with_its_links() {
    let lossless = r#"{ model = "input-queued", buffer = "240KB", pfc = {} }"#;
    for kind in KINDS {
        let found: Vec<String> =
            warnings(kind, lossless).into_iter().filter(|warning| warning.contains("deadlock")).collect();
        assert_eq!(found.len(), usize::from(kind.contains("dragonfly")), "{kind}: {found:?}");
        let Some(warning) = found.first() else { continue };
        let links = warning.split(": ").nth(2).and_then(|rest| rest.split(';').next()).expect("the links");
        let ends: Vec<_> = links.split(", ").map(|link| link.split_once('>').expect("two ends")).collect();
        assert!(ends.len() > 2 && ends.iter().all(|(from, _)| from.starts_with("group-")), "{warning}");
        for (link, next) in ends.iter().zip(ends.iter().cycle().skip(1)) {
            assert_eq!(link.1, next.0, "{warning}");
        }
    }
    let lossy = warnings(KINDS[1], r#"{ model = "input-queued", buffer = "240KB" }"#);
    assert!(lossy.is_empty(), "{lossy:?}");
}

/// Timeouts, caps and PFC's reserve follow the slowest, the longest and the fastest link of a file.
#[test]
fn derived_values_follow_the_links_of_a_file() {
    let file =
        |middle: &str| format!("host a b\nswitch s t\nlink a s 100Gbps 1us\nlink b t 100Gbps 1us\nlink s t {middle}\n");
    let option = |middle: &str, name: &str| {
        let with = [("transport", r#"{ name = "irn", cap_packets = "bdp", rto_high = "auto" }"#)];
        let mut files = |name: &str| Ok(if name == "flows.csv" { "0us,0,1,1KB".to_owned() } else { file(middle) });
        let plan = Plan::from_toml_with(ALONE, &with, &mut files).unwrap_or_else(|error| panic!("{error}"));
        plan.transport.options().find(|(spec, _)| spec.name == name).expect("the option exists").1
    };
    // 24 us of propagation at 100 Gbit/s are 300 KB; at 10 Gbit/s 30 KB.
    let [fast, slow] = ["100Gbps 10us", "10Gbps 10us"].map(|middle| option(middle, "cap_packets"));
    assert!((260..280).contains(&fast) && (26..31).contains(&slow), "{fast} and {slow} packets");
    // The wait behind two full input buffers of 20 MB: 16 ms for 20 MB at 10 Gbit/s, for each of the ports.
    let [fast, slow] = ["100Gbps 10us", "10Gbps 10us"].map(|middle| option(middle, "rto_high") as f64 * 1e-9);
    assert!((3.2..3.3).contains(&fast) && (32.0..32.2).contains(&slow), "{fast} and {slow} ms");
}

/// The files of HPCC and htsim, which are not a part of this repository: their numbers, and a short run of each. From
/// <https://github.com/alibaba-edu/High-Precision-Congestion-Control> (`simulation/mix`) and
/// <https://github.com/Broadcom/csg-htsim> (`sim/datacenter/topologies`).
#[test]
#[ignore = "needs the files in the folder that RNIC_TOPOLOGY_FILES names"]
#[expect(clippy::disallowed_methods, reason = "the files are in a folder")]
fn public_files_have_their_numbers_and_run() {
    let folder = std::env::var("RNIC_TOPOLOGY_FILES").expect("RNIC_TOPOLOGY_FILES names a folder");
    for (name, hosts, switches, links) in [
        ("topology.txt", 65, 1, 65),
        ("fat.txt", 320, 56, 480),
        ("fat_tree_1024.topo", 1_024, 128 + 128 + 64, 1_024 + 1_024 + 1_024),
        ("leaf_spine_tiny.topo", 32, 4 + 2, 32 + 8),
        ("test.topo", 8, 4 + 4 + 4, 8 + 8 + 16),
    ] {
        let text = std::fs::read_to_string(format!("{folder}/{name}")).expect(name);
        let with = [
            ("topology", r#"{ kind = "file", file = "it" }"#),
            ("workload", r#"{ kind = "permutation", bytes = "100KB" }"#),
        ];
        let plan =
            Plan::from_toml_with(TREE, &with, &mut |_| Ok(text.clone())).unwrap_or_else(|error| panic!("{error}"));
        let network = plan.topology.build();
        assert_eq!((network.hosts, network.switches.len(), network.links.len()), (hosts, switches, links), "{name}");
        let report = run_file(TREE, &with[1..], &text, 1);
        println!("{name}: {hosts} hosts, {switches} switches, {links} links, {:.1} us", report.elapsed_us);
        assert_eq!(report.flows, u64::from(hosts));
        assert_eq!(report.bytes, u64::from(hosts) * 100_000, "{name}");
    }
}
