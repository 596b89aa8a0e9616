//! What befalls an entry of the send queue before its completion, whichever protocol carries it: whether it may begin,
//! its numbers, how far it has come, and that it cannot succeed.

use rnic_base::Seq;

use crate::completion::WcStatus;
use crate::qp::requester::Requester;
use crate::qp::{Qp, QpState};
use crate::stats::WaitReason;
use crate::wq::SendWqe;
use crate::wr::SendFlags;

impl Qp {
    /// Whether the next entry may begin, room aside; if not, why, or no reason where nothing may.
    #[inline]
    pub(crate) fn may_begin(&self) -> Result<(), Option<WaitReason>> {
        if self.state == QpState::SendQueueDrained {
            return Err(None);
        }
        let requester = &self.requester;
        let wqe = requester.queue.get(requester.queue.next);
        if wqe.flags.contains(SendFlags::FENCE) && requester.fetches > 0 {
            return Err(Some(WaitReason::Fence));
        }
        if wqe.op.is_fetch() && requester.fetches >= requester.fetches_max {
            return Err(Some(WaitReason::ReadLimit));
        }
        if self.transport.fences_overlaps && requester.overlaps_unarrived(wqe) {
            return Err(Some(WaitReason::Fence));
        }
        Ok(())
    }
}

impl Requester {
    /// Whether `wqe` is a Write to where an earlier one of this queue pair writes that is not known to have arrived: a
    /// packet of that one, lost and sent again, would be placed over it (IRN section 5.3.4). Addresses decide; what two
    /// keys map to the same memory under two of them is not seen. Looks at every entry under way, so at as many as the
    /// send queue holds.
    #[cold]
    fn overlaps_unarrived(&self, wqe: &SendWqe) -> bool {
        let queue = &self.queue;
        let under_way = (0..queue.next.wrapping_sub(queue.head)).map(|age| queue.get(queue.head.wrapping_add(age)));
        wqe.op.is_write()
            && under_way.filter(|earlier| earlier.op.is_write() && earlier.end() > self.window.una).any(|earlier| {
                let (below, above) = (wqe.remote.wrapping_sub(earlier.remote), earlier.remote.wrapping_sub(wqe.remote));
                below < u64::from(earlier.length) && wqe.length > 0
                    || above < u64::from(wqe.length) && earlier.length > 0
            })
    }

    /// Gives entry `counter` its numbers: `first` is that of its first packet, which is about to be made. Of those that
    /// tell fetches apart at their target a fetch takes `reads`.
    #[inline]
    pub(crate) fn begin(&mut self, counter: u32, first: Seq, reads: u32) {
        let entry = self.queue.get_mut(counter);
        entry.first = first;
        if entry.op.consumes_receive() {
            entry.sn = self.next_recv_sn;
            self.next_recv_sn = self.next_recv_sn.wrapping_add(1);
        } else if entry.op.is_fetch() {
            entry.sn = self.next_read_sn;
            self.next_read_sn = self.next_read_sn.wrapping_add(reads);
            self.fetches += 1;
        }
    }

    /// The last entry to begin, which took `reads`, does not begin after all.
    pub(crate) fn put_back(&mut self, counter: u32, reads: u32) {
        let entry = self.queue.get_mut(counter);
        entry.first = Seq::UNSET;
        if entry.op.consumes_receive() {
            self.next_recv_sn = self.next_recv_sn.wrapping_sub(1);
        } else if entry.op.is_fetch() {
            self.next_read_sn = self.next_read_sn.wrapping_sub(reads);
            self.fetches -= 1;
        }
    }

    /// `packets` more of the next entry have been handed out; behind its last one, the entry after it is the next.
    #[inline]
    pub(crate) fn advance(&mut self, packets: u32) {
        let counter = self.queue.next;
        self.sent_of_next += packets;
        if self.sent_of_next == self.queue.get(counter).packets {
            self.sent_of_next = 0;
            self.queue.next = counter.wrapping_add(1);
        }
    }

    /// Entry `counter` cannot succeed: of all that cannot, the oldest fails, once it is at the head.
    pub(crate) fn doom(&mut self, counter: u32, status: WcStatus) {
        let head = self.queue.head;
        let age = |other: u32| other.wrapping_sub(head);
        if self.doom.is_none_or(|(doomed, _)| age(counter) < age(doomed)) {
            self.doom = Some((counter, status));
        }
    }
}
