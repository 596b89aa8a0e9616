//! The receive queue, and the effects of the peer's requests on it and on memory.
//!
//! The payload of a message is checked and placed packet by packet; its receive completes at the end of the message.
//! With in-order packets both happen in one step; where out-of-order packets are placed, messages end later. The
//! number of the expected packet is owned by the protocol below and passed in.

use rnic_base::Seq;
use rnic_wire::header::aeth::credit_code;
use rnic_wire::{Headers, NakCode, Packet, Position, Reth, SendTail, Syndrome};

use super::gather::for_each_segment;
use super::head::Head;
use crate::completion::{Completion, WcFlags, WcOpcode, WcStatus};
use crate::config::QpAttributes;
use crate::core::Core;
use crate::dma::Dma;
use crate::event::AsyncEvent;
use crate::mr::Access;
use crate::state::QpState;
use crate::transport::Transport;
use crate::wq::{RecvDone, RecvQueue, RecvTail};

const INVALID: Refusal = Refusal::Nak(NakCode::InvalidRequest);
const DENIED: Refusal = Refusal::Nak(NakCode::RemoteAccessError);

/// The receiving half of the verbs state of a queue pair.
#[derive(Debug)]
pub(crate) struct RecvHalf {
    pub(crate) queue: RecvQueue,
    /// First sequence number of the peer's requests, and of the responses to these requests.
    pub(crate) start: Seq,
    /// First packet of the message that is being received; messages that ended before it are complete.
    pub(crate) message_start: Seq,
    /// Number of messages completed.
    pub(crate) msn: u32,
    /// The message that is being received, when packets are accepted in order only.
    pub(crate) message: Message,
    pub(crate) fetches_max: u8,
    /// NAK code with which a request was refused permanently; every later request is refused with the same code.
    pub(crate) refused: Option<NakCode>,
    /// Set once a packet from the peer has been received.
    established: bool,
    /// True for the target of an extended reliable connection: see `roce/target.rs`.
    pub(crate) is_target: bool,
}

/// Progress of the current message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    /// No message is being received.
    None,
    /// A Send is being received.
    Send {
        /// Bytes received so far.
        bytes: u64,
    },
    /// An RDMA Write is being received.
    Write {
        /// Virtual address of the next byte.
        va: u64,
        /// Key that grants the access.
        rkey: u32,
        /// Bytes still to be received.
        left: u32,
        /// Bytes of the complete message.
        length: u32,
    },
}

/// Reason for which a packet was not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// No receive is posted.
    NotReady,
    /// The request cannot be executed.
    Nak(NakCode),
}

impl From<NakCode> for Refusal {
    fn from(code: NakCode) -> Self {
        Self::Nak(code)
    }
}

impl RecvHalf {
    pub(crate) fn new(attributes: &QpAttributes, transport: &Transport) -> Self {
        // Receives claimed from a shared queue are stored here; there can be as many as there are messages in the
        // window.
        let capacity = if attributes.srq.is_some() { transport.window_bits.min(512) } else { attributes.max_recv_wr };
        Self {
            queue: RecvQueue::new(capacity, attributes.max_recv_sge),
            start: Seq::UNSET,
            message_start: Seq::UNSET,
            msn: 0,
            message: Message::None,
            fetches_max: 0,
            refused: None,
            is_target: false,
            established: false,
        }
    }

    /// Accepts requests starting with sequence number `start`, and serves up to `fetches_max` reads and atomics at a
    /// time.
    pub(crate) fn connect(&mut self, start: Seq, fetches_max: u8) {
        (self.start, self.message_start, self.fetches_max) = (start, start, fetches_max);
    }

    /// Records that a packet from the peer has been received.
    #[inline]
    pub(crate) fn note_first_packet(&mut self, head: &Head, core: &mut Core) {
        if !self.established {
            self.note_established(head, core);
        }
    }

    /// Records the first packet from the peer, and notifies a program that waits in [`QpState::ReadyToReceive`] (IBA
    /// 11.6.2.2).
    #[cold]
    fn note_established(&mut self, head: &Head, core: &mut Core) {
        self.established = true;
        if head.state == QpState::ReadyToReceive {
            core.raise_event(AsyncEvent::CommunicationEstablished(head.number));
        }
    }

