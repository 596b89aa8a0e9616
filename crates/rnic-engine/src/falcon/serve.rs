//! Processing of the peer's requests.
//!
//! On an ordered connection, each request is checked, placed and executed when the transaction layer delivers it in
//! order, exactly as RoCE's responder does in order. With weak order, a request is checked and placed when it
//! arrives, and executed when all requests before it have been executed, exactly as IRN's responder does. A request
//! that fails at execution is refused at that time, and so is one that failed its checks when it arrived out of
//! order, so that errors are reported in order. Without order, requests are checked, placed and executed on arrival.
//!
//! This module never refuses a request for lack of resources: an accepted Pull waits for space for its response (Falcon
//! mechanism F-8, and RDMA over Falcon 6.5).

use rnic_base::{LazyQueue, Seq};
use rnic_falcon::transaction::{PullResponse, PushReply, Request};
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

/// State of a queue pair for its peer's requests.
#[derive(Debug)]
pub(super) struct Serving {
    ordering: FalconOrdering,
    errors: FalconErrors,
    /// Number of the request to be executed next, unless the connection is unordered.
    expected: Seq,
    /// Number of entries of the tables; the index of a request is its number modulo this.
    requests_max: usize,
    /// Location of the data of Reads that have been answered, by request; allocated with the first Read.
    sources: Box<[Source]>,
    /// Responses that wait for resources.
    pub(super) pending: LazyQueue<(Rsn, PullResponse)>,
    /// With weak order: requests that cannot be executed yet; allocated with the first request.
    deferred_actions: Box<[DeferredAction]>,
    /// With weak order: results of Pushes that have been executed in order: an acknowledgement, or a refusal.
    pub(super) settled: LazyQueue<(Rsn, Option<NackCode>)>,
    /// With `errors=verbs`: `true` if the peer has sent a Resync for one of its requests, which means that its queue
    /// pair is in error. No request after that is executed; the local queue pair keeps its state until it detects the
    /// failure itself.
    abandoned: bool,
    /// Code with which the rest of the current message is refused, because its first part was refused.
    refusing: Option<NakCode>,
    /// With weak order: `true` if the receive of the current message has already completed in error.
    has_failed_receive: bool,
}

/// Memory that a Read fetches.
#[derive(Clone, Copy, Debug, Default)]
struct Source {
    va: u64,
    rkey: u32,
}

/// Action for a request at the time when all requests before it have been executed.
#[derive(Clone, Copy, Debug, Default)]
enum DeferredAction {
    /// The request has not arrived.
    #[default]
    Blank,
    /// No action, because the data has been placed and the message does not end here.
    Quiet,
    /// The request is the last one of a message.
    Ends {
        /// True when the message consumes a receive; the request is then acknowledged only when it is executed.
        consumes: bool,
    },
    /// The request failed its checks on arrival.
    Refused { code: NakCode, ends: bool, consumes: bool },
    /// The peer has abandoned the request.
    Passed,
    /// A Read or atomic.
    Pull { header: Header, length: u16 },
}

impl Serving {
    /// Returns the state for up to `requests_max` concurrent requests, of which the first has the number `expected`.
    pub(super) fn new(requests_max: u32, shape: &FalconShape, expected: Seq) -> Self {
        Self {
            ordering: shape.ordering,
            errors: shape.errors,
            expected,
            requests_max: requests_max as usize,
            sources: Box::default(),
            pending: LazyQueue::new(),
            deferred_actions: Box::default(),
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
            self.sources = vec![Source::default(); self.requests_max].into_boxed_slice();
        }
        &mut self.sources[rsn.value() as usize & (self.requests_max - 1)]
    }

    /// Returns `true` if results or responses wait to be passed to the transaction layer; responses may also wait for
    /// resources.
    #[inline]
    pub(super) fn has_replies(&self) -> bool {
        !self.settled.is_empty() || !self.pending.is_empty()
    }

    /// Queues a response that waits for resources: the number of waiting responses is bounded by the number of
    /// concurrent requests.
    fn queue_response(&mut self, rsn: Rsn, answer: PullResponse) {
        self.pending.get_or_allocate(self.requests_max).push_back((rsn, answer));
    }

