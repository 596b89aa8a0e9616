//! Unreliable services: no packet is acknowledged or retransmitted.
//!
//! Source: InfiniBand Architecture volume 1, section 9.8, and 10.3.1 for the send-queue-error state. A request
//! completes when its last packet has been passed to the driver; packets that arrive are delivered or dropped without
//! a response. There are no windows, timers or congestion control, because all of these depend on acknowledgements.
//! Packets count against the credit of a peer that has a limit, until the driver reports that they have arrived
//! ([`crate::Engine::settle`]). [`connection`] and [`datagram`] handle received packets of the two services.

mod connection;
mod datagram;

use rnic_base::Seq;
use rnic_wire::{Format, Headers, Packet, PacketFlags, Position, Qpn};

use crate::PeerId;
use crate::completion::WcStatus;
use crate::core::Core;
use crate::dma::Dma;
use crate::error::{DropReason, RxOutcome};
use crate::limiter::Limiter;
use crate::packet::TransmitKind;
use crate::processors::Processed;
use crate::ready::Half;
use crate::roce::requester::{Piece, write_headers};
use crate::roce::shared::ConnShared;
use crate::state::QpState;
use crate::state::Service;
use crate::stats::WaitReason;
use crate::timer::Deadline;
use crate::verbs::Verbs;
use crate::verbs::head::Head;
use crate::wq::SendWqe;
use crate::wr::SendFlags;

/// Protocol state of a queue pair of an unreliable service.
#[derive(Debug)]
pub(crate) struct UnreliableEnd {
    /// State of path selection, and of the scheduling turn. Congestion control is not used.
    shared: ConnShared,
    /// Sequence number of the next packet to send.
    next: Seq,
    /// Sequence number of the packet that is expected.
    expected: Seq,
    /// Queue key that datagrams must carry.
    qkey: u32,
}

impl UnreliableEnd {
    pub(crate) fn new() -> Self {
        Self { shared: ConnShared::new(), next: Seq::UNSET, expected: Seq::UNSET, qkey: 0 }
    }

    /// Returns the queue key that datagrams must carry.
    pub(crate) fn qkey(&self) -> u32 {
        self.qkey
    }

    /// Sets the queue key that datagrams must carry to `qkey`.
    pub(crate) fn set_qkey(&mut self, qkey: u32) {
        self.qkey = qkey;
    }

    /// Returns the sequence numbers of the next packet to send and of the packet expected from the peer.
    pub(crate) fn numbers(&self) -> [Seq; 2] {
        [self.next, self.expected]
    }

    /// Starts receiving packets, numbered from `start` on.
    pub(crate) fn begin_receiving(&mut self, start: Seq) {
        self.expected = start;
    }

    /// Starts sending, with packets numbered from `start` on.
    pub(crate) fn begin_sending(&mut self, verbs: &mut Verbs, core: &mut Core, start: Seq) {
        if verbs.send.start == Seq::UNSET {
            verbs.send.start = start;
            self.next = start;
        }
        self.shared.start_paths(&mut verbs.head, core.now);
        self.shared.start(&verbs.head, core, 0);
    }

    /// Puts the queue pair into the ring of ready senders when new work is queued.
    #[inline]
    pub(crate) fn on_work(&mut self, verbs: &Verbs, core: &mut Core) {
        if verbs.send.queue.has_unsent() && !self.shared.requests_queued {
            self.shared.enlist_requester(&verbs.head, core);
        }
    }

    /// Handles `deadline`, which has expired in the timer heap: the rate permits the next packet, or the scheduler has
    /// requested a tick.
    pub(crate) fn on_alarm(&mut self, verbs: &Verbs, core: &mut Core, deadline: Deadline) {
        if self.shared.remove_expired(deadline) {
            self.shared.tick(&verbs.head, core, 0);
            self.on_work(verbs, core);
        }
    }

    /// Replaces the limits of the dequeue rate.
    pub(crate) fn set_limiter(&mut self, verbs: &Verbs, core: &mut Core, limiter: Limiter) {
        self.shared.set_limiter(&verbs.head, core, limiter);
        self.on_work(verbs, core);
    }

    /// Returns the limits of the dequeue rate, if it has ever been limited.
    pub(crate) fn limiter(&self) -> Option<&Limiter> {
        self.shared.limiter()
    }

