//! One window of the sender: a context for every outstanding packet, and which of them are to be sent again.
//!
//! Source: Falcon (SIGCOMM'25) section 5.2 (contexts per packet, F-14); specification Rev 0.9, sections 9.1.1 and
//! 9.1.2.
//!
//! Contradiction 11 of the specification: an EACK is to be remembered in an "Rx bitmap" that its list of state does not
//! have. Here *arrived* (a ring as wide as what an acknowledgement tells) and *acknowledged* (in the context) are two.
//!
//! Contexts lie in a ring that grows until it holds the largest window asked for: an idle connection is small, and in
//! steady state nothing is allocated.

use rnic_base::{AnyRing, Duration, Psn32, RingBitmap, Seq, Time, near_whole_at};
use rnic_policy::{LossRule, WindowView};
use rnic_wire::falcon::{Rsn, Window};

use crate::delivery::config::{NEVER, TX_WINDOW_MAX};
use crate::delivery::per_flow::PerFlow;
use crate::seam::Context;

/// What a packet is, as far as gates and order care.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Kind {
    #[default]
    PullRequest,
    PushData,
    PullData,
}

impl Kind {
    /// Whether `ncwnd` counts it: all but Pull Data (F-19).
    #[inline]
    pub(crate) fn is_request(self) -> bool {
        self != Self::PullData
    }
}

/// Why a packet that has left, and is not known to have arrived, does not count as under way: it is on no link and in
/// no buffer. Of two reasons the later one here is kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) enum Held {
    /// It does.
    #[default]
    No,
    /// A gate keeps it from leaving again.
    ForTurn,
    /// It was dropped beyond the peer's window, and is held until it is known to have arrived.
    BeyondWindow,
    /// Its receiver was not ready for it, and it has not left since.
    NotReady,
}

/// The context of an outstanding packet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    /// When it left first, and last.
    pub(crate) first: Time,
    pub(crate) last: Time,
    /// It is not to be sent again before: the receiver was not ready.
    pub(crate) not_before: Time,
    pub(crate) context: Context,
    pub(crate) rsn: Rsn,
    /// Transmissions, saturating.
    pub(crate) transmissions: u16,
    /// Timeouts since it left, or since it was replaced by a Resync.
    pub(crate) timeouts: u16,
    /// Times it was sent again before its timeout.
    pub(crate) early: u16,
    pub(crate) flow: u8,
    pub(crate) kind: Kind,
    /// The sender's transaction is done with it; its number waits for the base.
    pub(crate) acknowledged: bool,
    /// A Resync has taken its place.
    pub(crate) replaced: bool,
    /// It counts as an outstanding retransmission.
    pub(crate) again: bool,
    /// Whether it counts as under way.
    pub(crate) held: Held,
    /// Its receiver was not ready for it once: what acknowledgements tell of may be the copy that was refused.
    pub(crate) refused: bool,
}

// There is one for each packet under way, and looking for losses goes through them.
const _: () = assert!(size_of::<Sent>() == 48);

/// One window of the sender: what is outstanding, and what of it leaves again.
#[derive(Clone, Debug)]
pub(crate) struct TxWindow {
    pub(crate) base: Seq,
    pub(crate) next: Seq,
    limit: u32,
    ring: Box<[Sent]>,
    /// What an acknowledgement has said to have arrived, from the base on.
    arrived: AnyRing,
    arrivals: u32,
    /// Packets that are [held](Held); none of them is known to have arrived.
    held: u32,
    /// What is to be sent again, from the base on; made with the first.
    marked: Option<Box<Marked>>,
    marks: u32,
    /// Outstanding requests: ORC.
    pub(crate) outstanding: u32,
    /// Of them, those sent again that are neither found lost since nor have arrived: ORRC.
    pub(crate) outstanding_again: u32,
    /// Not later than the first timeout.
    pub(crate) timer: Time,
    /// What is lost, by flow.
    pub(crate) rules: PerFlow<Option<LossRule>>,
    /// When a packet comes of age that a rule was too early for.
    pub(crate) of_age: Time,
    /// When an acknowledgement last opened the window.
    pub(crate) opened: Time,
    /// No new request may leave before the base moves past this: packets beyond the peer's window were dropped.
    pub(crate) paused_below: Seq,
}

type Marked = RingBitmap<{ (TX_WINDOW_MAX / u64::BITS) as usize }>;

/// Contexts of a window that something was sent in.
const RING_FIRST: usize = 4;

/// So many times as large the ring grows at once.
const GROWTH: usize = 4;

impl TxWindow {
    pub(crate) fn new(window: Window, first: Psn32, limit: u32, flows: usize) -> Self {
        let bits = match window {
            Window::Request => u64::BITS,
            Window::Data => u128::BITS,
        };
        Self {
            base: Seq::start(first),
            next: Seq::start(first),
            limit,
            ring: Box::default(),
            arrived: AnyRing::with_bits(bits),
            arrivals: 0,
            held: 0,
            marked: None,
            marks: 0,
            outstanding: 0,
            outstanding_again: 0,
            timer: NEVER,
            rules: PerFlow::new(flows, |_| None),
            of_age: NEVER,
            opened: Time::ZERO,
            paused_below: Seq::UNSET,
        }
    }

