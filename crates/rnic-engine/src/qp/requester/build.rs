//! One request packet.

use rnic_base::{Psn, Serial, Time};
use rnic_wire::header::fasr::is_short;
use rnic_wire::{
    Asked, AtomicOp, Headers, PackedPsn, PacketFlags, Position, Qpn, Reth, SendPlacement, SendTail, WqeSn,
};

use crate::completion::WcStatus;
use crate::core::Core;
use crate::engine::TransmitKind;
use crate::mr::Access;
use crate::qp::Qp;
use crate::qp::fetch::scheduled::stamp;
use crate::qp::gather::for_each_segment;
use crate::qp::placement::placement_of;
use crate::qp::requester::Piece;
use crate::wq::{SendWqe, WqeOp};
use crate::wr::SendFlags;

impl Qp {
    /// Makes packet `piece` of entry `counter`, in `core.out` and `core.segments`.
    ///
    /// False when the entry's local memory is not what its keys say: the entry then fails in its turn.
    #[inline]
    pub(super) fn build_request(&mut self, core: &mut Core, now: Time, counter: u32, piece: Piece) -> bool {
        let wqe = self.requester.queue.get(counter);
        let offset = piece.index * self.mtu();
        let payload_len = if wqe.op.is_fetch() { 0 } else { (wqe.length - offset).min(self.mtu()) };
        if !self.gather_payload(core, counter, offset, payload_len) {
            self.fail_request(core, counter, WcStatus::LocalProtection);
            return false;
        }
        let position = Position::of(piece.index, wqe.packets);
        let ends = position.ends() || wqe.op.is_fetch();
        let out = &mut core.out;
        out.packet.dest_qpn = self.dest_qpn;
        out.packet.psn = (wqe.first + u64::from(piece.index)).wire();
        out.packet.payload_len = payload_len;
        self.write_headers(wqe, position, piece, &mut out.packet.headers);
        if wqe.op.consumes_receive() && wqe.operand != 0 {
            name_queue(wqe.operand as u32, &mut out.packet.headers);
        }
        if wqe.op.is_fetch() && self.transport.scheduled {
            self.sign_request(now, &mut out.packet.headers);
        }
        let solicited = ends && wqe.flags.contains(SendFlags::SOLICITED) && wqe.op.consumes_receive();
        let ack_request = self.asks_for_ack(ends || piece.asks);
        out.packet.flags = PacketFlags { solicited, ack_request, fecn: false, becn: false };
        out.kind = if piece.again { TransmitKind::RequestAgain } else { TransmitKind::Request };
        self.send_data(core, now, piece.again);
        true
    }

    /// Says in a read or atomic request what its answer, a packet of the responder's own, will need (FaSR).
    #[cold]
    fn sign_request(&self, now: Time, headers: &mut Headers) {
        let next: Psn = self.responder.window.expected.wire();
        match headers {
            Headers::ReadRequest { asked, .. } => *asked = Some(Asked { expects: next, stamp: stamp(now) }),
            Headers::AtomicRequest { expects, .. } | Headers::PlacementRequest { expects, .. } => {
                *expects = next.into();
            }
            _ => {}
        }
    }

    /// Collects the local memory of the payload; false when a key does not cover it.
    #[inline(always)]
    pub(crate) fn gather_payload(&self, core: &mut Core, counter: u32, offset: u32, len: u32) -> bool {
        let Core { mrs, segments, .. } = core;
        segments.clear();
        if len == 0 {
            return true;
        }
        let sges = self.requester.queue.sges(counter);
        for_each_segment(mrs, self.pd, sges, offset, len, Access::empty(), |_, segment| {
            segments.push(segment);
            Ok(())
        })
        .is_ok()
    }

    /// Whether this packet asks for an acknowledgement.
    #[inline]
    fn asks_for_ack(&mut self, must: bool) -> bool {
        if self.transport.acks_every_packet {
            return true;
        }
        self.requester.unasked += 1;
        let asks = must || self.requester.unasked >= self.transport.ack_every_packets;
        if asks {
            self.requester.unasked = 0;
        }
        asks
    }

    #[inline(always)]
    pub(crate) fn write_headers(&self, wqe: &SendWqe, position: Position, piece: Piece, headers: &mut Headers) {
        let extended = self.transport.extended;
        let sn = extended.then(|| WqeSn::new(wqe.sn));
        let offset = piece.index * self.mtu();
        let va = wqe.remote.wrapping_add(u64::from(offset));
        *headers = match wqe.op {
            WqeOp::Write | WqeOp::WriteImm => {
                let immediate = (wqe.op == WqeOp::WriteImm && position.ends()).then_some(wqe.word);
                let short = self.transport.short_addresses && is_short(position, immediate.is_some());
                let dma_len = if short { 0 } else { wqe.length };
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
                // A repeated or partial read of a shared space asks for what its sequence numbers stand for.
                let rest = (wqe.length - offset).min(piece.takes.saturating_mul(self.mtu()));
                let dma_len = if self.transport.split { wqe.length } else { rest };
                Headers::ReadRequest { reth: Reth { va, rkey: wqe.rkey, dma_len }, read_sn: sn, asked: None }
            }
            WqeOp::CompareSwap => {
                let op = AtomicOp::CompareSwap { compare: wqe.operand, swap: wqe.swap };
                Headers::AtomicRequest { va, rkey: wqe.rkey, op, read_sn: sn, expects: PackedPsn::default() }
            }
            WqeOp::FetchAdd => {
                let op = AtomicOp::FetchAdd { add: wqe.operand };
                Headers::AtomicRequest { va, rkey: wqe.rkey, op, read_sn: sn, expects: PackedPsn::default() }
            }
            WqeOp::AtomicWrite | WqeOp::Flush => Headers::PlacementRequest {
                va,
                rkey: wqe.rkey,
                op: placement_of(wqe),
                read_sn: sn,
                expects: PackedPsn::default(),
            },
            WqeOp::BindWindow | WqeOp::LocalInvalidate => unreachable!("nothing of it travels"),
            WqeOp::Datagram | WqeOp::DatagramImm => Headers::Datagram {
                queue_key: self.queue_key_for(wqe.rkey),
                source_qpn: self.number,
                immediate: (wqe.op == WqeOp::DatagramImm).then_some(wqe.word),
            },
        };
    }

    /// Addresses the request or response in `core.out`, whose kind is set, counts it, and lets the regulator know.
    #[inline]
    pub(crate) fn send_data(&mut self, core: &mut Core, now: Time, again: bool) {
        let label = self.choose_path(now, again);
        let out = &mut core.out;
        out.format = self.transport.format;
        out.peer = self.peer;
        out.label = label;
        out.from = self.number;
        if again {
            self.stats.packets_retransmitted += 1;
            core.stats.packets_retransmitted += 1;
        } else {
            self.stats.packets_sent += 1;
            core.stats.packets_sent += 1;
        }
        if self.regulator.is_some() {
            self.regulate_sent(core, now, core.out.packet.payload_len);
        }
    }
}

/// Names the shared receive queue at a target in what takes a receive of it.
#[cold]
fn name_queue(srqn: u32, headers: &mut Headers) {
    if let Some(shared) = headers.shared(Qpn::new(srqn)) {
        *headers = shared;
    }
}
