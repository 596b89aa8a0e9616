//! `my-law`: a function that sets the congestion window.
//!
//! The law to start from: a window that grows by a packet a round trip, and is cut at most once in that time: by an
//! eighth when acknowledgements report congestion marks, by half after a loss. `decide` is called in each event of a
//! queue pair. Inputs that the law reads are what the NIC measures: it reads `marked`, so receivers report marks.
//!
//! Values are numbers of a width, `U<N>`, that wrap as wires do: `u(3)` is a literal, `x.to::<16>()` another width.
//! Windows are in 1/256 packets, times in nanoseconds, rates in units of 65,536 bit/s. Loops, references and floating
//! point cannot become gates; the compiler refuses them at their line.
//!
//! Schedulers and path policies are laws too: `for schedule` and `for paths`, with `ScheduleInput` and `PathInput`.

use rnic_program::prelude::*;

rnic_program::law! {
    /// window: cut by an eighth for marks and by half for a loss, once a round trip
    law Law("my-law") for control
    // The NIC stores this for a queue pair: `name: bits = initial value`; a flag has one bit.
    state State {
        /// Window.
        window: 24,
        /// Packets acknowledged since the window last grew.
        acked: 16,
        /// Packets that must be acknowledged before the window is cut again.
        settling: 16,
    }
    // Options of plans and of `--set`, constant for a queue pair: `name: bits = default [least..=largest]`.
    parameters Parameters {
        /// packets of the first window
        first_window: 12 = 64 [1..=2048],
    }
}

/// An event of a queue pair. `a` sets the window; zero would change nothing.
#[program]
pub fn decide(e: &ControlInput, p: &Parameters, s: &mut State, a: &mut ControlOutput) {
    if e.started {
        s.window = p.first_window.to::<24>() << 8;
    }
    let packets = (s.window >> 8).to::<16>();
    s.settling = s.settling.saturating_sub(e.packets);
    s.acked = s.acked.saturating_add(e.packets);
    // A window of packets has been acknowledged: one more.
    if s.acked >= packets {
        s.acked = u(0);
        s.window = (s.window + 256).min(u(524_288));
    }
    if s.settling == 0 && (e.marked != 0 || e.lost || e.timed_out) {
        let cut = if e.lost || e.timed_out { s.window >> 1 } else { s.window >> 3 };
        s.window = (s.window - cut).max(u(256));
        s.settling = e.in_flight;
    }
    a.window = s.window;
}
