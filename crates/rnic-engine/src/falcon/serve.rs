//! The peer's requests.
//!
//! On an ordered connection each request is checked, placed and executed when the transaction layer says that it is its
//! turn, exactly as RoCE's responder does it in order. With weak order it is checked and placed when it comes, and
//! executed when everything before it has been, exactly as IRN's responder does it; what fails then is refused then,
//! and so is what failed when it came early: errors stay in order. Without order everything happens when it comes.
//!
//! Nothing is refused for want of resources here: a Pull that is taken waits for room for its answer (F-8, and
//! RDMA over Falcon 6.5).

use rnic_base::RareQueue;
use rnic_falcon::transaction::{Answer, PushReply, Request};
use rnic_policy::{FalconErrors, FalconOrdering};
use rnic_wire::falcon::rdma::{Header, Operation, SinkTag};
use rnic_wire::falcon::{NackCode, Rsn, Ulp};
use rnic_wire::{Headers, NakCode, Packet, Position, SendTail};

use super::{Mapping, header};
use crate::completion::{Completion, WcStatus};
use crate::core::Core;
use crate::dma::{self, Dma, Segment};
use crate::mr::Access;
use crate::qp::Qp;
use crate::qp::gather::for_each_segment;
use crate::qp::responder::execute::recv_completion;
use crate::qp::responder::{Message, Refusal};
use crate::wq::{RecvDone, RecvTail};

const INVALID: Refusal = Refusal::Nak(NakCode::InvalidRequest);
const DENIED: Refusal = Refusal::Nak(NakCode::RemoteAccessError);

/// What a queue pair keeps of its peer's requests.
#[derive(Debug)]
pub(super) struct Serving {
    /// Numbers of requests are taken modulo this.
    places: usize,
    /// Where the data of answered Reads lies, by request; made with the first.
    sources: Box<[Source]>,
    /// Answers that no resources have been found for.
    pub(super) pending: RareQueue<(Rsn, Answer)>,
    /// With weak order: requests whose turn has not come; made with the first.
    turns: Box<[Turn]>,
    /// With weak order: what has become of Pushes that wait for their turn: an acknowledgement, or a refusal.
    pub(super) settled: RareQueue<(Rsn, Option<NackCode>)>,
    /// With `errors=verbs`: the peer has sent a Resync for one of its requests, so its queue pair is in error. Nothing
    /// behind that request is executed; ours stays as it is until it notices by itself.
    abandoned: bool,
    /// The rest of the present message is refused as its first part was.
    refusing: Option<NakCode>,
    /// With weak order: its receive has completed in error already.
    has_failed_receive: bool,
}

/// Memory that is read.
#[derive(Clone, Copy, Debug, Default)]
struct Source {
    va: u64,
    rkey: u32,
}

/// What happens to a request when its turn comes.
#[derive(Clone, Copy, Debug, Default)]
enum Turn {
    /// It is not here.
    #[default]
    Blank,
    /// Nothing: it has been placed.
    Quiet,
    /// A message ends.
    Ends {
        /// And takes a receive; then it is acknowledged only now.
        consumes: bool,
    },
    /// It failed its checks when it came.
    Refused { code: NakCode, ends: bool, consumes: bool },
    /// The peer has given it up.
    Passed,
    /// A Read or atomic.
    Pull { header: Header, length: u16 },
}

impl Serving {
    /// For `places` requests that can be told apart.
    pub(super) fn new(places: u32) -> Self {
        Self {
            places: places as usize,
            sources: Box::default(),
            pending: RareQueue::new(),
            turns: Box::default(),
            settled: RareQueue::new(),
            abandoned: false,
            refusing: None,
            has_failed_receive: false,
        }
    }

    fn source(&mut self, rsn: Rsn) -> &mut Source {
        if self.sources.is_empty() {
            self.sources = vec![Source::default(); self.places].into_boxed_slice();
        }
        &mut self.sources[rsn.value() as usize & (self.places - 1)]
    }

