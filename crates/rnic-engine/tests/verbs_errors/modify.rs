//! State changes: every pair of states through the calls that programs make, and the bounds of attributes.

use rnic_wire::Qpn;

use super::*;

const STATES: [QpState; 6] = [
    QpState::Reset,
    QpState::Init,
    QpState::ReadyToReceive,
    QpState::ReadyToSend,
    QpState::SendQueueDrained,
    QpState::Error,
];

fn modify(pair: &mut Pair, setup: &Setup, to: QpState) -> Result<(), ModifyError> {
    let (qpn, dest) = (pair.left.qpn, pair.right.qpn);
    let engine = &mut pair.left.engine;
    match to {
        QpState::Reset => engine.modify_to_reset(qpn),
        QpState::Init => engine.modify_to_init(qpn),
        QpState::ReadyToReceive => engine.modify_to_rtr(qpn, &connection(setup, dest)),
        QpState::ReadyToSend => engine.modify_to_rts(Time::ZERO, qpn, &timing(setup)),
        QpState::SendQueueDrained => engine.modify_to_sqd(qpn),
        QpState::Error => engine.modify_to_error(qpn),
        QpState::SendQueueError => unreachable!("reliable connections have no such state"),
    }
}

/// Returns a pair whose left side is in `state`.
fn in_state(setup: &Setup, state: QpState) -> Pair {
    let mut pair = Pair::new(setup);
    let path: &[QpState] = match state {
        QpState::Reset => &[QpState::Reset],
        QpState::Init => &[QpState::Reset, QpState::Init],
        QpState::ReadyToReceive => &[QpState::Reset, QpState::Init, QpState::ReadyToReceive],
        QpState::ReadyToSend => &[],
        other => &[other],
    };
    for step in path {
        modify(&mut pair, setup, *step).expect("the transition is legal");
    }
    assert_eq!(pair.left.info().state, state);
    pair
}

/// Checks the table of `ibv_modify_qp` for reliable connections through its effects.
#[test]
fn every_state_transition_is_permitted_or_refused_as_verbs_require() {
    use QpState::*;
    let legal = [
        (Reset, Init),
        (Init, Init),
        (Init, ReadyToReceive),
        (ReadyToReceive, ReadyToSend),
        (ReadyToSend, ReadyToSend),
        (ReadyToSend, SendQueueDrained),
        (SendQueueDrained, ReadyToSend),
        (SendQueueDrained, SendQueueDrained),
    ];
    for transport in TRANSPORTS {
        let setup = setup(transport);
        for (from, to) in STATES.iter().flat_map(|from| STATES.map(|to| (*from, to))) {
            let mut pair = in_state(&setup, from);
            let outcome = modify(&mut pair, &setup, to);
            if matches!(to, Reset | Error) || legal.contains(&(from, to)) {
                assert_eq!((outcome, pair.left.info().state), (Ok(()), to), "{from:?} to {to:?}");
            } else {
                assert_eq!(outcome, Err(ModifyError::Transition { from, to }));
                assert_eq!(pair.left.info().state, from, "a refused change has changed the state");
            }
        }
    }
}

#[test]
fn attributes_have_bounds() {
    let setup = setup("irn");
    let with_mtu = |mtu| {
        let mut pair = in_state(&setup, QpState::Init);
        let (qpn, dest) = (pair.left.qpn, pair.right.qpn);
        let connection = QpConnection { mtu, ..connection(&setup, dest) };
        pair.left.engine.modify_to_rtr(qpn, &connection)
    };
    for (mtu, legal) in
        [(0, false), (255, false), (256, true), (258, false), (1_408, true), (8_192, true), (8_196, false)]
    {
        assert_eq!(with_mtu(mtu).is_ok(), legal, "MTU {mtu}: {:?}", with_mtu(mtu));
    }
    for (reads, legal) in [(0, true), (1, true), (128, true), (129, false), (u32::MAX, false)] {
        let mut pair = in_state(&setup, QpState::Init);
        let (qpn, dest) = (pair.left.qpn, pair.right.qpn);
        let connection = QpConnection { max_dest_rd_atomic: reads, ..connection(&setup, dest) };
        assert_eq!(pair.left.engine.modify_to_rtr(qpn, &connection).is_ok(), legal, "{reads} reads served");
        let mut pair = in_state(&setup, QpState::ReadyToReceive);
        let timing = QpTiming { max_rd_atomic: reads, ..timing(&setup) };
        assert_eq!(pair.left.engine.modify_to_rts(Time::ZERO, qpn, &timing).is_ok(), legal, "{reads} reads asked");
    }
}