    /// Checks packet `seq` of a Write or a Send and places its payload; `expected` is the number of the packet
    /// expected next. An error changes no state.
    #[inline(always)]
    pub(crate) fn take<D: Dma>(
        &mut self,
        head: &Head,
        core: &mut Core,
        (expected, seq): (Seq, Seq),
        packet: &Packet,
        dma: &mut D,
    ) -> Result<(), Refusal> {
        match packet.headers {
            Headers::Write { position, reth, immediate: None, .. } => {
                head.check_payload(position, packet.payload_len)?;
                self.place_write(head, core, position, reth, packet.payload_len, dma).map(|_| ())
            }
            Headers::Write { position, reth, immediate: Some(word), recv_sn } => {
                head.check_payload(position, packet.payload_len)?;
                let counter = self.receive_for(head, core, (expected, seq), recv_sn.map(|sn| sn.value()))?;
                let length = self.place_write(head, core, position, reth, packet.payload_len, dma)?;
                let tail = RecvTail::WriteImm(word);
                self.finish_receive(counter, seq, length, tail, packet.flags.solicited)
            }
            Headers::Send { .. } => self.place_send(head, core, (expected, seq), packet, dma),
            _ => Err(INVALID),
        }
    }

    /// Places a Write packet; returns the length of the message, as far as it is known from this packet.
    #[inline(always)]
    fn place_write<D: Dma>(
        &mut self,
        head: &Head,
        core: &Core,
        position: Position,
        reth: Option<Reth>,
        len: u32,
        dma: &mut D,
    ) -> Result<u32, Refusal> {
        head.check_right(Access::REMOTE_WRITE)?;
        if head.transport.places_out_of_order {
            let reth = reth.ok_or(INVALID)?;
            head.place_remote(core, reth.va, reth.rkey, len, dma)?;
            return Ok(reth.dma_len);
        }
        self.place_write_in_order(head, core, position, reth, len, dma)
    }

    #[inline(always)]
    fn place_write_in_order<D: Dma>(
        &mut self,
        head: &Head,
        core: &Core,
        position: Position,
        reth: Option<Reth>,
        len: u32,
        dma: &mut D,
    ) -> Result<u32, Refusal> {
        let (va, rkey, left, length) = match (self.message, position.starts()) {
            (Message::None, true) => {
                let reth = reth.ok_or(INVALID)?;
                // The complete range is checked before its first byte is written.
                if reth.dma_len > 0 {
                    let access = Access::REMOTE_WRITE;
                    let len = u64::from(reth.dma_len);
                    core.objects
                        .mrs
                        .resolve_remote(head.granted(), reth.rkey, reth.va, len, access)
                        .map_err(|_| DENIED)?;
                }
                (reth.va, reth.rkey, reth.dma_len, reth.dma_len)
            }
            // With split sequence spaces every packet carries an address; the address computed from the previous
            // packets is used.
            (Message::Write { va, rkey, left, length }, false) => (va, rkey, left, length),
            _ => return Err(INVALID),
        };
        let fits = if position.ends() { len == left } else { len < left };
        if !fits {
            return Err(INVALID);
        }
        head.place_remote(core, va, rkey, len, dma)?;
        self.message = if position.ends() {
            Message::None
        } else {
            Message::Write { va: va.wrapping_add(u64::from(len)), rkey, left: left - len, length }
        };
        Ok(length)
    }

    /// Places packet `seq` of a Send; `expected` is the number of the packet expected next.
    #[inline(never)]
    fn place_send<D: Dma>(
        &mut self,
        head: &Head,
        core: &mut Core,
        (expected, seq): (Seq, Seq),
        packet: &Packet,
        dma: &mut D,
    ) -> Result<(), Refusal> {
        let Headers::Send { position, tail, placement } = packet.headers else { return Err(INVALID) };
        head.check_payload(position, packet.payload_len)?;
        let places_out_of_order = head.transport.places_out_of_order;
        let offset = match (places_out_of_order, placement, self.message) {
            (true, Some(placement), _) => u64::from(placement.offset.value()) * u64::from(head.mtu()),
            (false, _, Message::None) if position.starts() => 0,
            (false, _, Message::Send { bytes }) if !position.starts() => bytes,
            _ => return Err(INVALID),
        };
        if position.starts() != (offset == 0) {
            return Err(INVALID);
        }
        let recv_sn = placement.map(|placement| placement.recv_sn.value());
        let counter = self.receive_for(head, core, (expected, seq), recv_sn)?;
        let wqe = *self.queue.get(counter);
        let end = offset + u64::from(packet.payload_len);
        if end > wqe.capacity || end > rnic_base::limits::MESSAGE_BYTES_MAX {
            return Err(self.fail_receive(head, core, seq == expected, WcStatus::LocalLength));
        }
        let sges = self.queue.sges(counter);
        let access = Access::LOCAL_WRITE;
        let placed = for_each_segment(
            &core.objects.mrs,
            head.pd,
            sges,
            offset as u32,
            packet.payload_len,
            access,
            |at, segment| dma.place(at, segment),
        );
        if placed.is_err() {
            return Err(self.fail_receive(head, core, seq == expected, WcStatus::LocalProtection));
        }
        if position.ends() {
            let tail = match tail {
                SendTail::Plain => RecvTail::Send,
                SendTail::Immediate(word) => RecvTail::SendImm(word),
                SendTail::Invalidate(rkey) => RecvTail::SendInvalidate(rkey),
            };
            self.finish_receive(counter, seq, end as u32, tail, packet.flags.solicited)?;
        }
        if !places_out_of_order {
            self.message = if position.ends() { Message::None } else { Message::Send { bytes: end } };
        }
        Ok(())
    }

