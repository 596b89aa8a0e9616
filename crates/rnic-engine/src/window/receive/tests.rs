//! Tests of the same window with both types of store: rings, and pools with blocks of various sizes.

use rnic_base::{Psn, RandomStreams};
use rnic_policy::PoolShape;

use super::super::pool::{LaneId, Pools, SrPointer};
use super::*;

const BITS: u32 = 128;

/// Storage of a window's bitmap: a ring or pool blocks.
struct BitmapStore {
    pools: Pools,
    at: SrPointer,
    shape: Option<PoolShape>,
}

impl BitmapStore {
    fn bits(&mut self) -> Bits<'_> {
        self.pools.bits(self.shape, &mut self.at, LaneId::RequestsIn)
    }

    /// Returns the classification of `seq`, by the window or, where packets are recorded there, by the pool.
    fn classify(&mut self, window: &ReceiveWindow, seq: Seq) -> Arrival {
        let arrival = window.classify(seq, BITS);
        let is_known = self.shape.is_some() && arrival == Arrival::OutOfOrder && self.bits().test(seq);
        if is_known { Arrival::Duplicate } else { arrival }
    }
}

/// Returns one store of each kind that is large enough for a window of [`BITS`].
fn bitmap_stores() -> Vec<BitmapStore> {
    let pool = |block_bits| Some(PoolShape { units: 1, blocks: BITS.div_ceil(block_bits) + 1, block_bits });
    let shapes = [None, pool(1), pool(3), pool(10), pool(16), pool(64)];
    shapes.map(|shape| BitmapStore { pools: Pools::default(), at: SrPointer::NULL, shape }).into()
}

fn window() -> (ReceiveWindow, Seq) {
    let start = Seq::start(Psn::new(0xff_fff0));
    (ReceiveWindow::new(start), start)
}

#[test]
fn in_order_packets_allocate_no_bitmap() {
    let (mut window, start) = window();
    for index in 0..1_000 {
        assert_eq!(window.classify(start + index, BITS), Arrival::InOrder);
        window.advance();
    }
    assert!(window.out_of_order.is_none());
    assert_eq!(window.classify(start, BITS), Arrival::Duplicate);
}

#[test]
fn a_gap_is_reported_once_each_time_the_sender_goes_back() {
    let (mut window, start) = window();
    window.advance();
    let mut is_new = |index: u64| window.is_new_gap(start + index);
    assert_eq!([is_new(2), is_new(3), is_new(9)], [true, false, false], "1 is missing");
    assert_eq!([is_new(2), is_new(3)], [true, false], "retransmitted, and lost again");
    window.advance();
    assert!(window.is_new_gap(start + 20), "another gap");
}

#[test]
fn out_of_order_packets_wait_for_the_missing_packet() {
    for mut store in bitmap_stores() {
        let (mut window, start) = window();
        for (index, has_action) in [(1, false), (2, true), (4, false)] {
            assert_eq!(store.classify(&window, start + index), Arrival::OutOfOrder);
            window.keep(start + index, has_action, BITS, &mut store.bits());
            assert_eq!(store.classify(&window, start + index), Arrival::Duplicate);
        }
        assert_eq!(window.out_of_order_at_head(&store.bits()), None);
        window.advance();
        assert_eq!(window.run_without_action(&mut store.bits()), 1);
        window.advance_out_of_order(1, &mut store.bits());
        assert_eq!((window.out_of_order_at_head(&store.bits()), window.expected), (Some(true), start + 2));
        window.advance_out_of_order(1, &mut store.bits());
        assert_eq!(
            (window.out_of_order_at_head(&store.bits()), window.run_without_action(&mut store.bits())),
            (None, 0)
        );
        assert!(!window.is_in_order());
    }
}

#[test]
fn packets_beyond_the_bitmap_are_outside() {
    let (window, start) = window();
    assert_eq!(window.classify(start + u64::from(BITS) - 1, BITS), Arrival::OutOfOrder);
    assert_eq!(window.classify(start + u64::from(BITS), BITS), Arrival::Outside);
}

/// Arrivals in any order: all stores give the same results as a plain list.
#[test]
fn every_store_gives_the_results_of_a_list() {
    for (number, mut store) in bitmap_stores().into_iter().enumerate() {
        let mut random = RandomStreams::new(number as u64).stream("window");
        let (mut window, start) = window();
        let mut out_of_order: Vec<(u64, bool)> = Vec::new();
        let mut expected = 0;
        for step in 0..20_000 {
            // Mostly packets after the highest one received, as in a real network.
            let highest = out_of_order.iter().map(|(index, _)| *index).max().unwrap_or(expected);
            let index = match random.below(4) {
                0 => expected,
                1 => expected + random.below(u64::from(BITS)),
                _ => highest + 1 + random.below(3) * random.below(2),
            };
            let has_action = random.below(4) == 0;
            let is_known = out_of_order.iter().any(|(other, _)| *other == index);
            let expected_arrival = match index {
                _ if index == expected => Arrival::InOrder,
                _ if index - expected >= u64::from(BITS) => Arrival::Outside,
                _ if is_known => Arrival::Duplicate,
                _ => Arrival::OutOfOrder,
            };
            assert_eq!(store.classify(&window, start + index), expected_arrival, "store {number}, step {step}");
            match expected_arrival {
                Arrival::OutOfOrder => {
                    window.keep(start + index, has_action, BITS, &mut store.bits());
                    out_of_order.push((index, has_action));
                }
                Arrival::InOrder => {
                    expected += 1;
                    let in_order = window.is_in_order();
                    assert_eq!(in_order, out_of_order.is_empty());
                    window.advance();
                    while let Some(at) = out_of_order.iter().position(|(index, _)| *index == expected) {
                        let (_, has_action) = out_of_order.swap_remove(at);
                        let run_length = window.run_without_action(&mut store.bits());
                        assert_eq!(run_length == 0, has_action, "store {number}, step {step}");
                        assert_eq!(window.out_of_order_at_head(&store.bits()), Some(has_action));
                        window.advance_out_of_order(1, &mut store.bits());
                        expected += 1;
                    }
                    assert_eq!(window.run_without_action(&mut store.bits()), 0);
                    assert_eq!(window.out_of_order_at_head(&store.bits()), None);
                }
                Arrival::Duplicate | Arrival::Outside => {}
            }
            assert_eq!(window.expected, start + expected);
            let stats = store.pools.stats();
            let recovering = u64::from(store.shape.is_some() && !out_of_order.is_empty());
            assert_eq!(stats.units_in_use, recovering, "store {number}, step {step}");
            assert!(recovering > 0 || stats.blocks_in_use == 0);
        }
    }
}
