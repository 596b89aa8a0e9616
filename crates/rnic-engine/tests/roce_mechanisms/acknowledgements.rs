//! When the responder acknowledges, and how the requester processes that.

use rnic_wire::Syndrome;

use super::*;

/// Returns the acknowledgements of the right side as (PSN offset, MSN).
fn acks(pair: &Pair) -> Vec<(i64, u32)> {
    let entry = |sent: &Sent| match sent.packet.headers {
        Headers::Ack { aeth, .. } if sent.from == From::Right && aeth.syndrome == Syndrome::ACK => {
            Some((FIRST.distance_to(sent.packet.psn), aeth.msn.value()))
        }
        _ => None,
    };
    pair.log.iter().filter_map(entry).collect()
}

/// One acknowledgement at the end of each message; in a long message, one every 64 packets.
#[test]
fn acknowledgements_are_sent_when_requested() {
    for (packets, expected) in [(1, vec![0]), (63, vec![62]), (64, vec![63]), (65, vec![63, 64])] {
        let mut pair = roce();
        write(&mut pair, 1, packets);
        pair.run();
        assert_eq!(acks(&pair).iter().map(|(psn, _)| *psn).collect::<Vec<_>>(), expected, "{packets} packets");
    }
    let mut pair = roce();
    write(&mut pair, 1, 200);
    pair.run();
    assert_eq!(acks(&pair), [(63, 0), (127, 0), (191, 0), (199, 1)]);
    let mut pair = roce_with(&[("ack_every_packets", "7")]);
    write(&mut pair, 1, 20);
    pair.run();
    assert_eq!(acks(&pair), [(6, 0), (13, 0), (19, 1)]);
}

/// Messages that arrive together are acknowledged together, with one acknowledgement.
#[test]
fn acknowledgements_are_coalesced() {
    let mut pair = roce();
    pair.batch = true;
    (0..20).for_each(|wr_id| write(&mut pair, wr_id, 1));
    pair.run();
    assert_eq!(acks(&pair), [(19, 20)]);
    all_succeed(&mut pair.left, 0..20);
    // Messages that arrive one by one get one acknowledgement each.
    let mut pair = roce();
    (0..20).for_each(|wr_id| write(&mut pair, wr_id, 1));
    pair.run();
    assert_eq!(acks(&pair).len(), 20);
}

/// Packets whose acknowledgement is lost are covered by the next one.
#[test]
fn a_later_acknowledgement_covers_a_lost_one() {
    let mut pair = roce();
    pair.wire(|sent| {
        let lost = sent.from == From::Right && FIRST.distance_to(sent.packet.psn) < 2;
        if lost { Fate::Drop } else { Fate::Deliver }
    });
    (0..3).for_each(|wr_id| write(&mut pair, wr_id, 1));
    pair.run();
    assert_eq!(pair.resent(From::Left, FIRST), []);
    all_succeed(&mut pair.left, 0..3);
}

/// All acknowledgements are lost once: after the timeout everything is repeated, and the duplicates are acknowledged
/// again, up to what is expected, without counting a message twice.
#[test]
fn duplicates_are_acknowledged_again() {
    let mut pair = roce();
    pair.wire(|sent| if sent.kind == TransmitKind::Ack && sent.at < us(320) { Fate::Drop } else { Fate::Deliver });
    (0..3).for_each(|wr_id| write(&mut pair, wr_id, 1));
    pair.run();
    assert_eq!(pair.resent_at(From::Left, FIRST), [(320, 0), (320, 1), (320, 2)]);
    assert_eq!(acks(&pair)[3..], [(2, 3), (2, 3), (2, 3)]);
    assert_eq!((pair.right.info().msn, pair.right.engine.stats().packets_duplicate), (3, 3));
    all_succeed(&mut pair.left, 0..3);
}

/// A duplicated Send or Write with immediate consumes no second receive.
#[test]
fn duplicates_consume_no_receive() {
    let mut pair = roce();
    pair.wire(|_| Fate::Twice);
    (0..4).for_each(|wr_id| pair.right.post_recv(10 + wr_id, &[pair.right.sge(TARGET, 3_000)]));
    let remote = pair.right.remote(TARGET);
    pair.left.post(0, SendOp::Send { immediate: None }, &[pair.left.sge(0, 3_000)]);
    pair.left.post(1, SendOp::Write { remote, immediate: Some(9) }, &[pair.left.sge(0, 3_000)]);
    pair.run();
    all_succeed(&mut pair.left, 0..2);
    all_succeed(&mut pair.right, 10..12);
}

/// Write, Read of five packets, Write, arriving together: the responses leave before the acknowledgement of the
/// second Write. The other order would tell the requester that they are lost.
#[test]
fn responses_are_sent_before_the_acknowledgement_of_later_requests() {
    for batch in [true, false] {
        let mut pair = roce();
        pair.batch = batch;
        write(&mut pair, 1, 1);
        read(&mut pair, 2, 5);
        write(&mut pair, 3, 1);
        pair.run();
        let from_right = pair.log.iter().filter(|sent| sent.from == From::Right);
        let order: Vec<_> = from_right.map(|sent| FIRST.distance_to(sent.packet.psn)).collect();
        let expected: &[i64] = if batch { &[1, 2, 3, 4, 5, 6] } else { &[0, 1, 2, 3, 4, 5, 6] };
        assert_eq!(order, expected);
        assert_eq!(pair.resent(From::Left, FIRST), [], "a packet is treated as lost");
        all_succeed(&mut pair.left, 1..4);
    }
}

/// A response acknowledges everything before it: the Write's own acknowledgement is lost, which does no harm.
#[test]
fn a_response_acknowledges_all_earlier_requests() {
    let mut pair = roce();
    pair.wire(|sent| if sent.kind == TransmitKind::Ack { Fate::Drop } else { Fate::Deliver });
    write(&mut pair, 1, 3);
    read(&mut pair, 2, 2);
    pair.run_until(us(15));
    all_succeed(&mut pair.left, 1..3);
    pair.run();
    assert_eq!(pair.resent(From::Left, FIRST), []);
}

/// Messages of zero bytes take a sequence number too, and complete in the order of posting.
#[test]
fn messages_of_zero_bytes_take_a_psn() {
    let mut pair = roce();
    let remote = pair.right.remote(TARGET);
    for wr_id in 0..3 {
        pair.left.post(wr_id, SendOp::Write { remote, immediate: None }, &[]);
    }
    pair.left.post(3, SendOp::Read { remote }, &[]);
    pair.run();
    assert_eq!(pair.data_of(From::Left, FIRST), [(0, false), (1, false), (2, false), (3, false)]);
    assert_eq!(pair.data_of(From::Right, FIRST), [(3, false)], "a read of zero bytes gets no empty response");
    assert_eq!(pair.right.info().msn, 4);
    all_succeed(&mut pair.left, 0..4);
}
