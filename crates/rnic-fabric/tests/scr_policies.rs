//! Policies that use probes between NICs (SCR): Swift by rates, and probed paths.

mod common;
#[path = "common/senders.rs"]
mod senders;

use common::{STAR, plan, simulation};
use rnic_base::{Duration, Time};
use rnic_engine::messages::exchange::Exchange;
use rnic_fabric::Plan;
use senders::{FIRST, limit_to, rate_until};

/// Both hosts use Swift; host 1 is limited to less than half of the link.
const SWIFT: &str = r#"
    name = "swift"
    mtu = 1024
    topology = { kind = "star", hosts = 3 }
    links = { rate = "100Gbps", delay = "500ns" }
    switch = { model = "input-queued", buffer = "2MB", pfc = { enabled = false } }
    transport = { name = "irn", cap_packets = 512, control = "swift-rate", rate_min = "32Gbps",
                  rate_max = "96Gbps" }
    workload = { kind = "closed-loop", op = "write", message = "256KB", depth = 8, duration = "12ms",
                 clients = 2, servers = 1, to = 2, queue_pairs = 2 }
    scr = { }
    run = { limit = "12ms" }
"#;

/// Beside a sender that takes 20 or 40 Gbit/s of the link, Swift finds the rest, and both get it.
#[test]
fn s23_swift_uses_what_the_others_leave() {
    let mut simulation = simulation(SWIFT, &[], 5);
    simulation.advance(Time::from_us(50));
    for (index, background) in [(0, 20), (1, 40)] {
        limit_to(&mut simulation, 1, background);
        let start = Time::from_us(3_000 + 4_000 * index);
        simulation.advance(start);
        let rate = rate_until(&mut simulation, 0, start + Duration::from_us(900));
        let expected = 100.0 - background as f64;
        assert!((rate - expected).abs() < expected / 10.0, "{rate} Gbit/s beside {background}");
        // Without congestion control, the window of 512 packets waits in the switch: 45 us.
        let exchange = Exchange::of(simulation.engine(0)).expect("the plan has messages");
        let round_trip = exchange.round_trip(FIRST).expect("probes are answered");
        assert!(round_trip < Duration::from_us(8), "{round_trip} beside {background}");
    }
    assert_eq!(common::finish(simulation).packets_retransmitted, 0);
}

/// On its own, a flow has nearly the whole link, with the defaults of the parameters, too.
#[test]
fn s23_swift_with_its_defaults_uses_the_link() {
    let transport = "{ name = \"irn\", cap_packets = 512, control = \"swift-rate\" }";
    let mut simulation = simulation(SWIFT, &[("transport", transport)], 5);
    simulation.advance(Time::from_us(50));
    limit_to(&mut simulation, 1, 1);
    simulation.advance(Time::from_us(3_000));
    let rate = rate_until(&mut simulation, 0, Time::from_us(4_000));
    assert!(rate > 88.0, "{rate} Gbit/s");
    let exchange = Exchange::of(simulation.engine(0)).expect("the plan has messages");
    let round_trip = exchange.round_trip(FIRST).expect("probes are answered");
    assert!(round_trip < Duration::from_us(8), "{round_trip}");
}

/// The memory of host 1 is slow for a millisecond.
const SLOW: &str = r#"
    name = "slow"
    mtu = 1024
    topology = { kind = "star", hosts = 2 }
    links = { rate = "100Gbps", delay = "500ns" }
    switch = { model = "input-queued", buffer = "2MB", pfc = { enabled = false } }
    transport = { name = "irn", cap_packets = 512, control = "swift-rate" }
    nic = { bus_rate = "200Gbps", bus_latency = "600ns", receive_buffer = "100KB" }
    slow_host = { hosts = "host-1", rate = "40Gbps", from = "1ms", until = "2ms" }
    workload = { kind = "closed-loop", op = "write", message = "256KB", depth = 8, duration = "3ms" }
    scr = { mode = ["periodic"] }
    run = { limit = "3ms" }
"#;

/// A receiver reports the delay of its bus, and Swift slows down for it. Without reports, packets are dropped as long
/// as the memory is slow.
#[test]
fn s23_swift_slows_down_for_the_bus_of_the_receiver() {
    let dropped = [r#"["periodic"]"#, "[]"].map(|mode| {
        let report = common::finish(simulation(SLOW, &[("scr.mode", mode)], 5));
        report.nic.expect("the plan has a NIC model").dropped
    });
    assert!(dropped[1] > 100 && dropped[0] * 4 < dropped[1], "{dropped:?}");
}

/// Two leaves and two spines; one spine is slower to reach, and then fails.
const SPINES: &str = r#"
    name = "spines"
    mtu = 1024
    topology = { kind = "leaf-spine", spines = 2, leaves = 2, hosts_per_leaf = 1 }
    links = { rate = "100Gbps", delay = "500ns" }
    switch = { model = "input-queued", buffer = "500KB", pfc = { enabled = false } }
    transport = { name = "irn", cap_packets = 128, paths = "probed" }
    workload = { kind = "closed-loop", op = "write", message = "64KB", depth = 4, duration = "6ms" }
    scr = { }
    run = { limit = "20ms" }
"#;

/// Runs the plan with a fault and a transport to its end.
fn finish(fault: &str, transport: &str, seed: u64) -> rnic_fabric::Report {
    let report = common::finish(simulation(SPINES, &[("fault", fault), ("transport", transport)], seed));
    report.check().unwrap_or_else(|failure| panic!("{failure}"));
    report
}

const PROBED: &str =
    "{ name = \"irn\", cap_packets = 128, rto_low = \"100us\", rto_high = \"400us\", paths = \"probed\" }";
