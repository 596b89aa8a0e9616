//! I-1 to I-6, I-25: loss, NACKs, which packets are retransmitted, and in which order.

use super::*;

/// 0..9 are sent together and 5 is lost. Each of 6..9 arrives out of order and draws a NACK that names it. Only 5 is
/// retransmitted.
#[test]
fn i1_every_out_of_order_arrival_causes_a_nack() {
    let mut pair = irn();
    pair.wire(drop_requests(FIRST, &[(5, 0)]));
    write(&mut pair, 1, 10);
    pair.run();
    assert_eq!(pair.nacks_of(From::Right, FIRST), [(5, Some(6)), (5, Some(7)), (5, Some(8)), (5, Some(9))]);
    assert_eq!(pair.resent(From::Left, FIRST), [5]);
    all_succeed(&mut pair.left, [1]);
    assert_eq!(pair.right.memory[500_000..510_240], pair.left.memory[..10_240]);
}

/// Edge cases: the first packet is lost, so that all others are out of order; the last one is lost, so that none is.
#[test]
fn i1_loss_of_the_first_packet_and_of_the_last_packet() {
    let mut pair = irn();
    pair.wire(drop_requests(FIRST, &[(0, 0)]));
    write(&mut pair, 1, 10);
    pair.run();
    let nacks: Vec<_> = (1..10).map(|sack| (0, Some(sack))).collect();
    assert_eq!(pair.nacks_of(From::Right, FIRST), nacks);
    assert_eq!(pair.resent(From::Left, FIRST), [0]);

    let mut pair = irn();
    pair.wire(drop_requests(FIRST, &[(9, 0)]));
    write(&mut pair, 1, 10);
    pair.run();
    assert_eq!(pair.nacks_of(From::Right, FIRST), []);
    assert_eq!(pair.resent(From::Left, FIRST), [9], "not only 9 is retransmitted");
    all_succeed(&mut pair.left, [1]);
}

/// The network reorders without losing: 3 arrives after 7. Each of 4 to 7 draws a NACK, and IRN treats that as a
/// loss.
#[test]
fn i1_reordering_also_causes_nacks() {
    let mut pair = irn();
    pair.wire(|sent| {
        let late = sent.from == From::Left && FIRST.distance_to(sent.packet.psn) == 3;
        if late { Fate::Late(Duration::from_us(1)) } else { Fate::Deliver }
    });
    write(&mut pair, 1, 8);
    pair.run();
    let nacks: Vec<_> = (4..8).map(|sack| (3, Some(sack))).collect();
    assert_eq!(pair.nacks_of(From::Right, FIRST), nacks);
    assert_eq!(pair.resent(From::Left, FIRST)[0], 3);
    assert_eq!(pair.right.engine.stats().packets_duplicate, 1, "the retransmitted packet is not a duplicate");
}

/// n data packets that arrive give n acknowledgements of either kind, whatever the operation and however many are lost.
#[test]
fn i2_every_packet_that_arrives_is_acknowledged_once() {
    for packets in [1, 2, 10, 300] {
        let mut pair = irn();
        write(&mut pair, 1, packets);
        pair.run();
        assert_eq!(pair.acks_of(From::Right), packets as usize);
        assert_eq!(pair.acks_of(From::Left), 0);
    }
    let mut pair = irn();
    pair.right.post_recv(1, &[pair.right.sge(TARGET, 5_000)]);
    pair.left.post(1, SendOp::Send { immediate: Some(1) }, &[pair.left.sge(0, 5_000)]);
    pair.run();
    assert_eq!(pair.acks_of(From::Right), 5);
}

#[test]
fn i2_duplicates_are_acknowledged_and_lost_packets_are_not() {
    let mut pair = irn();
    pair.wire(|sent| if sent.from == From::Left { Fate::Twice } else { Fate::Deliver });
    write(&mut pair, 1, 10);
    pair.run();
    assert_eq!(pair.acks_of(From::Right), 20);

    let mut pair = irn();
    pair.wire(drop_requests(FIRST, &[(5, 0), (8, 0)]));
    write(&mut pair, 1, 10);
    pair.run();
    assert_eq!(pair.acks_of(From::Right), 10, "twelve sent, ten arrived");
}

/// Beyond the limit: more packets arrive at the same time than acknowledgements can be queued (4096). Those that do
/// not fit are merged into later ones, and none is lost.
#[test]
fn i2_acknowledgements_beyond_the_queue_are_merged() {
    let mut setup = Setup::new("irn", &[("cap_packets", "0")]);
    (setup.depth, setup.completions) = (8_192, 8_192);
    let mut pair = Pair::new(&setup);
    pair.batch = true;
    let (sge, remote) = (pair.left.sge(0, 8), pair.right.remote(TARGET));
    (0..5_000).for_each(|wr_id| pair.left.post(wr_id, SendOp::Write { remote, immediate: None }, &[sge]));
    pair.run();
    assert_eq!(pair.right.engine.stats().acks_folded, 5_000 - 4_096);
    assert_eq!(pair.acks_of(From::Right), 4_097, "not one acknowledgement for all merged ones");
    assert_eq!(pair.resent(From::Left, FIRST), []);
    all_succeed(&mut pair.left, 0..5_000);
}

