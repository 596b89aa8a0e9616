//! Plans are read, derived from, and refused.

use rnic_base::{BitRate, Duration, Time};

use super::*;
use crate::switch::{Alpha, BufferPlan, EcnPlan, MarkDepth, Multipath, PfcPlan};

const GOOD: &str = r#"
name = "good"
mtu = 1024

[topology]
kind = "fat-tree"
k = 6

[links]
rate = "40Gbps"
delay = "2us"

[switch]
model = "input-queued"
buffer = "240KB"
[switch.pfc]
threshold = "auto"

[transport]
name = "irn"
cap_packets = "bdp"
rto_high = "auto"
sack_bitmap = false

[workload]
kind = "poisson"
load = "70%"
sizes = "irn-heavy-tail"
duration = "5ms"

[[fault]]
kind = "drop"
links = "host-*>*"
packets = "data"
probability = "1%"
"#;

fn read(overrides: &[(&str, &str)]) -> Result<Plan, PlanError> {
    Plan::from_toml_with(GOOD, overrides, &mut |name| match name {
        "flows.csv" => Ok("0,0,1,1KB\n".to_owned()),
        "bad.csv" => Ok("0,0,99,1KB\n".to_owned()),
        "late.csv" => Ok("0,0,1,1KB\n18500s,0,1,1000\n".to_owned()),
        "head.csv" => Ok("\u{feff}start,src,dst,bytes\r\n0,0,1,1KB\r\n".to_owned()),
        "empty.csv" => Ok("# nothing\n\n".to_owned()),
        "ns3.csv" => Ok("2\n0 1 3 100 1000 2.0\n".to_owned()),
        "sizes.txt" => Ok("100 0\n200 100%\n".to_owned()),
        "bad.txt" => Ok("100 0\n".to_owned()),
        _ => Err("no such file".to_owned()),
    })
}

fn option(plan: &Plan, name: &str) -> u64 {
    plan.transport.options().find(|(spec, _)| spec.name == name).map(|(_, value)| value).expect("an option")
}

