//! Limit on the packets that a path can hold, derived from the losses on it.
//!
//! IRN has no congestion control of its own and a cap that is configured for its network (section 3.2). On a path
//! that is slower than the sender's link, most of a full window is lost, and so is most of what is then retransmitted
//! at the sender's rate. When a quarter of a window is lost in a round trip, the window is limited to the packets
//! that arrived, or to the packets acknowledged since the round-trip measurement before the last one. The limit grows
//! by an eighth with each window that is acknowledged, retransmitted or not: smaller overflows of a queue cost a few
//! retransmissions, and random losses, which are fewer, have no effect. A timeout halves the limit (RFC 5681, section
//! 3.1), only once until there is progress; if the timeout was spurious, because the acknowledgement arrived sooner
//! than any response could, nothing was lost, and the halving is undone (RFC 3522, RFC 4015).
//!
//! A limit counts packets in the network (RFC 6675's pipe) as far as they are known: after a loss, receivers that keep
//! no out-of-order packets have lost all following packets (go-back-N), so the limit is the number of packets
//! acknowledged recently.

use rnic_base::Seq;

/// Limit on the number of packets in the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Limit(u16);

impl Limit {
    /// No limit has been found.
    pub(super) const NONE: Self = Self(u16::MAX);

    #[inline]
    pub(super) fn packets(self) -> Option<u64> {
        (self != Self::NONE).then_some(self.0.into())
    }

    /// Lowers the limit to `packets`, but not below the minimum for the receiver; `keeps_out_of_order` is set when the
    /// receiver keeps out-of-order packets.
    fn lower_to(&mut self, packets: u64, keeps_out_of_order: bool) {
        let minimum = if keeps_out_of_order { LIMIT_MIN } else { LIMIT_MIN_IN_ORDER };
        self.0 = self.0.min(u16::try_from(packets).unwrap_or(u16::MAX - 1)).max(minimum);
    }

    /// Halves the limit after a timeout with `in_flight` packets in flight.
    pub(super) fn halve(&mut self, in_flight: u64, keeps_out_of_order: bool) {
        self.lower_to(self.packets().map_or(in_flight, |limit| limit.min(in_flight)) / 2, keeps_out_of_order);
    }
}

/// Losses of one round trip.
#[derive(Clone, Copy, Debug)]
pub(super) struct Losses {
    /// End of the round trip: it is over when all packets before this one are acknowledged.
    end: Seq,
    /// Packets in flight when the first loss of the round trip was reported.
    in_flight: u64,
    lost: u64,
    /// Oldest outstanding packet at the last round-trip measurement but one, and at the last one.
    acknowledged: [Seq; 2],
    /// Packets acknowledged since the limit last grew.
    since_growth: u64,
}

impl Losses {
    pub(super) const NONE: Self =
        Self { end: Seq::UNSET, in_flight: 0, lost: 0, acknowledged: [Seq::UNSET; 2], since_growth: 0 };

    /// Records that a round trip was measured, and that all packets before `una` are acknowledged.
    pub(super) fn note_round_trip(&mut self, una: Seq) {
        self.acknowledged = [self.acknowledged[1], una];
    }

    /// Records that `packets` were acknowledged under `limit`, which grows once the acknowledged packets add up to a
    /// window.
    pub(super) fn note_acknowledged(&mut self, packets: u64, limit: &mut Limit) {
        self.since_growth += packets;
        if limit.packets().is_some_and(|limit| self.since_growth >= limit) {
            self.since_growth = 0;
            limit.0 = limit.0.saturating_add((limit.0 / GROWTH_DIVISOR).max(1));
        }
    }

    /// Records that `lost` more of the packets from `una` to `next` are lost. Lowers `limit` when too many have been
    /// lost; `keeps_out_of_order` is set when the receiver keeps out-of-order packets.
    pub(super) fn note(&mut self, [una, next]: [Seq; 2], lost: u32, keeps_out_of_order: bool, limit: &mut Limit) {
        if una >= self.end {
            *self = Self { end: next, in_flight: next.since(una), lost: 0, ..*self };
        }
        self.lost += u64::from(lost);
        if self.lost >= LOSSES_MIN && self.lost * LOSS_DIVISOR >= self.in_flight {
            let [before, _] = self.acknowledged;
            let acknowledged = if before == Seq::UNSET { 0 } else { una.since(before) };
            limit.lower_to(self.in_flight.saturating_sub(self.lost).max(acknowledged), keeps_out_of_order);
        }
    }
}

