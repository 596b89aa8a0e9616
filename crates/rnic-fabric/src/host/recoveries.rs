//! Number of packets that each loss recovery covered.
//!
//! A recovery of a receiver lasts from the packet that shows a gap until no packet is missing below the highest one
//! that has arrived. FaSR (2025) builds on two facts about it: with many queue pairs most recoveries miss a single
//! packet (section III-B, figure 3: R-R2), and a counter of three bits is enough for the packets missing at the same
//! time in nearly all (section III-D: R-R19). Recoveries are counted here, outside of the engine, from the packets
//! received and the engine's outcomes for them. Receivers that drop out-of-order packets have no such recoveries and
//! are not counted.

use rnic_base::Psn;
use rnic_engine::RxOutcome;
use rnic_wire::{Headers, Packet, Qpn};
use serde::Serialize;

/// Recoveries, classified by the number of missing packets.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Recoveries {
    /// Number of recoveries.
    pub count: u64,
    /// Share of the recoveries that missed a single packet in total.
    pub single_share: f64,
    /// Share of the recoveries that never missed more than seven packets at the same time, which three bits can count.
    pub at_most_seven_share: f64,
    /// Number of recoveries by packets missed in total: 1, 2, .. 7, and more.
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
        self.by_most_at_once[column(recovery.most_at_once)] += 1;
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
    /// Largest number of packets missing at the same time.
    most_at_once: u32,
    /// Number of packets missed in total.
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
pub(crate) struct Watch {
    /// The recoveries in progress: few, as losses are rare; searched only while there are any.
    open: Vec<Recovery>,
    pub(crate) done: Recoveries,
}

impl Watch {
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
            Headers::Ack { .. } | Headers::ReadAck { .. } | Headers::Cnp | Headers::Datagram { .. } => return false,
            Headers::ReadResponse { sink: None, .. } | Headers::AtomicResponse { sink: None, .. } => true,
            _ => false,
        };
        let space = Space { qpn: packet.dest_qpn, responses };
        let place = self.open.iter().position(|recovery| recovery.space == space);
        match (place, outcome) {
            (None, RxOutcome::Early) => {
                let missing = expected().distance_to(packet.psn) as u32;
                let (highest, most_at_once) = (packet.psn, missing);
                self.open.push(Recovery { space, highest, missing, most_at_once, missed: missing });
                false
            }
            (Some(place), RxOutcome::Early | RxOutcome::Accepted) => {
                let recovery = &mut self.open[place];
                let ahead = recovery.highest.distance_to(packet.psn);
                if ahead > 0 {
                    let skipped = ahead as u32 - 1;
                    recovery.highest = packet.psn;
                    recovery.missing += skipped;
                    recovery.missed += skipped;
                    recovery.most_at_once = recovery.most_at_once.max(recovery.missing);
                    return false;
                }
                recovery.missing = recovery.missing.saturating_sub(1);
                if recovery.missing == 0 {
                    let recovery = self.open.swap_remove(place);
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
    use RxOutcome::{Accepted, Early};
    use rnic_wire::{PacketFlags, Position, SendTail};

    /// Arrivals of one queue pair: number, what the engine says, and what it waits for then.
    fn watch(arrivals: &[(u32, RxOutcome, u32)]) -> (Watch, Vec<bool>) {
        let mut watch = Watch::default();
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
        let arrivals = [(6, Early, 5), (7, Early, 5), (9, Early, 5), (8, Early, 5), (5, Accepted, 10)];
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

    /// R-R19: what is missing at once is less than what is missed in all, when repairs come between losses. The numbers
    /// wrap on the way.
    #[test]
    fn losses_add_up_and_repairs_take_away() {
        let top = (1 << 24) - 1;
        // Missing: top, then 1 and 2; top is repaired, and 4 is missing too before 1 and 2 are.
        let (watch, filled) = watch(&[
            (0, Early, top),
            (3, Early, top),
            (top, Accepted, 1),
            (5, Early, 1),
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
    fn a_queue_pair_that_ends_takes_its_recovery_along() {
        let (mut watch, _) = watch(&[(9, Early, 5)]);
        assert!(!watch.is_idle());
        watch.forget(Qpn::new(5));
        assert!(watch.is_idle());
        assert_eq!(watch.done.count, 0);
    }
}
