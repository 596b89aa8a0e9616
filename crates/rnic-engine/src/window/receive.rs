//! The receiving end: the record of received packets.
//!
//! IRN keeps a *2-bitmap* (section 5.3.3): whether the packet has arrived, and whether an action is due when everything
//! up to it has. Both bitmaps are allocated when the first out-of-order packet arrives; while packets arrive in order,
//! a window is one number. The first bitmap may be in a pool that queue pairs share ([`super::pool`]): in that case a
//! window is passed its [`Bits`] where it needs them.

use rnic_base::{AnyRing, Seq};

use super::pool::{Bits, RxClass};

/// Relation of a packet to the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrival {
    /// The packet is the next one in order.
    InOrder,
    /// Later than the expected packet, and new.
    OutOfOrder,
    /// The packet has been received before.
    Duplicate,
    /// Beyond the range that the window can record.
    Outside,
}

/// The receiving end of one sequence space.
#[derive(Debug)]
pub(crate) struct ReceiveWindow {
    /// The oldest packet that has not arrived.
    pub(crate) expected: Seq,
    out_of_order: Option<Box<OutOfOrder>>,
    /// Last packet received after the current gap, where out-of-order packets are dropped; zero when there is no gap.
    gap_seen_at: Seq,
}

/// Bitmaps by offset from `expected`.
#[derive(Debug)]
struct OutOfOrder {
    arrived: Arrived,
    /// Packets that trigger an action: the last packet of a message, a read, an atomic.
    actions: AnyRing,
    count: u32,
}

/// Record of the out-of-order packets received.
#[derive(Debug)]
enum Arrived {
    Ring(AnyRing),
    /// Recorded in the pool.
    Pooled {
        /// Set when the missing packet has arrived but the pool has not been updated yet.
        repaired: bool,
        /// End of the sequence range in which out-of-order packets are dropped, because the bitmap pool had no free
        /// unit (recovery state of a queue pair).
        refused_before: Seq,
    },
}

impl OutOfOrder {
    fn new(window_bits: u32, pooled: bool) -> Box<Self> {
        let actions = AnyRing::with_bits(window_bits);
        let arrived = if pooled {
            Arrived::Pooled { repaired: false, refused_before: Seq::UNSET }
        } else {
            Arrived::Ring(AnyRing::with_bits(window_bits))
        };
        Box::new(Self { arrived, actions, count: 0 })
    }

    /// Moves the head by `packets`.
    #[inline]
    fn advance(&mut self, packets: u32) {
        if let Arrived::Ring(arrived) = &mut self.arrived {
            arrived.advance(packets);
        }
        self.actions.advance(packets);
    }
}

impl ReceiveWindow {
    pub(crate) fn new(start: Seq) -> Self {
        Self { expected: start, out_of_order: None, gap_seen_at: Seq::UNSET }
    }

    /// Returns whether no out-of-order packets are held.
    #[inline]
    pub(crate) fn is_in_order(&self) -> bool {
        self.out_of_order.as_ref().is_none_or(|out_of_order| out_of_order.count == 0)
    }

    #[inline]
    pub(crate) fn classify(&self, seq: Seq, window_bits: u32) -> Arrival {
        if seq == self.expected {
            return Arrival::InOrder;
        }
        if seq < self.expected {
            return Arrival::Duplicate;
        }
        let offset = seq.since(self.expected);
        if offset >= u64::from(window_bits) {
            return Arrival::Outside;
        }
        let has_arrived = self.out_of_order.as_ref().is_some_and(|out_of_order| match &out_of_order.arrived {
            Arrived::Ring(arrived) => arrived.test(offset as u32),
            Arrived::Pooled { .. } => false,
        });
        if has_arrived { Arrival::Duplicate } else { Arrival::OutOfOrder }
    }

    /// Returns the relation of `seq`, which the window alone classifies as [`Arrival::OutOfOrder`], to the packets
    /// recorded in the pool.
    pub(crate) fn class_of(&self, seq: Seq, bits: &Bits<'_>) -> RxClass {
        match self.out_of_order.as_ref().map(|out_of_order| &out_of_order.arrived) {
            Some(Arrived::Pooled { refused_before, .. }) if self.expected < *refused_before => RxClass::Refused,
            _ => bits.class_of(seq),
        }
    }

    /// Falls back because there is no free space to record `seq`: no out-of-order packets are kept until this recovery
    /// is over.
    pub(crate) fn fall_back(&mut self, seq: Seq, window_bits: u32, bits: &mut Bits<'_>) {
        bits.fall_back();
        let out_of_order = self.out_of_order.get_or_insert_with(|| OutOfOrder::new(window_bits, true));
        if let Arrived::Pooled { refused_before, .. } = &mut out_of_order.arrived
            && out_of_order.count == 0
        {
            *refused_before = seq + 1;
        }
    }

