//! No allocation per packet, with loss and without.
//!
//! Two delivery layers hand packets to each other in memory, on a thread whose allocations are counted. After a
//! warm-up, in which rings grow to the size of the windows, not one allocation.

#[path = "../../rnic-engine/tests/common/heap.rs"]
mod heap;
#[path = "two_ends/steady.rs"]
mod steady;
mod two_ends;

use rnic_falcon::delivery::Delivery;
use rnic_policy::Cwnd;
use steady::Steady;
use two_ends::config_of;

#[test]
fn an_idle_delivery_layer_is_small() {
    // Not included are the policies, which the connections of a NIC share. Contexts and bitmaps are allocated when
    // packets are sent.
    let size = size_of::<Delivery>();
    assert!((1_000..1_200).contains(&size), "{size} bytes; docs/performance-log.md has 1.1 KB");
    // The registry of policies is built at its first use.
    let config = config_of("rack-tlp", "ecmp");
    let before = heap::live_bytes();
    let delivery = Delivery::new(config);
    let beside = heap::live_bytes() - before;
    assert!((400..600).contains(&beside), "{beside} bytes allocated separately");
    drop(delivery);
    assert_eq!(heap::live_bytes(), before);
}

#[test]
fn a_hundred_thousand_packets_allocate_nothing() {
    for (flows, paths) in [(1, "ecmp"), (4, "largest-window")] {
        for lose_every in [0, 97] {
            let mut config = config_of("rack-tlp", paths);
            (config.flows, config.accept_stale) = (flows, flows > 1);
            (config.fcwnd, config.ncwnd) = (Cwnd::packets(200), 200);
            let mut steady = Steady::new(config, lose_every);
            steady.run(20_000);
            let before = heap::allocations();
            steady.run(100_000);
            let allocated = heap::allocations() - before;
            assert_eq!(allocated, 0, "{flows} flows, one packet in {lose_every} lost");
            assert!(lose_every == 0 || steady.lost > 500, "only {} packets were lost", steady.lost);
        }
    }
}
