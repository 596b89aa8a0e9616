//! Who is told of what: notification of completions, solicited events, overrun, shared receive queues.

use super::*;

fn send_flagged(pair: &mut Pair, wr_id: u64, flags: SendFlags) {
    let sge = pair.left.sge(0, 10);
    let request = SendRequest { wr_id, op: SendOp::Send { immediate: None }, sges: &[sge], flags };
    pair.left.engine.post_send(pair.left.qpn, &request).expect("room");
    pair.run();
}

/// One request, one notice, at the next completion; completions that were there before raise none.
#[test]
fn a_notice_comes_once_for_each_request() {
    let mut pair = Pair::new(&setup("irn"));
    let (cq, notice) = (pair.left.cq, AsyncEvent::CqNotify(pair.left.cq));
    write(&mut pair, 0, 10);
    pair.run();
    assert_eq!(events(&mut pair.left), [], "nobody asked");
    pair.left.engine.objects_mut().request_notify(cq, false);
    assert_eq!(events(&mut pair.left), [], "what is there already is found by polling");
    (1..3).for_each(|wr_id| write(&mut pair, wr_id, 10));
    pair.run();
    assert_eq!(events(&mut pair.left), [notice]);
    pair.left.engine.objects_mut().request_notify(cq, false);
    pair.left.engine.objects_mut().request_notify(cq, false);
    write(&mut pair, 3, 10);
    pair.run();
    assert_eq!(events(&mut pair.left), [notice], "two requests before it came are one");
}

/// Solicited only: plain messages raise nothing, a solicited one does, and so does a failure.
#[test]
fn solicited_notices() {
    for transport in TRANSPORTS {
        let mut pair = Pair::new(&setup(transport));
        let (cq, notice) = (pair.right.cq, AsyncEvent::CqNotify(pair.right.cq));
        post_recvs(&mut pair.right, 100..106, 10);
        pair.right.engine.objects_mut().request_notify(cq, true);
        send_flagged(&mut pair, 0, SendFlags::SIGNALED);
        assert_eq!(events(&mut pair.right), [], "{transport}");
        send_flagged(&mut pair, 1, SendFlags::SIGNALED | SendFlags::SOLICITED);
        assert_eq!(events(&mut pair.right), [notice], "{transport}");
        let flags: Vec<_> = pair.right.completions().iter().map(|c| c.flags).collect();
        assert_eq!(flags, [WcFlags::empty(), WcFlags::SOLICITED]);
        // A request for any completion is not weakened by a later one for solicited ones; the other way round it is
        // widened.
        pair.right.engine.objects_mut().request_notify(cq, false);
        pair.right.engine.objects_mut().request_notify(cq, true);
        send_flagged(&mut pair, 2, SendFlags::empty());
        assert_eq!(events(&mut pair.right), [notice]);
        pair.right.engine.objects_mut().request_notify(cq, true);
        pair.right.engine.objects_mut().request_notify(cq, false);
        send_flagged(&mut pair, 3, SendFlags::empty());
        assert_eq!(events(&mut pair.right), [notice]);
        pair.right.engine.objects_mut().request_notify(cq, true);
        pair.right.engine.modify_to_error(pair.right.qpn).expect("always");
        assert_eq!(events(&mut pair.right), [notice], "{transport}: flushed receives are failures");
    }
}

/// The bit travels in the last packet of a Send or a Write with immediate, and nowhere else.
#[test]
fn the_solicited_bit_is_in_the_last_packet() {
    for transport in TRANSPORTS {
        let mut pair = Pair::new(&setup(transport));
        post_recvs(&mut pair.right, 100..102, 4_000);
        let (remote, sge) = (pair.right.remote(TARGET), pair.left.sge(0, 3 * MTU));
        let ops = [
            SendOp::Send { immediate: None },
            SendOp::Write { remote, immediate: None },
            SendOp::Write { remote, immediate: Some(1) },
        ];
        for op in ops {
            let request = SendRequest { wr_id: 0, op, sges: &[sge], flags: SendFlags::SOLICITED };
            pair.left.engine.post_send(pair.left.qpn, &request).expect("room");
        }
        pair.run();
        let bits: Vec<_> =
            pair.log.iter().filter(|sent| sent.from == From::Left).map(|sent| sent.packet.flags.solicited).collect();
        let (yes, no) = (true, false);
        assert_eq!(bits, [no, no, yes, no, no, no, no, no, yes], "{transport}");
    }
}

