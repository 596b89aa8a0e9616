//! The peer's transactions, from their arrival to the upper layer's acknowledgement (specification Rev 0.9, section
//! 8.5).
//!
//! ```text
//!   Push   received -> offered to the upper layer -> acknowledged by it
//!   Pull   received -> offered to the upper layer -> answered -> data sent -> data acknowledged
//! ```
//!
//! On an ordered connection, an out-of-order request is stored until all requests before it were delivered, in
//! buffers that are accounted for in the resources.
//!
//! Requests for which the upper layer is not ready (Falcon mechanism F-7): a Push is recorded, and its sender is
//! requested to retransmit it. When the retransmission arrives, the Push is offered to the upper layer again. A Pull is
//! offered again when its wait has elapsed, without notifying the peer. While the upper layer is not ready for a
//! request of an ordered connection, all later Pushes count as not ready too (specification 8.5.3.4). They are stored
//! while there are resources beyond those reserved for requests at the head of their line; otherwise they are
//! retransmitted like the first one, because the upper layer may be waiting for packets of another connection.
//!
//! Requests completed in error (Falcon mechanism F-8): a Push that the upper layer completes in error is refused, on
//! each retransmission, until a Resync has replaced it; processing of later requests continues.

use rnic_base::{LazyQueue, Psn32, Seq, Time};
use rnic_wire::falcon::{Body, NackCode, Packet, PacketType, ResyncCode, RnrTimer, Rsn, Ulp, Window};

use super::initiator::LayerContext;
use super::ring::{Blank, Ring};
use super::ulp::{PullReply, PullResponse, PushReply, Request, UpperLayer};
use super::{Kind, NEVER, Ordering, PacketDecision, RespondError, TransactionConfig};
use crate::interface::{Exhausted, Received, Verdict};
use crate::resources::threshold::Usage;
use crate::resources::{CompactHeld, ResourcePart, Resources};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// No packet was received for this number.
    Blank,
    /// Received, but not delivered to the upper layer yet.
    Kept,
    /// Offered to the upper layer, which was not ready; to be offered again.
    NotReady,
    /// Accepted by the upper layer, which has not finished processing it.
    Accepted,
    /// A Push that ends in error and waits for the Resync that replaces it.
    Refused,
    /// A Resync was received; the requests before it are not all delivered yet.
    Skipped,
    /// A Pull whose data is waiting to be sent.
    DataReady,
    /// A Pull whose data is in flight.
    Sent,
    /// Finished.
    Done,
}

#[derive(Debug)]
struct Entry {
    /// The request's headers, and later the headers of the response.
    ulp: Ulp,
    /// Time at which a Pull that was not ready is offered again.
    until: Time,
    psn: Psn32,
    payload_len: u32,
    length: u16,
    /// Receive resources, held until the upper layer has accepted the request.
    rx: CompactHeld,
    /// Resources for sending Pull Data, held until it is acknowledged.
    tx: CompactHeld,
    /// NACK code sent while the request is not ready, or refused.
    nack_code: NackCode,
    state: State,
    kind: Kind,
    resync: Option<ResyncCode>,
}

// The size is important: there is one entry for each waiting request.
const _: () = assert!(size_of::<Entry>() <= 104);

impl Entry {
    const EMPTY: Self = Self {
        ulp: Ulp::None,
        until: NEVER,
        psn: Psn32::new(0),
        payload_len: 0,
        length: 0,
        rx: CompactHeld::NONE,
        tx: CompactHeld::NONE,
        nack_code: NackCode::Resource,
        state: State::Blank,
        kind: Kind::Pull,
        resync: None,
    };

    const fn received(&self) -> Received {
        Received { window: Window::Data, psn: self.psn }
    }

    /// Returns the NACK code for a Push that is not ready or refused.
    fn refusal(&self) -> Option<NackCode> {
        matches!(self.state, State::NotReady | State::Refused).then_some(self.nack_code)
    }
}

