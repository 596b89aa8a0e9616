//! Requests that send no packets: binding and invalidating memory windows.
//!
//! They use no sequence number. Each is executed at its position in the send order, so that it is in effect for the
//! requests posted after it (IBA 10.8.3.3), and completes in order, after all earlier requests.

use super::SendHalf;
use crate::completion::WcStatus;
use crate::core::Core;
use crate::mr::Access;
use crate::mr::windows::Binding;
use crate::verbs::head::Head;
use crate::wq::{SendWqe, WqeOp};

/// Flag stored with the rights of a binding: the window is zero based.
const ZERO_BASED: u64 = 1 << 8;

/// Stores a binding in a send queue entry.
pub(super) fn bind_entry(wqe: &mut SendWqe, binding: &Binding) {
    (wqe.op, wqe.rkey, wqe.word) = (WqeOp::BindWindow, binding.key, binding.region);
    (wqe.remote, wqe.operand) = (binding.addr, binding.len);
    wqe.swap = u64::from(binding.access.bits()) | if binding.zero_based { ZERO_BASED } else { 0 };
    (wqe.length, wqe.packets) = (0, 0);
}

/// Returns the binding stored in a send queue entry.
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

impl SendHalf {
    /// Returns whether the next request to start is one that sends no packets.
    #[inline]
    pub(crate) fn local_is_next(&self) -> bool {
        self.queue.packets_sent_of_next == 0 && self.queue.has_unsent() && self.queue.get(self.queue.next).op.is_local()
    }

    /// Executes the local operation in entry `counter` of the send queue, such as Bind MW or Local Invalidate.
    pub(crate) fn do_local(&self, head: &Head, core: &mut Core, counter: u32) -> Result<(), WcStatus> {
        let wqe = self.queue.get(counter);
        match wqe.op {
            WqeOp::BindWindow => {
                core.objects.mrs.bind(head.pd, head.number, &binding_of(wqe)).map_err(|_| WcStatus::WindowBind)
            }
            _ => {
                core.objects.mrs.invalidate_own(head.pd, head.number, wqe.rkey).map_err(|_| WcStatus::LocalQpOperation)
            }
        }
    }
}