/// One completion more than fits: the queue is dead, and so is every queue pair that uses it; what was in it can
/// still be taken.
#[test]
fn an_overrun_queue_takes_its_queue_pairs_along() {
    for transport in TRANSPORTS {
        for (requests, dies) in [(4, false), (5, true), (9, true)] {
            let mut setup = setup(transport);
            setup.completions = 4;
            let mut pair = Pair::new(&setup);
            let (other, _) = pair.another(&setup);
            (0..requests).for_each(|wr_id| write(&mut pair, wr_id, 10));
            pair.run();
            assert_eq!(pair.left.engine.objects().cq_level(pair.left.cq), Some((4, dies)), "{transport}, {requests}");
            let seen = events(&mut pair.left);
            if !dies {
                assert_eq!((seen, pair.left.info().state), (vec![], QpState::ReadyToSend));
                continue;
            }
            assert_eq!(seen[0], AsyncEvent::CqOverrun(pair.left.cq), "{transport}");
            let fatal = [pair.left.qpn, other].map(AsyncEvent::QpFatal);
            assert!(fatal.iter().all(|event| seen.contains(event)) && seen.len() == 3, "{transport}: {seen:?}");
            assert_eq!(pair.left.info().state, QpState::Error);
            assert_eq!(pair.left.engine.query_qp(other).map(|info| info.state), Some(QpState::Error));
            assert_eq!(pair.left.statuses(), all(0..4, WcStatus::Success));
        }
    }
}

/// A responder's queue overruns: the requester learns of it by silence or refusal, never by a false success of what
/// comes later.
#[test]
fn an_overrun_at_the_responder_ends_the_connection() {
    for transport in TRANSPORTS {
        let mut setup = setup(transport);
        setup.completions = 4;
        let mut pair = Pair::new(&setup);
        post_recvs(&mut pair.right, 100..110, 10);
        (0..3).for_each(|wr_id| send(&mut pair, wr_id, 10));
        pair.run();
        assert_eq!(pair.left.statuses(), all(0..3, WcStatus::Success));
        (3..6).for_each(|wr_id| send(&mut pair, wr_id, 10));
        pair.run();
        assert_eq!(pair.right.engine.objects().cq_level(pair.right.cq), Some((4, true)), "{transport}");
        assert_eq!(pair.right.info().state, QpState::Error);
        let last = pair.left.statuses().last().copied().expect("a failure");
        assert!(matches!(last.1, WcStatus::RetryExceeded | WcStatus::WrFlushed), "{transport}: {last:?}");
    }
}

fn srq_pair(transport: &str, entries: u64) -> (Pair, SrqId, Setup) {
    let mut setup = setup(transport);
    (setup.srq, setup.rnr_retry) = (Some(64), Some(0));
    let mut pair = Pair::new(&setup);
    let srq = pair.right.srq.expect("made with one");
    for wr_id in 0..entries {
        let sge = pair.right.sge(TARGET + wr_id * 100, 100);
        pair.right.engine.objects_mut().post_srq_recv(srq, &RecvRequest { wr_id, sges: &[sge] }).expect("room");
    }
    (pair, srq, setup)
}