impl Blank for Entry {
    const BLANK: &'static Self = &Self::EMPTY;

    fn blank() -> Self {
        Self::EMPTY
    }

    #[inline]
    fn clear(&mut self) {
        (self.state, self.resync) = (State::Blank, None);
    }
}

/// Outcome of a request that was offered to the upper layer.
#[derive(Clone, Copy)]
struct OfferOutcome {
    state: State,
    nack_code: NackCode,
    /// See [`Entry::until`].
    until: Time,
}

impl OfferOutcome {
    const fn of(state: State) -> Self {
        Self { state, nack_code: NackCode::Resource, until: NEVER }
    }

    const fn refused(nack_code: NackCode) -> Self {
        Self { state: State::Refused, nack_code, until: NEVER }
    }

    const fn not_ready(code: RnrTimer, until: Time) -> Self {
        Self { state: State::NotReady, nack_code: NackCode::NotReady { timeout: code }, until }
    }
}

/// Offers `request` to the upper layer; returns `None` if the upper layer is busy.
#[inline]
fn offer_to_upper<U: UpperLayer>(
    kind: Kind,
    request: &Request,
    layer: &mut LayerContext<'_, U>,
) -> Option<OfferOutcome> {
    Some(match kind {
        Kind::Push => match layer.ulp.push(layer.now, request) {
            PushReply::Done => OfferOutcome::of(State::Done),
            PushReply::Later => OfferOutcome::of(State::Accepted),
            PushReply::Busy => return None,
            // The Push is offered again when it is retransmitted, not after a certain time.
            PushReply::NotReady(code) => OfferOutcome::not_ready(code, NEVER),
            PushReply::CompleteInError(ulp) => OfferOutcome::refused(NackCode::CompleteInError { ulp }),
            PushReply::NonRecoverable(ulp) => OfferOutcome::refused(NackCode::NonRecoverable { ulp }),
            PushReply::InvalidCid => OfferOutcome::refused(NackCode::InvalidCid),
        },
        Kind::Pull => match layer.ulp.pull(layer.now, request) {
            PullReply::Later => OfferOutcome::of(State::Accepted),
            PullReply::Busy => return None,
            PullReply::NotReady(code) => OfferOutcome::not_ready(code, layer.now + code.wait()),
        },
    })
}

/// The target's half.
#[derive(Debug)]
pub(super) struct Target {
    ordering: Ordering,
    mtu: u16,
    ring: Ring<Entry>,
    /// All requests before this number have arrived; it is the head of the line.
    arrived: Seq,
    /// On ordered connections: number of the next request to deliver to the upper layer.
    next_delivery: Seq,
    /// On ordered connections: number of the next request whose data may be sent.
    next_data: Seq,
    /// On unordered connections: responses waiting to be sent.
    responses: LazyQueue<Seq>,
    /// Number of responses waiting to be sent, on both types of connections.
    unsent: u32,
    settled: LazyQueue<PacketDecision>,
    /// Lower bound of the times at which Pulls are to be offered again.
    next_retry: Time,
}

impl Target {
    pub(super) fn new(config: &TransactionConfig, first: Rsn) -> Self {
        let first = Seq::start(first);
        // An initiator releases a Pull when its data has arrived, and the target when that data is acknowledged. So
        // the target releases its entries later and needs more of them.
        let size = config.outstanding * 2;
        Self {
            ordering: config.ordering,
            mtu: config.mtu,
            ring: Ring::new(size, first),
            arrived: first,
            next_delivery: first,
            next_data: first,
            responses: LazyQueue::new(),
            unsent: 0,
            settled: LazyQueue::new(),
            next_retry: NEVER,
        }
    }

    #[inline]
    pub(super) fn prefetch_indirect(&self) {
        self.ring.prefetch(self.arrived);
    }

    pub(super) fn settled(&mut self) -> Option<PacketDecision> {
        self.settled.pop_front()
    }

    pub(super) fn next_retry(&self) -> Time {
        self.next_retry
    }

