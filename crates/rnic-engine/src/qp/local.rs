//! Requests of which nothing travels: binding memory windows and taking them back.
//!
//! They take no sequence number. Each is done when its turn to leave has come, so that what is posted behind it finds
//! it done (IBA 10.8.3.3), and completes in order, when everything before it has.

use rnic_wire::Qpn;

use crate::PdId;
use crate::completion::WcStatus;
use crate::core::Core;
use crate::mr::Access;
use crate::mw::Binding;
use crate::qp::{Qp, QpState};
use crate::wq::{SendWqe, WqeOp};

/// Beside the rights of a binding: it is zero based.
const ZERO_BASED: u64 = 1 << 8;

/// Puts a binding into a send queue entry.
pub(super) fn bind_entry(wqe: &mut SendWqe, binding: &Binding) {
    (wqe.op, wqe.rkey, wqe.word) = (WqeOp::BindWindow, binding.key, binding.region);
    (wqe.remote, wqe.operand) = (binding.addr, binding.len);
    wqe.swap = u64::from(binding.access.bits()) | if binding.zero_based { ZERO_BASED } else { 0 };
    (wqe.length, wqe.packets) = (0, 0);
}

/// The binding in a send queue entry.
fn binding_of(wqe: &SendWqe) -> Binding {
    Binding {
        key: wqe.rkey,
        region: wqe.word,
        addr: wqe.remote,
        len: wqe.operand,
        access: Access::from_bits_truncate(wqe.swap as u8),
        zero_based: wqe.swap & ZERO_BASED != 0,
    }
}

impl Qp {
    /// On whose behalf the peer's keys are looked up.
    #[inline]
    pub(crate) fn granted(&self) -> (PdId, Qpn) {
        (self.pd, self.number)
    }

    /// Returns whether the next request to begin is one of which nothing travels.
    #[inline]
    pub(super) fn local_is_next(&self) -> bool {
        let requester = &self.requester;
        requester.sent_of_next == 0
            && requester.queue.has_unsent()
            && requester.queue.get(requester.queue.next).op.is_local()
    }

    /// Does entry `counter`.
    pub(crate) fn do_local(&self, core: &mut Core, counter: u32) -> Result<(), WcStatus> {
        let wqe = self.requester.queue.get(counter);
        match wqe.op {
            WqeOp::BindWindow => {
                core.mrs.bind(self.pd, self.number, &binding_of(wqe)).map_err(|_| WcStatus::WindowBind)
            }
            _ => core.mrs.invalidate_own(self.pd, self.number, wqe.rkey).map_err(|_| WcStatus::LocalQpOperation),
        }
    }

    /// Does what is next until something is that travels; false when nothing more may begin.
    #[cold]
    pub(super) fn do_local_work(&mut self, core: &mut Core) -> bool {
        while self.local_is_next() {
            if self.requester.doom.is_some() {
                return false;
            }
            if let Err(reason) = self.may_begin() {
                if let Some(reason) = reason {
                    core.count_wait(reason);
                }
                return false;
            }
            let counter = self.requester.queue.next;
            if let Err(status) = self.do_local(core, counter) {
                self.fail_request(core, counter, status);
                return false;
            }
            self.requester.begin(counter, self.requester.window.next, 0);
            self.requester.advance(0);
            self.complete_finished(core);
        }
        self.transmits()
    }

    /// The same for a queue pair of an unreliable connection.
    #[inline]
    pub(super) fn do_local_work_unreliable(&mut self, core: &mut Core) {
        while self.local_is_next() && self.state.sends() && self.state != QpState::SendQueueDrained {
            match self.do_local(core, self.requester.queue.next) {
                Ok(()) => self.complete_sent(core),
                Err(status) => self.fail_unreliable(core, status),
            }
        }
    }
}
