//! Protective load balancing: a flow that stays congested is moved to another path.
//!
//! Source: PLB (SIGCOMM'22); specification 10.4. Packets acknowledged with a delay of at least 1.01 times the target
//! count as congested. A round ends when one window of packets has been acknowledged. If at least half of its packets
//! are congested, it is a congested round, and after `plb_rounds` of those in a row the path is changed and counting
//! restarts. NACKs and retransmissions do not count.
//!
//! Deviation: the window that ends a round is the one in force when the acknowledgement arrives, at least one packet.

use core::hint::select_unpredictable;

use rnic_policy::control::report::Ticks;

/// The state: 24 bits, as the specification's `delay_state` can carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Plb {
    /// Congested packets of this round, up to 1023.
    pub(super) congested: u32,
    /// Packets of this round, up to 1023.
    pub(super) acked: u32,
    /// Congested rounds in a row, up to 15.
    pub(super) rounds: u32,
}

const COUNT_MAX: u32 = 1_023;
const COUNT_BITS: u32 = 10;

/// Returns `true` if `delay` is at least 1.01 times `target`.
#[inline(always)]
pub(super) fn is_congested(delay: Ticks, target: Ticks) -> bool {
    delay.get() * 100 > target.get() * 101
}

impl Plb {
    /// Returns the state in 24 bits.
    #[inline(always)]
    pub(super) fn bits(self) -> u32 {
        self.congested | self.acked << COUNT_BITS | self.rounds << (2 * COUNT_BITS)
    }

    /// Returns the state from its 24 bits.
    #[inline(always)]
    pub(super) fn from_bits(bits: u32) -> Self {
        let count = |bits: u32| bits & COUNT_MAX;
        Self { congested: count(bits), acked: count(bits >> COUNT_BITS), rounds: bits >> (2 * COUNT_BITS) & 15 }
    }

    /// Handles the acknowledgement of `packets` of a flow that may have `window` packets in flight. Returns `true` if
    /// the path is to be changed: after `rounds_max` congested rounds, or never when that is zero.
    #[inline(always)]
    pub(super) fn on_ack(&mut self, packets: u32, is_congested: bool, window: u32, rounds_max: u32) -> bool {
        let acked = (self.acked + packets).min(COUNT_MAX);
        let congested = (self.congested + select_unpredictable(is_congested, packets, 0)).min(COUNT_MAX);
        let ends = acked >= window.clamp(1, COUNT_MAX);
        // The end of a round is practically unpredictable; therefore no branch depends on it.
        let is_bad = (rounds_max != 0) & (congested * 2 >= acked);
        let rounds = select_unpredictable(is_bad, self.rounds + 1, 0);
        let changes_path = ends & is_bad & (rounds >= rounds_max);
        self.rounds = select_unpredictable(ends, select_unpredictable(changes_path, 0, rounds), self.rounds);
        self.acked = select_unpredictable(ends, 0, acked);
        self.congested = select_unpredictable(ends, 0, congested);
        changes_path
    }
}