    pub(super) fn is_empty(&self) -> bool {
        let mut seq = self.ring.base();
        while seq < self.ring.end_of_entries() {
            if self.ring[seq].state != State::Blank {
                return false;
            }
            seq += 1;
        }
        true
    }

    #[inline]
    pub(super) fn seq_at(&self, slot: u32) -> Seq {
        self.ring.seq_at(slot)
    }

    pub(super) fn slot(&self, seq: Seq) -> u32 {
        self.ring.slot(seq)
    }

    /// Returns `true` if the Push `rsn` was received but not delivered yet.
    pub(super) fn holds_push(&self, rsn: Rsn) -> bool {
        let seq = rsn.extend(self.ring.base());
        self.ring.covers(seq) && self.is_kept(seq)
    }

    fn is_kept(&self, seq: Seq) -> bool {
        let entry = &self.ring[seq];
        entry.state == State::Kept && entry.kind == Kind::Push
    }

    /// Returns the requests for which [`Target::holds_push`] returns `true`.
    pub(super) fn kept(&self) -> impl Iterator<Item = Rsn> {
        let (base, size) = (self.ring.base(), self.ring.end_of_entries().since(self.ring.base()));
        let all = (0..size).map(move |offset| base + offset);
        all.filter(|seq| self.is_kept(*seq)).map(Seq::wire)
    }

    /// Withdraws the data of `seq`, which cannot be sent for a local reason.
    pub(super) fn withdraw(&mut self, seq: Seq) {
        self.ring[seq].resync.get_or_insert(ResyncCode::LocalXlr);
    }

    /// Processes a new request, or a Resync, whether or not the request that it replaces was received. If the upper
    /// layer has failed, `refuse_code` is the NACK code for all requests.
    #[inline]
    pub(super) fn offer<U: UpperLayer>(
        &mut self,
        packet: &Packet,
        refuse_code: Option<NackCode>,
        layer: &mut LayerContext<'_, U>,
    ) -> Verdict {
        let seq = packet.body.rsn().expect("requests have an RSN").extend(self.ring.base());
        if seq < self.ring.base() {
            // A Resync may arrive for a request that has ended in the meantime; any other packet uses a number twice.
            let is_resync = matches!(packet.body, Body::Resync { .. });
            return if is_resync { Verdict::Accepted { acknowledged: true } } else { Verdict::Dropped };
        }
        if !self.ring.covers(seq) {
            layer.stats.no_resources += 1;
            return Verdict::NoResources;
        }
        let (kind, psn, length, ulp) = match packet.body {
            Body::PullRequest { psn, length, ulp, .. } => (Kind::Pull, psn, length, ulp),
            Body::PushData { psn, length, ulp, .. } => (Kind::Push, psn, length, ulp),
            _ => return self.skip(seq, layer),
        };
        if self.ring[seq].state != State::Blank || length > self.mtu || packet.payload_len > u32::from(length) {
            return Verdict::Dropped;
        }
        let payload_len = packet.payload_len;
        let entry = Entry { kind, psn, length, payload_len, ulp, ..Entry::EMPTY };
        if let Some(nack_code) = refuse_code {
            self.ring[seq] = Entry { nack_code, ..entry };
            return self.offer_after_failure(seq, layer);
        }
        let units = layer.resources.config().units;
        let need = match kind {
            Kind::Push => units.arrived_push(u32::from(length)),
            Kind::Pull => units.arrived_pull(),
        };
        // No request that follows a request which is not ready counts as head of the line. Otherwise Pulls that
        // follow it would hold resources that are reserved for requests at the head of other lines, and the upper
        // layer may be waiting for one of those.
        let blocker = self.blocker(seq);
        let head_of_line = self.ordering == Ordering::Unordered || seq == self.arrived && blocker.is_none();
        if !layer.resources.admits_arrival(need, head_of_line) {
            layer.stats.no_resources += 1;
            return self.offer_without_resources(seq, entry, blocker);
        }
        let mut outcome = None;
        if kind == Kind::Push && seq == self.ring.base() {
            // All requests before this one are finished: it can be delivered with either ordering, and in most cases
            // no other request is waiting.
            outcome = Some(offer_to_upper(kind, &Request { rsn: seq.wire(), length, payload_len, ulp }, layer));
            if let Some(Some(OfferOutcome { state: State::Done, .. })) = outcome {
                layer.stats.delivered += 1;
                layer.resources.pass_arrival(need);
                self.pass(layer);
                return Verdict::Accepted { acknowledged: true };
            }
        }
        let rx = CompactHeld::of(layer.resources.hold_arrival(need, head_of_line).expect("the request was admitted"));
        self.ring[seq] = Entry { state: State::Kept, rx, ..entry };
        self.note_arrival();
        match outcome {
            None => self.deliver_ready(seq, Some(seq), layer),
            Some(Some(outcome)) if self.apply_outcome(seq, outcome, Some(seq), layer) => {
                self.next_delivery = self.next_delivery.max(seq + 1);
                self.deliver_in_order(Some(seq), layer);
            }
            Some(_) => {}
        }
        self.verdict(seq)
    }

