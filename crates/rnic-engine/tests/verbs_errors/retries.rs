//! The retry counter: how long a peer may be silent, and what happens after that.

use super::*;

/// Runs in steps of a microsecond until a request completes; returns the time.
fn completed_at(side: impl Fn(&Pair) -> &Side, pair: &mut Pair) -> u64 {
    for at in micros(pair.now)..100_000 {
        pair.run_until(us(at));
        pair.now = us(at);
        let side = side(pair);
        if side.engine.objects().cq_level(side.cq).is_some_and(|(level, _)| level > 0) {
            return at;
        }
    }
    panic!("the request never completes");
}

fn dead_from(at: u64) -> impl FnMut(&Sent) -> Fate + 'static {
    move |sent| if sent.from == From::Right && sent.at >= us(at) { Fate::Drop } else { Fate::Deliver }
}

/// The peer never responds. After `retry_count` repetitions the oldest request fails and the others are flushed.
#[test]
fn a_silent_peer_is_declared_gone_after_the_retry_count() {
    for (transport, timeout) in [("roce-gbn", 320), ("irn", 100)] {
        for retry_count in [0, 1, 7] {
            let mut setup = setup(transport);
            setup.retry_count = retry_count;
            let mut pair = Pair::new(&setup);
            pair.wire(dead_from(0));
            (0..2).for_each(|wr_id| write(&mut pair, wr_id, 10));
            let at = completed_at(|pair| &pair.left, &mut pair);
            assert_eq!(at, timeout * u64::from(retry_count + 1), "{transport}, {retry_count} retries");
            assert_eq!(pair.left.statuses(), fails_at(0, WcStatus::RetryExceeded, 2));
            assert_eq!(pair.left.info().state, QpState::Error);
            assert_eq!(events(&mut pair.left), [], "an event is raised for a completion error");
            let before = pair.log.len();
            pair.run();
            assert_eq!(pair.log.len(), before, "{transport}: packets are still sent");
        }
    }
}

/// Only timeouts in a row count: each of three messages loses its packet as often as is allowed.
#[test]
fn progress_resets_the_retry_count() {
    for transport in TRANSPORTS {
        let mut pair = Pair::new(&setup(transport));
        let first = setup(transport).psn;
        let losses: Vec<_> = (0..3).flat_map(|seq| (0..7).map(move |nth| (seq, nth))).collect();
        pair.wire(drop_requests(first, &losses));
        for wr_id in 0..3 {
            write(&mut pair, wr_id, 10);
            pair.run();
        }
        assert_eq!(pair.left.info().stats.timeouts, 21, "{transport}");
        assert_eq!(pair.left.statuses(), all(0..3, WcStatus::Success));
    }
}

/// The responder fails before a read arrives, when it has arrived, or in the middle of its response: the read fails
/// in each case, within the time of eight timeouts and the responder's own repairs.
#[test]
fn a_read_fails_when_its_responder_fails() {
    for transport in TRANSPORTS {
        for dies_at in [0, 5, 6, 17, 25] {
            let mut pair = Pair::new(&Setup::new(transport, &[("cap_packets", "10")]));
            pair.wire(dead_from(dies_at));
            write(&mut pair, 0, 0);
            read(&mut pair, 1, 50 * MTU);
            write(&mut pair, 2, 10);
            let done = if dies_at > 5 { all(0..1, WcStatus::Success) } else { vec![] };
            if !done.is_empty() {
                completed_at(|pair| &pair.left, &mut pair);
                assert_eq!(pair.left.statuses(), done, "{transport}, dies at {dies_at}");
            }
            let at = completed_at(|pair| &pair.left, &mut pair);
            assert!(at < 15_000, "{transport}, dies at {dies_at}: noticed at {at} us");
            let failed = done.len() as u64;
            let expected = fails_at(failed, WcStatus::RetryExceeded, 3)[failed as usize..].to_vec();
            assert_eq!(pair.left.statuses(), expected, "{transport}, dies at {dies_at}");
        }
    }
}

/// In IRN and FaSR the responder has a timer too. Its requester has the complete response and ends, or fails in the
/// middle of it: the responder has made no error and does not fail, as RoCE's would not. It repeats its packets at
/// growing intervals, does not use up the peer's limit meanwhile, and continues when the peer responds again.
#[test]
fn a_responder_does_not_fail_without_acknowledgements() {
    for transport in ["irn", "tcp", "roce-sr", "fasr"] {
        let mut pair = Pair::of(transport);
        pair.right.engine.set_peer_limit(PeerId(7), Some(6));
        pair.wire(|sent| if sent.from == From::Left && sent.at >= us(1) { Fate::Drop } else { Fate::Deliver });
        post_recvs(&mut pair.right, 100..102, 10);
        read(&mut pair, 0, 5 * MTU);
        pair.run_until(us(8_000_000));
        let QpInfo { state, stats, .. } = pair.right.info();
        assert_eq!((state, events(&mut pair.right)), (QpState::ReadyToSend, vec![]), "{transport}");
        assert!((9..60).contains(&stats.timeouts), "{transport}: {} timeouts in 8 s", stats.timeouts);
        assert_eq!(pair.left.statuses(), all(0..1, WcStatus::Success), "{transport}");
        // Another connection can use the limit.
        let (near, _) = pair.another(&setup(transport));
        let (sge, remote) = (pair.left.sge(TARGET, 50 * MTU), pair.right.remote(0));
        let request = SendRequest { wr_id: 1, op: SendOp::Read { remote }, sges: &[sge], flags: SendFlags::SIGNALED };
        pair.wire(|_| Fate::Deliver);
        pair.left.engine.post_send(near, &request).expect("the send queue is not full");
        pair.run_until(us(8_000_500));
        assert_eq!(pair.left.statuses(), all(1..2, WcStatus::Success), "{transport}");
        pair.run();
        send(&mut pair, 2, 10);
        read(&mut pair, 3, 5 * MTU);
        pair.run();
        assert_eq!(pair.left.statuses(), all(2..4, WcStatus::Success), "{transport}");
        assert_eq!(pair.right.statuses(), all(100..101, WcStatus::Success), "{transport}");
    }
}

