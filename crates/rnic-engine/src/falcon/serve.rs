//! Processing of the peer's requests.
//!
//! On an ordered connection each request is checked, placed and executed when the transaction layer delivers it in
//! order, exactly as RoCE's responder does in order. With weak order it is checked and placed when it arrives, and
//! executed when everything before it has been executed, exactly as IRN's responder does; requests that fail at
//! execution are refused then, and so are requests that failed their checks when they arrived out of order: errors stay
//! in order. Without order everything happens on arrival.
//!
//! No request is refused because of missing resources here: an accepted Pull waits for space for its response (F-8, and
//! RDMA over Falcon 6.5).

use rnic_base::{LazyQueue, Seq};
use rnic_falcon::transaction::{Answer, PushReply, Request};
use rnic_nvme::PeerError;
use rnic_policy::{FalconErrors, FalconOrdering, FalconShape};
use rnic_wire::falcon::rdma::{Header, Operation, SinkTag};
use rnic_wire::falcon::{NackCode, Rsn, Ulp};
use rnic_wire::{Headers, NakCode, Packet, Position, SendTail};

use super::header;
use crate::completion::WcStatus;
use crate::core::Core;
use crate::dma::{self, Dma, Segment};
use crate::mr::Access;
use crate::verbs::Verbs;
use crate::verbs::gather::for_each_segment;
use crate::verbs::recv::{Message, Refusal};
use crate::wq::{RecvDone, RecvTail};

const INVALID: Refusal = Refusal::Nak(NakCode::InvalidRequest);
const DENIED: Refusal = Refusal::Nak(NakCode::RemoteAccessError);

/// State that a queue pair keeps for its peer's requests.
#[derive(Debug)]
pub(super) struct Serving {
    ordering: FalconOrdering,
    errors: FalconErrors,
    /// Number of the request that is executed next, where there is an order.
    expected: Seq,
    /// Number of entries of the tables; request numbers are taken modulo this.
    places: usize,
    /// Location of the data of answered Reads, by request; allocated with the first.
    sources: Box<[Source]>,
    /// Responses that wait for resources.
    pub(super) pending: LazyQueue<(Rsn, Answer)>,
    /// With weak order: requests that cannot be executed yet; allocated with the first.
    turns: Box<[Turn]>,
    /// With weak order: results of Pushes that have been executed in turn: an acknowledgement, or a refusal.
    pub(super) settled: LazyQueue<(Rsn, Option<NackCode>)>,
    /// With `errors=verbs`: set when the peer has sent a Resync for one of its requests, so its queue pair is in error.
    /// No request after that is executed; the local queue pair stays as it is until it detects the failure itself.
    abandoned: bool,
    /// Code with which the rest of the current message is refused, because its first part was refused.
    refusing: Option<NakCode>,
    /// With weak order: set when the receive of the current message has already completed in error.
    has_failed_receive: bool,
}

/// Memory that a Read fetches.
#[derive(Clone, Copy, Debug, Default)]
struct Source {
    va: u64,
    rkey: u32,
}

/// Action for a request when everything before it has been executed.
#[derive(Clone, Copy, Debug, Default)]
enum Turn {
    /// The request has not arrived.
    #[default]
    Blank,
    /// No action: the data has been placed.
    Quiet,
    /// A message ends.
    Ends {
        /// True when the message consumes a receive; then the request is acknowledged only when executed.
        consumes: bool,
    },
    /// The request failed its checks on arrival.
    Refused { code: NakCode, ends: bool, consumes: bool },
    /// The peer has given up the request.
    Passed,
    /// A Read or atomic.
    Pull { header: Header, length: u16 },
}

impl Serving {
    /// Returns the state for `places` requests that can be distinguished; the first is `expected`.
    pub(super) fn new(places: u32, shape: &FalconShape, expected: Seq) -> Self {
        Self {
            ordering: shape.ordering,
            errors: shape.errors,
            expected,
            places: places as usize,
            sources: Box::default(),
            pending: LazyQueue::new(),
            turns: Box::default(),
            settled: LazyQueue::new(),
            abandoned: false,
            refusing: None,
            has_failed_receive: false,
        }
    }

