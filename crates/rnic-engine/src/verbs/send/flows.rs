//! Requests that other flows of the queue pair carry: which may, what each of them waits for, and their end.
//!
//! Source: Tonic (NSDI'20) appendix A: "creating multiple flows in Tonic for the same communication endpoint and using
//! them concurrently". A request of this kind stays in the send queue of its queue pair, without packets, until its
//! flow has completed it: so requests complete in the order in which they were posted. The engine passes it to a flow
//! (`engine/flows.rs`), where it is an ordinary request.
//!
//! Order: a Write without immediate data and a Read go to any flow, except that one whose remote memory overlaps the
//! target of an earlier request follows it on its flow, or waits until it is complete. All others keep the order in
//! which they were posted: they are sent by the queue pair itself when all earlier requests are complete elsewhere.

use rnic_base::Seq;

use super::SendHalf;
use crate::error::PostError;
use crate::transport::Transport;
use crate::verbs::head::Head;
use crate::wq::{SendWqe, WqeOp, WqeState};
use crate::wr::SendFlags;

/// The flows to which a request may be passed now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Course {
    /// The request may be passed to any flow.
    Any,
    /// Only this flow, because it carries an earlier request to the same memory.
    Behind(u32),
    /// The request cannot be passed to a flow yet.
    Wait,
}

/// Returns the send queue entry for `wqe`, an operation that the queue pair itself does not send: an entry for a
/// request on another flow.
#[cold]
pub(super) fn entry_on_flow(transport: &Transport, wqe: SendWqe) -> Result<SendWqe, PostError> {
    let op = match wqe.op {
        WqeOp::Write if transport.flows > 1 => WqeOp::WriteOnFlow,
        WqeOp::Read if transport.flows > 1 => WqeOp::ReadOnFlow,
        _ => return Err(PostError::Unsupported(transport.service)),
    };
    Ok(SendWqe { op, packets: 0, ..wqe })
}

/// Returns whether two requests access the same remote memory. The comparison uses addresses.
pub(super) fn overlap(one: &SendWqe, other: &SendWqe) -> bool {
    let (offset_in_other, offset_of_other) =
        (one.remote.wrapping_sub(other.remote), other.remote.wrapping_sub(one.remote));
    offset_in_other < u64::from(other.length) && one.length > 0
        || offset_of_other < u64::from(one.length) && other.length > 0
}

impl SendHalf {
    /// Returns whether the next request to start is one for another flow.
    pub(crate) fn next_is_on_flow(&self) -> bool {
        self.queue.has_unsent() && self.queue.get(self.queue.next).op.is_on_flow()
    }

    /// Returns whether another flow carries a request that is not complete.
    pub(super) fn is_carried_by_flows(&self) -> bool {
        self.in_progress().any(|earlier| earlier.op.is_on_flow() && earlier.state != WqeState::Fetched)
    }

    /// Returns where the next request, which is for another flow, may go; packets of the queue pair itself up to `una`
    /// are acknowledged. Every request in progress is checked, so at most as many as the send queue holds.
    pub(crate) fn course_of_next(&self, una: Seq) -> Course {
        let queue = &self.queue;
        let wqe = queue.get(queue.next);
        if wqe.flags.contains(SendFlags::FENCE) && queue.head != queue.next {
            return Course::Wait;
        }
        let mut course = Course::Any;
        for earlier in self.in_progress() {
            if !earlier.op.changes_memory() || !overlap(wqe, earlier) {
                continue;
            }
            if !earlier.op.is_on_flow() {
                if earlier.end() > una {
                    return Course::Wait;
                }
            } else if earlier.state != WqeState::Fetched {
                match course {
                    Course::Behind(flow) if flow != earlier.sn => return Course::Wait,
                    _ => course = Course::Behind(earlier.sn),
                }
            }
        }
        course
    }

    /// Passes the next request of the queue pair `from`, whose next own packet is `next`, to this send queue, which is
    /// that of its flow `flow`.
    pub(crate) fn take_over(&mut self, from: &mut Self, head: &Head, next: Seq, flow: u32) {
        let counter = from.queue.next;
        let wqe = from.queue.get(counter);
        let op = if wqe.op == WqeOp::ReadOnFlow { WqeOp::Read } else { WqeOp::Write };
        let has_own_responses = op == WqeOp::Read && head.transport.split;
        let packets = if has_own_responses { 1 } else { wqe.length.div_ceil(head.mtu()).max(1) };
        let flags = wqe.flags.difference(SendFlags::FENCE) | SendFlags::SIGNALED;
        let entry = SendWqe { wr_id: counter.into(), op, packets, flags, ..*wqe };
        self.queue.push(entry, from.queue.sges(counter));
        from.begin(counter, next, 0);
        from.queue.get_mut(counter).sn = flow;
        from.advance(0);
    }

    /// Records that another flow has completed request `counter`; returns the number of the flow and the bytes of the
    /// request.
    pub(crate) fn completed_on_flow(&mut self, counter: u32) -> (u32, u32) {
        let entry = self.queue.get_mut(counter);
        assert!(entry.op.is_on_flow() && entry.state == WqeState::Posted, "request {counter} is on no flow");
        entry.state = WqeState::Fetched;
        (entry.sn, entry.length)
    }
}

impl WqeOp {
    /// Returns whether the operation changes the remote memory at its address.
    fn changes_memory(self) -> bool {
        self.is_write() || self.is_atomic() || matches!(self, Self::WriteOnFlow | Self::AtomicWrite)
    }
}