/// A queue pair that only receives (it was never made ready to send) still serves reads, with losses on the way.
#[test]
fn a_responder_need_not_be_ready_to_send() {
    for transport in TRANSPORTS {
        for losses in loss_patterns() {
            let setup = setup(transport);
            let mut pair = Pair::new(&setup);
            let (left, right) = (pair.left.qpn, pair.right.qpn);
            pair.right.engine.modify_to_reset(right).expect("legal in every state");
            pair.right.engine.modify_to_init(right).expect("from reset");
            pair.right.engine.modify_to_rtr(right, &connection(&setup, left)).expect("from init");
            pair.wire(lose_nth(&losses));
            write(&mut pair, 0, 5_000);
            read(&mut pair, 1, 5_000);
            let remote = pair.right.remote(800);
            let sge = pair.left.sge(TARGET, 8);
            pair.left.post(2, SendOp::FetchAdd { remote, add: 1 }, &[sge]);
            pair.run();
            assert_eq!(pair.left.statuses(), all(0..3, WcStatus::Success), "{transport}, losing {losses:?}");
        }
    }
}

/// A queue pair that was never made ready to send has no retry count. When its response is lost for much longer than
/// eight timeouts, the usual limit, it waits as long as the requester does, whose retry count decides.
#[test]
fn a_responder_that_is_not_ready_to_send_waits_as_long_as_its_requester() {
    let mut setup = setup("irn");
    setup.retry_count = 1_000;
    let mut pair = Pair::new(&setup);
    let (left, right) = (pair.left.qpn, pair.right.qpn);
    pair.right.engine.modify_to_reset(right).expect("legal in every state");
    pair.right.engine.modify_to_init(right).expect("from reset");
    pair.right.engine.modify_to_rtr(right, &connection(&setup, left)).expect("from init");
    pair.wire(|sent| if sent.from == From::Right && sent.at < us(50_000) { Fate::Drop } else { Fate::Deliver });
    read(&mut pair, 0, 5 * MTU);
    pair.run();
    assert_eq!(pair.left.statuses(), all(0..1, WcStatus::Success));
    let QpInfo { state, stats, .. } = pair.right.info();
    assert_eq!(
        (state, events(&mut pair.right)),
        (QpState::ReadyToReceive, vec![AsyncEvent::CommunicationEstablished(right)])
    );
    assert!(stats.timeouts > 8, "{} timeouts are too few to show anything", stats.timeouts);
    let (to, len) = (TARGET as usize, 5 * MTU as usize);
    assert!(pair.left.memory[to..to + len] == pair.right.memory[..len], "wrong data was read");
}

/// A long response is being sent, and a request after it is refused. However long the response takes, the requester
/// gets the refusal in its turn, not a timeout.
#[test]
fn a_refusal_after_a_long_response_causes_no_timeout() {
    for transport in TRANSPORTS {
        // Four packets per round trip of 10 us: the response takes 2 ms.
        let mut pair = Pair::new(&Setup::new(transport, &[("cap_packets", "4")]));
        let (sge, remote) = (pair.left.sge(0, 400 * MTU), pair.right.remote(0));
        pair.left.post(0, SendOp::Read { remote }, &[sge]);
        let (sge, remote) = (pair.left.sge(0, 10), RemoteMemory { addr: 0, rkey: 0 });
        pair.left.post(1, SendOp::Write { remote, immediate: None }, &[sge]);
        pair.run();
        assert_eq!(pair.left.statuses(), fails_at(1, WcStatus::RemoteAccess, 2), "{transport}");
    }
}

/// TCP's timeouts double, so a responder's seven retries take 40 ms, and a requester that waits for its response
/// waits longer. Where the response never arrives, the wait ends all the same: 3.2 ms, then twice that for the one
/// retry.
#[test]
fn a_responder_that_backs_off_is_given_time_for_all_its_retries() {
    let read = |pair: &mut Pair| {
        let (sge, remote) = (pair.left.sge(500_000, 8), pair.right.remote(0));
        pair.left.post(1, SendOp::Read { remote }, &[sge]);
    };
    let mut pair = Pair::new(&setup("tcp"));
    let mut answers = 0;
    pair.wire(move |sent| {
        let is_answer = sent.from == From::Right && sent.kind != TransmitKind::Ack;
        answers += u32::from(is_answer);
        if is_answer && answers <= 7 { Fate::Drop } else { Fate::Deliver }
    });
    read(&mut pair);
    pair.run();
    assert_eq!(pair.left.statuses(), [(1, WcStatus::Success)]);
    assert_eq!(pair.right.info().stats.timeouts, 7);

    let mut setup = setup("tcp");
    setup.retry_count = 1;
    let mut pair = Pair::new(&setup);
    pair.wire(|sent| {
        let has_received = sent.from == From::Left || sent.kind == TransmitKind::Ack && sent.at < us(10);
        if has_received { Fate::Deliver } else { Fate::Drop }
    });
    read(&mut pair);
    assert_eq!(completed_at(|pair| &pair.left, &mut pair), 9_600);
    assert_eq!(pair.left.statuses(), [(1, WcStatus::RetryExceeded)]);
}