    /// Handles `entry` like [`Target::offer`], when there are no resources for it. A Push that waits for a request
    /// which is not ready can be recorded as received, to be retransmitted like that request; `blocker` is its NACK
    /// code. Any other request is rejected, and accepted when it is retransmitted and there are resources.
    #[cold]
    fn offer_without_resources(&mut self, seq: Seq, entry: Entry, blocker: Option<NackCode>) -> Verdict {
        let Some(nack_code) = blocker.filter(|_| entry.kind == Kind::Push) else { return Verdict::NoResources };
        self.ring[seq] = Entry { state: State::NotReady, nack_code, ..entry };
        self.note_arrival();
        Verdict::Refused(nack_code)
    }

    /// Handles a request like [`Target::offer`], when the upper layer has failed: a Push is refused immediately, and
    /// a Pull by its response after the requests before it. Neither holds resources until then, because gaps before
    /// it may never be filled.
    #[cold]
    fn offer_after_failure<U: UpperLayer>(&mut self, seq: Seq, layer: &mut LayerContext<'_, U>) -> Verdict {
        let entry = &mut self.ring[seq];
        entry.state = if entry.kind == Kind::Push { State::Refused } else { State::Kept };
        self.note_arrival();
        self.deliver_ready(seq, Some(seq), layer);
        self.verdict(seq)
    }

    /// Removes the finished request at the front, which has no entry. On ordered connections, the requests that
    /// follow it are delivered.
    #[inline]
    fn pass<U: UpperLayer>(&mut self, layer: &mut LayerContext<'_, U>) {
        self.ring.skip_blank();
        let base = self.ring.base();
        (self.arrived, self.next_delivery) = (self.arrived.max(base), self.next_delivery.max(base));
        self.next_data = self.next_data.max(base);
        if self.ring[base].state != State::Blank {
            self.note_arrival();
            self.deliver_in_order(None, layer);
            self.remove_finished();
        }
    }

    /// Returns the immediate outcome of the request `seq`, which has just been stored.
    fn verdict(&mut self, seq: Seq) -> Verdict {
        let entry = &self.ring[seq];
        let verdict = match (entry.kind, entry.state) {
            (Kind::Pull, _) | (_, State::Done) => Verdict::Accepted { acknowledged: true },
            (_, State::Refused | State::NotReady) => Verdict::Refused(entry.nack_code),
            _ => match self.blocker(seq) {
                Some(nack_code) => Verdict::Refused(nack_code),
                None => Verdict::Accepted { acknowledged: false },
            },
        };
        self.remove_finished();
        verdict
    }

    /// Returns the NACK code of the request that was not ready and for which `seq` must wait, if there is one.
    fn blocker(&self, seq: Seq) -> Option<NackCode> {
        if self.ordering == Ordering::Unordered || self.next_delivery >= seq {
            return None;
        }
        let entry = &self.ring[self.next_delivery];
        (entry.state == State::NotReady).then_some(entry.nack_code)
    }