/// The attributes of `ReadyToSend` may be changed in that state: the new retry count applies from then on, and
/// requests in flight are not disturbed.
#[test]
fn retry_counts_may_change_while_ready_to_send() {
    for transport in TRANSPORTS {
        let mut setup = setup(transport);
        let mut pair = Pair::new(&setup);
        write(&mut pair, 0, 5_000);
        pair.run_until(us(3));
        setup.retry_count = 0;
        let now = pair.now;
        pair.left.engine.modify_to_rts(now, pair.left.qpn, &timing(&setup)).expect("legal");
        pair.run();
        assert_eq!(pair.left.statuses(), [(0, WcStatus::Success)], "{transport}");
        pair.wire(|_| Fate::Drop);
        write(&mut pair, 1, 10);
        pair.run();
        assert_eq!(pair.left.statuses(), [(1, WcStatus::RetryExceeded)], "{transport}");
        assert_eq!(pair.left.info().stats.packets_retransmitted, 0);
    }
}

/// Checks that a change of an unknown queue pair fails.
#[test]
fn changing_an_unknown_queue_pair_fails() {
    let setup = setup("irn");
    for to in STATES {
        let mut pair = Pair::new(&setup);
        pair.left.engine.destroy_qp(pair.left.qpn).expect("it exists");
        assert_eq!(modify(&mut pair, &setup, to), Err(ModifyError::UnknownQp));
    }
}

/// Queue sizes have bounds, numbers are assigned once, and objects in use cannot be destroyed.
#[test]
fn sizes_are_bounded_and_objects_in_use_cannot_be_destroyed() {
    let setup = setup("irn");
    let mut pair = Pair::new(&setup);
    let (cq, pd, qpn) = (pair.left.cq, pair.left.pd, pair.left.qpn);
    let engine = &mut pair.left.engine;
    let attributes = default_attributes(&setup, pd, cq);
    let (most, most_sge) = (rnic_base::limits::WORK_REQUESTS_MAX, rnic_base::limits::SGE_MAX as u32);
    for (attributes, legal) in [
        (QpAttributes { max_send_wr: most, max_recv_wr: most, ..attributes.clone() }, true),
        (QpAttributes { max_send_wr: most + 1, ..attributes.clone() }, false),
        (QpAttributes { max_recv_wr: most + 1, ..attributes.clone() }, false),
        (QpAttributes { max_send_sge: most_sge, max_recv_sge: most_sge, ..attributes.clone() }, true),
        (QpAttributes { max_send_sge: most_sge + 1, ..attributes.clone() }, false),
        (QpAttributes { max_recv_sge: most_sge + 1, ..attributes.clone() }, false),
        (QpAttributes { number: Some(qpn), ..attributes.clone() }, false),
        (QpAttributes { number: Some(rnic_wire::Qpn::GSI), ..attributes.clone() }, false),
        (QpAttributes { number: Some(rnic_wire::Qpn::MAX), ..attributes }, true),
    ] {
        assert_eq!(engine.create_qp(&attributes).is_ok(), legal, "{attributes:?}");
    }
    assert_eq!(engine.objects_mut().destroy_cq(cq), Err(ResourceError::Busy("completion queue")));
    assert_eq!(engine.destroy_pd(pd), Err(ResourceError::Busy("protection domain")));
    assert!(engine.objects_mut().create_cq(0).is_err());
    assert!(engine.objects_mut().create_cq(rnic_base::limits::COMPLETIONS_MAX + 1).is_err());
    let (srq, other) = (
        engine.objects_mut().create_srq(pd, 1, 1).expect("legal"),
        engine.objects_mut().create_pd().expect("a protection domain"),
    );
    let with_srq = |pd| QpAttributes { srq: Some(srq), ..default_attributes(&setup, pd, cq) };
    assert!(engine.create_qp(&with_srq(other)).is_err(), "an SRQ of another domain is accepted");
    let user = engine.create_qp(&with_srq(pd)).expect("the SRQ is of the same domain");
    assert_eq!(engine.objects_mut().destroy_srq(srq), Err(ResourceError::Busy("shared receive queue")));
    engine.destroy_qp(user).expect("it exists");
    assert_eq!(engine.objects_mut().destroy_srq(srq), Ok(()));
    assert!(engine.objects_mut().destroy_srq(srq).is_err());
    assert_eq!(engine.destroy_pd(other), Ok(()));
}

