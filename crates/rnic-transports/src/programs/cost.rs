//! The cost of an event of a program, for tests that print it.
#![expect(clippy::disallowed_types, reason = "a test measures the cost of an event")]

use std::time::Instant;

use rnic_program::{Fields as _, Stimuli, Transport};

/// Runs of the same packets, of which the fastest counts.
const RUNS: u32 = 40;

/// Returns the nanoseconds that `program` takes for a packet.
pub(super) fn ns_per_event_f64(program: &dyn Transport) -> f64 {
    let description = program.description();
    let (parameters, mut stimuli) = (description.defaults(), Stimuli::new(1));
    let packets: Vec<_> = (0..1_000).map(|_| stimuli.incoming()).collect();
    let mut state = description.initial_state(&parameters);
    let runs = (0..RUNS).map(|_| {
        let start = Instant::now();
        for packet in &packets {
            let mut actions = description.initial_actions(&parameters);
            program.incoming(packet, &parameters, &mut state, &mut actions);
            std::hint::black_box(actions);
        }
        start.elapsed().as_nanos() as f64 / packets.len() as f64
    });
    runs.fold(f64::INFINITY, f64::min)
}
