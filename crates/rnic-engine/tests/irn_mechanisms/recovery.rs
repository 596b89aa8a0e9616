//! I-1 to I-6, I-25: loss, NACKs, what is sent again and in which order.

use super::*;

/// 0..9 leave at once, 5 is lost. Each of 6..9 arrives out of order and draws a NACK that names it. Only 5 is sent
/// again.
#[test]
fn i1_every_out_of_order_arrival_draws_a_nack() {
    let mut pair = irn();
    pair.wire(drop_requests(FIRST, &[(5, 0)]));
    write(&mut pair, 1, 10);
    pair.run();
    assert_eq!(pair.nacks_of(From::Right, FIRST), [(5, Some(6)), (5, Some(7)), (5, Some(8)), (5, Some(9))]);
    assert_eq!(pair.resent(From::Left, FIRST), [5]);
    all_succeed(&mut pair.left, [1]);
    assert_eq!(pair.right.memory[500_000..510_240], pair.left.memory[..10_240]);
}

/// Past the edge: the first packet is lost, and everything is out of order; the last one is lost, and nothing is.
#[test]
fn i1_first_packet_and_last_packet() {
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
    assert_eq!(pair.resent(From::Left, FIRST), [9], "by the timer alone");
    all_succeed(&mut pair.left, [1]);
}

/// The network reorders without losing: 3 arrives after 7. A NACK each for 4 to 7, and IRN takes that for a loss.
#[test]
fn i1_reordering_draws_nacks_too() {
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
    assert_eq!(pair.right.engine.stats().packets_duplicate, 1, "the late one was here before the repeated one");
}

