//! Is this packet legal, and where do its bytes go?

use rnic_base::{Psn, Seq};
use rnic_wire::{Asked, Headers, NakCode, Packet, Position, Reth, SendPlacement, SendTail};

use super::{Message, Refusal};
use crate::PdId;
use crate::completion::{Completion, WcStatus};
use crate::core::Core;
use crate::dma::{Dma, Segment};
use crate::event::AsyncEvent;
use crate::mr::Access;
use crate::qp::Qp;
use crate::qp::fetch::FetchRequest;
use crate::qp::gather::for_each_segment;
use crate::wq::{RecvDone, RecvTail};

const INVALID: Refusal = Refusal::Nak(NakCode::InvalidRequest);
const DENIED: Refusal = Refusal::Nak(NakCode::RemoteAccessError);

impl Qp {
    /// Checks a request packet and places its payload. After an error nothing has changed.
    #[inline(always)]
    pub(crate) fn accept<D: Dma>(
        &mut self,
        core: &mut Core,
        seq: Seq,
        packet: &Packet,
        dma: &mut D,
    ) -> Result<(), Refusal> {
        match packet.headers {
            Headers::Write { position, reth, immediate: None, .. } => {
                self.check_payload(position, packet.payload_len)?;
                self.accept_write(core, position, reth, packet.payload_len, dma).map(|_| ())
            }
            Headers::Write { position, reth, immediate: Some(word), recv_sn } => {
                self.check_payload(position, packet.payload_len)?;
                let counter = self.receive_for(core, seq, recv_sn.map(|sn| sn.value()))?;
                let length = self.accept_write(core, position, reth, packet.payload_len, dma)?;
                let tail = RecvTail::WriteImm(word);
                self.finish_receive(counter, seq, length, tail, packet.flags.solicited)
            }
            Headers::Send { position, tail, placement } => {
                self.check_payload(position, packet.payload_len)?;
                self.accept_send(core, seq, packet, position, tail, placement, dma)
            }
            Headers::ReadRequest { reth, read_sn, asked } => {
                let request = FetchRequest::Read { va: reth.va, rkey: reth.rkey, length: reth.dma_len };
                let asked = asked.unwrap_or(Asked { expects: Psn::new(0), stamp: 0 });
                self.accept_fetch(core, seq, request, read_sn.map(|sn| sn.value()), asked)
            }
            Headers::AtomicRequest { va, rkey, op, read_sn, expects } => {
                let request = FetchRequest::Atomic { va, rkey, op };
                let asked = Asked { expects: expects.into(), stamp: 0 };
                self.accept_fetch(core, seq, request, read_sn.map(|sn| sn.value()), asked)
            }
            Headers::PlacementRequest { va, rkey, op, read_sn, expects } => {
                let request = FetchRequest::Placement { va, rkey, op };
                let asked = Asked { expects: expects.into(), stamp: 0 };
                self.accept_fetch(core, seq, request, read_sn.map(|sn| sn.value()), asked)
            }
            Headers::ReadResponse { .. } | Headers::AtomicResponse { .. } => self.accept_answer(core, seq, packet, dma),
            _ => Err(INVALID),
        }
    }

    /// Whether the queue pair's own rights allow what the peer asks for. A missing one is an invalid request, as an
    /// operation that the queue pair does not support; a region's missing right is a remote access error (IBA
    /// 9.7.5.2.4, table 60, and 10.2.8.1).
    #[inline]
    pub(crate) fn check_right(&self, access: Access) -> Result<(), NakCode> {
        if self.access.contains(access) { Ok(()) } else { Err(NakCode::InvalidRequest) }
    }

    /// Every packet but the last of a message is full; the last of several carries something.
    #[inline]
    pub(crate) fn check_payload(&self, position: Position, len: u32) -> Result<(), Refusal> {
        let legal = match position {
            Position::First | Position::Middle => len == self.mtu(),
            Position::Last => 0 < len && len <= self.mtu(),
            Position::Only => len <= self.mtu(),
        };
        if legal { Ok(()) } else { Err(INVALID) }
    }

    /// Places a Write packet; answers how long the message is, as far as this packet knows.
    #[inline(always)]
    fn accept_write<D: Dma>(
        &mut self,
        core: &Core,
        position: Position,
        reth: Option<Reth>,
        len: u32,
        dma: &mut D,
    ) -> Result<u32, Refusal> {
        self.check_right(Access::REMOTE_WRITE)?;
        if self.transport.places_early {
            let reth = reth.ok_or(INVALID)?;
            self.place_remote(core, reth.va, reth.rkey, len, dma)?;
            return Ok(reth.dma_len);
        }
        self.accept_write_in_order(core, position, reth, len, dma)
    }

