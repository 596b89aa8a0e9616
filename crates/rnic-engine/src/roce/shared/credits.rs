//! End-to-end credits: a requester limits its messages to the receives that are posted at the other end.
//!
//! Source: InfiniBand Architecture volume 1, section 9.7.7.2; IRN (SIGCOMM'18) section 5.4, mechanism I-20. Every
//! acknowledgement carries the number of receives posted beyond the messages that it counts. The requester numbers
//! its messages; the highest permitted number, the limit, is the count plus the receives. A message that consumes no
//! receive raises the limit by one itself. The receives of a shared receive queue belong to no single queue pair, so
//! none are counted there, and the requester is not limited; nor is it before it has received any credits.
//!
//! Beyond the limit one message may be sent as a probe (the specification's limited one): here, when everything
//! before it is acknowledged; of a Send, only the first packet, and the others when that one has been accepted. The
//! response is an acknowledgement with new credits, or a receiver-not-ready NAK: so no requester waits indefinitely,
//! even if the peer's counts are wrong. A responder does not send an acknowledgement merely because a receive was
//! posted, but a requester processes such acknowledgements from peers that send them.

use rnic_base::Serial;
use rnic_wire::header::aeth::receives_of;
use rnic_wire::{Aeth, Headers, Packet, Syndrome};

use super::ConnShared;
use crate::verbs::head::Head;
use crate::verbs::recv::RecvHalf;
use crate::verbs::send::SendHalf;
use crate::window::SendWindow;
use crate::wq::WqeOp;

/// Number of receives posted at the other end, as known to the requester.
#[derive(Debug, Default)]
pub(crate) struct Credits {
    /// SSN: number of the latest message that has started. A Read that is requested in pieces counts as one message
    /// per piece.
    begun: Serial<24>,
    /// LSN: number of the last message that has a receive, or needs none.
    limit: Serial<24>,
    credit_report: ReportedCredits,
}

/// The peer's last report about its receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum ReportedCredits {
    /// No report so far.
    #[default]
    NoReport,
    /// The peer counts its receives.
    Count,
    /// The peer does not count its receives; this state is permanent.
    Uncounted,
}

impl Credits {
    /// Counts a message that starts.
    fn begin(&mut self, consumes_receive: bool) {
        self.begun = self.begun.plus(1);
        if !consumes_receive {
            self.limit = self.limit.plus(1);
        }
    }

    /// Returns whether the message `messages_ahead` positions after the latest one has a receive, as far as is known.
    fn covers(&self, messages_ahead: u32) -> bool {
        self.credit_report != ReportedCredits::Count || !self.limit.is_before(self.begun.plus(messages_ahead))
    }

    /// Processes the credits of an acknowledgement; returns whether more may be sent than before.
    fn update(&mut self, aeth: Aeth) -> bool {
        let Syndrome::Ack { credits } = aeth.syndrome else { return false };
        let Some(receives) = receives_of(credits) else {
            return std::mem::replace(&mut self.credit_report, ReportedCredits::Uncounted) == ReportedCredits::Count;
        };
        if self.credit_report == ReportedCredits::NoReport {
            self.credit_report = ReportedCredits::Count;
        }
        // An acknowledgement that was overtaken by later ones gives a lower limit and is ignored.
        let limit = aeth.msn.plus(receives);
        let is_higher = self.limit.is_before(limit);
        if is_higher {
            self.limit = limit;
        }
        is_higher && self.credit_report == ReportedCredits::Count
    }
}

impl ConnShared {
    /// Returns whether the receives at the other end permit sending the next packet of the next entry; `window` is
    /// the request window.
    #[cold]
    pub(in crate::roce) fn has_credit(&self, send: &SendHalf, window: &SendWindow) -> bool {
        let Some(credits) = self.optional.credits() else { return true };
        let wqe = send.queue.get(send.queue.next);
        let starts_message = send.queue.packets_sent_of_next == 0;
        if !wqe.op.consumes_receive() || credits.covers(u32::from(starts_message)) {
            return true;
        }
        // The message is sent as a probe. A Write with immediate consumes the receive with its last packet, a Send with
        // its first.
        if starts_message { window.is_empty() } else { wqe.op == WqeOp::WriteImm || wqe.first < window.una }
    }

