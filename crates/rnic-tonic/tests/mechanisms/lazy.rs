//! Lazy stepping gives the outputs and the state of stepping every cycle.

use rnic_base::RandomStreams;
use rnic_program::Transport;
use rnic_tonic::{FlowSetup, SegmentId, Sizes, Visits};

use crate::network::{Call, Conditions, Network, contexts, flows, template};
use crate::programs::{adapt::Adapt, granted::Granted, rated::Rated, repeat::Repeat};

/// Draws calls of the driver: flows come, get segments in bursts, go and come again.
fn draw_calls(network: &mut Network, seed: u64, flows: u16, end: u64) {
    let mut random = RandomStreams::new(seed).stream("calls");
    for flow in 0..flows {
        let mut limit = SegmentId::new(0xFF_FF00 + random.below(512) as u32);
        let mut at = random.below(end / 8);
        let mut add = |at: u64, call: Call| network.calls.entry(at).or_default().push((flow, call));
        add(at, Call::Add(FlowSetup { first: limit, segment_bytes: 1 + random.below(9_000) as u16 }));
        while at < end {
            at += 1 + random.below(end / 10);
            match random.below(12) {
                0 => {
                    add(at, Call::Remove);
                    at += 1 + random.below(end / 6);
                    limit = SegmentId::new(random.bits() as u32);
                    add(at, Call::Add(FlowSetup { first: limit, segment_bytes: 64 }));
                }
                kind => {
                    limit = limit.plus(1 + random.below(200) as u32);
                    let last_bytes = if kind < 3 { 1 + random.below(60) as u16 } else { 0 };
                    add(at, Call::Limit(limit, last_bytes));
                }
            }
        }
    }
}

pub fn compare(program: &'static dyn Transport, parameters: &[u64], sizes: Sizes, conditions: Conditions) {
    const CHECKPOINTS: u64 = 40;
    let mut ran = (0, 0);
    let mut left = 0;
    for seed in 0..6 {
        let end = 40_000 << (seed % 4);
        let run = || {
            let mut network = Network::new(seed, sizes.flows, conditions);
            draw_calls(&mut network, seed, sizes.flows, end);
            (network, template(sizes, program, parameters))
        };
        let ((mut eager, mut one), (mut lazy, mut other)) = (run(), run());
        // Visits before a deadline are not run in every second lazy template.
        if seed % 2 == 0 {
            other.set_visits(Visits::Due);
        }
        for checkpoint in 1..=CHECKPOINTS {
            let until = end * checkpoint / CHECKPOINTS;
            eager.run(&mut one, until, |_, _| {});
            ran.1 += lazy.run_lazily(&mut other, until);
            let name = program.description().name;
            let differs = eager.left.iter().zip(&lazy.left).find(|(one, other)| one != other);
            assert_eq!(differs, None, "{name}, seed {seed}, up to cycle {until}");
            assert_eq!(eager.left.len(), lazy.left.len(), "{name}, seed {seed}, up to cycle {until}");
            assert!(eager.answers == lazy.answers, "{name}, seed {seed}, up to cycle {until}: answers of calls differ");
            assert!(contexts(&one) == contexts(&other), "{name}, seed {seed}, at cycle {until}");
            assert_eq!(one.counters(), other.counters(), "{name}, seed {seed}, at cycle {until}");
        }
        ran.0 += end;
        left += eager.left.len();
    }
    assert!(left > 1_000, "{left} addresses left");
    println!("{}: {} cycles, {} calls when lazy, {left} addresses", program.description().name, ran.0, ran.1);
}

pub fn rough() -> Conditions {
    Conditions {
        delay: 60,
        jitter: 200,
        loss: 12,
        trims: 8,
        ack_loss: 12,
        duplicates: 8,
        lies: 6,
        marks: 10,
        has_nacks: true,
        has_grants: true,
    }
}

#[test]
fn lazy_stepping_equals_eager_with_windows() {
    compare(&Repeat, &[64, 100], flows(16), rough());
    compare(&Adapt, &[128, 300], flows(5), rough());
    compare(&Adapt, &[256, 300], Sizes { window: 256, ..flows(3) }, Conditions { delay: 700, ..rough() });
}

#[test]
fn lazy_stepping_equals_eager_with_rates() {
    compare(&Rated, &[819_200, 200, 400], flows(16), rough());
    compare(&Rated, &[8_192, 900, 0], flows(7), Conditions { lies: 0, ..rough() });
}

#[test]
fn lazy_stepping_equals_eager_with_tokens() {
    compare(&Granted, &[150], flows(16), rough());
}