    #[inline(never)]
    fn accept_write_in_order<D: Dma>(
        &mut self,
        core: &Core,
        position: Position,
        reth: Option<Reth>,
        len: u32,
        dma: &mut D,
    ) -> Result<u32, Refusal> {
        let (va, rkey, left, length) = match (self.responder.message, position.starts()) {
            (Message::None, true) => {
                let reth = reth.ok_or(INVALID)?;
                // The whole range is checked before its first byte is written.
                if reth.dma_len > 0 {
                    let access = Access::REMOTE_WRITE;
                    let len = u64::from(reth.dma_len);
                    core.mrs.resolve_remote(self.granted(), reth.rkey, reth.va, len, access).map_err(|_| DENIED)?;
                }
                (reth.va, reth.rkey, reth.dma_len, reth.dma_len)
            }
            // With split spaces every packet has an address; the running one is what counts.
            (Message::Write { va, rkey, left, length }, false) => (va, rkey, left, length),
            _ => return Err(INVALID),
        };
        let fits = if position.ends() { len == left } else { len < left };
        if !fits {
            return Err(INVALID);
        }
        self.place_remote(core, va, rkey, len, dma)?;
        self.responder.message = if position.ends() {
            Message::None
        } else {
            Message::Write { va: va.wrapping_add(u64::from(len)), rkey, left: left - len, length }
        };
        Ok(length)
    }

