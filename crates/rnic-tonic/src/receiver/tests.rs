//! Kinds of receivers, against sets of segments and by hand.

use std::collections::BTreeSet;

use rnic_base::RandomStreams;

use super::*;

fn receiver(kind: ReceiverKind, flows: u16) -> Receiver {
    let mut receiver = Receiver::new(ReceiverSizes { flows, window: 128, kind, cnp_interval: 313 }).unwrap();
    (0..flows).for_each(|flow| receiver.add_flow(flow, SegmentId::new(0xFF_FFFE)));
    receiver
}

/// The segment `offset` behind the first one: ids wrap at the third.
fn segment(offset: u32) -> SegmentId {
    SegmentId::new(0xFF_FFFE).plus(offset)
}

fn data(flow: FlowId, offset: u32) -> Arrival {
    Arrival { flow, segment: segment(offset), times_sent: 0, is_trimmed: false, is_marked: false }
}

/// Gives the segments of flow 0 to a receiver, one a cycle; returns the responses.
fn responses(kind: ReceiverKind, offsets: &[u32]) -> Vec<Packet> {
    let mut receiver = receiver(kind, 4);
    let mut given = Vec::new();
    for offset in offsets {
        given.extend(receiver.step(Some(&data(0, *offset))));
    }
    given.extend(receiver.step(None));
    given.into_iter().map(|(_, packet)| packet).collect()
}

fn cums(packets: &[Packet]) -> Vec<u32> {
    packets.iter().map(|packet| crate::shape::forward(segment(0), packet.cum)).collect()
}

#[test]
fn t25_every_packet_is_acknowledged_in_the_next_cycle_at_one_a_cycle() {
    for kind in [ReceiverKind::Selective, ReceiverKind::SelectiveNack, ReceiverKind::Trimmed] {
        let mut receiver = receiver(kind, 1024);
        let mut random = RandomStreams::new(25).stream("arrivals");
        // The naive model of each flow: the set of segments that have arrived.
        let mut arrived = vec![BTreeSet::new(); 1024];
        let expected = |set: &BTreeSet<u32>| (0..).find(|offset| !set.contains(offset)).unwrap();
        let mut last: Option<(FlowId, Packet)> = None;
        for cycle in 0..60_000 {
            let flow = random.below(1024) as u16;
            let set = &mut arrived[usize::from(flow)];
            let offset = expected(set) + random.below(4) as u32;
            let got = receiver.step(Some(&data(flow, offset)));
            assert_eq!(got, last, "{kind:?}, cycle {cycle}");
            let (is_early, is_new) = (offset != expected(set), set.insert(offset));
            let cum = segment(expected(set));
            let is_named = is_early && is_new;
            last = Some((
                flow,
                Packet {
                    ack: true,
                    nack: is_named && kind == ReceiverKind::SelectiveNack,
                    sacked: is_named,
                    sack: if is_named { segment(offset) } else { SegmentId::new(0) },
                    cum,
                    grant: None,
                    ..Packet::default()
                },
            ));
            if kind == ReceiverKind::Trimmed {
                // Every arrival of the flow grants one more.
                let granted = receiver.flows[usize::from(flow)].granted;
                last.as_mut().unwrap().1.grant = Some(granted);
                assert!(granted.value() >= 1);
            }
        }
    }
}

#[test]
fn t25_cumulative_acknowledgements_are_delayed_but_never_duplicates() {
    let delayed = ReceiverKind::Cumulative { delay: 100 };
    assert_eq!(cums(&responses(delayed, &[0, 1, 2, 3, 4])), [2, 4], "every second");
    assert_eq!(cums(&responses(delayed, &[0, 2, 3, 4])), [1, 1, 1], "early ones at once");
    assert_eq!(cums(&responses(delayed, &[1, 2, 0])), [0, 0, 3], "and the one that closes the gap");
    assert_eq!(cums(&responses(delayed, &[0, 0])), [1], "and repeats");
    assert_eq!(cums(&responses(ReceiverKind::Cumulative { delay: 0 }, &[0, 1, 2])), [1, 2, 3]);
    assert!(responses(delayed, &[0, 2, 3]).iter().all(|packet| packet.ack && !packet.sacked && !packet.nack));
}