    /// Returns the receive request that a message uses: the one specified in the packet (IRN's `recv_WQE_SN`), or the
    /// oldest.
    #[inline]
    fn receive_for(
        &mut self,
        head: &Head,
        core: &mut Core,
        (expected, seq): (Seq, Seq),
        recv_sn: Option<u32>,
    ) -> Result<u32, Refusal> {
        let queue = &self.queue;
        let counter = match recv_sn.filter(|_| head.transport.places_out_of_order) {
            // The number in the packet has 24 bits; the full counter is the value nearest to the head.
            Some(sn) => {
                queue.head.wrapping_add((sn.wrapping_sub(queue.head) << 8).cast_signed().wrapping_shr(8) as u32)
            }
            None => queue.head,
        };
        let receives_ahead = counter.wrapping_sub(queue.head);
        // Every earlier message has at least one packet. So a message in order uses the oldest receive, and an
        // out-of-order message cannot be further ahead in receives than in packets.
        if u64::from(receives_ahead) > seq.since(expected) {
            return Err(INVALID);
        }
        self.receive_at(head, core, counter)
    }

    /// Returns the oldest receive, claimed from the shared queue if there is one.
    pub(crate) fn oldest_receive(&mut self, head: &Head, core: &mut Core) -> Result<u32, Refusal> {
        self.receive_at(head, core, self.queue.head)
    }

    /// Returns receive `counter`, claimed from the shared queue if necessary.
    #[inline]
    fn receive_at(&mut self, head: &Head, core: &mut Core, counter: u32) -> Result<u32, Refusal> {
        if self.queue.contains(counter) {
            return Ok(counter);
        }
        self.claim_receives(head, core, counter)
    }

    /// Claims receives from the shared queue, in order, up to receive `counter`.
    #[inline(never)]
    fn claim_receives(&mut self, head: &Head, core: &mut Core, counter: u32) -> Result<u32, Refusal> {
        let srq = head.srq.ok_or(Refusal::NotReady)?;
        while !self.queue.contains(counter) {
            let queue = &mut self.queue;
            if queue.is_full() {
                return Err(Refusal::NotReady);
            }
            let reached = core.objects.srq(srq).take(|wr_id, sges| queue.push(wr_id, sges)).ok_or(Refusal::NotReady)?;
            if reached.0 {
                core.raise_event(AsyncEvent::SrqLimitReached(srq));
            }
        }
        Ok(counter)
    }

    /// Defers the completion of receive `counter` until every packet up to `last` has arrived (IRN mechanism I-18).
    fn finish_receive(
        &mut self,
        counter: u32,
        last: Seq,
        byte_len: u32,
        tail: RecvTail,
        solicited: bool,
    ) -> Result<(), Refusal> {
        let wqe = self.queue.get_mut(counter);
        if wqe.done.is_some() {
            // Two messages specify the same receive, so the peer's requests are inconsistent.
            return Err(INVALID);
        }
        wqe.done = Some(RecvDone { last, byte_len, tail, solicited });
        Ok(())
    }

    /// Handles a message that the oldest receive cannot hold: the receive completes in order with an error, and the
    /// message is refused.
    fn fail_receive(&mut self, head: &Head, core: &mut Core, is_expected: bool, status: WcStatus) -> Refusal {
        if is_expected {
            self.fail_oldest(head, core, status);
        }
        match status {
            WcStatus::LocalLength => INVALID,
            _ => Refusal::Nak(NakCode::RemoteOperationalError),
        }
    }

