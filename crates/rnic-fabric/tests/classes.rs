//! Priority classes: what a class gets at a NIC and at an output of a switch, beside others.

mod common;

use common::*;
use rnic_fabric::report::GroupFigures;
use rnic_fabric::{Plan, Report};

/// Returns a network with two classes, and a group of traffic in each; the ends of the groups are given.
macro_rules! plan {
    ($network:literal, $ends_of_a:literal, $ends_of_b:literal) => {
        concat!(
            $network,
            r#"
    mtu = 1024
    links = { rate = "40Gbps", delay = "1us" }
    run = { warmup = "100us", cooldown = "100us" }
    [classes.a]
    [classes.b]
    [traffic.a]
    class = "a"
    kind = "closed-loop"
    op = "write"
    message = "8KB"
    depth = 16
    queue_pairs = 4
    duration = "3ms"
    "#,
            $ends_of_a,
            r#"
    [traffic.b]
    class = "b"
    kind = "closed-loop"
    op = "write"
    message = "8KB"
    depth = 16
    queue_pairs = 9
    duration = "3ms"
    "#,
            $ends_of_b
        )
    };
}

/// Two hosts: classes share the link of the NIC.
const NIC: &str = plan!(
    r#"
    name = "nic"
    topology = { kind = "point-to-point" }
    transport = { name = "irn" }"#,
    "",
    ""
);

/// Hosts 1 and 2 send to host 0 through a lossless switch: classes share its output.
const OUTPUT: &str = plan!(
    r#"
    name = "output"
    topology = { kind = "star", hosts = 4 }
    switch = { model = "input-queued", buffer = "400KB", pfc = {} }
    transport = { name = "roce-gbn", rto = 0 }"#,
    "from = 1\n    to = 0",
    "from = 2\n    to = 0"
);

fn group<'r>(report: &'r Report, name: &str) -> &'r GroupFigures {
    &report.groups.as_ref().expect("the plan has groups")[name]
}

/// Returns the messages of both groups that completed in the measured time.
fn messages(report: &Report) -> [u64; 2] {
    ["a", "b"].map(|name| group(report, name).messages)
}

/// Weighted classes share a saturated link in proportion to their weights, whatever the number of queue pairs, within
/// 2 %; both are always served.
#[test]
fn weighted_classes_share_a_nic_and_an_output_in_proportion() {
    for text in [NIC, OUTPUT] {
        for weights in [["1", "1"], ["3", "1"], ["60", "40"], ["1", "9"]] {
            let overrides = [("classes.a.weight", weights[0]), ("classes.b.weight", weights[1])];
            let report = run(text, &overrides, 1);
            let [a, b] = messages(&report);
            let [weight_a, weight_b] = weights.map(|weight| weight.parse::<f64>().expect("a number"));
            let (share, expected) = (a as f64 / (a + b) as f64, weight_a / (weight_a + weight_b));
            assert!((share - expected).abs() < 0.02 * expected, "{weights:?}: {a} and {b} messages: {}", report.plan);
            // The link is full: 2.8 ms at 40 Gbit/s, less the headers.
            assert!((a + b) * 8_000 > 14_000_000 * 88 / 100, "{weights:?}: {a} and {b}: {}", report.plan);
        }
    }
}

/// Shares count bytes: a class of small packets does not get more than one of large packets.
#[test]
fn shares_are_of_bytes_not_of_packets() {
    for text in [NIC, OUTPUT] {
        let small = [("traffic.b.message", "256B"), ("traffic.b.depth", "256")];
        let report = run(text, &small, 1);
        let classes = report.classes.as_ref().expect("the plan has classes");
        // In bytes on the link, of both directions: acknowledgements of small packets are many, but on the way back.
        let sent = ["a", "b"].map(|name| (classes[name].wire_bytes, classes[name].packets));
        let [a, b] = messages(&report);
        // 256 B of payload have 82 B of headers and gaps, 1024 B as many.
        let wire = |payload: u64, packets: u64| (payload + packets * 82) as f64;
        let ratio = wire(a * 8_000, a * 8) / wire(b * 256, b);
        assert!((0.95..1.05).contains(&ratio), "{}: {a} and {b} messages, {sent:?}: {ratio}", report.plan);
    }
}