/// The slot of a destroyed object is used again, and the number of objects is bounded.
#[test]
fn slots_of_domains_and_queues_are_reused_and_bounded() {
    let mut pair = Pair::new(&setup("irn"));
    let engine = &mut pair.left.engine;
    let pd = engine.objects_mut().create_pd().expect("the limit is not reached");
    let cq = engine.objects_mut().create_cq(1).expect("the limit is not reached");
    let srq = engine.objects_mut().create_srq(pd, 1, 1).expect("the limit is not reached");
    engine.objects_mut().destroy_cq(cq).expect("unused");
    engine.objects_mut().destroy_srq(srq).expect("unused");
    engine.destroy_pd(pd).expect("unused");
    for _ in 0..200_000 {
        assert_eq!(engine.objects_mut().create_pd(), Ok(pd));
        assert_eq!(engine.objects_mut().create_srq(pd, 1, 1), Ok(srq));
        engine.objects_mut().destroy_srq(srq).expect("unused");
        assert_eq!(engine.destroy_pd(pd), Ok(()));
        assert_eq!(engine.objects_mut().create_cq(1), Ok(cq));
        assert_eq!(engine.objects_mut().destroy_cq(cq), Ok(()));
    }
    let limit = rnic_base::limits::QUEUES_MAX;
    // One of them is the pair's own. All three tables use the same function to fill slots.
    (1..limit).for_each(|_| assert!(engine.objects_mut().create_pd().is_ok(), "refused below the limit"));
    let exhausted = ResourceError::Exhausted { what: "protection domains", limit: u64::from(limit) };
    assert_eq!(engine.objects_mut().create_pd(), Err(exhausted));
}

/// Checks that an event for a reached limit is not reported for a queue that is created afterwards in the same slot.
#[test]
fn events_of_a_shared_receive_queue_are_removed_with_it() {
    for ends in [false, true] {
        let mut pair = Pair::new(&Setup { srq: Some(4), ..setup("irn") });
        let (srq, pd, qpn) = (pair.right.srq.expect("the setup has an SRQ"), pair.right.pd, pair.right.qpn);
        let sges = [pair.right.sge(0, 100)];
        pair.right.engine.objects_mut().post_srq_recv(srq, &RecvRequest { wr_id: 1, sges: &sges }).expect("not full");
        pair.right.engine.objects_mut().set_srq_limit(srq, 1).expect("the limit is below the capacity");
        send(&mut pair, 1, 10);
        pair.run();
        let engine = &mut pair.right.engine;
        if ends {
            engine.destroy_qp(qpn).expect("it exists");
            engine.objects_mut().destroy_srq(srq).expect("it is unused");
            assert_eq!(engine.objects_mut().create_srq(pd, 4, 1), Ok(srq), "the slot is not reused");
        }
        let limits = std::iter::from_fn(|| engine.objects_mut().poll_event())
            .filter(|event| *event == AsyncEvent::SrqLimitReached(srq));
        assert_eq!(limits.count(), usize::from(!ends));
    }
}