    /// Processes a Resync that replaces `seq`, which may have been received or not.
    fn skip<U: UpperLayer>(&mut self, seq: Seq, layer: &mut LayerContext<'_, U>) -> Verdict {
        let entry = &mut self.ring[seq];
        let is_served = entry.kind == Kind::Pull && entry.state == State::Accepted;
        if is_served || matches!(entry.state, State::DataReady | State::Sent) {
            // The request was already acknowledged, and its data is in flight or will be sent: the Resync skips no
            // request.
            return Verdict::Accepted { acknowledged: true };
        }
        if let Some(rx) = entry.rx.take(ResourcePart::RequestRx) {
            layer.resources.release(rx);
        }
        let was_decided = matches!(entry.state, State::Accepted | State::Refused | State::Done);
        entry.state = if was_decided { State::Done } else { State::Skipped };
        if !was_decided && self.ordering == Ordering::Unordered {
            self.skip_now(seq, layer);
        }
        self.note_arrival();
        self.deliver_ready(seq, Some(seq), layer);
        self.remove_finished();
        Verdict::Accepted { acknowledged: true }
    }

    /// Notifies the upper layer that `seq` will not be delivered.
    fn skip_now<U: UpperLayer>(&mut self, seq: Seq, layer: &mut LayerContext<'_, U>) {
        self.ring[seq].state = State::Done;
        layer.ulp.skipped(layer.now, seq.wire());
    }

    /// Handles a duplicate of a request that was received but is not acknowledged.
    pub(super) fn duplicate<U: UpperLayer>(
        &mut self,
        packet: &Packet,
        layer: &mut LayerContext<'_, U>,
    ) -> Option<NackCode> {
        let Body::PushData { psn, rsn, length, .. } = packet.body else { return None };
        let seq = rsn.extend(self.ring.base());
        if !self.ring.covers(seq) {
            return None;
        }
        let entry = &self.ring[seq];
        // A different packet with the same number is not a duplicate: the upper layer would read bytes that have not
        // arrived.
        let is_duplicate = entry.kind == Kind::Push
            && (entry.psn, entry.length, entry.payload_len) == (psn, length, packet.payload_len);
        match entry.state {
            _ if !is_duplicate => None,
            State::Refused => Some(entry.nack_code),
            State::NotReady => self.offer_again(seq, layer),
            State::Kept => self.blocker(seq),
            _ => None,
        }
    }

    /// Handles the retransmission of a Push that was not ready.
    fn offer_again<U: UpperLayer>(&mut self, seq: Seq, layer: &mut LayerContext<'_, U>) -> Option<NackCode> {
        if self.ordering == Ordering::Ordered && seq != self.next_delivery {
            return Some(self.ring[seq].nack_code);
        }
        self.ring[seq].state = State::Kept;
        self.deliver_ready(seq, Some(seq), layer);
        let entry = &mut self.ring[seq];
        if entry.state == State::Kept {
            // The upper layer is busy (the path into the host is full), and no resources are held for the Push here.
            entry.state = State::NotReady;
        }
        let nack_code = entry.refusal();
        if entry.state == State::Done {
            self.settled.push_back(PacketDecision::Acknowledged(self.ring[seq].received()));
        }
        self.remove_finished();
        nack_code
    }

    fn note_arrival(&mut self) {
        while self.ring.covers(self.arrived) && self.ring[self.arrived].state != State::Blank {
            self.arrived += 1;
        }
    }

    /// Delivers the requests that can be delivered after the state of `seq` has changed. The outcome of request
    /// `reported_by_caller` is not queued in `settled`, because the caller returns it.
    fn deliver_ready<U: UpperLayer>(
        &mut self,
        seq: Seq,
        reported_by_caller: Option<Seq>,
        layer: &mut LayerContext<'_, U>,
    ) {
        if self.ordering == Ordering::Unordered {
            if self.ring[seq].state == State::Kept {
                self.deliver(seq, reported_by_caller, layer);
            }
            return;
        }
        self.deliver_in_order(reported_by_caller, layer);
    }

