//! Collectives: data goes round the ring in steps, and each rank waits only for the data that it needs.

mod common;

use common::*;
use rnic_fabric::Report;

/// Eight hosts at one switch with enough buffer for everything; a byte takes 80 ps, two links 2 us.
const EIGHT_HOSTS: [(&str, &str); 3] = [
    ("topology", r#"{ kind = "star", hosts = 8 }"#),
    ("switch", r#"{ model = "shared-buffer", buffer = "64MB" }"#),
    ("transport", r#"{ name = "irn", cap_packets = 1024 }"#),
];

const BUFFER_BYTES: u64 = 8_000_000;

fn collective(keys: &str, overrides: &[(&str, &str)]) -> Report {
    let workload = format!("{{ kind = \"collective\", bytes = \"{BUFFER_BYTES}\", {keys} }}");
    let settings: Vec<_> =
        EIGHT_HOSTS.iter().chain(overrides).copied().chain([("workload", workload.as_str())]).collect();
    run(STAR, &settings, 1)
}

/// Returns the microseconds that `bytes` take on a host's link, with the headers of packets of 1024 bytes.
fn link_time_us(bytes: u64) -> f64 {
    bytes as f64 * (1_024.0 + 100.0) / 1_024.0 * 80e-6
}

/// Each rank sends the parts of its buffer round the ring: 2 (n - 1) of n parts for an all-reduce, half as many for
/// an all-gather or a reduce-scatter, and for an all-to-all one part to each of the n - 1 others.
#[test]
fn each_collective_sends_its_bytes_in_the_expected_time() {
    for (name, steps, parts) in
        [("all-reduce", 14, 14), ("all-gather", 7, 7), ("reduce-scatter", 7, 7), ("all-to-all", 1, 7)]
    {
        let report = collective(&format!("collective = \"{name}\", count = 3"), &[]);
        assert_eq!(report.bytes, 8 * 3 * parts * BUFFER_BYTES / 8, "{name}");
        let collective_times = report.rct_us.expect("collectives are timed");
        assert_eq!((collective_times.count, report.requests_unfinished), (3, 0), "{name}");
        let bandwidth = report.collective.expect("there are collectives");
        let algorithm = BUFFER_BYTES as f64 / collective_times.avg / 1e3;
        let bus = algorithm * f64::from(parts as u32) / 8.0;
        assert!((bandwidth.algbw_gbytes_per_s / algorithm - 1.0).abs() < 1e-9, "{name}: {bandwidth:?}");
        assert!((bandwidth.busbw_gbytes_per_s / bus - 1.0).abs() < 1e-9, "{name}: {bandwidth:?}");
        // Each rank keeps its link busy: the bus bandwidth is near the payload rate of 100 Gbit/s.
        assert!((10.3..11.5).contains(&bandwidth.busbw_gbytes_per_s), "{name}: {bandwidth:?}");
        let ideal = link_time_us(parts * BUFFER_BYTES / 8) + f64::from(steps) * 2.1;
        assert!(
            (0.95..1.08).contains(&(collective_times.avg / ideal)),
            "{name}: {} us, ideal {ideal}",
            collective_times.avg
        );
    }
}

/// A rank sends its next message when the one from the previous rank has arrived: one slow link therefore slows the
/// complete ring down to the rate of that link.
#[test]
fn a_ring_is_as_fast_as_its_slowest_link() {
    let slow = ("fault", r#"[{ kind = "slow", links = "host-3>*", rate = "25Gbps" }]"#);
    let ring = |overrides: &[(&str, &str)]| {
        collective(r#"collective = "all-reduce""#, overrides).rct_us.expect("collectives are timed").avg
    };
    let (undegraded, slowed) = (ring(&[]), ring(&[slow]));
    assert!((3.6..4.2).contains(&(slowed / undegraded)), "{slowed} us by {undegraded}");
}

/// Messages are divided among connections, which changes nothing else; the result does not depend on the node order
/// or on the parts.
#[test]
fn several_connections_carry_the_same_bytes_and_runs_repeat() {
    let one = collective(r#"collective = "all-to-all", count = 2"#, &[]);
    let four = collective(r#"collective = "all-to-all", count = 2, connections = 4, op = "send""#, &[]);
    assert_eq!((four.bytes, four.flows), (one.bytes, 4 * one.flows));
    assert_eq!((one.flows, one.messages, four.messages), (56, 56 * 2, 4 * 56 * 2));

    for transport in [r#"{ name = "falcon", flows = 4 }"#, TRANSPORTS[0]] {
        let workload = r#"{ kind = "collective", collective = "all-reduce", bytes = "300KB", count = 2, shuffle = true,
            ranks = 9 }"#;
        let settings = [("transport", transport), ("workload", workload), ("payload", "checked")];
        let report = run(TREE, &settings, 5);
        assert_eq!((report.flows, report.messages), (9, 9 * 2 * 16), "{transport}");
        assert_independent_of_order_and_parts(&report, TREE, &settings, 5, transport);
    }
}

/// F-R23: steps of small messages are shorter than the time for which Falcon holds back an acknowledgement.
#[test]
fn short_steps_do_not_wait_for_acknowledgements() {
    let time = |transport: &str| {
        let workload = r#"{ kind = "collective", collective = "all-reduce", bytes = "32B", count = 4 }"#;
        let settings = [&EIGHT_HOSTS[..2], &[("transport", transport), ("workload", workload)]].concat();
        run(STAR, &settings, 1).rct_us.expect("collectives are timed").avg
    };
    let (falcon, irn) = (time("falcon"), time("irn"));
    // Fourteen steps of a network's latency.
    assert!((14.0 * 2.0..14.0 * 2.1).contains(&irn), "{irn} us");
    assert!((0.98..1.02).contains(&(falcon / irn)), "{falcon} us by {irn}");
}

/// Returns the sorted (sender, receiver) pairs.
fn pairs(report: &Report) -> Vec<(u32, u32)> {
    let mut pairs: Vec<_> = report.records.iter().map(|flow| (flow.src, flow.dst)).collect();
    pairs.sort_unstable();
    pairs
}

/// A ring goes from host to host in order, or over all of them in a shuffled order: it is a single ring in both
/// cases.
#[test]
fn a_ring_is_in_host_order_or_shuffled() {
    let in_order: Vec<_> = (0..8).map(|host| (host, (host + 1) % 8)).collect();
    assert_eq!(pairs(&collective(r#"collective = "all-gather""#, &[])), in_order);
    let shuffled = pairs(&collective(r#"collective = "all-gather", shuffle = true"#, &[]));
    assert_ne!(shuffled, in_order);
    let (mut at, mut seen) = (0, Vec::new());
    for _ in 0..8 {
        seen.push(at);
        at = shuffled.iter().find(|(src, _)| *src == at).expect("each rank sends").1;
    }
    seen.sort_unstable();
    assert!(at == 0 && seen.into_iter().eq(0..8), "{shuffled:?} is not one ring");
}

/// A collective ends when its last rank is done, whichever that is; collectives that begin in the warm-up do not
/// count.
#[test]
fn a_collective_ends_with_its_last_rank() {
    let late = ("fault", r#"[{ kind = "delay", links = "*>host-5", delay = "300us" }]"#);
    let all = collective(r#"collective = "all-to-all", count = 2"#, &[late]);
    let end = all.records.iter().map(|flow| flow.start + flow.fct).max().expect("there are flows");
    let times = all.rct_us.expect("collectives are timed");
    // The last acknowledgements arrive after the last data.
    let whole = times.avg * 2.0;
    assert!((0.0..5.0).contains(&(end.as_ps() as f64 * 1e-6 - whole)), "{whole} us, the flows end at {end}");
    let warm = collective(r#"collective = "all-to-all", count = 2"#, &[late, ("run.warmup", "1us")]);
    assert_eq!(warm.rct_us.expect("one collective is counted").count, 1);
}

/// A network that loses packets delays a collective, but its data stays complete.
#[test]
fn a_collective_completes_in_spite_of_loss() {
    let loss = ("fault", r#"[{ kind = "drop", probability = "1%" }]"#);
    let falcon = [r#"{ name = "falcon" }"#, r#"{ name = "falcon", ordering = "weak", flows = 2 }"#];
    for transport in falcon.into_iter().chain([TRANSPORTS[0], r#"{ name = "tcp" }"#]) {
        let lossy = collective(
            r#"collective = "all-reduce", count = 2, connections = 3"#,
            &[loss, ("transport", transport), ("payload", "checked")],
        );
        assert!(lossy.packets_retransmitted > 0 && lossy.requests_unfinished == 0, "{transport}");
    }
}

/// Collectives that the limit cuts off are reported as unfinished.
#[test]
fn collectives_cut_off_by_the_limit_are_counted_as_unfinished() {
    let workload =
        format!(r#"{{ kind = "collective", collective = "all-gather", bytes = "{BUFFER_BYTES}", count = 5 }}"#);
    let cut = [("workload", workload.as_str()), ("run.limit", "1500us")];
    let settings: Vec<_> = EIGHT_HOSTS.into_iter().chain(cut).collect();
    let report = finish(simulation(STAR, &settings, 1));
    assert_eq!(
        (report.rct_us.map(|collective_times| collective_times.count), report.requests_unfinished),
        (Some(2), 3)
    );
}
