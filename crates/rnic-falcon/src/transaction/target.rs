//! The peer's transactions, from their arrival to the upper layer's acknowledgement (specification Rev 0.9, section
//! 8.5).
//!
//! ```text
//!   Push   here -> with the upper layer -> acknowledged by it
//!   Pull   here -> with the upper layer -> answered -> data sent -> data acknowledged
//! ```
//!
//! On an ordered connection an out-of-order request is kept until its turn, in buffers that resources account for.
//!
//! Not ready (F-7). A Push is kept, and its sender is requested to retransmit: when the retransmission arrives, the
//! Push is offered to the upper layer again. A Pull is offered again when its wait has elapsed, without notifying the
//! peer. While one is not ready on an ordered connection, all Pushes behind it are not ready either (specification
//! 8.5.3.4). They are kept while there are resources beyond those reserved for heads of lines, and otherwise are
//! retransmitted like the first: the upper layer may wait for packets of another connection.
//!
//! In error (F-8). A Push that the upper layer completes in error is refused, on each retransmission, until a Resync
//! has replaced it; processing of the requests behind it continues.

use rnic_base::{LazyQueue, Psn32, Seq, Time};
use rnic_wire::falcon::{Body, NackCode, Packet, PacketType, ResyncCode, RnrTimer, Rsn, Ulp, Window};

use super::initiator::Surroundings;
use super::ring::{Blank, Ring};
use super::ulp::{Answer, PullReply, PushReply, Request, UpperLayer};
use super::{AnswerError, Kind, NEVER, Ordering, Settled, TransactionConfig};
use crate::resources::threshold::Usage;
use crate::resources::{Part, Resources, Room};
use crate::seam::{Exhausted, Received, Verdict};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// No packet was received for this number.
    Blank,
    /// Received; waits for its turn.
    Kept,
    /// Offered, and to be offered again.
    NotReady,
    /// Accepted by the upper layer, which has not finished it.
    Taken,
    /// Push that ends in error: waits for its Resync.
    Refused,
    /// A Resync was received, and waits for its turn.
    Skipped,
    /// Pull whose data waits to be sent.
    Answered,
    /// Pull whose data is in flight.
    Sent,
    /// Finished.
    Done,
}

#[derive(Debug)]
struct Entry {
    /// The request's headers, later those of the response.
    ulp: Ulp,
    /// Time at which a Pull that was not ready is offered again.
    until: Time,
    psn: Psn32,
    payload_len: u32,
    length: u16,
    /// Receive resources, held until the upper layer has accepted the request.
    rx: Room,
    /// Resources for sending Pull Data, held until it is acknowledged.
    tx: Room,
    /// NACK code sent while the request is not ready, or refused.
    says: NackCode,
    state: State,
    kind: Kind,
    resync: Option<ResyncCode>,
}

// There is one entry for each waiting request.
const _: () = assert!(size_of::<Entry>() <= 104);

impl Entry {
    const EMPTY: Self = Self {
        ulp: Ulp::None,
        until: NEVER,
        psn: Psn32::new(0),
        payload_len: 0,
        length: 0,
        rx: Room::NONE,
        tx: Room::NONE,
        says: NackCode::Resource,
        state: State::Blank,
        kind: Kind::Pull,
        resync: None,
    };

    const fn received(&self) -> Received {
        Received { window: Window::Data, psn: self.psn }
    }