    /// On ordered connections, delivers to the upper layer all requests that are next in order.
    fn deliver_in_order<U: UpperLayer>(&mut self, reported_by_caller: Option<Seq>, layer: &mut LayerContext<'_, U>) {
        if self.ordering == Ordering::Unordered {
            return;
        }
        while self.ring.covers(self.next_delivery) {
            let state = self.ring[self.next_delivery].state;
            match state {
                State::Blank | State::NotReady => return,
                State::Kept if !self.deliver(self.next_delivery, reported_by_caller, layer) => return,
                // The upper layer is notified only after the requests before this one were delivered.
                State::Skipped => self.skip_now(self.next_delivery, layer),
                _ => {}
            }
            self.next_delivery += 1;
        }
    }

    /// Offers `seq` to the upper layer; returns `true` if it was accepted or permanently refused. Refusals and
    /// acknowledgements are queued in `settled`, except that of request `reported_by_caller`.
    fn deliver<U: UpperLayer>(
        &mut self,
        seq: Seq,
        reported_by_caller: Option<Seq>,
        layer: &mut LayerContext<'_, U>,
    ) -> bool {
        let entry = &self.ring[seq];
        let (length, payload_len, ulp) = (entry.length, entry.payload_len, entry.ulp);
        let outcome = offer_to_upper(entry.kind, &Request { rsn: seq.wire(), length, payload_len, ulp }, layer);
        outcome.is_some_and(|outcome| self.apply_outcome(seq, outcome, reported_by_caller, layer))
    }

    /// Applies the upper layer's decision `outcome` to `seq`; result and `reported_by_caller` are as in
    /// [`Target::deliver`].
    fn apply_outcome<U: UpperLayer>(
        &mut self,
        seq: Seq,
        outcome: OfferOutcome,
        reported_by_caller: Option<Seq>,
        layer: &mut LayerContext<'_, U>,
    ) -> bool {
        let entry = &mut self.ring[seq];
        (entry.state, entry.nack_code, entry.until) = (outcome.state, outcome.nack_code, outcome.until);
        let (received, is_push) = (entry.received(), entry.kind == Kind::Push);
        let is_decided = outcome.state != State::NotReady;
        if is_decided {
            layer.stats.delivered += u64::from(outcome.state != State::Refused);
        } else {
            layer.stats.not_ready += 1;
        }
        // A Push that is not ready is retransmitted, and holds no resources until then: on unordered connections, no
        // other rule would reserve resources for the requests that the upper layer is waiting for.
        if (is_decided || is_push)
            && let Some(rx) = entry.rx.take(ResourcePart::RequestRx)
        {
            layer.resources.release(rx);
        }
        if is_push && reported_by_caller != Some(seq) {
            match outcome.state {
                State::Done => self.settled.push_back(PacketDecision::Acknowledged(received)),
                State::Refused | State::NotReady => {
                    self.settled.push_back(PacketDecision::Refused(received, outcome.nack_code));
                }
                _ => {}
            }
        }
        if outcome.until < NEVER {
            self.retry_at(outcome.until);
        }
        is_decided
    }

    fn retry_at(&mut self, until: Time) {
        self.next_retry = self.next_retry.min(until);
    }

    /// Offers Pulls again after their waiting time has elapsed.
    pub(super) fn retry<U: UpperLayer>(&mut self, layer: &mut LayerContext<'_, U>) {
        if self.next_retry > layer.now {
            return;
        }
        self.next_retry = NEVER;
        let mut seq = self.ring.base();
        while seq < self.ring.end_of_entries() {
            let entry = &mut self.ring[seq];
            if entry.state == State::NotReady && entry.until < NEVER {
                if entry.until <= layer.now {
                    entry.state = State::Kept;
                    self.deliver_ready(seq, None, layer);
                } else {
                    let until = entry.until;
                    self.retry_at(until);
                }
            }
            seq += 1;
        }
        self.remove_finished();
    }

