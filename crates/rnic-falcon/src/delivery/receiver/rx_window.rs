//! One window of the receiver: the packets that were received, and those that are acknowledged, which the sender may
//! release.
//!
//! Source: specification Rev 0.9, sections 9.2.1 and 9.2.2.4; Falcon (SIGCOMM'25) section 4.1 (Falcon mechanisms F-9,
//! F-10).
//!
//! Contradictions of the specification, and the alternative chosen:
//!
//! - 9 and 9.2.2.4: the packet with number base + size is outside the window (whose bits are for base to base + size
//!   - 1).
//! - 9.2.2.4 and 11: when a packet arrives that was already received but not acknowledged, it is a duplicate too
//!   (according to section 11, not 9.2.2.4).
//! - 9.2.1: the base is the oldest packet that is not *acknowledged*.
//!
//! The paper keeps packets beyond the window (Falcon mechanism F-10), up to the width of the widest bitmap; packets
//! further beyond cannot be recorded and are dropped. Acknowledgements carry the first 64 or 128 bits, independent of
//! the width.
//!
//! Bitmaps are allocated when the first packet beyond the base is recorded, and doubled when needed: a connection
//! whose packets arrive in order has none.

use rnic_base::{AnyRing, Psn32, Seq};

use crate::delivery::config::TRACKED_MAX;

/// Position of a received packet relative to the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WindowPosition {
    /// The packet is already acknowledged.
    Acknowledged,
    /// The packet was received but is not acknowledged.
    Received,
    /// A new packet within the window.
    New,
    /// A new packet beyond the window, but still within the bitmap.
    Beyond,
    /// A packet beyond the bitmap.
    Outside,
}

/// Record of a received packet, stored until the packet is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Arrived {
    /// Flow on which the packet was received.
    pub(crate) flow: u8,
    /// True if the packet requested an acknowledgement.
    pub(crate) requests_ack: bool,
}

/// Receive state of the packets from the base on.
#[derive(Clone, Debug)]
struct ReceiveState {
    received: AnyRing,
    acknowledged: AnyRing,
    /// Records of the packets, indexed by sequence number modulo the number of bits.
    arrived: Box<[Arrived]>,
}

impl ReceiveState {
    fn with_bits(bits: u32) -> Self {
        let arrived = vec![Arrived::default(); bits as usize].into_boxed_slice();
        Self { received: AnyRing::with_bits(bits), acknowledged: AnyRing::with_bits(bits), arrived }
    }

    fn slot(&self, seq: Seq) -> usize {
        (seq.get() & (self.arrived.len() as u64 - 1)) as usize
    }

    /// Returns a copy with twice the number of bits; the first bit is that of packet `base`.
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

/// Initial number of bits of a window, allocated when a packet beyond the base is recorded; doubled when more are
/// needed.
const BITS_INITIAL: u32 = 64;

/// One window of the receiver: received and acknowledged packets.
#[derive(Clone, Debug)]
pub(crate) struct RxWindow {
    base: Seq,
    /// Number of packets received from the base on (the one at the base is included if it is received but not
    /// acknowledged); usually zero.
    held: u32,
    width: u16,
    /// Number of packets from the base on that can be recorded.
    tracked: u16,
    /// Set when packets beyond the window were dropped, until an acknowledgement reports it.
    pub(crate) out_of_window: bool,
    /// Receive state from the base on; allocated when the first packet is recorded in it.
    state: Option<Box<ReceiveState>>,
}

impl RxWindow {
    /// Creates an empty window of `width` packets, which accepts packets beyond it if `keeps_beyond` is set.
    pub(crate) fn new(first: Psn32, width: u32, keeps_beyond: bool) -> Self {
        let tracked = if keeps_beyond { TRACKED_MAX } else { width };
        Self {
            base: Seq::start(first),
            held: 0,
            width: width as u16,
            tracked: tracked as u16,
            out_of_window: false,
            state: None,
        }
    }

    /// Returns the oldest packet that is not acknowledged.
    #[inline]
    pub(crate) fn base(&self) -> Psn32 {
        self.base.wire()
    }