    #[inline]
    pub(crate) fn place_remote<D: Dma>(
        &self,
        core: &Core,
        va: u64,
        rkey: u32,
        len: u32,
        dma: &mut D,
    ) -> Result<(), Refusal> {
        if len == 0 {
            return Ok(());
        }
        let local = core
            .mrs
            .resolve_remote(self.granted(), rkey, va, u64::from(len), Access::REMOTE_WRITE)
            .map_err(|_| DENIED)?;
        dma.place(0, Segment { local, len }).map_err(|_| DENIED)
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one header, taken apart by the caller")]
    #[inline(never)]
    fn accept_send<D: Dma>(
        &mut self,
        core: &mut Core,
        seq: Seq,
        packet: &Packet,
        position: Position,
        tail: SendTail,
        placement: Option<SendPlacement>,
        dma: &mut D,
    ) -> Result<(), Refusal> {
        let early = self.transport.places_early;
        let offset = match (early, placement, self.responder.message) {
            (true, Some(placement), _) => u64::from(placement.offset.value()) * u64::from(self.mtu()),
            (false, _, Message::None) if position.starts() => 0,
            (false, _, Message::Send { bytes }) if !position.starts() => bytes,
            _ => return Err(INVALID),
        };
        if position.starts() != (offset == 0) {
            return Err(INVALID);
        }
        let named = placement.map(|placement| placement.recv_sn.value());
        let counter = self.receive_for(core, seq, named)?;
        let wqe = *self.responder.queue.get(counter);
        let end = offset + u64::from(packet.payload_len);
        if end > wqe.capacity || end > rnic_base::limits::MESSAGE_BYTES_MAX {
            return Err(self.fail_receive(core, seq, WcStatus::LocalLength));
        }
        let sges = self.responder.queue.sges(counter);
        let access = Access::LOCAL_WRITE;
        let placed =
            for_each_segment(&core.mrs, self.pd, sges, offset as u32, packet.payload_len, access, |at, segment| {
                dma.place(at, segment)
            });
        if placed.is_err() {
            return Err(self.fail_receive(core, seq, WcStatus::LocalProtection));
        }
        if position.ends() {
            let tail = match tail {
                SendTail::Plain => RecvTail::Send,
                SendTail::Immediate(word) => RecvTail::SendImm(word),
                SendTail::Invalidate(rkey) => RecvTail::SendInvalidate(rkey),
            };
            self.finish_receive(counter, seq, end as u32, tail, packet.flags.solicited)?;
        }
        if !early {
            self.responder.message = if position.ends() { Message::None } else { Message::Send { bytes: end } };
        }
        Ok(())
    }

    /// The receive request that a message uses: the one it names (IRN's `recv_WQE_SN`), or the oldest.
    #[inline(never)]
    fn receive_for(&mut self, core: &mut Core, seq: Seq, named: Option<u32>) -> Result<u32, Refusal> {
        let queue = &self.responder.queue;
        let counter = match named.filter(|_| self.transport.places_early) {
            // The name has 24 bits; its counter is the nearest one to the head.
            Some(sn) => {
                queue.head.wrapping_add((sn.wrapping_sub(queue.head) << 8).cast_signed().wrapping_shr(8) as u32)
            }
            None => queue.head,
        };
        let ahead = counter.wrapping_sub(queue.head);
        // Every message before this one takes a packet at least: in order, messages use receives in order, and early
        // ones cannot be further ahead than their packets.
        if u64::from(ahead) > seq.since(self.responder.window.expected) {
            return Err(INVALID);
        }
        self.receive_at(core, counter)
    }

    /// The oldest receive, from the shared queue where there is one.
    pub(crate) fn oldest_receive(&mut self, core: &mut Core) -> Result<u32, Refusal> {
        self.receive_at(core, self.responder.queue.head)
    }

    /// Receive `counter`, claimed if it must be.
    fn receive_at(&mut self, core: &mut Core, counter: u32) -> Result<u32, Refusal> {
        if self.responder.queue.contains(counter) {
            return Ok(counter);
        }
        self.claim_receives(core, counter)
    }

    /// Takes receives from the shared queue, in order, until `counter` has one.
    fn claim_receives(&mut self, core: &mut Core, counter: u32) -> Result<u32, Refusal> {
        let srq = self.srq.ok_or(Refusal::NotReady)?;
        while !self.responder.queue.contains(counter) {
            let queue = &mut self.responder.queue;
            if queue.is_full() {
                return Err(Refusal::NotReady);
            }
            let reached = core.srq(srq).take(|wr_id, sges| queue.push(wr_id, sges)).ok_or(Refusal::NotReady)?;
            if reached.0 {
                core.notice(AsyncEvent::SrqLimitReached(srq));
            }
        }
        Ok(counter)
    }

    /// Parks the completion of receive `counter` until everything up to `last` has arrived (I-18).
    fn finish_receive(
        &mut self,
        counter: u32,
        last: Seq,
        byte_len: u32,
        tail: RecvTail,
        solicited: bool,
    ) -> Result<(), Refusal> {
        let wqe = self.responder.queue.get_mut(counter);
        if wqe.done.is_some() {
            // Two messages name the same receive: the peer contradicts itself.
            return Err(INVALID);
        }
        wqe.done = Some(RecvDone { last, byte_len, tail, solicited });
        Ok(())
    }

    /// The oldest receive cannot take its message: it completes in error, in order, and the message is refused.
    fn fail_receive(&mut self, core: &mut Core, seq: Seq, status: WcStatus) -> Refusal {
        if seq == self.responder.window.expected {
            let queue = &mut self.responder.queue;
            let completion = Completion::failed_receive(self.number, queue.get(queue.head).wr_id, status);
            queue.head = queue.head.wrapping_add(1);
            core.complete(self.recv_cq, completion);
        }
        match status {
            WcStatus::LocalLength => INVALID,
            _ => Refusal::Nak(NakCode::RemoteOperationalError),
        }
    }

    /// The local address of what a fetch of `length` bytes wants, where the peer may have it; of nothing there is none.
    pub(crate) fn resolve_fetch(
        &self,
        core: &Core,
        va: u64,
        rkey: u32,
        length: u32,
        access: Access,
    ) -> Result<u64, NakCode> {
        self.resolve_fetch_in(core, self.pd, va, rkey, length, access)
    }

    /// The same by leave of the protection domain `pd`: a target's differs from request to request.
    pub(crate) fn resolve_fetch_in(
        &self,
        core: &Core,
        pd: PdId,
        va: u64,
        rkey: u32,
        length: u32,
        access: Access,
    ) -> Result<u64, NakCode> {
        if access == Access::REMOTE_ATOMIC && !va.is_multiple_of(8) {
            return Err(NakCode::InvalidRequest);
        }
        self.check_right(access)?;
        if length == 0 {
            return Ok(0);
        }
        core.mrs
            .resolve_remote((pd, self.number), rkey, va, u64::from(length), access)
            .map_err(|_| NakCode::RemoteAccessError)
    }

    #[inline(never)]
    fn accept_fetch(
        &mut self,
        core: &mut Core,
        seq: Seq,
        request: FetchRequest,
        read_sn: Option<u32>,
        asked: Asked,
    ) -> Result<(), Refusal> {
        let granted = match request {
            FetchRequest::Read { length, .. } if u64::from(length) > rnic_base::limits::MESSAGE_BYTES_MAX => {
                return Err(INVALID);
            }
            FetchRequest::Read { va, rkey, length } => self.resolve_fetch(core, va, rkey, length, Access::REMOTE_READ),
            FetchRequest::Atomic { va, rkey, .. } => self.resolve_fetch(core, va, rkey, 8, Access::REMOTE_ATOMIC),
            FetchRequest::Placement { va, rkey, op } => self.resolve_placement(core, va, rkey, op),
        };
        if self.responder.fetches_max == 0 {
            return Err(INVALID);
        }
        granted.map_err(Refusal::Nak)?;
        if !self.transport.places_early && self.responder.message != Message::None {
            return Err(INVALID);
        }
        if self.transport.scheduled {
            self.learn_start(asked.expects);
        }
        self.admit_fetch(core, seq, request, read_sn, asked.stamp).map_err(Refusal::Nak)
    }
}
