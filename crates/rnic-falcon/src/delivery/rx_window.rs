//! One window of the receiver: what has arrived, and what the sender may forget.
//!
//! Source: specification Rev 0.9, sections 9.2.1 and 9.2.2.4; Falcon (SIGCOMM'25) section 4.1 (F-9, F-10).
//!
//! Contradictions of the specification, and the side taken:
//!
//! - 9 and 9.2.2.4: packet base + size is outside (base to base + size - 1 are the window's bits).
//! - 9.2.2.4 and 11: a packet that was received and not acknowledged is a duplicate too (section 11, not 9.2.2.4).
//! - 9.2.1: the base is the oldest packet that is not *acknowledged*.
//!
//! Beyond the window the paper keeps packets (F-10), so the ring is as wide as the widest bitmap there is, under either
//! policy; what lies beyond the ring has no place to be remembered at, and is dropped. Acknowledgements carry the first
//! 64 or 128 bits whatever the width.

use rnic_base::{AnyRing, Psn32, Seq};

use crate::delivery::config::TRACKED_MAX;

/// Where an arriving packet falls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Acknowledged already.
    Acknowledged,
    /// Here, and not acknowledged.
    Received,
    /// Not here, and within the window.
    New,
    /// Not here, beyond the window, where there is still a bit for it.
    Beyond,
    /// Beyond everything.
    Outside,
}

/// What is remembered of a received packet until it is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Arrived {
    /// The flow that it came on.
    pub(crate) flow: u8,
    /// It asked for an acknowledgement.
    pub(crate) asks: bool,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct RxWindow {
    base: Seq,
    /// Bits of both rings that are set, to keep the packet that comes in order off them.
    held: u32,
    width: u32,
    received: AnyRing,
    acknowledged: AnyRing,
    arrived: Box<[Arrived]>,
    /// Packets beyond the window were dropped, and no acknowledgement has said so yet.
    pub(crate) out_of_window: bool,
}

impl RxWindow {
    /// An empty one of `width` packets, which keeps packets beyond it when `keeps_beyond`.
    pub(crate) fn new(first: Psn32, width: u32, keeps_beyond: bool) -> Self {
        let tracked = if keeps_beyond { TRACKED_MAX } else { width };
        Self {
            base: Seq::start(first),
            held: 0,
            width,
            received: AnyRing::with_bits(tracked),
            acknowledged: AnyRing::with_bits(tracked),
            arrived: vec![Arrived::default(); tracked as usize].into_boxed_slice(),
            out_of_window: false,
        }
    }

    /// The oldest packet that is not acknowledged.
    #[inline]
    pub(crate) fn base(&self) -> Psn32 {
        self.base.wire()
    }

    /// Where packet `psn` falls.
    #[inline]
    pub(crate) fn place(&self, psn: Psn32) -> (Seq, Place) {
        let seq = psn.extend(self.base);
        if seq < self.base {
            return (seq, Place::Acknowledged);
        }
        let offset = seq.since(self.base);
        let place = if offset >= u64::from(self.received.bits()) {
            Place::Outside
        } else if self.held == 0 {
            self.fresh(offset)
        } else if self.acknowledged.test(offset as u32) {
            Place::Acknowledged
        } else if self.received.test(offset as u32) {
            Place::Received
        } else {
            self.fresh(offset)
        };
        (seq, place)
    }

    #[inline]
    fn fresh(&self, offset: u64) -> Place {
        if offset < u64::from(self.width) { Place::New } else { Place::Beyond }
    }

    /// Keeps the new packet `seq`; `acknowledged` when its sender may forget it.
    #[inline]
    pub(crate) fn receive(&mut self, seq: Seq, arrived: Arrived, acknowledged: bool) {
        if acknowledged && self.held == 0 && seq == self.base {
            self.base += 1;
            return;
        }
        let fresh = self.received.set(self.offset(seq));
        assert!(fresh, "packet {seq} was received twice");
        self.held += 1;
        let slot = self.slot(seq);
        self.arrived[slot] = arrived;
        if acknowledged {
            self.acknowledge(seq.wire());
        }
    }

    /// The sender may forget received packet `psn`. What was remembered of it, unless that was known before.
    pub(crate) fn acknowledge(&mut self, psn: Psn32) -> Option<Arrived> {
        let (seq, place) = self.place(psn);
        if place != Place::Received {
            return None;
        }
        self.acknowledged.set(self.offset(seq));
        let arrived = self.arrived[self.slot(seq)];
        if seq == self.base {
            let count = self.acknowledged.first_zero(0).unwrap_or(self.acknowledged.bits());
            self.acknowledged.advance(count);
            self.received.advance(count);
            self.held -= count;
            self.base += u64::from(count);
        }
        Some(arrived)
    }

    /// What was remembered of received packet `seq`.
    pub(crate) fn arrived(&self, seq: Seq) -> Arrived {
        self.arrived[self.slot(seq)]
    }

    /// Acknowledged packets from the base on, 128 of them.
    #[inline]
    pub(crate) fn acknowledged_bits(&self) -> u128 {
        if self.held == 0 { 0 } else { self.acknowledged.first_128() }
    }

    /// Packets from the base on that are here, 128 of them.
    #[inline]
    pub(crate) fn received_bits(&self) -> u128 {
        if self.held == 0 { 0 } else { self.received.first_128() }
    }

    /// Whether everything that is here is acknowledged and told by the base.
    #[inline]
    pub(crate) fn is_told_by_base(&self) -> bool {
        self.held == 0 && !self.out_of_window
    }

    fn offset(&self, seq: Seq) -> u32 {
        seq.since(self.base) as u32
    }

    fn slot(&self, seq: Seq) -> usize {
        (seq.get() & (self.arrived.len() as u64 - 1)) as usize
    }
}