    /// Returns the error handling mode.
    pub(super) fn errors(&self) -> FalconErrors {
        self.errors
    }

    fn source(&mut self, rsn: Rsn) -> &mut Source {
        if self.sources.is_empty() {
            self.sources = vec![Source::default(); self.places].into_boxed_slice();
        }
        &mut self.sources[rsn.value() as usize & (self.places - 1)]
    }

    /// Returns whether results or responses wait to be passed on; responses may also wait for resources.
    #[inline]
    pub(super) fn has_replies(&self) -> bool {
        !self.settled.is_empty() || !self.pending.is_empty()
    }

    /// Queues a response that waits for resources: at most as many can wait as there can be requests.
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

impl Serving {
    /// Processes a Push that the transaction layer delivers.
    pub(super) fn take_push<D: Dma>(
        &mut self,
        verbs: &mut Verbs,
        core: &mut Core,
        request: &Request,
        dma: &mut D,
    ) -> PushReply {
        if let Some(code) = verbs.recv.refused {
            return PushReply::NonRecoverable(header::code_of(code));
        }
        let header = match request.ulp {
            Ulp::Rdma(header) => header,
            Ulp::Nvme(_) => {
                // The peer treats this queue pair as one for NVMe: the Push is answered with an error, and the queue
                // pair continues.
                self.pass_turn(verbs, core, request.rsn, dma);
                return PushReply::CompleteInError(PeerError::NoNvme.code());
            }
            Ulp::None => return self.refuse_header(verbs, core, request, (true, false), dma),
        };
        if !verbs.head.state.receives() {
            return PushReply::InvalidCid;
        }
        let ends = header::ends(&header);
        if header.dest_qpn != verbs.head.number {
            return match self.ordering {
                FalconOrdering::Weak => self.refuse_header(verbs, core, request, ends, dma),
                FalconOrdering::Ordered | FalconOrdering::Unordered => PushReply::InvalidCid,
            };
        }
        if self.abandoned {
            return PushReply::NonRecoverable(header::code_of(NakCode::RemoteOperationalError));
        }
        verbs.recv.note_first_packet(&verbs.head, core);
        let Some(packet) = header::request(&header, request.payload_len, verbs.head.mtu()) else {
            return self.refuse_header(verbs, core, request, ends, dma);
        };
        let taken = match self.ordering {
            FalconOrdering::Ordered => self.push_ordered(verbs, core, &packet, ends.0, dma),
            FalconOrdering::Weak => return self.push_weak(verbs, core, request.rsn, &packet, ends, dma),
            FalconOrdering::Unordered => self.push_alone(verbs, core, &packet, dma),
        };
        match taken {
            Ok(()) => PushReply::Done,
            Err(Refusal::NotReady) => self.put_off(verbs, core),
            Err(Refusal::Nak(code)) => self.refuse_push(verbs, core, code),
        }
    }

    /// Refuses a Push with invalid headers; `ends` and `consumes` state whether a message ends with it and would
    /// consume a receive. With weak order it is refused in its turn, like all others, because the requests behind it
    /// wait for that.
    fn refuse_header<D: Dma>(
        &mut self,
        verbs: &mut Verbs,
        core: &mut Core,
        request: &Request,
        (ends, consumes): (bool, bool),
        dma: &mut D,
    ) -> PushReply {
        let code = NakCode::InvalidRequest;
        if self.ordering != FalconOrdering::Weak {
            return self.refuse_push(verbs, core, code);
        }
        *self.turn(request.rsn) = Turn::Refused { code, ends, consumes };
        self.take_turns(verbs, core, dma);
        PushReply::Later
    }

    /// With weak order: marks `rsn` as passed, so that the requests behind it need not wait for it.
    fn pass_turn<D: Dma>(&mut self, verbs: &mut Verbs, core: &mut Core, rsn: Rsn, dma: &mut D) {
        if self.ordering == FalconOrdering::Weak {
            *self.turn(rsn) = Turn::Passed;
            self.take_turns(verbs, core, dma);
        }
    }

