//! One window of the sender: a context for every outstanding packet, and marks on the packets to be retransmitted.
//!
//! Source: Falcon (SIGCOMM'25) section 5.2 (contexts per packet, F-14); specification Rev 0.9, sections 9.1.1 and
//! 9.1.2.
//!
//! Contradiction 11 of the specification: an EACK is to be recorded in an "Rx bitmap" that is missing from its list of
//! state. Here *arrived* (a ring as wide as the bitmap of an acknowledgement) and *acknowledged* (in the context) are
//! separate.
//!
//! Contexts are stored in a ring that grows until it holds the largest window used: an idle connection is small, and in
//! steady state no memory is allocated.

use rnic_base::{AnyRing, Duration, Psn32, RingBitmap, Seq, Time, prefetch_whole_at};
use rnic_policy::{LossRule, WindowView};
use rnic_wire::falcon::{Rsn, Window};

use crate::delivery::config::{NEVER, TX_WINDOW_MAX};
use crate::delivery::per_flow::PerFlow;
use crate::seam::Context;

/// Type of a packet, as far as gates and ordering distinguish it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Kind {
    #[default]
    PullRequest,
    PushData,
    PullData,
}

impl Kind {
    /// Returns whether `ncwnd` counts the packet: all but Pull Data (F-19).
    #[inline]
    pub(crate) fn is_request(self) -> bool {
        self != Self::PullData
    }
}

/// Reason for which a packet that was sent, and is not known to have arrived, does not count as in flight: it is on no
/// link and in no buffer. When two reasons apply, the later variant is kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) enum Held {
    /// The packet counts as in flight.
    #[default]
    No,
    /// A gate blocks its retransmission.
    ForTurn,
    /// The packet was dropped beyond the peer's window, and is held until it is known to have arrived.
    BeyondWindow,
    /// The receiver was not ready for the packet, and it has not been retransmitted since.
    NotReady,
}

/// The context of an outstanding packet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    /// Times of the first (`first`) and the last (`last`) transmission.
    pub(crate) first: Time,
    pub(crate) last: Time,
    /// Earliest time of a retransmission, because the receiver was not ready.
    pub(crate) not_before: Time,
    pub(crate) context: Context,
    pub(crate) rsn: Rsn,
    /// Number of transmissions, saturating.
    pub(crate) transmissions: u16,
    /// Number of timeouts since it was first sent, or since it was replaced by a Resync; reset when the peer is known
    /// to be alive.
    pub(crate) timeouts: u16,
    /// Number of retransmissions before its timeout.
    pub(crate) early: u16,
    pub(crate) flow: u8,
    pub(crate) kind: Kind,
    /// True once the sender's transaction needs the packet no longer; its sequence number stays in the window until the
    /// base passes it.
    pub(crate) acknowledged: bool,
    /// True once a Resync has replaced the packet.
    pub(crate) replaced: bool,
    /// True while it counts as an outstanding retransmission.
    pub(crate) again: bool,
    /// Reason not to count it as in flight, if any.
    pub(crate) held: Held,
    /// True once its receiver was not ready for it: the copy reported by acknowledgements may be the one that was
    /// refused.
    pub(crate) refused: bool,
}

// The size matters: there is one context per packet in flight, and loss detection scans them.
const _: () = assert!(size_of::<Sent>() == 48);

/// One window of the sender: outstanding packets, and those of them to be retransmitted.
#[derive(Clone, Debug)]
pub(crate) struct TxWindow {
    pub(crate) base: Seq,
    pub(crate) next: Seq,
    limit: u32,
    ring: Box<[Sent]>,
    /// Bits of packets that acknowledgements have reported as arrived, from the base on.
    arrived: AnyRing,
    arrivals: u32,
    /// Number of packets that are [held](Held); none of them is known to have arrived.
    held: u32,
    /// Bits of packets to be retransmitted, from the base on; allocated with the first.
    marked: Option<Box<Marked>>,
    marks: u32,
    /// Number of outstanding requests: ORC.
    pub(crate) outstanding: u32,
    /// Number of outstanding requests that were retransmitted and have since neither been considered lost nor arrived:
    /// ORRC.
    pub(crate) outstanding_again: u32,
    /// Lower bound of the first timeout.
    pub(crate) timer: Time,
    /// Loss rule of each flow.
    pub(crate) rules: PerFlow<Option<LossRule>>,
    /// Time at which the next packet reaches the age limit of a rule.
    pub(crate) loss_check_at: Time,
    /// Time at which an acknowledgement last opened the window.
    pub(crate) opened: Time,
    /// New requests are not sent before the base reaches this number, because packets beyond the peer's window were
    /// dropped.
    pub(crate) paused_below: Seq,
}

