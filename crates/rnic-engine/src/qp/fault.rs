//! What becomes of a packet whose payload the body could not read.
//!
//! The packet is made and counted by then, and does not leave. The entry of the send queue that it belongs to fails
//! with a local protection error in its turn, as if its key did not cover the memory any more. A response is memory
//! that is gone, and its requester decides, as in [`super::fetch::gone`].

use rnic_base::Psn;
use rnic_wire::NakCode;

use crate::completion::WcStatus;
use crate::core::Core;
use crate::engine::TransmitKind;
use crate::qp::Qp;
use crate::transport::Service;
use crate::wr::SendFlags;

impl Qp {
    /// The payload of the packet in `core.out`, the last one that this queue pair has made, cannot be read. Whether a
    /// packet without payload takes its place, in `core.out`.
    pub(crate) fn fault_payload(&mut self, core: &mut Core) -> bool {
        let (kind, psn) = (core.out.kind, core.out.packet.psn);
        let is_request = matches!(kind, TransmitKind::Request | TransmitKind::RequestAgain);
        match self.transport.service {
            _ if kind == TransmitKind::Ack => {}
            Service::ReliableConnection if is_request => self.fault_request(core, psn),
            Service::ReliableConnection => {
                return self.state.receives() && self.refuse_made_response(core, psn, NakCode::RemoteAccessError);
            }
            Service::UnreliableConnection | Service::UnreliableDatagram => self.fault_unacknowledged(core),
        }
        false
    }

    fn fault_request(&mut self, core: &mut Core, psn: Psn) {
        let requester = &self.requester;
        let found = requester.queue.find(psn.extend(requester.window.una));
        if let Some(counter) = found.filter(|_| self.state.sends()) {
            self.fail_request(core, counter, WcStatus::LocalProtection);
        }
    }

    /// The entry that the packet belongs to may have completed with it: nobody has seen that completion.
    fn fault_unacknowledged(&mut self, core: &mut Core) {
        let Self { requester, send_cq, number, .. } = self;
        let queue = &mut requester.queue;
        if requester.sent_of_next == 0 {
            queue.next = queue.next.wrapping_sub(1);
            queue.head = queue.next;
            let wqe = queue.get(queue.head);
            if wqe.flags.contains(SendFlags::SIGNALED) {
                core.take_back(*send_cq, *number, wqe.wr_id);
            }
        }
        self.fail_unreliable(core, WcStatus::LocalProtection);
    }
}