    /// Whether the peer is to be told something: answers may also wait for room.
    #[inline]
    pub(super) fn has_to_tell(&self) -> bool {
        !self.settled.is_empty() || !self.pending.is_empty()
    }

    /// An answer waits for resources: as many can as there can be requests.
    fn wait(&mut self, rsn: Rsn, answer: Answer) {
        self.pending.made_for(self.places).push_back((rsn, answer));
    }

    fn settle(&mut self, rsn: Rsn, refused: Option<NackCode>) {
        self.settled.made_for(self.places).push_back((rsn, refused));
    }

    fn turn(&mut self, rsn: Rsn) -> &mut Turn {
        if self.turns.is_empty() {
            self.turns = vec![Turn::Blank; self.places].into_boxed_slice();
        }
        &mut self.turns[rsn.value() as usize & (self.places - 1)]
    }
}

fn starts(headers: &Headers) -> bool {
    match headers {
        Headers::Send { position, .. } | Headers::Write { position, .. } => position.starts(),
        _ => true,
    }
}

impl Qp {
    /// A Push, when the transaction layer hands it over.
    pub(super) fn take_push<D: Dma>(
        &mut self,
        core: &mut Core,
        mapping: &mut Mapping,
        request: &Request,
        dma: &mut D,
    ) -> PushReply {
        if let Some(code) = self.responder.refused {
            return PushReply::NonRecoverable(header::code_of(code));
        }
        let Ulp::Rdma(header) = request.ulp else {
            return self.refuse_header(core, mapping, request, (true, false), dma);
        };
        if !self.state.receives() {
            return PushReply::InvalidCid;
        }
        let ends = header::ends(&header);
        if header.dest_qpn != self.number {
            return match mapping.ordering {
                FalconOrdering::Weak => self.refuse_header(core, mapping, request, ends, dma),
                FalconOrdering::Ordered | FalconOrdering::Unordered => PushReply::InvalidCid,
            };
        }
        if mapping.serving.abandoned {
            return PushReply::NonRecoverable(header::code_of(NakCode::RemoteOperationalError));
        }
        self.note_first_packet(core);
        let Some(packet) = header::request(&header, request.payload_len, self.mtu()) else {
            return self.refuse_header(core, mapping, request, ends, dma);
        };
        let taken = match mapping.ordering {
            FalconOrdering::Ordered => self.push_ordered(core, mapping, &packet, ends.0, dma),
            FalconOrdering::Weak => return self.push_weak(core, mapping, request.rsn, &packet, ends, dma),
            FalconOrdering::Unordered => self.push_alone(core, &packet, dma),
        };
        match taken {
            Ok(()) => PushReply::Done,
            Err(Refusal::NotReady) => self.put_off(core),
            Err(Refusal::Nak(code)) => self.refuse_push(core, mapping, code),
        }
    }

    /// A Push whose headers make no sense; whether a message ends with it, and would take a receive. With weak order it
    /// is refused in its turn, like all others, for what is behind it waits for that.
    fn refuse_header<D: Dma>(
        &mut self,
        core: &mut Core,
        mapping: &mut Mapping,
        request: &Request,
        (ends, consumes): (bool, bool),
        dma: &mut D,
    ) -> PushReply {
        let code = NakCode::InvalidRequest;
        if mapping.ordering != FalconOrdering::Weak {
            return self.refuse_push(core, mapping, code);
        }
        *mapping.serving.turn(request.rsn) = Turn::Refused { code, ends, consumes };
        self.take_turns(core, mapping, dma);
        PushReply::Later
    }

    /// With weak order, what is behind `rsn` need not wait for it.
    fn pass_turn<D: Dma>(&mut self, core: &mut Core, mapping: &mut Mapping, rsn: Rsn, dma: &mut D) {
        if mapping.ordering == FalconOrdering::Weak {
            *mapping.serving.turn(rsn) = Turn::Passed;
            self.take_turns(core, mapping, dma);
        }
    }