    fn settle(&mut self, rsn: Rsn, refused: Option<NackCode>) {
        self.settled.get_or_allocate(self.requests_max).push_back((rsn, refused));
    }

    fn deferred(&mut self, rsn: Rsn) -> &mut DeferredAction {
        if self.deferred_actions.is_empty() {
            self.deferred_actions = vec![DeferredAction::Blank; self.requests_max].into_boxed_slice();
        }
        &mut self.deferred_actions[rsn.value() as usize & (self.requests_max - 1)]
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
    pub(super) fn on_push<D: Dma>(
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
                // The peer treats this queue pair as one for NVMe. The Push is answered with an error, and the queue
                // pair continues to operate.
                self.skip_deferred(verbs, core, request.rsn, dma);
                return PushReply::CompleteInError(PeerError::NoNvme.code());
            }
            Ulp::None => return self.refuse_header(verbs, core, request, (true, false), dma),
        };
        if !verbs.head.state.receives() {
            return PushReply::InvalidCid;
        }
        let ends = header::ends_and_consumes_receive(&header);
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
        let accepted = match self.ordering {
            FalconOrdering::Ordered => self.push_ordered(verbs, core, &packet, ends.0, dma),
            FalconOrdering::Weak => return self.push_weak(verbs, core, request.rsn, &packet, ends, dma),
            FalconOrdering::Unordered => self.push_unordered(verbs, core, &packet, dma),
        };
        match accepted {
            Ok(()) => PushReply::Done,
            Err(Refusal::NotReady) => self.defer(verbs, core),
            Err(Refusal::Nak(code)) => self.refuse_push(verbs, core, code),
        }
    }

    /// Refuses a Push with invalid headers; `ends` and `consumes` state whether it is the last one of a message and
    /// whether it would consume a receive. With weak order, it is refused in order, as all requests are, because the
    /// requests after it wait for that.
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
        *self.deferred(request.rsn) = DeferredAction::Refused { code, ends, consumes };
        self.execute_deferred(verbs, core, dma);
        PushReply::Later
    }

    /// With weak order: marks `rsn` as skipped, so that later requests need not wait for it.
    fn skip_deferred<D: Dma>(&mut self, verbs: &mut Verbs, core: &mut Core, rsn: Rsn, dma: &mut D) {
        if self.ordering == FalconOrdering::Weak {
            *self.deferred(rsn) = DeferredAction::Passed;
            self.execute_deferred(verbs, core, dma);
        }
    }

    fn defer(&self, verbs: &mut Verbs, core: &mut Core) -> PushReply {
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
        let accepted = verbs.recv.take(&verbs.head, core, (self.expected, seq), packet, dma);
        let accepted = accepted.and_then(|()| self.execute(verbs, core, packet).map_err(Refusal::Nak));
        if let Err(Refusal::Nak(code)) = accepted {
            verbs.recv.message = Message::None;
            self.refusing = (!ends).then_some(code);
            verbs.recv.withdraw_deferred();
        }
        accepted
    }

    /// Executes the expected packet, which has just been accepted, and advances to the next one.
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
        // When the packet is in order, a receive that is too small for its message fails immediately.
        self.has_failed_receive |= verbs.recv.queue.head != oldest;
        let (action, reply) = match accepted {
            Ok(()) if !ends => (DeferredAction::Quiet, PushReply::Done),
            Ok(()) => (DeferredAction::Ends { consumes }, if consumes { PushReply::Later } else { PushReply::Done }),
            Err(Refusal::NotReady) => return self.defer(verbs, core),
            Err(Refusal::Nak(code)) => (DeferredAction::Refused { code, ends, consumes }, PushReply::Later),
        };
        if seq > self.expected {
            core.stats.packets_out_of_order += 1;
        }
        *self.deferred(rsn) = action;
        self.execute_deferred(verbs, core, dma);
        reply
    }

    /// With weak order: executes all requests that are next in order.
    pub(super) fn execute_deferred<D: Dma>(&mut self, verbs: &mut Verbs, core: &mut Core, dma: &mut D) {
        while verbs.head.state.receives() && !self.abandoned {
            let seq = self.expected;
            let rsn: Rsn = seq.wire();
            match std::mem::take(self.deferred(rsn)) {
                DeferredAction::Blank => return,
                DeferredAction::Quiet => {}
                DeferredAction::Passed => {
                    self.abandoned = self.errors == FalconErrors::Verbs;
                    verbs.recv.message_start = seq + 1;
                }
                DeferredAction::Pull { header, length } => {
                    let answer = self.response_to(verbs, core, rsn, &header, length, dma);
                    self.queue_response(rsn, answer);
                    verbs.recv.message_start = seq + 1;
                }
                DeferredAction::Refused { code, ends, consumes } => {
                    self.refuse_deferred(verbs, core, rsn, DeferredAction::Refused { code, ends, consumes });
                }
                DeferredAction::Ends { consumes } => self.end_deferred(verbs, core, rsn, consumes),
            }
            self.expected += 1;
        }
    }

    fn end_deferred(&mut self, verbs: &mut Verbs, core: &mut Core, rsn: Rsn, consumes: bool) {
        let seq = self.expected;
        let done = match self.refusing {
            Some(code) => Err(code),
            None => verbs.recv.end_message(&verbs.head, core, seq, consumes),
        };
        match done {
            Ok(()) if consumes => self.settle(rsn, None),
            Ok(()) => {}
            Err(code) => self.refuse_deferred(verbs, core, rsn, DeferredAction::Refused { code, ends: true, consumes }),
        }
    }

    /// With weak order: refuses the packet that is next in order, and with it the rest of its message.
    fn refuse_deferred(&mut self, verbs: &mut Verbs, core: &mut Core, rsn: Rsn, action: DeferredAction) {
        let DeferredAction::Refused { code, ends, consumes } = action else { return };
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

    /// Without order: processes a packet that is a complete message, or a part of a Write, which does not depend on
    /// other parts of the message.
    fn push_unordered<D: Dma>(
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
                verbs.recv.complete_unordered(&verbs.head, core, counter, &done);
                Ok(())
            }
            Headers::Send { position: Position::Only, tail, .. } => {
                verbs.head.check_payload(Position::Only, len)?;
                self.send_unordered(verbs, core, len, tail, packet.flags.solicited, dma)
            }
            _ => Err(INVALID),
        }
    }

    fn send_unordered<D: Dma>(
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
        verbs.recv.complete_unordered(&verbs.head, core, counter, &done);
        Ok(())
    }

    /// Processes a Pull that the transaction layer delivers.
    pub(super) fn on_pull<D: Dma>(&mut self, verbs: &mut Verbs, core: &mut Core, request: &Request, dma: &mut D) {
        verbs.recv.note_first_packet(&verbs.head, core);
        let Ulp::Rdma(header) = request.ulp else {
            // For a Pull with NVMe headers, `rnic-nvme` provides the response. A Pull without headers gets a response
            // without headers.
            let nothing = PullResponse { payload_len: 0, length: 0, ulp: request.ulp };
            let answer = rnic_nvme::no_nvme_response(request).unwrap_or(nothing);
            self.queue_response(request.rsn, answer);
            return self.skip_deferred(verbs, core, request.rsn, dma);
        };
        let may_execute = verbs.recv.refused.is_none() && !self.abandoned;
        if self.ordering == FalconOrdering::Weak && may_execute {
            *self.deferred(request.rsn) = DeferredAction::Pull { header, length: request.length };
            return self.execute_deferred(verbs, core, dma);
        }
        let answer = self.response_to(verbs, core, request.rsn, &header, request.length, dma);
        self.queue_response(request.rsn, answer);
    }

    /// Executes a Pull; returns the response.
    fn response_to<D: Dma>(
        &mut self,
        verbs: &mut Verbs,
        core: &mut Core,
        rsn: Rsn,
        header: &Header,
        length: u16,
        dma: &mut D,
    ) -> PullResponse {
        let result = match verbs.recv.refused {
            Some(code) => Err(code),
            None if self.abandoned => Err(NakCode::RemoteOperationalError),
            None => self.fetch_for(verbs, core, rsn, header, length, dma),
        };
        let (payload_len, operation, complete_in_error) = match result {
            Ok((payload_len, operation)) => (payload_len, operation, false),
            Err(code) => {
                let fails_qp = self.errors == FalconErrors::Verbs && !self.abandoned;
                if fails_qp && verbs.recv.refused.is_none() {
                    verbs.fail_as_responder(core, code);
                }
                (0, refused_fetch(header, code), true)
            }
        };
        let header =
            Header { dest_qpn: verbs.head.dest_qpn, sn: header.sn, solicited: false, complete_in_error, operation };
        let needed_bytes = operation.headers_len() + payload_len.next_multiple_of(4);
        // A request is refused even if the response length that it announces is too short for a refusal.
        let length = if complete_in_error { needed_bytes.min(length.into()) } else { needed_bytes };
        PullResponse { payload_len, length, ulp: Ulp::Rdma(header) }
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
        let is_between_messages = self.ordering != FalconOrdering::Ordered || verbs.recv.message == Message::None;
        if header.dest_qpn != verbs.head.number || verbs.recv.fetches_max == 0 || !is_between_messages {
            return Err(NakCode::InvalidRequest);
        }
        let check_length = |operation: Operation, payload_len: u32| {
            let needed_bytes = operation.headers_len() + payload_len.next_multiple_of(4);
            if needed_bytes <= u32::from(length) { Ok((payload_len, operation)) } else { Err(NakCode::InvalidRequest) }
        };
        match header.operation {
            Operation::ReadRequest { reth, sink, .. } => {
                if reth.dma_len > verbs.head.mtu() {
                    return Err(NakCode::InvalidRequest);
                }
                verbs.head.resolve_fetch(core, reth.va, reth.rkey, reth.dma_len, Access::REMOTE_READ)?;
                *self.source(rsn) = Source { va: reth.va, rkey: reth.rkey };
                check_length(Operation::ReadResponse { position: Position::Only, sink }, reth.dma_len)
            }
            Operation::AtomicRequest { va, rkey, op, sink, .. } => {
                // A request whose response does not fit is not executed.
                check_length(Operation::AtomicResponse { original: 0, sink }, 0)?;
                let local = verbs.head.resolve_fetch(core, va, rkey, 8, Access::REMOTE_ATOMIC)?;
                let original = dma::execute(dma, op, local).map_err(|_| NakCode::RemoteAccessError)?;
                Ok((0, Operation::AtomicResponse { original, sink }))
            }
            _ => Err(NakCode::InvalidRequest),
        }
    }

    /// Finds the memory of Pull Data to be sent; returns `false` when the request's key no longer covers it. In this
    /// case a Resync is sent instead, and the result depends on the initiator, as in `roce/fetch/refused_fetch.rs`:
    /// if the initiator already has the data, it acknowledges the Resync as a duplicate; otherwise its Read fails.
    /// The target fails too if verbs require it and the data has never been sent.
    pub(super) fn gather_response(&mut self, verbs: &Verbs, core: &mut Core, rsn: Rsn, len: u32) -> bool {
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

    /// Handles the abandonment of request `rsn` by the peer. On an ordered connection, this is called in order.
    pub(super) fn skip_request<D: Dma>(&mut self, verbs: &mut Verbs, core: &mut Core, rsn: Rsn, dma: &mut D) {
        let expected = self.expected;
        match (self.ordering, self.errors) {
            // Requests before this one may still be in flight, and the peer expects them to succeed.
            (FalconOrdering::Weak, _) if rsn.extend(expected) >= expected => self.skip_deferred(verbs, core, rsn, dma),
            (_, FalconErrors::Verbs) => self.abandoned = true,
            (FalconOrdering::Ordered, _) if verbs.recv.message != Message::None => {
                verbs.recv.message = Message::None;
                self.refusing = Some(NakCode::InvalidRequest);
                verbs.recv.withdraw_deferred();
            }
            (FalconOrdering::Ordered | FalconOrdering::Weak | FalconOrdering::Unordered, _) => {}
        }
    }
}

/// Completes the oldest receive with an error status, because its message was refused.
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

/// Returns the refusal of a Pull: a response with "completed in error" and the code instead of the data: for an
/// atomic it replaces the value, for a Read the address at which the data would be placed.
fn refused_fetch(header: &Header, code: NakCode) -> Operation {
    let code = u64::from(header::code_of(code));
    match header.operation {
        Operation::AtomicRequest { sink, .. } => Operation::AtomicResponse { original: code, sink },
        _ => Operation::ReadResponse { position: Position::Only, sink: SinkTag { va: code, lkey: 0 } },
    }
}