    fn put_off(&self, verbs: &mut Verbs, core: &mut Core) -> PushReply {
        core.stats.rnr_naks_sent += 1;
        verbs.stats.rnr_naks_sent += 1;
        PushReply::NotReady(verbs.head.min_rnr_timer)
    }

    fn refuse_push(&self, verbs: &mut Verbs, core: &mut Core, code: NakCode) -> PushReply {
        match self.errors {
            FalconErrors::CompleteInError => PushReply::CompleteInError(header::code_of(code)),
            FalconErrors::Verbs => {
                verbs.fail_as_responder(core, code);
                PushReply::NonRecoverable(header::code_of(code))
            }
        }
    }

    fn push_ordered<D: Dma>(
        &mut self,
        verbs: &mut Verbs,
        core: &mut Core,
        packet: &Packet,
        ends: bool,
        dma: &mut D,
    ) -> Result<(), Refusal> {
        match self.refusing {
            Some(code) if !starts(&packet.headers) => {
                self.refusing = if ends { None } else { Some(code) };
                return Err(Refusal::Nak(code));
            }
            _ => self.refusing = None,
        }
        let seq = self.expected;
        let taken = verbs.recv.take(&verbs.head, core, (self.expected, seq), packet, dma);
        let taken = taken.and_then(|()| self.execute(verbs, core, packet).map_err(Refusal::Nak));
        if let Err(Refusal::Nak(code)) = taken {
            verbs.recv.message = Message::None;
            self.refusing = (!ends).then_some(code);
            verbs.recv.unpark();
        }
        taken
    }

    /// Executes the expected packet, which has just been accepted, and expects the next one.
    fn execute(&mut self, verbs: &mut Verbs, core: &mut Core, packet: &Packet) -> Result<(), NakCode> {
        let (ends, consumes) = match packet.headers {
            Headers::Send { position, .. } => (position.ends(), true),
            Headers::Write { position, immediate, .. } => (position.ends(), immediate.is_some()),
            _ => return Err(NakCode::InvalidRequest),
        };
        if ends {
            verbs.recv.end_message(&verbs.head, core, self.expected, consumes)?;
        }
        self.expected += 1;
        Ok(())
    }

    fn push_weak<D: Dma>(
        &mut self,
        verbs: &mut Verbs,
        core: &mut Core,
        rsn: Rsn,
        packet: &Packet,
        (ends, consumes): (bool, bool),
        dma: &mut D,
    ) -> PushReply {
        let seq = rsn.extend(self.expected);
        let oldest = verbs.recv.queue.head;
        let accepted = verbs.recv.take(&verbs.head, core, (self.expected, seq), packet, dma);
        // In order, a receive that cannot hold its message fails immediately.
        self.has_failed_receive |= verbs.recv.queue.head != oldest;
        let (turn, reply) = match accepted {
            Ok(()) if !ends => (Turn::Quiet, PushReply::Done),
            Ok(()) => (Turn::Ends { consumes }, if consumes { PushReply::Later } else { PushReply::Done }),
            Err(Refusal::NotReady) => return self.put_off(verbs, core),
            Err(Refusal::Nak(code)) => (Turn::Refused { code, ends, consumes }, PushReply::Later),
        };
        if seq > self.expected {
            core.stats.packets_early += 1;
        }
        *self.turn(rsn) = turn;
        self.take_turns(verbs, core, dma);
        reply
    }

    /// With weak order: executes all requests whose turn has come.
    pub(super) fn take_turns<D: Dma>(&mut self, verbs: &mut Verbs, core: &mut Core, dma: &mut D) {
        while verbs.head.state.receives() && !self.abandoned {
            let seq = self.expected;
            let rsn: Rsn = seq.wire();
            match std::mem::take(self.turn(rsn)) {
                Turn::Blank => return,
                Turn::Quiet => {}
                Turn::Passed => {
                    self.abandoned = self.errors == FalconErrors::Verbs;
                    verbs.recv.message_start = seq + 1;
                }
                Turn::Pull { header, length } => {
                    let answer = self.answer_to(verbs, core, rsn, &header, length, dma);
                    self.wait(rsn, answer);
                    verbs.recv.message_start = seq + 1;
                }
                Turn::Refused { code, ends, consumes } => {
                    self.refuse_in_turn(verbs, core, rsn, Turn::Refused { code, ends, consumes });
                }
                Turn::Ends { consumes } => self.end_in_turn(verbs, core, rsn, consumes),
            }
            self.expected += 1;
        }
    }

