//! The verbs state of a queue pair, the same for every transport: identity and rights, the two queues, memory checks,
//! completions and flushing.
//!
//! ```text
//!   verbs/head.rs       identity, endpoints, rights: read by all other files
//!   verbs/send.rs       the send queue: posting, sequence numbers, completing, flushing, local memory
//!   verbs/access.rs     checks of the memory that the peer accesses
//!   verbs/placement.rs  atomic writes and flushes
//!   verbs/recv.rs       the receive queue: claiming receives, placing data, ending messages
//!   verbs/gather.rs     scatter/gather lists
//!   verbs.rs            operations on both queues, such as entering the error state
//! ```
//!
//! The protocol below owns sequence numbers, windows and timers, and passes the values that these
//! functions need. Completions are written directly to the completion queue in [`Core`]. A failure flushes
//! immediately; the protocol releases the resources of the NIC that it holds when the input has been processed
//! ([`Head::has_failed`]).

mod access;
pub(crate) mod gather;
pub(crate) mod head;
pub(crate) mod placement;
pub(crate) mod recv;
pub(crate) mod send;

use rnic_base::Seq;
use rnic_wire::NakCode;

use crate::completion::WcStatus;
use crate::config::QpAttributes;
use crate::core::Core;
use crate::error::PostError;
use crate::event::AsyncEvent;
use crate::state::Service;
use crate::stats::QpStats;
use crate::wq::WqeState;
use crate::wr::{RecvRequest, SendFlags};

use crate::state::QpState;
use head::Head;
use recv::RecvHalf;
use send::{SendHalf, note_times, send_completion};

/// The verbs part of a queue pair.
#[derive(Debug)]
pub(crate) struct Verbs {
    pub(crate) head: Head,
    pub(crate) send: SendHalf,
    pub(crate) recv: RecvHalf,
    pub(crate) stats: QpStats,
}

impl Verbs {
    pub(crate) fn new(head: Head, attributes: &QpAttributes) -> Self {
        Self {
            send: SendHalf::new(attributes),
            recv: RecvHalf::new(attributes, &head.transport),
            head,
            stats: QpStats::default(),
        }
    }

    /// Returns the attributes with which an identical queue pair could be created.
    pub(crate) fn attributes(&self) -> QpAttributes {
        let Self { head, send, recv, .. } = self;
        QpAttributes {
            pd: head.pd,
            send_cq: head.send_cq,
            recv_cq: head.recv_cq,
            srq: head.srq,
            max_send_wr: send.queue.capacity(),
            max_recv_wr: recv.queue.capacity(),
            max_send_sge: send.queue.sges_max() as u32,
            max_recv_sge: recv.queue.sges_max() as u32,
            signal_all: head.signal_all,
            service: head.transport.service,
            transport: std::sync::Arc::clone(&head.transport),
            number: Some(head.number),
            // This attribute is stored in the protocol state.
            nvme: None,
        }
    }

    /// Queues a receive request.
    #[inline]
    pub(crate) fn post_recv(&mut self, core: &mut Core, request: &RecvRequest<'_>) -> Result<(), PostError> {
        if self.head.state == QpState::Reset {
            return Err(PostError::State(self.head.state));
        }
        if self.head.srq.is_some() {
            return Err(PostError::HasSrq);
        }
        let queue = &mut self.recv.queue;
        if queue.is_full() {
            return Err(PostError::QueueFull);
        }
        if request.sges.len() > queue.sges_max() {
            return Err(PostError::TooManySges { requested: request.sges.len(), limit: queue.sges_max() });
        }
        queue.push(request.wr_id, request.sges);
        if self.head.state == QpState::Error {
            self.flush(core);
        }
        Ok(())
    }

