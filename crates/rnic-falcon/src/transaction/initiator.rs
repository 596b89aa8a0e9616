//! Our own transactions, from the upper layer's request to its completion (specification Rev 0.9, section 8.4).
//!
//! ```text
//!   Push   submitted -> sent -> acknowledged by the target's upper layer -> completed
//!   Pull   submitted -> sent -> acknowledged on receipt -> data here -> completed
//! ```
//!
//! An entry is blank again when its completion was handed over *and* its packet is acknowledged: either may come first
//! with a Pull. What was refused or given up completes when the Resync that takes its packet's place is acknowledged:
//! until then the target may still be waiting for its number (specification 6.6.5).

use std::collections::VecDeque;

use rnic_base::{Duration, Psn32, Seq, Time};
use rnic_wire::falcon::{Body, CompletionCode, NackCode, Packet, PacketType, ResyncCode, Rsn, Ulp};

use super::ring::Ring;
use super::ulp::{Completion, PulledData, UpperLayer};
use super::{Kind, Ordering, Submission, TransactionConfig, TransactionStats, completion_of};
use crate::resources::threshold::Usage;
use crate::resources::{Held, Resources};
use crate::seam::{Exhausted, Gates, Verdict};

/// What a half of the layer works with, beside its own state.
pub(super) struct Surroundings<'a, U> {
    pub(super) now: Time,
    pub(super) resources: &'a mut Resources,
    pub(super) usage: &'a mut Usage,
    pub(super) stats: &'a mut TransactionStats,
    pub(super) ulp: &'a mut U,
}

/// How a transaction ended, before its completion's turn has come.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    code: CompletionCode,
    ulp_code: u8,
    data: Option<PulledData>,
}

impl Outcome {
    const fn of(code: CompletionCode) -> Self {
        Self { code, ulp_code: 0, data: None }
    }
}

#[derive(Debug, Default)]
struct Entry {
    /// None: blank.
    kind: Option<Kind>,
    length: u16,
    payload_len: u32,
    ulp: Option<Ulp>,
    tag: u64,
    /// Until the packet is acknowledged.
    tx: Option<Held>,
    /// Until the completion is handed over.
    rx: Option<Held>,
    sent: bool,
    acked: bool,
    told: bool,
    /// From now on this takes the packet's place.
    resync: Option<ResyncCode>,
    outcome: Option<Outcome>,
    deadline: Time,
}