    fn end_in_turn(&mut self, verbs: &mut Verbs, core: &mut Core, rsn: Rsn, consumes: bool) {
        let seq = self.expected;
        let done = match self.refusing {
            Some(code) => Err(code),
            None => verbs.recv.end_message(&verbs.head, core, seq, consumes),
        };
        match done {
            Ok(()) if consumes => self.settle(rsn, None),
            Ok(()) => {}
            Err(code) => self.refuse_in_turn(verbs, core, rsn, Turn::Refused { code, ends: true, consumes }),
        }
    }

    /// With weak order: refuses a packet whose turn has come, and the rest of its message with it.
    fn refuse_in_turn(&mut self, verbs: &mut Verbs, core: &mut Core, rsn: Rsn, turn: Turn) {
        let Turn::Refused { code, ends, consumes } = turn else { return };
        let code = self.refusing.unwrap_or(code);
        let ulp = header::code_of(code);
        if self.errors == FalconErrors::Verbs {
            self.settle(rsn, Some(NackCode::NonRecoverable { ulp }));
            return verbs.fail_as_responder(core, code);
        }
        self.settle(rsn, Some(NackCode::CompleteInError { ulp }));
        self.refusing = (!ends).then_some(code);
        if ends {
            verbs.recv.message_start = self.expected + 1;
            let has_failed = std::mem::take(&mut self.has_failed_receive);
            if consumes && !has_failed {
                fail_oldest(verbs, core, code);
            }
        }
    }

    /// Without order: processes a packet that is a complete message, or a part of a Write that needs no other.
    fn push_alone<D: Dma>(
        &mut self,
        verbs: &mut Verbs,
        core: &mut Core,
        packet: &Packet,
        dma: &mut D,
    ) -> Result<(), Refusal> {
        let len = packet.payload_len;
        match packet.headers {
            Headers::Write { position, reth: Some(reth), immediate, .. } => {
                verbs.head.check_payload(position, len)?;
                if immediate.is_some() && position != Position::Only {
                    return Err(INVALID);
                }
                verbs.head.check_right(Access::REMOTE_WRITE)?;
                let Some(word) = immediate else { return verbs.head.place_remote(core, reth.va, reth.rkey, len, dma) };
                let counter = verbs.recv.oldest_receive(&verbs.head, core)?;
                verbs.head.place_remote(core, reth.va, reth.rkey, len, dma)?;
                let (tail, solicited) = (RecvTail::WriteImm(word), packet.flags.solicited);
                let done = RecvDone { last: self.expected, byte_len: len, tail, solicited };
                verbs.recv.complete_alone(&verbs.head, core, counter, &done);
                Ok(())
            }
            Headers::Send { position: Position::Only, tail, .. } => {
                verbs.head.check_payload(Position::Only, len)?;
                self.send_alone(verbs, core, len, tail, packet.flags.solicited, dma)
            }
            _ => Err(INVALID),
        }
    }

