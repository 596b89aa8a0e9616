//! IRN's variants (sections 4.3 and 7), each by what it does on the wire, and I-28.

use super::*;

/// 5 of 0..9 is lost. Go-back-N: 6 to 9 are dropped, the gap is reported once, everything from 5 on is retransmitted.
#[test]
fn go_back_n_retransmits_everything_from_the_loss_on() {
    let mut pair = irn_with(&[("recovery", "go-back-n")]);
    pair.wire(drop_requests(FIRST, &[(5, 0)]));
    write(&mut pair, 1, 10);
    pair.run();
    assert_eq!(pair.nacks_of(From::Right, FIRST), [(5, None)]);
    assert_eq!(pair.resent_at(From::Left, FIRST), [(10, 5), (10, 6), (10, 7), (10, 8), (10, 9)]);
    assert_eq!(pair.right.engine.stats().drops[DropReason::OutOfOrder as usize], 4);
    all_succeed(&mut pair.left, [1]);
}

/// Go-back-N retains IRN's separate sequence spaces and per-packet acknowledgements: the responder repairs a lost
/// response, by going back.
#[test]
fn go_back_n_responses_are_retransmitted_by_the_responder() {
    let mut pair = irn_with(&[("recovery", "go-back-n")]);
    pair.wire(drop_data(From::Right, FIRST, &[(2, 0)]));
    read(&mut pair, 1, 5);
    pair.run();
    assert_eq!(pair.data_of(From::Left, FIRST), [(0, false)]);
    assert_eq!(pair.resent(From::Right, FIRST), [2, 3, 4]);
    all_succeed(&mut pair.left, [1]);
}

/// Go-back-N also retains the cap of one bandwidth-delay product.
#[test]
fn go_back_n_respects_the_cap() {
    let mut pair = irn_with(&[("recovery", "go-back-n")]);
    write(&mut pair, 1, 300);
    pair.run_until(us(9));
    assert_eq!(pair.data_of(From::Left, FIRST).len(), 110);
    pair.run();
    all_succeed(&mut pair.left, [1]);
}

/// 3, 5 and 8 of 0..9 are lost. Without a bitmap the sender repairs one hole per round trip: the one at which each
/// cumulative acknowledgement stops. With a bitmap it repairs all in one round trip.
#[test]
fn without_a_bitmap_each_gap_takes_a_round_trip() {
    let losses = [(3, 0), (5, 0), (8, 0)];
    let mut pair = irn_with(&[("sack_bitmap", "false")]);
    pair.wire(drop_requests(FIRST, &losses));
    write(&mut pair, 1, 10);
    pair.run();
    assert_eq!(pair.resent_at(From::Left, FIRST), [(10, 3), (20, 5), (30, 8)]);
    all_succeed(&mut pair.left, [1]);

    let mut pair = irn();
    pair.wire(drop_requests(FIRST, &losses));
    write(&mut pair, 1, 10);
    pair.run();
    assert_eq!(pair.resent_at(From::Left, FIRST), [(10, 3), (10, 5), (10, 8)]);
}

/// Without BDP-FC only the widest bitmap bounds the packets in flight: a thousand are sent together, and a loss among
/// them is still repaired selectively.
#[test]
fn without_the_cap_in_flight_exceeds_128() {
    let mut pair = irn_with(&[("cap_packets", "0")]);
    pair.wire(drop_requests(FIRST, &[(7, 0), (500, 0)]));
    write(&mut pair, 1, 480);
    write(&mut pair, 2, 500);
    pair.run_until(us(9));
    assert_eq!(pair.data_of(From::Left, FIRST).len(), 980);
    assert_eq!(pair.left.info().next.since(pair.left.info().una), 980);
    pair.run();
    assert_eq!(pair.resent(From::Left, FIRST), [7, 500]);
    all_succeed(&mut pair.left, [1, 2]);
}

/// The tail of a burst is lost. The static high timeout is 320 us; computed from round trips of 10 us it is below
/// RTO_low, so that RTO_low applies.
#[test]
fn dynamic_timeout_is_short_where_round_trips_are_short() {
    let lost: Vec<_> = (45..50).map(|seq| (seq, 0)).collect();
    let mut pair = irn_with(&[("dynamic_rto", "true")]);
    pair.wire(drop_requests(FIRST, &lost));
    write(&mut pair, 1, 50);
    pair.run();
    assert_eq!(pair.resent_at(From::Left, FIRST)[0], (110, 45));
    all_succeed(&mut pair.left, [1]);
}

/// A wire on which every request packet takes `late` longer.
fn slow_wire(pair: &mut Pair, late: Duration) {
    pair.wire(move |sent| if sent.from == From::Left { Fate::Late(late) } else { Fate::Deliver });
}

/// A round trip of 310 us is measured: RFC 6298 derives 310 us + 4 * 155 us = 930 us from it. When round trips then
/// grow to 510 us, the static timeout of 320 us retransmits packets that are merely late; the computed one waits.
#[test]
fn dynamic_timeout_is_long_where_round_trips_are_long() {
    for (dynamic, resent) in [("false", true), ("true", false)] {
        let mut pair = irn_with(&[("dynamic_rto", dynamic), ("rto_low_packets", "0")]);
        slow_wire(&mut pair, Duration::from_us(300));
        write(&mut pair, 1, 1);
        pair.run();
        assert_eq!(pair.resent(From::Left, FIRST), []);
        slow_wire(&mut pair, Duration::from_us(500));
        write(&mut pair, 2, 20);
        pair.run();
        assert_eq!(!pair.resent(From::Left, FIRST).is_empty(), resent, "dynamic_rto {dynamic}");
        all_succeed(&mut pair.left, [1, 2]);
    }
}