    fn put_off(&mut self, core: &mut Core) -> PushReply {
        core.stats.rnr_naks_sent += 1;
        self.stats.rnr_naks_sent += 1;
        PushReply::NotReady(self.min_rnr_timer)
    }

    fn refuse_push(&mut self, core: &mut Core, mapping: &Mapping, code: NakCode) -> PushReply {
        match mapping.errors {
            FalconErrors::CompleteInError => PushReply::CompleteInError(header::code_of(code)),
            FalconErrors::Verbs => {
                self.fail_as_responder(core, code);
                PushReply::NonRecoverable(header::code_of(code))
            }
        }
    }

    fn push_ordered<D: Dma>(
        &mut self,
        core: &mut Core,
        mapping: &mut Mapping,
        packet: &Packet,
        ends: bool,
        dma: &mut D,
    ) -> Result<(), Refusal> {
        match mapping.serving.refusing {
            Some(code) if !starts(&packet.headers) => {
                mapping.serving.refusing = if ends { None } else { Some(code) };
                return Err(Refusal::Nak(code));
            }
            _ => mapping.serving.refusing = None,
        }
        let seq = self.responder.window.expected;
        let taken = self.accept(core, seq, packet, dma);
        let taken = taken.and_then(|()| self.execute_packet(core, packet, seq, dma).map_err(Refusal::Nak));
        if let Err(Refusal::Nak(code)) = taken {
            self.responder.message = Message::None;
            mapping.serving.refusing = (!ends).then_some(code);
            self.unpark();
        }
        taken
    }

    /// The message that was to complete the oldest receive is refused after all.
    fn unpark(&mut self) {
        let queue = &mut self.responder.queue;
        if queue.len() > 0 {
            queue.get_mut(queue.head).done = None;
        }
    }

    fn push_weak<D: Dma>(
        &mut self,
        core: &mut Core,
        mapping: &mut Mapping,
        rsn: Rsn,
        packet: &Packet,
        (ends, consumes): (bool, bool),
        dma: &mut D,
    ) -> PushReply {
        let seq = rsn.extend(self.responder.window.expected);
        let oldest = self.responder.queue.head;
        let accepted = self.accept(core, seq, packet, dma);
        // In turn, a receive that cannot take its message fails at once.
        mapping.serving.has_failed_receive |= self.responder.queue.head != oldest;
        let (turn, reply) = match accepted {
            Ok(()) if !ends => (Turn::Quiet, PushReply::Done),
            Ok(()) => (Turn::Ends { consumes }, if consumes { PushReply::Later } else { PushReply::Done }),
            Err(Refusal::NotReady) => return self.put_off(core),
            Err(Refusal::Nak(code)) => (Turn::Refused { code, ends, consumes }, PushReply::Later),
        };
        if seq > self.responder.window.expected {
            core.stats.packets_early += 1;
        }
        *mapping.serving.turn(rsn) = turn;
        self.take_turns(core, mapping, dma);
        reply
    }

    /// With weak order: executes everything whose turn has come.
    pub(super) fn take_turns<D: Dma>(&mut self, core: &mut Core, mapping: &mut Mapping, dma: &mut D) {
        while self.state.receives() && !mapping.serving.abandoned {
            let seq = self.responder.window.expected;
            let rsn: Rsn = seq.wire();
            match std::mem::take(mapping.serving.turn(rsn)) {
                Turn::Blank => return,
                Turn::Quiet => {}
                Turn::Passed => {
                    mapping.serving.abandoned = mapping.errors == FalconErrors::Verbs;
                    self.responder.message_start = seq + 1;
                }
                Turn::Pull { header, length } => {
                    let answer = self.answer_to(core, mapping, rsn, &header, length, dma);
                    mapping.serving.wait(rsn, answer);
                    self.responder.message_start = seq + 1;
                }
                Turn::Refused { code, ends, consumes } => {
                    self.refuse_in_turn(core, mapping, rsn, Turn::Refused { code, ends, consumes });
                }
                Turn::Ends { consumes } => self.end_in_turn(core, mapping, rsn, consumes),
            }
            self.responder.window.advance();
        }
    }

