//! One window of the receiver: received packets, and packets that the sender may release.
//!
//! Source: specification Rev 0.9, sections 9.2.1 and 9.2.2.4; Falcon (SIGCOMM'25) section 4.1 (F-9, F-10).
//!
//! Contradictions of the specification, and the alternative chosen:
//!
//! - 9 and 9.2.2.4: packet base + size is outside (base to base + size - 1 are the window's bits).
//! - 9.2.2.4 and 11: a packet that was received and not acknowledged is a duplicate too (section 11, not 9.2.2.4).
//! - 9.2.1: the base is the oldest packet that is not *acknowledged*.
//!
//! The paper keeps packets beyond the window (F-10), up to the width of the widest bitmap; packets further beyond
//! cannot be recorded and are dropped. Acknowledgements carry the first 64 or 128 bits whatever the width.
//!
//! Bitmaps are allocated when the first packet beyond the base is held, and doubled when needed: a connection whose
//! packets arrive in order has none.

use rnic_base::{AnyRing, Psn32, Seq};

use crate::delivery::config::TRACKED_MAX;

/// Position of a received packet relative to the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Acknowledged already.
    Acknowledged,
    /// Received, and not acknowledged.
    Received,
    /// New packet within the window.
    New,
    /// New packet beyond the window, but still within the bitmap.
    Beyond,
    /// Beyond the bitmap.
    Outside,
}

/// Record of a received packet, kept until it is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Arrived {
    /// Flow on which it was received.
    pub(crate) flow: u8,
    /// True when it requested an acknowledgement.
    pub(crate) asks: bool,
}

/// State of packets from the base on.
#[derive(Clone, Debug)]
struct Beyond {
    received: AnyRing,
    acknowledged: AnyRing,
    /// Records by sequence number, as many as there are bits.
    arrived: Box<[Arrived]>,
}

impl Beyond {
    fn with_bits(bits: u32) -> Self {
        let arrived = vec![Arrived::default(); bits as usize].into_boxed_slice();
        Self { received: AnyRing::with_bits(bits), acknowledged: AnyRing::with_bits(bits), arrived }
    }

    fn slot(&self, seq: Seq) -> usize {
        (seq.get() & (self.arrived.len() as u64 - 1)) as usize
    }

    /// Returns a copy with twice the bits; the first bit is that of packet `base`.
    fn doubled(&self, base: Seq) -> Self {
        let bits = self.arrived.len() as u32;
        let mut wider = Self::with_bits(bits * 2);
        for offset in (0..bits).filter(|offset| self.received.test(*offset)) {
            wider.received.set(offset);
            if self.acknowledged.test(offset) {
                wider.acknowledged.set(offset);
            }
            let seq = base + u64::from(offset);
            let slot = wider.slot(seq);
            wider.arrived[slot] = self.arrived[self.slot(seq)];
        }
        wider
    }
}

/// Initial number of bits of a window in which a packet is held beyond its base; doubled when they do not suffice.
const BITS_FIRST: u32 = 64;

/// One window of the receiver: received and acknowledged packets.
#[derive(Clone, Debug)]
pub(crate) struct RxWindow {
    base: Seq,
    /// Number of received packets beyond the base, including the one at the base if it is not acknowledged: most often
    /// none.
    held: u32,
    width: u16,
    /// Number of packets from the base on that can be recorded.
    tracked: u16,
    /// Set while packets beyond the window were dropped and no acknowledgement has reported it yet.
    pub(crate) out_of_window: bool,
    /// Allocated when the first packet is held.
    beyond: Option<Box<Beyond>>,
}

impl RxWindow {
    /// Creates an empty window of `width` packets, which keeps packets beyond it when `keeps_beyond`.
    pub(crate) fn new(first: Psn32, width: u32, keeps_beyond: bool) -> Self {
        let tracked = if keeps_beyond { TRACKED_MAX } else { width };
        Self {
            base: Seq::start(first),
            held: 0,
            width: width as u16,
            tracked: tracked as u16,
            out_of_window: false,
            beyond: None,
        }
    }

    /// Returns the oldest packet that is not acknowledged.
    #[inline]
    pub(crate) fn base(&self) -> Psn32 {
        self.base.wire()
    }

    /// Returns the extended sequence number of packet `psn`, and its position relative to the window.
    #[inline]
    pub(crate) fn place(&self, psn: Psn32) -> (Seq, Place) {
        let seq = psn.extend(self.base);
        if seq < self.base {
            return (seq, Place::Acknowledged);
        }
        let offset = seq.since(self.base);
        let place = if offset >= u64::from(self.tracked) {
            Place::Outside
        } else {
            match self.held_at(offset as u32) {
                Some(place) => place,
                None if offset < u64::from(self.width) => Place::New,
                None => Place::Beyond,
            }
        };
        (seq, place)
    }