    /// Offers the requests that were stored because the path into the host was full, until the path is full again.
    pub(super) fn resume<U: UpperLayer>(&mut self, layer: &mut LayerContext<'_, U>) {
        match self.ordering {
            Ordering::Ordered => self.deliver_ready(self.next_delivery, None, layer),
            Ordering::Unordered => {
                let mut seq = self.ring.base();
                while seq < self.ring.end_of_entries() {
                    if self.ring[seq].state == State::Kept && !self.deliver(seq, None, layer) {
                        break;
                    }
                    seq += 1;
                }
            }
        }
        self.remove_finished();
    }

    /// Acknowledges a Push on behalf of the upper layer.
    pub(super) fn acknowledge(&mut self, rsn: Rsn) -> Result<(), RespondError> {
        let seq = self.accepted_request(rsn, Kind::Push)?;
        self.ring[seq].state = State::Done;
        self.settled.push_back(PacketDecision::Acknowledged(self.ring[seq].received()));
        self.remove_finished();
        Ok(())
    }

    /// Refuses a Push permanently on behalf of the upper layer.
    pub(super) fn refuse(&mut self, rsn: Rsn, code: NackCode) -> Result<(), RespondError> {
        let seq = self.accepted_request(rsn, Kind::Push)?;
        let entry = &mut self.ring[seq];
        (entry.state, entry.nack_code) = (State::Refused, code);
        self.settled.push_back(PacketDecision::Refused(self.ring[seq].received(), code));
        Ok(())
    }

    /// See [`super::Transactions::refuse_all`].
    pub(super) fn refuse_all(&mut self, resources: &mut Resources, code: NackCode) {
        let mut seq = self.ring.base();
        while seq < self.ring.end_of_entries() {
            let entry = &mut self.ring[seq];
            if matches!(entry.state, State::Kept | State::NotReady) {
                if entry.kind == Kind::Push {
                    (entry.state, entry.nack_code) = (State::Refused, code);
                }
                if let Some(rx) = entry.rx.take(ResourcePart::RequestRx) {
                    resources.release(rx);
                }
            }
            seq += 1;
        }
    }

    /// Stores the upper layer's response to a Pull, to be sent.
    pub(super) fn respond(
        &mut self,
        resources: &mut Resources,
        usage: &mut Usage,
        rsn: Rsn,
        response: &PullResponse,
    ) -> Result<(), RespondError> {
        let seq = self.accepted_request(rsn, Kind::Pull)?;
        let asked = self.ring[seq].length;
        if response.length > u32::from(asked) || response.payload_len > response.length {
            return Err(RespondError::TooLong { length: response.length.max(response.payload_len), asked });
        }
        let need = resources.config().units.pull_data(response.length);
        let tx = resources.hold(ResourcePart::DataTx, need).ok_or(RespondError::Paused)?;
        usage.data.add(tx.amount());
        let entry = &mut self.ring[seq];
        (entry.state, entry.tx) = (State::DataReady, CompactHeld::of(tx));
        (entry.payload_len, entry.ulp) = (response.payload_len, response.ulp);
        self.unsent += 1;
        if self.ordering == Ordering::Unordered {
            self.responses.push_back(seq);
        }
        Ok(())
    }

    fn accepted_request(&self, rsn: Rsn, kind: Kind) -> Result<Seq, RespondError> {
        let seq = rsn.extend(self.ring.base());
        let is_waiting = self.ring.covers(seq) && {
            let entry = &self.ring[seq];
            entry.state == State::Accepted && entry.kind == kind
        };
        if is_waiting { Ok(seq) } else { Err(RespondError::Unknown) }
    }