    /// Counts the message that the next packet starts, if it starts one; returns whether that packet exceeds the known
    /// receives, and so must be acknowledged.
    #[cold]
    pub(in crate::roce) fn count_message(&mut self, send: &SendHalf) -> bool {
        let op = send.queue.get(send.queue.next).op;
        let Some(credits) = self.optional.credits_mut() else { return false };
        if send.queue.packets_sent_of_next == 0 || op.is_fetch() {
            credits.begin(op.consumes_receive());
        }
        op.consumes_receive() && !credits.covers(0)
    }

    /// Processes the credits of an acknowledgement; returns whether more may be sent than before.
    #[cold]
    pub(in crate::roce) fn on_credits(&mut self, aeth: Aeth) -> bool {
        self.optional.credits_mut().is_some_and(|credits| credits.update(aeth))
    }
}

impl RecvHalf {
    /// Returns the syndrome of an acknowledgement without an error.
    #[inline]
    pub(in crate::roce) fn ack_syndrome(&self, head: &Head) -> Syndrome {
        if head.transport.credits { self.count_receives(head) } else { Syndrome::ACK }
    }

    /// Writes the number of posted receives into an acknowledgement.
    #[cold]
    pub(in crate::roce) fn advertise(&self, head: &Head, packet: &mut Packet) {
        if let Headers::Ack { aeth: Aeth { syndrome: syndrome @ Syndrome::Ack { .. }, .. }, .. } = &mut packet.headers {
            *syndrome = self.count_receives(head);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack_aeth(msn: u32, credits: u8) -> Aeth {
        Aeth { syndrome: Syndrome::Ack { credits }, msn: Serial::new(msn) }
    }

    /// Messages 1 and 2 are Sends, 3 is a Write, 4 is a Send: with two receives posted, message 4 exceeds the limit
    /// until another receive is posted.
    #[test]
    fn i20_the_limit_is_the_message_count_plus_the_posted_receives() {
        let mut credits = Credits::default();
        assert!(credits.covers(1_000), "credits are limited before the first report");
        credits.begin(true);
        assert!(credits.update(ack_aeth(0, 2)), "two receives, one of them for the message in flight");
        assert_eq!([1, 2].map(|messages_ahead| credits.covers(messages_ahead)), [true, false]);
        credits.begin(true);
        credits.begin(false);
        assert_eq!([0, 1].map(|messages_ahead| credits.covers(messages_ahead)), [true, false]);
        assert!(!credits.update(ack_aeth(1, 1)), "a limit that is already known counts as higher");
        assert!(!credits.update(ack_aeth(0, 2)), "an overtaken acknowledgement raises the limit");
        assert!(credits.update(ack_aeth(3, 1)));
        assert_eq!([1, 2].map(|messages_ahead| credits.covers(messages_ahead)), [true, false]);
        assert!(!credits.update(Aeth { syndrome: Syndrome::RnrNak { timer: 5 }, msn: Serial::new(9) }), "no credits");
    }

    #[test]
    fn i20_message_numbers_wrap() {
        let first = (1 << 24) - 3;
        let mut credits =
            Credits { begun: Serial::new(first), limit: Serial::new(first), credit_report: ReportedCredits::Count };
        assert!(credits.update(ack_aeth(first, 4)));
        for _ in 0..4 {
            assert!(credits.covers(1));
            credits.begin(true);
        }
        assert!(credits.covers(0) && !credits.covers(1));
        assert!(credits.update(ack_aeth(1, 3)));
        assert_eq!([3, 4].map(|messages_ahead| credits.covers(messages_ahead)), [true, false]);
    }

    /// Once a peer has reported that it does not count receives, its later counts are ignored and messages are not
    /// limited.
    #[test]
    fn i20_a_peer_that_counts_no_receives_sets_no_limit() {
        let mut credits = Credits::default();
        assert!(!credits.update(ack_aeth(0, 31)), "an unlimited requester gets more credits");
        assert!(!credits.update(ack_aeth(0, 1)) && credits.covers(1_000));
        let mut limited = Credits::default();
        limited.update(ack_aeth(0, 0));
        assert!(!limited.covers(1));
        assert!(limited.update(ack_aeth(0, 31)) && limited.covers(1));
    }
}
