//! Number of packets that each loss recovery covered.
//!
//! A recovery of a receiver lasts from the packet that shows a gap until no packet is missing below the highest one
//! that has arrived. FaSR (2025) builds on two facts about it: with many queue pairs in most recoveries a single
//! packet is missing (section III-B, figure 3: R-R2), and a counter of three bits is enough to count the packets
//! missing at the same time in nearly all recoveries (section III-D: R-R19). Recoveries are counted here, outside of
//! the engine, from the packets received and the engine's outcomes for them. Receivers that drop out-of-order packets
//! have no such recoveries and are not counted.

use rnic_base::Psn;
use rnic_engine::RxOutcome;
use rnic_wire::{Headers, Packet, Qpn};
use serde::Serialize;

/// Recoveries, classified by the number of missing packets.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Recoveries {
    /// Number of recoveries.
    pub count: u64,
    /// Share of the recoveries in which a single packet was missing in total.
    pub single_share: f64,
    /// Share of the recoveries in which never more than seven packets were missing at the same time: the most that
    /// three bits can count.
    pub at_most_seven_share: f64,
    /// Number of recoveries by the number of packets missing in total: 1, 2, .. 7, and more.
    pub by_missed: [u64; 8],
    /// Number of recoveries by the largest number of packets missing at the same time: 1, 2, .. 7, and more.
    pub by_most_at_once: [u64; 8],
}

impl Recoveries {
    /// Adds the recoveries of another host.
    pub(crate) fn add(&mut self, other: &Self) {
        self.count += other.count;
        let tables = [(&mut self.by_missed, &other.by_missed), (&mut self.by_most_at_once, &other.by_most_at_once)];
        for (mine, theirs) in tables {
            mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine += theirs);
        }
        let share = |part: u64| part as f64 / self.count.max(1) as f64;
        self.single_share = share(self.by_missed[0]);
        self.at_most_seven_share = share(self.count - self.by_most_at_once[7]);
    }

    fn note(&mut self, recovery: &Recovery) {
        let column = |packets: u32| (packets.clamp(1, 8) - 1) as usize;
        self.count += 1;
        self.by_missed[column(recovery.missed)] += 1;
        self.by_most_at_once[column(recovery.missing_at_once_max)] += 1;
    }
}

/// A recovery in progress.
#[derive(Clone, Copy, Debug)]
struct Recovery {
    space: Space,
    /// The highest packet number received.
    highest: Psn,
    /// Number of packets now missing below it.
    missing: u32,
    /// Maximum number of packets missing at the same time.
    missing_at_once_max: u32,
    /// Total number of packets that were missing.
    missed: u32,
}

/// A sequence number space: one direction of a queue pair, either its peer's requests or the responses to its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Space {
    qpn: Qpn,
    responses: bool,
}

/// Tracks the recoveries of a host.
#[derive(Debug, Default)]
pub(crate) struct RecoveryTracker {
    /// The recoveries in progress: few, because losses are rare; the list is searched only when it is not empty.
    open: Vec<Recovery>,
    pub(crate) done: Recoveries,
}

impl RecoveryTracker {
    /// Returns whether no recovery is in progress.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// Records that `packet` was received with `outcome` from the engine; `expected` returns the packet number that the
    /// engine expects afterwards. Returns whether a gap of a recovery was filled.
    #[cold]
    pub(crate) fn note(&mut self, packet: &Packet, outcome: RxOutcome, expected: impl FnOnce() -> Psn) -> bool {
        let responses = match packet.headers {
            Headers::Ack { .. }
            | Headers::ReadAck { .. }
            | Headers::TrimNack { .. }
            | Headers::Pull { .. }
            | Headers::Cnp
            | Headers::Datagram { .. } => return false,
            Headers::ReadResponse { sink: None, .. } | Headers::AtomicResponse { sink: None, .. } => true,
            _ => false,
        };
        let space = Space { qpn: packet.dest_qpn, responses };
        let index = self.open.iter().position(|recovery| recovery.space == space);
        match (index, outcome) {
            (None, RxOutcome::OutOfOrder) => {
                let missing = expected().distance_to(packet.psn) as u32;
                let (highest, missing_at_once_max) = (packet.psn, missing);
                self.open.push(Recovery { space, highest, missing, missing_at_once_max, missed: missing });
                false
            }
            (Some(index), RxOutcome::OutOfOrder | RxOutcome::Accepted) => {
                let recovery = &mut self.open[index];
                let advance = recovery.highest.distance_to(packet.psn);
                if advance > 0 {
                    let skipped = advance as u32 - 1;
                    recovery.highest = packet.psn;
                    recovery.missing += skipped;
                    recovery.missed += skipped;
                    recovery.missing_at_once_max = recovery.missing_at_once_max.max(recovery.missing);
                    return false;
                }
                recovery.missing = recovery.missing.saturating_sub(1);
                if recovery.missing == 0 {
                    let recovery = self.open.swap_remove(index);
                    self.done.note(&recovery);
                }
                true
            }
            _ => false,
        }
    }