    /// Releases the NIC resources that the queue pair holds, because it has failed, is reset or destroyed.
    pub(crate) fn stop(&mut self, core: &mut Core) {
        self.shared.leave_ledger(core);
    }

    /// Applies a change of the weight of the queue pair.
    pub(crate) fn set_weight(&mut self, verbs: &Verbs, core: &mut Core) {
        self.shared.set_weight(&verbs.head, core);
    }

    /// See [`crate::qp::Qp::on_processed`].
    pub(crate) fn on_processed(&mut self, verbs: &Verbs, core: &mut Core, processed: &Processed) -> u32 {
        self.shared.on_processed(&verbs.head, core, processed)
    }

    /// Continues the scheduling turn, or moves the queue pair to the end of the ring.
    fn end_of_turn(&mut self, verbs: &Verbs, core: &mut Core) {
        let has_work = verbs.send.queue.has_unsent();
        if self.shared.has_flow() {
            let ends_message = verbs.send.queue.packets_sent_of_next == 0;
            self.shared.on_request_served(&verbs.head, core, ends_message, has_work);
        }
        if self.shared.continues_turn(has_work) {
            self.shared.requests_queued = true;
            core.ready.push_front(Half::Requester, verbs.head.slot);
        } else {
            self.on_work(verbs, core);
        }
    }

    /// Handles a payload in `core.out` that cannot be read: the packet is not sent, and its entry fails. The entry may
    /// have completed with this packet; the program has not polled that completion yet, so it is removed.
    pub(crate) fn fault_payload(&mut self, verbs: &mut Verbs, core: &mut Core) {
        let Verbs { head, send, .. } = &mut *verbs;
        let queue = &mut send.queue;
        if queue.packets_sent_of_next == 0 {
            queue.next = queue.next.wrapping_sub(1);
            queue.head = queue.next;
            let wqe = queue.get(queue.head);
            if wqe.flags.contains(SendFlags::SIGNALED) {
                core.remove_newest(head.send_cq, head.number, wqe.wr_id);
            }
        }
        fail(verbs, core, WcStatus::LocalProtection);
    }

    /// Builds the next packet, in `core.out`, if there is one. The queue pair has already been removed from the ring.
    #[inline(never)]
    pub(crate) fn transmit(&mut self, verbs: &mut Verbs, core: &mut Core) -> bool {
        self.shared.requests_queued = false;
        do_local_work(verbs, core);
        let Verbs { head, send, .. } = &*verbs;
        let stops_before_message = send.queue.packets_sent_of_next == 0 && head.state == QpState::SendQueueDrained;
        if !head.state.sends() || !send.queue.has_unsent() || stops_before_message {
            if !head.state.sends() {
                self.shared.leave_ledger(core);
            }
            core.wake_for_all_credit();
            return false;
        }
        let (peer, _) = destination(head, send.queue.get(send.queue.next));
        if core.peers.available(peer) == 0 {
            core.count_wait(WaitReason::PeerWindow);
            self.shared.requests_queued = true;
            core.peers.wait(peer, Half::Requester, head.slot);
            return false;
        }
        if self.shared.waits_for_dequeue_rate(head, core, Half::Requester) {
            core.wake_for_all_credit();
            return false;
        }
        if !self.build(verbs, core) {
            fail(verbs, core, WcStatus::LocalProtection);
            core.wake_for_all_credit();
            return false;
        }
        core.peers.sent(peer, 1);
        self.next += 1;
        let Verbs { head, send, .. } = &mut *verbs;
        send.queue.packets_sent_of_next += 1;
        if send.queue.packets_sent_of_next == send.queue.get(send.queue.next).packets {
            send.complete_sent(head, core);
        }
        self.end_of_turn(verbs, core);
        true
    }

