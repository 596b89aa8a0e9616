//! Notification of completions, solicited events, overrun, shared receive queues.

use super::*;

fn send_flagged(pair: &mut Pair, wr_id: u64, flags: SendFlags) {
    let sge = pair.left.sge(0, 10);
    let request = SendRequest { wr_id, op: SendOp::Send { immediate: None }, sges: &[sge], flags };
    pair.left.engine.post_send(pair.left.qpn, &request).expect("the queue is not full");
    pair.run();
}

/// Each notification request raises one event, at the next completion; earlier completions raise none.
#[test]
fn each_notification_request_raises_one_event() {
    let mut pair = Pair::new(&setup("irn"));
    let (cq, notice) = (pair.left.cq, AsyncEvent::CqNotify(pair.left.cq));
    write(&mut pair, 0, 10);
    pair.run();
    assert_eq!(events(&mut pair.left), [], "an event is raised without a request");
    pair.left.engine.objects_mut().request_notify(cq, false);
    assert_eq!(events(&mut pair.left), [], "an earlier completion raises an event");
    (1..3).for_each(|wr_id| write(&mut pair, wr_id, 10));
    pair.run();
    assert_eq!(events(&mut pair.left), [notice]);
    pair.left.engine.objects_mut().request_notify(cq, false);
    pair.left.engine.objects_mut().request_notify(cq, false);
    write(&mut pair, 3, 10);
    pair.run();
    assert_eq!(events(&mut pair.left), [notice], "not one event for two requests");
}

/// With solicited events only, plain messages raise no event; a solicited one does, and so does a failure.
#[test]
fn solicited_only_requests_raise_events_for_solicited_completions_and_failures() {
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
        // A request for any completion is not narrowed by a later one for solicited completions; conversely, the
        // later request widens it.
        pair.right.engine.objects_mut().request_notify(cq, false);
        pair.right.engine.objects_mut().request_notify(cq, true);
        send_flagged(&mut pair, 2, SendFlags::empty());
        assert_eq!(events(&mut pair.right), [notice]);
        pair.right.engine.objects_mut().request_notify(cq, true);
        pair.right.engine.objects_mut().request_notify(cq, false);
        send_flagged(&mut pair, 3, SendFlags::empty());
        assert_eq!(events(&mut pair.right), [notice]);
        pair.right.engine.objects_mut().request_notify(cq, true);
        pair.right.engine.modify_to_error(pair.right.qpn).expect("legal in every state");
        assert_eq!(events(&mut pair.right), [notice], "{transport}: flushed receives are failures");
    }
}

/// The solicited bit is set in the last packet of a Send or a Write with immediate, and in no other packet.
#[test]
fn the_solicited_bit_is_set_in_the_last_packet_only() {
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
            pair.left.engine.post_send(pair.left.qpn, &request).expect("the queue is not full");
        }
        pair.run();
        let bits: Vec<_> =
            pair.log.iter().filter(|sent| sent.from == From::Left).map(|sent| sent.packet.flags.solicited).collect();
        let (yes, no) = (true, false);
        assert_eq!(bits, [no, no, yes, no, no, no, no, no, yes], "{transport}");
    }
}

/// With one completion more than fits, the queue fails, and so does every queue pair that uses it; the completions
/// that are in it can still be polled.
#[test]
fn a_completion_queue_overrun_fails_its_queue_pairs() {
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

/// A responder's completion queue overruns: the requester learns of it by a timeout or a refusal, never by a false
/// success of later requests.
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
        let last = pair.left.statuses().last().copied().expect("a completion with an error");
        assert!(matches!(last.1, WcStatus::RetryExceeded | WcStatus::WrFlushed), "{transport}: {last:?}");
    }
}

fn srq_pair(transport: &str, entries: u64) -> (Pair, SrqId, Setup) {
    let mut setup = setup(transport);
    (setup.srq, setup.rnr_retry) = (Some(64), Some(0));
    let mut pair = Pair::new(&setup);
    let srq = pair.right.srq.expect("the setup has an SRQ");
    for wr_id in 0..entries {
        let sge = pair.right.sge(TARGET + wr_id * 100, 100);
        pair.right.engine.objects_mut().post_srq_recv(srq, &RecvRequest { wr_id, sges: &[sge] }).expect("not full");
    }
    (pair, srq, setup)
}

/// Two queue pairs take receives alternately from one queue: each message gets the oldest receive, and its completion
/// names the queue pair that took it.
#[test]
fn receives_of_a_shared_receive_queue_are_used_in_posting_order() {
    for transport in TRANSPORTS {
        let (mut pair, srq, setup) = srq_pair(transport, 6);
        let (other, other_right) = pair.another(&setup);
        for wr_id in 0..6 {
            let qpn = if wr_id % 2 == 0 { pair.left.qpn } else { other };
            let sge = pair.left.sge(wr_id * 100, 100);
            let op = SendOp::Send { immediate: None };
            let request = SendRequest { wr_id, op, sges: &[sge], flags: SendFlags::SIGNALED };
            pair.left.engine.post_send(qpn, &request).expect("the queue is not full");
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

/// The limit raises one event when fewer receives than that are left, and is armed again by setting it.
#[test]
fn the_limit_of_a_shared_receive_queue_raises_one_event() {
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

/// A queue pair flushes the receives that it has taken; the others stay available for other queue pairs.
#[test]
fn only_claimed_receives_are_flushed() {
    // The third of four Sends is lost (twice): the fourth, which arrives early, has taken receives for both when the
    // queue pair fails.
    let (mut pair, srq, setup) = srq_pair("irn", 8);
    pair.wire(drop_requests(setup.psn, &[(2, 0), (2, 1)]));
    (0..4).for_each(|wr_id| send(&mut pair, wr_id, 10));
    pair.run_until(us(30));
    pair.right.engine.modify_to_error(pair.right.qpn).expect("legal in every state");
    assert_eq!(pair.right.statuses(), fails_at(2, WcStatus::WrFlushed, 4));
    assert_eq!(pair.right.engine.objects().srq_level(srq), Some(4));
    // In RoCE a Send of several packets has taken one receive and no more.
    let (mut pair, srq, setup) = srq_pair("roce-gbn", 0);
    for wr_id in 0..3 {
        let sge = pair.right.sge(TARGET, 9_000);
        pair.right.engine.objects_mut().post_srq_recv(srq, &RecvRequest { wr_id, sges: &[sge] }).expect("not full");
    }
    pair.wire(drop_requests(setup.psn, &[(3, 0), (3, 1)]));
    send(&mut pair, 0, 5 * MTU);
    pair.run_until(us(12));
    pair.right.engine.modify_to_error(pair.right.qpn).expect("legal in every state");
    assert_eq!(pair.right.statuses(), [(0, WcStatus::WrFlushed)]);
    assert_eq!(pair.right.engine.objects().srq_level(srq), Some(2));
}