/// Two queue pairs take from one queue, in turn: each message gets the oldest receive there is, and its completion
/// names who took it.
#[test]
fn a_shared_receive_queue_serves_in_the_order_of_posting() {
    for transport in TRANSPORTS {
        let (mut pair, srq, setup) = srq_pair(transport, 6);
        let (other, other_right) = pair.another(&setup);
        for wr_id in 0..6 {
            let qpn = if wr_id % 2 == 0 { pair.left.qpn } else { other };
            let sge = pair.left.sge(wr_id * 100, 100);
            let op = SendOp::Send { immediate: None };
            let request = SendRequest { wr_id, op, sges: &[sge], flags: SendFlags::SIGNALED };
            pair.left.engine.post_send(qpn, &request).expect("room");
            pair.run();
        }
        let expected: Vec<_> =
            (0..6).map(|wr_id| (wr_id, if wr_id % 2 == 0 { pair.right.qpn } else { other_right })).collect();
        let received: Vec<_> = pair.right.completions().iter().map(|c| (c.wr_id, c.qpn)).collect();
        assert_eq!(received, expected, "{transport}");
        assert_eq!(pair.right.memory[500_000..500_600], pair.left.memory[..600]);
        assert_eq!(pair.right.engine.objects().srq_level(srq), Some(0));
        send(&mut pair, 6, 10);
        pair.run();
        let last = pair.left.statuses().last().copied();
        assert_eq!(last, Some((6, WcStatus::RnrRetryExceeded)), "{transport}: it is empty");
    }
}

/// The limit: one event when fewer than so many are left, armed again by setting it.
#[test]
fn the_limit_of_a_shared_receive_queue_speaks_once() {
    for transport in TRANSPORTS {
        let (mut pair, srq, _) = srq_pair(transport, 8);
        pair.right.engine.objects_mut().set_srq_limit(srq, 6).expect("it exists");
        let reached = AsyncEvent::SrqLimitReached(srq);
        let expected = [vec![], vec![], vec![reached], vec![], vec![]];
        for (wr_id, expected) in (0..).zip(expected) {
            send(&mut pair, wr_id, 10);
            pair.run();
            assert_eq!(events(&mut pair.right), expected, "{transport}: {} left", 7 - wr_id);
        }
        pair.right.engine.objects_mut().set_srq_limit(srq, 3).expect("it exists");
        send(&mut pair, 5, 10);
        pair.run();
        assert_eq!(events(&mut pair.right), [reached], "{transport}: 2 left");
        pair.right.engine.objects_mut().set_srq_limit(srq, 0).expect("it exists");
        send(&mut pair, 6, 10);
        pair.run();
        assert_eq!(events(&mut pair.right), []);
    }
}

/// What a queue pair has claimed it flushes; what it has not, stays for others.
#[test]
fn only_claimed_receives_are_flushed() {
    // The third of four Sends is lost (twice): the fourth, early, has claimed for both when the queue pair fails.
    let (mut pair, srq, setup) = srq_pair("irn", 8);
    pair.wire(drop_requests(setup.psn, &[(2, 0), (2, 1)]));
    (0..4).for_each(|wr_id| send(&mut pair, wr_id, 10));
    pair.run_until(us(30));
    pair.right.engine.modify_to_error(pair.right.qpn).expect("always");
    assert_eq!(pair.right.statuses(), fails_at(2, WcStatus::WrFlushed, 4));
    assert_eq!(pair.right.engine.objects().srq_level(srq), Some(4));
    // A multi-packet Send in RoCE has claimed one, and no more.
    let (mut pair, srq, setup) = srq_pair("roce-gbn", 0);
    for wr_id in 0..3 {
        let sge = pair.right.sge(TARGET, 9_000);
        pair.right.engine.objects_mut().post_srq_recv(srq, &RecvRequest { wr_id, sges: &[sge] }).expect("room");
    }
    pair.wire(drop_requests(setup.psn, &[(3, 0), (3, 1)]));
    send(&mut pair, 0, 5 * MTU);
    pair.run_until(us(12));
    pair.right.engine.modify_to_error(pair.right.qpn).expect("always");
    assert_eq!(pair.right.statuses(), [(0, WcStatus::WrFlushed)]);
    assert_eq!(pair.right.engine.objects().srq_level(srq), Some(2));
}
