//! Protective load balancing: a flow that stays congested takes another path.
//!
//! Source: PLB (SIGCOMM'22); specification 10.4. Packets acknowledged with a delay above 1.01 times the
//! target count as congested. A round ends when a window's worth has been acknowledged: with half of its packets
//! congested, or more, it is a congested round, and after `plb_rounds` of those in a row the path is changed and
//! counting begins anew. NACKs and retransmissions do not count.
//!
//! Deviation: the window that ends a round is the one in force when the acknowledgement comes, at least one packet.

use core::hint::select_unpredictable;

use rnic_policy::control::report::Ticks;

/// The state: 24 bits, as the specification's `delay_state` can carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Plb {
    /// Packets of this round that met congestion, up to 1023.
    pub(super) congested: u32,
    /// Packets of this round, up to 1023.
    pub(super) acked: u32,
    /// Congested rounds in a row, up to 15.
    pub(super) rounds: u32,
}

const COUNT_MAX: u32 = 1_023;
const COUNT_BITS: u32 = 10;

/// Whether `delay` is 1.01 times `target` and more.
#[inline(always)]
pub(super) fn is_congested(delay: Ticks, target: Ticks) -> bool {
    delay.get() * 100 > target.get() * 101
}

impl Plb {
    /// The state in 24 bits.
    #[inline(always)]
    pub(super) fn bits(self) -> u32 {
        self.congested | self.acked << COUNT_BITS | self.rounds << (2 * COUNT_BITS)
    }

    /// The state from its 24 bits.
    #[inline(always)]
    pub(super) fn from_bits(bits: u32) -> Self {
        let count = |bits: u32| bits & COUNT_MAX;
        Self { congested: count(bits), acked: count(bits >> COUNT_BITS), rounds: bits >> (2 * COUNT_BITS) & 15 }
    }

    /// `packets` were acknowledged, of a flow that may have `window` packets under way. Answers whether to change the
    /// path: after `rounds_max` congested rounds, or never when that is zero.
    #[inline(always)]
    pub(super) fn on_ack(&mut self, packets: u32, is_congested: bool, window: u32, rounds_max: u32) -> bool {
        let acked = (self.acked + packets).min(COUNT_MAX);
        let congested = (self.congested + select_unpredictable(is_congested, packets, 0)).min(COUNT_MAX);
        let ends = acked >= window.clamp(1, COUNT_MAX);
        // When a round ends is as good as random; no branch depends on it.
        let is_bad = (rounds_max != 0) & (congested * 2 >= acked);
        let rounds = select_unpredictable(is_bad, self.rounds + 1, 0);
        let moves = ends & is_bad & (rounds >= rounds_max);
        self.rounds = select_unpredictable(ends, select_unpredictable(moves, 0, rounds), self.rounds);
        self.acked = select_unpredictable(ends, 0, acked);
        self.congested = select_unpredictable(ends, 0, congested);
        moves
    }
}