    fn end_in_turn(&mut self, core: &mut Core, mapping: &mut Mapping, rsn: Rsn, consumes: bool) {
        let seq = self.responder.window.expected;
        let done = match mapping.serving.refusing {
            Some(code) => Err(code),
            None => self.end_message(core, seq, consumes),
        };
        match done {
            Ok(()) if consumes => mapping.serving.settle(rsn, None),
            Ok(()) => {}
            Err(code) => self.refuse_in_turn(core, mapping, rsn, Turn::Refused { code, ends: true, consumes }),
        }
    }

    /// With weak order: a packet is refused now that its turn has come, and the rest of its message with it.
    fn refuse_in_turn(&mut self, core: &mut Core, mapping: &mut Mapping, rsn: Rsn, turn: Turn) {
        let Turn::Refused { code, ends, consumes } = turn else { return };
        let code = mapping.serving.refusing.unwrap_or(code);
        let ulp = header::code_of(code);
        if mapping.errors == FalconErrors::Verbs {
            mapping.serving.settle(rsn, Some(NackCode::NonRecoverable { ulp }));
            return self.fail_as_responder(core, code);
        }
        mapping.serving.settle(rsn, Some(NackCode::CompleteInError { ulp }));
        mapping.serving.refusing = (!ends).then_some(code);
        if ends {
            self.responder.message_start = self.responder.window.expected + 1;
            let has_failed = std::mem::take(&mut mapping.serving.has_failed_receive);
            if consumes && !has_failed {
                self.fail_oldest(core, code);
            }
        }
    }

    /// The oldest receive completes in error: its message was refused.
    fn fail_oldest(&mut self, core: &mut Core, code: NakCode) {
        let Ok(counter) = self.oldest_receive(core) else { return };
        let status = match code {
            NakCode::InvalidRequest => WcStatus::LocalLength,
            NakCode::RemoteOperationalError => WcStatus::LocalProtection,
            NakCode::RemoteAccessError | NakCode::PsnSequenceError => WcStatus::LocalQpOperation,
        };
        let queue = &mut self.responder.queue;
        let completion = Completion::failed_receive(self.number, queue.get(counter).wr_id, status);
        queue.head = counter.wrapping_add(1);
        core.complete(self.recv_cq, completion);
    }

    /// Without order: a packet is a message, or a part of a Write that needs no other.
    fn push_alone<D: Dma>(&mut self, core: &mut Core, packet: &Packet, dma: &mut D) -> Result<(), Refusal> {
        let len = packet.payload_len;
        match packet.headers {
            Headers::Write { position, reth: Some(reth), immediate, .. } => {
                self.check_payload(position, len)?;
                if immediate.is_some() && position != Position::Only {
                    return Err(INVALID);
                }
                self.check_right(Access::REMOTE_WRITE)?;
                let Some(word) = immediate else { return self.place_remote(core, reth.va, reth.rkey, len, dma) };
                let counter = self.oldest_receive(core)?;
                self.place_remote(core, reth.va, reth.rkey, len, dma)?;
                self.complete_alone(core, counter, len, RecvTail::WriteImm(word), packet.flags.solicited);
                Ok(())
            }
            Headers::Send { position: Position::Only, tail, .. } => {
                self.check_payload(Position::Only, len)?;
                self.send_alone(core, len, tail, packet.flags.solicited, dma)
            }
            _ => Err(INVALID),
        }
    }

