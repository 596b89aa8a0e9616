//! Behaviour of `roce-gbn` on the wire: go-back-N, acknowledgements, and the sequence space that requests and responses
//! share.
//!
//! Source: InfiniBand Architecture volume 1, sections 9.7.3 to 9.7.5; IRN (SIGCOMM'18) sections 2.1 and 4.1 for the
//! role as baseline; the project's conflict tables C8 (lost retransmissions), C18 (acknowledgements) and C19 (reads).
//!
//! The wire takes 5 us one way and any number of packets at once. Packets are named by their distance from the first
//! PSN, which lies six before the wrap.

mod common;

#[path = "roce_mechanisms/acknowledgements.rs"]
mod acknowledgements;
#[path = "roce_mechanisms/congestion.rs"]
mod congestion;
#[path = "roce_mechanisms/lost_again.rs"]
mod lost_again;
#[path = "roce_mechanisms/responses.rs"]
mod responses;
#[path = "roce_mechanisms/selective.rs"]
mod selective;

use common::*;
use rnic_base::{Duration, Psn, Time};
use rnic_engine::*;
use rnic_wire::Headers;

/// The first PSN of both sides.
const FIRST: Psn = Psn::new(0xff_fffa);
/// Offset in memory that Writes and responses go to.
const TARGET: u64 = 500_000;

fn roce() -> Pair {
    Pair::of("roce-gbn")
}

fn roce_with(options: &[(&str, &str)]) -> Pair {
    Pair::new(&Setup::new("roce-gbn", options))
}

fn us(us: u64) -> Time {
    Time::from_us(us)
}

/// Posts a Write of `packets` full packets on the left side.
fn write(pair: &mut Pair, wr_id: u64, packets: u32) {
    let (sge, remote) = (pair.left.sge(0, packets * MTU), pair.right.remote(TARGET));
    pair.left.post(wr_id, SendOp::Write { remote, immediate: None }, &[sge]);
}

/// Posts a Read of `packets` full packets on the left side.
fn read(pair: &mut Pair, wr_id: u64, packets: u32) {
    let (sge, remote) = (pair.left.sge(TARGET, packets * MTU), pair.right.remote(0));
    pair.left.post(wr_id, SendOp::Read { remote }, &[sge]);
}

fn all_succeed(side: &mut Side, wr_ids: impl IntoIterator<Item = u64>) {
    let expected: Vec<_> = wr_ids.into_iter().map(|wr_id| (wr_id, WcStatus::Success)).collect();
    assert_eq!(side.statuses(), expected);
}

/// 5 of 0..9 is lost. 6 to 9 are dropped, the first of them draws a NAK for 5, and everything from 5 on is
/// retransmitted.
#[test]
fn one_nak_per_gap_and_go_back_to_the_missing_packet() {
    let mut pair = roce();
    pair.wire(drop_requests(FIRST, &[(5, 0)]));
    write(&mut pair, 1, 10);
    pair.run();
    assert_eq!(pair.nacks_of(From::Right, FIRST), [(5, None)]);
    assert_eq!(pair.resent_at(From::Left, FIRST), [(10, 5), (10, 6), (10, 7), (10, 8), (10, 9)]);
    assert_eq!(pair.right.engine.stats().drops[DropReason::OutOfOrder as usize], 4);
    assert_eq!(pair.right.memory[500_000..510_240], pair.left.memory[..10_240]);
    all_succeed(&mut pair.left, [1]);
}

/// The NAK is cumulative: packets before the gap are acknowledged and never retransmitted, even by a later timeout.
#[test]
fn a_nak_acknowledges_the_packets_before_the_gap() {
    let mut pair = roce();
    pair.wire(drop_requests(FIRST, &[(5, 0), (9, 1)]));
    write(&mut pair, 1, 10);
    pair.run();
    let resent = pair.resent_at(From::Left, FIRST);
    assert_eq!(resent[..5], [(10, 5), (10, 6), (10, 7), (10, 8), (10, 9)]);
    assert_eq!(resent[5..], [(330, 5), (330, 6), (330, 7), (330, 8), (330, 9)], "320 us after the NAK");
}

/// Nothing is placed out of order: memory for packets after the gap is unchanged.
#[test]
fn out_of_order_packets_are_not_placed_in_memory() {
    let mut pair = roce();
    let before = pair.right.memory.clone();
    pair.wire(drop_requests(FIRST, &[(2, 0), (2, 1), (2, 2)]));
    write(&mut pair, 1, 10);
    pair.run_until(us(26));
    let behind = 500_000 + 2 * MTU as usize..600_000;
    assert_eq!(pair.right.memory[behind.clone()], before[behind]);
}

