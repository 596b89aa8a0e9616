//! The receiving end: what has arrived.
//!
//! IRN keeps a *2-bitmap* (section 5.3.3): has the packet arrived, and does something happen when everything up to it
//! has. Both are made when the first packet arrives early; in order, a window is one number. The first half of it may
//! lie in a pool that queue pairs share ([`super::pool`]): then a window is given its [`Bits`] where it needs them.

use rnic_base::{AnyRing, Seq};

use super::pool::{Bits, RxClass};

/// How a packet stands to the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrival {
    /// The one that is expected.
    InOrder,
    /// Later than expected, and new.
    Early,
    /// Arrived before.
    Duplicate,
    /// Later than the window can remember.
    Outside,
}

/// The receiving end of one sequence space.
#[derive(Debug)]
pub(crate) struct ReceiveWindow {
    /// The oldest packet that has not arrived.
    pub(crate) expected: Seq,
    early: Option<Box<Early>>,
    /// The latest packet behind the present gap, where early packets are dropped; zero when there is no gap.
    gap_seen_at: Seq,
}

/// Bitmaps by offset from `expected`.
#[derive(Debug)]
struct Early {
    arrived: Arrived,
    /// Packets that make something happen: the last of a message, a read, an atomic.
    acting: AnyRing,
    count: u32,
}

/// Which packets are here early.
#[derive(Debug)]
enum Arrived {
    Ring(AnyRing),
    /// The pool knows.
    Pooled {
        /// The packet that was missing has come; the pool has not been told.
        repaired: bool,
        /// There was no unit: nothing early is kept before this packet.
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

    /// Moves the head `packets` on.
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

    /// Whether nothing is here early.
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

    /// How `seq` stands, which is [`Arrival::Early`] as far as the window alone knows: the pool knows more.
    pub(crate) fn standing(&self, seq: Seq, bits: &Bits<'_>) -> RxClass {
        match self.early.as_ref().map(|early| &early.arrived) {
            Some(Arrived::Pooled { refused_before, .. }) if self.expected < *refused_before => RxClass::Refused,
            _ => bits.standing(seq),
        }
    }

    /// There is no room to remember `seq`: nothing early is kept until this recovery is over.
    pub(crate) fn fall_back(&mut self, seq: Seq, window_bits: u32, bits: &mut Bits<'_>) {
        bits.fall_back();
        let early = self.early.get_or_insert_with(|| Early::new(window_bits, true));
        if let Arrived::Pooled { refused_before, .. } = &mut early.arrived
            && early.count == 0
        {
            *refused_before = seq + 1;
        }
    }

    /// For receivers that drop early packets: whether the sender should be told of the gap before `seq`.
    ///
    /// Once per gap, and again when the sender has gone back without closing it: then its packets start over, below
    /// those that came before.
    pub(crate) fn gap_is_news(&mut self, seq: Seq) -> bool {
        let news = seq <= self.gap_seen_at || self.gap_seen_at == Seq::UNSET;
        self.gap_seen_at = seq;
        news
    }

    /// Remembers that `seq`, which is [`Arrival::Early`], has arrived.
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

    /// The expected packet has arrived and been dealt with: expect the next one.
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

    /// Expect `seq` next, wherever that is.
    #[inline]
    pub(crate) fn expect(&mut self, seq: Seq) {
        self.expected = seq;
    }

    /// In a space where one request takes several numbers: expect the one `packets` on.
    #[inline]
    pub(crate) fn advance_by(&mut self, packets: u64) {
        self.expected += packets;
        self.gap_seen_at = Seq::UNSET;
    }

    /// If the expected packet is here early, whether it acts: the caller deals with it and calls
    /// [`ReceiveWindow::take_early`].
    pub(crate) fn early_at_head(&self, bits: &Bits<'_>) -> Option<bool> {
        let early = self.early.as_ref().filter(|early| early.count > 0)?;
        let here = match &early.arrived {
            Arrived::Ring(arrived) => arrived.test(0),
            Arrived::Pooled { .. } => bits.test(self.expected),
        };
        here.then(|| early.acting.test(0))
    }

    /// The latest packet that is here early, where the window itself knows.
    pub(crate) fn latest_early(&self) -> Option<Seq> {
        let early = self.early.as_ref().filter(|early| early.count > 0)?;
        match &early.arrived {
            Arrived::Ring(arrived) => arrived.last_one().map(|offset| self.expected + u64::from(offset)),
            Arrived::Pooled { .. } => None,
        }
    }

    /// How many packets from the head on are here early and do nothing.
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

    /// Moves past `packets` packets at the head that are here early.
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