    /// Returns the NACK code for a Push that is not ready or refused.
    fn refusal(&self) -> Option<NackCode> {
        matches!(self.state, State::NotReady | State::Refused).then_some(self.says)
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
struct Fate {
    state: State,
    says: NackCode,
    /// See [`Entry::until`].
    until: Time,
}

impl Fate {
    const fn of(state: State) -> Self {
        Self { state, says: NackCode::Resource, until: NEVER }
    }

    const fn refused(says: NackCode) -> Self {
        Self { state: State::Refused, says, until: NEVER }
    }

    const fn not_ready(code: RnrTimer, until: Time) -> Self {
        Self { state: State::NotReady, says: NackCode::NotReady { timeout: code }, until }
    }
}

/// Offers `request` to the upper layer; returns `None` when it is busy.
#[inline]
fn ask<U: UpperLayer>(kind: Kind, request: &Request, with: &mut Surroundings<'_, U>) -> Option<Fate> {
    Some(match kind {
        Kind::Push => match with.ulp.push(with.now, request) {
            PushReply::Done => Fate::of(State::Done),
            PushReply::Later => Fate::of(State::Taken),
            PushReply::Busy => return None,
            // The Push is offered again when it is retransmitted, not after a time.
            PushReply::NotReady(code) => Fate::not_ready(code, NEVER),
            PushReply::CompleteInError(ulp) => Fate::refused(NackCode::CompleteInError { ulp }),
            PushReply::NonRecoverable(ulp) => Fate::refused(NackCode::NonRecoverable { ulp }),
            PushReply::InvalidCid => Fate::refused(NackCode::InvalidCid),
        },
        Kind::Pull => match with.ulp.pull(with.now, request) {
            PullReply::Later => Fate::of(State::Taken),
            PullReply::Busy => return None,
            PullReply::NotReady(code) => Fate::not_ready(code, with.now + code.wait()),
        },
    })
}

/// The target's half.
#[derive(Debug)]
pub(super) struct Target {
    ordering: Ordering,
    mtu: u16,
    ring: Ring<Entry>,
    /// All requests before this number have arrived: the head of the line.
    arrived: Seq,
    /// On ordered connections: the next request to deliver to the upper layer.
    turn: Seq,
    /// On ordered connections: the next request whose data may be sent.
    data_turn: Seq,
    /// On unordered connections: responses that wait to be sent.
    answers: LazyQueue<Seq>,
    /// Number of responses that wait to be sent, on either type of connection.
    unsent: u32,
    settled: LazyQueue<Settled>,
    /// Lower bound of the times at which Pulls are offered again.
    next_retry: Time,
}

impl Target {
    pub(super) fn new(config: &TransactionConfig, first: Rsn) -> Self {
        let first = Seq::start(first);
        // An initiator releases a Pull when its data has arrived, the target when that data is acknowledged: the
        // target's entries are released later.
        let size = config.outstanding * 2;
        Self {
            ordering: config.ordering,
            mtu: config.mtu,
            ring: Ring::new(size, first),
            arrived: first,
            turn: first,
            data_turn: first,
            answers: LazyQueue::new(),
            unsent: 0,
            settled: LazyQueue::new(),
            next_retry: NEVER,
        }
    }

    #[inline]
    pub(super) fn prefetch_indirect(&self) {
        self.ring.prefetch(self.arrived);
    }

    pub(super) fn settled(&mut self) -> Option<Settled> {
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

    /// Returns whether the Push `rsn` was received and waits for its turn.
    pub(super) fn keeps(&self, rsn: Rsn) -> bool {
        let seq = rsn.extend(self.ring.base());
        self.ring.covers(seq) && self.is_kept(seq)
    }

    fn is_kept(&self, seq: Seq) -> bool {
        let entry = &self.ring[seq];
        entry.state == State::Kept && entry.kind == Kind::Push
    }

    /// Returns the requests for which [`Target::keeps`] holds.
    pub(super) fn kept(&self) -> impl Iterator<Item = Rsn> {
        let (base, size) = (self.ring.base(), self.ring.end_of_entries().since(self.ring.base()));
        let all = (0..size).map(move |offset| base + offset);
        all.filter(|seq| self.is_kept(*seq)).map(Seq::wire)
    }

    /// Withdraws the data of `seq`, which cannot be sent for a local reason.
    pub(super) fn withdraw(&mut self, seq: Seq) {
        self.ring[seq].resync.get_or_insert(ResyncCode::LocalXlr);
    }

    /// Processes a new request, or the Resync of a request, received or not. `refuses` is the NACK code for all
    /// requests, when the upper layer has failed.
    #[inline]
    pub(super) fn offer<U: UpperLayer>(
        &mut self,
        packet: &Packet,
        refuses: Option<NackCode>,
        with: &mut Surroundings<'_, U>,
    ) -> Verdict {
        let seq = packet.body.rsn().expect("requests have one").extend(self.ring.base());
        if seq < self.ring.base() {
            // A Resync may arrive for a request that has ended meanwhile; any other packet has used a number twice.
            let late = matches!(packet.body, Body::Resync { .. });
            return if late { Verdict::Accepted { acknowledged: true } } else { Verdict::Dropped };
        }
        if !self.ring.covers(seq) {
            with.stats.no_resources += 1;
            return Verdict::NoResources;
        }
        let (kind, psn, length, ulp) = match packet.body {
            Body::PullRequest { psn, length, ulp, .. } => (Kind::Pull, psn, length, ulp),
            Body::PushData { psn, length, ulp, .. } => (Kind::Push, psn, length, ulp),
            _ => return self.skip(seq, with),
        };
        if self.ring[seq].state != State::Blank || length > self.mtu || packet.payload_len > u32::from(length) {
            return Verdict::Dropped;
        }
        let payload_len = packet.payload_len;
        let entry = Entry { kind, psn, length, payload_len, ulp, ..Entry::EMPTY };
        if let Some(says) = refuses {
            self.ring[seq] = Entry { says, ..entry };
            return self.offer_in_vain(seq, with);
        }
        let units = with.resources.config().units;
        let need = match kind {
            Kind::Push => units.arrived_push(u32::from(length)),
            Kind::Pull => units.arrived_pull(),
        };
        // Behind a request that is not ready, no request is at the head of the line: until that one is ready, Pulls
        // there would hold the resources reserved for heads of other lines, and it may be waiting for one of those.
        let blocker = self.blocker(seq);
        let head_of_line = self.ordering == Ordering::Unordered || seq == self.arrived && blocker.is_none();
        if !with.resources.admits_arrival(need, head_of_line) {
            with.stats.no_resources += 1;
            return self.offer_without_room(seq, entry, blocker);
        }
        let mut fate = None;
        if kind == Kind::Push && seq == self.ring.base() {
            // All requests before are finished: it is next in any order, and in most cases no other request is waiting.
            fate = Some(ask(kind, &Request { rsn: seq.wire(), length, payload_len, ulp }, with));
            if let Some(Some(Fate { state: State::Done, .. })) = fate {
                with.stats.delivered += 1;
                with.resources.pass_arrival(need);
                self.pass(with);
                return Verdict::Accepted { acknowledged: true };
            }
        }
        let rx = Room::of(with.resources.hold_arrival(need, head_of_line).expect("it was admitted"));
        self.ring[seq] = Entry { state: State::Kept, rx, ..entry };
        self.note_arrival();
        match fate {
            None => self.offer_turn(seq, Some(seq), with),
            Some(Some(fate)) if self.meet(seq, fate, Some(seq), with) => {
                self.turn = self.turn.max(seq + 1);
                self.offer_next(Some(seq), with);
            }
            Some(_) => {}
        }
        self.verdict(seq)
    }

    /// Handles `entry` as [`Target::offer`] does, without resources. A Push behind `blocker` can be recorded as
    /// received and retransmitted together with it; any other request is accepted later, when there are resources.
    #[cold]
    fn offer_without_room(&mut self, seq: Seq, entry: Entry, blocker: Option<NackCode>) -> Verdict {
        let Some(says) = blocker.filter(|_| entry.kind == Kind::Push) else { return Verdict::NoResources };
        self.ring[seq] = Entry { state: State::NotReady, says, ..entry };
        self.note_arrival();
        Verdict::Refused(says)
    }

    /// Handles a request as [`Target::offer`] does, when the upper layer has failed: a Push is refused immediately, and
    /// a Pull in its turn, by its response. Neither holds resources until then, because gaps before it may never be
    /// filled.
    #[cold]
    fn offer_in_vain<U: UpperLayer>(&mut self, seq: Seq, with: &mut Surroundings<'_, U>) -> Verdict {
        let entry = &mut self.ring[seq];
        entry.state = if entry.kind == Kind::Push { State::Refused } else { State::Kept };
        self.note_arrival();
        self.offer_turn(seq, Some(seq), with);
        self.verdict(seq)
    }

    /// Removes the finished request at the front, which has no entry. On ordered connections, the requests behind it
    /// are delivered.
    #[inline]
    fn pass<U: UpperLayer>(&mut self, with: &mut Surroundings<'_, U>) {
        self.ring.pass();
        let base = self.ring.base();
        (self.arrived, self.turn) = (self.arrived.max(base), self.turn.max(base));
        self.data_turn = self.data_turn.max(base);
        if self.ring[base].state != State::Blank {
            self.note_arrival();
            self.offer_next(None, with);
            self.forget_done();
        }
    }

    /// Returns the immediate outcome of the request `seq`, which has just been kept.
    fn verdict(&mut self, seq: Seq) -> Verdict {
        let entry = &self.ring[seq];
        let verdict = match (entry.kind, entry.state) {
            (Kind::Pull, _) | (_, State::Done) => Verdict::Accepted { acknowledged: true },
            (_, State::Refused | State::NotReady) => Verdict::Refused(entry.says),
            _ => match self.blocker(seq) {
                Some(says) => Verdict::Refused(says),
                None => Verdict::Accepted { acknowledged: false },
            },
        };
        self.forget_done();
        verdict
    }

    /// Returns the NACK code of the request that was not ready and that `seq` must wait for, if there is one.
    fn blocker(&self, seq: Seq) -> Option<NackCode> {
        if self.ordering == Ordering::Unordered || self.turn >= seq {
            return None;
        }
        let entry = &self.ring[self.turn];
        (entry.state == State::NotReady).then_some(entry.says)
    }

    /// Processes a Resync that replaces `seq`, received or not.
    fn skip<U: UpperLayer>(&mut self, seq: Seq, with: &mut Surroundings<'_, U>) -> Verdict {
        let entry = &mut self.ring[seq];
        let is_served = entry.kind == Kind::Pull && entry.state == State::Taken;
        if is_served || matches!(entry.state, State::Answered | State::Sent) {
            // The request was acknowledged before, and its data is in flight or will be sent: nothing is skipped.
            return Verdict::Accepted { acknowledged: true };
        }
        if let Some(rx) = entry.rx.take(Part::RequestRx) {
            with.resources.release(rx);
        }
        let was_taken = matches!(entry.state, State::Taken | State::Refused | State::Done);
        entry.state = if was_taken { State::Done } else { State::Skipped };
        if !was_taken && self.ordering == Ordering::Unordered {
            self.skip_now(seq, with);
        }
        self.note_arrival();
        self.offer_turn(seq, Some(seq), with);
        self.forget_done();
        Verdict::Accepted { acknowledged: true }
    }

    /// Notifies the upper layer that `seq` will not be delivered.
    fn skip_now<U: UpperLayer>(&mut self, seq: Seq, with: &mut Surroundings<'_, U>) {
        self.ring[seq].state = State::Done;
        with.ulp.skipped(with.now, seq.wire());
    }

    /// Handles a duplicate of a request that is waiting.
    pub(super) fn duplicate<U: UpperLayer>(
        &mut self,
        packet: &Packet,
        with: &mut Surroundings<'_, U>,
    ) -> Option<NackCode> {
        let Body::PushData { psn, rsn, length, .. } = packet.body else { return None };
        let seq = rsn.extend(self.ring.base());
        if !self.ring.covers(seq) {
            return None;
        }
        let entry = &self.ring[seq];
        // A different packet with the same number is not a duplicate: the upper layer would read bytes that have not
        // arrived.
        let is_it = entry.kind == Kind::Push
            && (entry.psn, entry.length, entry.payload_len) == (psn, length, packet.payload_len);
        match entry.state {
            _ if !is_it => None,
            State::Refused => Some(entry.says),
            State::NotReady => self.ask_again(seq, with),
            State::Kept => self.blocker(seq),
            _ => None,
        }
    }

    /// Handles the retransmission of a Push that was not ready.
    fn ask_again<U: UpperLayer>(&mut self, seq: Seq, with: &mut Surroundings<'_, U>) -> Option<NackCode> {
        if self.ordering == Ordering::Ordered && seq != self.turn {
            return Some(self.ring[seq].says);
        }
        self.ring[seq].state = State::Kept;
        self.offer_turn(seq, Some(seq), with);
        let entry = &mut self.ring[seq];
        if entry.state == State::Kept {
            // The path into the host is full, and no resources are held for the Push here.
            entry.state = State::NotReady;
        }
        let answer = entry.refusal();
        if entry.state == State::Done {
            self.settled.push_back(Settled::Acknowledged(self.ring[seq].received()));
        }
        self.forget_done();
        answer
    }

    fn note_arrival(&mut self) {
        while self.ring.covers(self.arrived) && self.ring[self.arrived].state != State::Blank {
            self.arrived += 1;
        }
    }

    /// Delivers the requests that can be delivered now that `seq` can. The outcome of `quiet` is not settled here,
    /// because the caller returns it.
    fn offer_turn<U: UpperLayer>(&mut self, seq: Seq, quiet: Option<Seq>, with: &mut Surroundings<'_, U>) {
        if self.ordering == Ordering::Unordered {
            if self.ring[seq].state == State::Kept {
                self.hand_over(seq, quiet, with);
            }
            return;
        }
        self.offer_next(quiet, with);
    }

    /// On ordered connections, delivers all requests whose turn has come.
    fn offer_next<U: UpperLayer>(&mut self, quiet: Option<Seq>, with: &mut Surroundings<'_, U>) {
        if self.ordering == Ordering::Unordered {
            return;
        }
        while self.ring.covers(self.turn) {
            let state = self.ring[self.turn].state;
            match state {
                State::Blank | State::NotReady => return,
                State::Kept if !self.hand_over(self.turn, quiet, with) => return,
                // Only after the requests before it were delivered.
                State::Skipped => self.skip_now(self.turn, with),
                _ => {}
            }
            self.turn += 1;
        }
    }

    /// Offers `seq` to the upper layer; returns whether it was accepted or permanently refused. Refusals and
    /// acknowledgements are settled here, except for `quiet`.
    fn hand_over<U: UpperLayer>(&mut self, seq: Seq, quiet: Option<Seq>, with: &mut Surroundings<'_, U>) -> bool {
        let entry = &self.ring[seq];
        let (length, payload_len, ulp) = (entry.length, entry.payload_len, entry.ulp);
        let fate = ask(entry.kind, &Request { rsn: seq.wire(), length, payload_len, ulp }, with);
        fate.is_some_and(|fate| self.meet(seq, fate, quiet, with))
    }

    /// Applies the upper layer's decision `fate` to `seq`; otherwise as [`Target::hand_over`].
    fn meet<U: UpperLayer>(
        &mut self,
        seq: Seq,
        fate: Fate,
        quiet: Option<Seq>,
        with: &mut Surroundings<'_, U>,
    ) -> bool {
        let entry = &mut self.ring[seq];
        (entry.state, entry.says, entry.until) = (fate.state, fate.says, fate.until);
        let (received, is_push) = (entry.received(), entry.kind == Kind::Push);
        let taken = fate.state != State::NotReady;
        if taken {
            with.stats.delivered += u64::from(fate.state != State::Refused);
        } else {
            with.stats.not_ready += 1;
        }
        // A Push that is not ready is retransmitted, and holds no resources until then: without ordering, no other rule
        // would keep resources for the requests that the upper layer waits for.
        if (taken || is_push)
            && let Some(rx) = entry.rx.take(Part::RequestRx)
        {
            with.resources.release(rx);
        }
        if is_push && quiet != Some(seq) {
            match fate.state {
                State::Done => self.settled.push_back(Settled::Acknowledged(received)),
                State::Refused | State::NotReady => self.settled.push_back(Settled::Refused(received, fate.says)),
                _ => {}
            }
        }
        if fate.until < NEVER {
            self.retry_at(fate.until);
        }
        taken
    }

    fn retry_at(&mut self, until: Time) {
        self.next_retry = self.next_retry.min(until);
    }

    /// Offers Pulls again whose wait has elapsed.
    pub(super) fn retry<U: UpperLayer>(&mut self, with: &mut Surroundings<'_, U>) {
        if self.next_retry > with.now {
            return;
        }
        self.next_retry = NEVER;
        let mut seq = self.ring.base();
        while seq < self.ring.end_of_entries() {
            let entry = &mut self.ring[seq];
            if entry.state == State::NotReady && entry.until < NEVER {
                if entry.until <= with.now {
                    entry.state = State::Kept;
                    self.offer_turn(seq, None, with);
                } else {
                    let until = entry.until;
                    self.retry_at(until);
                }
            }
            seq += 1;
        }
        self.forget_done();
    }

    /// Offers the requests that were kept because the path into the host was full, until it is full again.
    pub(super) fn resume<U: UpperLayer>(&mut self, with: &mut Surroundings<'_, U>) {
        match self.ordering {
            Ordering::Ordered => self.offer_turn(self.turn, None, with),
            Ordering::Unordered => {
                let mut seq = self.ring.base();
                while seq < self.ring.end_of_entries() {
                    if self.ring[seq].state == State::Kept && !self.hand_over(seq, None, with) {
                        break;
                    }
                    seq += 1;
                }
            }
        }
        self.forget_done();
    }

    /// Acknowledges a Push on behalf of the upper layer.
    pub(super) fn acknowledge(&mut self, rsn: Rsn) -> Result<(), AnswerError> {
        let seq = self.taken(rsn, Kind::Push)?;
        self.ring[seq].state = State::Done;
        self.settled.push_back(Settled::Acknowledged(self.ring[seq].received()));
        self.forget_done();
        Ok(())
    }

    /// Refuses a Push permanently on behalf of the upper layer.
    pub(super) fn refuse(&mut self, rsn: Rsn, code: NackCode) -> Result<(), AnswerError> {
        let seq = self.taken(rsn, Kind::Push)?;
        let entry = &mut self.ring[seq];
        (entry.state, entry.says) = (State::Refused, code);
        self.settled.push_back(Settled::Refused(self.ring[seq].received(), code));
        Ok(())
    }

    /// See [`super::Transactions::refuse_all`].
    pub(super) fn refuse_all(&mut self, resources: &mut Resources, code: NackCode) {
        let mut seq = self.ring.base();
        while seq < self.ring.end_of_entries() {
            let entry = &mut self.ring[seq];
            if matches!(entry.state, State::Kept | State::NotReady) {
                if entry.kind == Kind::Push {
                    (entry.state, entry.says) = (State::Refused, code);
                }
                if let Some(rx) = entry.rx.take(Part::RequestRx) {
                    resources.release(rx);
                }
            }
            seq += 1;
        }
    }

    /// Stores the upper layer's response to a Pull, to be sent.
    pub(super) fn answer(
        &mut self,
        resources: &mut Resources,
        usage: &mut Usage,
        rsn: Rsn,
        answer: &Answer,
    ) -> Result<(), AnswerError> {
        let seq = self.taken(rsn, Kind::Pull)?;
        let asked = self.ring[seq].length;
        if answer.length > u32::from(asked) || answer.payload_len > answer.length {
            return Err(AnswerError::TooLong { length: answer.length.max(answer.payload_len), asked });
        }
        let need = resources.config().units.pull_data(answer.length);
        let tx = resources.hold(Part::DataTx, need).ok_or(AnswerError::Paused)?;
        usage.data.add(tx.amount());
        let entry = &mut self.ring[seq];
        (entry.state, entry.tx) = (State::Answered, Room::of(tx));
        (entry.payload_len, entry.ulp) = (answer.payload_len, answer.ulp);
        self.unsent += 1;
        if self.ordering == Ordering::Unordered {
            self.answers.push_back(seq);
        }
        Ok(())
    }

    fn taken(&self, rsn: Rsn, kind: Kind) -> Result<Seq, AnswerError> {
        let seq = rsn.extend(self.ring.base());
        let waits = self.ring.covers(seq) && {
            let entry = &self.ring[seq];
            entry.state == State::Taken && entry.kind == kind
        };
        if waits { Ok(seq) } else { Err(AnswerError::Unknown) }
    }

    /// Returns whether any data waits to be sent.
    #[inline]
    pub(super) fn has_answers(&self) -> bool {
        self.unsent > 0
    }

    /// Returns the Pull whose data may be sent next.
    #[inline]
    pub(super) fn sendable(&mut self) -> Option<Seq> {
        if self.unsent == 0 { None } else { self.next_answer() }
    }

    fn next_answer(&mut self) -> Option<Seq> {
        if self.ordering == Ordering::Unordered {
            return self.answers.front().copied();
        }
        while self.ring.covers(self.data_turn) {
            let entry = &self.ring[self.data_turn];
            match entry.state {
                State::Answered => return Some(self.data_turn),
                State::Sent | State::Done => self.data_turn += 1,
                // The type of a request that has not arrived is unknown.
                State::Blank => return None,
                _ if entry.kind == Kind::Push => self.data_turn += 1,
                _ => return None,
            }
        }
        None
    }

    /// Sends the data of `seq`.
    pub(super) fn send(&mut self, seq: Seq) {
        self.ring[seq].state = State::Sent;
        self.unsent -= 1;
        match self.ordering {
            Ordering::Unordered => drop(self.answers.pop_front()),
            Ordering::Ordered => self.data_turn = seq + 1,
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
        if let Some(tx) = entry.tx.take(Part::DataTx) {
            usage.data.subtract(tx.amount());
            resources.release(tx);
        }
        self.forget_done();
    }

    /// Handles a permanent refusal of the data of `seq`.
    pub(super) fn nacked(&mut self, seq: Seq) {
        self.ring[seq].resync.get_or_insert(ResyncCode::RemoteXlr);
    }

    /// Handles that the data of `seq` has reached its maximum number of transmissions.
    pub(super) fn exhausted(&mut self, seq: Seq) -> Exhausted {
        let entry = &mut self.ring[seq];
        if entry.resync == Some(ResyncCode::RetransmissionExhausted) {
            return Exhausted::Dead;
        }
        entry.resync = Some(ResyncCode::RetransmissionExhausted);
        Exhausted::Resync
    }

    fn forget_done(&mut self) {
        if self.ring[self.ring.base()].state != State::Done {
            return;
        }
        while self.ring[self.ring.base()].state == State::Done {
            self.ring.advance();
        }
        let base = self.ring.base();
        self.arrived = self.arrived.max(base);
        self.turn = self.turn.max(base);
        self.data_turn = self.data_turn.max(base);
        self.note_arrival();
    }

    /// Handles the failure of the connection: all held resources are released.
    pub(super) fn die(&mut self, resources: &mut Resources, usage: &mut Usage) {
        let mut seq = self.ring.base();
        while seq < self.ring.end_of_entries() {
            let entry = &mut self.ring[seq];
            entry.clear();
            if let Some(rx) = entry.rx.take(Part::RequestRx) {
                resources.release(rx);
            }
            if let Some(tx) = entry.tx.take(Part::DataTx) {
                usage.data.subtract(tx.amount());
                resources.release(tx);
            }
            seq += 1;
        }
        self.answers.clear();
        self.unsent = 0;
        self.settled.clear();
        self.next_retry = NEVER;
    }
}
