//! The network agrees with queueing theory where theory has exact results: an output of a switch is a queue M/D/1, and
//! the link of a NIC, which its queue pairs share packet by packet, is processor sharing. Closed loops follow the
//! response time law.
//!
//! Flows are drawn here, and read as a trace, so that the arrivals are known to be Poisson.

mod common;

use rnic_base::{Duration, RandomStream, RandomStreams};
use rnic_fabric::{Plan, Report, Simulation};
use std::fmt::Write;
use std::ops::ControlFlow;

/// Bytes of a packet with 1024 bytes of payload on the wire: a Write with immediate in IRN's format.
const PACKET_BYTES: f64 = 1126.0;
/// Time of a packet on a link of 100 Gbit/s, in nanoseconds.
const PACKET_NS: f64 = PACKET_BYTES * 0.08;

/// Runs `plan` with the flows of `trace`, all of which complete.
fn run_trace(plan: &str, trace: &str) -> Report {
    let mut files = |_: &str| Ok(trace.to_owned());
    let plan = Plan::from_toml_with(plan, &[], &mut files).expect("the plan is valid");
    let mut simulation = Simulation::new(&plan, 1).expect("the plan is valid");
    let report = simulation.run(&mut |_| ControlFlow::Continue(()));
    report.check().unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!((report.flows_unfinished, report.packets_retransmitted), (0, 0));
    report
}

/// Returns `count` flows that arrive at intervals of `mean` on average, with the ends and sizes that `flow` draws.
fn poisson(
    mean: Duration,
    count: u32,
    seed: u64,
    mut flow: impl FnMut(&mut RandomStream) -> (u64, u64, u64),
) -> String {
    let mut stream = RandomStreams::new(seed).stream("arrivals");
    let (mut text, mut time) = (String::new(), Duration::ZERO);
    for _ in 0..count {
        time += stream.exponential(mean);
        let (src, dst, bytes) = flow(&mut stream);
        writeln!(text, "{}ps,{src},{dst},{bytes}", time.as_ps()).expect("writing to a string succeeds");
    }
    text
}

/// Sixty-four hosts that send single packets to one: its link is M/D/1, and theirs are nearly idle.
const MD1: &str = r#"
    mtu = 1024
    topology = { kind = "star", hosts = 65 }
    links = { rate = "100Gbps", delay = "100ns" }
    switch = { model = "shared-buffer", buffer = "64MB" }
    transport = { name = "irn", cap_packets = 0, rto_low = "1s", rto_high = "1s" }
    workload = { kind = "trace", file = "flows" }
"#;

/// Share of customers of a queue M/D/1 at load `rho` that wait no longer than `wait` service times (Erlang, 1909).
fn md1_waiting(rho: f64, wait: f64) -> f64 {
    let mut sum = 0.0;
    for k in 0..=wait.floor() as u32 {
        let x = rho * (wait - f64::from(k));
        let factorial = (1..=k).map(f64::from).product::<f64>();
        sum += (-x).powi(k as i32) / factorial * x.exp();
    }
    (1.0 - rho) * sum
}

#[test]
fn an_output_of_a_switch_is_a_queue_with_poisson_arrivals_and_constant_service() {
    for rho in [0.3, 0.6, 0.8] {
        let mean = Duration::from_ps((PACKET_NS * 1e3 / rho) as u64);
        let mut waits: Vec<f64> = Vec::new();
        for seed in 1..=3 {
            let trace = poisson(mean, 60_000, seed, |stream| (stream.below(64), 64, 1024));
            let report = run_trace(MD1, &trace);
            let wait = |record: &rnic_fabric::report::FlowRecord| (record.fct - record.ideal).as_us_f64() * 1e3;
            waits.extend(report.records.iter().map(|record| wait(record) / PACKET_NS));
        }
        // Pollaczek and Khinchine; the senders' own links add a sixty-fourth of the load each.
        let pk = |rho: f64| rho / (2.0 * (1.0 - rho));
        let expected = pk(rho) + pk(rho / 64.0);
        let found = waits.iter().sum::<f64>() / waits.len() as f64;
        println!("load {rho}: waits {found:.4} packets, expected {expected:.4}");
        assert!((found / expected - 1.0).abs() < 0.04, "load {rho}: waits {found} packets, expected {expected}");
        for wait in [0.5, 1.0, 2.0, 4.0, 8.0] {
            let share = waits.iter().filter(|found| **found <= wait).count() as f64 / waits.len() as f64;
            let expected = md1_waiting(rho, wait);
            println!("load {rho}: {share:.4} wait up to {wait} packets, expected {expected:.4}");
            assert!((share - expected).abs() < 0.01, "load {rho}: {share} wait up to {wait}, expected {expected}");
        }
    }
}