const ECMP: &str = "{ name = \"irn\", cap_packets = 128, rto_low = \"100us\", rto_high = \"400us\" }";

/// With 10 us more on one spine, a flow has the round trip of the other one, whichever it starts on.
#[test]
fn s24_a_flow_moves_to_the_faster_path_without_reordering() {
    let fault = r#"[{ kind = "delay", delay = "10us", links = "leaf-*>spine-0" }]"#;
    let mut slow_starts = 0;
    for seed in 1..=6 {
        let [ecmp, probed] = [ECMP, PROBED].map(|transport| finish(fault, transport, seed));
        let rate = |report: &rnic_fabric::Report| report.bytes as f64 / report.elapsed_us;
        slow_starts += u32::from(rate(&ecmp) < 0.7 * rate(&probed));
        assert_eq!(probed.packets_retransmitted, 0, "seed {seed}: packets were reordered");
        assert!(rate(&probed) > 0.9 * rate(&ecmp), "seed {seed}");
    }
    assert!(slow_starts > 0, "no flow has started on the slower path");
}

/// Where packets are acknowledged on request only, a drain asks for the acknowledgement that it waits for: without
/// that, the flow stands still until a timeout.
#[test]
fn s24_a_drain_waits_for_no_timeout() {
    let fault = r#"[{ kind = "delay", delay = "10us", links = "leaf-*>spine-0" }]"#;
    let gbn = "{ name = \"roce-gbn\", rto = \"1ms\", cap_packets = 512, ack_every_packets = 1000";
    let workload = r#"{ kind = "closed-loop", op = "write", message = "1MB", depth = 4, duration = "2ms" }"#;
    let mut slow_starts = 0;
    for seed in 1..=6 {
        let [ecmp, probed] = ["", ", paths = \"probed\""].map(|paths| {
            let transport = format!("{gbn}{paths} }}");
            let changed = [("fault", fault), ("transport", &transport), ("workload", workload)];
            let report = common::finish(simulation(SPINES, &changed, seed));
            report.check().unwrap_or_else(|failure| panic!("{failure}"));
            report
        });
        slow_starts += u32::from(ecmp.bytes < probed.bytes);
        assert_eq!((probed.timeouts, probed.packets_retransmitted), (0, 0), "seed {seed}");
        assert!(probed.bytes * 10 > ecmp.bytes * 9, "seed {seed}");
    }
    assert!(slow_starts > 0, "no flow has started on the slower path");
}

/// Packets get through although one spine is down for 2 ms, to flows that started on it, too.
#[test]
fn s24_a_flow_leaves_a_path_that_fails() {
    let fault = r#"[{ kind = "down", links = "leaf-*>spine-0, spine-0>leaf-*", from = "1ms", until = "4ms" }]"#;
    let mut stuck = 0;
    for seed in 1..=6 {
        let [ecmp, probed] = [ECMP, PROBED].map(|transport| finish(fault, transport, seed));
        stuck += u32::from(ecmp.bytes * 10 < probed.bytes * 8);
        let scr = probed.scr.as_ref().expect("the plan has messages");
        assert!(scr.probes_lost > 0, "seed {seed}");
        // Less than 1 ms of 6 is lost.
        assert!(probed.bytes * 10 > ecmp.bytes * 8, "seed {seed}: {} {}", probed.bytes, ecmp.bytes);
    }
    assert!(stuck > 0, "no flow has started on the path that fails");
}

/// Slices show when a queue pair leaves the path that fails, at 1 ms.
#[test]
fn s24_slices_show_changes_of_the_path() {
    let workload = r#"{ kind = "tenants", duration = "2ms", tenant = { all = { message = "64KB", depth = 4 } } }"#;
    let run = r#"{ slice = "20us", limit = "20ms" }"#;
    let fault = r#"[{ kind = "down", links = "leaf-0>spine-0", from = "1ms", until = "5ms" }]"#;
    let mut changed = 0;
    for seed in 1..=6 {
        let [failed, whole] = [fault, "[]"].map(|fault| {
            let with = [("transport", PROBED), ("workload", workload), ("run", run), ("fault", fault)];
            let slices = common::finish(simulation(SPINES, &with, seed)).slices.expect("the plan has slices");
            slices.queue_pairs["all-0"].path_changes.clone().expect("the plan has messages")
        });
        assert_eq!(whole.iter().sum::<f64>(), 0.0, "seed {seed}: both paths are alike");
        let first = failed.iter().position(|change| *change > 0.0);
        // Two timeouts of 100 us, and the probe that is sent before the first.
        assert!(first.is_none_or(|slice| (59..63).contains(&slice)), "seed {seed}: {first:?}");
        changed += u32::from(first.is_some());
    }
    assert!((1..6).contains(&changed), "{changed} of 6 queue pairs have used the path that fails");
}

#[test]
fn policies_that_probe_need_messages() {
    for transport in ["{ name = \"irn\", paths = \"probed\" }", "{ name = \"irn\", control = \"swift-rate\" }"] {
        let error = Plan::from_toml_with(STAR, &[("transport", transport)], &mut |_| Err(String::new()));
        let error = error.expect_err(transport).to_string();
        assert!(error.contains("needs probes") && error.contains("[scr]"), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(plan(STAR, &[("transport", transport), ("scr", "{}")]).transport.probes);
        let mut without = plan(STAR, &[("transport", transport), ("scr", "{}")]);
        without.scr = None;
        assert!(without.check().is_err_and(|error| error.to_string().contains("scr: is missing")));
    }
}