    /// Ends a complete message: counts it (IRN mechanism I-17), and completes its receive, if it uses one.
    #[inline]
    pub(crate) fn end_message(
        &mut self,
        head: &Head,
        core: &mut Core,
        seq: Seq,
        consumes_receive: bool,
    ) -> Result<(), NakCode> {
        if consumes_receive {
            self.complete_receive(head, core, seq)?;
        }
        self.msn = self.msn.wrapping_add(1);
        self.message_start = seq + 1;
        Ok(())
    }

    fn complete_receive(&mut self, head: &Head, core: &mut Core, seq: Seq) -> Result<(), NakCode> {
        let mtu = head.mtu();
        let queue = &mut self.queue;
        // The peer must use receives in the order of its messages.
        let done = queue.get(queue.head).done.filter(|done| done.last == seq).ok_or(NakCode::InvalidRequest)?;
        // When packets are placed individually, each packet carries the message length; the number of packets must
        // match it.
        let packets = seq.since(self.message_start) + 1;
        if head.transport.places_out_of_order && u64::from(done.byte_len.div_ceil(mtu).max(1)) != packets {
            return Err(NakCode::InvalidRequest);
        }
        // A message that is refused here has no effect: its receive remains queued, to be flushed.
        if let RecvTail::SendInvalidate(rkey) = done.tail {
            core.objects.mrs.invalidate(head.pd, head.number, rkey).map_err(|_| NakCode::RemoteAccessError)?;
        }
        let wr_id = queue.get(queue.head).wr_id;
        queue.head = queue.head.wrapping_add(1);
        core.complete(head.recv_cq, recv_completion(head.number, wr_id, &done));
        Ok(())
    }

    /// Returns whether the oldest receive belongs to the message that ends at `seq`.
    pub(crate) fn receive_waits_at(&self, seq: Seq) -> bool {
        let queue = &self.queue;
        queue.len() > 0 && queue.get(queue.head).done.is_some_and(|done| done.last == seq)
    }

    /// Completes receive `counter` with a message that has been received completely.
    pub(crate) fn complete_unordered(&mut self, head: &Head, core: &mut Core, counter: u32, done: &RecvDone) {
        let queue = &mut self.queue;
        let wr_id = queue.get(counter).wr_id;
        queue.head = counter.wrapping_add(1);
        self.msn = self.msn.wrapping_add(1);
        core.complete(head.recv_cq, recv_completion(head.number, wr_id, done));
    }

    /// Withdraws the deferred completion of the oldest receive, because its message is refused after all.
    pub(crate) fn withdraw_deferred(&mut self) {
        let queue = &mut self.queue;
        if queue.len() > 0 {
            queue.get_mut(queue.head).done = None;
        }
    }

    /// Returns the acknowledgement syndrome with the number of posted receives. The receive of the message that is
    /// being received is included, because that message is not yet counted as complete.
    #[cold]
    pub(crate) fn count_receives(&self, head: &Head) -> Syndrome {
        if head.srq.is_some() || self.is_target {
            return Syndrome::ACK;
        }
        Syndrome::Ack { credits: credit_code(self.queue.len()) }
    }

    /// Completes the oldest receive with `status`, because its message cannot be accepted.
    pub(crate) fn fail_oldest(&mut self, head: &Head, core: &mut Core, status: WcStatus) {
        let queue = &mut self.queue;
        let completion = Completion::failed_receive(head.number, queue.get(queue.head).wr_id, status);
        queue.head = queue.head.wrapping_add(1);
        core.complete(head.recv_cq, completion);
    }

    /// Completes all posted receives as flushed.
    pub(crate) fn flush(&mut self, head: &Head, core: &mut Core) {
        while self.queue.len() > 0 {
            self.fail_oldest(head, core, WcStatus::WrFlushed);
        }
    }
}

#[inline(always)]
pub(crate) fn recv_completion(qpn: rnic_wire::Qpn, wr_id: u64, done: &RecvDone) -> Completion {
    let (opcode, word, mut flags) = match done.tail {
        RecvTail::Send => (WcOpcode::Recv, 0, WcFlags::empty()),
        RecvTail::SendImm(word) => (WcOpcode::Recv, word, WcFlags::WITH_IMM),
        RecvTail::SendInvalidate(rkey) => (WcOpcode::Recv, rkey, WcFlags::WITH_INV),
        RecvTail::WriteImm(word) => (WcOpcode::RecvRdmaWithImm, word, WcFlags::WITH_IMM),
    };
    flags.set(WcFlags::SOLICITED, done.solicited);
    let (status, source) = (WcStatus::Success, rnic_wire::Qpn::default());
    Completion { wr_id, qpn, status, opcode, byte_len: done.byte_len, word, flags, source }
}