impl Entry {
    /// Data may speak before the acknowledgement of the request; everything else waits for that of its packet.
    fn is_ready(&self) -> bool {
        self.outcome.is_some_and(|outcome| self.acked || outcome.data.is_some())
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
    timeout: Duration,
    ring: Ring<Entry>,
    /// The next number (NRSN).
    next: Seq,
    /// On ordered connections: the next completion's.
    untold: Seq,
    /// Not yet sent, by type (F-41), oldest first.
    pulls: VecDeque<Seq>,
    pushes: VecDeque<Seq>,
    next_deadline: Option<Time>,
}

impl Initiator {
    pub(super) fn new(config: &TransactionConfig, first: Rsn) -> Self {
        let first = Seq::start(first);
        Self {
            ordering: config.ordering,
            timeout: config.timeout,
            ring: Ring::new(config.outstanding, first),
            next: first,
            untold: first,
            pulls: VecDeque::new(),
            pushes: VecDeque::new(),
            next_deadline: None,
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.next == self.ring.end()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.next == self.ring.base()
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.next_deadline
    }

    /// The number of the transaction in `slot`.
    pub(super) fn seq_at(&self, slot: u32) -> Seq {
        self.ring.seq_at(slot)
    }

    pub(super) fn slot(&self, seq: Seq) -> u32 {
        self.ring.slot(seq)
    }

    /// What came with the submission of `seq`.
    #[inline]
    pub(super) fn tag(&self, seq: Seq) -> u64 {
        self.ring[seq].tag
    }

    /// What came with the submission of the Pull `rsn` that has no data yet.
    pub(super) fn expected_by(&self, rsn: Rsn) -> Option<u64> {
        let seq = rsn.extend(self.untold);
        if seq < self.ring.base() || seq >= self.next {
            return None;
        }
        let entry = &self.ring[seq];
        (entry.kind == Some(Kind::Pull) && entry.outcome.is_none()).then_some(entry.tag)
    }

    /// The packet of `seq` cannot be sent, for a reason of our own.
    pub(super) fn withdraw(&mut self, seq: Seq) {
        let entry = &mut self.ring[seq];
        entry.outcome.get_or_insert(Outcome::of(CompletionCode::LocalXlr));
        entry.resync.get_or_insert(ResyncCode::LocalXlr);
    }

    /// Takes a transaction, with what it needs; none when that is not there.
    pub(super) fn submit(&mut self, resources: &mut Resources, usage: &mut Usage, what: &Submission) -> Option<Rsn> {
        if self.is_full() {
            return None;
        }
        let units = resources.config().units;
        let length = u32::from(what.length);
        let need = match what.kind {
            Kind::Push => units.push(length),
            Kind::Pull => units.pull(length),
        };
        let (tx, rx) = resources.hold_transaction(need)?;
        usage.tx.add(tx.amount());
        usage.rx.add(rx.amount());
        let seq = self.next;
        self.ring[seq] = Entry {
            kind: Some(what.kind),
            length: what.length,
            payload_len: what.payload_len,
            ulp: Some(what.ulp),
            tag: what.tag,
            tx: Some(tx),
            rx: Some(rx),
            ..Entry::default()
        };
        match what.kind {
            Kind::Push => self.pushes.push_back(seq),
            Kind::Pull => self.pulls.push_back(seq),
        }
        self.next += 1;
        Some(seq.wire())
    }

    /// Which request could leave now: the oldest on an ordered connection, and no other; else the oldest of a type
    /// whose gate is open, `pulls_first` or not.
    pub(super) fn sendable(&self, open: Gates, pulls_first: bool) -> Option<Kind> {
        let (pull, push) = (self.pulls.front(), self.pushes.front());
        match self.ordering {
            Ordering::Ordered => match (pull, push) {
                (Some(pull), Some(push)) if push < pull => open.push_data.then_some(Kind::Push),
                (Some(_), _) => open.pull_request.then_some(Kind::Pull),
                (None, Some(_)) => open.push_data.then_some(Kind::Push),
                (None, None) => None,
            },
            Ordering::Unordered => {
                let pull = (pull.is_some() && open.pull_request).then_some(Kind::Pull);
                let push = (push.is_some() && open.push_data).then_some(Kind::Push);
                if pulls_first { pull.or(push) } else { push.or(pull) }
            }
        }
    }

    /// Sends the oldest request of `kind`; gives its number.
    pub(super) fn send(&mut self, now: Time, kind: Kind) -> Seq {
        let queue = match kind {
            Kind::Push => &mut self.pushes,
            Kind::Pull => &mut self.pulls,
        };
        let seq = queue.pop_front().expect("it was found sendable");
        let deadline = now + self.timeout;
        let entry = &mut self.ring[seq];
        (entry.sent, entry.deadline) = (true, deadline);
        self.next_deadline = Some(self.next_deadline.map_or(deadline, |next| next.min(deadline)));
        seq
    }

    /// What the packet of `seq` says, and its payload bytes.
    pub(super) fn packet(&self, seq: Seq) -> (Body, u32) {
        let entry = &self.ring[seq];
        let (psn, rsn) = (Psn32::default(), seq.wire());
        let kind = entry.kind.expect("only what is there is sent");
        if let Some(code) = entry.resync {
            return (Body::Resync { psn, rsn, code, of: packet_type(kind), vendor: 0 }, 0);
        }
        let ulp = entry.ulp.expect("every entry has them");
        match kind {
            Kind::Pull => (Body::PullRequest { psn, rsn, length: entry.length, ulp }, 0),
            Kind::Push => (Body::PushData { psn, rsn, length: entry.length, ulp }, entry.payload_len),
        }
    }

    /// The packet of `seq` is acknowledged.
    pub(super) fn acked<U: UpperLayer>(&mut self, seq: Seq, with: &mut Surroundings<'_, U>) {
        let entry = &mut self.ring[seq];
        entry.acked = true;
        if let Some(tx) = entry.tx.take() {
            with.usage.tx.subtract(tx.amount());
            with.resources.release(tx);
        }
        if entry.kind == Some(Kind::Push) {
            entry.outcome.get_or_insert(Outcome::of(CompletionCode::Ack));
        }
        self.tell(seq, with);
    }

    /// The packet of `seq` was refused for good.
    pub(super) fn nacked(&mut self, seq: Seq, code: NackCode) {
        let (resync, ulp_code) = match code {
            NackCode::CompleteInError { ulp } => (ResyncCode::TargetCompleteInError, ulp),
            NackCode::NonRecoverable { ulp } => (ResyncCode::TargetNonRecoverable, ulp),
            NackCode::InvalidCid => (ResyncCode::TargetInvalidCid, 0),
            NackCode::Xlr | NackCode::Resource | NackCode::NotReady { .. } => (ResyncCode::RemoteXlr, 0),
        };
        let entry = &mut self.ring[seq];
        entry.outcome.get_or_insert(Outcome { ulp_code, ..Outcome::of(completion_of(code)) });
        entry.resync.get_or_insert(resync);
    }

    /// The packet of `seq` was sent as often as it may.
    pub(super) fn exhausted(&mut self, seq: Seq) -> Exhausted {
        let entry = &mut self.ring[seq];
        if entry.resync == Some(ResyncCode::RetransmissionExhausted) {
            return Exhausted::Dead;
        }
        entry.outcome.get_or_insert(Outcome::of(CompletionCode::LocalTimeout));
        entry.resync = Some(ResyncCode::RetransmissionExhausted);
        Exhausted::Resync
    }

    /// Data has come for a Pull, or the Resync that takes its place.
    pub(super) fn answered<U: UpperLayer>(&mut self, packet: &Packet, with: &mut Surroundings<'_, U>) -> Verdict {
        let rsn = packet.body.rsn().expect("Pull Data has one");
        let seq = rsn.extend(self.untold);
        if seq >= self.next {
            return Verdict::Dropped;
        }
        // What is no longer waited for was given up; its number in the data window still counts.
        if seq >= self.ring.base() && self.ring[seq].kind == Some(Kind::Pull) && self.ring[seq].outcome.is_none() {
            let length = u32::from(self.ring[seq].length);
            let tag = self.ring[seq].tag;
            self.ring[seq].outcome = Some(match packet.body {
                Body::PullData { ulp, .. } if packet.payload_len <= length => {
                    let data = PulledData { payload_len: packet.payload_len, ulp };
                    with.ulp.pulled(with.now, tag, &data);
                    Outcome { data: Some(data), ..Outcome::of(CompletionCode::Ack) }
                }
                Body::PullData { .. } => Outcome::of(CompletionCode::OperationError),
                _ => Outcome::of(CompletionCode::RemoteError),
            });
            self.tell(seq, with);
        }
        Verdict::Accepted { acknowledged: true }
    }

    /// Hands over the completions whose turn has come, now that something is known of `seq`.
    fn tell<U: UpperLayer>(&mut self, seq: Seq, with: &mut Surroundings<'_, U>) {
        match self.ordering {
            Ordering::Ordered => {
                while self.untold < self.next && self.ring[self.untold].is_ready() {
                    self.hand_over(self.untold, with);
                    self.untold += 1;
                }
            }
            Ordering::Unordered => {
                if self.ring[seq].is_ready() {
                    self.hand_over(seq, with);
                }
            }
        }
        while self.ring.base() < self.next && self.ring[self.ring.base()].told && self.ring[self.ring.base()].acked {
            self.ring.advance();
        }
        self.untold = self.untold.max(self.ring.base());
    }

    fn hand_over<U: UpperLayer>(&mut self, seq: Seq, with: &mut Surroundings<'_, U>) {
        let entry = &mut self.ring[seq];
        if entry.told {
            return;
        }
        entry.told = true;
        if let Some(rx) = entry.rx.take() {
            with.usage.rx.subtract(rx.amount());
            with.resources.release(rx);
        }
        let Outcome { code, ulp_code, data } = entry.outcome.expect("nothing is handed over before it has ended");
        let completion = Completion { rsn: seq.wire(), tag: entry.tag, code, ulp_code, data };
        with.stats.completed += 1;
        with.stats.completed_in_error += u64::from(code != CompletionCode::Ack);
        with.ulp.complete(with.now, &completion);
    }

    /// Gives up what has taken too long.
    pub(super) fn expire<U: UpperLayer>(&mut self, with: &mut Surroundings<'_, U>) {
        if self.next_deadline.is_none_or(|deadline| deadline > with.now) {
            return;
        }
        self.next_deadline = None;
        let mut seq = self.ring.base();
        while seq < self.next {
            let entry = &mut self.ring[seq];
            if entry.sent && entry.outcome.is_none() {
                if entry.deadline <= with.now {
                    entry.outcome = Some(Outcome::of(CompletionCode::LocalTimeout));
                    entry.resync = (!entry.acked).then_some(ResyncCode::TransactionTimeout);
                } else {
                    let deadline = entry.deadline;
                    self.next_deadline = Some(self.next_deadline.map_or(deadline, |next| next.min(deadline)));
                }
            }
            seq += 1;
        }
        // Telling may free entries at the front.
        let mut seq = self.ring.base();
        while seq < self.next {
            if self.ring.covers(seq) {
                self.tell(seq, with);
            }
            seq += 1;
        }
    }

    /// The connection is dead: everything ends, in order, and everything held goes back.
    pub(super) fn die<U: UpperLayer>(&mut self, with: &mut Surroundings<'_, U>) {
        self.pulls.clear();
        self.pushes.clear();
        self.next_deadline = None;
        while self.ring.base() < self.next {
            let seq = self.ring.base();
            let entry = &mut self.ring[seq];
            entry.outcome.get_or_insert(Outcome::of(CompletionCode::DeadConnection));
            if let Some(tx) = entry.tx.take() {
                with.usage.tx.subtract(tx.amount());
                with.resources.release(tx);
            }
            self.hand_over(seq, with);
            self.ring.advance();
        }
        self.untold = self.next;
    }
}
