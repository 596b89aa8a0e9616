//! Every controller on both families of transports: the data arrives over an unreliable network, and the controller
//! reacts to congestion.

mod common;

use common::*;

/// All controllers that react to congestion, and the signals that a network must provide for them.
const CONTROLLERS: [&str; 7] = ["dcqcn", "timely", "dctcp", "aimd", "new-reno", "rttcc", "swift"];

const FAMILIES: [(&str, &str); 2] =
    [("irn", ", cap_packets = 128, rto_low = \"100us\", rto_high = \"400us\""), ("falcon", "")];

/// Four hosts write continuously to a fifth; the switch has a buffer of 2 MB, and marks packets.
const FOUR_TO_ONE_PLAN: &str = r#"
    name = "crowd"
    mtu = 4096
    topology = { kind = "star", hosts = 5 }
    links = { rate = "100Gbps", delay = "1us" }
    switch = { model = "shared-buffer", buffer = "2MB", ecn = { kmin = "40KB", kmax = "160KB", pmax = "20%" } }

    [workload]
    kind = "closed-loop"
    op = "write"
    message = "64KiB"
    depth = 8
    clients = 4
    queue_pairs = 4
    to = 4
"#;

fn transport(family: &str, options: &str, control: &str) -> String {
    format!("{{ name = \"{family}\", control = \"{control}\"{options} }}")
}

/// Swift belongs to Falcon; on the RoCE family it would need events that it does not use.
fn runs_on(family: &str, control: &str) -> bool {
    family == "falcon" || control != "swift"
}

#[test]
fn every_controller_on_every_family_delivers_correct_data_over_a_lossy_network() {
    for (family, options) in FAMILIES {
        for control in CONTROLLERS.into_iter().filter(|control| runs_on(family, control)) {
            let transport = transport(family, options, control);
            let checked = ("payload", "checked");
            for (name, text) in [("wire", WIRE), ("star", STAR)] {
                println!("{control} on {family}, {name}");
                run(text, &[FAULTS, ("transport", &transport), checked], 3);
            }
        }
    }
}

/// Minimum goodput of four senders, in Gbit/s: RTTCC reduces its rate strongly where it begins at line rate and loses
/// many packets.
const GOODPUT_MIN: f64 = 40.0;

/// Returns the warm-up and the duration of a run. DCQCN halves its rates with each CNP after the start at line rate,
/// and then adds 40 Mbit/s in 55 us: four queue pairs gain 3 Gbit/s in a millisecond.
fn times(control: &str) -> (&'static str, &'static str) {
    if control == "dcqcn" { ("\"16ms\"", "\"20ms\"") } else { ("\"1ms\"", "\"4ms\"") }
}

/// Only the controller differs between the runs, so it causes the differences in drops and marks at the switch.
#[test]
fn every_controller_on_every_family_reduces_drops_or_marks() {
    for (family, options) in FAMILIES {
        let measure = |control: &str, (warmup, duration): (&str, &str)| {
            let transport = transport(family, options, control);
            let values = [("transport", &*transport), ("run.warmup", warmup), ("workload.duration", duration)];
            let report = run(FOUR_TO_ONE_PLAN, &values, 1);
            let goodput = report.steady_goodput_gbps.expect("the workload has a duration");
            let (dropped, marked) = (report.packets_dropped, report.ecn_marks);
            println!("{control} on {family}: {goodput:.1} Gbit/s, {dropped} dropped, {marked} marked");
            (goodput, dropped, marked)
        };
        for control in CONTROLLERS.into_iter().filter(|control| runs_on(family, control)) {
            let (_, dropped_without, marked_without) = measure("line-rate", times(control));
            let (goodput, dropped, marked) = measure(control, times(control));
            assert!(goodput > GOODPUT_MIN, "{control} on {family}: {goodput} Gbit/s of 100");
            let less = dropped < dropped_without / 2 || marked < marked_without / 2;
            assert!(less, "{control} on {family}: {dropped} dropped, {marked} marked, and without it as many");
        }
    }
}