    /// Removes the recoveries of a queue pair that was destroyed.
    pub(crate) fn forget(&mut self, qpn: Qpn) {
        self.open.retain(|recovery| recovery.space.qpn != qpn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use RxOutcome::{Accepted, OutOfOrder};
    use rnic_wire::{PacketFlags, Position, SendTail};

    /// Records `arrivals` of one queue pair: the packet number, the engine's outcome, and the packet number that the
    /// engine expects afterwards. Returns the recoveries, and for each arrival whether it filled a gap.
    fn watch(arrivals: &[(u32, RxOutcome, u32)]) -> (RecoveryTracker, Vec<bool>) {
        let mut watch = RecoveryTracker::default();
        let headers = Headers::Send { position: Position::Middle, tail: SendTail::Plain, placement: None };
        let flags = PacketFlags::default();
        let filled = arrivals.iter().map(|(psn, outcome, expected)| {
            let packet = Packet { dest_qpn: Qpn::new(5), psn: Psn::new(*psn), flags, payload_len: 0, headers };
            watch.note(&packet, *outcome, || Psn::new(*expected))
        });
        let filled = filled.collect();
        (watch, filled)
    }

    /// R-R2: packet 5 of 0..9 is lost.
    #[test]
    fn a_single_loss_is_one_recovery_of_one_packet() {
        let arrivals =
            [(6, OutOfOrder, 5), (7, OutOfOrder, 5), (9, OutOfOrder, 5), (8, OutOfOrder, 5), (5, Accepted, 10)];
        let (watch, filled) = watch(&[&arrivals[..2], &arrivals[4..]].concat());
        assert!(watch.is_idle());
        assert_eq!((watch.done.count, watch.done.by_missed, watch.done.by_most_at_once[0]), (1, only(1), 1));
        assert_eq!(filled, [false, false, true]);
    }

    fn only(packets: usize) -> [u64; 8] {
        let mut table = [0; 8];
        table[packets - 1] = 1;
        table
    }

    /// R-R19: when losses and retransmissions alternate, fewer packets are missing at the same time than in total.
    /// The packet numbers wrap around.
    #[test]
    fn losses_increase_and_retransmissions_decrease_the_missing_packets() {
        let psn_max = (1 << 24) - 1;
        // First packet 2^24 - 1 is missing, then also 1 and 2; packet 2^24 - 1 arrives, and 4 is found missing before
        // 1 and 2 arrive.
        let (watch, filled) = watch(&[
            (0, OutOfOrder, psn_max),
            (3, OutOfOrder, psn_max),
            (psn_max, Accepted, 1),
            (5, OutOfOrder, 1),
            (1, Accepted, 2),
            (2, Accepted, 4),
            (4, Accepted, 6),
        ]);
        assert!(watch.is_idle());
        assert_eq!((watch.done.by_missed, watch.done.by_most_at_once), (only(4), only(3)));
        assert_eq!(filled, [false, false, true, false, true, true, true]);
        let mut sum = Recoveries::default();
        sum.add(&watch.done);
        assert_eq!((sum.count, sum.single_share, sum.at_most_seven_share), (1, 0.0, 1.0));
    }

    #[test]
    fn destroying_a_queue_pair_removes_its_recovery() {
        let (mut watch, _) = watch(&[(9, OutOfOrder, 5)]);
        assert!(!watch.is_idle());
        watch.forget(Qpn::new(5));
        assert!(watch.is_idle());
        assert_eq!(watch.done.count, 0);
    }
}
