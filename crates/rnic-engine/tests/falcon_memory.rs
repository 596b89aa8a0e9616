//! Memory that a NIC holds for Falcon connections that have ended: none, however many there were.

#[path = "common/falcon.rs"]
mod common;
#[path = "common/heap.rs"]
mod heap;

use common::{BASE, DELIVERED, INBOX, Pair, Setup};
use rnic_base::Duration;
use rnic_engine::{SendOp, WcStatus};

/// Connects two queue pairs, writes a little, and resets both, `times` times.
fn come_and_go(pair: &mut Pair, setup: &Setup, times: u64) {
    let remote = pair.remote(0, INBOX);
    let numbers = [0, 1].map(|end| pair.ends[end].qpn);
    for nth in 0..times {
        for end in [0, 1] {
            pair.ends[end].engine.modify_to_reset(numbers[end]).expect("it exists");
            pair.ends[end].begin_receiving(setup, numbers[1 - end], end);
        }
        for end in [0, 1] {
            pair.ends[end].begin_sending(pair.now, setup, end);
        }
        pair.ends[0].post(nth, SendOp::Write { remote, immediate: None }, BASE, 100);
        pair.run_for(Duration::from_us(100));
        assert_eq!(pair.ends[0].take(), [(nth, WcStatus::Success)]);
    }
}

#[test]
fn ended_connections_free_their_memory() {
    let setup = Setup::new(&[]);
    let mut pair = Pair::new(&setup, |_| DELIVERED);
    pair.keeps_log = false;
    come_and_go(&mut pair, &setup, 1_000);
    let before = heap::live_bytes();
    come_and_go(&mut pair, &setup, 4_000);
    let more = heap::live_bytes() - before;
    assert!(more < 4_096, "4000 ended connections still hold {more} bytes");
}
