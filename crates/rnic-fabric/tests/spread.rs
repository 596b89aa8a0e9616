//! Paths, buffers and memory of a switched network: equal-cost paths, queue thresholds and ECN marks, allocations.

mod common;
#[path = "../../rnic-engine/tests/common/heap.rs"]
mod heap;

use core::ops::ControlFlow;

use common::*;
use rnic_base::Time;

/// Many flows between two pods use all paths: over one path of four they would take four times as long.
#[test]
fn flows_spread_over_equal_cost_paths() {
    let mut lines = String::new();
    for (index, src) in (0..4).cycle().take(400).enumerate() {
        lines.push_str(&format!("{index}us,{src},{},100KB\n", 4 + (index * 7) % 4));
    }
    let with = [("workload", r#"{ kind = "trace", file = "flows.csv" }"#), ("switch.buffer", "1MB")];
    let plan = rnic_fabric::Plan::from_toml_with(TREE, &with, &mut |_| Ok(lines.clone())).expect("the plan is valid");
    let report = finish(rnic_fabric::Simulation::new(&plan, 1).expect("the plan is valid"));
    report.check().expect("no checked property is violated");
    // 400 times 100 KB over four links of 40 Gbit/s are 2 ms; over one of them they would be 8 ms.
    assert!((2_000.0..3_500.0).contains(&report.elapsed_us), "{}", report.elapsed_us);
}

/// One queue of an otherwise empty shared buffer takes alpha / (1 + alpha) of it, to within a packet.
#[test]
fn a_dynamic_threshold_limits_one_queue_to_its_share() {
    for (alpha, share) in [("1/4", 0.2), ("1", 0.5), ("4", 0.8)] {
        let switch = format!("{{ model = \"shared-buffer\", buffer = \"200KB\", alpha = \"{alpha}\" }}");
        let with = [("switch", switch.as_str()), ("workload.bytes", "5MB"), ("workload.jitter", "0")];
        let report = run(STAR, &with, 1);
        assert!(report.drops.buffer > 0, "alpha {alpha}: five senders did not fill it");
        let most = report.queue_max_bytes as f64;
        assert!((share * 200e3 - 1_200.0..share * 200e3 + 1_200.0).contains(&most), "alpha {alpha}: {most}");
    }
}

/// Marking begins at kmin and is certain above kmax, in both switch models.
#[test]
fn both_switch_models_mark() {
    for switch in [
        r#"{ model = "input-queued", buffer = "60KB", ecn = { kmin = "5KB", kmax = "10KB", pmax = "10%" } }"#,
        r#"{ model = "shared-buffer", buffer = "300KB", ecn = { kmin = "5KB", kmax = "10KB", pmax = "10%" } }"#,
    ] {
        let report = run(STAR, &[("switch", switch), ("workload.bytes", "2MB")], 1);
        let share = report.ecn_marks as f64 / report.packets_sent as f64;
        assert!((0.5..1.1).contains(&share), "a full queue did not mark nearly all packets: {share}, {switch}");
        let alone = run(STAR, &[("switch", switch), ("workload.senders", "1")], 1);
        assert_eq!(alone.ecn_marks, 0, "an empty queue marked packets: {switch}");
    }
}

/// Marks every packet that waits.
const MARK_ALL: (&str, &str) =
    ("switch", r#"{ model = "input-queued", buffer = "1MB", ecn = { kmin = "1", kmax = "2", pmax = "100%" } }"#);

/// The queue depth includes the packet itself: of two packets that arrive together the second finds no other waiting,
/// and is marked.
#[test]
fn the_queue_depth_includes_the_packet_itself() {
    let two_packets = |jitter: &str| {
        run(STAR, &[MARK_ALL, ("workload.senders", "2"), ("workload.bytes", "2048"), ("workload.jitter", jitter)], 1)
    };
    let simultaneous = two_packets("0");
    assert_eq!((simultaneous.packets_sent, simultaneous.ecn_marks), (2, 1));
    // The second packet waits while the first one is sent, preamble and gap included, at one of six outputs.
    let wait_us = (simultaneous.queue_max_bytes + 20) as f64 * 8.0 / 100e3;
    let mean = simultaneous.queue_max_bytes as f64 * wait_us / simultaneous.simulated_us / 6.0;
    assert!((simultaneous.queue_mean_bytes / mean - 1.0).abs() < 1e-6, "{} and {mean}", simultaneous.queue_mean_bytes);
    assert_eq!(two_packets("1ms").ecn_marks, 0, "packets that do not wait were marked");
}

/// All hosts send to all others; acknowledgements wait as data packets do, but only data packets are marked.
#[test]
fn acknowledgements_are_not_marked() {
    let pairs = (0..6).flat_map(|src| (0..6).map(move |dst| (src, dst))).filter(|(src, dst)| src != dst);
    let lines: String = pairs.map(|(src, dst)| format!("0,{src},{dst},100KB\n")).collect();
    let with = [MARK_ALL, ("workload", r#"{ kind = "trace", file = "flows.csv" }"#), ("mtu", "256")];
    let plan = rnic_fabric::Plan::from_toml_with(STAR, &with, &mut |_| Ok(lines.clone())).expect("the plan is valid");
    let report = finish(rnic_fabric::Simulation::new(&plan, 1).expect("the plan is valid"));
    report.check().expect("no checked property is violated");
    assert!(report.acks_sent >= report.packets_sent, "IRN did not acknowledge every packet");
    let share = report.ecn_marks as f64 / report.packets_sent as f64;
    assert!((0.6..=1.0).contains(&share), "not nearly every packet waited: {share}");
}

/// Checks that the steady state allocates nothing, neither per packet nor per message.
#[test]
fn no_allocation_per_packet() {
    for transport in TRANSPORTS {
        for pfc in ["false", "true"] {
            if pfc == "false" && transport.contains("roce") {
                // RoCE without PFC keeps retransmitting, which is no steady state.
                continue;
            }
            let switch = ("switch.pfc.enabled", pfc);
            let workload = r#"{ kind = "permutation", bytes = "20MB", message = "100KB", depth = 4 }"#;
            let with = [("workload", workload), ("transport", transport), switch, ("links.delay", "1us")];
            let mut simulation = simulation(TREE, &with, 1);
            let (mut early, mut late) = (None, None);
            let report = simulation.run(&mut |progress| {
                // At first queues grow to the size that they need, and at the end flows are removed.
                if progress.now >= Time::from_us(1_500) && progress.flows_done == 0 {
                    late = Some((progress.now, heap::allocations()));
                    early = early.or(late);
                }
                ControlFlow::Continue(())
            });
            assert_eq!(report.flows_unfinished, 0);
            let ((start, before), (end, after)) = early.zip(late).expect("the run is long enough");
            let share = end.since(start).as_us_f64() / report.elapsed_us;
            let packets = (report.packets_sent as f64 * share) as u64;
            assert!(packets > 50_000, "{transport}, {switch:?}: only {packets} packets from {start} to {end}");
            // A queue that is longer than ever before may still grow.
            let allocations = after - before;
            assert!(allocations <= 8, "{transport}, {switch:?}: {allocations} for {packets} packets");
        }
    }
}
