//! Builds one request packet.

use rnic_base::Serial;
use rnic_wire::header::fasr::is_short;
use rnic_wire::{AtomicOp, Headers, PackedPsn, PacketFlags, Position, Qpn, Reth, SendPlacement, SendTail, WqeSn};

use super::{Piece, Requester};
use crate::completion::WcStatus;
use crate::core::Core;
use crate::packet::TransmitKind;
use crate::verbs::Verbs;
use crate::verbs::head::Head;
use crate::verbs::placement::placement_of;
use crate::wq::{SendWqe, WqeOp};
use crate::wr::SendFlags;

impl Requester {
    /// Builds packet `piece` of entry `counter`, in `core.out` and `core.segments`.
    ///
    /// Returns false when the keys of the entry's local memory do not permit access to it: the entry then fails in
    /// order.
    #[inline]
    pub(super) fn build(&mut self, verbs: &mut Verbs, core: &mut Core, counter: u32, piece: Piece) -> bool {
        let wqe = verbs.send.queue.get(counter);
        let offset = piece.index * verbs.head.mtu();
        let payload_len = if wqe.op.is_fetch() { 0 } else { (wqe.length - offset).min(verbs.head.mtu()) };
        if !verbs.send.gather(&verbs.head, core, counter, offset, payload_len) {
            verbs.fail_entry(core, self.window.una, counter, WcStatus::LocalProtection);
            return false;
        }
        let position = Position::of(piece.index, wqe.packets);
        let ends_message = position.ends() || wqe.op.is_fetch();
        let ack_request = self.requests_ack(&verbs.head, core, ends_message || piece.request_ack);
        let out = &mut core.out;
        out.packet.dest_qpn = verbs.head.dest_qpn;
        out.packet.psn = (wqe.first + u64::from(piece.index)).wire();
        out.packet.payload_len = payload_len;
        write_headers(&verbs.head, wqe, position, piece, &mut out.packet.headers);
        if wqe.op.consumes_receive() && wqe.operand != 0 {
            write_srqn(wqe.operand as u32, &mut out.packet.headers);
        }
        let solicited = ends_message && wqe.flags.contains(SendFlags::SOLICITED) && wqe.op.consumes_receive();
        out.packet.flags = PacketFlags { solicited, ack_request, fecn: false, becn: false };
        out.kind = if piece.is_retransmission { TransmitKind::RequestRetransmission } else { TransmitKind::Request };
        self.shared.send_data(verbs, core, self.window.in_flight(), piece.is_retransmission);
        true
    }

    /// Returns whether this packet requests an acknowledgement.
    #[inline]
    fn requests_ack(&mut self, head: &Head, core: &Core, force: bool) -> bool {
        if head.transport.acks_every_packet {
            return true;
        }
        self.since_ack_request += 1;
        let request_ack = force
            || self.since_ack_request >= head.transport.ack_every_packets
            || self.shared.is_draining()
            || self.shared.pauses_after_next(head, core);
        if request_ack {
            self.since_ack_request = 0;
        }
        request_ack
    }
}

/// Writes the headers of packet `piece` of `wqe`, which is at `position` in its message.
#[inline(always)]
pub(crate) fn write_headers(head: &Head, wqe: &SendWqe, position: Position, piece: Piece, headers: &mut Headers) {
    let extended = head.transport.extended;
    let sn = extended.then(|| WqeSn::new(wqe.sn));
    let offset = piece.index * head.mtu();
    let va = wqe.remote.wrapping_add(u64::from(offset));
    *headers = match wqe.op {
        WqeOp::Write | WqeOp::WriteImm => {
            let immediate = (wqe.op == WqeOp::WriteImm && position.ends()).then_some(wqe.word);
            let omits_length = head.transport.short_addresses && is_short(position, immediate.is_some());
            let dma_len = if omits_length { 0 } else { wqe.length };
            let reth = Reth { va, rkey: wqe.rkey, dma_len };
            Headers::Write {
                position,
                reth: (extended || position.starts()).then_some(reth),
                immediate,
                recv_sn: if immediate.is_some() { sn } else { None },
            }
        }
        WqeOp::Send | WqeOp::SendImm | WqeOp::SendInvalidate => {
            let tail = match wqe.op {
                WqeOp::SendImm if position.ends() => SendTail::Immediate(wqe.word),
                WqeOp::SendInvalidate if position.ends() => SendTail::Invalidate(wqe.word),
                _ => SendTail::Plain,
            };
            let placement = sn.map(|recv_sn| SendPlacement { recv_sn, offset: Serial::new(piece.index) });
            Headers::Send { position, tail, placement }
        }
        WqeOp::Read => {
            // In a shared space, a repeated or partial read requests only the data that its sequence numbers cover.
            let remaining_len = (wqe.length - offset).min(piece.numbers.saturating_mul(head.mtu()));
            let dma_len = if head.transport.split { wqe.length } else { remaining_len };
            Headers::ReadRequest { reth: Reth { va, rkey: wqe.rkey, dma_len }, read_sn: sn, fasr: None }
        }
        WqeOp::CompareSwap => {
            let op = AtomicOp::CompareSwap { compare: wqe.operand, swap: wqe.swap };
            Headers::AtomicRequest { va, rkey: wqe.rkey, op, read_sn: sn, expected_psn: PackedPsn::default() }
        }
        WqeOp::FetchAdd => {
            let op = AtomicOp::FetchAdd { add: wqe.operand };
            Headers::AtomicRequest { va, rkey: wqe.rkey, op, read_sn: sn, expected_psn: PackedPsn::default() }
        }
        WqeOp::AtomicWrite | WqeOp::Flush => Headers::PlacementRequest {
            va,
            rkey: wqe.rkey,
            op: placement_of(wqe),
            read_sn: sn,
            expected_psn: PackedPsn::default(),
        },
        WqeOp::BindWindow | WqeOp::LocalInvalidate | WqeOp::WriteOnFlow | WqeOp::ReadOnFlow => {
            unreachable!("local operations and those of other flows have no packets")
        }
        WqeOp::Datagram | WqeOp::DatagramImm => Headers::Datagram {
            queue_key: wqe.rkey,
            source_qpn: head.number,
            immediate: (wqe.op == WqeOp::DatagramImm).then_some(wqe.word),
        },
    };
}

/// Writes the number of the shared receive queue at an XRC target into the headers of a packet that consumes a receive.
#[cold]
fn write_srqn(srqn: u32, headers: &mut Headers) {
    if let Some(shared) = headers.shared(Qpn::new(srqn)) {
        *headers = shared;
    }
}
