//! The queue of pulls: the connections whose receiving end owes grants, served round robin at the rate of the link.
//!
//! Source: NDP (SIGCOMM'17) section 3.2. Each packet of a connection that arrives, with or without its payload, earns
//! its sender the grant of another packet. The receiver sends the grants one by one, in the time that a full packet
//! takes on its link, over all its connections: so the packets that they elicit arrive at the rate of the link. A
//! driver that calls late gets the pulls that have become due meanwhile, up to a bound.

use rnic_base::{Duration, Time};

use crate::fifo::Fifo;

/// The queue of grants (pulls) that a NIC has to send.
#[derive(Debug)]
pub(crate) struct PullQueue {
    /// Slots of queue pairs with grants to send, each once.
    ring: Fifo<u32>,
    /// Time from which the next pull may be sent.
    next_at: Time,
    /// Time at which the next pull may be sent, while there is one; otherwise [`NEVER`], so that a NIC without pulls
    /// needs one comparison per packet.
    due_at: Time,
}

impl Default for PullQueue {
    fn default() -> Self {
        Self { ring: Fifo::new(0), next_at: Time::ZERO, due_at: NEVER }
    }
}

impl PullQueue {
    /// Appends `slot`, which now has grants to send.
    pub(crate) fn push(&mut self, slot: u32, now: Time) {
        if self.ring.is_empty() {
            self.next_at = self.next_at.max(now);
        }
        self.ring.push(slot);
        self.due_at = self.next_at;
    }

    /// Returns whether a pull may be sent at `now`.
    #[inline]
    pub(crate) fn is_due(&self, now: Time) -> bool {
        self.due_at <= now
    }

    /// Returns the time after `now` at which the next pull may be sent; `None` if there is none, or it may be sent
    /// already.
    #[inline]
    pub(crate) fn next_after(&self, now: Time) -> Option<Time> {
        (self.due_at != NEVER && self.due_at > now).then_some(self.due_at)
    }

    /// Removes and returns the next queue pair.
    pub(crate) fn pop(&mut self) -> Option<u32> {
        let slot = self.ring.pop();
        self.note_change();
        slot
    }

    /// Returns how many of `owed` grants, each of which takes `gap` on the link, the queue pair that was just removed
    /// sends at `now` in one pull: those that are due if no other queue pair waits, otherwise one.
    pub(crate) fn take(&mut self, now: Time, owed: u32, gap: Duration, catch_up_min: Duration) -> u32 {
        let catch_up = gap.saturating_mul(CATCH_UP_PULLS).max(catch_up_min);
        self.next_at = self.next_at.max(Time::from_ps(now.as_ps().saturating_sub(catch_up.as_ps())));
        let due = 1 + now.since(self.next_at).as_ps() / gap.as_ps().max(1);
        let count = if self.ring.is_empty() { u64::from(owed).min(due).max(1) } else { 1 };
        self.next_at += gap.saturating_mul(count);
        self.note_change();
        count as u32
    }

    /// Removes the queue pair in `slot` from those that send pulls.
    pub(crate) fn forget(&mut self, slot: u32) {
        self.ring.retain(|queued| *queued != slot);
        self.note_change();
    }

    fn note_change(&mut self) {
        self.due_at = if self.ring.is_empty() { NEVER } else { self.next_at };
    }
}

/// A time that is never reached.
const NEVER: Time = Time::from_ps(u64::MAX);

/// Maximum number of due pulls that a receiver may send at once after its link was busy, for example with
/// acknowledgements.
const CATCH_UP_PULLS: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    const GAP: Duration = Duration::from_ns(100);

    /// Sends the pulls that are due at each of the times `at`; returns slots and counts.
    fn drive(queue: &mut PullQueue, owed: &mut [u32], at: impl Iterator<Item = u64>) -> Vec<(u64, u32, u32)> {
        let mut sent = Vec::new();
        for ns in at {
            let now = Time::from_ns(ns);
            while queue.is_due(now) {
                let slot = queue.pop().expect("a pull is due");
                let count = queue.take(now, owed[slot as usize], GAP, Duration::ZERO);
                owed[slot as usize] -= count;
                if owed[slot as usize] > 0 {
                    queue.push(slot, now);
                }
                sent.push((ns, slot, count));
            }
        }
        sent
    }

    #[test]
    fn pulls_are_sent_round_robin_at_the_rate_of_the_link() {
        let (mut queue, mut owed) = (PullQueue::default(), [3, 1, 2]);
        (0..3).for_each(|slot| queue.push(slot, Time::ZERO));
        assert_eq!(queue.next_after(Time::ZERO), None);
        let sent = drive(&mut queue, &mut owed, (0..1_000).step_by(50));
        let expected = [(0, 0, 1), (100, 1, 1), (200, 2, 1), (300, 0, 1), (400, 2, 1), (500, 0, 1)];
        assert_eq!(sent, expected);
        queue.push(1, Time::from_ns(520));
        assert_eq!(queue.next_after(Time::from_ns(520)), Some(Time::from_ns(600)), "the last pull takes its time");
    }

    #[test]
    fn a_late_driver_catches_up_a_bounded_number() {
        let (mut queue, mut owed) = (PullQueue::default(), [50]);
        queue.push(0, Time::ZERO);
        let sent = drive(&mut queue, &mut owed, [0, 450, 100_000, 100_050].into_iter());
        assert_eq!(sent, [(0, 0, 1), (450, 0, 4), (100_000, 0, 9)]);
        queue.forget(0);
        assert!(!queue.is_due(Time::from_us(200)), "a removed queue pair has a turn");
    }
}
