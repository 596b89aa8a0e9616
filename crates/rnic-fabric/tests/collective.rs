//! Collectives: data goes round in steps, each rank waits for what it needs and for nothing else.

mod common;

use common::*;
use rnic_fabric::Report;

/// Eight hosts at one switch, room for everything; a byte takes 80 ps, two links 2 us.
const EIGHT: [(&str, &str); 3] = [
    ("topology", r#"{ kind = "star", hosts = 8 }"#),
    ("switch", r#"{ model = "shared-buffer", buffer = "64MB" }"#),
    ("transport", r#"{ name = "irn", cap_packets = 1024 }"#),
];

const BYTES: u64 = 8_000_000;

fn collective(keys: &str, more: &[(&str, &str)]) -> Report {
    let workload = format!("{{ kind = \"collective\", bytes = \"{BYTES}\", {keys} }}");
    let settings: Vec<_> = EIGHT.iter().chain(more).copied().chain([("workload", workload.as_str())]).collect();
    run(STAR, &settings, 1)
}

/// Microseconds that `bytes` take on a host's link, with the headers of packets of 1024.
fn on_the_link(bytes: u64) -> f64 {
    bytes as f64 * (1_024.0 + 100.0) / 1_024.0 * 80e-6
}

/// Each rank sends the parts of its buffer round: 2 (n - 1) of n parts for the sum at all, half of them for either half
/// of that, and n - 1 to all others.
#[test]
fn each_collective_moves_what_it_must_in_the_time_that_takes() {
    for (name, steps, parts) in
        [("all-reduce", 14, 14), ("all-gather", 7, 7), ("reduce-scatter", 7, 7), ("all-to-all", 1, 7)]
    {
        let report = collective(&format!("collective = \"{name}\", count = 3"), &[]);
        assert_eq!(report.bytes, 8 * 3 * parts * BYTES / 8, "{name}");
        let each = report.rct_us.expect("collectives are timed");
        assert_eq!((each.count, report.requests_unfinished), (3, 0), "{name}");
        let ideal = on_the_link(parts * BYTES / 8) + f64::from(steps) * 2.1;
        assert!((0.95..1.08).contains(&(each.avg / ideal)), "{name}: {} us, ideal {ideal}", each.avg);
    }
}

/// The next message leaves when the one from the rank before has come: one slow link slows the whole ring down, to its
/// own pace.
#[test]
fn a_ring_is_as_fast_as_its_slowest_link() {
    let slow = ("fault", r#"[{ kind = "slow", links = "host-3>*", rate = "25Gbps" }]"#);
    let ring =
        |more: &[(&str, &str)]| collective(r#"collective = "all-reduce""#, more).rct_us.expect("it is timed").avg;
    let (sound, slowed) = (ring(&[]), ring(&[slow]));
    assert!((3.6..4.2).contains(&(slowed / sound)), "{slowed} us by {sound}");
}

/// Messages are divided among connections, and nothing else changes; nothing depends on order or parts.
#[test]
fn several_connections_carry_the_same_and_runs_repeat() {
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
        assert_the_same_otherwise(&report, TREE, &settings, 5, transport);
    }
}

/// Who sends to whom.
fn pairs(report: &Report) -> Vec<(u32, u32)> {
    let mut pairs: Vec<_> = report.records.iter().map(|flow| (flow.src, flow.dst)).collect();
    pairs.sort_unstable();
    pairs
}

/// A ring goes from host to host, or over all of them in another order: one ring in any case.
#[test]
fn rings_are_as_one_asks() {
    let in_order: Vec<_> = (0..8).map(|host| (host, (host + 1) % 8)).collect();
    assert_eq!(pairs(&collective(r#"collective = "all-gather""#, &[])), in_order);
    let shuffled = pairs(&collective(r#"collective = "all-gather", shuffle = true"#, &[]));
    assert_ne!(shuffled, in_order);
    let (mut at, mut seen) = (0, Vec::new());
    for _ in 0..8 {
        seen.push(at);
        at = shuffled.iter().find(|(src, _)| *src == at).expect("each sends").1;
    }
    seen.sort_unstable();
    assert!(at == 0 && seen.into_iter().eq(0..8), "{shuffled:?} is not one ring");
}

/// A collective is over when the last rank is done, whoever that is; those that begin in the warm-up do not count.
#[test]
fn the_last_rank_counts() {
    let late = ("fault", r#"[{ kind = "delay", links = "*>host-5", delay = "300us" }]"#);
    let all = collective(r#"collective = "all-to-all", count = 2"#, &[late]);
    let end = all.records.iter().map(|flow| flow.start + flow.fct).max().expect("there are flows");
    let times = all.rct_us.expect("they are timed");
    // The last acknowledgements come later than the last data.
    let whole = times.avg * 2.0;
    assert!((0.0..5.0).contains(&(end.as_ps() as f64 * 1e-6 - whole)), "{whole} us, the flows end at {end}");
    let warm = collective(r#"collective = "all-to-all", count = 2"#, &[late, ("run.warmup", "1us")]);
    assert_eq!(warm.rct_us.expect("one counts").count, 1);
}

/// A network that loses packets delays a collective, and takes nothing from it.
#[test]
fn a_collective_survives_loss() {
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

/// What a limit cuts off is said to be unfinished.
#[test]
fn collectives_that_are_cut_off_are_counted() {
    let workload = format!(r#"{{ kind = "collective", collective = "all-gather", bytes = "{BYTES}", count = 5 }}"#);
    let cut = [("workload", workload.as_str()), ("run.limit", "1500us")];
    let settings: Vec<_> = EIGHT.into_iter().chain(cut).collect();
    let report = finish(simulation(STAR, &settings, 1));
    assert_eq!((report.rct_us.map(|each| each.count), report.requests_unfinished), (Some(2), 3));
}
