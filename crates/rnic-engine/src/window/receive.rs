//! The receiving end: what has arrived.
//!
//! IRN keeps a *2-bitmap* (section 5.3.3): has the packet arrived, and does something happen when everything up to it
//! has. Both are made when the first packet arrives early; in order, a window is one number.

use rnic_base::{AnyRing, Seq};

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
    arrived: AnyRing,
    /// Packets that make something happen: the last of a message, a read, an atomic.
    acting: AnyRing,
    count: u32,
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
        let seen = self.early.as_ref().is_some_and(|early| early.arrived.test(offset as u32));
        if seen { Arrival::Duplicate } else { Arrival::Early }
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
    pub(crate) fn keep(&mut self, seq: Seq, acting: bool, window_bits: u32) {
        let early = self.early.get_or_insert_with(|| {
            let (arrived, acting) = (AnyRing::with_bits(window_bits), AnyRing::with_bits(window_bits));
            Box::new(Early { arrived, acting, count: 0 })
        });
        let offset = seq.since(self.expected) as u32;
        early.arrived.set(offset);
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
            early.arrived.advance(1);
            early.acting.advance(1);
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
    #[inline]
    pub(crate) fn early_at_head(&self) -> Option<bool> {
        let early = self.early.as_ref().filter(|early| early.count > 0)?;
        early.arrived.test(0).then(|| early.acting.test(0))
    }

    /// How many packets from the head on are here early and do nothing.
    pub(crate) fn quiet_run(&self) -> u32 {
        let Some(early) = self.early.as_ref().filter(|early| early.count > 0) else { return 0 };
        let arrived = early.arrived.first_zero(0).unwrap_or(early.arrived.bits());
        early.acting.first_one(0).map_or(arrived, |acting| acting.min(arrived))
    }

    /// Moves past `packets` packets at the head that are here early.
    pub(crate) fn take_early(&mut self, packets: u32) {
        let early = self.early.as_mut().expect("packets are here early");
        assert!(early.count >= packets, "more packets taken than are here");
        early.count -= packets;
        early.arrived.advance(packets);
        early.acting.advance(packets);
        self.expected += u64::from(packets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_base::Psn;

    const BITS: u32 = 128;

    fn window() -> (ReceiveWindow, Seq) {
        let start = Seq::start(Psn::new(0xff_fff0));
        (ReceiveWindow::new(start), start)
    }

    #[test]
    fn in_order_needs_no_bitmap() {
        let (mut window, start) = window();
        for index in 0..1_000 {
            assert_eq!(window.classify(start + index, BITS), Arrival::InOrder);
            window.advance();
        }
        assert!(window.early.is_none());
        assert_eq!(window.classify(start, BITS), Arrival::Duplicate);
    }

    #[test]
    fn a_gap_is_news_once_per_pass_of_the_sender() {
        let (mut window, start) = window();
        window.advance();
        let mut news = |index: u64| window.gap_is_news(start + index);
        assert_eq!([news(2), news(3), news(9)], [true, false, false], "1 is missing");
        assert_eq!([news(2), news(3)], [true, false], "sent again, and lost again");
        window.advance();
        assert!(window.gap_is_news(start + 20), "another gap");
    }

    #[test]
    fn early_packets_wait_for_the_hole() {
        let (mut window, start) = window();
        for (index, acting) in [(1, false), (2, true), (4, false)] {
            assert_eq!(window.classify(start + index, BITS), Arrival::Early);
            window.keep(start + index, acting, BITS);
            assert_eq!(window.classify(start + index, BITS), Arrival::Duplicate);
        }
        assert_eq!(window.early_at_head(), None);
        window.advance();
        assert_eq!(window.quiet_run(), 1);
        window.take_early(1);
        assert_eq!((window.early_at_head(), window.expected), (Some(true), start + 2));
        window.take_early(1);
        assert_eq!((window.early_at_head(), window.quiet_run()), (None, 0));
        assert!(!window.is_in_order());
    }

    #[test]
    fn beyond_the_bitmap_nothing_is_known() {
        let (window, start) = window();
        assert_eq!(window.classify(start + u64::from(BITS) - 1, BITS), Arrival::Early);
        assert_eq!(window.classify(start + u64::from(BITS), BITS), Arrival::Outside);
    }
}
