//! Congestion signals in packets (CSIG): switches write them, receivers reflect them, and a controller uses them.

mod common;

use common::*;
use rnic_fabric::{Plan, Report};

/// Four hosts write continuously to a fifth, whose link is the bottleneck.
const FOUR_TO_ONE_PLAN: &str = r#"
    name = "crowd"
    mtu = 4096
    topology = { kind = "star", hosts = 5 }
    links = { rate = "100Gbps", delay = "1us" }
    switch = { model = "shared-buffer", buffer = "4MB", csig = {} }
    run = { warmup = "1ms" }

    [workload]
    kind = "closed-loop"
    op = "write"
    message = "64KiB"
    depth = 8
    duration = "4ms"
    clients = 4
    queue_pairs = 8
    to = 4
"#;

const CSIG_OFF: (&str, &str) = ("switch.csig.enabled", "false");

fn falcon(options: &str) -> String {
    format!("{{ name = \"falcon\"{options} }}")
}

fn four_to_one(options: &str, with: &[(&str, &str)]) -> Report {
    let transport = falcon(options);
    let report = run(FOUR_TO_ONE_PLAN, &[&[("transport", &*transport)], with].concat(), 1);
    println!(
        "{options}: {:.1} Gbit/s, {:.0} bytes wait, {} at most, {} dropped",
        goodput(&report),
        report.queue_mean_bytes,
        report.queue_max_bytes,
        report.packets_dropped
    );
    report
}

fn goodput(report: &Report) -> f64 {
    report.steady_goodput_gbps.expect("the workload has a duration")
}

/// The design goal: the queue of the bottleneck is held at the target, whatever the path. It is shorter than with
/// control of the round-trip time and than without control, and the link's capacity is still used.
#[test]
fn f22_the_controller_keeps_the_queue_of_the_bottleneck_at_its_target() {
    let [short, long] = ["2us", "8us"]
        .map(|target| four_to_one(&format!(", control = \"bottleneck\", hop_target = \"{target}\""), &[]));
    let (swift, fixed) = (four_to_one("", &[]), four_to_one(", control = \"fixed-window\"", &[]));
    // The mean is that of five outputs, of which one has a queue; 100 Gbit/s are 12,500 bytes a microsecond.
    let [short_us, long_us, swift_us, fixed_us] =
        [&short, &long, &swift, &fixed].map(|report| report.queue_mean_bytes * 5.0 / 12_500.0);
    assert!((1.0..4.0).contains(&short_us) && (6.0..12.0).contains(&long_us), "{short_us} and {long_us} us");
    assert!(long_us * 2.0 < swift_us && long_us * 8.0 < fixed_us, "Swift: {swift_us} us, none: {fixed_us} us");
    for report in [&short, &long] {
        assert!(goodput(report) > 0.97 * goodput(&fixed), "{} of {}", goodput(report), goodput(&fixed));
    }
}

/// A link that a fault slows down to a quarter reports the delay of its current rate: the queue is at the target
/// there too. Four connections are used because each has at least one packet in flight, which takes 1.3 us there.
#[test]
fn f22_tags_report_the_delay_at_the_reduced_rate_of_a_link() {
    let slow = ("fault", r#"[{ kind = "slow", rate = "25Gbps", links = "switch-0>host-4" }]"#);
    let report =
        four_to_one(", control = \"bottleneck\", hop_target = \"8us\"", &[slow, ("workload.queue_pairs", "4")]);
    let queue_us = report.queue_mean_bytes * 5.0 / 3_125.0;
    assert!((6.0..14.0).contains(&queue_us), "{queue_us} us");
    assert!(goodput(&report) > 22.0, "{}", goodput(&report));
}

/// The value that switches write is the worst of all hops, and it is reflected over several flows, lossy links and
/// layers.
#[test]
fn every_byte_arrives_with_the_controller_over_a_lossy_network() {
    let csig = ("switch.csig", "{}");
    for flows in ["1", "4"] {
        let transport = falcon(&format!(", control = \"bottleneck\", flows = {flows}"));
        let with = [FAULTS, csig, ("transport", &*transport), ("payload", "checked")];
        run(STAR, &with, 3);
        run(TREE, &[csig, ("transport", &*transport), ("workload.duration", "300us"), FAULTS], 3);
    }
}

/// Hosts that use a drive get the same signals as those that use verbs: with a target of 200 ns their queue at the
/// drive's link is shorter than with one of 50 us.
#[test]
fn traffic_to_a_drive_is_controlled_by_csig() {
    let latency = |target: &str| {
        let transport =
            falcon(&format!(", ordering = \"unordered\", control = \"bottleneck\", hop_target = \"{target}\""));
        let workload = r#"{ kind = "nvme", op = "write", message = "64KiB", depth = 16, from = 0, clients = 4, to = 4,
            duration = "3ms", drive = { read_rate = "200Gbps", read_latency = "5us", write_rate = "200Gbps",
            write_latency = "5us", queue_depth = 256 } }"#;
        let report = run(FOUR_TO_ONE_PLAN, &[("transport", &*transport), ("workload", workload), ("run", "{}")], 2);
        println!("{target}: {:.1} Gbit/s, {:.0} bytes wait", report.goodput_gbps, report.queue_mean_bytes);
        report.queue_mean_bytes
    };
    let (short, long) = (latency("200ns"), latency("50us"));
    assert!(short * 2.0 < long, "{short} and {long} bytes wait");
}

