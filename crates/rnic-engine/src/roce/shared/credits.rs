//! End-to-end credits: a requester limits its messages to the receives that are posted at the other end.
//!
//! Source: InfiniBand Architecture volume 1, section 9.7.7.2; IRN (SIGCOMM'18) section 5.4, mechanism I-20. Every
//! acknowledgement carries the number of receives posted beyond the messages that it counts. The requester numbers its
//! messages; the highest permitted number, the limit, is the count plus the receives. A message that consumes no
//! receive advances the limit itself. The receives of a shared receive queue belong to no single queue pair, so none
//! are counted there, and the requester is not limited; nor is it before it has received any credits.
//!
//! Beyond the limit one message may be sent as a probe (the specification's limited one): here, when everything before
//! it is acknowledged; of a Send one packet, and the others when that one has been accepted. The response is an
//! acknowledgement with new credits, or a receiver-not-ready NAK: so no requester waits indefinitely, whatever a peer
//! counts. A responder does not send an acknowledgement merely because a receive was posted, but a requester processes
//! those of peers that do.

use rnic_base::Serial;
use rnic_wire::header::aeth::receives_of;
use rnic_wire::{Aeth, Headers, Packet, Syndrome};

use super::ConnShared;
use crate::verbs::head::Head;
use crate::verbs::recv::RecvHalf;
use crate::verbs::send::SendHalf;
use crate::window::SendWindow;
use crate::wq::WqeOp;

/// The receives at the other end, as known to the requester.
#[derive(Debug, Default)]
pub(crate) struct Credits {
    /// Number of the latest message that has started: SSN. A Read that is requested in pieces counts as one message per
    /// piece.
    begun: Serial<24>,
    /// Number of the last message that has a receive, or needs none: LSN.
    limit: Serial<24>,
    heard: Heard,
}

/// The peer's last report about its receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Heard {
    /// No report so far.
    #[default]
    Nothing,
    /// The peer counts its receives.
    Count,
    /// The peer does not count its receives; this state is permanent.
    Uncounted,
}

impl Credits {
    /// Counts another message that starts.
    fn begin(&mut self, takes_receive: bool) {
        self.begun = self.begun.plus(1);
        if !takes_receive {
            self.limit = self.limit.plus(1);
        }
    }

    /// Returns whether the message `ahead` positions behind the latest has a receive, as far as is known.
    fn covers(&self, ahead: u32) -> bool {
        self.heard != Heard::Count || !self.limit.is_before(self.begun.plus(ahead))
    }

    /// Processes the credits of an acknowledgement; returns whether more may be sent than before.
    fn update(&mut self, aeth: Aeth) -> bool {
        let Syndrome::Ack { credits } = aeth.syndrome else { return false };
        let Some(receives) = receives_of(credits) else {
            return std::mem::replace(&mut self.heard, Heard::Uncounted) == Heard::Count;
        };
        if self.heard == Heard::Nothing {
            self.heard = Heard::Count;
        }
        // An acknowledgement that others have overtaken gives a lower limit and is ignored.
        let limit = aeth.msn.plus(receives);
        let is_more = self.limit.is_before(limit);
        if is_more {
            self.limit = limit;
        }
        is_more && self.heard == Heard::Count
    }
}

impl ConnShared {
    /// Returns whether the receives at the other end permit sending the next packet of the next entry; `window` is that
    /// of the requests.
    #[cold]
    pub(in crate::roce) fn has_credit(&self, send: &SendHalf, window: &SendWindow) -> bool {
        let Some(credits) = self.extra.credits() else { return true };
        let wqe = send.queue.get(send.queue.next);
        let starts = send.queue.sent_of_next == 0;
        if !wqe.op.consumes_receive() || credits.covers(u32::from(starts)) {
            return true;
        }
        // The message is sent as a probe. A Write with immediate consumes the receive with its last packet, a Send with
        // its first.
        if starts { window.is_empty() } else { wqe.op == WqeOp::WriteImm || wqe.first < window.una }
    }

    /// Counts the message that the next packet starts, if it starts one; returns whether that packet exceeds the known
    /// receives, and so must be acknowledged.
    #[cold]
    pub(in crate::roce) fn count_message(&mut self, send: &SendHalf) -> bool {
        let op = send.queue.get(send.queue.next).op;
        let Some(credits) = self.extra.credits_mut() else { return false };
        if send.queue.sent_of_next == 0 || op.is_fetch() {
            credits.begin(op.consumes_receive());
        }
        op.consumes_receive() && !credits.covers(0)
    }

    /// Processes the credits of an acknowledgement; returns whether more may be sent than before.
    #[cold]
    pub(in crate::roce) fn on_credits(&mut self, aeth: Aeth) -> bool {
        self.extra.credits_mut().is_some_and(|credits| credits.update(aeth))
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

    fn said(msn: u32, credits: u8) -> Aeth {
        Aeth { syndrome: Syndrome::Ack { credits }, msn: Serial::new(msn) }
    }

    /// Messages 1 and 2 are Sends, 3 is a Write, 4 a Send: with two receives it is one too many, until a receive more
    /// has been posted.
    #[test]
    fn i20_the_limit_is_what_is_counted_and_what_is_posted() {
        let mut credits = Credits::default();
        assert!(credits.covers(1_000), "nothing has been heard");
        credits.begin(true);
        assert!(credits.update(said(0, 2)), "two receives, one of them for what is under way");
        assert_eq!([1, 2].map(|ahead| credits.covers(ahead)), [true, false]);
        credits.begin(true);
        credits.begin(false);
        assert_eq!([0, 1].map(|ahead| credits.covers(ahead)), [true, false]);
        assert!(!credits.update(said(1, 1)), "says no more than is known");
        assert!(!credits.update(said(0, 2)), "and an old one less");
        assert!(credits.update(said(3, 1)));
        assert_eq!([1, 2].map(|ahead| credits.covers(ahead)), [true, false]);
        assert!(!credits.update(Aeth { syndrome: Syndrome::RnrNak { timer: 5 }, msn: Serial::new(9) }), "no credits");
    }

    #[test]
    fn i20_numbers_wrap() {
        let first = (1 << 24) - 3;
        let mut credits = Credits { begun: Serial::new(first), limit: Serial::new(first), heard: Heard::Count };
        assert!(credits.update(said(first, 4)));
        for _ in 0..4 {
            assert!(credits.covers(1));
            credits.begin(true);
        }
        assert!(credits.covers(0) && !credits.covers(1));
        assert!(credits.update(said(1, 3)));
        assert_eq!([3, 4].map(|ahead| credits.covers(ahead)), [true, false]);
    }

    /// A peer that says once that it counts no receives is not asked for them any more.
    #[test]
    fn i20_without_a_count_there_is_no_limit() {
        let mut credits = Credits::default();
        assert!(!credits.update(said(0, 31)), "it was free before");
        assert!(!credits.update(said(0, 1)) && credits.covers(1_000));
        let mut held = Credits::default();
        held.update(said(0, 0));
        assert!(!held.covers(1));
        assert!(held.update(said(0, 31)) && held.covers(1));
    }
}
