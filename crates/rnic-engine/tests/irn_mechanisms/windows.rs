//! Congestion windows on top of IRN's recovery (section 4.4.4), and the marks that receivers echo for them.

use super::*;

fn acks(pair: &Pair) -> Vec<(i64, bool)> {
    let acks = pair.log.iter().filter(|sent| sent.from == From::Right && sent.kind == TransmitKind::Ack);
    acks.map(|sent| (FIRST.distance_to(sent.packet.psn), sent.packet.flags.becn)).collect()
}

fn mark(sent: &Sent, indices: &[i64]) -> Fate {
    let index = FIRST.distance_to(sent.packet.psn);
    if sent.kind == TransmitKind::Request && indices.contains(&index) { Fate::Marked } else { Fate::Deliver }
}

/// Each acknowledgement echoes whether its own packet was marked; with a congestion control that does not use marks,
/// none does.
#[test]
fn dctcp_acknowledgements_echo_the_marks_of_their_packets() {
    for (control, echoes) in [("dctcp", true), ("dcqcn", false), ("aimd", false)] {
        let mut pair = irn_with(&[("control", control)]);
        pair.wire(|sent| mark(sent, &[3, 7]));
        write(&mut pair, 1, 10);
        pair.run();
        let expected: Vec<_> = (0..10).map(|index| (index, echoes && (index == 3 || index == 7))).collect();
        let acks: Vec<_> = acks(&pair).into_iter().filter(|(index, _)| *index >= 0).collect();
        let cnps = usize::from(control == "dcqcn");
        assert_eq!(acks.len() - cnps, 10, "{control}");
        if echoes {
            assert_eq!(acks, expected);
        } else {
            assert!(pair.log.iter().all(|sent| !sent.packet.flags.becn || sent.packet.headers == Headers::Cnp));
        }
        all_succeed(&mut pair.left, [1]);
    }
}

/// The NACK for an out-of-order packet echoes its mark too, and so do acknowledgements of responses.
#[test]
fn dctcp_nacks_and_read_acknowledgements_echo_marks() {
    let mut pair = irn_with(&[("control", "dctcp")]);
    pair.wire(|sent| {
        let lost = sent.kind == TransmitKind::Request && sent.packet.psn == FIRST.plus(2);
        if lost { Fate::Drop } else { mark(sent, &[5]) }
    });
    write(&mut pair, 1, 8);
    pair.run();
    let is_marked = |sent: &&Sent| sent.packet.flags.becn;
    let marked: Vec<_> = pair.log.iter().filter(is_marked).map(|sent| sent.packet.headers).collect();
    assert!(matches!(marked[..], [Headers::Ack { sack: Some(kept), .. }] if kept == FIRST.plus(5)), "{marked:?}");

    let mut pair = irn_with(&[("control", "dctcp")]);
    pair.wire(|sent| if sent.kind == TransmitKind::Response { Fate::Marked } else { Fate::Deliver });
    read(&mut pair, 1, 6);
    pair.run();
    let is_echo = |sent: &&Sent| matches!(sent.packet.headers, Headers::ReadAck { .. }) && sent.packet.flags.becn;
    assert_eq!(pair.log.iter().filter(is_echo).count(), 6);
}

/// Where a message draws one acknowledgement, that acknowledgement echoes the marks of all its packets.
#[test]
fn a_merged_acknowledgement_echoes_the_marks_of_all_its_packets() {
    let mut pair = Pair::new(&Setup::new("roce-gbn", &[("control", "dctcp")]));
    pair.wire(|sent| mark(sent, &[3]));
    write(&mut pair, 1, 10);
    pair.run();
    assert_eq!(acks(&pair), [(9, true)]);
    write(&mut pair, 2, 2);
    pair.run();
    assert_eq!(acks(&pair)[1..], [(11, false)], "echoed twice");
}