/// The computed timeout is also the time that it waits when a packet is really lost.
#[test]
fn dynamic_timeout_is_computed_from_round_trips() {
    let mut pair = irn_with(&[("dynamic_rto", "true"), ("rto_low_packets", "0")]);
    slow_wire(&mut pair, Duration::from_us(300));
    write(&mut pair, 1, 1);
    pair.run();
    pair.wire(drop_requests(FIRST, &[(1, 0)]));
    let lost_at = pair.now.as_ps() / Duration::from_us(1).as_ps();
    write(&mut pair, 2, 1);
    pair.run();
    assert_eq!(pair.resent_at(From::Left, FIRST), [(lost_at + 930, 1)]);
}

/// Karn's rule: the acknowledgement of a packet that was sent twice may belong to either transmission. After 930 us
/// and a repair on a fast wire the estimate is unchanged, however often that happens.
#[test]
fn dynamic_timeout_ignores_retransmitted_packets() {
    let mut pair = irn_with(&[("dynamic_rto", "true"), ("rto_low_packets", "0")]);
    slow_wire(&mut pair, Duration::from_us(300));
    write(&mut pair, 0, 1);
    pair.run();
    for seq in 1..4 {
        pair.wire(drop_requests(FIRST, &[(seq, 0)]));
        let lost_at = pair.now.as_ps() / Duration::from_us(1).as_ps();
        write(&mut pair, seq as u64, 1);
        pair.run();
        assert_eq!(pair.resent_at(From::Left, FIRST).last(), Some(&(lost_at + 930, seq)));
    }
}

/// Section 7: recovery begins only at the third NACK. A packet that two others overtake is not treated as lost.
#[test]
fn i28_reordering_below_the_threshold_retransmits_nothing() {
    for (overtaken_by, resent) in [(1, 0), (2, 0), (3, 1)] {
        let mut pair = irn_with(&[("nack_threshold", "3")]);
        pair.wire(move |sent| {
            let late = sent.kind == TransmitKind::Request && FIRST.distance_to(sent.packet.psn) == 9 - overtaken_by;
            if late { Fate::Late(Duration::from_us(1)) } else { Fate::Deliver }
        });
        write(&mut pair, 1, 10);
        pair.run();
        assert_eq!(pair.nacks_of(From::Right, FIRST).len(), overtaken_by as usize, "wrong number of NACKs");
        assert_eq!(pair.resent(From::Left, FIRST).len(), resent, "overtaken by {overtaken_by}");
        all_succeed(&mut pair.left, [1]);
    }
    let mut pair = irn();
    pair.wire(|sent| {
        let late = sent.kind == TransmitKind::Request && FIRST.distance_to(sent.packet.psn) == 8;
        if late { Fate::Late(Duration::from_us(1)) } else { Fate::Deliver }
    });
    write(&mut pair, 1, 10);
    pair.run();
    assert_eq!(pair.resent(From::Left, FIRST), [8], "the default threshold is one");
}

/// A real loss with fewer packets after it than the threshold is repaired by the timer; the same loss with enough
/// packets after it is not.
#[test]
fn i28_a_loss_near_the_end_waits_for_the_timer() {
    let mut pair = irn_with(&[("nack_threshold", "3")]);
    pair.wire(drop_requests(FIRST, &[(7, 0)]));
    write(&mut pair, 1, 10);
    pair.run();
    assert_eq!(pair.resent_at(From::Left, FIRST), [(330, 7)], "two NACKs, three in flight");
    let mut pair = irn_with(&[("nack_threshold", "3")]);
    pair.wire(drop_requests(FIRST, &[(6, 0)]));
    write(&mut pair, 1, 10);
    pair.run();
    assert_eq!(pair.resent_at(From::Left, FIRST), [(10, 6)]);
}

/// With spraying, every packet takes its own path; the threshold makes that permissible, and packets that overtake
/// each other by less than it are not repeated.
#[test]
fn i28_with_spraying_and_the_threshold_nothing_is_retransmitted() {
    let refused = rnic_transports::select("irn", [("paths", "spray")]);
    assert!(refused.is_err());
    let mut pair = irn_with(&[("paths", "spray"), ("nack_threshold", "8")]);
    // Paths differ by up to 400 ns, and packets follow each other at once: reordering everywhere, but within groups
    // of four.
    pair.wire(|sent| match sent.kind {
        TransmitKind::Request => {
            let seq = FIRST.distance_to(sent.packet.psn) as u64;
            Fate::Late(Duration::from_ns(seq / 4 * 1_000 + 400 - seq % 4 * 100))
        }
        _ => Fate::Deliver,
    });
    write(&mut pair, 1, 100);
    pair.run();
    assert!(pair.nacks_of(From::Right, FIRST).len() >= 75 - 3);
    assert_eq!(pair.resent(From::Left, FIRST), []);
    all_succeed(&mut pair.left, [1]);
}
