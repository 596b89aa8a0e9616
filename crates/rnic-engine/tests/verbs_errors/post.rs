//! Requests that cannot be posted: wrong state, full queue, too many or too large parts. An error of the caller is
//! returned immediately and changes nothing.

use super::*;

fn try_send(side: &mut Side, op: SendOp, sges: &[Sge]) -> Result<(), PostError> {
    let request = SendRequest { wr_id: 9, op, sges, flags: SendFlags::SIGNALED };
    side.engine.post_send(side.qpn, &request)
}

fn try_recv(side: &mut Side, sges: &[Sge]) -> Result<(), PostError> {
    side.engine.post_recv(side.qpn, &RecvRequest { wr_id: 9, sges })
}

const SEND: SendOp = SendOp::Send { immediate: None };

/// Sends can be posted in `ReadyToSend` and `SendQueueDrained`, receives from `Init` on, and in `Error` both, to be
/// flushed.
#[test]
fn each_state_accepts_the_requests_that_verbs_permit() {
    for transport in TRANSPORTS {
        let setup = setup(transport);
        let mut pair = Pair::new(&setup);
        let (qpn, dest) = (pair.left.qpn, pair.right.qpn);
        let left = &mut pair.left;
        let refused = |state| Err(PostError::State(state));
        left.engine.modify_to_reset(qpn).expect("legal in every state");
        assert_eq!(try_send(left, SEND, &[]), refused(QpState::Reset));
        assert_eq!(try_recv(left, &[]), refused(QpState::Reset));
        left.engine.modify_to_init(qpn).expect("from reset");
        assert_eq!(try_send(left, SEND, &[]), refused(QpState::Init));
        assert_eq!(try_recv(left, &[]), Ok(()));
        left.engine.modify_to_rtr(qpn, &connection(&setup, dest)).expect("from init");
        assert_eq!(try_send(left, SEND, &[]), refused(QpState::ReadyToReceive));
        assert_eq!(try_recv(left, &[]), Ok(()));
        left.engine.modify_to_rts(Time::ZERO, qpn, &timing(&setup)).expect("from ready to receive");
        assert_eq!(try_send(left, SEND, &[]), Ok(()));
        assert_eq!(try_recv(left, &[]), Ok(()));
        left.engine.modify_to_sqd(qpn).expect("from ready to send");
        assert_eq!(try_send(left, SEND, &[]), Ok(()));
        assert_eq!(try_recv(left, &[]), Ok(()));
        assert_eq!(left.completions(), []);
        left.engine.modify_to_error(qpn).expect("legal in every state");
        assert_eq!(left.completions().len(), 6, "two sends and four receives are flushed");
        assert_eq!(try_send(left, SEND, &[]), Ok(()));
        assert_eq!(try_recv(left, &[]), Ok(()));
        assert_eq!(left.statuses(), [(9, WcStatus::WrFlushed); 2]);
    }
}

/// A queue pair that goes to the error state without ever having been connected flushes what is posted to it, of any
/// size.
#[test]
fn a_queue_pair_that_was_never_connected_flushes_its_requests() {
    for transport in TRANSPORTS {
        let mut pair = Pair::new(&setup(transport));
        let left = &mut pair.left;
        left.engine.modify_to_reset(left.qpn).expect("legal in every state");
        left.engine.modify_to_error(left.qpn).expect("legal in every state");
        let sge = left.sge(0, 10_000);
        assert_eq!(try_send(left, SEND, &[sge]), Ok(()));
        assert_eq!(try_recv(left, &[sge]), Ok(()));
        assert_eq!(left.statuses(), [(9, WcStatus::WrFlushed); 2], "{transport}");
    }
}

#[test]
fn a_full_queue_accepts_no_request_until_one_completes() {
    for transport in TRANSPORTS {
        for depth in [1, 2, 3, 64] {
            let mut setup = setup(transport);
            setup.depth = depth;
            let mut pair = Pair::new(&setup);
            for _ in 0..depth {
                assert_eq!(try_recv(&mut pair.right, &[]), Ok(()));
                assert_eq!(try_send(&mut pair.left, SEND, &[]), Ok(()));
            }
            assert_eq!(try_recv(&mut pair.right, &[]), Err(PostError::QueueFull), "{transport}, {depth}");
            assert_eq!(try_send(&mut pair.left, SEND, &[]), Err(PostError::QueueFull), "{transport}, {depth}");
            pair.run();
            assert_eq!(pair.left.completions().len(), depth as usize);
            assert_eq!(pair.right.completions().len(), depth as usize);
            assert_eq!(try_recv(&mut pair.right, &[]), Ok(()));
            assert_eq!(try_send(&mut pair.left, SEND, &[]), Ok(()));
        }
    }
}