type Marked = RingBitmap<{ (TX_WINDOW_MAX / u64::BITS) as usize }>;

/// Initial number of contexts of a window, allocated with the first packet.
const RING_FIRST: usize = 4;

/// Factor by which the ring grows.
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
            loss_check_at: NEVER,
            opened: Time::ZERO,
            paused_below: Seq::UNSET,
        }
    }

    #[inline]
    pub(crate) fn prefetch_indirect(&self) {
        prefetch_whole_at(&self.ring, self.slot(self.base));
        prefetch_whole_at(&self.ring, self.slot(self.next));
    }

    /// Returns the number of packets from the base to the last one sent.
    #[inline]
    pub(crate) fn span(&self) -> u64 {
        self.next.since(self.base)
    }

    /// Returns the number of packets in flight: sent, not known to have arrived, and not held.
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

    /// Returns the context of outstanding packet `seq`.
    #[inline]
    pub(crate) fn sent(&self, seq: Seq) -> &Sent {
        &self.ring[self.slot(seq)]
    }

    #[inline]
    pub(crate) fn sent_mut(&mut self, seq: Seq) -> &mut Sent {
        let slot = self.slot(seq);
        &mut self.ring[slot]
    }

    /// Adds a packet that is sent for the first time; returns its sequence number.
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

    /// Removes and returns the oldest packet, whose number the peer's base has passed.
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

    /// Removes a packet that the sender's transaction needs no longer from the counts.
    #[inline]
    pub(crate) fn discount(&mut self, sent: Sent) {
        if sent.kind.is_request() {
            self.outstanding -= 1;
            self.outstanding_again -= u32::from(sent.again);
        }
    }

    /// Moves the timer earlier, because a packet's timeout was shortened by `shortened` at most.
    pub(crate) fn advance_timer(&mut self, shortened: Duration) {
        if self.timer < NEVER {
            self.timer = self.timer - shortened;
        }
    }

    /// Returns whether packet `seq` is known to have arrived.
    #[inline]
    pub(crate) fn has_arrived(&self, seq: Seq) -> bool {
        seq < self.base || self.arrivals > 0 && self.arrived.test(seq.since(self.base) as u32)
    }

    /// Returns whether a packet after `seq` with the same send time, on the same flow, is known to have arrived.
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

    /// Returns whether packet `seq` is within the bitmaps of acknowledgements: packets beyond are never known to have
    /// arrived.
    #[inline]
    pub(crate) fn is_told(&self, seq: Seq) -> bool {
        seq.since(self.base) < u64::from(self.arrived.bits())
    }

    /// Records the arrival of packet `seq`. Sequence numbers beyond the bitmaps of acknowledgements cannot be recorded,
    /// and are never reported.
    pub(crate) fn set_arrived(&mut self, seq: Seq) {
        let offset = seq.since(self.base);
        let sent = self.sent(seq);
        if sent.replaced || sent.held == Held::NotReady {
            // The original packet has arrived, but not yet the Resync that replaces it, or the retransmission.
            return;
        }
        if self.is_told(seq) && self.arrived.set(offset as u32) {
            self.arrivals += 1;
            self.unhold(seq);
            // The peer is alive.
            self.sent_mut(seq).timeouts = 0;
            self.end_repeat(seq);
            if self.is_marked(seq) {
                // No timer was kept for a packet that was marked for retransmission.
                self.timer = Time::ZERO;
                self.unmark(seq);
            }
        }
    }

    /// Excludes packet `seq` from the packets in flight, because of `why` or of a stronger earlier reason.
    pub(crate) fn hold(&mut self, seq: Seq, why: Held) {
        if !self.has_arrived(seq) {
            let held = &mut self.sent_mut(seq).held;
            let is_first = *held == Held::No;
            *held = why.max(*held);
            self.held += u32::from(is_first);
        }
    }

    /// Holds packet `seq`, for which the receiver was not ready: it counts as not arrived and will be retransmitted.
    pub(crate) fn hold_not_ready(&mut self, seq: Seq) {
        self.clear_arrived(seq);
        // Otherwise it would block other retransmissions for as long as its receiver is not ready.
        self.end_repeat(seq);
        self.hold(seq, Held::NotReady);
        self.sent_mut(seq).refused = true;
    }

    /// Counts packet `seq`, which is retransmitted now, as in flight again. A packet dropped beyond the peer's window
    /// stays held: it is retransmitted once per round trip and dropped again until the base moves, and the packet that
    /// moves the base must not wait for the credit that this one would use.
    #[inline]
    pub(crate) fn leave_again(&mut self, seq: Seq) {
        if self.sent(seq).held != Held::BeyondWindow {
            self.unhold(seq);
        }
    }

    /// Ends the hold of packet `seq`, which counts as in flight again or is known to have arrived.
    #[inline]
    fn unhold(&mut self, seq: Seq) {
        let held = &mut self.sent_mut(seq).held;
        if *held != Held::No {
            *held = Held::No;
            self.held -= 1;
        }
    }

    /// Clears the arrival of packet `seq`, which the receiver no longer has or refuses: it can be lost again.
    pub(crate) fn clear_arrived(&mut self, seq: Seq) {
        let offset = seq.since(self.base) as u32;
        if self.arrived.test(offset) {
            self.arrived.clear(offset);
            self.arrivals -= 1;
        }
    }

    /// Returns the bits of packets from the base on that are known to have arrived.
    #[inline]
    pub(crate) fn arrived_bits(&self) -> u128 {
        if self.arrivals == 0 { 0 } else { self.arrived.first_128() }
    }

    /// Returns the offset of the first packet from offset `from` on that is not known to have arrived.
    #[inline]
    pub(crate) fn first_missing(&self, from: u32) -> Option<u32> {
        if self.arrivals == 0 {
            return (from < self.arrived.bits()).then_some(from);
        }
        self.arrived.first_zero(from)
    }

    /// Marks packet `seq` for retransmission; returns `false` when it was marked already or is acknowledged.
    pub(crate) fn mark(&mut self, seq: Seq) -> bool {
        let offset = seq.since(self.base) as u32;
        if self.sent(seq).acknowledged || !self.marked.get_or_insert_default().set(offset) {
            return false;
        }
        self.marks += 1;
        self.end_repeat(seq);
        true
    }

    /// Stops counting packet `seq` as an outstanding retransmission, because it is lost, was refused, or has arrived.
    /// After `ncwnd` was reduced, a packet that has arrived would otherwise block the packet that it waits for at the
    /// receiver.
    fn end_repeat(&mut self, seq: Seq) {
        let sent = self.sent_mut(seq);
        // Acknowledged packets are no longer counted.
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

    /// Returns the lowest packet to be retransmitted.
    #[inline]
    pub(crate) fn first_marked(&self) -> Option<Seq> {
        if self.marks == 0 {
            return None;
        }
        self.next_marked_from(0)
    }

    /// Returns the lowest packet to be retransmitted above `seq`.
    pub(crate) fn next_marked(&self, seq: Seq) -> Option<Seq> {
        self.next_marked_from(seq.since(self.base) as u32 + 1)
    }

    fn next_marked_from(&self, offset: u32) -> Option<Seq> {
        self.marked.as_ref()?.first_one(offset).map(|offset| self.base + u64::from(offset))
    }

    /// Returns whether any packet is to be retransmitted.
    #[inline]
    pub(crate) fn has_marks(&self) -> bool {
        self.marks > 0
    }

    /// Returns the view of the window that recovery policies receive.
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
