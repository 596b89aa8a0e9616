//! Local transactions, from the upper layer's request to its completion (specification Rev 0.9, section 8.4).
//!
//! ```text
//!   Push   submitted -> sent -> acknowledged by the target's upper layer -> completed
//!   Pull   submitted -> sent -> acknowledged on receipt -> data received -> completed
//! ```
//!
//! An entry becomes blank after its completion was delivered *and* its packet was acknowledged; for a Pull, either
//! may happen first. A transaction that was refused or has timed out completes when the Resync that replaces its
//! packet is acknowledged: until then the target may still be waiting for its sequence number (specification 6.6.5).

use std::collections::VecDeque;

use rnic_base::{Psn32, Seq, Time};
use rnic_wire::falcon::{Body, CompletionCode, NackCode, Packet, PacketType, ResyncCode, Rsn, Ulp};

use super::ring::{Blank, Ring};
use super::ulp::{Completion, PulledData, UpperLayer};
use super::{Kind, NEVER, Ordering, Submission, TransactionConfig, TransactionStats, completion_of};
use crate::interface::{Exhausted, Gates, Verdict};
use crate::resources::threshold::Usage;
use crate::resources::{CompactHeld, ResourcePart, Resources};

/// State that one half of the transaction layer uses and that is not part of it.
pub(super) struct LayerContext<'a, U> {
    pub(super) now: Time,
    pub(super) resources: &'a mut Resources,
    pub(super) usage: &'a mut Usage,
    pub(super) stats: &'a mut TransactionStats,
    pub(super) ulp: &'a mut U,
}

#[derive(Debug)]
struct Entry {
    tag: u64,
    deadline: Time,
    /// Payload length of the request's packet in bytes; after a Pull's data has arrived, the payload length of the
    /// data.
    payload_len: u16,
    length: u16,
    /// Send resources, held until the packet is acknowledged.
    tx: CompactHeld,
    /// Resources for the response, held until the completion is delivered.
    rx: CompactHeld,
    /// `None` for a blank entry.
    kind: Option<Kind>,
    sent: bool,
    acked: bool,
    delivered: bool,
    /// Result of the transaction, set before the completion is delivered.
    outcome: Option<CompletionCode>,
    ulp_code: u8,
    /// True if the transaction completed with data.
    has_data: bool,
    /// Code of the Resync that replaces the packet, if any.
    resync: Option<ResyncCode>,
}

// The size is important: there is one entry per transaction in flight, and two fit in a cache line.
const _: () = assert!(size_of::<Entry>() == 32);

impl Entry {
    const EMPTY: Self = Self {
        tag: 0,
        deadline: Time::ZERO,
        payload_len: 0,
        length: 0,
        tx: CompactHeld::NONE,
        rx: CompactHeld::NONE,
        kind: None,
        sent: false,
        acked: false,
        delivered: false,
        outcome: None,
        ulp_code: 0,
        has_data: false,
        resync: None,
    };

    /// Returns `true` if the completion can be delivered: if data has arrived, even before the request is
    /// acknowledged; otherwise only after its packet is acknowledged.
    #[inline]
    fn is_ready(&self) -> bool {
        self.outcome.is_some() && (self.acked || self.has_data)
    }

    /// Sets the result to `code`, unless a result is already set.
    #[inline]
    fn set_outcome(&mut self, code: CompletionCode) {
        self.outcome.get_or_insert(code);
    }
}

impl Blank for Entry {
    const BLANK: &'static Self = &Self::EMPTY;

    fn blank() -> Self {
        Self::EMPTY
    }

    #[inline]
    fn clear(&mut self) {
        self.kind = None;
    }
}

const fn packet_type(kind: Kind) -> PacketType {
    match kind {
        Kind::Push => PacketType::PushData,
        Kind::Pull => PacketType::PullRequest,
    }
}

/// The initiator's half.
#[derive(Debug)]
pub(super) struct Initiator {
    ordering: Ordering,
    ring: Ring<Entry>,
    /// Allocated when the first transaction with headers is submitted; not needed for an upper layer that supplies
    /// headers when packets are sent.
    headers: Option<Box<Headers>>,
    /// The next request sequence number (NRSN).
    next: Seq,
    /// On ordered connections: number of the next completion to deliver.
    unreported: Seq,
    /// On ordered connections: number of the next request to send.
    unsent: Seq,
    /// On unordered connections: requests not sent yet.
    queues: Option<Box<Queues>>,
    /// Lower bound of the deadlines of all transactions.
    next_deadline: Time,
}

