//! Tokens: a sender may send as many packets as its receiver has granted, beyond the first window.
//!
//! Source: Tonic (NSDI'20) section 3.3, mechanisms T-14 and T-16; NDP (SIGCOMM'17) section 3.2. All counters are
//! cumulative: the packets sent never exceed `initial + granted + extra`. Every packet with a sequence number costs a
//! token, also when it is a retransmission, a request without payload or a response.
//!
//! * `granted` is what pulls report, so a lost pull is repaired by the next one. A receiver grants no more than has
//!   arrived; a report of more, from a peer that does not follow the rules, counts up to the packets sent.
//! * `extra` grows by one for each packet that a timeout marks: those packets are lost, or the grants that they earned
//!   are. It is taken back when nothing is in flight, so that timeouts without losses do not widen the first window.
//! * When all packets have arrived but the last pulls are lost, no timeout marks anything: after the same time one
//!   packet may be sent, and the pull that it earns repairs the rest.
//!
//! The receiving end counts the grants that it owes, and sends them in turn with other connections
//! ([`crate::pulls`]).

use rnic_base::{Duration, Serial, Time};

use crate::timer::Deadline;

/// Both ends of a connection's tokens.
#[derive(Debug)]
pub(crate) struct Tokens {
    /// Number of packets that may be sent without a grant.
    initial: u64,
    sent: u64,
    granted: u64,
    extra: u64,
    /// Count in the latest pull.
    last_pull: Serial<24>,
    /// Time at which a packet may be sent although no pull has arrived.
    pub(super) deadline: Deadline,
    /// Number of grants that this end has to send as a receiver.
    owed: u32,
    /// Number of grants that this end has sent.
    pulled: Serial<24>,
    /// True while the queue pair is in the queue of pulls.
    is_queued: bool,
}

impl Tokens {
    pub(super) fn new(initial: u32) -> Self {
        Self {
            initial: initial.into(),
            sent: 0,
            granted: 0,
            extra: 0,
            last_pull: Serial::new(0),
            deadline: Deadline::NEVER,
            owed: 0,
            pulled: Serial::new(0),
            is_queued: false,
        }
    }

    /// Returns the number of packets that may be sent.
    pub(super) fn available(&self) -> u64 {
        (self.initial + self.granted + self.extra).saturating_sub(self.sent)
    }

    /// Counts a sent packet against the number of packets that pulls have granted.
    pub(super) fn charge(&mut self) {
        self.sent += 1;
    }

    /// Processes a pull; returns whether it grants any packets.
    pub(super) fn on_pull(&mut self, granted: Serial<24>) -> bool {
        let newly = self.last_pull.distance_to(granted);
        if newly <= 0 {
            return false;
        }
        self.last_pull = granted;
        let before = self.granted;
        self.granted = (before + newly as u64).min(self.sent);
        self.deadline = Deadline::NEVER;
        self.granted > before
    }

    /// Permits the packets that a timeout has marked to be sent, up to a total of `most` permitted packets.
    pub(super) fn on_timeout(&mut self, marked: u64, most: u64) {
        let limit = most.max(self.initial).saturating_sub(self.available());
        self.extra += marked.min(limit);
    }

    /// Ensures that `packets` may be sent, to obtain a response from the peer.
    pub(super) fn ensure(&mut self, packets: u64) {
        self.extra += packets.saturating_sub(self.available());
    }

    /// Discards grants beyond the first window, when nothing is in flight.
    pub(super) fn on_idle(&mut self) {
        self.extra = self.extra.min(self.sent - self.granted);
    }

    /// Starts waiting for a pull until `now + patience`, unless the queue pair already waits; returns the deadline.
    pub(super) fn wait(&mut self, now: Time, patience: Duration) -> Deadline {
        if !self.deadline.is_set() {
            self.deadline = Deadline::after(now, patience);
        }
        self.deadline
    }

    /// Counts a received packet of the peer, if fewer than `most` grants have to be sent; returns whether the queue
    /// pair has to be added to the queue of pulls, and records that it is.
    pub(super) fn earn(&mut self, most: u64) -> bool {
        self.owed = (self.owed + 1).min(u32::try_from(most).unwrap_or(u32::MAX));
        !std::mem::replace(&mut self.is_queued, true)
    }

    /// Returns the number of grants that this end has to send.
    pub(super) fn owed(&self) -> u32 {
        self.owed
    }

    /// Records that `count` of these grants are sent; returns the number to be carried in the pull, and whether more
    /// have to be sent.
    pub(super) fn grant(&mut self, count: u32) -> (Serial<24>, bool) {
        self.owed -= count.min(self.owed);
        self.pulled = self.pulled.plus(count);
        self.is_queued = self.owed > 0;
        (self.pulled, self.is_queued)
    }

    /// Records that the queue pair has left the queue of pulls.
    pub(super) fn leave_queue(&mut self) {
        self.is_queued = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(initial: u32, sent: u64) -> Tokens {
        let mut tokens = Tokens::new(initial);
        (0..sent).for_each(|_| tokens.charge());
        tokens
    }

    #[test]
    fn t16_a_lost_pull_is_repaired_by_the_next_and_an_old_one_has_no_effect() {
        let mut tokens = spent(16, 16);
        assert_eq!(tokens.available(), 0);
        assert!(tokens.on_pull(Serial::new(1)) && tokens.on_pull(Serial::new(4)));
        assert_eq!(tokens.available(), 4, "two pulls were lost");
        assert!(!tokens.on_pull(Serial::new(3)) && !tokens.on_pull(Serial::new(4)));
        assert_eq!(tokens.available(), 4);
    }

    #[test]
    fn t16_counts_of_pulls_wrap() {
        let mut tokens = Tokens::new(1);
        let mut count = Serial::new(0);
        for _ in 0..(1 << 24) + 100 {
            tokens.charge();
            count = count.plus(1);
            assert!(tokens.on_pull(count));
        }
        assert_eq!((tokens.available(), count), (1, Serial::new(100)));
    }

    /// A peer that grants more than can be in flight is limited to the first window.
    #[test]
    fn t16_grants_of_what_was_never_sent_are_clamped() {
        let mut tokens = spent(16, 10);
        assert!(tokens.on_pull(Serial::new((1 << 23) - 1)));
        assert_eq!(tokens.available(), 16);
        assert!(!tokens.on_pull(Serial::new(1 << 23)) && tokens.available() == 16);
    }

    #[test]
    fn t16_a_timeout_adds_what_it_marks_until_nothing_is_in_flight() {
        let mut tokens = spent(16, 16);
        tokens.on_timeout(5, 110);
        assert_eq!(tokens.available(), 5);
        tokens.on_timeout(1_000, 110);
        assert_eq!(tokens.available(), 110, "repeated timeouts without transmissions");
        tokens.on_idle();
        assert_eq!(tokens.available(), 16);
        assert!(tokens.on_pull(Serial::new(16)));
        assert_eq!(tokens.available(), 32, "the grants of the first window were not lost");
        tokens.on_idle();
        assert_eq!(tokens.available(), 16);
    }

    #[test]
    fn a_receiver_owes_a_bounded_number_of_grants() {
        let mut tokens = Tokens::new(16);
        assert!(tokens.earn(3) && !tokens.earn(3));
        (0..5).for_each(|_| assert!(!tokens.earn(3)));
        assert_eq!(tokens.owed(), 3);
        assert_eq!(tokens.grant(2), (Serial::new(2), true));
        assert_eq!(tokens.grant(1), (Serial::new(3), false));
        assert!(tokens.earn(3), "not in the queue again");
    }
}
