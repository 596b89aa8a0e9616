//! RoCE's selective repeat (`roce-sr`) and its adaptive-routing mode (`roce-ar`), as Falcon's measurements show them
//! (F-R4 to F-R7, F-R10): selective for Writes and Read responses, go-back-N for everything else, one hole per round
//! trip; and no NACK at all in adaptive-routing mode. Also `roce-irnpaper`, which acknowledges messages only.

use super::*;

fn send(pair: &mut Pair, wr_id: u64, packets: u32) {
    let sge = pair.left.sge(0, packets * MTU);
    pair.left.post(wr_id, SendOp::Send { immediate: None }, &[sge]);
}

fn post_receives(pair: &mut Pair, count: u64, packets: u32) {
    for wr_id in 0..count {
        let sge = pair.right.sge(TARGET + wr_id * u64::from(packets * MTU), packets * MTU);
        pair.right.post_recv(wr_id, &[sge]);
    }
}

fn same(pair: &Pair, packets: u32) {
    let (len, to) = ((packets * MTU) as usize, TARGET as usize);
    assert!(pair.right.memory[to..to + len] == pair.left.memory[..len], "the payload is not what was sent");
}

#[test]
fn f_r4_only_the_lost_write_packet_is_retransmitted() {
    let mut pair = Pair::of("roce-sr");
    pair.wire(drop_requests(FIRST, &[(5, 0)]));
    write(&mut pair, 1, 20);
    pair.run();
    assert_eq!(pair.resent_at(From::Left, FIRST), [(10, 5)]);
    all_succeed(&mut pair.left, [1]);
    same(&pair, 20);
}

/// Holes at 5, 9 and 14 of one burst: each takes a round trip of 10 us, because a NACK names one.
#[test]
fn f_r4_one_gap_is_repaired_per_round_trip() {
    let mut pair = Pair::of("roce-sr");
    pair.wire(drop_requests(FIRST, &[(5, 0), (9, 0), (14, 0)]));
    write(&mut pair, 1, 20);
    pair.run();
    assert_eq!(pair.resent_at(From::Left, FIRST), [(10, 5), (20, 9), (30, 14)]);
    all_succeed(&mut pair.left, [1]);
    same(&pair, 20);
}

/// Sends are repaired exactly as go-back-N repairs them.
#[test]
fn f_r5_sends_use_go_back_n() {
    let resent = ["roce-sr", "roce-gbn"].map(|transport| {
        let mut pair = Pair::of(transport);
        pair.wire(drop_requests(FIRST, &[(5, 0), (9, 0)]));
        post_receives(&mut pair, 2, 10);
        send(&mut pair, 1, 10);
        send(&mut pair, 2, 10);
        pair.run();
        all_succeed(&mut pair.left, [1, 2]);
        pair.resent_at(From::Left, FIRST)
    });
    assert_eq!(resent[0], resent[1]);
    assert_eq!(resent[0].first(), Some(&(10, 5)));
    assert!(resent[0].len() >= 15, "{:?}", resent[0]);
}

#[test]
fn f_r6_only_the_lost_read_response_is_retransmitted() {
    let mut pair = Pair::of("roce-sr");
    pair.wire(drop_data(From::Right, FIRST, &[(5, 0), (9, 0)]));
    read(&mut pair, 1, 20);
    pair.run();
    assert_eq!(pair.resent_at(From::Right, FIRST), [(15, 5), (25, 9)]);
    assert_eq!(pair.resent(From::Left, FIRST), []);
    all_succeed(&mut pair.left, [1]);
}

/// A lost Read request: the packets after it are dropped, and all of them are retransmitted.
#[test]
fn f_r7_read_requests_use_go_back_n() {
    let mut pair = Pair::of("roce-sr");
    pair.wire(drop_requests(FIRST, &[(0, 0)]));
    for wr_id in 0..3 {
        read(&mut pair, wr_id, 2);
    }
    pair.run();
    assert_eq!(pair.resent_at(From::Left, FIRST), [(10, 0), (10, 1), (10, 2)]);
    all_succeed(&mut pair.left, 0..3);
}

