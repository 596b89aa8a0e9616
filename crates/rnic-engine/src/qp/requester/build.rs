//! One request packet.

use rnic_base::{Serial, Time};
use rnic_wire::{AtomicOp, Headers, Packet, PacketFlags, Position, Reth, SendPlacement, SendTail, WqeSn};

use crate::completion::WcStatus;
use crate::core::Core;
use crate::engine::{Transmit, TransmitKind};
use crate::mr::Access;
use crate::qp::Qp;
use crate::qp::gather::for_each_segment;
use crate::wq::{SendWqe, WqeOp};
use crate::wr::SendFlags;

impl Qp {
    /// Makes packet `index` of entry `counter`, which takes `takes` sequence numbers.
    ///
    /// `None` when the entry's local memory is not what its keys say: the entry then fails in its turn.
    #[expect(
        clippy::too_many_arguments,
        reason = "one call site each for first and repeated sending; a struct would only rename them"
    )]
    pub(super) fn build_request(
        &mut self,
        core: &mut Core,
        now: Time,
        counter: u32,
        index: u32,
        takes: u32,
        ask: bool,
        retransmission: bool,
    ) -> Option<Transmit> {
        let wqe = *self.requester.queue.get(counter);
        let offset = index * self.mtu;
        let payload_len = if wqe.op.is_fetch() { 0 } else { (wqe.length - offset).min(self.mtu) };
        if !self.gather_payload(core, counter, offset, payload_len) {
            self.fail_request(core, counter, WcStatus::LocalProtection);
            return None;
        }
        let position = Position::of(index, wqe.packets);
        let ends = position.ends() || wqe.op.is_fetch();
        let packet = Packet {
            dest_qpn: self.dest_qpn,
            psn: (wqe.first + u64::from(index)).wire(),
            flags: PacketFlags {
                solicited: ends && wqe.flags.contains(SendFlags::SOLICITED) && wqe.op.consumes_receive(),
                ack_request: self.asks_for_ack(ends || ask),
                fecn: false,
                becn: false,
            },
            payload_len,
            headers: self.request_headers(&wqe, position, index, takes),
        };
        self.count_sent(core, now, payload_len, retransmission);
        Some(Transmit {
            packet,
            format: self.transport.format,
            peer: self.peer,
            label: self.choose_path(now, retransmission),
            from: self.number,
            kind: if retransmission { TransmitKind::RequestAgain } else { TransmitKind::Request },
        })
    }

    /// Collects the local memory of the payload; false when a key does not cover it.
    #[inline]
    fn gather_payload(&self, core: &mut Core, counter: u32, offset: u32, len: u32) -> bool {
        let Core { mrs, segments, .. } = core;
        segments.clear();
        if len == 0 {
            return true;
        }
        let sges = self.requester.queue.sges(counter);
        for_each_segment(mrs, self.pd, sges, offset, len, Access::empty(), |_, segment| segments.push(segment)).is_ok()
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

    #[inline]
    fn request_headers(&self, wqe: &SendWqe, position: Position, index: u32, takes: u32) -> Headers {
        let extended = self.transport.places_early || self.transport.split;
        let sn = extended.then(|| WqeSn::new(wqe.sn));
        let offset = index * self.mtu;
        match wqe.op {
            WqeOp::Write | WqeOp::WriteImm => {
                let immediate = (wqe.op == WqeOp::WriteImm && position.ends()).then_some(wqe.word);
                let va = wqe.remote.wrapping_add(u64::from(offset));
                let reth = Reth { va, rkey: wqe.rkey, dma_len: wqe.length };
                Headers::Write {
                    position,
                    reth: (extended || position.starts()).then_some(reth),
                    immediate,
                    recv_sn: sn.filter(|_| immediate.is_some()),
                }
            }
            WqeOp::Send | WqeOp::SendImm | WqeOp::SendInvalidate => {
                let tail = match wqe.op {
                    WqeOp::SendImm if position.ends() => SendTail::Immediate(wqe.word),
                    WqeOp::SendInvalidate if position.ends() => SendTail::Invalidate(wqe.word),
                    _ => SendTail::Plain,
                };
                let placement = sn.map(|recv_sn| SendPlacement { recv_sn, offset: Serial::new(index) });
                Headers::Send { position, tail, placement }
            }
            WqeOp::Read => {
                // A repeated or partial read of a shared space asks for what its sequence numbers stand for.
                let rest = wqe.length - offset;
                let dma_len = if self.transport.split { wqe.length } else { rest.min(takes.saturating_mul(self.mtu)) };
                let reth = Reth { va: wqe.remote.wrapping_add(u64::from(offset)), rkey: wqe.rkey, dma_len };
                Headers::ReadRequest { reth, read_sn: sn }
            }
            WqeOp::CompareSwap => {
                let op = AtomicOp::CompareSwap { compare: wqe.operand, swap: wqe.swap };
                Headers::AtomicRequest { va: wqe.remote, rkey: wqe.rkey, op, read_sn: sn }
            }
            WqeOp::FetchAdd => {
                let op = AtomicOp::FetchAdd { add: wqe.operand };
                Headers::AtomicRequest { va: wqe.remote, rkey: wqe.rkey, op, read_sn: sn }
            }
        }
    }

    /// Counts a request or response that leaves, and lets the regulator know.
    #[inline]
    pub(crate) fn count_sent(&mut self, core: &mut Core, now: Time, payload_len: u32, retransmission: bool) {
        if retransmission {
            self.stats.packets_retransmitted += 1;
            core.stats.packets_retransmitted += 1;
        } else {
            self.stats.packets_sent += 1;
            core.stats.packets_sent += 1;
        }
        if self.regulator.is_some() {
            self.regulate_sent(core, now, payload_len);
        }
    }
}