    /// Builds the next packet of the entry at `queue.next`; returns false when the keys of its local memory do not
    /// permit access to it.
    fn build(&mut self, verbs: &mut Verbs, core: &mut Core) -> bool {
        let Verbs { head, send, .. } = &*verbs;
        let (counter, index) = (send.queue.next, send.queue.packets_sent_of_next);
        let wqe = send.queue.get(counter);
        let offset = index * head.mtu();
        let payload_len = (wqe.length - offset).min(head.mtu());
        if !send.gather(head, core, counter, offset, payload_len) {
            return false;
        }
        let position = Position::of(index, wqe.packets);
        let (peer, dest_qpn) = destination(head, wqe);
        core.out.mark = wqe.swap;
        let solicited = position.ends() && wqe.flags.contains(SendFlags::SOLICITED) && wqe.op.consumes_receive();
        let packet = &mut core.out.packet;
        packet.dest_qpn = dest_qpn;
        packet.psn = self.next.wire();
        packet.payload_len = payload_len;
        packet.flags = PacketFlags { solicited, ..PacketFlags::default() };
        let piece = Piece { index, numbers: 1, request_ack: false, is_retransmission: false };
        write_headers(head, wqe, position, piece, &mut packet.headers);
        if let Headers::Datagram { queue_key, .. } = &mut packet.headers
            && *queue_key >> 31 != 0
        {
            // A privileged queue key in a request is replaced by the queue pair's own key, which was set by a program
            // permitted to do so (IBA 10.2.5).
            *queue_key = self.qkey;
        }
        core.out.kind = TransmitKind::Request;
        self.shared.send_data(verbs, core, 0, false);
        core.out.peer = peer;
        true
    }

    /// Returns whether a packet of `format` from `peer` is for this queue pair, and the queue pair is in a receiving
    /// state.
    pub(crate) fn accepts(&self, head: &Head, peer: PeerId, format: Format) -> bool {
        let is_from_peer = head.transport.service == Service::UnreliableDatagram || head.peer() == peer;
        is_from_peer && head.transport.format == format && head.state.receives()
    }

    /// Receives a packet that is for this queue pair.
    pub(crate) fn receive<D: Dma>(
        &mut self,
        verbs: &mut Verbs,
        core: &mut Core,
        packet: &Packet,
        dma: &mut D,
    ) -> RxOutcome {
        let result = if verbs.head.transport.service == Service::UnreliableDatagram {
            self.receive_datagram(verbs, core, packet, dma)
        } else {
            self.receive_unacknowledged(verbs, core, packet, dma)
        };
        match result {
            Ok(()) => RxOutcome::Accepted,
            Err(DropReason::Duplicate) => {
                core.stats.packets_duplicate += 1;
                RxOutcome::Duplicate
            }
            Err(reason) => RxOutcome::Dropped(core.drop_packet(reason)),
        }
    }
}

/// Executes the next entries that send no packets.
#[inline]
fn do_local_work(verbs: &mut Verbs, core: &mut Core) {
    while verbs.send.local_is_next() && verbs.head.state.sends() && verbs.head.state != QpState::SendQueueDrained {
        let Verbs { head, send, .. } = &mut *verbs;
        match send.do_local(head, core, send.queue.next) {
            Ok(()) => send.complete_sent(head, core),
            Err(status) => fail(verbs, core, status),
        }
    }
}

/// Returns the destination of a request's packets.
fn destination(head: &Head, wqe: &SendWqe) -> (PeerId, Qpn) {
    match head.transport.service {
        Service::UnreliableDatagram => (PeerId(wqe.remote as u32), Qpn::new(wqe.sn)),
        _ => (head.peer(), head.dest_qpn),
    }
}

/// Fails the oldest entry of the send queue: later ones are flushed, and receiving continues.
fn fail(verbs: &mut Verbs, core: &mut Core, status: WcStatus) {
    let Verbs { head, send, .. } = verbs;
    send.fail_oldest(head, core, status);
    head.state = QpState::SendQueueError;
    send.flush(head, core);
}

/// Returns the oldest receive, from the shared queue where there is one.
fn next_receive(verbs: &mut Verbs, core: &mut Core) -> Result<u32, DropReason> {
    verbs.recv.oldest_receive(&verbs.head, core).map_err(|_| DropReason::ReceiverNotReady)
}

/// Fails the oldest receive, whose keys do not cover its memory: that is an error of the local program, and the queue
/// pair fails (IBA 9.9.3.1.3, class A).
fn fail_oldest_receive(verbs: &mut Verbs, core: &mut Core) -> DropReason {
    verbs.recv.fail_oldest(&verbs.head, core, WcStatus::LocalProtection);
    verbs.fail(core);
    DropReason::Refused
}