/// Beyond the limit: of two gaps, only the first is reported; going back closes both.
#[test]
fn going_back_repairs_later_gaps() {
    let mut pair = roce();
    pair.wire(drop_requests(FIRST, &[(3, 0), (6, 0)]));
    write(&mut pair, 1, 10);
    pair.run();
    assert_eq!(pair.nacks_of(From::Right, FIRST), [(3, None)]);
    assert_eq!(pair.resent(From::Left, FIRST), (3..10).collect::<Vec<_>>());
}

/// The packets in flight have no limit: there is no BDP-FC here.
#[test]
fn the_packets_in_flight_are_not_limited() {
    let mut pair = roce();
    write(&mut pair, 1, 500);
    pair.run_until(us(9));
    assert_eq!(pair.data_of(From::Left, FIRST).len(), 500);
}

/// The timeout is fixed: 320 us, whether one packet is in flight or fifty, and each repetition waits the same time
/// again.
#[test]
fn the_timeout_is_fixed() {
    for packets in [1, 2, 3, 50] {
        let mut pair = roce();
        pair.wire(|sent| if sent.from == From::Left && sent.at < us(900) { Fate::Drop } else { Fate::Deliver });
        write(&mut pair, 1, packets);
        pair.run();
        let mut times: Vec<_> = pair.resent_at(From::Left, FIRST).iter().map(|(at, _)| *at).collect();
        times.dedup();
        assert_eq!(times, [320, 640, 960], "{packets} in flight");
        assert_eq!(pair.left.info().stats.timeouts, 3);
        all_succeed(&mut pair.left, [1]);
    }
}

/// The last packet is lost, no packet after it reveals the gap, and none before it asked for an acknowledgement: the
/// timer retransmits all of it, of which the receiver lacks only the last packet.
#[test]
fn a_lost_last_packet_is_retransmitted_by_the_timer() {
    let mut pair = roce();
    pair.wire(drop_requests(FIRST, &[(9, 0)]));
    write(&mut pair, 1, 10);
    pair.run();
    assert_eq!(pair.nacks_of(From::Right, FIRST), []);
    assert_eq!(pair.resent_at(From::Left, FIRST), (0..10).map(|seq| (320, seq)).collect::<Vec<_>>());
    assert_eq!(pair.right.engine.stats().packets_duplicate, 9);
    assert_eq!(pair.right.info().msn, 1);
    all_succeed(&mut pair.left, [1]);
}

/// Under PFC there is no timeout: a lost tail is not retransmitted, however long one waits, and no timer is armed.
#[test]
fn without_a_timeout_a_lost_tail_is_never_retransmitted() {
    let mut pair = roce_with(&[("rto", "0us")]);
    pair.wire(drop_requests(FIRST, &[(9, 0)]));
    write(&mut pair, 1, 10);
    pair.run();
    assert_eq!(pair.resent(From::Left, FIRST), []);
    assert_eq!(pair.left.engine.next_timeout(), None);
    assert_eq!(pair.left.completions(), []);
    // Beyond the limit: the next message reveals the gap, and the NAK repairs both.
    write(&mut pair, 2, 1);
    pair.run();
    assert_eq!(pair.nacks_of(From::Right, FIRST), [(9, None)]);
    assert_eq!(pair.resent(From::Left, FIRST), [9, 10]);
    all_succeed(&mut pair.left, [1, 2]);
}

/// A NAK is lost: the gap was reported only once, so the timer must repair it.
#[test]
fn a_lost_nak_is_repaired_by_the_timer() {
    let mut pair = roce();
    let mut drops = drop_requests(FIRST, &[(5, 0)]);
    pair.wire(move |sent| match sent.kind {
        TransmitKind::Ack if sent.at < us(300) => Fate::Drop,
        _ => drops(sent),
    });
    write(&mut pair, 1, 10);
    pair.run();
    assert_eq!(pair.nacks_of(From::Right, FIRST), [(5, None)]);
    assert_eq!(pair.resent_at(From::Left, FIRST)[0], (320, 0), "not everything is retransmitted after 320 us");
    all_succeed(&mut pair.left, [1]);
}

/// A reordered packet is treated as lost: it arrives too late, is dropped as a duplicate, and everything after the
/// gap is retransmitted.
#[test]
fn reordering_causes_a_go_back() {
    let mut pair = roce();
    pair.wire(|sent| {
        let late = sent.kind == TransmitKind::Request && FIRST.distance_to(sent.packet.psn) == 5;
        if late { Fate::Late(Duration::from_us(20)) } else { Fate::Deliver }
    });
    write(&mut pair, 1, 10);
    pair.run();
    assert_eq!(pair.resent(From::Left, FIRST), [5, 6, 7, 8, 9]);
    assert_eq!(pair.right.engine.stats().packets_duplicate, 1);
    all_succeed(&mut pair.left, [1]);
}
