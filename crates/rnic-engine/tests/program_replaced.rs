//! A loaded program that answers outside its contract is replaced, counted, and costs no packet.
//!
//! `common/wrong.rnicp` closes its window in its 20,000th event, which the check of a file does not reach.
//! `rnic-transports/src/programs/tests.rs` has its source.

mod common;

use common::*;
use rnic_base::Psn;
use rnic_engine::*;

/// Event in which the program closes its window.
const LAST: u64 = 20_000;
const FIRST: Psn = Psn::new(0xff_fffa);
const TARGET: u64 = 500_000;

fn pair() -> Pair {
    Pair::of(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/wrong.rnicp"))
}

/// Returns the numbers of replaced programs of both sides.
fn replaced(pair: &Pair) -> [u64; 2] {
    [&pair.left, &pair.right].map(|side| side.engine.stats().programs_replaced)
}

fn write(pair: &mut Pair, wr_id: u64) {
    let (sge, remote) = (pair.left.sge(0, 8), pair.right.remote(TARGET));
    pair.left.post(wr_id, SendOp::Write { remote, immediate: None }, &[sge]);
    pair.run();
    assert_eq!(pair.left.statuses(), [(wr_id, WcStatus::Success)]);
}

#[test]
fn a_program_that_is_replaced_after_an_acknowledgement_is_counted_once() {
    let mut pair = pair();
    (1..LAST).for_each(|wr_id| write(&mut pair, wr_id));
    assert_eq!(replaced(&pair), [0, 0]);
    (0..100).for_each(|wr_id| write(&mut pair, LAST + wr_id));
    assert_eq!(replaced(&pair), [1, 0]);
}

#[test]
fn a_program_that_is_replaced_after_a_timeout_is_counted_and_the_packet_is_sent_again() {
    let mut pair = pair();
    (1..LAST).for_each(|wr_id| write(&mut pair, wr_id));
    pair.wire(drop_requests(FIRST, &[(LAST as i64 - 1, 0)]));
    write(&mut pair, LAST);
    assert_eq!(replaced(&pair), [1, 0]);
    assert_eq!(pair.left.info().stats.packets_retransmitted, 1);
}

/// The responder sends the data of Reads by a window, and a program, of its own.
#[test]
fn a_program_that_is_replaced_at_the_responder_is_counted() {
    let mut pair = pair();
    for wr_id in 1..=LAST + 100 {
        let (sge, remote) = (pair.left.sge(0, 8), pair.right.remote(TARGET));
        pair.left.post(wr_id, SendOp::Read { remote }, &[sge]);
        pair.run();
        assert_eq!(pair.left.statuses(), [(wr_id, WcStatus::Success)]);
    }
    assert_eq!(replaced(&pair)[1], 1);
}