    fn send_alone<D: Dma>(
        &mut self,
        core: &mut Core,
        len: u32,
        tail: SendTail,
        solicited: bool,
        dma: &mut D,
    ) -> Result<(), Refusal> {
        let counter = self.oldest_receive(core)?;
        if u64::from(len) > self.responder.queue.get(counter).capacity {
            self.fail_oldest(core, NakCode::InvalidRequest);
            return Err(INVALID);
        }
        if let SendTail::Invalidate(rkey) = tail {
            core.mrs.check_invalidate(self.pd, self.number, rkey).map_err(|_| DENIED)?;
        }
        let sges = self.responder.queue.sges(counter);
        let place = |at, segment| dma.place(at, segment);
        if for_each_segment(&core.mrs, self.pd, sges, 0, len, Access::LOCAL_WRITE, place).is_err() {
            self.fail_oldest(core, NakCode::RemoteOperationalError);
            return Err(Refusal::Nak(NakCode::RemoteOperationalError));
        }
        let tail = match tail {
            SendTail::Plain => RecvTail::Send,
            SendTail::Immediate(word) => RecvTail::SendImm(word),
            SendTail::Invalidate(rkey) => {
                // Not before the message is where it belongs: that may be the same memory, and one that is refused has
                // not happened.
                core.mrs.invalidate(self.pd, self.number, rkey).map_err(|_| DENIED)?;
                RecvTail::SendInvalidate(rkey)
            }
        };
        self.complete_alone(core, counter, len, tail, solicited);
        Ok(())
    }

    fn complete_alone(&mut self, core: &mut Core, counter: u32, byte_len: u32, tail: RecvTail, solicited: bool) {
        let done = RecvDone { last: self.responder.window.expected, byte_len, tail, solicited };
        let queue = &mut self.responder.queue;
        let wr_id = queue.get(counter).wr_id;
        queue.head = counter.wrapping_add(1);
        self.responder.msn = self.responder.msn.wrapping_add(1);
        core.complete(self.recv_cq, recv_completion(self.number, wr_id, &done));
    }

    /// A Pull, when the transaction layer hands it over.
    pub(super) fn take_pull<D: Dma>(&mut self, core: &mut Core, mapping: &mut Mapping, request: &Request, dma: &mut D) {
        self.note_first_packet(core);
        let Ulp::Rdma(header) = request.ulp else {
            // It cannot even be said in what words it is refused: the answer has the request's headers.
            let answer = Answer { payload_len: 0, length: 0, ulp: request.ulp };
            mapping.serving.wait(request.rsn, answer);
            return self.pass_turn(core, mapping, request.rsn, dma);
        };
        let executes = self.responder.refused.is_none() && !mapping.serving.abandoned;
        if mapping.ordering == FalconOrdering::Weak && executes {
            *mapping.serving.turn(request.rsn) = Turn::Pull { header, length: request.length };
            return self.take_turns(core, mapping, dma);
        }
        let answer = self.answer_to(core, mapping, request.rsn, &header, request.length, dma);
        mapping.serving.wait(request.rsn, answer);
    }

    /// Executes a Pull; answers what is to be said.
    fn answer_to<D: Dma>(
        &mut self,
        core: &mut Core,
        mapping: &mut Mapping,
        rsn: Rsn,
        header: &Header,
        length: u16,
        dma: &mut D,
    ) -> Answer {
        let fetched = match self.responder.refused {
            Some(code) => Err(code),
            None if mapping.serving.abandoned => Err(NakCode::RemoteOperationalError),
            None => self.fetch_for(core, mapping, rsn, header, length, dma),
        };
        let (payload_len, operation, complete_in_error) = match fetched {
            Ok((payload_len, operation)) => (payload_len, operation, false),
            Err(code) => {
                let fails = mapping.errors == FalconErrors::Verbs && !mapping.serving.abandoned;
                if fails && self.responder.refused.is_none() {
                    self.fail_as_responder(core, code);
                }
                (0, refused_fetch(header, code), true)
            }
        };
        let header = Header { dest_qpn: self.dest_qpn, sn: header.sn, solicited: false, complete_in_error, operation };
        let needed = operation.headers_len() + payload_len.next_multiple_of(4);
        // A request that asks for less than it takes to refuse it is refused all the same.
        let length = if complete_in_error { needed.min(length.into()) } else { needed };
        Answer { payload_len, length, ulp: Ulp::Rdma(header) }
    }

