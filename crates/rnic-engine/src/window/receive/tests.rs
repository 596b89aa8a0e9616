//! The same window on both stores: rings, and pools from ample to narrow.

use rnic_base::{Psn, RandomStreams};
use rnic_policy::PoolShape;

use super::super::pool::{LaneId, Pools, SrPointer};
use super::*;

const BITS: u32 = 128;

/// Where a window's bits are.
struct Home {
    pools: Pools,
    at: SrPointer,
    shape: Option<PoolShape>,
}

impl Home {
    fn bits(&mut self) -> Bits<'_> {
        self.pools.bits(self.shape, &mut self.at, LaneId::RequestsIn)
    }

    /// How `seq` stands, by whatever knows it.
    fn classify(&mut self, window: &ReceiveWindow, seq: Seq) -> Arrival {
        let arrival = window.classify(seq, BITS);
        let known = self.shape.is_some() && arrival == Arrival::Early && self.bits().test(seq);
        if known { Arrival::Duplicate } else { arrival }
    }
}

/// Every kind of store that holds a window of [`BITS`].
fn homes() -> Vec<Home> {
    let pool = |block_bits| Some(PoolShape { units: 1, blocks: BITS.div_ceil(block_bits) + 1, block_bits });
    let shapes = [None, pool(1), pool(3), pool(10), pool(16), pool(64)];
    shapes.map(|shape| Home { pools: Pools::default(), at: SrPointer::NULL, shape }).into()
}

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
    for mut home in homes() {
        let (mut window, start) = window();
        for (index, acting) in [(1, false), (2, true), (4, false)] {
            assert_eq!(home.classify(&window, start + index), Arrival::Early);
            window.keep(start + index, acting, BITS, &mut home.bits());
            assert_eq!(home.classify(&window, start + index), Arrival::Duplicate);
        }
        assert_eq!(window.early_at_head(&home.bits()), None);
        window.advance();
        assert_eq!(window.quiet_run(&mut home.bits()), 1);
        window.take_early(1, &mut home.bits());
        assert_eq!((window.early_at_head(&home.bits()), window.expected), (Some(true), start + 2));
        window.take_early(1, &mut home.bits());
        assert_eq!((window.early_at_head(&home.bits()), window.quiet_run(&mut home.bits())), (None, 0));
        assert!(!window.is_in_order());
    }
}

#[test]
fn beyond_the_bitmap_nothing_is_known() {
    let (window, start) = window();
    assert_eq!(window.classify(start + u64::from(BITS) - 1, BITS), Arrival::Early);
    assert_eq!(window.classify(start + u64::from(BITS), BITS), Arrival::Outside);
}

/// Arrivals in any order: all stores answer as a plain list does.
#[test]
fn every_store_answers_as_a_list_does() {
    for (number, mut home) in homes().into_iter().enumerate() {
        let mut random = RandomStreams::new(number as u64).stream("window");
        let (mut window, start) = window();
        let mut early: Vec<(u64, bool)> = Vec::new();
        let mut expected = 0;
        for step in 0..20_000 {
            // Mostly onwards from the highest, as packets come.
            let highest = early.iter().map(|(index, _)| *index).max().unwrap_or(expected);
            let index = match random.below(4) {
                0 => expected,
                1 => expected + random.below(u64::from(BITS)),
                _ => highest + 1 + random.below(3) * random.below(2),
            };
            let acting = random.below(4) == 0;
            let known = early.iter().any(|(other, _)| *other == index);
            let right = match index {
                _ if index == expected => Arrival::InOrder,
                _ if index - expected >= u64::from(BITS) => Arrival::Outside,
                _ if known => Arrival::Duplicate,
                _ => Arrival::Early,
            };
            assert_eq!(home.classify(&window, start + index), right, "store {number}, step {step}");
            match right {
                Arrival::Early => {
                    window.keep(start + index, acting, BITS, &mut home.bits());
                    early.push((index, acting));
                }
                Arrival::InOrder => {
                    expected += 1;
                    let in_order = window.is_in_order();
                    assert_eq!(in_order, early.is_empty());
                    window.advance();
                    while let Some(at) = early.iter().position(|(index, _)| *index == expected) {
                        let (_, acting) = early.swap_remove(at);
                        let quiet = window.quiet_run(&mut home.bits());
                        assert_eq!(quiet == 0, acting, "store {number}, step {step}");
                        assert_eq!(window.early_at_head(&home.bits()), Some(acting));
                        window.take_early(1, &mut home.bits());
                        expected += 1;
                    }
                    assert_eq!(window.quiet_run(&mut home.bits()), 0);
                    assert_eq!(window.early_at_head(&home.bits()), None);
                }
                Arrival::Duplicate | Arrival::Outside => {}
            }
            assert_eq!(window.expected, start + expected);
            let stats = home.pools.stats();
            let recovering = u64::from(home.shape.is_some() && !early.is_empty());
            assert_eq!(stats.units_in_use, recovering, "store {number}, step {step}");
            assert!(recovering > 0 || stats.blocks_in_use == 0);
        }
    }
}
