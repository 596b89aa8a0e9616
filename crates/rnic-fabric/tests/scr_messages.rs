//! Messages between the NICs of hosts (SCR): probes, receiver credits, back-pressure.

mod common;
#[path = "common/senders.rs"]
mod senders;

use common::{STAR, WIRE, assert_independent_of_order_and_parts, finish, plan, run, simulation};
use rnic_base::{BitRate, Duration, Time};
use rnic_engine::messages::exchange::Exchange;
use rnic_fabric::{Plan, Report, Simulation};
use rnic_wire::Qpn;
use rnic_wire::scr::Type;
use senders::{FIRST, limit_to, peer_limit, rate_until};

/// Propagation, and the time of a frame of 174 bytes with preamble and gap at 100 Gbit/s, of one link.
const LINK: Duration = Duration::from_ps(1_000_000 + 194 * 80);

/// One small Write every 50 us: the network is empty when probes are sent.
const RARE: (&str, &str) =
    ("workload", "{ kind = \"open-loop\", op = \"write\", message = \"64B\", load = \"0.001%\", duration = \"2ms\" }");

fn probed(text: &str, more: &[(&str, &str)]) -> Report {
    let probes = ("scr", "{ probes = \"20us\", mode = [\"periodic\"] }");
    let report = finish(simulation(text, &[&[RARE, probes], more].concat(), 3));
    report.check().unwrap_or_else(|failure| panic!("{failure}"));
    report
}

/// Asserts that all probes of `report` have measured `expected`.
fn assert_round_trip(report: &Report, expected: Duration, what: &str) {
    let scr = report.scr.as_ref().expect("the plan has messages");
    let measured = scr.round_trip_us.as_ref().expect("probes have been answered");
    assert!(measured.count > 50, "{what}: {scr:?}");
    let exactly = |us: f64| (us - expected.as_us_f64()).abs() < 1e-6;
    assert!(exactly(measured.p50) && exactly(measured.max) && exactly(measured.avg), "{what}: {measured:?}");
    assert_eq!(scr.probes_lost, 0, "{what}");
}

/// The round trip of an empty network is that of propagation, and of store and forward, in both directions.
#[test]
fn s8_the_measured_round_trip_is_exact_in_an_empty_network() {
    assert_round_trip(&probed(WIRE, &[]), LINK * 2, "a wire");
    assert_round_trip(&probed(STAR, &[]), LINK * 4, "a switch");
}

#[test]
fn s8_a_delay_in_one_direction_is_measured() {
    for links in ["host-0>switch-0", "switch-0>host-0"] {
        let fault = format!("[{{ kind = \"delay\", delay = \"10us\", links = \"{links}\" }}]");
        let report = probed(STAR, &[("fault", &fault)]);
        assert_round_trip(&report, LINK * 4 + Duration::from_us(10), links);
    }
}

#[test]
fn s8_probes_that_are_not_answered_count_as_lost() {
    // From 1 ms on, nothing arrives at host 1.
    let fault = r#"[{ kind = "down", links = "switch-0>host-1", from = "1ms", until = "1500us" }]"#;
    let report = probed(STAR, &[("fault", fault), ("transport", "{ name = \"roce-gbn\", rto = \"100us\" }")]);
    let scr = report.scr.expect("the plan has messages");
    // A probe is requested every 20 us, and sent when the one before counts as lost, after 100 us.
    assert_eq!(scr.probes_lost, 5, "{scr:?}");
}

/// Host 0 has credits, host 1 has none; both send to host 2.
const INCAST: &str = r#"
    name = "credits"
    mtu = 1024
    topology = { kind = "star", hosts = 3 }
    links = { rate = "100Gbps", delay = "500ns" }
    switch = { model = "input-queued", buffer = "2MB", pfc = { enabled = false } }
    transport = { name = "irn", cap_packets = 64 }
    workload = { kind = "closed-loop", op = "write", message = "256KB", depth = 8, duration = "10ms",
                 clients = 2, servers = 1, to = 2, queue_pairs = 2 }
    scr = { credits = "host-0", period = "20us", floor = "1Gbps" }
    run = { limit = "10ms" }
"#;

