//! Inputs and outputs of a transport program (Tonic, table 3 and section 3.2.3).
//!
//! Sequence numbers are segment ids of 24 bits, in serial arithmetic. Times are in ticks of 160 ns (16 cycles of
//! 10 ns), modulo 2^24: 2.7 s. Rates are in bytes per 65,536 cycles of 10 ns: units of 12,207.03125 bit/s.

use crate::value::{Map, Offset, U};

/// A segment id.
pub type Id = U<24>;

/// A time or duration in ticks.
pub type Ticks = U<24>;

/// A sending rate.
pub type Rate = U<23>;

/// Nanoseconds of a tick.
pub const TICK_NS: u64 = 160;

/// Cycles of a tick.
pub const TICK_CYCLES: u64 = 16;

/// Returns the ticks nearest to a duration in nanoseconds.
pub const fn ticks(ns: u64) -> u64 {
    (ns.saturating_add(TICK_NS / 2)) / TICK_NS
}

/// Returns the rate nearest to one in bits per second, in bytes per 65,536 cycles of 10 ns.
pub const fn rate(bps: u64) -> u64 {
    // A unit is 8 / (65536 * 10 ns) bit/s = 12,207.03125 bit/s = 390,625 / 32 bit/s.
    (bps.saturating_mul(32).saturating_add(390_625 / 2)) / 390_625
}

/// Bits per second of a unit in which laws get rates.
pub const SPEED_BPS: u64 = 1 << 16;

/// Returns the rate in units of [`SPEED_BPS`] nearest to one in bits per second.
pub const fn speed(bps: u64) -> u64 {
    bps.saturating_add(SPEED_BPS / 2) / SPEED_BPS
}

crate::bundle! {
    /// A packet from the receiver, after the fixed part of the template has updated the window.
    pub struct Incoming {
        /// Carries a cumulative acknowledgement, `cum`.
        ack: bool,
        /// Reports a gap: the segment `cum` is missing, and a later one has arrived.
        nack: bool,
        /// Reports that the segment `sack` has arrived without its payload.
        trimmed: bool,
        /// Is a congestion notification (CNP).
        cnp: bool,
        /// Reports that the segment `sack` has arrived out of order.
        sacked: bool,
        /// That segment was not acknowledged before.
        sack_new: bool,
        /// The next segment that the receiver expects.
        cum: Id,
        /// A segment, where `sacked` or `trimmed` is set.
        sack: Id,
        /// The first segment not acknowledged, after this packet.
        start: Id,
        /// The first segment not acknowledged, before this packet.
        old_start: Id,
        /// The next segment that has never been generated.
        next: Id,
        /// Number of segments generated, repeats included.
        total_sent: Id,
        /// The current time.
        now: Ticks,
        /// Number of segments that this packet acknowledges for the first time.
        newly: Offset,
        /// Number of times that the segment had been sent, as echoed by the receiver.
        times_sent: U<2>,
        /// Selectively acknowledged segments, from `start`.
        acked: Map,
        /// Segments marked for retransmission, from `start`.
        marked: Map,
    }
}

crate::bundle! {
    /// The visit of a flow by the periodic module.
    pub struct Periodic {
        /// The retransmission timer has expired.
        expired: bool,
        /// The first segment not acknowledged.
        start: Id,
        /// The next segment that has never been generated.
        next: Id,
        /// Number of segments generated, repeats included.
        total_sent: Id,
        /// The current time.
        now: Ticks,
        /// Selectively acknowledged segments, from `start`.
        acked: Map,
        /// Segments marked for retransmission, from `start`.
        marked: Map,
    }
}

crate::bundle! {
    /// The answer of a program. `window`, `rate` and `timer` enter with their current values, the others with zero.
    pub struct Actions {
        /// Marks the segments from `from` up to, and without, `to` for retransmission, except acknowledged ones.
        mark: bool,
        /// First segment to mark.
        from: Id,
        /// End of the range to mark.
        to: Id,
        /// Segments of the window.
        window: Offset,
        /// Sending rate.
        rate: Rate,
        /// Restarts the retransmission timer.
        restart: bool,
        /// Duration of the retransmission timer.
        timer: Ticks,
    }
}