/// Requests not sent yet, one queue per type (Falcon mechanism F-41), oldest first.
#[derive(Debug, Default)]
struct Queues {
    pulls: VecDeque<Seq>,
    pushes: VecDeque<Seq>,
}

/// Headers of the transactions that were submitted with headers, by slot (for all possible slots). If a request is
/// retransmitted after its data has arrived, its target recognises the request by its number.
#[derive(Debug)]
struct Headers {
    by_slot: Box<[Option<Ulp>]>,
}

impl Initiator {
    pub(super) fn new(config: &TransactionConfig, first: Rsn) -> Self {
        let first = Seq::start(first);
        Self {
            ordering: config.ordering,
            ring: Ring::new(config.outstanding, first),
            headers: None,
            next: first,
            unreported: first,
            unsent: first,
            queues: (config.ordering == Ordering::Unordered).then(Box::default),
            next_deadline: NEVER,
        }
    }

    #[inline]
    pub(super) fn prefetch_indirect(&self) {
        if !self.is_empty() {
            self.ring.prefetch(self.ring.base());
            self.ring.prefetch(self.unsent);
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.next == self.ring.end()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.next == self.ring.base()
    }

    pub(super) fn next_deadline(&self) -> Time {
        self.next_deadline
    }

    /// Returns the number of the transaction in `slot`.
    #[inline]
    pub(super) fn seq_at(&self, slot: u32) -> Seq {
        self.ring.seq_at(slot)
    }

    #[inline]
    pub(super) fn slot(&self, seq: Seq) -> u32 {
        self.ring.slot(seq)
    }

    /// Returns the tag of the local request `seq`.
    #[inline]
    pub(super) fn tag(&self, seq: Seq) -> u64 {
        self.ring[seq].tag
    }

    /// Returns the tag of the local Pull `rsn`, if its data has not arrived yet.
    pub(super) fn expected_by(&self, rsn: Rsn) -> Option<u64> {
        let seq = rsn.extend(self.unreported);
        if seq < self.ring.base() || seq >= self.next {
            return None;
        }
        let entry = &self.ring[seq];
        (entry.kind == Some(Kind::Pull) && entry.outcome.is_none()).then_some(entry.tag)
    }

    /// Withdraws the packet of `seq`, which cannot be sent for a local reason.
    pub(super) fn withdraw(&mut self, seq: Seq) {
        let entry = &mut self.ring[seq];
        entry.set_outcome(CompletionCode::LocalXlr);
        entry.resync.get_or_insert(ResyncCode::LocalXlr);
    }

    /// Allocates entries for this number of transactions, which will be submitted one after the other.
    #[inline]
    pub(super) fn expect(&mut self, transactions: u32) {
        self.ring.expect(self.next, transactions);
    }

    /// Accepts a transaction and allocates its resources; returns `None` if they are not available.
    #[inline]
    pub(super) fn submit(
        &mut self,
        resources: &mut Resources,
        usage: &mut Usage,
        submission: &Submission,
    ) -> Option<Rsn> {
        if self.is_full() {
            return None;
        }
        let units = resources.config().units;
        let length = u32::from(submission.length);
        let need = match submission.kind {
            Kind::Push => units.push(length),
            Kind::Pull => units.pull(length),
        };
        let (tx, rx) = resources.hold_transaction(need, submission.continues && usage.has_no_request())?;
        usage.tx.add(tx.amount());
        usage.rx.add(rx.amount());
        let seq = self.next;
        self.ring[seq] = Entry {
            kind: Some(submission.kind),
            length: submission.length,
            payload_len: submission.payload_len as u16,
            tag: submission.tag,
            tx: CompactHeld::of(tx),
            rx: CompactHeld::of(rx),
            ..Entry::EMPTY
        };
        if submission.ulp.is_some() || self.headers.is_some() {
            self.keep_headers(seq, submission.ulp);
        }
        if let Some(queues) = &mut self.queues {
            match submission.kind {
                Kind::Push => queues.pushes.push_back(seq),
                Kind::Pull => queues.pulls.push_back(seq),
            }
        }
        self.next += 1;
        Some(seq.wire())
    }

    /// Returns `true` if a request is waiting for its first transmission.
    #[inline]
    pub(super) fn has_unsent(&self) -> bool {
        match &self.queues {
            None => self.unsent < self.next,
            Some(queues) => !(queues.pulls.is_empty() && queues.pushes.is_empty()),
        }
    }

    /// Returns the type of the request that could be sent now: on an ordered connection, only the type of the oldest
    /// request; otherwise a type whose gate is open and that has requests, with Pulls preferred if `pulls_first`.
    #[inline]
    pub(super) fn sendable(&self, open: Gates, pulls_first: bool) -> Option<Kind> {
        let is_open = |kind: Kind| match kind {
            Kind::Push => open.push_data,
            Kind::Pull => open.pull_request,
        };
        let Some(queues) = &self.queues else {
            let oldest = if self.unsent < self.next { self.ring[self.unsent].kind } else { None };
            return oldest.filter(|kind| is_open(*kind));
        };
        let pull = (!queues.pulls.is_empty() && open.pull_request).then_some(Kind::Pull);
        let push = (!queues.pushes.is_empty() && open.push_data).then_some(Kind::Push);
        if pulls_first { pull.or(push) } else { push.or(pull) }
    }

    /// Sends the oldest request of `kind`, which ends in error at `deadline`; returns its number.
    #[inline]
    pub(super) fn send(&mut self, deadline: Time, kind: Kind) -> Seq {
        let seq = match (&mut self.queues, kind) {
            (None, _) => {
                self.unsent += 1;
                self.ring.prefetch(self.unsent + 1);
                self.unsent - 1
            }
            (Some(queues), Kind::Push) => queues.pushes.pop_front().expect("the queue is not empty"),
            (Some(queues), Kind::Pull) => queues.pulls.pop_front().expect("the queue is not empty"),
        };
        let entry = &mut self.ring[seq];
        (entry.sent, entry.deadline) = (true, deadline);
        self.next_deadline = self.next_deadline.min(deadline);
        seq
    }

    /// Stores `headers` for `seq`; `None` records that it has no headers.
    fn keep_headers(&mut self, seq: Seq, headers: Option<Ulp>) {
        let (slot, size) = (self.ring.slot(seq) as usize, self.ring.size());
        let empty_headers = || Box::new(Headers { by_slot: vec![None; size].into_boxed_slice() });
        self.headers.get_or_insert_with(empty_headers).by_slot[slot] = headers;
    }

    /// Returns the headers stored for `seq`, if any.
    #[inline]
    fn kept_headers(&self, seq: Seq) -> Option<Ulp> {
        self.headers.as_ref().and_then(|headers| headers.by_slot[self.ring.slot(seq) as usize])
    }

    /// Returns the headers stored for `seq`; if there are none, those supplied by `upper`.
    #[inline]
    fn headers_of<U: UpperLayer>(&self, seq: Seq, upper: &U) -> Ulp {
        self.kept_headers(seq).unwrap_or_else(|| upper.headers(self.ring[seq].tag))
    }

    /// Writes the packet of `seq`, which is sent for the first time, to `packet`.
    #[inline]
    pub(super) fn put<U: UpperLayer>(&self, seq: Seq, packet: &mut Packet, upper: &U) {
        let entry = &self.ring[seq];
        let (psn, rsn, length) = (Psn32::default(), seq.wire(), entry.length);
        if entry.kind == Some(Kind::Push) && entry.resync.is_none() {
            let ulp = self.headers_of(seq, upper);
            packet.body = Body::PushData { psn, rsn, length, ulp };
            packet.payload_len = entry.payload_len.into();
        } else {
            (packet.body, packet.payload_len) = self.packet(seq, upper);
        }
    }

    /// Returns the body of the packet of `seq`, and its payload length in bytes.
    pub(super) fn packet<U: UpperLayer>(&self, seq: Seq, upper: &U) -> (Body, u32) {
        let entry = &self.ring[seq];
        let (psn, rsn) = (Psn32::default(), seq.wire());
        let kind = entry.kind.expect("the entry is in use");
        if let Some(code) = entry.resync {
            return (Body::Resync { psn, rsn, code, of: packet_type(kind), vendor: 0 }, 0);
        }
        let ulp = self.headers_of(seq, upper);
        match kind {
            Kind::Pull => (Body::PullRequest { psn, rsn, length: entry.length, ulp }, 0),
            Kind::Push => (Body::PushData { psn, rsn, length: entry.length, ulp }, entry.payload_len.into()),
        }
    }

    /// Handles the acknowledgement of the packet of `seq`.
    #[inline]
    pub(super) fn acked<U: UpperLayer>(&mut self, seq: Seq, layer: &mut LayerContext<'_, U>) {
        let is_oldest = seq == self.unreported && seq == self.ring.base();
        let entry = &mut self.ring[seq];
        entry.acked = true;
        if let Some(tx) = entry.tx.take(ResourcePart::RequestTx) {
            layer.usage.tx.subtract(tx.amount());
            layer.resources.release(tx);
        }
        if entry.kind == Some(Kind::Push) {
            if is_oldest && entry.outcome.is_none() {
                return self.complete_oldest(seq, layer);
            }
            entry.set_outcome(CompletionCode::Ack);
        }
        self.deliver_completions(seq, layer);
    }

    /// Completes the Push `seq`, which is the oldest transaction, successfully. In most cases its completion is the
    /// only one to deliver.
    #[inline]
    fn complete_oldest<U: UpperLayer>(&mut self, seq: Seq, layer: &mut LayerContext<'_, U>) {
        let entry = &mut self.ring[seq];
        let (rsn, tag) = (seq.wire(), entry.tag);
        if let Some(rx) = entry.rx.take(ResourcePart::ResponseRx) {
            layer.usage.rx.subtract(rx.amount());
            layer.resources.release(rx);
        }
        self.ring.advance();
        self.unreported += 1;
        layer.stats.completed += 1;
        let completion = Completion { rsn, tag, code: CompletionCode::Ack, ulp_code: 0, data: None };
        layer.ulp.complete(layer.now, &completion);
        let next = self.unreported;
        if next < self.next && self.ring[next].outcome.is_some() {
            self.deliver_completions(next, layer);
        }
    }

    /// Handles a permanent refusal of the packet of `seq`.
    pub(super) fn nacked(&mut self, seq: Seq, code: NackCode) {
        let (resync, ulp_code) = match code {
            NackCode::CompleteInError { ulp } => (ResyncCode::TargetCompleteInError, ulp),
            NackCode::NonRecoverable { ulp } => (ResyncCode::TargetNonRecoverable, ulp),
            NackCode::InvalidCid => (ResyncCode::TargetInvalidCid, 0),
            NackCode::Xlr | NackCode::Resource | NackCode::NotReady { .. } => (ResyncCode::RemoteXlr, 0),
        };
        let entry = &mut self.ring[seq];
        if entry.outcome.is_none() {
            (entry.outcome, entry.ulp_code) = (Some(completion_of(code)), ulp_code);
        }
        entry.resync.get_or_insert(resync);
    }

    /// Handles the case that the packet of `seq` has reached its maximum number of transmissions.
    pub(super) fn exhausted(&mut self, seq: Seq) -> Exhausted {
        let entry = &mut self.ring[seq];
        if entry.resync == Some(ResyncCode::RetransmissionExhausted) {
            return Exhausted::Terminated;
        }
        entry.set_outcome(CompletionCode::LocalTimeout);
        entry.resync = Some(ResyncCode::RetransmissionExhausted);
        Exhausted::Resync
    }

    /// Processes the data of a local Pull, or the Resync that replaces the data.
    pub(super) fn on_response<U: UpperLayer>(&mut self, packet: &Packet, layer: &mut LayerContext<'_, U>) -> Verdict {
        let rsn = packet.body.rsn().expect("Pull Data has an RSN");
        let seq = rsn.extend(self.unreported);
        if seq >= self.next {
            return Verdict::Dropped;
        }
        // The transaction has already ended, but its sequence number in the data window must still be acknowledged.
        if seq < self.ring.base() {
            return Verdict::Accepted { acknowledged: true };
        }
        let entry = &mut self.ring[seq];
        if !entry.sent {
            // The request was not sent yet.
            return Verdict::Dropped;
        }
        if entry.kind == Some(Kind::Pull) && entry.outcome.is_none() {
            entry.outcome = Some(match packet.body {
                Body::Resync { code, .. } => {
                    entry.ulp_code = code.code();
                    CompletionCode::RemoteError
                }
                Body::PullData { ulp, .. } if packet.payload_len <= u32::from(entry.length) => {
                    let data = PulledData { payload_len: packet.payload_len, ulp };
                    (entry.payload_len, entry.has_data) = (data.payload_len as u16, true);
                    layer.ulp.pulled(layer.now, entry.tag, &data);
                    CompletionCode::Ack
                }
                Body::PullData { .. } => CompletionCode::OperationError,
                _ => CompletionCode::RemoteError,
            });
            self.deliver_completions(seq, layer);
        }
        Verdict::Accepted { acknowledged: true }
    }

    /// Delivers the completions that are next in order, after the state of `seq` has changed.
    #[inline]
    fn deliver_completions<U: UpperLayer>(&mut self, seq: Seq, layer: &mut LayerContext<'_, U>) {
        match self.ordering {
            Ordering::Ordered => {
                while self.unreported < self.next && self.ring[self.unreported].is_ready() {
                    self.deliver(self.unreported, layer);
                    self.unreported += 1;
                }
            }
            Ordering::Unordered => {
                if self.ring[seq].is_ready() {
                    self.deliver(seq, layer);
                }
            }
        }
        while self.ring.base() < self.next {
            let entry = &self.ring[self.ring.base()];
            if !(entry.delivered && entry.acked) {
                break;
            }
            self.ring.advance();
        }
        self.unreported = self.unreported.max(self.ring.base());
    }

    #[inline]
    fn deliver<U: UpperLayer>(&mut self, seq: Seq, layer: &mut LayerContext<'_, U>) {
        let entry = &mut self.ring[seq];
        if entry.delivered {
            return;
        }
        entry.delivered = true;
        if let Some(rx) = entry.rx.take(ResourcePart::ResponseRx) {
            layer.usage.rx.subtract(rx.amount());
            layer.resources.release(rx);
        }
        let code = entry.outcome.expect("the transaction has ended");
        let data = entry.has_data.then_some(entry.payload_len);
        let completion = Completion { rsn: seq.wire(), tag: entry.tag, code, ulp_code: entry.ulp_code, data };
        layer.stats.completed += 1;
        layer.stats.completed_in_error += u64::from(code != CompletionCode::Ack);
        layer.ulp.complete(layer.now, &completion);
    }

    /// Terminates the transactions whose deadline has passed.
    pub(super) fn expire<U: UpperLayer>(&mut self, layer: &mut LayerContext<'_, U>) {
        if self.next_deadline > layer.now {
            return;
        }
        self.next_deadline = NEVER;
        let mut seq = self.ring.base();
        while seq < self.next {
            let entry = &mut self.ring[seq];
            if entry.sent && entry.outcome.is_none() {
                if entry.deadline <= layer.now {
                    entry.outcome = Some(CompletionCode::LocalTimeout);
                    entry.resync = (!entry.acked).then_some(ResyncCode::TransactionTimeout);
                } else {
                    self.next_deadline = self.next_deadline.min(entry.deadline);
                }
            }
            seq += 1;
        }
        // Delivering completions may remove entries at the front.
        let mut seq = self.ring.base();
        while seq < self.next {
            if self.ring.covers(seq) {
                self.deliver_completions(seq, layer);
            }
            seq += 1;
        }
    }

    /// Releases the resources for responses, because no response is expected any more.
    pub(super) fn release_response_resources(&mut self, resources: &mut Resources, usage: &mut Usage) {
        let mut seq = self.ring.base();
        while seq < self.next {
            if let Some(rx) = self.ring[seq].rx.take(ResourcePart::ResponseRx) {
                usage.rx.subtract(rx.amount());
                resources.release(rx);
            }
            seq += 1;
        }
    }

    /// See [`super::Transactions::known_failure`].
    pub(super) fn known_failure(&self, is_wanted: impl Fn(u64) -> bool) -> Option<Completion> {
        let oldest = self.ring.base();
        let seqs = (0..self.next.since(oldest)).map(|offset| oldest + offset);
        let mut entries = seqs.map(|seq| (seq, &self.ring[seq]));
        let is_refusal = |code: CompletionCode| {
            matches!(code, CompletionCode::TargetCompleteInError | CompletionCode::TargetNonRecoverable)
        };
        entries.find_map(|(seq, entry)| {
            let code = entry.outcome.filter(|code| is_refusal(*code) && !entry.delivered && is_wanted(entry.tag))?;
            Some(Completion { rsn: seq.wire(), tag: entry.tag, code, ulp_code: entry.ulp_code, data: None })
        })
    }

    /// Handles the failure of the connection: all transactions complete in order, and all held resources are released.
    pub(super) fn terminate<U: UpperLayer>(&mut self, layer: &mut LayerContext<'_, U>) {
        if let Some(queues) = &mut self.queues {
            **queues = Queues::default();
        }
        self.unsent = self.next;
        self.next_deadline = NEVER;
        while self.ring.base() < self.next {
            let seq = self.ring.base();
            let entry = &mut self.ring[seq];
            entry.set_outcome(CompletionCode::DeadConnection);
            if let Some(tx) = entry.tx.take(ResourcePart::RequestTx) {
                layer.usage.tx.subtract(tx.amount());
                layer.resources.release(tx);
            }
            self.deliver(seq, layer);
            self.ring.advance();
        }
        self.unreported = self.next;
    }
}
