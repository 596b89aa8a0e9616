//! Unreliable services: nothing is acknowledged, nothing is sent again.
//!
//! Source: InfiniBand Architecture volume 1, section 9.8, and 10.3.1 for the send-queue-error state. A request
//! completes when its last packet has been handed out; what arrives is delivered or dropped without a word. No window,
//! no timer, no congestion control: those all live on acknowledgements. Packets count against the room of a peer that
//! has a limit, until the body says that they have arrived ([`crate::Engine::settle`]).
//! [`connection`] and [`datagram`] hold what the two services do with a packet that comes in.
//!
//! Queue pairs of these services have nobody for a peer, as far as the packet path of reliable connections can see. So
//! their packets fall through its first comparison, and it needs none of its own for them.

mod connection;
mod datagram;

use rnic_base::Time;
use rnic_wire::{Format, Packet, PacketFlags, Position, Qpn};

use crate::PeerId;
use crate::completion::{Completion, WcStatus};
use crate::core::Core;
use crate::dma::Dma;
use crate::engine::TransmitKind;
use crate::error::{DropReason, RxOutcome};
use crate::qp::completer::send_completion;
use crate::qp::requester::Piece;
use crate::qp::{Qp, QpState};
use crate::ready::Half;
use crate::stats::WaitReason;
use crate::transport::Service;
use crate::wq::SendWqe;
use crate::wr::SendFlags;

/// What a queue pair of an unreliable service has beside its queues: the peer of a connection, or the key that
/// datagrams must have. One word, so that reliable connections do not grow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unreliable(u32);

impl Unreliable {
    /// Who is at the other end of a connection.
    pub(crate) fn peer(self) -> PeerId {
        PeerId(self.0)
    }

    pub(crate) fn set_peer(&mut self, peer: PeerId) {
        self.0 = peer.0;
    }

    /// The key that datagrams must have.
    pub(crate) fn qkey(self) -> u32 {
        self.0
    }

    pub(crate) fn set_qkey(&mut self, qkey: u32) {
        self.0 = qkey;
    }
}

impl Qp {
    /// Makes the next packet, in `core.out`, if there is one. The ring has let go of this queue pair.
    #[inline(never)]
    pub(crate) fn transmit_unreliable(&mut self, core: &mut Core, now: Time) -> bool {
        self.do_local_work_unreliable(core);
        let requester = &self.requester;
        let starts = requester.sent_of_next == 0;
        let is_drained = starts && self.state == QpState::SendQueueDrained;
        if !self.state.sends() || !requester.queue.has_unsent() || is_drained {
            core.pass_on_all_room();
            return false;
        }
        let (peer, _) = self.destination(requester.queue.get(requester.queue.next));
        if core.peers.room(peer) == 0 {
            core.count_wait(WaitReason::PeerWindow);
            self.requester.queued = true;
            core.peers.wait(peer, Half::Requester, self.slot);
            return false;
        }
        if !self.build_unreliable(core, now) {
            self.fail_unreliable(core, WcStatus::LocalProtection);
            core.pass_on_all_room();
            return false;
        }
        core.peers.sent(peer, 1);
        let requester = &mut self.requester;
        requester.window.pass();
        requester.sent_of_next += 1;
        if requester.sent_of_next == requester.queue.get(requester.queue.next).packets {
            self.complete_sent(core);
        }
        self.end_packet_of_turn(core, now);
        true
    }

    /// Makes the next packet of the entry at `queue.next`; false when its local memory is not what its keys say.
    fn build_unreliable(&mut self, core: &mut Core, now: Time) -> bool {
        let requester = &self.requester;
        let (counter, index, seq) = (requester.queue.next, requester.sent_of_next, requester.window.next);
        let wqe = requester.queue.get(counter);
        let offset = index * self.mtu();
        let payload_len = (wqe.length - offset).min(self.mtu());
        if !self.gather_payload(core, counter, offset, payload_len) {
            return false;
        }
        let position = Position::of(index, wqe.packets);
        let (peer, dest_qpn) = self.destination(wqe);
        core.out.mark = wqe.swap;
        let solicited = position.ends() && wqe.flags.contains(SendFlags::SOLICITED) && wqe.op.consumes_receive();
        let packet = &mut core.out.packet;
        packet.dest_qpn = dest_qpn;
        packet.psn = seq.wire();
        packet.payload_len = payload_len;
        packet.flags = PacketFlags { solicited, ..PacketFlags::default() };
        self.write_headers(wqe, position, Piece { index, takes: 1, asks: false, again: false }, &mut packet.headers);
        core.out.kind = TransmitKind::Request;
        self.send_data(core, now, false);
        core.out.peer = peer;
        true
    }

