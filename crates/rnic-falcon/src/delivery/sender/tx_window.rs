//! One window of the sender: a context for every outstanding packet, and marks on the packets to be retransmitted.
//!
//! Source: Falcon (SIGCOMM'25) section 5.2 (contexts per packet, Falcon mechanism F-14); specification Rev 0.9,
//! sections 9.1.1 and
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
use crate::interface::Context;

/// Type of a packet, as needed for gates and ordering.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Kind {
    #[default]
    PullRequest,
    PushData,
    PullData,
}

impl Kind {
    /// Returns `true` if the packet counts towards `ncwnd`: all but Pull Data (Falcon mechanism F-19).
    #[inline]
    pub(crate) fn is_request(self) -> bool {
        self != Self::PullData
    }
}

/// Reason for which a packet that was sent, and is not known to have arrived, does not count as in flight: it is
/// neither on a link nor in a buffer. If two reasons apply, the later variant is stored.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) enum HoldReason {
    /// The packet counts as in flight.
    #[default]
    No,
    /// A gate blocks the packet's retransmission.
    BlockedByGate,
    /// The packet was dropped beyond the peer's window, and does not count as in flight until it is known to have
    /// arrived.
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
    /// Earliest time of a retransmission after the receiver was not ready.
    pub(crate) not_before: Time,
    pub(crate) context: Context,
    pub(crate) rsn: Rsn,
    /// Number of transmissions; saturates.
    pub(crate) transmissions: u16,
    /// Number of timeouts since the packet was first sent, or since it was replaced by a Resync; reset when the peer
    /// is known to be alive.
    pub(crate) timeouts: u16,
    /// Number of retransmissions of the packet before its timeout.
    pub(crate) early: u16,
    pub(crate) flow: u8,
    pub(crate) kind: Kind,
    /// True after the packet was acknowledged; its sequence number remains in the window until the base passes it.
    pub(crate) acknowledged: bool,
    /// True once a Resync has replaced the packet.
    pub(crate) replaced: bool,
    /// True while the packet counts as an outstanding retransmission.
    pub(crate) is_retransmission: bool,
    /// Reason for which the packet does not count as in flight, if any.
    pub(crate) held: HoldReason,
    /// True after the receiver was not ready for the packet: the copy reported by acknowledgements may be the one
    /// that was refused.
    pub(crate) refused: bool,
}

// The size is important: there is one context per packet in flight, and loss detection scans the contexts.
const _: () = assert!(size_of::<Sent>() == 48);

/// One window of the sender: the outstanding packets, some of which are marked for retransmission.
#[derive(Clone, Debug)]
pub(crate) struct TxWindow {
    pub(crate) base: Seq,
    pub(crate) next: Seq,
    limit: u32,
    ring: Box<[Sent]>,
    /// Bitmap from the base on of the packets that acknowledgements have reported as arrived.
    arrived: AnyRing,
    arrivals: u32,
    /// Number of packets that are held back ([`HoldReason`]); none of them is known to have arrived.
    held: u32,
    /// Bitmap from the base on of the packets to be retransmitted; allocated when the first packet is marked.
    to_retransmit: Option<Box<Marked>>,
    marks: u32,
    /// Number of outstanding requests: ORC.
    pub(crate) outstanding: u32,
    /// Number of outstanding requests that were retransmitted and have since neither been considered lost nor arrived:
    /// ORRC.
    pub(crate) outstanding_retransmissions: u32,
    /// Lower bound of the time of the first timeout.
    pub(crate) timer: Time,
    /// Loss rule of each flow.
    pub(crate) rules: PerFlow<Option<LossRule>>,
    /// Time at which the next packet reaches the age limit of a loss rule.
    pub(crate) loss_check_at: Time,
    /// Time at which an acknowledgement last opened the window.
    pub(crate) opened: Time,
    /// New requests are not sent before the base reaches this number, because packets beyond the peer's window were
    /// dropped.
    pub(crate) paused_below: Seq,
}

type Marked = RingBitmap<{ (TX_WINDOW_MAX / u64::BITS) as usize }>;

/// Initial number of contexts of a window, allocated when the first packet is sent.
const CONTEXTS_INITIAL: usize = 4;