    /// Returns the extended sequence number of packet `psn`, and its position relative to the window.
    #[inline]
    pub(crate) fn locate(&self, psn: Psn32) -> (Seq, WindowPosition) {
        let seq = psn.extend(self.base);
        if seq < self.base {
            return (seq, WindowPosition::Acknowledged);
        }
        let offset = seq.since(self.base);
        let position = if offset >= u64::from(self.tracked) {
            WindowPosition::Outside
        } else {
            match self.held_at(offset as u32) {
                Some(position) => position,
                None if offset < u64::from(self.width) => WindowPosition::New,
                None => WindowPosition::Beyond,
            }
        };
        (seq, position)
    }

    /// Returns the state of the packet at `offset` from the base, if it was received.
    #[inline]
    fn held_at(&self, offset: u32) -> Option<WindowPosition> {
        if self.held == 0 {
            return None;
        }
        let state = self.state.as_ref()?;
        match (state.acknowledged.test(offset), state.received.test(offset)) {
            (true, _) => Some(WindowPosition::Acknowledged),
            (false, true) => Some(WindowPosition::Received),
            (false, false) => None,
        }
    }

    /// Records the new packet `seq`; `acknowledged` indicates that its sender may release it.
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
        let state = self.state.get_or_insert_with(|| Box::new(ReceiveState::with_bits(BITS_INITIAL)));
        while offset >= state.arrived.len() as u32 {
            **state = state.doubled(base);
        }
        assert!(state.received.set(offset), "packet {seq} was received twice");
        let slot = state.slot(seq);
        state.arrived[slot] = arrived;
        self.held += 1;
    }

    /// Records that the sender may release the received packet `psn`. Returns the packet's record, unless it was
    /// already acknowledged.
    pub(crate) fn acknowledge(&mut self, psn: Psn32) -> Option<Arrived> {
        let (seq, position) = self.locate(psn);
        if position != WindowPosition::Received {
            return None;
        }
        let (base, offset) = (self.base, self.offset(seq));
        let state = self.state.as_mut()?;
        state.acknowledged.set(offset);
        let arrived = state.arrived[state.slot(seq)];
        if seq == base {
            let count = state.acknowledged.first_zero(0).unwrap_or(state.acknowledged.bits());
            state.acknowledged.advance(count);
            state.received.advance(count);
            self.held -= count;
            self.base += u64::from(count);
        }
        Some(arrived)
    }

    /// Returns `true` if a packet of `flow` after the new packet `seq` was already received: then `seq` was reordered
    /// or retransmitted.
    #[inline]
    pub(crate) fn fills_gap(&self, seq: Seq, flow: u8) -> bool {
        self.held > 0 && self.has_later(seq, flow)
    }

    #[cold]
    fn has_later(&self, seq: Seq, flow: u8) -> bool {
        let (base, offset) = (self.base, self.offset(seq));
        let Some(state) = &self.state else { return false };
        let Some(last) = state.received.last_one() else { return false };
        let of_flow = |later: &u32| {
            state.received.test(*later) && state.arrived[state.slot(base + u64::from(*later))].flow == flow
        };
        (offset + 1..=last).rev().any(|later| of_flow(&later))
    }

    /// Returns the record of the received packet `seq`.
    pub(crate) fn arrived(&self, seq: Seq) -> Arrived {
        self.state.as_ref().map_or_else(Arrived::default, |state| state.arrived[state.slot(seq)])
    }

    /// Returns the bits of acknowledged packets, 128 from the base on.
    #[inline]
    pub(crate) fn acknowledged_bits(&self) -> u128 {
        self.bits_of(|state| &state.acknowledged)
    }

    /// Returns the bits of received packets, 128 from the base on.
    #[inline]
    pub(crate) fn received_bits(&self) -> u128 {
        self.bits_of(|state| &state.received)
    }

    #[inline]
    fn bits_of(&self, ring: impl Fn(&ReceiveState) -> &AnyRing) -> u128 {
        match &self.state {
            Some(state) if self.held > 0 => ring(state).first_128(),
            _ => 0,
        }
    }

    /// Returns `true` if the base alone describes the receive state: all received packets are acknowledged and lie
    /// before the base, and no drop beyond the window is to be reported.
    #[inline]
    pub(crate) fn is_covered_by_base(&self) -> bool {
        self.held == 0 && !self.out_of_window
    }

    fn offset(&self, seq: Seq) -> u32 {
        seq.since(self.base) as u32
    }
}