/// A low class starves while a high class fills the link, and gets what is left when it does not.
#[test]
fn a_low_class_gets_only_what_a_higher_one_leaves() {
    for text in [NIC, OUTPUT] {
        let report = run(text, &[("classes.a.priority", "1")], 1);
        let [high, low] = messages(&report);
        assert!(low * 100 < high, "{}: {low} messages beside {high}", report.plan);
        assert_eq!(group(&report, "b").flows_unfinished, 0, "it has to complete at the end");
        let open = r#"{ class = "a", kind = "open-loop", op = "write", message = "8KB", depth = 64, load = "60%",
            queue_pairs = 4, duration = "3ms", from = FROM, to = TO }"#;
        let ends = if text == NIC { ["0", "1"] } else { ["1", "0"] };
        let open = open.replace("FROM", ends[0]).replace("TO", ends[1]);
        let report = run(text, &[("classes.a.priority", "1"), ("traffic.a", &open)], 1);
        let [high, low] = messages(&report);
        let share = |messages: u64| messages as f64 * 8_000.0 / 14_000_000.0;
        assert!((0.56..0.64).contains(&share(high)), "{}: the load is 60 %: {}", report.plan, share(high));
        // 1024 bytes of payload take 1106 byte times.
        let left = 1.0 - share(high) * 1.08;
        assert!(share(low) * 1.08 > left * 0.94, "{}: {} of {left}", report.plan, share(low));
        assert!(share(low) < left, "{}: {} of {left}", report.plan, share(low));
    }
}

/// Requests of one class from the host that floods an output with another class, to a different output.
const URGENT: &str = r#"{ class = "b", kind = "open-loop", op = "send", message = "256B", depth = 16, load = "1%",
    queue_pairs = 2, from = 1, to = 3, duration = "3ms" }"#;

/// PFC pauses a class, not the link: the paused class does not delay another one.
#[test]
fn a_paused_class_does_not_delay_another() {
    let flood = r#"{ class = "a", kind = "incast", senders = 3, bytes = "6MB", repeats = 2, interval = "1ms" }"#;
    let p99 = |overrides: &[(&str, &str)]| {
        let report = run(OUTPUT, overrides, 1);
        (group(&report, "b").latency_us.expect("messages are measured").p99, report)
    };
    let (alone, _) = p99(&[("traffic", &format!("{{ b = {URGENT} }}")), ("classes", "{ b = {} }")]);
    let both = format!("{{ a = {flood}, b = {URGENT} }}");
    let (beside, report) = p99(&[("traffic", &both)]);
    let classes = report.classes.as_ref().expect("the plan has classes");
    assert!(classes["a"].pauses > 0 && classes["a"].pause_time_us > 1_000.0, "{classes:?}");
    assert_eq!((classes["b"].pauses, classes["b"].pause_time_us), (0, 0.0));
    assert_eq!((classes["a"].dropped, classes["b"].dropped), (0, 0));
    assert!(beside < alone * 1.5, "{beside} us at p99, {alone} us alone");
    let same = both.replace("class = \"b\"", "class = \"a\"");
    let (delayed, _) = p99(&[("traffic", &same), ("classes", "{ a = {} }")]);
    assert!(delayed > beside * 3.0, "{delayed} us in the same class, {beside} us in another");
}

/// A class without PFC loses packets in its part of the buffer, beside a lossless one that loses none.
#[test]
fn a_class_may_be_lossless_beside_one_that_is_not() {
    let transports = [("classes.b.pfc", "false"), ("traffic.b.transport", "irn")];
    let groups = [
        ("traffic.a.from", "1"),
        ("traffic.a.clients", "3"),
        ("traffic.b.from", "1"),
        ("traffic.b.clients", "3"),
        ("traffic.a.queue_pairs", "9"),
        ("traffic.a.duration", "1ms"),
        ("traffic.b.duration", "1ms"),
    ];
    let report = run(OUTPUT, &[&transports[..], &groups].concat(), 1);
    let classes = report.classes.as_ref().expect("the plan has classes");
    assert!(classes["a"].pauses > 0 && classes["a"].dropped == 0, "{classes:?}");
    assert!(classes["b"].pauses == 0 && classes["b"].dropped > 0, "{classes:?}");
    assert_eq!(group(&report, "a").packets_retransmitted, 0);
    assert!(group(&report, "b").packets_retransmitted > 0);
    assert!(report.warnings.iter().all(|warning| !warning.contains("although PFC is on")), "{:?}", report.warnings);
}

