//! The signals of hosts (SCR mechanism S-4): all twelve are collected, and collecting changes nothing.

mod common;

use std::collections::BTreeMap;

use common::{finish, plan};
use rnic_base::{Duration, Time};
use rnic_engine::{Signal, SignalKind};
use rnic_fabric::simulation::SignalLog;
use rnic_fabric::{Plan, Report, Simulation};

/// Two tenants send to one host over a lossy network with marks, modelled NICs, reports, grants and probes.
const ALL: &str = r#"
    name = "signals"
    mtu = 1024
    topology = { kind = "star", hosts = 3 }
    links = { rate = "100Gbps", delay = "500ns" }
    switch = { model = "shared-buffer", buffer = "2MB", ecn = { kmin = "50KB", kmax = "100KB", pmax = "50%" } }
    transport = { name = "roce-gbn", control = "dcqcn" }
    scr = { credits = "host-0", period = "20us", probes = "50us", mode = ["periodic"] }
    nic = { qpc_entries = 1 }
    fault = [{ kind = "drop", packets = "data", probability = "0.01%" }]
    run = { limit = "5ms" }
    [workload]
    kind = "tenants"
    duration = "2ms"
    tenant.bulk = { queue_pairs = 2, from = 0, to = 2, message = "64KB", depth = 4 }
    tenant.other = { queue_pairs = 2, from = 1, to = 2, message = "4KB", depth = 4,
                     hints = [{ at = "1ms", weight = 3, cap = "10Gbps" }] }
"#;

fn simulate(plan: &Plan, parts: usize, collects: bool) -> (Report, Option<SignalLog>) {
    let mut simulation = Simulation::in_parts(plan, 7, parts).expect("the plan is valid");
    if collects {
        simulation.collect_signals();
    }
    let report = simulation.run(&mut |_| std::ops::ControlFlow::Continue(()));
    report.check().unwrap_or_else(|failure| panic!("{failure}"));
    (report, simulation.take_signals())
}

fn of<'l>(log: &'l SignalLog, host: &'l str, kind: SignalKind) -> impl Iterator<Item = &'l Signal> {
    let is_wanted = move |(number, record): &&(u32, Signal)| log.hosts[*number as usize] == host && record.kind == kind;
    log.records.iter().filter(is_wanted).map(|(_, record)| record)
}

#[test]
fn s3_s4_all_signals_are_collected_and_collecting_changes_nothing() {
    let plan = plan(ALL, &[]);
    let (without, none) = simulate(&plan, 1, false);
    let (report, log) = simulate(&plan, 1, true);
    assert_eq!((report.trace_hash, none), (without.trace_hash, None));
    let log = log.expect("signals are collected");
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    for (_, record) in &log.records {
        *kinds.entry(record.kind.name()).or_default() += u64::from(record.count);
    }
    assert_eq!(kinds.len(), SignalKind::COUNT, "{kinds:?}");
    assert_eq!(log.lost, 0);
    assert!(log.records.is_sorted_by_key(|(_, record)| record.last));
    assert_eq!(simulate(&plan, 2, true).1, Some(log.clone()), "in two parts");

    // TX and RX are the packets of the report; each that was sent was received or lost.
    let data = report.packets_sent + report.packets_retransmitted;
    assert_eq!(kinds["tx"], data);
    assert_eq!(kinds["rx"] + report.drops.buffer + report.drops.fault - report.drops.acks, data);
    assert_eq!(kinds["cnp"], report.cnps);
    // Acknowledged bytes are those that arrived, of full packets.
    let acknowledged: u64 = of(&log, "host-0", SignalKind::Ack).map(|record| record.bytes).sum();
    let sent: u64 = of(&log, "host-0", SignalKind::Tx).map(|record| record.bytes).sum();
    assert!(acknowledged > sent / 2 && acknowledged <= sent, "{acknowledged} of {sent} bytes");
    assert!(of(&log, "host-0", SignalKind::Ack).any(|record| record.value > 2_000_000), "round trips are known");
    // Of all hosts, the receiver alone reports bytes received, and host 0 alone has grants.
    assert_eq!(of(&log, "host-1", SignalKind::Rx).count() + of(&log, "host-1", SignalKind::Credit).count(), 0);
    let hints: Vec<_> = of(&log, "host-1", SignalKind::Hint).map(|hint| (hint.value, hint.level, hint.last)).collect();
    let [(cap, weight, at)] = hints[..] else { panic!("{hints:?}") };
    assert_eq!((cap, weight), (10_000_000_000, 3 << 16));
    assert!(at.since(Time::from_us(1_000)) < Duration::from_us(1) && at <= Time::from_us(1_000));
}

/// A hint applies while the tenant sends.
#[test]
fn s9_a_hint_of_a_plan_caps_the_queue_pairs_of_its_tenant() {
    let slices = [slices_at_500us(), ("fault", "[]"), ("scr", "{}")];
    let report = finish(common::simulation(ALL, &slices, 7));
    let slices = report.slices.expect("the plan has slices");
    let rates = &slices.tenants["other"].goodput_gbps;
    assert!(rates[1] > 21.0, "without a cap: {rates:?}");
    assert!((17.0..20.0).contains(&rates[3]), "two queue pairs at 10 Gbit/s with headers: {rates:?}");

    // A queue pair that joins after the hint has the cap, too.
    let late = [("workload.tenant.other.start", "1500us"), slices_at_500us(), ("fault", "[]"), ("scr", "{}")];
    let report = finish(common::simulation(ALL, &late, 7));
    let rates = report.slices.expect("the plan has slices").tenants["other"].goodput_gbps.clone();
    assert!((15.0..20.0).contains(&rates[3]), "two queue pairs that came later: {rates:?}");
}

fn slices_at_500us() -> (&'static str, &'static str) {
    ("run", "{ limit = \"5ms\", slice = \"500us\" }")
}
