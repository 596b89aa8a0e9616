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

/// Duration of a tick in nanoseconds.
pub const TICK_NS: u64 = 160;

/// Duration of a tick in cycles.
pub const TICK_CYCLES: u64 = 16;

/// Converts a duration in nanoseconds to ticks, rounding to nearest.
pub const fn ticks(ns: u64) -> u64 {
    (ns.saturating_add(TICK_NS / 2)) / TICK_NS
}

/// Converts a rate in bits per second to bytes per 65,536 cycles of 10 ns, rounding to nearest.
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
    /// A packet from the receiver, after the fixed logic of the NIC has updated the window.
    pub struct Incoming {
        /// The packet carries a cumulative acknowledgement, `cum`.
        ack: bool,
        /// The packet reports a gap: the segment `cum` is missing, and a later one has arrived.
        nack: bool,
        /// The packet reports that the segment `sack` has arrived without its payload.
        trimmed: bool,
        /// The packet is a congestion notification (CNP).
        cnp: bool,
        /// The packet reports that the segment `sack` has arrived out of order.
        sacked: bool,
        /// The segment `sack` was not acknowledged before.
        sack_new: bool,
        /// Next segment that the receiver expects.
        cum: Id,
        /// Segment to which `sacked` or `trimmed` refers.
        sack: Id,
        /// First unacknowledged segment, after this packet.
        start: Id,
        /// First unacknowledged segment, before this packet.
        old_start: Id,
        /// Next segment to be sent for the first time.
        next: Id,
        /// Number of segments sent, retransmissions included.
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
    /// A run of the periodic function for a flow: its inputs.
    pub struct Periodic {
        /// The retransmission timer has expired.
        expired: bool,
        /// First unacknowledged segment.
        start: Id,
        /// Next segment to be sent for the first time.
        next: Id,
        /// Number of segments sent, retransmissions included.
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
    /// The outputs of a program. `window`, `rate` and `timer` are initialized with their current values, the others
    /// with zero.
    pub struct Actions {
        /// If true, marks the unacknowledged segments from `from` (inclusive) to `to` (exclusive) for retransmission.
        mark: bool,
        /// First segment to mark.
        from: Id,
        /// End (exclusive) of the range to mark.
        to: Id,
        /// Window in segments.
        window: Offset,
        /// Sending rate.
        rate: Rate,
        /// Restarts the retransmission timer.
        restart: bool,
        /// Duration of the retransmission timer.
        timer: Ticks,
    }
}