    /// Returns the state of the packet `offset` after the base, if it was received.
    #[inline]
    fn held_at(&self, offset: u32) -> Option<Place> {
        if self.held == 0 {
            return None;
        }
        let beyond = self.beyond.as_ref()?;
        match (beyond.acknowledged.test(offset), beyond.received.test(offset)) {
            (true, _) => Some(Place::Acknowledged),
            (false, true) => Some(Place::Received),
            (false, false) => None,
        }
    }

    /// Records the new packet `seq`; `acknowledged` when its sender may release it.
    #[inline]
    pub(crate) fn receive(&mut self, seq: Seq, arrived: Arrived, acknowledged: bool) {
        if acknowledged && self.held == 0 && seq == self.base {
            self.base += 1;
            return;
        }
        self.hold(seq, arrived);
        if acknowledged {
            self.acknowledge(seq.wire());
        }
    }

    fn hold(&mut self, seq: Seq, arrived: Arrived) {
        let (base, offset) = (self.base, self.offset(seq));
        let beyond = self.beyond.get_or_insert_with(|| Box::new(Beyond::with_bits(BITS_FIRST)));
        while offset >= beyond.arrived.len() as u32 {
            **beyond = beyond.doubled(base);
        }
        assert!(beyond.received.set(offset), "packet {seq} was received twice");
        let slot = beyond.slot(seq);
        beyond.arrived[slot] = arrived;
        self.held += 1;
    }

    /// Records that the sender may release received packet `psn`. Returns the packet's record, unless it was
    /// acknowledged before.
    pub(crate) fn acknowledge(&mut self, psn: Psn32) -> Option<Arrived> {
        let (seq, place) = self.place(psn);
        if place != Place::Received {
            return None;
        }
        let (base, offset) = (self.base, self.offset(seq));
        let beyond = self.beyond.as_mut()?;
        beyond.acknowledged.set(offset);
        let arrived = beyond.arrived[beyond.slot(seq)];
        if seq == base {
            let count = beyond.acknowledged.first_zero(0).unwrap_or(beyond.acknowledged.bits());
            beyond.acknowledged.advance(count);
            beyond.received.advance(count);
            self.held -= count;
            self.base += u64::from(count);
        }
        Some(arrived)
    }

    /// Returns whether a packet of `flow` after new packet `seq` was received: `seq` was reordered or retransmitted.
    #[inline]
    pub(crate) fn fills_gap(&self, seq: Seq, flow: u8) -> bool {
        self.held > 0 && self.has_later(seq, flow)
    }

    #[cold]
    fn has_later(&self, seq: Seq, flow: u8) -> bool {
        let (base, offset) = (self.base, self.offset(seq));
        let Some(beyond) = &self.beyond else { return false };
        let Some(last) = beyond.received.last_one() else { return false };
        let of_flow = |later: &u32| {
            beyond.received.test(*later) && beyond.arrived[beyond.slot(base + u64::from(*later))].flow == flow
        };
        (offset + 1..=last).rev().any(|later| of_flow(&later))
    }

    /// Returns the record of received packet `seq`.
    pub(crate) fn arrived(&self, seq: Seq) -> Arrived {
        self.beyond.as_ref().map_or_else(Arrived::default, |beyond| beyond.arrived[beyond.slot(seq)])
    }

    /// Returns the bits of acknowledged packets, 128 from the base on.
    #[inline]
    pub(crate) fn acknowledged_bits(&self) -> u128 {
        self.bits_of(|beyond| &beyond.acknowledged)
    }

    /// Returns the bits of received packets, 128 from the base on.
    #[inline]
    pub(crate) fn received_bits(&self) -> u128 {
        self.bits_of(|beyond| &beyond.received)
    }

    #[inline]
    fn bits_of(&self, ring: impl Fn(&Beyond) -> &AnyRing) -> u128 {
        match &self.beyond {
            Some(beyond) if self.held > 0 => ring(beyond).first_128(),
            _ => 0,
        }
    }

    /// Returns whether the base alone describes the receive state: all received packets are acknowledged and before the
    /// base, and no drop beyond the window is to be reported.
    #[inline]
    pub(crate) fn is_covered_by_base(&self) -> bool {
        self.held == 0 && !self.out_of_window
    }

    fn offset(&self, seq: Seq) -> u32 {
        seq.since(self.base) as u32
    }
}
