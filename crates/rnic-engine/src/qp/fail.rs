//! The way into the error state.

use rnic_wire::NakCode;

use crate::completion::{Completion, WcStatus};
use crate::core::Core;
use crate::event::AsyncEvent;
use crate::falcon::Nic;
use crate::qp::completer::send_completion;
use crate::qp::fetch::FetchServer;
use crate::qp::{Qp, QpState};
use crate::timer::Deadline;
use crate::transport::Service;
use crate::wq::WqeState;

impl Qp {
    /// Entry `counter` of the send queue cannot succeed. It fails when it is the oldest one; nothing new is sent.
    pub(crate) fn fail_request(&mut self, core: &mut Core, counter: u32, status: WcStatus) {
        self.requester.doom(counter, status);
        self.complete_finished(core);
    }

    /// The oldest entry of the send queue fails, and with it the queue pair.
    pub(crate) fn fail_head(&mut self, core: &mut Core, status: WcStatus) {
        let queue = &mut self.requester.queue;
        if !queue.is_empty() {
            let completion = send_completion(self.number, queue.get(queue.head), status);
            queue.head = queue.head.wrapping_add(1);
            core.complete(self.send_cq, completion);
        }
        self.enter_error(core);
    }

    /// A request of the peer has put this queue pair into the error state; the program hears of it.
    pub(crate) fn fail_as_responder(&mut self, core: &mut Core, code: NakCode) {
        self.responder.refused = Some(code);
        core.notice(match code {
            NakCode::RemoteAccessError => AsyncEvent::QpAccessError(self.number),
            NakCode::InvalidRequest => AsyncEvent::QpRequestError(self.number),
            NakCode::RemoteOperationalError | NakCode::PsnSequenceError => AsyncEvent::QpFatal(self.number),
        });
        self.enter_error(core);
    }

    /// See [`crate::Engine::give_up_on_peer`].
    #[cold]
    pub(crate) fn give_up_on_peer(&mut self, core: &mut Core) {
        if !self.state.receives() || self.transport.service == Service::UnreliableDatagram {
            return;
        }
        if self.transport.service == Service::ReliableConnection && !self.requester.queue.is_empty() {
            let status = self.known_failure().unwrap_or(WcStatus::RetryExceeded);
            return self.fail_head(core, status);
        }
        core.notice(AsyncEvent::QpFatal(self.number));
        self.enter_error(core);
    }

    /// Stops everything but the connection of a queue pair with Falcon, and flushes both queues, oldest first.
    pub(crate) fn enter_error(&mut self, core: &mut Core) {
        if self.state == QpState::Error {
            return;
        }
        self.state = QpState::Error;
        self.release_peer(core);
        self.requester.pause = Deadline::NEVER;
        self.flush(core);
        if self.srq.is_some() {
            core.notice(AsyncEvent::LastWqeReached(self.number));
        }
    }

    /// Takes this queue pair out of everything that all share, before it is reset or destroyed.
    pub(crate) fn leave(&mut self, core: &mut Core, falcon: Option<&mut Nic>) {
        core.pools.release(&mut self.responder.sr);
        if let Some(nic) = falcon.filter(|_| self.extra.falcon().is_some()) {
            self.leave_falcon(core, nic);
        }
        core.forget(self.slot);
        if self.state.receives() {
            self.release_peer(core);
        }
        // It may have been woken for room that it leaves unused.
        core.pass_on_room(self.peer);
    }

    /// Gives back what this queue pair holds of what all share: room at the peer, a place among the active ones.
    pub(crate) fn release_peer(&mut self, core: &mut Core) {
        core.pools.release(&mut self.responder.sr);
        self.deactivate(core);
        self.take_room_back(core, 0);
        core.settle(self.peer, self.requester.window.in_flight());
        if let Some(FetchServer::Split(server)) = self.responder.fetches.as_deref() {
            core.settle(self.peer, server.window.in_flight() - server.lent);
        }
    }

    /// Completes everything posted as flushed.
    pub(crate) fn flush(&mut self, core: &mut Core) {
        self.flush_sends(core);
        self.flush_receives(core);
    }

    /// Completes every send request as flushed.
    #[cold]
    pub(crate) fn flush_sends(&mut self, core: &mut Core) {
        let queue = &mut self.requester.queue;
        while !queue.is_empty() {
            let entry = queue.get(queue.head);
            let completion = send_completion(self.number, entry, WcStatus::WrFlushed);
            // Without order an entry may have completed before those in front of it.
            let is_completed = entry.state == WqeState::Completed;
            queue.head = queue.head.wrapping_add(1);
            if !is_completed {
                core.complete(self.send_cq, completion);
            }
        }
        queue.next = queue.tail;
        self.requester.sent_of_next = 0;
    }

    fn flush_receives(&mut self, core: &mut Core) {
        let queue = &mut self.responder.queue;
        while queue.len() > 0 {
            let wr_id = queue.get(queue.head).wr_id;
            let completion = Completion::failed_receive(self.number, wr_id, WcStatus::WrFlushed);
            queue.head = queue.head.wrapping_add(1);
            core.complete(self.recv_cq, completion);
        }
    }
}