/// 100 packets in flight, one lost: from then on 50 may be in the network. A packet that is known to have arrived, or
/// to be lost and not yet retransmitted, does not count: so the repair leaves immediately, and no new packet before
/// the count has fallen.
#[test]
fn aimd_halves_the_window_after_a_loss_and_grows_by_one_packet_per_round_trip() {
    let mut pair = irn_with(&[("control", "aimd"), ("cap_packets", "100")]);
    pair.wire(drop_requests(FIRST, &[(10, 0)]));
    write(&mut pair, 1, 400);
    pair.run();
    assert_eq!(pair.resent(From::Left, FIRST), [10]);
    let sent_at = |from: u64, to: u64| {
        let new = pair.log.iter().filter(|sent| sent.from == From::Left && sent.kind == TransmitKind::Request);
        new.filter(|sent| sent.at >= us(from) && sent.at < us(to)).count()
    };
    assert_eq!(sent_at(0, 1), 100);
    assert_eq!(sent_at(10, 11), 10, "the first ten acknowledgements open the cap, then comes the NACK");
    assert!(pair.left.engine.stats().waits[WaitReason::Window as usize] > 0);
    // The wire takes any number of packets at the same time: each round trip carries one window, from 50 on.
    let rounds: Vec<_> = (3..6).map(|round| sent_at(round * 10, round * 10 + 10)).collect();
    assert!(rounds.iter().all(|packets| (48..=54).contains(packets)), "{rounds:?}");
    all_succeed(&mut pair.left, [1]);
}

/// A window smaller than the number of lost packets releases the repairs one by one, and always the oldest: no burst
/// of all lost packets, and no deadlock.
#[test]
fn retransmissions_are_limited_by_the_window_except_the_oldest() {
    let mut pair = irn_with(&[("control", "new-reno"), ("initial_window", "20"), ("recovery", "irn")]);
    let lost: Vec<_> = (0..19).map(|index| (index, 0)).collect();
    pair.wire(drop_requests(FIRST, &lost));
    write(&mut pair, 1, 60);
    pair.run();
    let repairs = pair.resent_at(From::Left, FIRST);
    assert_eq!(repairs.iter().map(|(_, index)| *index).collect::<Vec<_>>(), (0..19).collect::<Vec<_>>());
    let at_once = repairs.iter().filter(|(at, _)| *at == repairs[0].0).count();
    assert_eq!(at_once, 10, "not half of twenty packets");
    all_succeed(&mut pair.left, [1]);
}

/// Returns the smallest time between two of the last `packets` data packets, in nanoseconds.
fn last_gap_ns(pair: &Pair, packets: usize) -> u64 {
    let sent: Vec<_> = pair.log.iter().filter(|sent| sent.from == From::Left).map(|sent| sent.at).collect();
    let last = &sent[sent.len() - packets..];
    last.windows(2).map(|pair| pair[1].since(pair[0]).as_ns()).min().expect("two or more packets")
}

/// Round trips above T_high cut Timely's rate; packets are then spaced.
#[test]
fn timely_reduces_the_rate_when_round_trips_grow() {
    // 1102 bytes on the link at 100 Gbit/s are 88 ns.
    for (late, gaps) in [(0, 88..=89), (900, 120..=1_000)] {
        let options = [("control", "timely"), ("rto_low", "5ms"), ("rto_high", "5ms")];
        let mut pair = irn_with(&options);
        pair.wire(
            move |sent| {
                if sent.from == From::Left { Fate::Late(Duration::from_us(late)) } else { Fate::Deliver }
            },
        );
        write(&mut pair, 1, 400);
        pair.run();
        let gap = last_gap_ns(&pair, 40);
        assert!(gaps.contains(&gap), "{late} us more: {gap} ns");
        all_succeed(&mut pair.left, [1]);
    }
}

/// Where not every packet is acknowledged, the timed packet is one with the acknowledge request bit: otherwise the
/// wait for the next acknowledged packet would count as network delay.
#[test]
fn timely_round_trips_do_not_include_the_wait_for_an_acknowledgement() {
    let mut pair = Pair::new(&Setup::new("roce-gbn", &[("control", "timely"), ("rto", "0"), ("rate_min", "10Mbps")]));
    let slow = Duration::from_us(20);
    pair.wire(move |sent| if sent.from == From::Left { Fate::Late(slow) } else { Fate::Deliver });
    // Messages of three packets, one after another, each acknowledged at its end.
    for at in 0..60 {
        pair.run_until(us(at * 40));
        pair.now = us(at * 40);
        write(&mut pair, at, 3);
    }
    pair.run();
    let gap = last_gap_ns(&pair, 3);
    assert!(gap <= 89, "30 us is below T_low, and the rate still {gap} ns a packet");
}
