//! Parsing of plans, their derived values, and the errors of invalid ones.

use rnic_base::{BitRate, Duration, Time};

use super::*;
use crate::switch::{Alpha, BufferPlan, EcnPlan, MarkDepth, MarkDraw, Multipath, PfcPlan};

const VALID_PLAN: &str = r#"
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

pub(super) fn read(overrides: &[(&str, &str)]) -> Result<Plan, PlanError> {
    Plan::from_toml_with(VALID_PLAN, overrides, &mut |name| match name {
        "flows.csv" => Ok("0,0,1,1KB\n".to_owned()),
        "bad.csv" => Ok("0,0,99,1KB\n".to_owned()),
        "late.csv" => Ok("0,0,1,1KB\n18500s,0,1,1000\n".to_owned()),
        "head.csv" => Ok("\u{feff}start,src,dst,bytes\r\n0,0,1,1KB\r\n".to_owned()),
        "empty.csv" => Ok("# nothing\n\n".to_owned()),
        "ns3.csv" => Ok("2\n0 1 3 100 1000 2.0\n".to_owned()),
        "words.csv" => Ok("start,src,dst\n".to_owned()),
        "sizes.txt" => Ok("100 0\n200 100%\n".to_owned()),
        "bad.txt" => Ok("100 0\n".to_owned()),
        _ => Err("no such file".to_owned()),
    })
}

fn option(plan: &Plan, name: &str) -> u64 {
    plan.transport
        .options()
        .find(|(spec, _)| spec.name == name)
        .map(|(_, value)| value)
        .expect("the transport has this option")
}