/// Two hosts, and flows from one to the other: its queue pairs share its link, one packet each in turn.
const SHARED: &str = r#"
    mtu = 1024
    topology = { kind = "point-to-point" }
    links = { rate = "100Gbps", delay = "1ns" }
    transport = { name = "irn", cap_packets = 0, rto_low = "1s", rto_high = "1s" }
    workload = { kind = "trace", file = "flows" }
"#;

/// Draws the size of a flow.
type Draw = fn(&mut RandomStream) -> u64;

/// The mean slowdown of processor sharing is 1 / (1 - load) for every size, whatever the distribution of sizes
/// (Kleinrock, 1976, section 4.4).
#[test]
fn the_link_of_a_nic_is_processor_sharing() {
    let rho = 0.7;
    let constant = |_: &mut RandomStream| 65_536;
    let two_sizes = |stream: &mut RandomStream| if stream.below(10) == 0 { 360_448 } else { 32_768 };
    let uniform = |stream: &mut RandomStream| stream.between(16, 112) * 1024;
    let sizes: [(&str, Draw); 3] = [("constant", constant), ("two sizes", two_sizes), ("uniform", uniform)];
    for (name, size) in sizes {
        let mean = Duration::from_ps((64.0 * PACKET_NS * 1e3 / rho) as u64);
        let slowdown = |seed| {
            let report = run_trace(SHARED, &poisson(mean, 5_000, seed, |stream| (0, 1, size(stream))));
            report.slowdown_avg
        };
        let found = (1..=4).map(slowdown).sum::<f64>() / 4.0;
        let expected = 1.0 / (1.0 - rho);
        println!("{name}: slowdown {found:.3}, expected {expected:.3}");
        assert!((found / expected - 1.0).abs() < 0.08, "{name}: slowdown {found}, expected {expected}");
    }
}

/// A host that reads; its queue pairs think for 20 us after each message.
const CLOSED: &str = r#"
    mtu = 1024
    topology = { kind = "star", hosts = 2 }
    links = { rate = "100Gbps", delay = "1us" }
    switch = { model = "shared-buffer", buffer = "64MB" }
    transport = { name = "irn" }
"#;

/// The response time law of closed networks (Denning and Buzen, 1978, section 5): of n messages, each is in flight for
/// R and thought about for Z, so that X a second complete, with n = X (R + Z).
#[test]
fn closed_loops_follow_the_response_time_law() {
    for (queue_pairs, depth) in [(1_u32, 1_u32), (8, 1), (2, 5)] {
        let workload = format!(
            "{{ kind = \"closed-loop\", op = \"read\", message = \"64KB\", think = \"20us\", duration = \"10ms\", \
             queue_pairs = {queue_pairs}, depth = {depth} }}"
        );
        let report = common::run(CLOSED, &[("workload", &workload)], 1);
        let latency = report.latency_us.expect("closed loops measure it").avg;
        let rate = report.messages as f64 / report.elapsed_us;
        let (expected, found) = (f64::from(queue_pairs * depth), rate * (latency + 20.0));
        println!("{queue_pairs} x {depth}: {latency:.2} us, {rate:.3} a microsecond, {found:.3} messages");
        assert!((found / expected - 1.0).abs() < 0.01, "{found} of {expected}");
        assert!(report.elapsed_us > 9_900.0 && report.elapsed_us < 10_100.0, "{}", report.elapsed_us);
        let what = format!("{queue_pairs} x {depth}");
        common::assert_independent_of_order_and_parts(&report, CLOSED, &[("workload", &workload)], 1, &what);
    }
}