    /// Where the packets of a request go.
    fn destination(&self, wqe: &SendWqe) -> (PeerId, Qpn) {
        match self.transport.service {
            Service::UnreliableDatagram => (PeerId(wqe.remote as u32), Qpn::new(wqe.sn)),
            _ => (self.unreliable.peer(), self.dest_qpn),
        }
    }

    /// The key that a datagram travels with: privileged ones are for those who may set them, and a queue pair's own key
    /// has been set by one (IBA 10.2.5).
    #[inline(never)]
    pub(in crate::qp) fn queue_key_for(&self, asked: u32) -> u32 {
        if asked >> 31 == 0 { asked } else { self.unreliable.qkey() }
    }

    /// The last packet of the entry at `queue.next` has been handed out.
    pub(in crate::qp) fn complete_sent(&mut self, core: &mut Core) {
        let Self { requester, send_cq, number, .. } = self;
        let queue = &mut requester.queue;
        let wqe = queue.get(queue.next);
        if wqe.flags.contains(SendFlags::SIGNALED) {
            core.complete(*send_cq, send_completion(*number, wqe, WcStatus::Success));
        }
        queue.next = queue.next.wrapping_add(1);
        queue.head = queue.next;
        requester.sent_of_next = 0;
        if self.state == QpState::SendQueueDrained {
            self.notice_drained(core);
        }
    }

    /// The oldest entry of the send queue fails: those behind it are flushed, receiving goes on.
    pub(in crate::qp) fn fail_unreliable(&mut self, core: &mut Core, status: WcStatus) {
        let queue = &mut self.requester.queue;
        let completion = send_completion(self.number, queue.get(queue.head), status);
        queue.head = queue.head.wrapping_add(1);
        core.complete(self.send_cq, completion);
        self.state = QpState::SendQueueError;
        self.flush_sends(core);
    }

    /// Takes a packet that is not from the peer of a reliable connection, or not in its format.
    #[inline(never)]
    pub(crate) fn receive_unreliable<D: Dma>(
        &mut self,
        core: &mut Core,
        format: Format,
        packet: &Packet,
        peer: PeerId,
        dma: &mut D,
    ) -> RxOutcome {
        let service = self.transport.service;
        let expects = match service {
            Service::ReliableConnection => false,
            Service::UnreliableConnection => self.unreliable.peer() == peer,
            Service::UnreliableDatagram => true,
        };
        if !expects || self.transport.format != format || !self.state.receives() {
            let reason = self.why_foreign(peer);
            return RxOutcome::Dropped(core.drop_packet(reason));
        }
        let taken = if service == Service::UnreliableDatagram {
            self.receive_datagram(core, packet, dma)
        } else {
            self.receive_unacknowledged(core, packet, dma)
        };
        match taken {
            Ok(()) => RxOutcome::Accepted,
            Err(DropReason::Duplicate) => {
                core.stats.packets_duplicate += 1;
                RxOutcome::Duplicate
            }
            Err(reason) => RxOutcome::Dropped(core.drop_packet(reason)),
        }
    }

    /// The oldest receive, from the shared queue where there is one.
    fn next_receive(&mut self, core: &mut Core) -> Result<u32, DropReason> {
        self.oldest_receive(core).map_err(|_| DropReason::ReceiverNotReady)
    }

    /// The keys of the oldest receive do not cover its memory: that is the program's own error, and the end of the
    /// queue pair (IBA 9.9.3.1.3, class A).
    fn fail_oldest_receive(&mut self, core: &mut Core) -> DropReason {
        let queue = &mut self.responder.queue;
        let wr_id = queue.get(queue.head).wr_id;
        let completion = Completion::failed_receive(self.number, wr_id, WcStatus::LocalProtection);
        queue.head = queue.head.wrapping_add(1);
        core.complete(self.recv_cq, completion);
        self.enter_error(core);
        DropReason::Refused
    }
}