    /// Completes the finished entries at the head of the send queue: those acknowledged up to `una` and, for a fetch
    /// with separate sequence spaces, whose response has been received; and those that other flows have completed.
    #[inline(always)]
    pub(crate) fn complete_through(&mut self, core: &mut Core, una: Seq) {
        let Self { head, send, .. } = self;
        let old_head = send.queue.head;
        let mut failed_status = None;
        while send.queue.head != send.queue.tail {
            let counter = send.queue.head;
            if let Some((failing, status)) = send.known_failure
                && failing == counter
            {
                failed_status = Some(status);
                break;
            }
            let wqe = send.queue.get(counter);
            if counter == send.queue.next || wqe.end() > una {
                break;
            }
            if wqe.op.completes_later() {
                let is_on_flow = wqe.op.is_on_flow();
                if (head.transport.split || is_on_flow) && wqe.state != WqeState::Fetched {
                    break;
                }
                send.fetches -= u8::from(!is_on_flow);
            }
            if wqe.flags.contains(SendFlags::SIGNALED) {
                core.complete(head.send_cq, send_completion(head.number, wqe, WcStatus::Success));
            }
            note_times(head, core, counter, wqe, WcStatus::Success);
            send.queue.head = counter.wrapping_add(1);
        }
        if let Some(status) = failed_status {
            self.complete_failed_head(core, status);
        } else if head.state == QpState::SendQueueDrained && send.queue.head != old_head {
            send.report_if_drained(head, core);
        }
    }

    /// Marks entry `counter` of the send queue, which cannot succeed, to fail once it is the oldest; no new packets
    /// are sent. Packets up to `una` are acknowledged.
    pub(crate) fn fail_entry(&mut self, core: &mut Core, una: Seq, counter: u32, status: WcStatus) {
        self.send.mark_failed(counter, status);
        self.complete_through(core, una);
    }

    /// Fails the oldest entry of the send queue, and with it the queue pair.
    pub(crate) fn complete_failed_head(&mut self, core: &mut Core, status: WcStatus) {
        self.send.fail_oldest(&self.head, core, status);
        self.fail(core);
    }

    /// Fails entry `counter` of the send queue, which the peer has refused on another flow, and with it the queue pair.
    /// The peer answers no flow any more, so the result of earlier entries remains unknown: they are flushed.
    #[cold]
    pub(crate) fn fail_behind_unfinished(&mut self, core: &mut Core, counter: u32, status: WcStatus) {
        while self.send.queue.head != counter {
            self.send.fail_oldest(&self.head, core, WcStatus::WrFlushed);
        }
        self.complete_failed_head(core, status);
    }

    /// Fails the queue pair because of a request from the peer, and notifies the program.
    pub(crate) fn fail_as_responder(&mut self, core: &mut Core, code: NakCode) {
        self.recv.refused = Some(code);
        let number = self.head.number;
        core.raise_event(match code {
            NakCode::RemoteAccessError => AsyncEvent::QpAccessError(number),
            NakCode::InvalidRequest => AsyncEvent::QpRequestError(number),
            NakCode::RemoteOperationalError | NakCode::PsnSequenceError => AsyncEvent::QpFatal(number),
        });
        self.fail(core);
    }

    /// See [`crate::Engine::on_peer_gone`]. The oldest request completes with `known_status` when its status is known
    /// already.
    #[cold]
    pub(crate) fn on_peer_gone(&mut self, core: &mut Core, known_status: Option<WcStatus>) {
        let service = self.head.transport.service;
        if !self.head.state.receives() || service == Service::UnreliableDatagram {
            return;
        }
        if service == Service::ReliableConnection && !self.send.queue.is_empty() {
            return self.complete_failed_head(core, known_status.unwrap_or(WcStatus::RetryExceeded));
        }
        core.raise_event(AsyncEvent::QpFatal(self.head.number));
        self.fail(core);
    }

    /// Enters the error state and flushes both queues, oldest entry first. The protocol releases the resources of the
    /// NIC that it holds when the current input has been processed.
    pub(crate) fn fail(&mut self, core: &mut Core) {
        if self.head.state == QpState::Error {
            return;
        }
        self.head.state = QpState::Error;
        self.head.has_failed = true;
        core.is_unsettled = true;
        self.flush(core);
        if self.head.srq.is_some() {
            core.raise_event(AsyncEvent::LastWqeReached(self.head.number));
        }
    }

    /// Completes all posted requests as flushed.
    fn flush(&mut self, core: &mut Core) {
        self.send.flush(&self.head, core);
        self.recv.flush(&self.head, core);
    }
}