    fn send_alone<D: Dma>(
        &mut self,
        verbs: &mut Verbs,
        core: &mut Core,
        len: u32,
        tail: SendTail,
        solicited: bool,
        dma: &mut D,
    ) -> Result<(), Refusal> {
        let counter = verbs.recv.oldest_receive(&verbs.head, core)?;
        if u64::from(len) > verbs.recv.queue.get(counter).capacity {
            fail_oldest(verbs, core, NakCode::InvalidRequest);
            return Err(INVALID);
        }
        if let SendTail::Invalidate(rkey) = tail {
            core.objects.mrs.check_invalidate(verbs.head.pd, verbs.head.number, rkey).map_err(|_| DENIED)?;
        }
        let sges = verbs.recv.queue.sges(counter);
        let place = |at, segment| dma.place(at, segment);
        if for_each_segment(&core.objects.mrs, verbs.head.pd, sges, 0, len, Access::LOCAL_WRITE, place).is_err() {
            fail_oldest(verbs, core, NakCode::RemoteOperationalError);
            return Err(Refusal::Nak(NakCode::RemoteOperationalError));
        }
        let tail = match tail {
            SendTail::Plain => RecvTail::Send,
            SendTail::Immediate(word) => RecvTail::SendImm(word),
            SendTail::Invalidate(rkey) => {
                // The key is invalidated only after the message has been placed, because both may refer to the same
                // memory, and a refused message must have no effect.
                core.objects.mrs.invalidate(verbs.head.pd, verbs.head.number, rkey).map_err(|_| DENIED)?;
                RecvTail::SendInvalidate(rkey)
            }
        };
        let done = RecvDone { last: self.expected, byte_len: len, tail, solicited };
        verbs.recv.complete_alone(&verbs.head, core, counter, &done);
        Ok(())
    }

    /// Processes a Pull that the transaction layer delivers.
    pub(super) fn take_pull<D: Dma>(&mut self, verbs: &mut Verbs, core: &mut Core, request: &Request, dma: &mut D) {
        verbs.recv.note_first_packet(&verbs.head, core);
        let Ulp::Rdma(header) = request.ulp else {
            // NVMe has a response for this case. A Pull without headers gets a response without headers.
            let nothing = Answer { payload_len: 0, length: 0, ulp: request.ulp };
            let answer = rnic_nvme::answer_of_none(request).unwrap_or(nothing);
            self.wait(request.rsn, answer);
            return self.pass_turn(verbs, core, request.rsn, dma);
        };
        let executes = verbs.recv.refused.is_none() && !self.abandoned;
        if self.ordering == FalconOrdering::Weak && executes {
            *self.turn(request.rsn) = Turn::Pull { header, length: request.length };
            return self.take_turns(verbs, core, dma);
        }
        let answer = self.answer_to(verbs, core, request.rsn, &header, request.length, dma);
        self.wait(request.rsn, answer);
    }

    /// Executes a Pull; returns the response.
    fn answer_to<D: Dma>(
        &mut self,
        verbs: &mut Verbs,
        core: &mut Core,
        rsn: Rsn,
        header: &Header,
        length: u16,
        dma: &mut D,
    ) -> Answer {
        let fetched = match verbs.recv.refused {
            Some(code) => Err(code),
            None if self.abandoned => Err(NakCode::RemoteOperationalError),
            None => self.fetch_for(verbs, core, rsn, header, length, dma),
        };
        let (payload_len, operation, complete_in_error) = match fetched {
            Ok((payload_len, operation)) => (payload_len, operation, false),
            Err(code) => {
                let fails = self.errors == FalconErrors::Verbs && !self.abandoned;
                if fails && verbs.recv.refused.is_none() {
                    verbs.fail_as_responder(core, code);
                }
                (0, refused_fetch(header, code), true)
            }
        };
        let header =
            Header { dest_qpn: verbs.head.dest_qpn, sn: header.sn, solicited: false, complete_in_error, operation };
        let needed = operation.headers_len() + payload_len.next_multiple_of(4);
        // A request that announces a response shorter than a refusal is refused nevertheless.
        let length = if complete_in_error { needed.min(length.into()) } else { needed };
        Answer { payload_len, length, ulp: Ulp::Rdma(header) }
    }