/// The sender stores what was selectively acknowledged: 5 is lost three times, so that the timer must repair it, and
/// still none of 6 to 109 is ever retransmitted, up to the last one that the cap allows.
#[test]
fn i3_selective_acknowledgements_are_kept_across_timeouts() {
    let mut pair = irn();
    pair.wire(drop_requests(FIRST, &[(5, 0), (5, 1), (5, 2)]));
    write(&mut pair, 1, 200);
    pair.run();
    assert_eq!(pair.resent(From::Left, FIRST), [5, 5, 5]);
    assert_eq!(pair.left.info().stats.timeouts, 2);
    all_succeed(&mut pair.left, [1]);
}

/// The bitmap is as wide as the number of packets that may be in flight: with the widest cap of a 128-bit window, the
/// packets at both of its ends are recorded.
#[test]
fn i3_the_bitmap_covers_the_whole_cap() {
    let mut pair = irn_with(&[("cap_packets", "128")]);
    pair.wire(drop_requests(FIRST, &[(0, 0), (0, 1), (126, 0)]));
    write(&mut pair, 1, 128);
    pair.run();
    assert_eq!(pair.nacks_of(From::Right, FIRST).len(), 127, "1 to 125, 127, and the repair of 126");
    let mut resent = pair.resent(From::Left, FIRST);
    resent.dedup();
    assert_eq!(resent, [0, 126, 0], "0 is lost again and left to the timer");
    all_succeed(&mut pair.left, [1]);
}

/// 5 and 8 of 0..9 are lost. First the packet at the cumulative acknowledgement, then the one below a selective one.
#[test]
fn i4_only_gaps_below_a_selective_acknowledgement_are_retransmitted() {
    let mut pair = irn();
    pair.wire(drop_requests(FIRST, &[(5, 0), (8, 0)]));
    write(&mut pair, 1, 10);
    pair.run();
    assert_eq!(pair.resent_at(From::Left, FIRST), [(10, 5), (10, 8)], "never 6, 7 or 9");
    assert_eq!(pair.nacks_of(From::Right, FIRST), [(5, Some(6)), (5, Some(7)), (5, Some(9))]);
}

/// Beyond the limit: 8 and 9, with no later packet acknowledged, are not treated as lost when the repair of 5 is
/// acknowledged and 8 is at the cumulative acknowledgement. The low timeout sends 8; a packet that was sent before a
/// timeout and is not acknowledged counts as lost, so 9 follows immediately.
#[test]
fn i4_packets_without_a_later_selective_acknowledgement_are_not_lost() {
    let mut pair = irn();
    pair.wire(drop_requests(FIRST, &[(5, 0), (8, 0), (9, 0)]));
    write(&mut pair, 1, 10);
    pair.run();
    assert_eq!(pair.resent_at(From::Left, FIRST), [(10, 5), (120, 8), (130, 9)]);
    assert_eq!(pair.left.info().stats.timeouts, 1);
}

/// A timeout enters recovery like a NACK does: all of 0..4 are lost, the timer sends 0, its acknowledgement reveals
/// 1, and so on.
#[test]
fn i4_a_timeout_enters_recovery_and_retransmits_the_oldest_packet() {
    let mut pair = irn();
    pair.wire(drop_requests(FIRST, &[(0, 0), (1, 0), (2, 0), (3, 0), (4, 0)]));
    write(&mut pair, 1, 5);
    pair.run();
    assert_eq!(pair.resent_at(From::Left, FIRST), [(320, 0), (330, 1), (340, 2), (350, 3), (360, 4)]);
    assert_eq!(pair.left.info().stats.timeouts, 1);
}

/// Acknowledgements of 0 and 1 (which make room for 10 and 11) and NACKs for 2 and 5 arrive together. Lost packets
/// are sent first.
#[test]
fn i5_lost_packets_are_sent_before_new_ones() {
    let mut pair = irn_with(&[("cap_packets", "10")]);
    pair.batch = true;
    pair.wire(drop_requests(FIRST, &[(2, 0), (5, 0)]));
    write(&mut pair, 1, 12);
    pair.run();
    let trace = pair.trace_of(From::Left, FIRST);
    let at_10: Vec<_> = trace.iter().filter(|(us, ..)| *us == 10).map(|(_, seq, again)| (*seq, *again)).collect();
    assert_eq!(at_10, [(2, true), (5, true), (10, false), (11, false)]);
}

