//! I-7 to I-10 and I-24: timeouts, the cap, no congestion control.

use rnic_base::BitRate;

use super::*;

/// Loses the first transmission of each packet from `from` on.
fn lose_tail(pair: &mut Pair, from: i64) {
    pair.wire(move |sent| {
        let lost = sent.kind == TransmitKind::Request && FIRST.distance_to(sent.packet.psn) >= from;
        if lost { Fate::Drop } else { Fate::Deliver }
    });
}

/// A message of one packet is lost: with one packet in flight, fewer than N = 3, the timeout is 100 us.
#[test]
fn i7_with_few_packets_in_flight_the_low_timeout_applies() {
    let mut pair = irn();
    lose_tail(&mut pair, 0);
    write(&mut pair, 1, 1);
    pair.run();
    assert_eq!(pair.resent_at(From::Left, FIRST), [(100, 0)]);
    all_succeed(&mut pair.left, [1]);
}

/// The last five of a burst of fifty are lost: no NACK is drawn and five are in flight, so the timeout is 320 us
/// after the last acknowledgement, which arrived at 10 us.
#[test]
fn i7_with_many_packets_in_flight_the_high_timeout_applies() {
    let mut pair = irn();
    lose_tail(&mut pair, 45);
    write(&mut pair, 1, 50);
    pair.run();
    assert_eq!(pair.resent_at(From::Left, FIRST)[0], (330, 45));
    assert_eq!(pair.left.info().stats.timeouts, 1);
    all_succeed(&mut pair.left, [1]);
}

/// N = 3, on both sides of the limit: two in flight wait 100 us, three wait 320 us.
#[test]
fn i7_the_high_timeout_applies_from_three_packets_in_flight() {
    for (lost, at) in [(1, 110), (2, 110), (3, 330), (4, 330)] {
        let mut pair = irn();
        lose_tail(&mut pair, 50 - lost);
        write(&mut pair, 1, 50);
        pair.run();
        assert_eq!(pair.resent_at(From::Left, FIRST)[0], (at, 50 - lost), "{lost} in flight");
    }
    let mut pair = irn_with(&[("rto_low_packets", "4")]);
    lose_tail(&mut pair, 47);
    write(&mut pair, 1, 50);
    pair.run();
    assert_eq!(pair.resent_at(From::Left, FIRST)[0], (110, 47), "N is a parameter");
}

/// A lost repair is found by the timer, which starts anew after every timeout: 100 us apart with one packet in flight.
#[test]
fn i7_a_lost_retransmission_waits_for_the_next_timeout() {
    let mut pair = irn();
    pair.wire(drop_requests(FIRST, &[(0, 0), (0, 1), (0, 2)]));
    write(&mut pair, 1, 1);
    pair.run();
    assert_eq!(pair.resent_at(From::Left, FIRST), [(100, 0), (200, 0), (300, 0)]);
}

/// The responder uses the same two timeouts for its responses.
#[test]
fn i7_the_same_timeouts_apply_to_responses() {
    for (packets, at) in [(1, 105), (2, 105), (3, 325)] {
        let mut pair = irn();
        let all: Vec<_> = (0..packets).map(|seq| (seq, 0)).collect();
        pair.wire(drop_data(From::Right, FIRST, &all));
        read(&mut pair, 1, packets as u32);
        pair.run();
        assert_eq!(pair.resent_at(From::Right, FIRST)[0], (at, 0), "{packets} in flight since 5 us");
        all_succeed(&mut pair.left, [1]);
    }
}

/// RTO_high = propagation on the longest path + one switch buffer full, in the paper's network: 24 us + 6 ports of
/// 240 KB at 40 Gbit/s. The default is that, rounded up.
#[test]
fn i8_the_high_timeout_is_path_delay_plus_one_full_switch_buffer() {
    let propagation = Duration::from_us(24);
    let queueing = BitRate::gbps(40).serialize(6 * 240_000);
    let derived = propagation + queueing;
    assert_eq!(derived, Duration::from_us(312));
    let profile = rnic_transports::profile("irn").expect("registered");
    let (_, rto_high) = profile.options().find(|(spec, _)| spec.name == "rto_high").expect("the option exists");
    assert_eq!(rto_high, Duration::from_us(320).as_ps());
    assert!(derived.as_ps() <= rto_high && rto_high <= derived.as_ps() * 105 / 100);
}