/// A receiver measures what others use and grants the rest of 98 % of its link.
#[test]
fn s25_a_granted_flow_uses_what_the_others_leave() {
    let mut simulation = simulation(INCAST, &[], 5);
    simulation.advance(Time::from_us(100));
    // While the link is full, what others use grows by 2 % of it in about four periods: the receiver needs a while.
    for (index, background) in [(1, 20), (2, 60), (3, 40)] {
        limit_to(&mut simulation, 1, background);
        let start = Time::from_us(3_000 * index);
        simulation.advance(start);
        let sent = rate_until(&mut simulation, 0, start + Duration::from_us(500));
        let expected = 98.0 - background as f64;
        let granted = peer_limit(&simulation, 0).expect("a grant is in force").as_bps() as f64 / 1e9;
        assert!((granted - expected).abs() < 1.5, "{granted} granted, not {expected} Gbit/s, beside {background}");
        assert!((sent - granted).abs() < 0.8, "{sent} of the granted {granted} Gbit/s are sent beside {background}");
        let info = simulation.engine(0).query_qp(FIRST).expect("the queue pair exists");
        assert_eq!(info.peer_limit, info.dequeue_rate, "beside {background}");
        assert_eq!(peer_limit(&simulation, 1), None, "a flow without credits is limited");
    }
}

/// Seven queue pairs of one host get grants in two messages at a time, which leave the modelled NIC in their order: a
/// message that is overtaken by a later one is dropped.
#[test]
fn s25_messages_of_one_time_leave_the_nic_in_order() {
    let workload = r#"{ kind = "closed-loop", op = "write", message = "64KB", depth = 2, duration = "1ms", clients = 1,
                        servers = 1, to = 2, queue_pairs = 7 }"#;
    let nic = r#"{ bus_rate = "200Gbps", bus_latency = "600ns" }"#;
    for nic in [&[("nic", nic)][..], &[]] {
        let mut simulation = simulation(INCAST, &[&[("workload", workload)], nic].concat(), 5);
        simulation.advance(Time::from_us(900));
        let receiver = Exchange::of(simulation.engine(2)).expect("the plan has messages").stats();
        let messages = receiver.sent(Type::Grants);
        assert!(messages > 20 && receiver.grants_sent >= 3 * messages, "{receiver:?}");
        let sender = Exchange::of(simulation.engine(0)).expect("the plan has messages").stats();
        // Some are on the way.
        assert!(sender.all_dropped() == 0 && sender.accepted(Type::Grants) + 4 >= messages, "{sender:?}");
        for number in 0..7 {
            let info = simulation.engine(0).query_qp(Qpn::new(FIRST.get() + number)).expect("the queue pair exists");
            assert!(info.peer_limit.is_some(), "queue pair {number} has no grant");
        }
    }
}

#[test]
fn s25_a_grant_that_is_not_renewed_fades() {
    let down = r#"[{ kind = "down", links = "host-2>switch-0", packets = "acks", from = "1ms", until = "4ms" }]"#;
    let mut simulation = simulation(INCAST, &[("fault", down)], 5);
    simulation.advance(Time::from_us(100));
    limit_to(&mut simulation, 1, 60);
    simulation.advance(Time::from_us(900));
    let limit = |simulation: &Simulation| peer_limit(simulation, 0);
    assert!(limit(&simulation).is_some_and(|limit| limit < BitRate::gbps(60)));
    simulation.advance(Time::from_us(2_000));
    assert_eq!(limit(&simulation), None, "an old grant limits the queue pair for ever");
}

/// The memory of host 1 is slow for 200 us.
const SLOW: &str = r#"
    name = "slow"
    mtu = 1024
    topology = { kind = "star", hosts = 2 }
    links = { rate = "100Gbps", delay = "500ns" }
    switch = { model = "input-queued", buffer = "2MB", pfc = { enabled = false } }
    transport = { name = "irn", cap_packets = 512 }
    nic = { bus_rate = "200Gbps", bus_latency = "600ns" }
    slow_host = { hosts = "host-1", rate = "70Gbps", from = "1ms", until = "1200us" }
    workload = { kind = "closed-loop", op = "write", message = "256KB", depth = 8, duration = "4ms" }
    scr = { back_pressure = "32KB", probes = "20us", floor = "1Gbps", step = "400Mbps" }
    run = { limit = "4ms" }
"#;

