//! Ending a connection and setting it up again while packets are in flight.

use super::*;

/// Posts every kind of traffic, both ways, on the first connection.
fn busy(pair: &mut Pair) {
    post_recvs(&mut pair.right, 100..104, 3 * MTU);
    post_recvs(&mut pair.left, 100..104, 3 * MTU);
    for wr_id in 0..3 {
        write(pair, wr_id * 4, 5 * MTU);
        send(pair, wr_id * 4 + 1, 3 * MTU);
        read(pair, wr_id * 4 + 2, 5 * MTU);
        let (sge, remote) = (pair.left.sge(TARGET, 8), pair.right.remote(800));
        pair.left.post(wr_id * 4 + 3, SendOp::FetchAdd { remote, add: 1 }, &[sge]);
        let (sge, remote) = (pair.right.sge(0, 5 * MTU), pair.left.remote(TARGET));
        pair.right.post(wr_id, SendOp::Read { remote }, &[sge]);
    }
}

/// Moves the left queue pair to one of the states in which traffic can be in flight.
fn bring_to(pair: &mut Pair, state: QpState) {
    let (qpn, dest) = (pair.left.qpn, pair.right.qpn);
    let setup = setup("irn");
    let engine = &mut pair.left.engine;
    match state {
        QpState::Reset => engine.modify_to_reset(qpn).expect("legal in every state"),
        QpState::Init => {
            engine.modify_to_reset(qpn).expect("legal in every state");
            engine.modify_to_init(qpn).expect("from reset");
        }
        QpState::ReadyToReceive => {
            engine.modify_to_reset(qpn).expect("legal in every state");
            engine.modify_to_init(qpn).expect("from reset");
            engine.modify_to_rtr(qpn, &connection(&setup, dest)).expect("from init");
        }
        QpState::ReadyToSend => {}
        QpState::SendQueueDrained => engine.modify_to_sqd(qpn).expect("from ready to send"),
        QpState::Error => engine.modify_to_error(qpn).expect("legal in every state"),
        QpState::SendQueueError => unreachable!("reliable connections have no such state"),
    }
}

/// Checks that a second connection between the same engines is not affected.
fn healthy(pair: &mut Pair, setup: &Setup, what: &str) {
    pair.left.completions();
    pair.right.completions();
    let (left, right) = pair.another(setup);
    let sge = pair.left.sge(0, 3_000);
    pair.right
        .engine
        .post_recv(right, &RecvRequest { wr_id: 900, sges: &[pair.right.sge(TARGET, 3_000)] })
        .expect("the queue is not full");
    let request =
        SendRequest { wr_id: 901, op: SendOp::Send { immediate: None }, sges: &[sge], flags: SendFlags::SIGNALED };
    pair.left.engine.post_send(left, &request).expect("the queue is not full");
    pair.run();
    assert!(pair.left.statuses().contains(&(901, WcStatus::Success)), "{what}");
    assert!(pair.right.statuses().contains(&(900, WcStatus::Success)), "{what}");
    assert_eq!(pair.right.memory[500_000..503_000], pair.left.memory[..3_000], "{what}");
}

/// A queue pair is destroyed in every state and at every moment: no more completions of it are reported, nothing
/// fails, and other queue pairs work.
#[test]
fn a_queue_pair_can_be_destroyed_in_every_state_with_traffic_in_flight() {
    use QpState::*;
    for transport in TRANSPORTS {
        for state in [Reset, Init, ReadyToReceive, ReadyToSend, SendQueueDrained, Error] {
            for moment in [0, 2, 5, 7, 10, 13, 15, 18, 21] {
                let what = format!("{transport}: {state:?} at {moment} us");
                let setup = setup(transport);
                let mut pair = Pair::new(&setup);
                busy(&mut pair);
                pair.run_until(us(moment));
                bring_to(&mut pair, state);
                pair.left.completions();
                pair.left.engine.destroy_qp(pair.left.qpn).expect("it exists");
                let sent = pair.log.len();
                healthy(&mut pair, &setup, &what);
                assert!(pair.left.completions().iter().all(|c| c.wr_id >= 900), "{what}");
                let from_dead = pair.log[sent..]
                    .iter()
                    .filter(|sent| sent.from == From::Left && sent.packet.dest_qpn == pair.right.qpn);
                assert_eq!(from_dead.count(), 0, "{what}: packets are still sent");
            }
        }
    }
}