#[test]
fn error_texts_name_the_value_and_its_range() {
    let mut pair = Pair::new(&setup("irn"));
    let (qpn, dest) = (pair.left.qpn, pair.right.qpn);
    let engine = &mut pair.left.engine;
    engine.modify_to_reset(qpn).expect("legal in every state");
    engine.modify_to_init(qpn).expect("from reset");
    let pd = pair.left.pd;
    let odd = QpConnection { mtu: 1_001, ..connection(&setup("irn"), dest) };
    let said = engine.modify_to_rtr(qpn, &odd).expect_err("the MTU is invalid").to_string();
    assert_eq!(said, "invalid value 1001 for the path MTU: the allowed range is 256 to 8192 in multiples of 4");
    let said = engine.objects_mut().create_srq(pd, 1, 17).expect_err("too many").to_string();
    assert_eq!(said, "invalid value 17 for the number of scatter/gather entries: the allowed range is 0 to 16");
    let said = engine.objects_mut().create_cq(0).expect_err("too few").to_string();
    assert_eq!(said, "invalid value 0 for the number of completion queue entries: the allowed range is 1 to 4194304");
    let srq = engine.objects_mut().create_srq(pd, 1, 1).expect("legal");
    engine.objects_mut().destroy_srq(srq).expect("unused");
    let request = RecvRequest { wr_id: 1, sges: &[] };
    let said = engine.objects_mut().post_srq_recv(srq, &request).expect_err("the SRQ is destroyed").to_string();
    assert_eq!(said, "the requested shared receive queue does not exist");
}

/// The two ends may negotiate the transport after their queue pairs were created and receives were posted.
#[test]
fn the_transport_may_be_changed_before_the_queue_pair_is_connected() {
    for srq in [None, Some(16)] {
        let setup = Setup { srq, ..Setup::new("irn", &[]) };
        let mut pair = Pair::new(&setup);
        let plain = Setup { srq, ..Setup::new("roce-gbn", &[]) };
        let side = &mut pair.left;
        let attributes = QpAttributes { srq: side.srq, ..default_attributes(&setup, side.pd, side.cq) };
        let qpn = side.engine.create_qp(&attributes).expect("legal attributes");
        side.engine.modify_to_init(qpn).expect("from reset");
        if srq.is_none() {
            side.engine.post_recv(qpn, &RecvRequest { wr_id: 1, sges: &[side.sge(0, 64)] }).expect("not full");
        }
        side.engine.set_transport(qpn, &plain.transport).expect("there is no connection yet");
        side.connect_qp(qpn, &plain, Qpn::new(9));
        let late = side.engine.set_transport(qpn, &setup.transport);
        assert!(matches!(late, Err(ModifyError::Transition { .. })), "{late:?}");

        let op = SendOp::Write { remote: side.remote(0), immediate: None };
        let request = SendRequest { wr_id: 2, op, sges: &[side.sge(0, 64)], flags: SendFlags::SIGNALED };
        side.engine.post_send(qpn, &request).expect("the send queue is not full");
        let format = side.engine.transmit(Time::ZERO).and_then(Departure::roce).expect("a Write is sent").format;
        assert_eq!(format, plain.transport.format(), "the packet has the headers of the old transport");
    }
}

#[test]
fn the_transport_of_falcon_and_unreliable_queue_pairs_cannot_be_changed() {
    let falcon = Setup::new("falcon", &[]);
    let irn = Setup::new("irn", &[]);
    for setup in [&falcon, &Setup { service: Service::UnreliableConnection, ..irn.clone() }] {
        let mut pair = Pair::new(&irn);
        let side = &mut pair.left;
        let attributes = default_attributes(setup, side.pd, side.cq);
        let qpn = side.engine.create_qp(&attributes).expect("legal attributes");
        assert!(matches!(side.engine.set_transport(qpn, &irn.transport), Err(ModifyError::Service(_))));
    }
    let mut pair = Pair::new(&irn);
    let fresh = default_attributes(&irn, pair.left.pd, pair.left.cq);
    let qpn = pair.left.engine.create_qp(&fresh).expect("legal attributes");
    assert!(matches!(pair.left.engine.set_transport(qpn, &falcon.transport), Err(ModifyError::Service(_))));
    assert_eq!(pair.left.engine.set_transport(Qpn::new(3), &irn.transport), Err(ModifyError::UnknownQp));
}