/// A read is complete when its request is acknowledged and its response has arrived. Responses have their own
/// sequence numbers, so the acknowledgement of several Reads is not queued after all of their responses, and neither
/// is the notification of a gap.
#[test]
fn f_r6_acknowledgements_of_requests_do_not_wait_for_responses() {
    for (fate, expected) in [(vec![], 4), (vec![(2, 0)], 2)] {
        let mut pair = Pair::of("roce-sr");
        pair.batch = true;
        pair.wire(drop_requests(FIRST, &fate));
        for wr_id in 0..4 {
            read(&mut pair, wr_id, 5);
        }
        pair.run();
        let first = pair.log.iter().find(|sent| sent.from == From::Right).expect("a response was sent");
        assert_eq!(first.kind, TransmitKind::Ack, "the acknowledgement is sent after the responses");
        let says_all = i64::from(fate.is_empty());
        assert_eq!(FIRST.distance_to(first.packet.psn), expected - says_all, "an ACK names the last, a NAK the next");
        all_succeed(&mut pair.left, 0..4);
    }
}

/// A Send after a lost Write packet is dropped, a Write after it is held: the sender goes back, and what was held is
/// not placed twice.
#[test]
fn writes_after_a_dropped_send_are_kept() {
    let mut pair = Pair::of("roce-sr");
    pair.wire(drop_requests(FIRST, &[(2, 0)]));
    post_receives(&mut pair, 1, 2);
    write(&mut pair, 1, 4);
    send(&mut pair, 2, 2);
    write(&mut pair, 3, 4);
    pair.run();
    assert_eq!(pair.right.engine.stats().packets_out_of_order, 5, "3 of the first Write, four of the second");
    assert_eq!(pair.right.engine.stats().drops[DropReason::OutOfOrder as usize], 2);
    all_succeed(&mut pair.left, [1, 2, 3]);
}

#[test]
fn f_r10_adaptive_routing_mode_reports_no_gap_and_waits_for_the_timeout() {
    let mut pair = Pair::of("roce-ar");
    pair.wire(drop_requests(FIRST, &[(5, 0)]));
    write(&mut pair, 1, 20);
    pair.run();
    assert_eq!(pair.nacks_of(From::Right, FIRST), []);
    let resent = pair.resent_at(From::Left, FIRST);
    let everything: Vec<_> = (0..20).map(|index| (320, index)).collect();
    assert_eq!(resent, everything, "packets were acknowledged");
    all_succeed(&mut pair.left, [1]);
    same(&pair, 20);
}

/// Checks that Writes in adaptive-routing mode tolerate reordering: nothing is retransmitted.
#[test]
fn adaptive_routing_mode_tolerates_reordering() {
    let mut pair = Pair::of("roce-ar");
    let mut count = 0;
    pair.wire(move |sent| {
        count += 1;
        let late = sent.from == From::Left && count % 3 == 0;
        if late { Fate::Late(Duration::from_us(20)) } else { Fate::Deliver }
    });
    write(&mut pair, 1, 60);
    pair.run();
    assert_eq!(pair.resent(From::Left, FIRST), []);
    assert!(pair.right.engine.stats().packets_out_of_order > 0);
    all_succeed(&mut pair.left, [1]);
    same(&pair, 60);
}

/// A message of 300 packets draws one acknowledgement, and one that takes longer than the timeout does not time out.
#[test]
fn irn_papers_roce_acknowledges_whole_messages_and_times_from_the_last_packet() {
    let mut pair = Pair::new(&Setup::new("roce-irnpaper", &[("rto", "15us"), ("control", "timely")]));
    write(&mut pair, 1, 300);
    pair.run();
    assert_eq!(pair.acks_of(From::Right), 1);
    assert_eq!(pair.resent(From::Left, FIRST), [], "26 us of packets, and a timeout of 15 us");
    pair.wire(drop_requests(FIRST, &[(599, 0)]));
    let start = pair.now;
    write(&mut pair, 2, 300);
    pair.run();
    let resent = pair.resent_at(From::Left, FIRST);
    let after = resent[0].0 - start.as_ps() / Duration::from_us(1).as_ps();
    assert!((40..=42).contains(&after), "15 us after the last packet, at 26 us: {after}");
    all_succeed(&mut pair.left, [1, 2]);
}
