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
    /// The expected packet.
    InOrder,
    /// Later than the expected packet, and new.
    Early,
    /// Received before.
    Duplicate,
    /// Later than the window can record.
    Outside,
}

/// The receiving end of one sequence space.
#[derive(Debug)]
pub(crate) struct ReceiveWindow {
    /// The oldest packet that has not arrived.
    pub(crate) expected: Seq,
    early: Option<Box<Early>>,
    /// Last packet received behind the present gap, where out-of-order packets are dropped; zero when there is no gap.
    gap_seen_at: Seq,
}

/// Bitmaps by offset from `expected`.
#[derive(Debug)]
struct Early {
    arrived: Arrived,
    /// Packets that trigger an action: the last of a message, a read, an atomic.
    acting: AnyRing,
    count: u32,
}

/// Record of the out-of-order packets received.
#[derive(Debug)]
enum Arrived {
    Ring(AnyRing),
    /// Recorded in the pool.
    Pooled {
        /// Set when the missing packet has arrived and the pool has not been updated.
        repaired: bool,
        /// End of the range in which no out-of-order packet is kept, because there was no free unit.
        refused_before: Seq,
    },
}

impl Early {
    fn new(window_bits: u32, pooled: bool) -> Box<Self> {
        let acting = AnyRing::with_bits(window_bits);
        let arrived = if pooled {
            Arrived::Pooled { repaired: false, refused_before: Seq::UNSET }
        } else {
            Arrived::Ring(AnyRing::with_bits(window_bits))
        };
        Box::new(Self { arrived, acting, count: 0 })
    }

    /// Moves the head by `packets`.
    #[inline]
    fn advance(&mut self, packets: u32) {
        if let Arrived::Ring(arrived) = &mut self.arrived {
            arrived.advance(packets);
        }
        self.acting.advance(packets);
    }
}

impl ReceiveWindow {
    pub(crate) fn new(start: Seq) -> Self {
        Self { expected: start, early: None, gap_seen_at: Seq::UNSET }
    }

    /// Returns whether no out-of-order packets are held.
    #[inline]
    pub(crate) fn is_in_order(&self) -> bool {
        self.early.as_ref().is_none_or(|early| early.count == 0)
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
        let seen = self.early.as_ref().is_some_and(|early| match &early.arrived {
            Arrived::Ring(arrived) => arrived.test(offset as u32),
            Arrived::Pooled { .. } => false,
        });
        if seen { Arrival::Duplicate } else { Arrival::Early }
    }

    /// Returns the relation of `seq`, which the window alone classifies as [`Arrival::Early`], to the packets recorded
    /// in the pool.
    pub(crate) fn standing(&self, seq: Seq, bits: &Bits<'_>) -> RxClass {
        match self.early.as_ref().map(|early| &early.arrived) {
            Some(Arrived::Pooled { refused_before, .. }) if self.expected < *refused_before => RxClass::Refused,
            _ => bits.standing(seq),
        }
    }

    /// Falls back because there is no free space to record `seq`: no out-of-order packets are kept until this recovery
    /// is over.
    pub(crate) fn fall_back(&mut self, seq: Seq, window_bits: u32, bits: &mut Bits<'_>) {
        bits.fall_back();
        let early = self.early.get_or_insert_with(|| Early::new(window_bits, true));
        if let Arrived::Pooled { refused_before, .. } = &mut early.arrived
            && early.count == 0
        {
            *refused_before = seq + 1;
        }
    }

    /// For receivers that drop out-of-order packets: returns whether the gap before `seq` should be reported to the
    /// sender.
    ///
    /// A gap is reported once, and again when the sender has gone back without closing it: in that case its packets
    /// restart below those received before.
    pub(crate) fn gap_is_news(&mut self, seq: Seq) -> bool {
        let news = seq <= self.gap_seen_at || self.gap_seen_at == Seq::UNSET;
        self.gap_seen_at = seq;
        news
    }

    /// Records that `seq`, which is [`Arrival::Early`], has arrived.
    pub(crate) fn keep(&mut self, seq: Seq, acting: bool, window_bits: u32, bits: &mut Bits<'_>) {
        let early = self.early.get_or_insert_with(|| Early::new(window_bits, bits.is_pooled()));
        let offset = seq.since(self.expected) as u32;
        match &mut early.arrived {
            Arrived::Ring(arrived) => {
                arrived.set(offset);
            }
            Arrived::Pooled { .. } => bits.keep(self.expected, seq),
        }
        early.count += 1;
        if acting {
            early.acting.set(offset);
        }
    }

    /// Moves to the next packet, because the expected one has arrived and been processed.
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.expected += 1;
        self.gap_seen_at = Seq::UNSET;
        if let Some(early) = &mut self.early
            && early.count > 0
        {
            early.advance(1);
            if let Arrived::Pooled { repaired, .. } = &mut early.arrived {
                *repaired = true;
            }
        }
    }

    /// Sets the expected packet to any `seq`.
    #[inline]
    pub(crate) fn expect(&mut self, seq: Seq) {
        self.expected = seq;
    }

    /// Moves the expected packet by `packets`, in a space where one request takes several numbers.
    #[inline]
    pub(crate) fn advance_by(&mut self, packets: u64) {
        self.expected += packets;
        self.gap_seen_at = Seq::UNSET;
    }

    /// Returns whether the expected packet triggers an action, if it has already been received out of order: the caller
    /// processes it and calls [`ReceiveWindow::take_early`].
    pub(crate) fn early_at_head(&self, bits: &Bits<'_>) -> Option<bool> {
        let early = self.early.as_ref().filter(|early| early.count > 0)?;
        let here = match &early.arrived {
            Arrived::Ring(arrived) => arrived.test(0),
            Arrived::Pooled { .. } => bits.test(self.expected),
        };
        here.then(|| early.acting.test(0))
    }

    /// Returns the highest packet received out of order, when the window itself records it.
    pub(crate) fn latest_early(&self) -> Option<Seq> {
        let early = self.early.as_ref().filter(|early| early.count > 0)?;
        match &early.arrived {
            Arrived::Ring(arrived) => arrived.last_one().map(|offset| self.expected + u64::from(offset)),
            Arrived::Pooled { .. } => None,
        }
    }

    /// Returns the number of packets from the head on that have been received out of order and trigger no action.
    pub(crate) fn quiet_run(&mut self, bits: &mut Bits<'_>) -> u32 {
        let Some(early) = self.early.as_mut().filter(|early| early.count > 0) else { return 0 };
        let run = match &mut early.arrived {
            Arrived::Ring(arrived) => arrived.first_zero(0).unwrap_or(arrived.bits()),
            Arrived::Pooled { repaired, .. } => {
                if std::mem::take(repaired) {
                    bits.repaired(self.expected);
                }
                bits.run(self.expected) as u32
            }
        };
        early.acting.first_one(0).map_or(run, |acting| acting.min(run))
    }

    /// Moves past `packets` packets at the head that have been received out of order.
    pub(crate) fn take_early(&mut self, packets: u32, bits: &mut Bits<'_>) {
        let early = self.early.as_mut().expect("packets are here early");
        assert!(early.count >= packets, "more packets taken than are here");
        early.count -= packets;
        early.advance(packets);
        self.expected += u64::from(packets);
        if let Arrived::Pooled { .. } = early.arrived {
            bits.passed(self.expected);
        }
    }
}

#[cfg(test)]
#[path = "receive/tests.rs"]
mod tests;
