//! Tests that the page states what was measured, and that it is self-contained.

use super::*;
use rnic_reproduce::machine::Machine;

/// Returns a run in which Writes arrive at even intervals, with a pause after every `stall_every` Writes.
fn run(transport: &str, wire: Carrier, elapsed_s: f64, stall_every: u32, resent: u64) -> Run {
    const WRITES: u32 = 600;
    let (mut at, mut delivered) = (0.0, Vec::new());
    for index in 1..=WRITES {
        at += if index.is_multiple_of(stall_every) { 20.0 } else { 1.0 };
        delivered.push((at, u64::from(index) * 65_536));
    }
    let scale = elapsed_s / at;
    let bytes = u64::from(WRITES) * 65_536;
    Run {
        transport: transport.into(),
        wire,
        goodput_gbps: bytes as f64 * 8.0 / elapsed_s / 1e9,
        goodputs_gbps: Vec::new(),
        elapsed_s,
        packets_sent: 9_600 + resent,
        packets_retransmitted: resent,
        latency_us: Latency { p50: elapsed_s * 1e6 / 20.0, p99: elapsed_s * 1e6 / 8.0 },
        verified: true,
        delivered: delivered.into_iter().map(|(at, bytes)| (at * scale, bytes)).collect(),
    }
}

fn comparison() -> Comparison {
    let machine = Machine { cpu: "A CPU".into(), cpus: 2, system: "Linux 6".into(), load_average: Some(0.5) };
    Comparison {
        file: "librustc_driver<1>.so".into(),
        bytes: 600 * 65_536,
        loss: 0.01,
        reorder: 0.01,
        seed: 7,
        write_bytes: 65_536,
        depth: 32,
        mtu: 4_096,
        command: "rnic demo".into(),
        machine,
        runs: vec![
            run("roce-gbn", Carrier::Udp, 0.310, 9, 21_345),
            run("irn", Carrier::Udp, 0.031, 60, 312),
            run("falcon", Carrier::Udp, 0.042, 50, 287),
            run("roce-gbn", Carrier::Sim, 0.0102, 7, 8_345),
            run("irn", Carrier::Sim, 0.0035, 200, 123),
            run("falcon", Carrier::Sim, 0.0037, 190, 101),
        ],
    }
}

#[test]
fn the_page_says_what_was_measured_and_under_which_conditions() {
    let html = page(&comparison());
    if let Some(path) = std::env::var_os("RNIC_DEMO_PAGE") {
        std::fs::write(path, &html).expect("the page can be written");
    }
    for said in
        ["10 times as fast", "2.9 times", "librustc_driver&lt;1&gt;.so", "seed 7", "1\u{a0}% of packets lost", "A CPU"]
    {
        assert!(html.contains(said), "the page does not say {said}");
    }
    assert!(!html.contains("<1>"), "a name is not escaped");
    assert!(html.len() < 200_000, "{} bytes", html.len());
}

#[test]
fn a_corrupted_file_is_reported_prominently() {
    let mut broken = comparison();
    broken.runs[1].verified = false;
    assert!(page(&broken).contains("DID NOT ARRIVE INTACT"));
    assert!(summary::rows(&broken)[1].contains(&"NO".to_owned()));
    assert!(summary::rows(&broken)[0].contains(&"yes".to_owned()));
}

#[test]
fn a_missing_run_leaves_an_empty_cell() {
    let mut partial = comparison();
    partial.runs.remove(0);
    assert!(summary::rows(&partial).iter().any(|row| row.contains(&"-".to_owned())));
    assert!(page(&partial).contains("IRN"));
}