/// Encoded packets carry the same signals, and neither the order of nodes nor the number of parts matters.
#[test]
fn encoded_packets_carry_the_signal_and_traces_repeat() {
    let transport = falcon(", control = \"bottleneck\", flows = 4");
    let with = [("switch.csig", "{}"), ("transport", &*transport)];
    let direct = run(STAR, &with, 5);
    let encoded = run(STAR, &[&with[..], &[("wire", "encoded")]].concat(), 5);
    assert_eq!(direct.trace_hash, encoded.trace_hash);
    assert_independent_of_order_and_parts(&direct, STAR, &with, 5, "star");
    let with = [("switch.csig", "{}"), ("transport", &*transport), ("workload.duration", "200us")];
    assert_independent_of_order_and_parts(&run(TREE, &with, 5), TREE, &with, 5, "tree");
}

/// A tag costs four bytes in each frame where switches write signals; where they do not, the results are the same as
/// without the `switch.csig` table.
#[test]
fn disabled_csig_changes_nothing() {
    let transport = falcon("");
    let plain = run(STAR, &[("transport", &transport)], 5);
    let off = run(STAR, &[("transport", &transport), ("switch.csig", "{ enabled = false }")], 5);
    assert_eq!(off.to_json(), plain.to_json());
    let on = run(STAR, &[("transport", &transport), ("switch.csig", "{}")], 5);
    assert_ne!(on.trace_hash, plain.trace_hash, "tags do not lengthen the frames");
    for (name, with_tags) in [("irn", run(STAR, &[("switch.csig", "{}")], 5)), ("off", off)] {
        let without = if name == "irn" { run(STAR, &[], 5) } else { plain.clone() };
        assert_eq!(with_tags.trace_hash, without.trace_hash, "{name}");
    }
}

/// Where no switch writes signals, a controller that needs them is refused in one line that names the signal and,
/// where there is one, the remedy.
#[test]
fn a_controller_without_its_signal_is_refused_by_name() {
    let refusal = |text: &str, name: &str, with: &[(&str, &str)]| {
        let transport = format!("{{ name = \"{name}\", control = \"bottleneck\" }}");
        let all = [&[("transport", &*transport)], with].concat();
        let plan = Plan::from_toml_with(text, &all, &mut |_| Err("no files".to_owned()));
        let error = plan.expect_err("the plan is refused").to_string();
        assert!(error.contains("controller `bottleneck` needs csig") && error.lines().count() == 1, "{error}");
        error
    };
    for (text, with) in [(FOUR_TO_ONE_PLAN, &[CSIG_OFF][..]), (STAR, &[]), (WIRE, &[])] {
        let error = refusal(text, "falcon", with);
        assert!(error.contains("no switch of this network writes") && error.contains("[switch.csig]"), "{error}");
    }
    for name in ["irn", "roce-gbn"] {
        let error = refusal(FOUR_TO_ONE_PLAN, name, &[]);
        assert!(error.contains(&format!("transport `{name}`")) && error.contains("does not measure"), "{error}");
    }
    let idle = plan(FOUR_TO_ONE_PLAN, &[("transport", "irn")]).warnings();
    assert!(idle.iter().any(|line| line.starts_with("switch.csig is on")), "{idle:?}");
}