#[test]
fn s26_back_pressure_halves_the_rate_which_then_grows_by_steps() {
    for (step, bps) in [("40Mbps", 40_000_000), ("400Mbps", 400_000_000)] {
        let mut simulation = simulation(SLOW, &[("scr.step", step)], 5);
        let limit = |simulation: &Simulation| peer_limit(simulation, 0);
        simulation.advance(Time::from_us(1_000));
        assert_eq!(limit(&simulation), None, "{step}: a limit before the host is slow");
        let mut at = Time::from_us(1_000);
        while limit(&simulation).is_none() && at < Time::from_us(1_060) {
            at += Duration::from_us(1);
            simulation.advance(at);
        }
        let halved = limit(&simulation).expect("the sender is told within 60 us");
        assert!(halved <= BitRate::gbps(50), "{step}: {halved}");
        simulation.advance(Time::from_us(1_060));
        let first = limit(&simulation).expect("the limit grows slowly");
        assert!(first >= BitRate::gbps(50), "{step}: {first}, halved more than once for one backlog");
        // Growth: one step each round trip, that of the last probe before the host was slow: four links of an empty
        // network, and at most the packet that the probe waits for in the switch.
        simulation.advance(Time::from_us(1_140));
        let growth = limit(&simulation).expect("the limit grows slowly").as_bps() - first.as_bps();
        assert_eq!(growth % bps, 0, "{step}: the growth is not one of whole steps");
        let steps = growth / bps;
        assert!((34..=39).contains(&steps), "{step}: {steps} steps in 80 us");
    }
}

fn everything() -> Plan {
    plan(STAR, &everything_on())
}

fn everything_on() -> [(&'static str, &'static str); 1] {
    [(
        "scr",
        "{ mode = [\"periodic\", \"sampling\", \"anomaly\"], credits = \"*\", probes = \"5us\", sampling = \"10KB\" }",
    )]
}

#[test]
fn s6_messages_are_carried_and_the_run_repeats_itself() {
    let report = run(STAR, &everything_on(), 7);
    let scr = report.scr.as_ref().expect("the plan has messages");
    for (what, count) in [
        ("probes", scr.probes_sent),
        ("answers", scr.answers_sent),
        ("reports", scr.reports_sent),
        ("grants", scr.grants_sent),
    ] {
        assert!(count > 0, "no {what}: {scr:?}");
    }
    assert_independent_of_order_and_parts(&report, STAR, &everything_on(), 7, "with messages");
    assert_ne!(report.trace_hash, run(STAR, &[], 7).trace_hash, "messages are not in the trace");
    let encoded = run(STAR, &[&everything_on()[..], &[("wire", "encoded")]].concat(), 7);
    assert_eq!(report.trace_hash, encoded.trace_hash, "messages differ from their bytes");
    assert!(everything().scr.is_some());
}

/// A table that is disabled, or absent, changes nothing.
#[test]
fn s6_without_messages_the_trace_is_the_same() {
    let off = run(STAR, &[("scr", "{ enabled = false, probes = \"5us\" }")], 7);
    assert_eq!(off.trace_hash, run(STAR, &[], 7).trace_hash);
    assert_eq!(off.scr, None);
}

#[test]
fn s6_damaged_and_lost_messages_do_no_harm() {
    let fault = r#"[{ kind = "corrupt", probability = "5%" }, { kind = "drop", probability = "5%" },
                    { kind = "duplicate", probability = "5%" }]"#;
    for wire in ["direct", "encoded"] {
        let irn = ("transport", common::TRANSPORTS[0]);
        let report = run(STAR, &[&everything_on()[..], &[("fault", fault), ("wire", wire), irn]].concat(), 9);
        assert!(report.scr.is_some_and(|scr| scr.messages_sent > 20), "{wire}");
    }
}

#[test]
fn a_plan_with_messages_that_cannot_be_is_refused() {
    for (key, value, expected) in [
        ("scr", "{ period = \"1ns\" }", "scr.period: must be 1 us to 10 s"),
        ("scr", "{ back_pressure = \"32KB\" }", "scr.back_pressure: requires a NIC model"),
        ("scr", "{ credits = \"host-99\" }", "scr.credits: matches no host"),
        ("scr", "{ probes = \"1ns\" }", "scr.probes: must be at least 1 us"),
        ("scr", "{ floor = \"1bps\" }", "scr.floor: must be at least 1Mbps"),
        ("scr", "{ mode = [\"always\"] }", "unknown word `always`"),
    ] {
        let error = Plan::from_toml_with(STAR, &[(key, value)], &mut |_| Err(String::new()));
        let error = error.expect_err(value).to_string();
        assert!(error.contains(expected), "{value}: {error}");
    }
    let falcon = [("transport", "{ name = \"falcon\" }"), ("scr", "{}")];
    let error = Plan::from_toml_with(STAR, &falcon, &mut |_| Err(String::new())).expect_err("Falcon").to_string();
    assert!(error.contains("cannot be combined with Falcon"), "{error}");
}