#[test]
fn t25_a_delayed_acknowledgement_leaves_after_its_delay() {
    let mut receiver = receiver(ReceiverKind::Cumulative { delay: 10 }, 8);
    assert_eq!(receiver.step(Some(&data(3, 0))), None);
    let sent = (1..400_u64).find(|_| receiver.step(None).is_some()).unwrap();
    // Ten ticks of 16 cycles, one round of 8 flows and the output register.
    assert!((160..=160 + 16 + 8 + 1).contains(&sent), "after {sent} cycles");
    assert!((0..400).all(|_| receiver.step(None).is_none()), "once");
}

#[test]
fn t25_trimmed_segments_are_reported_and_grant_one_more() {
    let mut receiver = receiver(ReceiverKind::Trimmed, 1);
    let trimmed = Arrival { is_trimmed: true, times_sent: 2, ..data(0, 1) };
    receiver.step(Some(&data(0, 0)));
    let first = receiver.step(Some(&trimmed)).unwrap().1;
    assert_eq!((first.ack, first.grant), (true, Some(SegmentId::new(1))));
    let report = receiver.step(Some(&data(0, 1))).unwrap().1;
    let expected = Packet {
        trimmed: true,
        cum: segment(1),
        sack: segment(1),
        times_sent: 2,
        grant: Some(SegmentId::new(2)),
        ..Packet::default()
    };
    assert_eq!(report, expected);
    assert_eq!(receiver.step(None).unwrap().1.cum, segment(2), "the retransmission is not confused with it");
    let mut other = super::tests::receiver(ReceiverKind::Selective, 1);
    other.step(Some(&trimmed));
    assert_eq!((other.step(None), other.dropped()), (None, 1));
}

#[test]
fn t25_go_back_n_reports_a_gap_once() {
    let packets = responses(ReceiverKind::GoBackN, &[0, 2, 3, 4, 1, 2, 4, 5]);
    let kinds: Vec<_> = packets.iter().map(|packet| (packet.nack, packet.ack)).collect();
    assert_eq!(kinds, [(false, true), (true, false), (false, true), (false, true), (true, false)]);
    assert_eq!(cums(&packets), [1, 1, 2, 3, 3]);
}

#[test]
fn t25_marks_are_answered_once_in_an_interval() {
    let mut receiver = receiver(ReceiverKind::GoBackN, 2);
    let mut at = Vec::new();
    for cycle in 0..20_000_u32 {
        let arrival = (cycle % 4 == 0).then(|| Arrival { is_marked: true, ..data(1, cycle / 4) });
        let response = receiver.step(arrival.as_ref());
        at.extend(response.filter(|(_, packet)| packet.cnp).map(|_| cycle));
    }
    // 313 ticks of 16 cycles of 10 ns are 50 us.
    assert_eq!(at.len(), 4, "{at:?}");
    assert!(at.windows(2).all(|pair| (313 * 16 - 16..=313 * 16 + 16).contains(&(pair[1] - pair[0]))), "{at:?}");
    // The round forgets the notification, so that a mark after half the circle of times is answered too.
    for _ in 0..6_000 {
        receiver.step(None);
    }
    receiver.now += 1 << 27;
    receiver.step(Some(&Arrival { is_marked: true, ..data(1, 5_000) }));
    assert!(receiver.step(None).unwrap().1.cnp);
}

#[test]
fn t25_segments_beyond_the_window_are_dropped() {
    let packets = responses(ReceiverKind::SelectiveNack, &[127, 128, 0]);
    assert_eq!(cums(&packets), [0, 0, 1]);
    assert!(packets[0].sacked && packets[1].nack && !packets[1].sacked);
    let mut receiver = receiver(ReceiverKind::Selective, 1);
    for offset in (1..128).rev() {
        receiver.step(Some(&data(0, offset)));
    }
    receiver.step(Some(&data(0, 0)));
    assert_eq!(receiver.step(None).unwrap().1.cum, segment(128), "a run of 127 ends in one cycle");
    assert_eq!(receiver.bits(), 1 + 24 + 128 + 1 + 24 + 1 + 24 + 1 + 24);
    assert_eq!(receiver.context(0).unwrap().bits(), receiver.bits());
}