    /// For receivers that drop out-of-order packets: returns whether the gap before `seq` should be reported to the
    /// sender.
    ///
    /// A gap is reported once, and again when the sender has repeated packets without closing the gap: in that case
    /// packets arrive that are lower than the last one received.
    pub(crate) fn is_new_gap(&mut self, seq: Seq) -> bool {
        let is_new = seq <= self.gap_seen_at || self.gap_seen_at == Seq::UNSET;
        self.gap_seen_at = seq;
        is_new
    }

    /// Records that `seq`, which is [`Arrival::OutOfOrder`], has arrived.
    pub(crate) fn keep(&mut self, seq: Seq, has_action: bool, window_bits: u32, bits: &mut Bits<'_>) {
        let out_of_order = self.out_of_order.get_or_insert_with(|| OutOfOrder::new(window_bits, bits.is_pooled()));
        let offset = seq.since(self.expected) as u32;
        match &mut out_of_order.arrived {
            Arrived::Ring(arrived) => {
                arrived.set(offset);
            }
            Arrived::Pooled { .. } => bits.keep(self.expected, seq),
        }
        out_of_order.count += 1;
        if has_action {
            out_of_order.actions.set(offset);
        }
    }

    /// Moves the window to the next packet, because the expected one has arrived and been processed.
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.expected += 1;
        self.gap_seen_at = Seq::UNSET;
        if let Some(out_of_order) = &mut self.out_of_order
            && out_of_order.count > 0
        {
            out_of_order.advance(1);
            if let Arrived::Pooled { repaired, .. } = &mut out_of_order.arrived {
                *repaired = true;
            }
        }
    }

    /// Sets the expected packet to any `seq`.
    #[inline]
    pub(crate) fn expect(&mut self, seq: Seq) {
        self.expected = seq;
    }

    /// Advances the next expected sequence number by `packets`, for requests that use several sequence numbers each.
    #[inline]
    pub(crate) fn advance_by(&mut self, packets: u64) {
        self.expected += packets;
        self.gap_seen_at = Seq::UNSET;
    }

    /// Returns whether the expected packet triggers an action, if it has already been received out of order: the caller
    /// processes it and calls [`ReceiveWindow::advance_out_of_order`].
    pub(crate) fn out_of_order_at_head(&self, bits: &Bits<'_>) -> Option<bool> {
        let out_of_order = self.out_of_order.as_ref().filter(|out_of_order| out_of_order.count > 0)?;
        let has_arrived = match &out_of_order.arrived {
            Arrived::Ring(arrived) => arrived.test(0),
            Arrived::Pooled { .. } => bits.test(self.expected),
        };
        has_arrived.then(|| out_of_order.actions.test(0))
    }

    /// Returns the highest packet received out of order, when the window itself records it.
    pub(crate) fn latest_out_of_order(&self) -> Option<Seq> {
        let out_of_order = self.out_of_order.as_ref().filter(|out_of_order| out_of_order.count > 0)?;
        match &out_of_order.arrived {
            Arrived::Ring(arrived) => arrived.last_one().map(|offset| self.expected + u64::from(offset)),
            Arrived::Pooled { .. } => None,
        }
    }

    /// Returns the number of packets from the head on that have been received out of order and trigger no action.
    pub(crate) fn run_without_action(&mut self, bits: &mut Bits<'_>) -> u32 {
        let Some(out_of_order) = self.out_of_order.as_mut().filter(|out_of_order| out_of_order.count > 0) else {
            return 0;
        };
        let run = match &mut out_of_order.arrived {
            Arrived::Ring(arrived) => arrived.first_zero(0).unwrap_or(arrived.bits()),
            Arrived::Pooled { repaired, .. } => {
                if std::mem::take(repaired) {
                    bits.repaired(self.expected);
                }
                bits.run(self.expected) as u32
            }
        };
        out_of_order.actions.first_one(0).map_or(run, |first_action| first_action.min(run))
    }

    /// Moves the window past `packets` packets at the head that have been received out of order.
    pub(crate) fn advance_out_of_order(&mut self, packets: u32, bits: &mut Bits<'_>) {
        let out_of_order = self.out_of_order.as_mut().expect("out-of-order packets have arrived");
        assert!(out_of_order.count >= packets, "more packets removed than have arrived");
        out_of_order.count -= packets;
        out_of_order.advance(packets);
        self.expected += u64::from(packets);
        if let Arrived::Pooled { .. } = out_of_order.arrived {
            bits.passed(self.expected);
        }
    }
}

#[cfg(test)]
#[path = "receive/tests.rs"]
mod tests;