const LOSSLESS: (&str, &str) = ("switch", r#"{ model = "shared-buffer", buffer = "8MB", pfc = {} }"#);

/// Timeouts that the plan does not set are disabled where PFC prevents all losses, and are never shorter than a round
/// trip. Timeouts that the plan sets are kept, and so are the transport's defaults where they are suitable.
#[test]
fn unset_timeouts_are_fitted_to_the_plan() {
    let (us, disabled) = (|us| Duration::from_us(us).as_ps(), Duration::from_secs(10).as_ps());
    let of = |overrides: &[(&str, &str)], name: &str| option(&read(overrides).expect("the plan is valid"), name);
    let gbn = ("transport", "roce-gbn");
    assert_eq!(of(&[gbn], "rto"), us(320));
    assert_eq!(of(&[gbn, LOSSLESS], "rto"), us(320), "the plan loses packets by a fault");
    let slow = ("fault", r#"[{ kind = "slow", rate = "1Gbps" }]"#);
    assert_eq!(of(&[gbn, LOSSLESS, slow], "rto"), 0);
    assert_eq!(of(&[("transport", "irn"), LOSSLESS, ("fault", "[]")], "rto_low"), disabled);
    assert_eq!(of(&[("transport", "irn"), LOSSLESS, ("fault", "[]")], "rto_high"), disabled);
    let rto_high_given = ("transport", r#"{ name = "irn", rto_high = "320us" }"#);
    assert_eq!(
        of(&[rto_high_given, LOSSLESS, ("fault", "[]")], "rto_low"),
        us(100),
        "a timeout was fitted although another one is given"
    );
    let small_headroom = ("switch", r#"{ model = "shared-buffer", buffer = "8MB", pfc = { headroom = "1KB" } }"#);
    assert_eq!(
        of(&[gbn, small_headroom, ("fault", "[]")], "rto"),
        us(320),
        "the headroom is too small for a lossless network"
    );

    let (long, open) = (("links.delay", "1ms"), ("switch.pfc.enabled", "false"));
    assert!(of(&[gbn, open, long], "rto") > us(12_000), "below the round trip over six links");
    assert!(of(&[("transport", "irn"), open, long], "rto_low") > us(12_000));
    assert_eq!(of(&[("transport", r#"{ name = "roce-gbn", rto = "320us" }"#), open, long], "rto"), us(320));
    // With a packet of a kilobyte every 80 us, the 64 packets after which an acknowledgement is requested take 5 ms.
    assert!(of(&[gbn, ("links.rate", "100Mbps")], "rto") > us(5_000));
}

#[test]
fn unset_limits_of_a_run_are_fitted_to_the_plan() {
    let run = |overrides: &[(&str, &str)]| read(overrides).expect("the plan is valid").run;
    let secs = |secs| Time::ZERO + Duration::from_secs(secs);
    assert_eq!(run(&[]).limit, secs(10));
    assert_eq!(run(&[("workload.duration", "60s")]).limit, secs(70));
    assert_eq!(run(&[("workload.duration", "60s"), ("run.limit", "1s")]).limit, secs(1));
    let repeats = r#"{ kind = "incast", senders = 4, bytes = 1, repeats = 61, interval = "1s", jitter = "0" }"#;
    assert_eq!(run(&[("workload", repeats)]).limit, secs(70));
    assert_eq!(run(&[]).stall_after, Duration::from_ms(50));
    let long_rto = ("transport", r#"{ name = "roce-gbn", rto = "67.1ms" }"#);
    assert_eq!(run(&[long_rto]).stall_after, Duration::from_us(201_300));
    assert_eq!(run(&[long_rto, ("run.stall_after", "1ms")]).stall_after, Duration::from_ms(1));
}

/// Values that are legal but probably not intended cause a warning that contains a suitable number.
#[test]
fn legal_but_unintended_values_cause_warnings() {
    let warnings = |overrides: &[(&str, &str)]| read(overrides).expect("the plan is valid").warnings();
    let no_faults = ("fault", "[]");
    assert_eq!(warnings(&[]), [""; 0]);
    assert_eq!(warnings(&[("transport", "roce-gbn"), LOSSLESS, no_faults]), [""; 0]);
    // 40 Gbit/s for 4 us are 20,000 bytes; the rest are three frames of 1090 bytes and a pause frame, with preambles
    // and gaps.
    for (switch, key) in [
        (
            r#"{ model = "shared-buffer", buffer = "8MB", pfc = { headroom = "1KB" } }"#,
            "switch.pfc.headroom reserves only 1000 B",
        ),
        (
            r#"{ model = "input-queued", buffer = "240KB", pfc = { threshold = "235KB" } }"#,
            "threshold leaves only 5000 B",
        ),
    ] {
        let found = warnings(&[("switch", switch), no_faults]);
        let needed = read(&[]).expect("the plan is valid").pause_reaction_bytes();
        assert!((23_000..24_000).contains(&needed), "{needed}");
        assert!(found[0].contains(key) && found[0].contains(&format!("need {needed} B")), "{found:?}");
    }
    let short = warnings(&[("transport", r#"{ name = "roce-gbn", rto = "320us" }"#), LOSSLESS]);
    assert!(short.len() == 1 && short[0].contains("transport.rto is 320 us, but under PFC"), "{short:?}");
    let unmarked = warnings(&[("transport", r#"{ name = "roce-gbn", control = "dcqcn" }"#)]);
    assert!(unmarked.len() == 1 && unmarked[0].contains("no switch marks packets"), "{unmarked:?}");
    let small_cap = warnings(&[("transport", r#"{ name = "irn", cap_packets = 11 }"#)]);
    assert!(small_cap.len() == 1 && small_cap[0].contains("cap_packets is 11"), "{small_cap:?}");
}

#[test]
fn keys_of_a_plan_set_its_fields() {
    let plan = Plan::from_toml(VALID_PLAN).expect("the plan is valid");
    assert_eq!((plan.name.as_str(), plan.mtu, plan.topology.hosts()), ("good", 1_024, 54));
    assert_eq!(plan.host_links, LinkPlan { rate: BitRate::gbps(40), delay: Duration::from_us(2) });
    assert_eq!(plan.fabric_links, plan.host_links);
    assert_eq!((plan.faults.len(), plan.checked_payload, plan.encoded), (1, false, false));
    assert_eq!(plan.run.limit, Time::ZERO + Duration::from_secs(10));
    assert_eq!(option(&plan, "sack_bitmap"), 0);
}

#[test]
fn i8_i9_bdp_and_auto_become_numbers_of_this_topology() {
    let plan = read(&[]).expect("the plan is valid");
    // 24 us for both directions, and six packets and six acknowledgements that are stored and forwarded: slightly
    // more than the paper's 110 packets.
    assert!((110..118).contains(&option(&plan, "cap_packets")), "{}", option(&plan, "cap_packets"));
    // I-8: 24 us + 6 * 240 KB * 8 / 40 Gbit/s = 312 us, and the time of a few packets.
    let timeout = Duration::from_ps(option(&plan, "rto_high")).as_us_f64();
    assert!((312.0..314.0).contains(&timeout), "{timeout}");
    let Some(SwitchPlan { buffer: BufferPlan::InputQueued { per_port }, pfc: Some(PfcPlan { threshold, .. }), .. }) =
        plan.switch
    else {
        panic!("{:?}", plan.switch)
    };
    // 20 KB in flight on the upstream link (IRN 4.1), and three packets.
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
    let plan = read(&changes).expect("the plan is valid");
    assert_eq!((plan.host_links.rate, plan.fabric_links.rate), (BitRate::gbps(100), BitRate::gbps(100)));
    assert_eq!(plan.fabric_links.delay, Duration::from_us(5));
    assert_eq!((plan.transport.name, plan.switch.map(|switch| switch.pfc)), ("roce-gbn", Some(None)));
    assert!(plan.faults.is_empty());
    assert!(matches!(plan.workload, WorkloadPlan::Poisson { load_ppm: 500_000, .. }));
}

/// A transport given by its name alone has its default options.
#[test]
fn a_transport_may_be_given_by_its_name_alone() {
    let [short, long] =
        ["\"falcon\"", "{ name = \"falcon\" }"].map(|text| read(&[("transport", text)]).expect("the plan is valid"));
    assert_eq!(format!("{:?}", short.transport), format!("{:?}", long.transport));
    assert_eq!(short.transport.name, "falcon");
}

/// Every key of a plan is used or rejected.
#[test]
fn every_key_of_switch_and_run_sets_its_field() {
    let switch = r#"{ model = "shared-buffer", buffer = "2MB", alpha = "3/8", pfc = { headroom = "41KB" },
        multipath = "wcmp", ecn = { kmin = "5KB", kmax = "200KB", pmax = "7%", depth = "input",
        draw = "packet" }, csig = {} }"#;
    let run = r#"{ limit = "3ms", stall_after = "2ms", warmup = "1ms", cooldown = "2ms", slice = "400us" }"#;
    let workload = r#"{ kind = "closed-loop", op = "write", message = "4KB", duration = "4ms", from = 1, to = 0 }"#;
    let plan = read(&[("switch", switch), ("run", run), ("workload", workload)]).expect("the plan is valid");
    let expected = SwitchPlan {
        buffer: BufferPlan::Shared { total: 2_000_000, alpha: Alpha { numerator: 3, denominator: 8 } },
        pfc: Some(PfcPlan {
            threshold: 0,
            hysteresis: plan.switch.and_then(|it| it.pfc).expect("PFC is on").hysteresis,
            headroom: 41_000,
        }),
        ecn: Some(EcnPlan {
            kmin: 5_000,
            kmax: 200_000,
            pmax: rnic_base::Probability::ratio(7, 100),
            depth: MarkDepth::Input,
            draw: MarkDraw::Packet,
        }),
        csig: true,
        trim: None,
        multipath: Multipath::Wcmp,
    };
    assert_eq!(plan.switch, Some(expected));
    let trims =
        read(&[("switch", r#"{ model = "input-queued", buffer = "240KB", trim = { queue = 5, headers = "9KB" } }"#)]);
    let mut trims = trims.expect("the plan is valid");
    let trim = trims.switch.and_then(|switch| switch.trim).expect("switches trim");
    assert_eq!((trim.packets, trim.header_bytes), (5, 9_000));
    assert!(trims.warnings().iter().any(|warning| warning.contains("do not pull")), "{:?}", trims.warnings());
    trims.transport.pulls = Some(16);
    assert_eq!(trims.warnings(), Vec::<String>::new());
    for (key, value) in [
        ("switch.trim", "{ queue = 0 }"),
        ("switch.trim", r#"{ headers = "999B" }"#),
        ("switch", r#"{ model = "input-queued", buffer = "240KB", pfc = {}, trim = {} }"#),
    ] {
        let refused = read(&[(key, value)]).expect_err("the plan is not valid").to_string();
        assert!(refused.contains("switch.trim"), "{refused}");
    }
    let run = RunPlan {
        limit: Time::ZERO + Duration::from_ms(3),
        stall_after: Duration::from_ms(2),
        warmup: Duration::from_ms(1),
        cooldown: Duration::from_ms(2),
        slice: Some(Duration::from_us(400)),
        latency_parts: false,
    };
    assert_eq!(plan.run, run);
}

/// A cooldown requires a workload that ends at a given time, and must be shorter than its duration.
#[test]
fn a_cooldown_requires_a_workload_with_a_longer_duration() {
    let timed = r#"{ kind = "closed-loop", op = "write", message = "4KB", duration = "4ms", from = 1, to = 0 }"#;
    let counted = r#"{ kind = "closed-loop", op = "write", message = "4KB", count = 9, from = 1, to = 0 }"#;
    let poisson = r#"{ kind = "poisson", load = "50%", size = "4KB", duration = "5ms" }"#;
    for (workload, run, what) in [
        (timed, r#"{ warmup = "1ms", cooldown = "2999us" }"#, None),
        (timed, r#"{ warmup = "1ms", cooldown = "3ms" }"#, Some("plan: run.cooldown: leaves no time")),
        (poisson, r#"{ cooldown = "4ms" }"#, None),
        (poisson, r#"{ cooldown = "5ms" }"#, Some("plan: run.cooldown: leaves no time")),
        (counted, r#"{ cooldown = "1us" }"#, Some("plan: run.cooldown: requires a workload with a")),
    ] {
        let found = read(&[("workload", workload), ("run", run)]).err().map(|error| error.to_string());
        assert_eq!(found.is_some(), what.is_some(), "{run}: {found:?}");
        assert!(found.is_none_or(|found| found.starts_with(what.unwrap_or_default())), "{run}");
    }
}

#[test]
fn every_key_of_a_fault_sets_its_field() {
    use crate::fault::{FaultKind as Kind, Target};
    let share = |percent| rnic_base::Probability::ratio(percent, 100);
    let us = Duration::from_us;
    // 1024 bytes of payload, all possible headers, preamble and gap, at 40 Gbit/s: 5 packets of about 1.1 KB.
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
    let plan = read(&[("fault", faults)]).expect("the plan is valid");
    let (last, others) = plan.faults.split_last().expect("there are nine faults");
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
fn files_are_read_by_the_name_in_the_plan() {
    let trace = read(&[("workload", r#"{ kind = "trace", file = "flows.csv" }"#)]).expect("the plan is valid");
    assert!(matches!(&trace.workload, WorkloadPlan::Trace(file) if file.flows.len() == 1));
    let headed = read(&[("workload", r#"{ kind = "trace", file = "head.csv" }"#)]).expect("the plan is valid");
    assert!(matches!(&headed.workload, WorkloadPlan::Trace(file) if file.flows.len() == 1));
    assert!(read(&[("workload.sizes", "sizes.txt")]).is_ok());
    assert!(read(&[("workload.sizes", "sizes.txt"), ("workload.size_unit", "1460B")]).is_ok());
}

/// The key that is replaced, its value, and the text that the error must contain.
const WRONG: &[(&str, &str, &str)] = &[
    ("links.dealy", "2us", "links.dealy: unknown key `dealy`"),
    ("mut", "9", "unknown key `mut`"),
    ("links.delay", "2 parsecs", "links.delay: `2 parsecs` has the unknown unit `parsecs`"),
    ("links.delay", "2", "links.delay: `2` has no unit"),
    ("links.delay", "0", "links.delay: must be between 1 ns and 1 s"),
    ("links.rate", "40GB", "links.rate: `40GB` has the unknown unit"),
    ("links.rate", "[1]", "links.rate: must be a quantity"),
    ("links.rate", "0", "links.rate: must be between"),
    ("links.fabric.rate", "1bps", "links.fabric.rate: must be between"),
    ("mtu", "\"big\"", "mtu: must be a whole number"),
    ("mtu", "1000000", "mtu: must be a multiple of 4"),
    ("mtu", "1022", "mtu: must be a multiple of 4"),
    ("payload", "some", "payload: unknown word `some`"),
    ("topology.kind", "torus", "topology.kind: unknown word `torus`"),
    ("topology.k", "7", "topology.k: must be an even number from 2 to 64 for a fat-tree"),
    ("topology.k", "100", "topology.k: must be an even number from 2 to 64 for a fat-tree"),
    ("topology.hosts", "3", "topology.hosts: does not apply to the topology `fat-tree`; remove it"),
    ("topology", r#"{ kind = "star" }"#, "topology.hosts: must be 2 to"),
    ("topology", r#"{ kind = "star", hosts = 1 }"#, "topology.hosts: must be 2 to"),
    ("topology", r#"{ kind = "star", hosts = 4, k = 4 }"#, "topology.k: does not apply to the topology `star`"),
    (
        "topology",
        r#"{ kind = "point-to-point", hosts = 2 }"#,
        "topology.hosts: does not apply to the topology `point-to-point`",
    ),
    ("switch.model", "magic", "switch.model: unknown word"),
    ("switch.buffer", "100", "switch"),
    ("switch.alpha", "1/2", "switch.alpha: applies only to switches with a shared buffer"),
    ("switch.pfc.headroom", "50KB", "switch.pfc.headroom: does not apply to an input-queued switch"),
    (
        "switch",
        r#"{ model = "shared-buffer", buffer = "1MB", pfc = { threshold = "9KB" } }"#,
        "switch.pfc.threshold: does not apply to a shared buffer",
    ),
    ("switch.pfc.threshold", "300KB", "switch.pfc.threshold: must be at least two packets"),
    (
        "switch",
        r#"{ model = "shared-buffer", buffer = "100KB", pfc = {} }"#,
        "switch.buffer: is too small: 0 bytes remain",
    ),
    ("switch", r#"{ model = "shared-buffer", buffer = "1MB", alpha = "x" }"#, "switch.alpha: `x` is not a fraction"),
    ("switch.ecn", r#"{ kmin = "5KB", kmax = "1KB", pmax = "1%" }"#, "switch.ecn.kmin: must be below kmax"),
    ("switch.ecn", r#"{ kmin = "5KB" }"#, "switch.ecn: the key `kmax` is missing"),
    (
        "switch",
        r#"{ model = "shared-buffer", buffer = "1MB",
             ecn = { kmin = "5KB", kmax = "9KB", pmax = "1%", depth = "virtual-queue" } }"#,
        "switch.ecn.depth: must not be `virtual-queue` for a switch with a shared buffer",
    ),
    ("transport.name", "quic", "unknown transport `quic`; the available transports are: roce-gbn, "),
    ("transport", "{}", "transport.name: is missing; name a transport"),
    ("transport", "3", "must be the name of a transport, or a table such as"),
    ("transport.name", "quic", "files with a program, whose names end in .rnicp, such as quic.rnicp"),
    ("transport.name", "none.rnicp", "the path is relative to the folder in which the command runs"),
    ("cnp_interval", "4us", "an option of the transport is `transport.cnp_interval`"),
    ("transport.cap", "3", "plan: transport.cap: unknown parameter `cap` of the transport `irn`"),
    ("transport.controll", "dcqcn", "did you mean `control`?"),
    ("senders", "3", "the keys of this table are name"),
    ("senders", "3", "; there is `workload.senders`"),
    ("links.loss", "1%", "links.loss: unknown key `loss`"),
    (
        "fault",
        r#"[{ kind = "mark", probability = "1%", packets = "acks" }]"#,
        "fault[0].packets: must be `data` or `all`, because acknowledgements carry no marks",
    ),
    ("links.loss", "1%", "; losses are faults: fault = ["),
    ("switch.ecn", "true", "switch.ecn: must be a table: it is true; its keys are `enabled`, `kmin`, `kmax`"),
    (
        "switch",
        r#"{ buffer = "1MB" }"#,
        "switch: the key `model` is missing; it is one of \"input-queued\", \"shared-buffer\"",
    ),
    ("transport.cap_packets", "many", "parameter `cap_packets`: `many` is not a whole number"),
    ("transport.rto_high", "3", "parameter `rto_high`: `3` has no unit"),
    ("transport.paths", "spray", "treats every gap as a loss"),
    ("transport.rto_low", "1.5", "transport.rto_low: must be a string, an integer"),
    ("nic.cache", "1MB", "nic.cache: unknown key `cache`"),
    ("nic", r#"{ qpc_cache = "1MB", qpc_entries = 5 }"#, "nic.qpc_entries: conflicts with qpc_cache"),
    ("nic.qpc_cache", "200B", "nic.qpc_cache: is too small for a single context of"),
    ("nic.bus_latency", "2", "nic.bus_latency: `2`"),
    ("nic.bus_latency", "1s", "nic.bus_latency: must be at most"),
    ("nic.bus_reads", "0", "nic.bus_reads: must be 1 to"),
    ("nic.bus_rate", "0", "nic.bus_rate: "),
    ("nic.wqe_batch", "0", "nic.wqe_batch: must be above zero"),
    ("nic", r#"{ wqe_fetch = "ahead", wqe_batch = 8 }"#, "nic.wqe_batch: applies only to"),
    ("nic.qp_cycle", "50ns", "nic.qp_cycle: applies only to Falcon; use `nic.cycle` with transport `irn`"),
    ("nic", r#"{ qpc_entries = 5, second_entries = 50 }"#, "nic.second_latency: is missing"),
    ("nic", r#"{ qpc_entries = 5, second_latency = "60ns" }"#, "nic.second_entries: is missing"),
    ("nic", r#"{ qpc_entries = 5, second_entries = 0, second_latency = "60ns" }"#, "nic.second_entries: must be"),
    ("nic", r#"{ second_entries = 50, second_latency = "60ns" }"#, "nic.second_entries: requires qpc_cache"),
    (
        "nic",
        r#"{ qpc_entries = 5, second_entries = 50, second_latency = "1s" }"#,
        "nic.second_latency: must be at most",
    ),
    ("nic.bitmap_latency", "1.4us", "nic.bitmap_latency: does not apply to transport `irn`"),
    ("nic.receive_buffer", "1KB", "nic.receive_buffer: is too small"),
    ("workload.kind", "chaos", "workload.kind: unknown word `chaos`"),
    ("workload.load", "0", "workload.load: must be above 0"),
    ("workload.load", "170%", "workload.load: `170%`"),
    ("workload.sizes", "cats", "workload.sizes: unknown distribution `cats`; use irn-heavy-tail"),
    ("workload.sizes", "uniform:5MB-1MB", "workload.sizes: `uniform:5MB-1MB`: the lower size, 5000000 bytes, exceeds"),
    ("workload.sizes", "fixed:0", "workload.sizes: `fixed:0`: the size is out of range"),
    ("workload.sizes", "none.txt", "workload.sizes: none.txt: no such file"),
    ("workload.sizes", "bad.txt", "workload.sizes: bad.txt: the distribution is incomplete"),
    ("workload.size", "4KB", "workload.sizes: is ambiguous or missing"),
    ("workload.senders", "4", "workload.senders: does not apply to the workload `poisson`"),
    ("workload", r#"{ kind = "poisson", size = 4, duration = "1ms" }"#, "workload.load: is missing"),
    (
        "workload",
        r#"{ kind = "poisson", size = 4, load = 1.0, duration = "0us" }"#,
        "workload.duration: must be above zero",
    ),
    ("workload", r#"{ kind = "incast", senders = 54, bytes = 1 }"#, "workload.senders: must be 1 to 53"),
    (
        "workload",
        r#"{ kind = "incast", senders = 4, bytes = 1, to = 54 }"#,
        "workload.to: is not a host of this topology: there is no host 54",
    ),
    (
        "topology",
        r#"{ kind = "leaf-spine", spines = 2, leaves = 4 }"#,
        "topology.hosts_per_leaf: must be 1 to 512 for leaf-spine",
    ),
    ("topology", r#"{ kind = "leaf-spine", k = 4 }"#, "topology.k: does not apply to the topology `leaf-spine`"),
    ("topology", r#"{ kind = "star", hosts = 4, leaves = 4 }"#, "topology.leaves: does not apply to the topology"),
    (
        "topology",
        r#"{ kind = "leaf-spine", spines = 1, leaves = 1, hosts_per_leaf = 1 }"#,
        "topology.hosts_per_leaf: is out of range: 1 leaves with 1 hosts",
    ),
    (
        "workload",
        r#"{ kind = "incast", senders = 4, bytes = 1, background = { load = "50%", sizes = "uniform" } }"#,
        "workload.background: needs a `duration`",
    ),
    (
        "workload",
        r#"{ kind = "incast", senders = 4, bytes = 1, interval = "1s", background = { load = 1.0, sizes = "cats" } }"#,
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
        "workload.to: overlaps with the clients",
    ),
    (
        "workload",
        r#"{ kind = "closed-loop", op = "write", message = 1, count = 1, servers = 60 }"#,
        "workload.servers: must be 1 to",
    ),
    (
        "workload",
        r#"{ kind = "closed-loop", op = "write", message = 1, count = 1, from = 3, to = 1, servers = 3 }"#,
        "workload.to: overlaps with the clients",
    ),
    ("workload", r#"{ kind = "open-loop", op = "write", message = 1, duration = "1us" }"#, "workload.load: is missing"),
    (
        "workload",
        r#"{ kind = "open-loop", op = "write", message = 1, load = "101%", duration = "1us" }"#,
        "workload.load: ",
    ),
    (
        "workload",
        r#"{ kind = "open-loop", op = "write", message = 0, load = 1.0, duration = "1us" }"#,
        "workload.message",
    ),
    (
        "workload",
        r#"{ kind = "open-loop", op = "write", message = 1, load = 1.0, count = 1 }"#,
        "workload.count: does not apply",
    ),
    ("transport", r#"{ name = "falcon", ordering = "unordered" }"#, "transport.ordering: must be `ordered` or `weak`"),
    (
        "workload",
        r#"{ kind = "closed-loop", op = "write", message = 1, count = 0 }"#,
        "workload.count: must be above zero",
    ),
    (
        "workload",
        r#"{ kind = "closed-loop", op = "write", message = 1, count = 1, think = "18001s" }"#,
        "workload.think: must be at most ",
    ),
    (
        "workload",
        r#"{ kind = "closed-loop", op = "write", message = 1, count = 1, queue_pairs = 0 }"#,
        "workload.queue_pairs: must be above zero",
    ),
    (
        "workload",
        r#"{ kind = "open-loop", op = "write", message = 1, load = 1.0, duration = "1us", queue_pairs = 0 }"#,
        "workload.queue_pairs: must be above zero",
    ),
    ("workload.count", "99999999999999999999", "workload.count: 99999999999999999999 is too large for any numeric key"),
    ("transport.name", "falcon", "; to drop the plan's options of `transport` too, set transport=NAME instead"),
    ("workload.clients", "2", "workload.clients: does not apply to the workload `poisson`"),
    ("workload", r#"{ kind = "permutation", bytes = 0 }"#, "workload.bytes: must be above zero"),
    ("workload", r#"{ kind = "collective", bytes = 9 }"#, "workload.collective: is missing"),
    (
        "workload",
        r#"{ kind = "collective", collective = "gather", bytes = 9 }"#,
        "unknown collective `gather`; the valid values are",
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
        "workload.op: must notify the receiving rank; use write-imm or send",
    ),
    (
        "workload",
        r#"{ kind = "collective", collective = "all-to-all", bytes = 9, connections = 4000000 }"#,
        "workload.connections: must be 1 or more, with at most 131072 connections per host",
    ),
    (
        "workload",
        r#"{ kind = "collective", collective = "all-reduce", bytes = 9, connections = 2 }"#,
        "workload.bytes: must be",
    ),
    (
        "workload",
        r#"{ kind = "collective", collective = "all-reduce", bytes = "100GB", ranks = 2 }"#,
        "workload.bytes: must give each rank at most",
    ),
    (
        "workload",
        r#"{ kind = "collective", collective = "all-reduce", bytes = 9, count = 0 }"#,
        "workload.count: must be",
    ),
    (
        "workload",
        r#"{ kind = "permutation", bytes = 9, connections = 10 }"#,
        "workload.connections: must be 1 to 131072, with at least one byte for each connection",
    ),
    (
        "workload",
        r#"{ kind = "closed-loop", op = "fly", message = 1, count = 1 }"#,
        "workload.op: unknown operation `fly`",
    ),
    (
        "workload",
        r#"{ kind = "poisson", load = "1%", sizes = "uniform", duration = "1us", op = "read" }"#,
        "workload.op: unknown operation of these flows `read`; the valid values are write, write-imm, send",
    ),
    ("workload", r#"{ kind = "incast", senders = 1, bytes = 9, op = "fetch-add" }"#, "workload.op: unknown operation"),
    ("workload", r#"{ kind = "closed-loop", op = "send", message = 1 }"#, "workload.count: is ambiguous or missing"),
    ("workload", r#"{ kind = "closed-loop", op = "send", count = 1 }"#, "workload.message: is missing"),
    (
        "workload",
        r#"{ kind = "closed-loop", op = "fetch-add", message = 4, count = 1 }"#,
        "workload.message: must be 8 bytes for atomic",
    ),
    ("workload", r#"{ kind = "closed-loop", op = "send", message = "2GiB", count = 1 }"#, "a message has at most"),
    (
        "workload",
        r#"{ kind = "closed-loop", op = "send", message = 1, count = 1, to = 0 }"#,
        "overlaps with the clients",
    ),
    ("workload", r#"{ kind = "trace", file = "none.csv" }"#, "workload.file: none.csv: no such file"),
    ("workload", r#"{ kind = "trace", file = "bad.csv" }"#, "bad.csv: line 1, column 5: `99` is not a host"),
    ("fault", r#"[{ kind = "gremlin" }]"#, "fault[0].kind: unknown word `gremlin`"),
    ("fault", r#"[{ kind = "drop" }]"#, "fault[0].probability: is missing"),
    ("fault", r#"[{ kind = "drop", probability = "2" }]"#, "fault[0].probability: `2`"),
    (
        "fault",
        r#"[{ kind = "drop", probability = "1%", links = "hots-*" }]"#,
        "fault[0].links: `hots-*` matches no link direction",
    ),
    ("fault", r#"[{ kind = "drop", probability = "1%", jitter = "1us" }]"#, "fault[0].jitter: does not apply"),
    ("fault", r#"[{ kind = "reorder", probability = "1%" }]"#, "fault[0].delay: is ambiguous or missing"),
    ("fault", r#"[{ kind = "burst", probability = "1%" }]"#, "fault[0].length: is ambiguous or missing"),
    ("fault", r#"[{ kind = "delay" }]"#, "fault[0].delay: is missing; give `delay`"),
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
        "workload.interval: is too long: the last request starts later",
    ),
    (
        "workload",
        r#"{ kind = "trace", file = "late.csv" }"#,
        "late.csv: line 2, column 1: the flow starts at 18500 s, which is later",
    ),
    (
        "workload",
        r#"{ kind = "trace", file = "head.csv", format = "list" }"#,
        "head.csv: line 1, column 7: `src` is not a host number",
    ),
    (
        "workload",
        r#"{ kind = "trace", file = "words.csv" }"#,
        "words.csv: line 1, column 1: the header has no column `bytes`",
    ),
    ("workload", r#"{ kind = "trace", file = "flows.csv", format = "xml" }"#, "workload.format: unknown word `xml`"),
    ("workload.shares", "each", "workload.sizes: `shares` and `size_unit` apply to files of sizes only"),
    ("workload", r#"{ kind = "chakra", file = "run" }"#, "workload.file: run: execution traces are not text"),
    (
        "workload",
        r#"{ kind = "trace", file = "empty.csv" }"#,
        "empty.csv: the file contains no flows; a line is start,src,dst",
    ),
    (
        "workload",
        r#"{ kind = "trace", file = "ns3.csv" }"#,
        "ns3.csv: line 1, column 1: the file has 1 flows, but its first line says 2",
    ),
    ("fault", r#"[{ kind = "delay", delay = "18500s" }]"#, "fault[0].delay: must be at most 18000 s"),
    ("run.stall_after", "0", "run.stall_after: must be above zero"),
    ("run.slice", "1ns", "run.slice: is too short: it results in more than 100000 slices until run.limit"),
    ("run.slice", "0", "run.slice: is too short: it results in more than"),
    ("run.slice", "soon", "run.slice: `soon`"),
    ("slow_host", r#"{ rate = "1Gbps" }"#, "slow_host: requires a NIC model"),
    ("slow_host", r#"{ hosts = "*" }"#, "slow_host: the key `rate` is missing"),
    ("run.speed", "11", "run.speed: unknown key `speed`"),
    ("links.rate.x", "1", "links.rate.x: `rate` of `links.rate.x` is not a table"),
];

#[test]
fn every_error_is_one_line_that_names_the_key() {
    let mut wrong = Vec::new();
    for (key, value, what) in WRONG {
        let error = read(&[(key, value)]).map_or_else(|error| error.to_string(), |_| "no error".to_owned());
        if !error.contains(what) || error.lines().count() != 1 || !error.starts_with("plan") {
            wrong.push(format!("{key} = {value}: {error}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A value that is found to be wrong after the text was read, too, is named with its line; one that replaces it is not.
#[test]
fn a_wrong_value_is_named_with_its_line_unless_it_is_replaced() {
    let text = VALID_PLAN.replace("mtu = 1024", "mtu = 1025");
    let line = VALID_PLAN[..VALID_PLAN.find("mtu = 1024").expect("an MTU")].matches('\n').count() + 1;
    let error = Plan::from_toml(&text).expect_err("no multiple of 4").to_string();
    assert!(error.starts_with(&format!("plan, line {line}: mtu: ")), "{error}");
    let error = read(&[("mtu", "1025")]).expect_err("no multiple of 4").to_string();
    assert!(error.starts_with("plan: mtu: "), "{error}");
}

#[test]
fn an_unknown_option_of_the_transport_is_named_with_its_line() {
    let option = "cap_packets = \"bdp\"\n";
    let line = VALID_PLAN[..VALID_PLAN.find(option).expect("an option")].matches('\n').count() + 1;
    let text = VALID_PLAN.replace(option, "cap_pakets = 3\n");
    let error = Plan::from_toml(&text).expect_err("no such option").to_string();
    assert!(error.starts_with(&format!("plan, line {line}: transport.cap_pakets: unknown parameter")), "{error}");
}

#[test]
fn keys_unused_by_a_falcon_nic_are_refused_for_falcon_alone() {
    let of_falcon = |nic: &str| read(&[("transport", r#"{ name = "falcon" }"#), ("nic", nic)]);
    for (key, nic) in [
        ("receive_buffer", r#"{ receive_buffer = "600KB" }"#),
        ("wqe_fetch", r#"{ wqe_fetch = "ahead" }"#),
        ("wqe_fetch", r#"{ wqe_fetch = "on-demand" }"#),
        ("wqe_batch", "{ wqe_batch = 8 }"),
    ] {
        let error = of_falcon(nic).expect_err(nic).to_string();
        assert!(
            error.starts_with(&format!(
                "plan: nic.{key}: does not apply to the NIC model of transport `falcon`; remove it"
            )),
            "{error}"
        );
        assert!(read(&[("nic", nic)]).is_ok(), "{nic} with irn");
    }
    let rest = r#"{ qpc_entries = 5, second_entries = 50, second_latency = "60ns", bus_latency = "250ns",
                    bus_rate = "100Gbps", bus_reads = 8, cycle = "5ns", qp_cycle = "50ns" }"#;
    of_falcon(rest).expect("these keys apply to a Falcon NIC");
    of_falcon(r#"{ enabled = false, wqe_batch = 8 }"#).expect("keys of a disabled model are not checked");
}

/// Memory is slow for the complete run, or in the interval that the plan gives.
#[test]
fn a_slow_host_is_slow_in_the_given_interval() {
    let slow = |slow: &str| read(&[("transport", r#"{ name = "falcon" }"#), ("slow_host", slow)]);
    let times = |text: &str| slow(text).expect(text).slow_host.map(|slow| (slow.from, slow.until));
    assert_eq!(times(r#"{ rate = "1Gbps" }"#), Some((Time::ZERO, None)));
    let within = times(r#"{ rate = "1Gbps", from = "1ms", until = "2ms" }"#);
    assert_eq!(within, Some((Time::from_us(1_000), Some(Time::from_us(2_000)))));
    for (wrong, what) in [
        (r#"{ rate = "1Gbps", from = "2ms", until = "1ms" }"#, "slow_host.until: must be after `from`"),
        (r#"{ rate = "1Gbps", from = "2ms", until = "2ms" }"#, "slow_host.until: must be after `from`"),
        (r#"{ rate = "1Gbps", every = "2ms" }"#, "slow_host.every: requires `until`"),
        (r#"{ rate = "1Gbps", from = "1ms", until = "2ms", every = "1ms" }"#, "slow_host.every: must be longer"),
        (r#"{ rate = "1Gbps", until = "0us" }"#, "slow_host.until: must be after `from`"),
        (r#"{ rate = "1Gbps", from = "99999999999s" }"#, "slow_host.from: "),
        (r#"{ rate = "1Gbps", from = "-1us" }"#, "slow_host.from: "),
        (r#"{ rate = "1bps" }"#, "slow_host.rate: must be at least 1Mbps"),
        (r#"{ rate = "1Gbps", hosts = "host-999" }"#, "slow_host.hosts: matches no host"),
        (r#"{ rate = "1Gbps", till = "1ms" }"#, "slow_host.till: unknown key `till`"),
    ] {
        let error = slow(wrong).expect_err(wrong).to_string();
        assert!(error.starts_with(&format!("plan: {what}")) && error.lines().count() == 1, "{wrong}: {error}");
    }
}

#[test]
fn errors_in_the_text_name_the_line_number() {
    let line = |from: &str, to: &str| {
        Plan::from_toml(&VALID_PLAN.replace(from, to)).expect_err("the changed plan is invalid").to_string()
    };
    let found = line("delay = \"2us\"", "delay = \"2miles\"");
    assert!(found.starts_with("plan, line 11: links.delay: `2miles`"), "{found}");
    let found = line("[links]", "[links");
    assert!(found.starts_with("plan, line 9: "), "{found}");
    let found = line("k = 6", "k = 6\nports = 4");
    assert!(found.starts_with("plan, line 8: topology") && found.contains("`ports`"), "{found}");
    let found = Plan::from_toml("").expect_err("an empty plan is invalid").to_string();
    assert!(found.contains("the key `topology` is missing"), "{found}");
}

#[test]
fn a_topology_with_switches_requires_a_switch_table() {
    let text = VALID_PLAN
        .replace("[switch]\nmodel = \"input-queued\"\nbuffer = \"240KB\"\n[switch.pfc]\nthreshold = \"auto\"\n", "");
    let error = Plan::from_toml(&text).expect_err("a plan without the switch table is invalid").to_string();
    assert!(error.starts_with("plan: switch: is missing; a topology with switches"), "{error}");
}

/// When only the transport's name is replaced, the options of the plan's transport remain and the error names them,
/// unless they were given together with the new name.
#[test]
fn replacing_only_the_transport_name_mentions_inherited_options() {
    let hint = "to drop the plan's options of `transport` too";
    for (with, is_told) in [
        (&[("transport.name", "falcon")][..], true),
        (&[("transport.name", "falcon"), ("run.warmup", "1us")], true),
        (&[("transport.name", "falcon"), ("transport.flows", "2")], false),
    ] {
        let text = read(with).expect_err("the option does not exist for falcon").to_string();
        assert_eq!(text.contains(hint), is_told, "{with:?}: {text}");
    }
}