/// Marks follow the thresholds of the class.
#[test]
fn classes_have_their_own_marks() {
    let ecn = ("switch.ecn", r#"{ kmin = "1MB", kmax = "2MB", pmax = "10%" }"#);
    let own = [("classes.a.kmin", "5KB"), ("classes.a.kmax", "20KB")];
    let report = run(OUTPUT, &[&[ecn][..], &own].concat(), 1);
    let classes = report.classes.as_ref().expect("the plan has classes");
    assert!(classes["a"].marked > 100 && classes["b"].marked == 0, "{classes:?}");
    assert_eq!(report.ecn_marks, classes["a"].marked);
    assert!(classes["a"].queue_max_bytes > 20_000 && classes["b"].queue_max_bytes > 20_000, "{classes:?}");
}

/// Acknowledgements travel in the class of their flow, or in the one that the plan names.
#[test]
fn acknowledgements_have_the_class_that_the_plan_says() {
    let one_way = r#"{ a = { class = "a", transport = "irn", kind = "permutation", bytes = "500KB" } }"#;
    let packets = |overrides: &[(&str, &str)]| {
        let report = run(OUTPUT, &[&[("run", "{}")], overrides].concat(), 1);
        (report.classes.clone().expect("the plan has classes"), report)
    };
    let (same, report) = packets(&[("traffic", one_way), ("classes", "{ a = {} }")]);
    assert_eq!(same["a"].packets, report.packets_sent + report.packets_retransmitted + report.acks_sent);
    let (apart, report) =
        packets(&[("traffic", one_way), ("classes", r#"{ a = { acks = "b" }, b = { priority = 1 } }"#)]);
    assert_eq!(apart["a"].packets, report.packets_sent + report.packets_retransmitted);
    assert!(apart["b"].packets > 0 && apart["b"].packets == report.acks_sent, "{apart:?}");
}

/// Classes of three transports on the same hosts, with faults, losses and pauses: every message arrives once, and the
/// run is the same in both orders of nodes, in parts on threads, and with encoded packets.
#[test]
fn runs_with_classes_repeat_themselves() {
    let groups = r#"{
        a = { class = "a", kind = "collective", collective = "all-reduce", bytes = "600KB", count = 2 },
        b = { class = "b", kind = "poisson", load = "40%", sizes = "irn-heavy-tail", duration = "300us",
              transport = "irn" },
        c = { class = "c", kind = "open-loop", op = "read", message = "4KB", load = "10%", duration = "300us",
              from = 2, transport = "falcon" },
    }"#;
    let classes = r#"{ a = { priority = 1 }, b = { weight = 2, pfc = false, acks = "a" }, c = {} }"#;
    let roce = ("transport", r#"{ name = "roce-gbn", rto = "200us" }"#);
    let base = [("traffic", groups), ("classes", classes), roce];
    let tree = ("topology", r#"{ kind = "fat-tree", k = 4 }"#);
    let shared = (
        "switch",
        r#"{ model = "shared-buffer", buffer = "2MB", pfc = {},
        ecn = { kmin = "5KB", kmax = "50KB", pmax = "10%" } }"#,
    );
    for more in [&[][..], &[FAULTS], &[tree], &[shared, FAULTS], &[tree, shared]] {
        let overrides = [&base[..], more].concat();
        let report = run(OUTPUT, &overrides, 7);
        assert!(report.groups.iter().flatten().all(|(_, group)| group.flows > 0), "{:?}", report.groups);
        assert_independent_of_order_and_parts(&report, OUTPUT, &overrides, 7, &format!("{more:?}"));
        let encoded = [&overrides[..], &[("wire", "encoded"), ("payload", "checked")]].concat();
        assert_eq!(report.trace_hash, run(OUTPUT, &encoded, 7).trace_hash, "{more:?}");
    }
}

/// Impossible plans are refused with one line that names the key.
#[test]
fn hostile_classes_are_refused() {
    let refused = |overrides: &[(&str, &str)], expected: &str| {
        let error = Plan::from_toml_with(OUTPUT, overrides, &mut |_| Err("no file".to_owned()));
        let error = error.map(|_| ()).expect_err(expected).to_string();
        assert!(error.contains(expected) && !error.contains('\n'), "{overrides:?}: {error}");
    };
    refused(&[("classes.a.weight", "0")], "classes.a.weight: must be 1 to 1000");
    refused(&[("classes.a.weight", "1001")], "classes.a.weight: must be 1 to 1000");
    refused(&[("classes.b.priority", "8")], "classes.b.priority: must be 0 to 7");
    refused(&[("classes.b.priority", "-1")], "classes.b.priority");
    refused(&[("classes.b.colour", "1")], "classes.b.colour: unknown key");
    refused(&[("classes", "{}")], "classes: must have 1 to 8 classes");
    let nine: Vec<String> = (0..9).map(|class| format!("c{class} = {{}}")).collect();
    refused(&[("classes", &format!("{{ {} }}", nine.join(", ")))], "classes: must have 1 to 8 classes");
    refused(&[("classes.c", "{}")], "classes.c: is used by no group of traffic");
    refused(&[("traffic.a.class", "z")], "traffic.a.class: unknown class `z`; the classes are: a, b");
    refused(&[("classes.a.acks", "z")], "classes.a.acks: unknown class `z`");
    refused(&[("classes.a b", "{}")], "classes.a b.name: must have 1 to 32 letters");
    refused(
        &[("classes.a.pfc", "true"), ("switch.pfc.enabled", "false")],
        "classes.a.pfc: needs switches with [switch.pfc]",
    );
    refused(&[("classes.a.kmin", "5KB")], "classes.a.kmin: needs switches with [switch.ecn]");
    let ecn = ("switch.ecn", r#"{ kmin = "5KB", kmax = "50KB", pmax = "10%" }"#);
    refused(&[ecn, ("classes.a.kmin", "60KB")], "classes.a.kmin: must be below kmax");
    refused(&[("switch.pfc.threshold", "300KB")], "switch.pfc.threshold: must be at least two packets");
    refused(
        &[("switch.buffer", "10KB"), ("switch.pfc.enabled", "false"), ("mtu", "8192")],
        "switch.buffer: is too small",
    );
    refused(
        &[("classes.a.acks", "b"), ("traffic.a.transport", "falcon")],
        "classes.a.acks: cannot be another class: the transport of `a`, falcon, does not acknowledge every packet",
    );
    refused(&[("classes.a.acks", "b")], "classes.a.acks: cannot be another class: the transport of `a`, roce-gbn");
    for table in ["nic", "scr"] {
        refused(&[(table, "{}")], &format!("{table}: cannot be combined with [classes]"));
    }
    let poisson = r#"{ kind = "poisson", load = "10%", size = "20KB", duration = "500us" }"#;
    let alone = OUTPUT.split("[traffic.a]").next().expect("a text").replace("[classes.a]\n    [classes.b]", "");
    let with = |more: &str| Plan::from_toml(&format!("{alone}\n{more}")).map(|_| ());
    let error =
        with(&format!("[classes.a]\n[workload]\n{}", poisson.trim_matches(['{', '}', ' ']).replace(", ", "\n")));
    assert!(error.expect_err("no groups").to_string().contains("classes: are those of groups of traffic"));
    let error = with(&format!("[classes.a]\n[traffic]\na = {poisson}"));
    assert!(error.expect_err("no class").to_string().contains("traffic.a.class: is missing"));
    let error = with(&format!("[traffic]\na = {}", poisson.replace(" }", ", class = \"a\" }")));
    assert!(
        error
            .expect_err("no classes")
            .to_string()
            .contains("traffic.a.class: unknown class `a`; the classes are: the plan has no [classes]")
    );
}