/// Factor by which the ring of contexts grows.
const RING_GROWTH_FACTOR: usize = 4;

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
            to_retransmit: None,
            marks: 0,
            outstanding: 0,
            outstanding_retransmissions: 0,
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
    pub(crate) fn in_flight(&self) -> u64 {
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

    /// Returns the context of the outstanding packet `seq`.
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
        assert!(!self.is_full(), "a packet was sent through a closed gate");
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
        let len = (self.ring.len() * RING_GROWTH_FACTOR).max(CONTEXTS_INITIAL).min(self.limit as usize);
        let mut wider = vec![Sent::default(); len].into_boxed_slice();
        let mask = wider.len() as u64 - 1;
        for offset in 0..self.span() {
            let seq = self.base + offset;
            wider[(seq.get() & mask) as usize] = *self.sent(seq);
        }
        self.ring = wider;
    }

    /// Removes and returns the oldest packet, which the peer's base has passed.
    #[inline]
    pub(crate) fn pop(&mut self) -> Sent {
        let sent = *self.sent(self.base);
        self.held -= u32::from(sent.held != HoldReason::No);
        if self.arrivals > 0 {
            self.arrivals -= u32::from(self.arrived.test(0));
            self.arrived.advance(1);
        }
        if self.marks > 0
            && let Some(to_retransmit) = &mut self.to_retransmit
        {
            self.marks -= u32::from(to_retransmit.test(0));
            to_retransmit.advance(1);
        }
        self.base += 1;
        sent
    }

    /// Removes an acknowledged packet from the counts.
    #[inline]
    pub(crate) fn discount(&mut self, sent: Sent) {
        if sent.kind.is_request() {
            self.outstanding -= 1;
            self.outstanding_retransmissions -= u32::from(sent.is_retransmission);
        }
    }

    /// Moves the timer earlier, because the timeouts of packets were shortened by at most `shortened`.
    pub(crate) fn advance_timer(&mut self, shortened: Duration) {
        if self.timer < NEVER {
            self.timer = self.timer - shortened;
        }
    }

    /// Returns `true` if packet `seq` is known to have arrived.
    #[inline]
    pub(crate) fn has_arrived(&self, seq: Seq) -> bool {
        seq < self.base || self.arrivals > 0 && self.arrived.test(seq.since(self.base) as u32)
    }

    /// Returns `true` if a later packet with the same send time on the same flow is known to have arrived.
    #[cold]
    pub(crate) fn has_companion_arrived(&self, seq: Seq) -> bool {
        let (sent, offset) = (self.sent(seq), seq.since(self.base) as u32);
        let last = if self.arrivals == 0 { None } else { self.arrived.last_one() };
        let mut later = (offset + 1..=last.unwrap_or(0)).filter(|offset| self.arrived.test(*offset));
        later.any(|offset| {
            let other = self.sent(self.base + u64::from(offset));
            other.last == sent.last && other.flow == sent.flow
        })
    }

    /// Returns `true` if packet `seq` is within the range of the bitmaps in acknowledgements: packets beyond it are
    /// never known to have arrived.
    #[inline]
    pub(crate) fn is_in_bitmaps(&self, seq: Seq) -> bool {
        seq.since(self.base) < u64::from(self.arrived.bits())
    }

    /// Returns `true` if the timeout of packet `seq`, which is now known to have arrived, was spurious: the packet has
    /// not been retransmitted yet, or less than half of `round_trip` ago.
    #[inline]
    pub(crate) fn was_spurious(&self, seq: Seq, now: Time, round_trip: Option<Duration>) -> bool {
        let sent = self.sent(seq);
        sent.timeouts > 0
            && (self.is_marked(seq) || round_trip.is_some_and(|round_trip| now.since(sent.last) < round_trip / 2))
    }

    /// Records the arrival of packet `seq`. Sequence numbers beyond the bitmaps of acknowledgements cannot be
    /// recorded; acknowledgements never report them.
    pub(crate) fn set_arrived(&mut self, seq: Seq) {
        let offset = seq.since(self.base);
        let sent = self.sent(seq);
        if sent.replaced || sent.held == HoldReason::NotReady {
            // The original packet has arrived, but not yet the Resync or the retransmission that is to follow.
            return;
        }
        if self.is_in_bitmaps(seq) && self.arrived.set(offset as u32) {
            self.arrivals += 1;
            self.unhold(seq);
            // The peer is alive, so timeouts are counted from zero.
            self.sent_mut(seq).timeouts = 0;
            self.uncount_retransmission(seq);
            if self.is_marked(seq) {
                // The timer did not cover this packet while it was marked for retransmission.
                self.timer = Time::ZERO;
                self.unmark(seq);
            }
        }
    }

    /// Excludes packet `seq` from the packets in flight for the reason `reason`, unless a stronger reason already
    /// applies.
    pub(crate) fn hold(&mut self, seq: Seq, reason: HoldReason) {
        if !self.has_arrived(seq) {
            let held = &mut self.sent_mut(seq).held;
            let is_first = *held == HoldReason::No;
            *held = reason.max(*held);
            self.held += u32::from(is_first);
        }
    }

    /// Excludes packet `seq`, for which the receiver was not ready, from the packets in flight: it counts as not
    /// arrived and will be retransmitted.
    pub(crate) fn hold_not_ready(&mut self, seq: Seq) {
        self.clear_arrived(seq);
        // Otherwise the packet would block other retransmissions for as long as its receiver is not ready.
        self.uncount_retransmission(seq);
        self.hold(seq, HoldReason::NotReady);
        self.sent_mut(seq).refused = true;
    }

    /// Counts packet `seq`, which is retransmitted now, as in flight again. A packet dropped beyond the peer's window
    /// remains excluded: it is retransmitted once per round trip and dropped again until the base moves, and the
    /// packet that moves the base must not wait for the credit that this one would use.
    #[inline]
    pub(crate) fn resume_in_flight(&mut self, seq: Seq) {
        if self.sent(seq).held != HoldReason::BeyondWindow {
            self.unhold(seq);
        }
    }

    /// Ends the exclusion of packet `seq`, which counts as in flight again or is known to have arrived.
    #[inline]
    fn unhold(&mut self, seq: Seq) {
        let held = &mut self.sent_mut(seq).held;
        if *held != HoldReason::No {
            *held = HoldReason::No;
            self.held -= 1;
        }
    }

    /// Records that packet `seq` counts as not arrived, because the receiver refuses it or no longer has it: it can
    /// be considered lost again.
    pub(crate) fn clear_arrived(&mut self, seq: Seq) {
        let offset = seq.since(self.base) as u32;
        if self.arrived.test(offset) {
            self.arrived.clear(offset);
            self.arrivals -= 1;
        }
    }

    /// Returns the bitmap, from the base on, of the packets that are known to have arrived.
    #[inline]
    pub(crate) fn arrived_bits(&self) -> u128 {
        if self.arrivals == 0 { 0 } else { self.arrived.first_128() }
    }

    /// Returns the offset of the first packet at or after offset `from` that is not known to have arrived.
    #[inline]
    pub(crate) fn first_missing(&self, from: u32) -> Option<u32> {
        if self.arrivals == 0 {
            return (from < self.arrived.bits()).then_some(from);
        }
        self.arrived.first_zero(from)
    }

    /// Marks packet `seq` for retransmission; returns `false` if it was already marked or is acknowledged.
    pub(crate) fn mark(&mut self, seq: Seq) -> bool {
        let offset = seq.since(self.base) as u32;
        if self.sent(seq).acknowledged || !self.to_retransmit.get_or_insert_default().set(offset) {
            return false;
        }
        self.marks += 1;
        self.uncount_retransmission(seq);
        true
    }

    /// Stops counting packet `seq` as an outstanding retransmission, because it is lost, was refused, or has arrived.
    /// After `ncwnd` was reduced, a packet that has arrived would otherwise block the packet for which it waits at
    /// the receiver.
    fn uncount_retransmission(&mut self, seq: Seq) {
        let sent = self.sent_mut(seq);
        // Acknowledged packets are no longer counted.
        if !sent.acknowledged && core::mem::replace(&mut sent.is_retransmission, false) {
            self.outstanding_retransmissions -= u32::from(self.sent(seq).kind.is_request());
        }
    }

    pub(crate) fn unmark(&mut self, seq: Seq) {
        let offset = seq.since(self.base) as u32;
        if self.marks > 0
            && let Some(to_retransmit) = self.to_retransmit.as_mut().filter(|to_retransmit| to_retransmit.test(offset))
        {
            to_retransmit.clear(offset);
            self.marks -= 1;
        }
    }

    #[inline]
    pub(crate) fn is_marked(&self, seq: Seq) -> bool {
        let offset = seq.since(self.base) as u32;
        self.marks > 0 && self.to_retransmit.as_ref().is_some_and(|to_retransmit| to_retransmit.test(offset))
    }

    /// Returns the first packet to be retransmitted.
    #[inline]
    pub(crate) fn first_marked(&self) -> Option<Seq> {
        if self.marks == 0 {
            return None;
        }
        self.next_marked_from(0)
    }

    /// Returns the first packet after `seq` that is to be retransmitted.
    pub(crate) fn next_marked(&self, seq: Seq) -> Option<Seq> {
        self.next_marked_from(seq.since(self.base) as u32 + 1)
    }

    fn next_marked_from(&self, offset: u32) -> Option<Seq> {
        self.to_retransmit.as_ref()?.first_one(offset).map(|offset| self.base + u64::from(offset))
    }

    /// Returns `true` if any packet is to be retransmitted.
    #[inline]
    pub(crate) fn has_marks(&self) -> bool {
        self.marks > 0
    }

    /// Returns the view of the window that is passed to recovery policies.
    pub(crate) fn view(&self, now: Time) -> WindowView<'_> {
        let highest = if self.arrivals == 0 { None } else { self.arrived.last_one() };
        WindowView {
            now,
            una: self.base,
            next: self.next,
            highest_sacked: highest.map(|offset| self.base + u64::from(offset)),
            sacked: Some(&self.arrived),
            marked: None,
            sent: 0,
        }
    }
}
