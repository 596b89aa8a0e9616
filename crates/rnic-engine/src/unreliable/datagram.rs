//! Unreliable datagrams, at the receiver.
//!
//! Source: InfiniBand Architecture volume 1, section 9.8.3 (validation of datagrams), annex A17.4.5 (content of the
//! first 40 bytes over UDP). A datagram is dropped when no receive is posted or the receive is too short; a receive
//! that is too short remains posted for the next datagram.

use rnic_wire::{Headers, Packet};

use super::{UnreliableEnd, fail_oldest_receive, next_receive};
use crate::GRH_LEN;
use crate::completion::{Completion, WcFlags, WcOpcode, WcStatus};
use crate::core::Core;
use crate::dma::Dma;
use crate::error::DropReason;
use crate::mr::Access;
use crate::verbs::Verbs;
use crate::verbs::gather::for_each_segment;

impl UnreliableEnd {
    /// Handles a received datagram.
    pub(super) fn receive_datagram<D: Dma>(
        &mut self,
        verbs: &mut Verbs,
        core: &mut Core,
        packet: &Packet,
        dma: &mut D,
    ) -> Result<(), DropReason> {
        let Headers::Datagram { queue_key, source_qpn, immediate } = packet.headers else {
            return Err(DropReason::WrongFormat);
        };
        if queue_key != self.qkey {
            return Err(DropReason::QueueKey);
        }
        let counter = next_receive(verbs, core)?;
        let queue = &mut verbs.recv.queue;
        let wqe = *queue.get(counter);
        let bytes = packet.payload_len.saturating_add(GRH_LEN);
        if u64::from(bytes) > wqe.capacity {
            return Err(DropReason::Refused);
        }
        let (sges, access) = (queue.sges(counter), Access::LOCAL_WRITE);
        let placed = for_each_segment(&core.objects.mrs, verbs.head.pd, sges, 0, bytes, access, |at, segment| {
            dma.place(at, segment)
        });
        if placed.is_err() {
            return Err(fail_oldest_receive(verbs, core));
        }
        queue.head = counter.wrapping_add(1);
        let mut flags = WcFlags::GRH;
        flags.set(WcFlags::IPV4, dma.has_ipv4_header());
        flags.set(WcFlags::WITH_IMM, immediate.is_some());
        flags.set(WcFlags::SOLICITED, packet.flags.solicited);
        let completion = Completion {
            wr_id: wqe.wr_id,
            qpn: verbs.head.number,
            status: WcStatus::Success,
            opcode: WcOpcode::Recv,
            byte_len: bytes,
            word: immediate.unwrap_or(0),
            flags,
            source: source_qpn,
        };
        core.complete(verbs.head.recv_cq, completion);
        Ok(())
    }
}