    fn fetch_for<D: Dma>(
        &mut self,
        verbs: &mut Verbs,
        core: &mut Core,
        rsn: Rsn,
        header: &Header,
        length: u16,
        dma: &mut D,
    ) -> Result<(u32, Operation), NakCode> {
        let is_between = self.ordering != FalconOrdering::Ordered || verbs.recv.message == Message::None;
        if header.dest_qpn != verbs.head.number || verbs.recv.fetches_max == 0 || !is_between {
            return Err(NakCode::InvalidRequest);
        }
        let fits = |operation: Operation, payload_len: u32| {
            let needed = operation.headers_len() + payload_len.next_multiple_of(4);
            if needed <= u32::from(length) { Ok((payload_len, operation)) } else { Err(NakCode::InvalidRequest) }
        };
        match header.operation {
            Operation::ReadRequest { reth, sink, .. } => {
                if reth.dma_len > verbs.head.mtu() {
                    return Err(NakCode::InvalidRequest);
                }
                verbs.head.resolve_fetch(core, reth.va, reth.rkey, reth.dma_len, Access::REMOTE_READ)?;
                *self.source(rsn) = Source { va: reth.va, rkey: reth.rkey };
                fits(Operation::ReadResponse { position: Position::Only, sink }, reth.dma_len)
            }
            Operation::AtomicRequest { va, rkey, op, sink, .. } => {
                // A request whose response does not fit is not executed.
                fits(Operation::AtomicResponse { original: 0, sink }, 0)?;
                let local = verbs.head.resolve_fetch(core, va, rkey, 8, Access::REMOTE_ATOMIC)?;
                let original = dma::execute(dma, op, local).map_err(|_| NakCode::RemoteAccessError)?;
                Ok((0, Operation::AtomicResponse { original, sink }))
            }
            _ => Err(NakCode::InvalidRequest),
        }
    }

    /// Finds the memory of Pull Data to be sent; returns false when the request's key no longer covers it. Then a
    /// Resync is sent in its place, and the result depends on the initiator, as in `qp/fetch/gone.rs`: an initiator
    /// that has the data acknowledges a duplicate, and for one that misses it the Read fails. The target fails too
    /// where verbs require it and the data has never been sent.
    pub(super) fn gather_answer(&mut self, verbs: &Verbs, core: &mut Core, rsn: Rsn, len: u32) -> bool {
        let Source { va, rkey } = *self.source(rsn);
        core.segments.clear();
        let Ok(local) =
            core.objects.mrs.resolve_remote(verbs.head.granted(), rkey, va, u64::from(len), Access::REMOTE_READ)
        else {
            return false;
        };
        core.segments.push(Segment { local, len });
        true
    }

    /// Handles a request `rsn` that the peer has given up. On an ordered connection this is called in order.
    pub(super) fn skip_request<D: Dma>(&mut self, verbs: &mut Verbs, core: &mut Core, rsn: Rsn, dma: &mut D) {
        let expected = self.expected;
        match (self.ordering, self.errors) {
            // Requests before it may still be in flight, and the peer waits for their success.
            (FalconOrdering::Weak, _) if rsn.extend(expected) >= expected => self.pass_turn(verbs, core, rsn, dma),
            (_, FalconErrors::Verbs) => self.abandoned = true,
            (FalconOrdering::Ordered, _) if verbs.recv.message != Message::None => {
                verbs.recv.message = Message::None;
                self.refusing = Some(NakCode::InvalidRequest);
                verbs.recv.unpark();
            }
            (FalconOrdering::Ordered | FalconOrdering::Weak | FalconOrdering::Unordered, _) => {}
        }
    }
}

/// Completes the oldest receive in error, because its message was refused.
fn fail_oldest(verbs: &mut Verbs, core: &mut Core, code: NakCode) {
    let Verbs { head, recv, .. } = verbs;
    if recv.oldest_receive(head, core).is_err() {
        return;
    }
    let status = match code {
        NakCode::InvalidRequest => WcStatus::LocalLength,
        NakCode::RemoteOperationalError => WcStatus::LocalProtection,
        NakCode::RemoteAccessError | NakCode::PsnSequenceError => WcStatus::LocalQpOperation,
    };
    recv.fail_oldest(head, core, status);
}

/// Returns the refusal of a Pull: a response with "completed in error" and the code in place of the data: for an atomic
/// in place of the value, for a Read in place of the address at which the data would be placed.
fn refused_fetch(header: &Header, code: NakCode) -> Operation {
    let code = u64::from(header::code_of(code));
    match header.operation {
        Operation::AtomicRequest { sink, .. } => Operation::AtomicResponse { original: code, sink },
        _ => Operation::ReadResponse { position: Position::Only, sink: SinkTag { va: code, lkey: 0 } },
    }
}