/// n data packets that arrive give n acknowledgements of either kind, whatever the operation and however many are lost.
#[test]
fn i2_one_acknowledgement_for_every_packet() {
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
fn i2_duplicates_are_acknowledged_too_and_lost_packets_are_not() {
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

/// Past the edge: more packets come in at once than acknowledgements can wait for the wire (4096). Those that do not
/// fit are folded into later ones, and nothing is missed.
#[test]
fn i2_acknowledgements_that_do_not_fit_are_folded() {
    let mut setup = Setup::new("irn", &[("cap_packets", "0")]);
    (setup.depth, setup.completions) = (8_192, 8_192);
    let mut pair = Pair::new(&setup);
    pair.batch = true;
    let (sge, remote) = (pair.left.sge(0, 8), pair.right.remote(TARGET));
    (0..5_000).for_each(|wr_id| pair.left.post(wr_id, SendOp::Write { remote, immediate: None }, &[sge]));
    pair.run();
    assert_eq!(pair.right.engine.stats().acks_folded, 5_000 - 4_096);
    assert_eq!(pair.acks_of(From::Right), 4_097, "and one for all that were folded");
    assert_eq!(pair.resent(From::Left, FIRST), []);
    all_succeed(&mut pair.left, 0..5_000);
}

/// The sender remembers what was selectively acknowledged: 5 is lost three times over, so that the timer must repair
/// it, and still none of 6 to 109 is ever sent again, to the last one that the cap let out.
#[test]
fn i3_selective_acknowledgements_are_remembered_across_timeouts() {
    let mut pair = irn();
    pair.wire(drop_requests(FIRST, &[(5, 0), (5, 1), (5, 2)]));
    write(&mut pair, 1, 200);
    pair.run();
    assert_eq!(pair.resent(From::Left, FIRST), [5, 5, 5]);
    assert_eq!(pair.left.info().stats.timeouts, 2);
    all_succeed(&mut pair.left, [1]);
}

/// The memory is as wide as what may be in flight: with the widest cap of a 128-bit window, both ends of it count.
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
fn i4_holes_below_a_selective_acknowledgement_and_nothing_else() {
    let mut pair = irn();
    pair.wire(drop_requests(FIRST, &[(5, 0), (8, 0)]));
    write(&mut pair, 1, 10);
    pair.run();
    assert_eq!(pair.resent_at(From::Left, FIRST), [(10, 5), (10, 8)], "never 6, 7 or 9");
    assert_eq!(pair.nacks_of(From::Right, FIRST), [(5, Some(6)), (5, Some(7)), (5, Some(9))]);
}

/// Past the edge: 8 and 9, with nothing above them acknowledged, are not taken for lost when the repair of 5 is
/// acknowledged and 8 is at the cumulative acknowledgement. The low timeout sends 8; what was sent before a timeout is
/// lost if it is uncovered, so 9 follows at once.
#[test]
fn i4_without_a_selective_acknowledgement_above_nothing_is_lost_yet() {
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
fn i4_a_timeout_enters_recovery_with_the_oldest_packet() {
    let mut pair = irn();
    pair.wire(drop_requests(FIRST, &[(0, 0), (1, 0), (2, 0), (3, 0), (4, 0)]));
    write(&mut pair, 1, 5);
    pair.run();
    assert_eq!(pair.resent_at(From::Left, FIRST), [(320, 0), (330, 1), (340, 2), (350, 3), (360, 4)]);
    assert_eq!(pair.left.info().stats.timeouts, 1);
}

/// Acknowledgements of 0 and 1 (which make room for 10 and 11) and NACKs for 2 and 5 come in together. What is lost
/// leaves first.
#[test]
fn i5_lost_packets_go_before_new_ones() {
    let mut pair = irn_with(&[("cap_packets", "10")]);
    pair.batch = true;
    pair.wire(drop_requests(FIRST, &[(2, 0), (5, 0)]));
    write(&mut pair, 1, 12);
    pair.run();
    let trace = pair.trace_of(From::Left, FIRST);
    let at_10: Vec<_> = trace.iter().filter(|(us, ..)| *us == 10).map(|(_, seq, again)| (*seq, *again)).collect();
    assert_eq!(at_10, [(2, true), (5, true), (10, false), (11, false)]);
}

/// While 2 is being repaired, no room, no new packet; the acknowledgement of the repair frees the room of five
/// packets, and five new ones leave although recovery (5 is still missing) goes on.
#[test]
fn i5_when_nothing_is_left_to_repair_new_packets_leave_as_the_cap_allows() {
    let mut pair = irn_with(&[("cap_packets", "10")]);
    // The repair of 5 takes 4 us longer than that of 2.
    let mut drops = drop_requests(FIRST, &[(2, 0), (5, 0)]);
    pair.wire(move |sent| match drops(sent) {
        Fate::Deliver if sent.kind == TransmitKind::RequestAgain && FIRST.distance_to(sent.packet.psn) == 5 => {
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

/// 3 of 0..9 is lost and sent again at 10 us: the recovery sequence is 9. At 12 us four more packets leave. The
/// acknowledgement of the repair is cumulative up to 9: recovery is over, and 10, which is merely under way, is left
/// alone.
#[test]
fn i6_recovery_ends_when_everything_sent_before_the_repair_is_acknowledged() {
    let mut pair = irn();
    pair.wire(drop_requests(FIRST, &[(3, 0)]));
    write(&mut pair, 1, 10);
    pair.run_until(us(12));
    write(&mut pair, 2, 4);
    pair.run();
    assert_eq!(pair.resent_at(From::Left, FIRST), [(10, 3)]);
    all_succeed(&mut pair.left, [1, 2]);
}

/// Past the edge: 9, the last one sent before the repair, is lost too. The acknowledgement stops at 9 and shows
/// nothing; recovery goes on until 10, arriving at 22 us, overtakes 9.
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

/// After recovery, another loss enters it anew: the same path from the beginning, at the first NACK.
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

/// `txFree`'s look-ahead: NACKs reveal the holes 2, 5 and 7 at once; every call gives one of them, lowest first.
#[test]
fn i25_look_ahead_gives_one_lost_packet_a_call_lowest_first() {
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
    let again = TransmitKind::RequestAgain;
    assert_eq!(calls, [(2, again), (5, again), (7, again)]);
}

/// Past the edge: a hole that is acknowledged between being found and being sent drops out.
#[test]
fn i25_what_arrives_meanwhile_is_not_sent_again() {
    let mut pair = irn();
    pair.batch = true;
    // 2 overtakes nothing: it comes 100 ns late, so its own NACK is out when it arrives.
    pair.wire(|sent| {
        let late = sent.from == From::Left && FIRST.distance_to(sent.packet.psn) == 2;
        if late { Fate::Late(Duration::from_ns(100)) } else { Fate::Deliver }
    });
    write(&mut pair, 1, 4);
    pair.run_until(us(9));
    pair.now = us(10);
    pair.take_in_due();
    // The NACK (2, 3) is in. Before the sender gets to transmit, the acknowledgement of everything comes in too.
    pair.now = Time::from_ns(10_100);
    pair.take_in_due();
    assert!(pair.left.engine.transmit(pair.now).is_none());
    all_succeed(&mut pair.left, [1]);
}