/// Acknowledgements that wait in the engine when their queue pair is reset, destroyed or connected again are
/// obsolete: they must not be sent, in particular not to another peer.
#[test]
fn no_packet_of_the_old_connection_is_sent_after_a_reset() {
    for transport in TRANSPORTS {
        for end in [QpState::Reset, QpState::ReadyToReceive] {
            let mut pair = Pair::new(&setup(transport));
            pair.batch = true;
            busy(&mut pair);
            pair.run_until(us(4));
            // Left's packets arrive at the right side, which does not transmit a response yet.
            pair.now = us(5);
            pair.take_in_due();
            std::mem::swap(&mut pair.left, &mut pair.right);
            bring_to(&mut pair, end);
            std::mem::swap(&mut pair.left, &mut pair.right);
            assert!(pair.right.engine.transmit(us(5)).is_none(), "{transport}: to {end:?}");
            // The same for a queue pair that is destroyed and whose number is assigned to another one.
            let mut pair = Pair::new(&setup(transport));
            busy(&mut pair);
            pair.run_until(us(4));
            pair.now = us(5);
            pair.take_in_due();
            let (pd, cq, number) = (pair.right.pd, pair.right.cq, pair.right.qpn);
            pair.right.engine.destroy_qp(number).expect("it exists");
            let attributes = QpAttributes { number: Some(number), ..default_attributes(&setup(transport), pd, cq) };
            pair.right.engine.create_qp(&attributes).expect("the number is free");
            assert!(pair.right.engine.transmit(us(5)).is_none(), "{transport}: an old packet is sent");
        }
    }
}

/// Both ends are reset with packets of every kind in flight and connected again, with other first PSNs: late packets
/// of the old connection are not accepted as new ones, and the new connection works.
#[test]
fn queue_pairs_work_after_reset_and_reconnect() {
    for transport in TRANSPORTS {
        for moment in [1, 5, 8, 12, 17] {
            let mut setup = setup(transport);
            let mut pair = Pair::new(&setup);
            busy(&mut pair);
            pair.run_until(us(moment));
            setup.psn = rnic_base::Psn::new(0x40_0000);
            let (left, right) = (pair.left.qpn, pair.right.qpn);
            pair.left.completions();
            pair.right.completions();
            pair.left.engine.modify_to_reset(left).expect("legal in every state");
            pair.right.engine.modify_to_reset(right).expect("legal in every state");
            assert_eq!((pair.left.completions(), pair.right.completions()), (vec![], vec![]), "a request completed");
            pair.left.connect_qp(left, &setup, right);
            pair.right.connect_qp(right, &setup, left);
            post_recvs(&mut pair.right, 100..103, 3_000);
            (0..3).for_each(|wr_id| send(&mut pair, wr_id, 3_000));
            read(&mut pair, 3, 5_000);
            pair.run();
            let what = format!("{transport}, reset at {moment} us");
            assert_eq!(pair.left.statuses(), all(0..4, WcStatus::Success), "{what}");
            assert_eq!(pair.right.statuses(), all(100..103, WcStatus::Success), "{what}");
            assert_eq!((pair.right.info().msn, pair.left.info().stats.timeouts), (4, 0), "{what}");
        }
    }
}

/// A queue pair that failed is reset and works again.
#[test]
fn a_failed_queue_pair_works_after_a_reset() {
    for transport in TRANSPORTS {
        let setup = setup(transport);
        let mut pair = Pair::new(&setup);
        for round in 0..3 {
            let bad = RemoteMemory { addr: 0, rkey: 0 };
            write(&mut pair, 0, 10);
            pair.left.post(1, SendOp::Write { remote: bad, immediate: None }, &[pair.left.sge(0, 10)]);
            pair.run();
            let expected = fails_at(1, WcStatus::RemoteAccess, 2);
            assert_eq!(pair.left.statuses(), expected, "{transport}, round {round}");
            let (left, right) = (pair.left.qpn, pair.right.qpn);
            pair.left.engine.modify_to_reset(left).expect("legal in every state");
            pair.right.engine.modify_to_reset(right).expect("legal in every state");
            pair.left.connect_qp(left, &setup, right);
            pair.right.connect_qp(right, &setup, left);
        }
    }
}

/// A thousand resets of a busy queue pair leave no extra entries: it has one turn in the scheduling ring, like every
/// other queue pair.
#[test]
fn resets_add_no_entries_to_the_scheduling_ring() {
    for transport in TRANSPORTS {
        let setup = setup(transport);
        let mut pair = Pair::new(&setup);
        let (other, _) = pair.another(&setup);
        let (left, right) = (pair.left.qpn, pair.right.qpn);
        for _ in 0..1_000 {
            write(&mut pair, 0, 100 * MTU);
            pair.left.engine.modify_to_reset(left).expect("legal in every state");
            pair.left.connect_qp(left, &setup, right);
        }
        for qpn in [left, other] {
            let (sge, remote) = (pair.left.sge(0, 100 * MTU), pair.right.remote(TARGET));
            let op = SendOp::Write { remote, immediate: None };
            let request = SendRequest { wr_id: 1, op, sges: &[sge], flags: SendFlags::SIGNALED };
            pair.left.engine.post_send(qpn, &request).expect("the queue is not full");
        }
        let mut from = Vec::new();
        while let Some(transmit) = pair.left.engine.transmit(Time::ZERO).and_then(Departure::roce) {
            from.push(transmit.from);
        }
        let turns = from[..100].iter().filter(|qpn| **qpn == left).count();
        assert!((49..=51).contains(&turns), "{transport}: {turns} of the first 100 packets");
    }
}