/// Cap = longest-path bandwidth-delay product in packets: 120 KB / (1024 + 66 bytes of headers) = 110. The number in
/// flight reaches it and never exceeds it, in a long message and in many short ones.
#[test]
fn i9_in_flight_reaches_the_cap_and_never_exceeds_it() {
    assert_eq!(120_000 / (1_024 + 66), 110);
    for short in [false, true] {
        let mut pair = irn();
        if short {
            (0..250).for_each(|wr_id| write(&mut pair, wr_id, 1));
        } else {
            write(&mut pair, 0, 500);
        }
        let mut most = 0;
        run_watching(&mut pair, Duration::from_us(1), us(200), |pair| {
            let info = pair.left.info();
            most = most.max(info.next.since(info.una));
        });
        assert_eq!(most, 110);
        assert!(pair.left.engine.stats().waits[WaitReason::Cap as usize] > 0);
    }
}

/// The number in flight is next minus last *cumulatively* acknowledged: selective acknowledgements free no capacity
/// (section 3.2).
#[test]
fn i9_selective_acknowledgements_free_no_capacity() {
    let mut pair = irn();
    pair.wire(drop_requests(FIRST, &[(0, 0)]));
    write(&mut pair, 1, 500);
    pair.run_until(us(19));
    let sent = pair.trace_of(From::Left, FIRST);
    assert_eq!(sent.iter().filter(|(.., again)| !again).count(), 110, "109 are selectively acknowledged by now");
    pair.run_until(us(20));
    assert_eq!(
        pair.left.info().next.since(pair.left.info().una),
        110,
        "the repair is acknowledged, and 0 to 109 with it"
    );
    let fresh =
        |from: u64| pair.trace_of(From::Left, FIRST).iter().filter(|(us, _, again)| *us >= from && !again).count();
    assert_eq!(fresh(20), 110);
}

/// The responder's packets of reads are subject to the cap too.
#[test]
fn i9_the_cap_applies_to_responses() {
    let mut pair = irn();
    read(&mut pair, 1, 500);
    pair.run_until(us(14));
    assert_eq!(pair.data_of(From::Right, FIRST).len(), 110);
    pair.run();
    all_succeed(&mut pair.left, [1]);
}

/// Flows start at line rate: the first bandwidth-delay product leaves back to back, without waiting for a single
/// acknowledgement.
#[test]
fn i10_the_first_window_is_sent_back_to_back() {
    let mut pair = irn();
    write(&mut pair, 1, 500);
    pair.run_until(us(9));
    let trace = pair.trace_of(From::Left, FIRST);
    assert_eq!(trace.iter().filter(|(us, ..)| *us == 0).count(), 110);
    assert_eq!(trace.len(), 110);
}

/// Loss alone does not change the rate: as soon as the repair is acknowledged, a full window leaves immediately. No
/// slow start, no halving: neither a window nor a rate other than the cap ever delays a packet.
#[test]
fn i10_loss_does_not_reduce_the_rate() {
    let mut pair = irn();
    pair.wire(drop_requests(FIRST, &[(0, 0), (150, 0), (151, 0), (300, 0)]));
    write(&mut pair, 1, 500);
    pair.run_until(us(20));
    assert_eq!(pair.trace_of(From::Left, FIRST).iter().filter(|(us, ..)| *us == 20).count(), 110);
    pair.run();
    let waits = pair.left.engine.stats().waits;
    assert!(waits[WaitReason::Cap as usize] > 0);
    assert_eq!((waits[WaitReason::Window as usize], waits[WaitReason::Rate as usize]), (0, 0));
    all_succeed(&mut pair.left, [1]);
}