/// While 2 is being repaired, the cap is used up and no new packet leaves; the acknowledgement of the repair frees
/// five positions under the cap, and five new packets leave although recovery continues (5 is still missing).
#[test]
fn i5_when_all_lost_packets_are_retransmitted_new_ones_are_sent_up_to_the_cap() {
    let mut pair = irn_with(&[("cap_packets", "10")]);
    // The repair of 5 takes 4 us longer than that of 2.
    let mut drops = drop_requests(FIRST, &[(2, 0), (5, 0)]);
    pair.wire(move |sent| match drops(sent) {
        Fate::Deliver
            if sent.kind == TransmitKind::RequestRetransmission && FIRST.distance_to(sent.packet.psn) == 5 =>
        {
            Fate::Late(Duration::from_us(4))
        }
        fate => fate,
    });
    write(&mut pair, 1, 40);
    pair.run_until(us(23));
    let trace = pair.trace_of(From::Left, FIRST);
    let after = |from: u64| trace.iter().filter(move |(us, ..)| *us >= from).map(|(_, seq, again)| (*seq, *again));
    let at_10 = trace.iter().filter(|(us, ..)| *us == 10).map(|(_, seq, again)| (*seq, *again));
    assert_eq!(at_10.collect::<Vec<_>>(), [(10, false), (11, false), (2, true), (5, true)]);
    assert_eq!(after(11).collect::<Vec<_>>(), [(12, false), (13, false), (14, false)], "una went from 2 to 5");
    pair.run();
    all_succeed(&mut pair.left, [1]);
}

/// 3 of 0..9 is lost and retransmitted at 10 us: the recovery sequence is 9. At 12 us four more packets leave. The
/// acknowledgement of the repair is cumulative up to 9: recovery ends, and 10, which is still in flight, is not
/// retransmitted.
#[test]
fn i6_recovery_ends_when_all_packets_sent_before_the_retransmission_are_acknowledged() {
    let mut pair = irn();
    pair.wire(drop_requests(FIRST, &[(3, 0)]));
    write(&mut pair, 1, 10);
    pair.run_until(us(12));
    write(&mut pair, 2, 4);
    pair.run();
    assert_eq!(pair.resent_at(From::Left, FIRST), [(10, 3)]);
    all_succeed(&mut pair.left, [1, 2]);
}

/// Beyond the limit: 9, the last one sent before the repair, is lost too. The acknowledgement stops at 9 and reveals
/// no loss; recovery continues until 10, which arrives at 22 us, reveals that 9 is missing.
#[test]
fn i6_an_acknowledgement_up_to_the_recovery_sequence_does_not_end_recovery() {
    let mut pair = irn();
    pair.wire(drop_requests(FIRST, &[(3, 0), (9, 0)]));
    write(&mut pair, 1, 10);
    pair.run_until(us(12));
    write(&mut pair, 2, 4);
    pair.run();
    assert_eq!(pair.resent_at(From::Left, FIRST), [(10, 3), (22, 9)]);
    assert_eq!(pair.left.info().stats.timeouts, 0);
}

/// After recovery, another loss starts it again from the beginning, at the first NACK.
#[test]
fn i6_a_later_loss_starts_a_new_recovery() {
    let mut pair = irn();
    pair.wire(drop_requests(FIRST, &[(3, 0), (12, 0)]));
    write(&mut pair, 1, 10);
    pair.run_until(us(100));
    write(&mut pair, 2, 10);
    pair.run();
    assert_eq!(pair.resent_at(From::Left, FIRST), [(10, 3), (110, 12)]);
}

/// Look-ahead of `txFree`: NACKs reveal the holes 2, 5 and 7 at the same time; every call returns one of them, lowest
/// first.
#[test]
fn i25_look_ahead_returns_one_lost_packet_per_call_lowest_first() {
    let mut pair = irn();
    pair.batch = true;
    pair.wire(drop_requests(FIRST, &[(2, 0), (5, 0), (7, 0)]));
    write(&mut pair, 1, 10);
    pair.run_until(us(9));
    pair.now = us(10);
    let mut calls = Vec::new();
    pair.take_in_due();
    while let Some(transmit) = pair.left.engine.transmit(pair.now).and_then(Departure::roce) {
        calls.push((FIRST.distance_to(transmit.packet.psn), transmit.kind));
    }
    let again = TransmitKind::RequestRetransmission;
    assert_eq!(calls, [(2, again), (5, again), (7, again)]);
}

/// Beyond the limit: a hole that is acknowledged after it was found and before it is sent is not sent.
#[test]
fn i25_packets_acknowledged_meanwhile_are_not_retransmitted() {
    let mut pair = irn();
    pair.batch = true;
    // 2 is late by 100 ns, so its own NACK has already been sent when it arrives.
    pair.wire(|sent| {
        let late = sent.from == From::Left && FIRST.distance_to(sent.packet.psn) == 2;
        if late { Fate::Late(Duration::from_ns(100)) } else { Fate::Deliver }
    });
    write(&mut pair, 1, 4);
    pair.run_until(us(9));
    pair.now = us(10);
    pair.take_in_due();
    // The NACK (2, 3) has arrived. Before the sender transmits, the acknowledgement of everything arrives too.
    pair.now = Time::from_ns(10_100);
    pair.take_in_due();
    assert!(pair.left.engine.transmit(pair.now).is_none());
    all_succeed(&mut pair.left, [1]);
}