/// Minimum limit in packets: the oldest packet, and another one whose acknowledgement reports that the oldest is
/// missing.
const LIMIT_MIN: u16 = 2;

/// Minimum limit in packets for a receiver that keeps no out-of-order packets: after a loss it reports the gap once,
/// when the next packet arrives, so one of these packets must arrive.
const LIMIT_MIN_IN_ORDER: u16 = 16;

/// Divisor of the growth: the limit grows by 1/`GROWTH_DIVISOR` with each window that is acknowledged.
const GROWTH_DIVISOR: u16 = 8;

/// Divisor of the loss threshold: the limit is lowered when at least one in this many packets of a round trip is
/// lost.
const LOSS_DIVISOR: u64 = 4;

/// Minimum number of losses for which the limit is lowered.
const LOSSES_MIN: u64 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn seq(packet: u64) -> Seq {
        Seq::UNSET + 1_000 + packet
    }

    #[test]
    fn many_losses_limit_the_window_to_the_packets_that_arrived() {
        let (mut losses, mut limit) = (Losses::NONE, Limit::NONE);
        losses.note([seq(26), seq(282)], 230, true, &mut limit);
        assert_eq!(limit.packets(), Some(26));
        [26, 28, 1, 32].into_iter().for_each(|packets| losses.note_acknowledged(packets, &mut limit));
        assert_eq!(limit.packets(), Some(36), "29, 32, 36");
    }

    /// Go-back-N: the 31st of 256 packets is lost, and therefore so are all packets after it.
    #[test]
    fn with_a_receiver_that_drops_out_of_order_packets_the_limit_is_the_acknowledged_packets() {
        let (mut losses, mut limit) = (Losses::NONE, Limit::NONE);
        [0, 20].into_iter().for_each(|una| losses.note_round_trip(seq(una)));
        losses.note([seq(50), seq(276)], 226, false, &mut limit);
        assert_eq!(limit.packets(), Some(50));
        (0..9).for_each(|_| limit.halve(100, false));
        assert_eq!(limit.packets(), Some(16));
    }

    /// The second half of a message is lost; the first half has just arrived.
    #[test]
    fn a_lost_tail_does_not_limit_the_window() {
        let (mut losses, mut limit) = (Losses::NONE, Limit::NONE);
        [10, 40].into_iter().for_each(|una| losses.note_round_trip(seq(una)));
        losses.note([seq(60), seq(80)], 19, true, &mut limit);
        assert_eq!(limit.packets(), Some(50));
    }

    /// Losses of 1 % and of 20 % of the 256 packets in a round trip.
    #[test]
    fn random_losses_do_not_limit_the_window() {
        for lost in [3, 50] {
            let (mut losses, mut limit) = (Losses::NONE, Limit::NONE);
            for round in 0..100 {
                (0..lost).for_each(|_| losses.note([seq(round * 256), seq(round * 256 + 256)], 1, true, &mut limit));
            }
            assert_eq!(limit.packets(), None, "{lost} of 256");
        }
        let (mut losses, mut limit) = (Losses::NONE, Limit::NONE);
        (0..50).for_each(|packet| losses.note([seq(packet), seq(packet + 3)], 1, true, &mut limit));
        assert!(limit.packets().is_none_or(|limit| limit >= 2), "the limit is below two packets");
    }

    #[test]
    fn timeouts_halve_the_packets_in_flight_and_growth_removes_the_limit() {
        let mut limit = Limit::NONE;
        limit.halve(256, true);
        assert_eq!(limit.packets(), Some(128));
        limit.halve(100, true);
        assert_eq!(limit.packets(), Some(50));
        (0..20).for_each(|_| limit.halve(100, true));
        assert_eq!(limit.packets(), Some(2));
        let mut losses = Losses::NONE;
        (0..200).for_each(|_| losses.note_acknowledged(1_000_000, &mut limit));
        assert_eq!(limit.packets(), None);
    }
}