/// One timer, armed with RTO_low by default. With N or more in flight its expiry at 100 us only extends it to 320 us.
#[test]
fn i24_expiry_of_the_low_timeout_with_many_in_flight_only_extends_the_timer() {
    let mut pair = irn();
    lose_tail(&mut pair, 0);
    write(&mut pair, 1, 3);
    pair.run_until(us(99));
    assert_eq!(pair.left.engine.next_timeout(), Some(us(100)));
    pair.run_until(us(101));
    assert_eq!(pair.left.engine.next_timeout(), Some(us(320)));
    assert_eq!((pair.resent(From::Left, FIRST).len(), pair.left.info().stats.timeouts), (0, 0));
    pair.run_until(us(319));
    assert_eq!(pair.resent(From::Left, FIRST), []);
    pair.run_until(us(320));
    assert_eq!((pair.resent(From::Left, FIRST), pair.left.info().stats.timeouts), (vec![0], 1));
}

/// Beyond the limit: progress between the two expiries restarts the timer with RTO_low. 0 to 2 are late by 150 us, so
/// the timer is extended at 100 us; at 160 us 0 and 1 are acknowledged, and 2, which was lost, waits 100 us from then
/// on.
#[test]
fn i24_progress_after_an_extension_restarts_the_low_timeout() {
    let mut pair = irn();
    pair.wire(|sent| match (sent.kind, FIRST.distance_to(sent.packet.psn)) {
        (TransmitKind::Request, 2) => Fate::Drop,
        (TransmitKind::Request, _) => Fate::Late(Duration::from_us(150)),
        _ => Fate::Deliver,
    });
    write(&mut pair, 1, 3);
    pair.run();
    assert_eq!(pair.resent_at(From::Left, FIRST), [(260, 2)]);
}

/// Counters of an observer: after one loss in a burst the packets after it count as early, and no packet that was
/// sent twice is timed.
#[test]
fn traffic_counters_are_per_end_and_retransmissions_are_not_timed() {
    let mut pair = Pair::new(&Setup { watched: true, ..Setup::new("irn", &[]) });
    lose_tail(&mut pair, 45);
    write(&mut pair, 1, 50);
    pair.run();
    let view = |side: &Side| side.engine.queue_pairs().next().expect("a queue pair exists");
    let (sender, receiver) = (view(&pair.left), view(&pair.right));
    assert_eq!((sender.info.stats.packets_sent, receiver.traffic.packets_received), (50, 50));
    let resent = sender.info.stats.packets_retransmitted;
    assert_eq!(
        receiver.traffic.packets_duplicate + receiver.traffic.packets_dropped,
        resent - 5,
        "five were lost, the rest was unnecessary"
    );
    assert!(sender.traffic.packets_received > 0 && sender.traffic.packets_out_of_order == 0, "{sender:?}");
    // The wire takes 5 us each way.
    assert_eq!((sender.round_trip, sender.in_flight), (Some(rnic_base::Duration::from_us(10)), 0));
}

/// Retransmissions are fetched first and leave 2 us after the NACK or the timeout that revealed the loss; new packets
/// do not wait for that fetch.
#[test]
fn i26_retransmissions_are_sent_after_their_fetch() {
    for (fetch, resent) in [("0", [(10, 5), (10, 8)]), ("2us", [(12, 5), (12, 8)])] {
        let mut pair = irn_with(&[("retransmit_fetch", fetch), ("cap_packets", "20")]);
        pair.wire(drop_requests(FIRST, &[(5, 0), (8, 0)]));
        write(&mut pair, 1, 40);
        pair.run();
        assert_eq!(pair.resent_at(From::Left, FIRST), resent);
        let new: Vec<_> = pair.trace_of(From::Left, FIRST).into_iter().filter(|(.., again)| !again).collect();
        assert_eq!(new[20], (10, 20, false), "the first five acknowledgements make room at once");
        all_succeed(&mut pair.left, [1]);
    }
    let mut pair = irn_with(&[("retransmit_fetch", "2us")]);
    pair.wire(drop_requests(FIRST, &[(0, 0)]));
    write(&mut pair, 1, 1);
    pair.run();
    assert_eq!(pair.resent_at(From::Left, FIRST), [(102, 0)]);
}

#[test]
fn i26_retransmitted_responses_are_sent_after_their_fetch() {
    let mut pair = irn_with(&[("retransmit_fetch", "2us")]);
    pair.wire(drop_data(From::Right, FIRST, &[(3, 0)]));
    read(&mut pair, 1, 10);
    pair.run();
    assert_eq!(pair.resent_at(From::Right, FIRST), [(17, 3)]);
    all_succeed(&mut pair.left, [1]);
}