    #[inline]
    pub(crate) fn touch_apart(&self) {
        near_whole_at(&self.ring, self.slot(self.base));
        near_whole_at(&self.ring, self.slot(self.next));
    }

    /// Packets from the base to the last that was sent.
    #[inline]
    pub(crate) fn span(&self) -> u64 {
        self.next.since(self.base)
    }

    /// Packets that have left and are not known to have arrived.
    #[inline]
    pub(crate) fn under_way(&self) -> u64 {
        self.span() - u64::from(self.arrivals + self.held)
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.span() >= u64::from(self.limit)
    }

    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.base == self.next
    }

    #[inline]
    fn slot(&self, seq: Seq) -> usize {
        seq.get() as usize & self.ring.len().wrapping_sub(1)
    }

    /// The context of outstanding packet `seq`.
    #[inline]
    pub(crate) fn sent(&self, seq: Seq) -> &Sent {
        &self.ring[self.slot(seq)]
    }

    #[inline]
    pub(crate) fn sent_mut(&mut self, seq: Seq) -> &mut Sent {
        let slot = self.slot(seq);
        &mut self.ring[slot]
    }

    /// A packet leaves for the first time: its number.
    #[inline]
    pub(crate) fn push(&mut self, sent: Sent) -> Seq {
        assert!(!self.is_full(), "a packet left through a closed gate");
        if self.span() == self.ring.len() as u64 {
            self.grow();
        }
        let seq = self.next;
        *self.sent_mut(seq) = sent;
        self.next += 1;
        self.outstanding += u32::from(sent.kind.is_request());
        seq
    }

    #[cold]
    fn grow(&mut self) {
        let len = (self.ring.len() * GROWTH).max(RING_FIRST).min(self.limit as usize);
        let mut wider = vec![Sent::default(); len].into_boxed_slice();
        let mask = wider.len() as u64 - 1;
        for offset in 0..self.span() {
            let seq = self.base + offset;
            wider[(seq.get() & mask) as usize] = *self.sent(seq);
        }
        self.ring = wider;
    }

    /// Takes the oldest packet off, whose number the peer's base has passed.
    #[inline]
    pub(crate) fn pop(&mut self) -> Sent {
        let sent = *self.sent(self.base);
        self.held -= u32::from(sent.held != Held::No);
        if self.arrivals > 0 {
            self.arrivals -= u32::from(self.arrived.test(0));
            self.arrived.advance(1);
        }
        if self.marks > 0
            && let Some(marked) = &mut self.marked
        {
            self.marks -= u32::from(marked.test(0));
            marked.advance(1);
        }
        self.base += 1;
        sent
    }

    /// The sender's transaction is done with the packet: off the counts.
    #[inline]
    pub(crate) fn discount(&mut self, sent: Sent) {
        if sent.kind.is_request() {
            self.outstanding -= 1;
            self.outstanding_again -= u32::from(sent.again);
        }
    }

    /// A packet may time out sooner now, by `shortened` at most.
    pub(crate) fn advance_timer(&mut self, shortened: Duration) {
        if self.timer < NEVER {
            self.timer = self.timer - shortened;
        }
    }

    /// Whether packet `seq` is known to have arrived.
    #[inline]
    pub(crate) fn has_arrived(&self, seq: Seq) -> bool {
        seq < self.base || self.arrivals > 0 && self.arrived.test(seq.since(self.base) as u32)
    }

    /// Whether a packet behind `seq` is known to have arrived that left at the same moment, on the same flow.
    #[cold]
    pub(crate) fn has_companion_arrived(&self, seq: Seq) -> bool {
        let (sent, offset) = (self.sent(seq), seq.since(self.base) as u32);
        let last = if self.arrivals == 0 { None } else { self.arrived.last_one() };
        let mut behind = (offset + 1..=last.unwrap_or(0)).filter(|offset| self.arrived.test(*offset));
        behind.any(|offset| {
            let other = self.sent(self.base + u64::from(offset));
            other.last == sent.last && other.flow == sent.flow
        })
    }

    /// Whether acknowledgements reach as far as packet `seq`: what lies beyond is never known to have arrived.
    #[inline]
    pub(crate) fn is_told(&self, seq: Seq) -> bool {
        seq.since(self.base) < u64::from(self.arrived.bits())
    }

    /// Packet `seq` has arrived. Numbers beyond what acknowledgements tell cannot be remembered, and are not told.
    pub(crate) fn set_arrived(&mut self, seq: Seq) {
        let offset = seq.since(self.base);
        let sent = self.sent(seq);
        if sent.replaced || sent.held == Held::NotReady {
            // It is the packet that has arrived, and not yet the Resync that takes its place, or what leaves again.
            return;
        }
        if self.is_told(seq) && self.arrived.set(offset as u32) {
            self.arrivals += 1;
            self.unhold(seq);
            // The peer lives.
            self.sent_mut(seq).timeouts = 0;
            self.end_repeat(seq);
            if self.is_marked(seq) {
                // No timer was kept for what was to leave anyway.
                self.timer = Time::ZERO;
                self.unmark(seq);
            }
        }
    }

    /// Packet `seq` does not count as under way, because of `why` or of what already kept it.
    pub(crate) fn hold(&mut self, seq: Seq, why: Held) {
        if !self.has_arrived(seq) {
            let held = &mut self.sent_mut(seq).held;
            let is_first = *held == Held::No;
            *held = why.max(*held);
            self.held += u32::from(is_first);
        }
    }

    /// The receiver was not ready for packet `seq`, which is as if it had not arrived: it leaves again.
    pub(crate) fn hold_not_ready(&mut self, seq: Seq) {
        self.clear_arrived(seq);
        // Or it would hold back, for as long as its receiver pleases, what may leave again.
        self.end_repeat(seq);
        self.hold(seq, Held::NotReady);
        self.sent_mut(seq).refused = true;
    }

    /// Packet `seq` leaves again. What was dropped beyond the peer's window will be again until the base moves: what
    /// moves it must not wait for the room of this one, which leaves once a round trip.
    #[inline]
    pub(crate) fn leave_again(&mut self, seq: Seq) {
        if self.sent(seq).held != Held::BeyondWindow {
            self.unhold(seq);
        }
    }

    /// Packet `seq` counts again, or is known to have arrived.
    #[inline]
    fn unhold(&mut self, seq: Seq) {
        let held = &mut self.sent_mut(seq).held;
        if *held != Held::No {
            *held = Held::No;
            self.held -= 1;
        }
    }

    /// The receiver has it no more, or refuses it: it can be lost again.
    pub(crate) fn clear_arrived(&mut self, seq: Seq) {
        let offset = seq.since(self.base) as u32;
        if self.arrived.test(offset) {
            self.arrived.clear(offset);
            self.arrivals -= 1;
        }
    }

    /// Bits of packets from the base on that are known to have arrived.
    #[inline]
    pub(crate) fn arrived_bits(&self) -> u128 {
        if self.arrivals == 0 { 0 } else { self.arrived.first_128() }
    }

    /// The first packet from offset `from` on that is not known to have arrived, as an offset.
    #[inline]
    pub(crate) fn first_missing(&self, from: u32) -> Option<u32> {
        if self.arrivals == 0 {
            return (from < self.arrived.bits()).then_some(from);
        }
        self.arrived.first_zero(from)
    }

    /// Packet `seq` is to be sent again; `false` when that was known, or makes no sense any more.
    pub(crate) fn mark(&mut self, seq: Seq) -> bool {
        let offset = seq.since(self.base) as u32;
        if self.sent(seq).acknowledged || !self.marked.get_or_insert_default().set(offset) {
            return false;
        }
        self.marks += 1;
        self.end_repeat(seq);
        true
    }

    /// If packet `seq` is under way again, it is no longer: it is lost, was refused, or has arrived. What has arrived
    /// would hold back, where ncwnd has become smaller, the packet that it waits for at the receiver.
    fn end_repeat(&mut self, seq: Seq) {
        let sent = self.sent_mut(seq);
        // What is acknowledged is off the counts.
        if !sent.acknowledged && core::mem::replace(&mut sent.again, false) {
            self.outstanding_again -= u32::from(self.sent(seq).kind.is_request());
        }
    }

    pub(crate) fn unmark(&mut self, seq: Seq) {
        let offset = seq.since(self.base) as u32;
        if self.marks > 0
            && let Some(marked) = self.marked.as_mut().filter(|marked| marked.test(offset))
        {
            marked.clear(offset);
            self.marks -= 1;
        }
    }

    #[inline]
    pub(crate) fn is_marked(&self, seq: Seq) -> bool {
        let offset = seq.since(self.base) as u32;
        self.marks > 0 && self.marked.as_ref().is_some_and(|marked| marked.test(offset))
    }

    /// The lowest packet to be sent again.
    #[inline]
    pub(crate) fn first_marked(&self) -> Option<Seq> {
        if self.marks == 0 {
            return None;
        }
        self.next_marked_from(0)
    }

    /// The lowest above `seq`.
    pub(crate) fn next_marked(&self, seq: Seq) -> Option<Seq> {
        self.next_marked_from(seq.since(self.base) as u32 + 1)
    }

    fn next_marked_from(&self, offset: u32) -> Option<Seq> {
        self.marked.as_ref()?.first_one(offset).map(|offset| self.base + u64::from(offset))
    }

    /// Whether anything is to be sent again.
    #[inline]
    pub(crate) fn has_marks(&self) -> bool {
        self.marks > 0
    }

    /// What recovery policies see.
    pub(crate) fn view(&self, now: Time) -> WindowView<'_> {
        let highest = if self.arrivals == 0 { None } else { self.arrived.last_one() };
        WindowView {
            now,
            una: self.base,
            next: self.next,
            highest_sacked: highest.map(|offset| self.base + u64::from(offset)),
            sacked: Some(&self.arrived),
        }
    }
}