/// A read request of an earlier connection arrives after the queue pair was reset and connected again, with PSNs far
/// from the old ones: it is not treated as a duplicate, and its contents are not evaluated.
#[test]
fn a_late_packet_of_an_earlier_connection_is_no_duplicate() {
    for transport in TRANSPORTS {
        let mut setup = setup(transport);
        let mut pair = Pair::new(&setup);
        pair.wire(|sent| match sent.packet.headers {
            rnic_wire::Headers::ReadRequest { .. } => Fate::Late(Duration::from_us(50)),
            _ => Fate::Deliver,
        });
        let sge = pair.left.sge(TARGET, 10);
        let remote = pair.right.remote(0);
        pair.left.post(0, SendOp::Read { remote: RemoteMemory { rkey: remote.rkey ^ 0x100, ..remote } }, &[sge]);
        pair.run_until(us(10));
        let (left, right) = (pair.left.qpn, pair.right.qpn);
        setup.psn = setup.psn.plus(1 << 22);
        for (side, own, other) in [(&mut pair.left, left, right), (&mut pair.right, right, left)] {
            side.engine.modify_to_reset(own).expect("legal in every state");
            side.connect_qp(own, &setup, other);
        }
        pair.run_until(us(100));
        assert_eq!(pair.right.info().state, QpState::ReadyToSend, "{transport}");
        write(&mut pair, 1, 10);
        pair.run();
        assert_eq!(pair.left.statuses(), [(1, WcStatus::Success)], "{transport}");
    }
}

#[test]
fn a_repeated_last_acknowledgement_replaces_a_lost_one() {
    for transport in TRANSPORTS {
        let mut pair = Pair::new(&setup(transport));
        post_recvs(&mut pair.right, 100..101, MTU);
        pair.wire(|sent| if sent.from == From::Right && sent.at < us(60) { Fate::Drop } else { Fate::Deliver });
        assert!(!pair.right.engine.repeat_acks(pair.right.qpn), "{transport}: repeats without a packet");
        send(&mut pair, 7, MTU);
        pair.run_until(us(60));
        assert_eq!(pair.left.statuses(), [], "{transport}");
        assert!(pair.right.engine.repeat_acks(pair.right.qpn), "{transport}");
        pair.run_until(us(70));
        assert_eq!(pair.left.statuses(), [(7, WcStatus::Success)], "{transport}");
        pair.right.engine.modify_to_error(pair.right.qpn).expect("legal in every state");
        assert!(!pair.right.engine.repeat_acks(pair.right.qpn), "{transport}: repeats after a failure");
    }
}

/// A program closes its queue pair as soon as it has failed. If the network has lost the refusal, the peer would only
/// learn that the connection has ended, so the refusal is repeated.
#[test]
fn a_repeated_refusal_replaces_a_lost_one() {
    for transport in TRANSPORTS {
        let mut pair = Pair::new(&setup(transport));
        pair.wire(|sent| if sent.from == From::Right && sent.at < us(60) { Fate::Drop } else { Fate::Deliver });
        let (sge, remote) = (pair.left.sge(0, MTU), RemoteMemory { rkey: 0x1357, ..pair.right.remote(0) });
        pair.left.post(7, SendOp::Write { remote, immediate: None }, &[sge]);
        pair.run_until(us(60));
        assert_eq!(pair.left.statuses(), [], "{transport}");
        assert!(pair.right.engine.repeat_acks(pair.right.qpn), "{transport}");
        pair.run_until(us(70));
        assert_eq!(pair.left.statuses(), [(7, WcStatus::RemoteAccess)], "{transport}");
        assert!(!pair.left.engine.repeat_acks(pair.left.qpn), "{transport}: the refused requester repeats a refusal");
    }
}

#[test]
fn the_last_acknowledgement_of_responses_is_repeated() {
    let mut pair = Pair::new(&setup("irn"));
    pair.wire(|sent| match sent.packet.headers {
        rnic_wire::Headers::ReadAck { .. } if sent.at < us(60) => Fate::Drop,
        _ => Fate::Deliver,
    });
    read(&mut pair, 7, MTU);
    pair.run_until(us(60));
    assert_eq!(pair.left.statuses(), [(7, WcStatus::Success)]);
    assert!(pair.left.engine.repeat_acks(pair.left.qpn));
    pair.run_until(us(70));
    pair.left.engine.destroy_qp(pair.left.qpn).expect("it exists");
    let before = pair.log.len();
    pair.run_until(us(50_000));
    assert_eq!(pair.log.len(), before, "a response is retransmitted to a destroyed queue pair");
}