    fn fetch_for<D: Dma>(
        &mut self,
        core: &mut Core,
        mapping: &mut Mapping,
        rsn: Rsn,
        header: &Header,
        length: u16,
        dma: &mut D,
    ) -> Result<(u32, Operation), NakCode> {
        let is_between = mapping.ordering != FalconOrdering::Ordered || self.responder.message == Message::None;
        if header.dest_qpn != self.number || self.responder.fetches_max == 0 || !is_between {
            return Err(NakCode::InvalidRequest);
        }
        let fits = |operation: Operation, payload_len: u32| {
            let needed = operation.headers_len() + payload_len.next_multiple_of(4);
            if needed <= u32::from(length) { Ok((payload_len, operation)) } else { Err(NakCode::InvalidRequest) }
        };
        match header.operation {
            Operation::ReadRequest { reth, sink, .. } => {
                if reth.dma_len > self.mtu() {
                    return Err(NakCode::InvalidRequest);
                }
                self.resolve_fetch(core, reth.va, reth.rkey, reth.dma_len, Access::REMOTE_READ)?;
                *mapping.serving.source(rsn) = Source { va: reth.va, rkey: reth.rkey };
                fits(Operation::ReadResponse { position: Position::Only, sink }, reth.dma_len)
            }
            Operation::AtomicRequest { va, rkey, op, sink, .. } => {
                // What cannot be answered is not executed.
                fits(Operation::AtomicResponse { original: 0, sink }, 0)?;
                let local = self.resolve_fetch(core, va, rkey, 8, Access::REMOTE_ATOMIC)?;
                let original = dma::execute(dma, op, local).map_err(|_| NakCode::RemoteAccessError)?;
                Ok((0, Operation::AtomicResponse { original, sink }))
            }
            _ => Err(NakCode::InvalidRequest),
        }
    }

    /// Finds the memory of Pull Data that leaves; false when it is not what the request's key says any more. Then a
    /// Resync leaves in its place, and the initiator decides, as in `qp/fetch/gone.rs`: one that has the data
    /// acknowledges a duplicate, and to one that misses it the Read fails. The target fails with it where verbs have it
    /// so and the data has never left.
    pub(super) fn gather_answer(&self, core: &mut Core, mapping: &mut Mapping, rsn: Rsn, len: u32) -> bool {
        let Source { va, rkey } = *mapping.serving.source(rsn);
        core.segments.clear();
        let Ok(local) = core.mrs.resolve_remote(self.granted(), rkey, va, u64::from(len), Access::REMOTE_READ) else {
            return false;
        };
        core.segments.push(Segment { local, len });
        true
    }

    /// The peer has given up its request `rsn`. On an ordered connection this is its turn.
    pub(super) fn skip_request<D: Dma>(&mut self, core: &mut Core, mapping: &mut Mapping, rsn: Rsn, dma: &mut D) {
        let expected = self.responder.window.expected;
        match (mapping.ordering, mapping.errors) {
            // What is before it may still be under way, and its peer waits for that to end well.
            (FalconOrdering::Weak, _) if rsn.extend(expected) >= expected => self.pass_turn(core, mapping, rsn, dma),
            (_, FalconErrors::Verbs) => mapping.serving.abandoned = true,
            (FalconOrdering::Ordered, _) if self.responder.message != Message::None => {
                self.responder.message = Message::None;
                mapping.serving.refusing = Some(NakCode::InvalidRequest);
                self.unpark();
            }
            (FalconOrdering::Ordered | FalconOrdering::Weak | FalconOrdering::Unordered, _) => {}
        }
    }
}

/// How a Pull is refused: an answer that says "completed in error", and why where its data would be: an atomic's in the
/// place of the value, a Read's in that of the address that its data would have gone to.
fn refused_fetch(header: &Header, code: NakCode) -> Operation {
    let code = u64::from(header::code_of(code));
    match header.operation {
        Operation::AtomicRequest { sink, .. } => Operation::AtomicResponse { original: code, sink },
        _ => Operation::ReadResponse { position: Position::Only, sink: SinkTag { va: code, lkey: 0 } },
    }
}