    /// Returns `true` if a response is waiting to be sent.
    #[inline]
    pub(super) fn has_responses(&self) -> bool {
        self.unsent > 0
    }

    /// Returns the Pull whose data may be sent next.
    #[inline]
    pub(super) fn sendable(&mut self) -> Option<Seq> {
        if self.unsent == 0 { None } else { self.next_response() }
    }

    fn next_response(&mut self) -> Option<Seq> {
        if self.ordering == Ordering::Unordered {
            return self.responses.front().copied();
        }
        while self.ring.covers(self.next_data) {
            let entry = &self.ring[self.next_data];
            match entry.state {
                State::DataReady => return Some(self.next_data),
                State::Sent | State::Done => self.next_data += 1,
                // The type of a request that has not arrived is unknown.
                State::Blank => return None,
                _ if entry.kind == Kind::Push => self.next_data += 1,
                _ => return None,
            }
        }
        None
    }

    /// Records that the data of `seq` is sent.
    pub(super) fn send(&mut self, seq: Seq) {
        self.ring[seq].state = State::Sent;
        self.unsent -= 1;
        match self.ordering {
            Ordering::Unordered => drop(self.responses.pop_front()),
            Ordering::Ordered => self.next_data = seq + 1,
        }
    }

    /// Returns the body of the data packet of `seq`, and its payload length in bytes.
    pub(super) fn packet(&self, seq: Seq) -> (Body, u32) {
        let entry = &self.ring[seq];
        let (psn, rsn) = (Psn32::default(), seq.wire());
        match entry.resync {
            Some(code) => (Body::Resync { psn, rsn, code, of: PacketType::PullData, vendor: 0 }, 0),
            None => (Body::PullData { psn, rsn, ulp: entry.ulp }, entry.payload_len),
        }
    }

    /// Handles the acknowledgement of the data of `seq`.
    pub(super) fn acked(&mut self, seq: Seq, resources: &mut Resources, usage: &mut Usage) {
        let entry = &mut self.ring[seq];
        entry.state = State::Done;
        if let Some(tx) = entry.tx.take(ResourcePart::DataTx) {
            usage.data.subtract(tx.amount());
            resources.release(tx);
        }
        self.remove_finished();
    }

    /// Handles a permanent refusal of the data of `seq`.
    pub(super) fn nacked(&mut self, seq: Seq) {
        self.ring[seq].resync.get_or_insert(ResyncCode::RemoteXlr);
    }

    /// Handles the case that the data of `seq` has reached its maximum number of transmissions.
    pub(super) fn exhausted(&mut self, seq: Seq) -> Exhausted {
        let entry = &mut self.ring[seq];
        if entry.resync == Some(ResyncCode::RetransmissionExhausted) {
            return Exhausted::Terminated;
        }
        entry.resync = Some(ResyncCode::RetransmissionExhausted);
        Exhausted::Resync
    }

    fn remove_finished(&mut self) {
        if self.ring[self.ring.base()].state != State::Done {
            return;
        }
        while self.ring[self.ring.base()].state == State::Done {
            self.ring.advance();
        }
        let base = self.ring.base();
        self.arrived = self.arrived.max(base);
        self.next_delivery = self.next_delivery.max(base);
        self.next_data = self.next_data.max(base);
        self.note_arrival();
    }

    /// Handles the failure of the connection: all held resources are released.
    pub(super) fn terminate(&mut self, resources: &mut Resources, usage: &mut Usage) {
        let mut seq = self.ring.base();
        while seq < self.ring.end_of_entries() {
            let entry = &mut self.ring[seq];
            entry.clear();
            if let Some(rx) = entry.rx.take(ResourcePart::RequestRx) {
                resources.release(rx);
            }
            if let Some(tx) = entry.tx.take(ResourcePart::DataTx) {
                usage.data.subtract(tx.amount());
                resources.release(tx);
            }
            seq += 1;
        }
        self.responses.clear();
        self.unsent = 0;
        self.settled.clear();
        self.next_retry = NEVER;
    }
}