const LOSSLESS: (&str, &str) = ("switch", r#"{ model = "shared-buffer", buffer = "8MB", pfc = {} }"#);

/// Timeouts that nobody has set are none where PFC loses nothing, and never shorter than a round trip; what is set
/// stays, and so does everything where the transport's own are right.
#[test]
fn timeouts_that_are_not_given_fit_the_plan() {
    let (us, none) = (|us| Duration::from_us(us).as_ps(), Duration::from_secs(10).as_ps());
    let of = |overrides: &[(&str, &str)], name: &str| option(&read(overrides).expect("sound"), name);
    let gbn = ("transport", "roce-gbn");
    assert_eq!(of(&[gbn], "rto"), us(320));
    assert_eq!(of(&[gbn, LOSSLESS], "rto"), us(320), "the plan loses packets by a fault");
    let slow = ("fault", r#"[{ kind = "slow", rate = "1Gbps" }]"#);
    assert_eq!(of(&[gbn, LOSSLESS, slow], "rto"), 0);
    assert_eq!(of(&[("transport", "irn"), LOSSLESS, ("fault", "[]")], "rto_low"), none);
    assert_eq!(of(&[("transport", "irn"), LOSSLESS, ("fault", "[]")], "rto_high"), none);
    let set = ("transport", r#"{ name = "irn", rto_high = "320us" }"#);
    assert_eq!(of(&[set, LOSSLESS, ("fault", "[]")], "rto_low"), us(100), "some are set: all stay");
    let tight = ("switch", r#"{ model = "shared-buffer", buffer = "8MB", pfc = { headroom = "1KB" } }"#);
    assert_eq!(of(&[gbn, tight, ("fault", "[]")], "rto"), us(320), "it is not lossless");

    let (long, open) = (("links.delay", "1ms"), ("switch.pfc.enabled", "false"));
    assert!(of(&[gbn, open, long], "rto") > us(12_000), "six links there and back");
    assert!(of(&[("transport", "irn"), open, long], "rto_low") > us(12_000));
    assert_eq!(of(&[("transport", r#"{ name = "roce-gbn", rto = "320us" }"#), open, long], "rto"), us(320));
    // 64 packets of a kilobyte take 5 ms before one asks for an acknowledgement.
    assert!(of(&[gbn, ("links.rate", "100Mbps")], "rto") > us(5_000));
}

#[test]
fn bounds_of_a_run_fit_the_plan() {
    let run = |overrides: &[(&str, &str)]| read(overrides).expect("sound").run;
    let secs = |secs| Time::ZERO + Duration::from_secs(secs);
    assert_eq!(run(&[]).limit, secs(10));
    assert_eq!(run(&[("workload.duration", "60s")]).limit, secs(70));
    assert_eq!(run(&[("workload.duration", "60s"), ("run.limit", "1s")]).limit, secs(1));
    let repeats = r#"{ kind = "incast", senders = 4, bytes = 1, repeats = 61, interval = "1s", jitter = "0" }"#;
    assert_eq!(run(&[("workload", repeats)]).limit, secs(70));
    assert_eq!(run(&[]).stall_after, Duration::from_ms(50));
    let patient = ("transport", r#"{ name = "roce-gbn", rto = "67.1ms" }"#);
    assert_eq!(run(&[patient]).stall_after, Duration::from_us(201_300));
    assert_eq!(run(&[patient, ("run.stall_after", "1ms")]).stall_after, Duration::from_ms(1));
}

/// What is legal and probably not meant is said, with the number that would be right.
#[test]
fn plans_that_are_probably_not_meant_are_told_so() {
    let warnings = |overrides: &[(&str, &str)]| read(overrides).expect("sound").warnings();
    let no_faults = ("fault", "[]");
    assert_eq!(warnings(&[]), [""; 0]);
    assert_eq!(warnings(&[("transport", "roce-gbn"), LOSSLESS, no_faults]), [""; 0]);
    // 40 Gbit/s for 4 us are 20 000 bytes; three frames of 1090 and a pause frame, with what the link adds, the rest.
    for (switch, key) in [
        (
            r#"{ model = "shared-buffer", buffer = "8MB", pfc = { headroom = "1KB" } }"#,
            "switch.pfc.headroom has 1000 B",
        ),
        (r#"{ model = "input-queued", buffer = "240KB", pfc = { threshold = "235KB" } }"#, "threshold leaves 5000 B"),
    ] {
        let said = warnings(&[("switch", switch), no_faults]);
        let needed = read(&[]).expect("sound").skid();
        assert!((23_000..24_000).contains(&needed), "{needed}");
        assert!(said[0].contains(key) && said[0].contains(&format!("need {needed} B")), "{said:?}");
    }
    let short = warnings(&[("transport", r#"{ name = "roce-gbn", rto = "320us" }"#), LOSSLESS]);
    assert!(short.len() == 1 && short[0].contains("transport.rto is 320 us: under PFC"), "{short:?}");
    let deaf = warnings(&[("transport", r#"{ name = "roce-gbn", control = "dcqcn" }"#)]);
    assert!(deaf.len() == 1 && deaf[0].contains("no switch marks"), "{deaf:?}");
    let narrow = warnings(&[("transport", r#"{ name = "irn", cap_packets = 11 }"#)]);
    assert!(narrow.len() == 1 && narrow[0].contains("cap_packets is 11"), "{narrow:?}");
}

#[test]
fn a_plan_means_what_it_says() {
    let plan = Plan::from_toml(GOOD).expect("a sound plan");
    assert_eq!((plan.name.as_str(), plan.mtu, plan.topology.hosts()), ("good", 1_024, 54));
    assert_eq!(plan.host_links, LinkPlan { rate: BitRate::gbps(40), delay: Duration::from_us(2) });
    assert_eq!(plan.fabric_links, plan.host_links);
    assert_eq!((plan.faults.len(), plan.checked_payload, plan.encoded), (1, false, false));
    assert_eq!(plan.run.limit, Time::ZERO + Duration::from_secs(10));
    assert_eq!(option(&plan, "sack_bitmap"), 0);
}

#[test]
fn i8_i9_words_become_numbers_of_this_topology() {
    let plan = read(&[]).expect("sound");
    // 24 us there and back, six packets and six acknowledgements to be stored: a little more than the paper's 110.
    assert!((110..118).contains(&option(&plan, "cap_packets")), "{}", option(&plan, "cap_packets"));
    // Targets I-8: 24 us + 6 * 240 KB * 8 / 40 Gbps = 312 us, and a few packets.
    let timeout = Duration::from_ps(option(&plan, "rto_high")).as_us_f64();
    assert!((312.0..314.0).contains(&timeout), "{timeout}");
    let Some(SwitchPlan { buffer: BufferPlan::InputQueued { per_port }, pfc: Some(PfcPlan { threshold, .. }), .. }) =
        plan.switch
    else {
        panic!("{:?}", plan.switch)
    };
    // 20 KB under way on the upstream link (IRN 4.1), and three packets.
    assert_eq!(per_port, 240_000);
    assert!((216_000..217_000).contains(&threshold), "{threshold}");
}

#[test]
fn overrides_replace_and_add() {
    let changes = [
        ("links.rate", "100Gbps"),
        ("links.fabric.delay", "5us"),
        ("transport", r#"{ name = "roce-gbn", rto = 0 }"#),
        ("switch.pfc.enabled", "false"),
        ("workload.load", "50%"),
        ("fault", "[]"),
        ("run.limit", "1s"),
    ];
    let plan = read(&changes).expect("sound");
    assert_eq!((plan.host_links.rate, plan.fabric_links.rate), (BitRate::gbps(100), BitRate::gbps(100)));
    assert_eq!(plan.fabric_links.delay, Duration::from_us(5));
    assert_eq!((plan.transport.name, plan.switch.map(|switch| switch.pfc)), ("roce-gbn", Some(None)));
    assert!(plan.faults.is_empty());
    assert!(matches!(plan.workload, WorkloadPlan::Poisson { load_ppm: 500_000, .. }));
}

/// A name alone is a transport without options.
#[test]
fn a_transport_may_be_its_name() {
    let [short, long] =
        ["\"falcon\"", "{ name = \"falcon\" }"].map(|text| read(&[("transport", text)]).expect("sound"));
    assert_eq!(format!("{:?}", short.transport), format!("{:?}", long.transport));
    assert_eq!(short.transport.name, "falcon");
}

/// Nothing that is written is passed over.
#[test]
fn every_number_of_a_switch_and_a_run_arrives() {
    let switch = r#"{ model = "shared-buffer", buffer = "2MB", alpha = "3/8", pfc = { headroom = "41KB" },
        multipath = "wcmp", ecn = { kmin = "5KB", kmax = "200KB", pmax = "7%", depth = "input" }, csig = {} }"#;
    let run = r#"{ limit = "3ms", stall_after = "2ms", warmup = "1ms", cooldown = "2ms", slice = "400us" }"#;
    let workload = r#"{ kind = "closed-loop", op = "write", message = "4KB", duration = "4ms", from = 1, to = 0 }"#;
    let plan = read(&[("switch", switch), ("run", run), ("workload", workload)]).expect("sound");
    let expected = SwitchPlan {
        buffer: BufferPlan::Shared { total: 2_000_000, alpha: Alpha { numerator: 3, denominator: 8 } },
        pfc: Some(PfcPlan {
            threshold: 0,
            hysteresis: plan.switch.and_then(|it| it.pfc).expect("on").hysteresis,
            headroom: 41_000,
        }),
        ecn: Some(EcnPlan {
            kmin: 5_000,
            kmax: 200_000,
            pmax: rnic_base::Probability::ratio(7, 100),
            depth: MarkDepth::Input,
        }),
        csig: true,
        multipath: Multipath::Wcmp,
    };
    assert_eq!(plan.switch, Some(expected));
    let run = RunPlan {
        limit: Time::ZERO + Duration::from_ms(3),
        stall_after: Duration::from_ms(2),
        warmup: Duration::from_ms(1),
        cooldown: Duration::from_ms(2),
        slice: Some(Duration::from_us(400)),
    };
    assert_eq!(plan.run, run);
}

/// A cooldown has an end to come before, and leaves something.
#[test]
fn a_cooldown_fits_the_workload() {
    let clock = r#"{ kind = "closed-loop", op = "write", message = "4KB", duration = "4ms", from = 1, to = 0 }"#;
    let counted = r#"{ kind = "closed-loop", op = "write", message = "4KB", count = 9, from = 1, to = 0 }"#;
    let poisson = r#"{ kind = "poisson", load = "50%", size = "4KB", duration = "5ms" }"#;
    for (workload, run, what) in [
        (clock, r#"{ warmup = "1ms", cooldown = "2999us" }"#, None),
        (clock, r#"{ warmup = "1ms", cooldown = "3ms" }"#, Some("plan: run.cooldown: nothing is left")),
        (poisson, r#"{ cooldown = "4ms" }"#, None),
        (poisson, r#"{ cooldown = "5ms" }"#, Some("plan: run.cooldown: nothing is left")),
        (counted, r#"{ cooldown = "1us" }"#, Some("plan: run.cooldown: this workload does not end by the clock")),
    ] {
        let said = read(&[("workload", workload), ("run", run)]).err().map(|error| error.to_string());
        assert_eq!(said.is_some(), what.is_some(), "{run}: {said:?}");
        assert!(said.is_none_or(|said| said.starts_with(what.unwrap_or_default())), "{run}");
    }
}

#[test]
fn every_number_of_a_fault_arrives() {
    use crate::fault::{FaultKind as Kind, Target};
    let share = |percent| rnic_base::Probability::ratio(percent, 100);
    let us = Duration::from_us;
    // 1024 bytes of payload, all headers there are and what a link adds, at 40 Gbit/s: 5 packets of some 1.1 KB.
    let faults = r#"[
        { kind = "drop", probability = "2%", links = "edge-*>agg-*", packets = "acks" },
        { kind = "burst", probability = "3%", end = "20%", loss = "60%", packets = "data" },
        { kind = "burst", probability = "4%", length = 7 },
        { kind = "reorder", probability = "5%", delay = "6us" },
        { kind = "duplicate", probability = "8%" },
        { kind = "corrupt", probability = "9%" },
        { kind = "delay", delay = "10us", jitter = "11us" },
        { kind = "down", from = "12us", until = "13us" },
        { kind = "reorder", probability = "14%", displacement = 5 },
    ]"#;
    let plan = read(&[("fault", faults)]).expect("sound");
    let (last, others) = plan.faults.split_last().expect("nine");
    let expected = [
        Kind::Drop(share(2)),
        Kind::Burst { begin: share(3), end: share(20), loss: share(60) },
        Kind::BurstOfLength { begin: share(4), packets: 7 },
        Kind::Reorder { probability: share(5), delay: us(6) },
        Kind::Duplicate(share(8)),
        Kind::Corrupt(share(9)),
        Kind::Delay { fixed: us(10), jitter: us(11) },
        Kind::Down { from: Time::from_us(12), until: Time::from_us(13) },
    ];
    assert_eq!(others.iter().map(|fault| fault.kind).collect::<Vec<_>>(), expected);
    assert_eq!((others[0].links.as_str(), others[0].target), ("edge-*>agg-*", Target::Acks));
    assert_eq!((others[1].links.as_str(), others[1].target, others[2].target), ("*", Target::Data, Target::All));
    let Kind::Reorder { delay, .. } = last.kind else { panic!("{last:?}") };
    assert!((1.1..1.2).contains(&delay.as_us_f64()), "{delay}");
}

#[test]
fn files_are_asked_for_by_name() {
    let trace = read(&[("workload", r#"{ kind = "trace", file = "flows.csv" }"#)]).expect("sound");
    assert!(matches!(&trace.workload, WorkloadPlan::Trace(flows) if flows.len() == 1));
    assert!(read(&[("workload.sizes", "sizes.txt")]).is_ok());
}

/// What is changed, and what the error must say.
const WRONG: &[(&str, &str, &str)] = &[
    ("links.dealy", "2us", "links.dealy: unknown field `dealy`"),
    ("mut", "9", "unknown field `mut`"),
    ("links.delay", "2 parsecs", "links.delay: `2 parsecs` has the unknown unit `parsecs`"),
    ("links.delay", "2", "links.delay: `2` has no unit"),
    ("links.delay", "0", "links.delay: must be between 1 ns and 1 s"),
    ("links.rate", "40GB", "links.rate: `40GB` has the unknown unit"),
    ("links.rate", "[1]", "links.rate: invalid type"),
    ("links.rate", "0", "links.rate: must be between"),
    ("links.fabric.rate", "1bps", "links.fabric.rate: must be between"),
    ("mtu", "\"big\"", "mtu: invalid type"),
    ("mtu", "1000000", "mtu: must be a multiple of 4"),
    ("mtu", "1022", "mtu: must be a multiple of 4"),
    ("payload", "some", "payload: unknown variant `some`"),
    ("topology.kind", "torus", "topology.kind: unknown variant `torus`"),
    ("topology.k", "7", "topology.k: a fat-tree needs an even k"),
    ("topology.k", "100", "topology.k: a fat-tree needs an even k"),
    ("topology.hosts", "3", "topology.hosts: a fat-tree has k^3/4 hosts"),
    ("topology", r#"{ kind = "star" }"#, "topology.hosts: a star needs"),
    ("topology", r#"{ kind = "star", hosts = 1 }"#, "topology.hosts: a star needs"),
    ("topology", r#"{ kind = "star", hosts = 4, k = 4 }"#, "topology.k: k belongs to a fat-tree"),
    ("topology", r#"{ kind = "point-to-point", hosts = 2 }"#, "topology.hosts: point-to-point has two hosts"),
    ("switch.model", "magic", "switch.model: unknown variant"),
    ("switch.buffer", "100", "switch"),
    ("switch.alpha", "1/2", "switch.alpha: input-queued switches share no buffer"),
    ("switch.pfc.headroom", "50KB", "switch.pfc.headroom: is what an input-queued switch has above"),
    (
        "switch",
        r#"{ model = "shared-buffer", buffer = "1MB", pfc = { threshold = "9KB" } }"#,
        "switch.pfc.threshold: is dynamic in a shared buffer",
    ),
    ("switch.pfc.threshold", "300KB", "switch.pfc.threshold: must be between two packets"),
    ("switch", r#"{ model = "shared-buffer", buffer = "100KB", pfc = {} }"#, "switch.buffer: has room for 0 bytes"),
    ("switch", r#"{ model = "shared-buffer", buffer = "1MB", alpha = "x" }"#, "switch.alpha: `x` is not a fraction"),
    ("switch.ecn", r#"{ kmin = "5KB", kmax = "1KB", pmax = "1%" }"#, "switch.ecn.kmin: must be below kmax"),
    ("switch.ecn", r#"{ kmin = "5KB" }"#, "switch.ecn: missing field `kmax`"),
    (
        "switch",
        r#"{ model = "shared-buffer", buffer = "1MB",
             ecn = { kmin = "5KB", kmax = "9KB", pmax = "1%", depth = "virtual-queue" } }"#,
        "switch.ecn.depth: a switch with a shared buffer has no virtual queues",
    ),
    ("transport.name", "quic", "unknown transport `quic`; there are: roce-gbn, "),
    ("transport", "{}", "transport.name: name the transport"),
    ("transport", "3", "expected the name of a transport, or a table such as"),
    ("transport.cap", "3", "unknown parameter `cap`"),
    ("transport.cap_packets", "many", "parameter `cap_packets`: `many` is not a whole number"),
    ("transport.rto_high", "3", "parameter `rto_high`: `3` has no unit"),
    ("transport.paths", "spray", "takes every gap for a loss"),
    ("transport.rto_low", "1.5", "transport.rto_low: options are texts"),
    ("nic.cache", "1MB", "nic.cache: unknown field `cache`"),
    ("nic", r#"{ qpc_cache = "1MB", qpc_entries = 5 }"#, "nic.qpc_entries: give either"),
    ("nic.qpc_cache", "200B", "nic.qpc_cache: has no room for a context of"),
    ("nic.bus_latency", "2", "nic.bus_latency: `2`"),
    ("nic.bus_latency", "1s", "nic.bus_latency: must be at most"),
    ("nic.bus_reads", "0", "nic.bus_reads: must be 1 to"),
    ("nic.bus_rate", "0", "nic.bus_rate: "),
    ("nic.wqe_batch", "0", "nic.wqe_batch: must be above zero"),
    ("nic", r#"{ wqe_fetch = "ahead", wqe_batch = 8 }"#, "nic.wqe_batch: belongs to"),
    ("nic.qp_cycle", "50ns", "nic.qp_cycle: belongs to Falcon's NIC; transport `irn` has"),
    ("nic", r#"{ qpc_entries = 5, second_entries = 50 }"#, "nic.second_latency: is missing"),
    ("nic", r#"{ qpc_entries = 5, second_latency = "60ns" }"#, "nic.second_entries: is missing"),
    ("nic", r#"{ qpc_entries = 5, second_entries = 0, second_latency = "60ns" }"#, "nic.second_entries: must be"),
    ("nic", r#"{ second_entries = 50, second_latency = "60ns" }"#, "nic.second_entries: without qpc_cache"),
    (
        "nic",
        r#"{ qpc_entries = 5, second_entries = 50, second_latency = "1s" }"#,
        "nic.second_latency: must be at most",
    ),
    ("nic.bitmap_latency", "1.4us", "nic.bitmap_latency: transport `irn` keeps its bitmaps on the NIC"),
    ("nic.receive_buffer", "1KB", "nic.receive_buffer: is too small"),
    ("workload.kind", "chaos", "workload.kind: unknown variant `chaos`"),
    ("workload.load", "0", "workload.load: must be above 0"),
    ("workload.load", "170%", "workload.load: `170%`"),
    ("workload.sizes", "cats", "workload.sizes: unknown distribution `cats`; there are irn-heavy-tail"),
    ("workload.sizes", "uniform:5MB-1MB", "workload.sizes: `uniform:5MB-1MB`: 5000000 is more than 1000000"),
    ("workload.sizes", "fixed:0", "workload.sizes: `fixed:0`: sizes are 1 to"),
    ("workload.sizes", "none.txt", "workload.sizes: none.txt: no such file"),
    ("workload.sizes", "bad.txt", "workload.sizes: bad.txt: the last point"),
    ("workload.size", "4KB", "workload.sizes: give either"),
    ("workload.senders", "4", "workload.senders: means nothing for the workload `poisson`"),
    ("workload", r#"{ kind = "poisson", size = 4, duration = "1ms" }"#, "workload.load: is missing"),
    (
        "workload",
        r#"{ kind = "poisson", size = 4, load = 1, duration = "0us" }"#,
        "workload.duration: must be more than 0",
    ),
    ("workload", r#"{ kind = "incast", senders = 54, bytes = 1 }"#, "workload.senders: must be 1 to 53"),
    ("workload", r#"{ kind = "incast", senders = 4, bytes = 1, to = 54 }"#, "workload.to: there is no host 54"),
    ("topology", r#"{ kind = "leaf-spine", spines = 2, leaves = 4 }"#, "topology.hosts_per_leaf: leaf-spine needs"),
    ("topology", r#"{ kind = "leaf-spine", k = 4 }"#, "topology.k: k belongs to a fat-tree"),
    ("topology", r#"{ kind = "star", hosts = 4, leaves = 4 }"#, "topology.leaves: spines, leaves and hosts_per_leaf"),
    (
        "topology",
        r#"{ kind = "leaf-spine", spines = 1, leaves = 1, hosts_per_leaf = 1 }"#,
        "topology.hosts_per_leaf: 1 leaves of 1 hosts",
    ),
    (
        "workload",
        r#"{ kind = "incast", senders = 4, bytes = 1, background = { load = "50%", sizes = "uniform" } }"#,
        "workload.background: give it a duration",
    ),
    (
        "workload",
        r#"{ kind = "incast", senders = 4, bytes = 1, interval = "1s", background = { load = 1, sizes = "cats" } }"#,
        "workload.background.sizes: unknown distribution `cats`",
    ),
    (
        "workload",
        r#"{ kind = "incast", senders = 4, bytes = 1, interval = "1s", background = { load = 0, sizes = "uniform" } }"#,
        "workload.background.load: must be above 0",
    ),
    (
        "workload",
        r#"{ kind = "closed-loop", op = "write", message = 1, count = 1, from = 50, to = 0, clients = 5 }"#,
        "workload.clients: must be 1 to 4",
    ),
    (
        "workload",
        r#"{ kind = "closed-loop", op = "write", message = 1, count = 1, clients = 2 }"#,
        "workload.to: must be another host than `from` and the clients",
    ),
    (
        "workload",
        r#"{ kind = "closed-loop", op = "write", message = 1, count = 1, servers = 60 }"#,
        "workload.servers: must be 1 to",
    ),
    (
        "workload",
        r#"{ kind = "closed-loop", op = "write", message = 1, count = 1, from = 3, to = 1, servers = 3 }"#,
        "workload.to: must be another host than `from`",
    ),
    ("workload", r#"{ kind = "open-loop", op = "write", message = 1, duration = "1us" }"#, "workload.load: is missing"),
    (
        "workload",
        r#"{ kind = "open-loop", op = "write", message = 1, load = "101%", duration = "1us" }"#,
        "workload.load: ",
    ),
    (
        "workload",
        r#"{ kind = "open-loop", op = "write", message = 0, load = 1, duration = "1us" }"#,
        "workload.message",
    ),
    ("workload", r#"{ kind = "open-loop", op = "write", message = 1, load = 1, count = 1 }"#, "workload.count: means"),
    ("transport", r#"{ name = "falcon", ordering = "unordered" }"#, "transport.ordering: workloads wait for"),
    (
        "workload",
        r#"{ kind = "closed-loop", op = "write", message = 1, count = 0 }"#,
        "workload.count: must be above zero",
    ),
    (
        "workload",
        r#"{ kind = "closed-loop", op = "write", message = 1, count = 1, queue_pairs = 0 }"#,
        "workload.queue_pairs: must be above zero",
    ),
    (
        "workload",
        r#"{ kind = "open-loop", op = "write", message = 1, load = 1, duration = "1us", queue_pairs = 0 }"#,
        "workload.queue_pairs: must be above zero",
    ),
    ("workload.count", "99999999999999999999", "workload.count: 99999999999999999999 is larger than any number here"),
    ("transport.name", "falcon", "; transport=NAME replaces the plan's options of `transport` as well"),
    ("workload.clients", "2", "workload.clients: means nothing for the workload `poisson`"),
    ("workload", r#"{ kind = "permutation", bytes = 0 }"#, "workload.bytes: must be above zero"),
    ("workload", r#"{ kind = "collective", bytes = 9 }"#, "workload.collective: is missing"),
    (
        "workload",
        r#"{ kind = "collective", collective = "gather", bytes = 9 }"#,
        "unknown collective `gather`; there are",
    ),
    ("workload", r#"{ kind = "collective", collective = "all-reduce" }"#, "workload.bytes: is missing"),
    (
        "workload",
        r#"{ kind = "collective", collective = "all-reduce", bytes = 9, ranks = 1 }"#,
        "workload.ranks: must be 2 to",
    ),
    (
        "workload",
        r#"{ kind = "collective", collective = "all-reduce", bytes = 9, op = "write" }"#,
        "workload.op: a rank must hear of what comes: use write-imm or send",
    ),
    (
        "workload",
        r#"{ kind = "collective", collective = "all-to-all", bytes = 9, connections = 4000000 }"#,
        "workload.connections: must be 1 or more, and at most 131072 of each host",
    ),
    (
        "workload",
        r#"{ kind = "collective", collective = "all-reduce", bytes = 9, connections = 2 }"#,
        "workload.bytes: must be",
    ),
    (
        "workload",
        r#"{ kind = "collective", collective = "all-reduce", bytes = "100GB", ranks = 2 }"#,
        "workload.bytes: a rank's part must have at most",
    ),
    (
        "workload",
        r#"{ kind = "collective", collective = "all-reduce", bytes = 9, count = 0 }"#,
        "workload.count: must be",
    ),
    (
        "workload",
        r#"{ kind = "permutation", bytes = 9, connections = 10 }"#,
        "workload.connections: must be 1 to 131072, each with a byte to send",
    ),
    (
        "workload",
        r#"{ kind = "closed-loop", op = "fly", message = 1, count = 1 }"#,
        "workload.op: unknown operation `fly`",
    ),
    ("workload", r#"{ kind = "closed-loop", op = "send", message = 1 }"#, "workload.count: give either"),
    ("workload", r#"{ kind = "closed-loop", op = "send", count = 1 }"#, "workload.message: is missing"),
    ("workload", r#"{ kind = "closed-loop", op = "fetch-add", message = 4, count = 1 }"#, "workload.message: atomic"),
    ("workload", r#"{ kind = "closed-loop", op = "send", message = "2GiB", count = 1 }"#, "a message has at most"),
    (
        "workload",
        r#"{ kind = "closed-loop", op = "send", message = 1, count = 1, to = 0 }"#,
        "another host than `from`",
    ),
    ("workload", r#"{ kind = "trace", file = "none.csv" }"#, "workload.file: none.csv: no such file"),
    ("workload", r#"{ kind = "trace", file = "bad.csv" }"#, "workload.file: bad.csv: line 1: `99` is not a host"),
    ("fault", r#"[{ kind = "gremlin" }]"#, "fault[0].kind: unknown variant `gremlin`"),
    ("fault", r#"[{ kind = "drop" }]"#, "fault[0].probability: is missing"),
    ("fault", r#"[{ kind = "drop", probability = "2" }]"#, "fault[0].probability: `2`"),
    (
        "fault",
        r#"[{ kind = "drop", probability = "1%", links = "hots-*" }]"#,
        "fault[0].links: `hots-*` is no direction",
    ),
    ("fault", r#"[{ kind = "drop", probability = "1%", jitter = "1us" }]"#, "fault[0].jitter: means nothing"),
    ("fault", r#"[{ kind = "reorder", probability = "1%" }]"#, "fault[0].delay: give either"),
    ("fault", r#"[{ kind = "burst", probability = "1%" }]"#, "fault[0].length: give a length"),
    ("fault", r#"[{ kind = "delay" }]"#, "fault[0].delay: give delay"),
    ("fault", r#"[{ kind = "delay", delay = "3s" }]"#, "fault[0].delay: must be at most"),
    ("fault", r#"[{ kind = "down", from = "2us", until = "1us" }]"#, "fault[0].until: must be after"),
    ("run.limit", "0", "run.limit: must be above zero and at most"),
    ("run.limit", "99999s", "run.limit: must be at most 18000 s, the longest run"),
    ("links.delay", "18500s", "links.delay: must be at most 18000 s"),
    ("run.warmup", "18500s", "run.warmup: must be at most 18000 s"),
    ("workload.duration", "2000000s", "workload.duration: must be at most 18000 s"),
    (
        "workload",
        r#"{ kind = "incast", senders = 4, bytes = 1, repeats = 4000000, interval = "1s" }"#,
        "workload.interval: the last request begins after the longest run",
    ),
    (
        "workload",
        r#"{ kind = "trace", file = "late.csv" }"#,
        "late.csv: line 2: it begins at 18500 s, after the longest",
    ),
    ("workload", r#"{ kind = "trace", file = "head.csv" }"#, "head.csv: line 1: `start,src,dst,bytes` is a header"),
    ("workload", r#"{ kind = "trace", file = "empty.csv" }"#, "empty.csv: it has no flows; a line is start,src,dst"),
    ("workload", r#"{ kind = "trace", file = "ns3.csv" }"#, "ns3.csv: line 1: expected start,src,dst,bytes, found `2`"),
    ("fault", r#"[{ kind = "delay", delay = "18500s" }]"#, "fault[0].delay: must be at most 18000 s"),
    ("run.stall_after", "0", "run.stall_after: must be above zero"),
    ("run.slice", "1ns", "run.slice: makes more than 100000 slices until run.limit"),
    ("run.slice", "0", "run.slice: makes more than"),
    ("run.slice", "soon", "run.slice: `soon`"),
    ("slow_host", r#"{ rate = "1Gbps" }"#, "slow_host: needs a NIC whose memory is modelled"),
    ("slow_host", r#"{ hosts = "*" }"#, "slow_host: missing field `rate`"),
    ("run.speed", "11", "run.speed: unknown field `speed`"),
    ("links.rate.x", "1", "links.rate.x: a part of this key is not a table"),
];

#[test]
fn whatever_is_wrong_is_said_in_one_line() {
    let mut wrong = Vec::new();
    for (key, value, what) in WRONG {
        let error = read(&[(key, value)]).map_or_else(|error| error.to_string(), |_| "no error".to_owned());
        if !error.contains(what) || error.lines().count() != 1 || !error.starts_with("plan") {
            wrong.push(format!("{key} = {value}: {error}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_falcons_nic_does_not_have_is_refused_for_falcon_alone() {
    let of_falcon = |nic: &str| read(&[("transport", r#"{ name = "falcon" }"#), ("nic", nic)]);
    for (key, nic) in [
        ("receive_buffer", r#"{ receive_buffer = "600KB" }"#),
        ("wqe_fetch", r#"{ wqe_fetch = "ahead" }"#),
        ("wqe_fetch", r#"{ wqe_fetch = "on-demand" }"#),
        ("wqe_batch", "{ wqe_batch = 8 }"),
    ] {
        let told = of_falcon(nic).expect_err(nic).to_string();
        assert!(told.starts_with(&format!("plan: nic.{key}: Falcon's NIC has no such thing: remove it")), "{told}");
        assert!(read(&[("nic", nic)]).is_ok(), "{nic} with irn");
    }
    let rest = r#"{ qpc_entries = 5, second_entries = 50, second_latency = "60ns", bus_latency = "250ns",
                    bus_rate = "100Gbps", bus_reads = 8, cycle = "5ns", qp_cycle = "50ns" }"#;
    of_falcon(rest).expect("all that counts there");
    of_falcon(r#"{ enabled = false, wqe_batch = 8 }"#).expect("there is no model at all");
}

/// Memory is slow from the beginning to the end, or from when and until when it is said.
#[test]
fn a_slow_host_has_a_beginning_and_an_end() {
    let slow = |slow: &str| read(&[("transport", r#"{ name = "falcon" }"#), ("slow_host", slow)]);
    let times = |text: &str| slow(text).expect(text).slow_host.map(|slow| (slow.from, slow.until));
    assert_eq!(times(r#"{ rate = "1Gbps" }"#), Some((Time::ZERO, None)));
    let within = times(r#"{ rate = "1Gbps", from = "1ms", until = "2ms" }"#);
    assert_eq!(within, Some((Time::from_us(1_000), Some(Time::from_us(2_000)))));
    for (wrong, what) in [
        (r#"{ rate = "1Gbps", from = "2ms", until = "1ms" }"#, "slow_host.until: must be after `from`"),
        (r#"{ rate = "1Gbps", from = "2ms", until = "2ms" }"#, "slow_host.until: must be after `from`"),
        (r#"{ rate = "1Gbps", until = "0us" }"#, "slow_host.until: must be after `from`"),
        (r#"{ rate = "1Gbps", from = "99999999999s" }"#, "slow_host.from: "),
        (r#"{ rate = "1Gbps", from = "-1us" }"#, "slow_host.from: "),
        (r#"{ rate = "1bps" }"#, "slow_host.rate: must be at least 1Mbps"),
        (r#"{ rate = "1Gbps", hosts = "host-999" }"#, "slow_host.hosts: is no host"),
        (r#"{ rate = "1Gbps", till = "1ms" }"#, "slow_host.till: unknown field `till`"),
    ] {
        let told = slow(wrong).expect_err(wrong).to_string();
        assert!(told.starts_with(&format!("plan: {what}")) && told.lines().count() == 1, "{wrong}: {told}");
    }
}

#[test]
fn errors_in_the_text_name_the_line() {
    let line = |from: &str, to: &str| Plan::from_toml(&GOOD.replace(from, to)).expect_err("wrong").to_string();
    let found = line("delay = \"2us\"", "delay = \"2miles\"");
    assert!(found.starts_with("plan, line 11: links.delay: `2miles`"), "{found}");
    let found = line("[links]", "[links");
    assert!(found.starts_with("plan, line 9: "), "{found}");
    let found = line("k = 6", "k = 6\nports = 4");
    assert!(found.starts_with("plan, line 8: topology") && found.contains("`ports`"), "{found}");
    let found = Plan::from_toml("").expect_err("empty").to_string();
    assert!(found.contains("missing field `topology`"), "{found}");
}

#[test]
fn a_topology_with_switches_needs_a_plan_for_them() {
    let text = GOOD
        .replace("[switch]\nmodel = \"input-queued\"\nbuffer = \"240KB\"\n[switch.pfc]\nthreshold = \"auto\"\n", "");
    let error = Plan::from_toml(&text).expect_err("no switch").to_string();
    assert!(error.starts_with("plan: switch: this topology has switches"), "{error}");
}

/// Options of the transport before stay, and are named; unless they were given along with the name.
#[test]
fn another_transport_by_its_name_alone_is_told_of_what_it_inherits() {
    let hint = "replaces the plan's options of `transport` as well";
    for (with, is_told) in [
        (&[("transport.name", "falcon")][..], true),
        (&[("transport.name", "falcon"), ("run.warmup", "1us")], true),
        (&[("transport.name", "falcon"), ("transport.flows", "2")], false),
    ] {
        let text = read(with).expect_err("not an option of falcon").to_string();
        assert_eq!(text.contains(hint), is_told, "{with:?}: {text}");
    }
}