#[test]
fn requests_with_too_many_scatter_gather_entries_are_refused() {
    for transport in TRANSPORTS {
        let mut pair = Pair::new(&setup(transport));
        let sges = [pair.left.sge(0, 1); 5];
        let refused = Err(PostError::TooManySges { requested: 5, limit: 4 });
        assert_eq!(try_send(&mut pair.left, SEND, &sges), refused);
        assert_eq!(try_recv(&mut pair.left, &sges), refused);
        assert_eq!(try_send(&mut pair.left, SEND, &sges[..4]), Ok(()));
        assert_eq!(try_recv(&mut pair.left, &sges[..4]), Ok(()));
    }
}

/// A message of 1 GiB may be posted, one of one byte more may not. (The region does not cover it: that error is
/// reported by the completion.)
#[test]
fn messages_longer_than_1_gib_are_refused() {
    for transport in TRANSPORTS {
        let mut pair = Pair::new(&setup(transport));
        let half = pair.left.sge(0, 1 << 29);
        let one = pair.left.sge(0, 1);
        let remote = pair.right.remote(0);
        let too_long = Err(PostError::MessageTooLong((1 << 30) + 1));
        for op in [SEND, SendOp::Write { remote, immediate: None }, SendOp::Read { remote }] {
            assert_eq!(try_send(&mut pair.left, op, &[half, half, one]), too_long, "{transport}");
        }
        let nowhere = Sge { lkey: 1, ..half };
        assert_eq!(try_send(&mut pair.left, SEND, &[nowhere, nowhere]), Ok(()));
        pair.run();
        assert_eq!(pair.left.statuses(), [(9, WcStatus::LocalProtection)]);
    }
}

#[test]
fn atomics_need_exactly_eight_bytes() {
    let mut pair = Pair::new(&setup("irn"));
    let remote = pair.right.remote(800);
    let pieces = |lens: &[u32]| lens.iter().map(|len| pair.left.sge(0, *len)).collect::<Vec<_>>();
    let cases = [(pieces(&[]), 0), (pieces(&[4]), 4), (pieces(&[9]), 9), (pieces(&[8, 8]), 16)];
    for (sges, len) in cases {
        for op in [SendOp::FetchAdd { remote, add: 1 }, SendOp::CompareSwap { remote, compare: 1, swap: 2 }] {
            assert_eq!(try_send(&mut pair.left, op, &sges), Err(PostError::AtomicLength(len)));
        }
    }
}

#[test]
fn receives_for_a_shared_receive_queue_are_posted_to_it_only() {
    let mut setup = setup("irn");
    setup.srq = Some(2);
    let mut pair = Pair::new(&setup);
    assert_eq!(try_recv(&mut pair.right, &[]), Err(PostError::HasSrq));
    let srq = pair.right.srq.expect("the setup has an SRQ");
    let sges = [pair.right.sge(0, 1); 5];
    let post = |pair: &mut Pair, sges: &[Sge]| {
        pair.right.engine.objects_mut().post_srq_recv(srq, &RecvRequest { wr_id: 1, sges })
    };
    assert_eq!(post(&mut pair, &sges), Err(PostError::TooManySges { requested: 5, limit: 4 }));
    assert_eq!([(); 3].map(|()| post(&mut pair, &sges[..4])), [Ok(()), Ok(()), Err(PostError::QueueFull)]);
}

#[test]
fn posting_to_an_unknown_queue_pair_fails() {
    let mut pair = Pair::new(&setup("irn"));
    let (qpn, cq) = (pair.left.qpn, pair.left.cq);
    pair.left.engine.destroy_qp(qpn).expect("it exists");
    assert_eq!(try_send(&mut pair.left, SEND, &[]), Err(PostError::UnknownQp));
    assert_eq!(try_recv(&mut pair.left, &[]), Err(PostError::UnknownQp));
    assert!(pair.left.engine.destroy_qp(qpn).is_err());
    assert_eq!(pair.left.engine.query_qp(qpn), None);
    pair.left.engine.objects_mut().destroy_cq(cq).expect("it is unused");
    assert_eq!(pair.left.engine.objects_mut().poll_cq_one(cq), None);
}
