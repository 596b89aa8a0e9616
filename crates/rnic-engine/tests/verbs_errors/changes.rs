//! Properties that may be changed while they are in use: the rights of a queue pair, the region that a key grants,
//! the sizes of queues.

use super::*;

/// A right of a queue pair, and a request that needs it.
type Guarded = (Access, fn(&mut Pair));

fn guarded() -> [Guarded; 4] {
    [
        (Access::REMOTE_WRITE, |pair| write(pair, 1, 100)),
        (Access::REMOTE_WRITE, |pair| write(pair, 1, 0)),
        (Access::REMOTE_READ, |pair| read(pair, 1, 3_000)),
        (Access::REMOTE_ATOMIC, |pair| {
            let (sge, remote) = (pair.left.sge(TARGET, 8), pair.right.remote(800));
            pair.left.post(1, SendOp::FetchAdd { remote, add: 1 }, &[sge]);
        }),
    ]
}

#[test]
fn the_queue_pair_must_grant_the_right() {
    for transport in TRANSPORTS {
        for losses in loss_patterns() {
            for (right, post) in guarded() {
                let mut pair = Pair::new(&setup(transport));
                pair.wire(lose_nth(&losses));
                pair.right.engine.set_access(pair.right.qpn, Access::all() - right).expect("it exists");
                let before = pair.right.memory.clone();
                send_ok(&mut pair);
                post(&mut pair);
                write(&mut pair, 2, 10);
                pair.run();
                let refused = WcStatus::RemoteInvalidRequest;
                let expected = [(0, WcStatus::Success), (1, refused), (2, WcStatus::WrFlushed)];
                assert_eq!(pair.left.statuses(), expected, "{transport} {right:?} {losses:?}");
                assert_eq!(events(&mut pair.right), [AsyncEvent::QpRequestError(pair.right.qpn)]);
                let start = TARGET as usize;
                assert!(pair.right.memory[..start] == before[..start], "{transport} {right:?}");
            }
        }
    }
}

/// Posts a Send of zero bytes, which needs no right, and checks that it succeeds.
fn send_ok(pair: &mut Pair) {
    pair.right.post_recv(100, &[]);
    send(pair, 0, 0);
}

#[test]
fn rights_that_a_request_does_not_need_may_be_missing() {
    for transport in TRANSPORTS {
        for (right, post) in guarded() {
            let mut pair = Pair::new(&setup(transport));
            pair.right.engine.set_access(pair.right.qpn, right).expect("it exists");
            send_ok(&mut pair);
            post(&mut pair);
            pair.run();
            assert_eq!(pair.left.statuses(), all(0..2, WcStatus::Success), "{transport} {right:?}");
        }
    }
}

/// A repeated read request is checked like the first one: a right that was withdrawn in the meantime is missing.
#[test]
fn a_retransmitted_read_request_needs_the_right() {
    for transport in TRANSPORTS {
        let withdraw = |pair: &mut Pair| {
            pair.right.engine.set_access(pair.right.qpn, Access::REMOTE_WRITE).expect("it exists");
        };
        let mut first = Pair::new(&setup(transport));
        withdraw(&mut first);
        read(&mut first, 0, 100);
        first.run();
        let refused = first.left.statuses();
        assert_ne!(refused, all(0..1, WcStatus::Success), "{transport}");

        let mut pair = Pair::new(&setup(transport));
        pair.wire(|sent| if sent.kind == TransmitKind::Response { Fate::Drop } else { Fate::Deliver });
        read(&mut pair, 0, 100);
        pair.run_until(us(20));
        let bytes = |pair: &Pair| pair.log.iter().map(|sent| sent.packet.payload_len).sum::<u32>();
        assert_eq!(bytes(&pair), 100);
        withdraw(&mut pair);
        pair.run();
        assert_eq!((pair.left.statuses(), bytes(&pair)), (refused, 100), "{transport}: not refused");
    }
}

#[test]
fn a_reset_clears_the_rights() {
    let mut pair = Pair::of("irn");
    let qpn = pair.left.qpn;
    pair.left.engine.set_access(qpn, Access::empty()).expect("it exists");
    assert_eq!(pair.left.info().access, Access::empty());
    pair.left.engine.modify_to_reset(qpn).expect("legal in every state");
    assert_eq!(pair.left.info().access, Access::all());
    assert_eq!(pair.left.engine.set_access(rnic_wire::Qpn::new(3), Access::all()), Err(ModifyError::UnknownQp));
}

#[test]
fn a_key_stays_the_same_when_its_region_changes() {
    for transport in TRANSPORTS {
        let mut pair = Pair::of(transport);
        let (key, pd) = (Key(pair.right.key), pair.right.pd);
        write(&mut pair, 0, 100);
        pair.run();
        let whole = MemoryRegion { pd, addr: BASE, len: MEMORY as u64, local: 0, access: Access::all() };
        let elsewhere = MemoryRegion { addr: BASE + TARGET, len: 100, local: 4_000, ..whole };
        assert_eq!(pair.right.engine.objects_mut().reregister(key, elsewhere), Ok(whole));
        write(&mut pair, 1, 100);
        pair.run();
        assert_eq!(pair.right.memory[4_000..4_100], pair.left.memory[..100], "{transport}");
        let wraps = MemoryRegion { addr: u64::MAX, ..whole };
        assert!(matches!(pair.right.engine.objects_mut().reregister(key, wraps), Err(MemoryError::Wraps { .. })));
        let other = pair.right.engine.objects_mut().create_pd().expect("a protection domain");
        assert_eq!(pair.right.engine.objects_mut().reregister(key, MemoryRegion { pd: other, ..whole }), Ok(elsewhere));
        assert_eq!(pair.right.engine.destroy_pd(other), Err(ResourceError::Busy("protection domain")));
        write(&mut pair, 2, 100);
        pair.run();
        let expected = [(0, WcStatus::Success), (1, WcStatus::Success), (2, WcStatus::RemoteAccess)];
        assert_eq!(pair.left.statuses(), expected, "{transport}: another domain");
        pair.right.engine.objects_mut().deregister(key).expect("registered");
        assert_eq!(pair.right.engine.objects_mut().reregister(key, whole), Err(MemoryError::Unknown(key.0)));
    }
}

/// An invalid receive buffer is an error of the responder's own, and the requester sees it as that.
#[test]
fn a_receive_whose_region_has_changed_fails_at_both_ends() {
    for transport in TRANSPORTS {
        let mut pair = Pair::of(transport);
        let key = Key(pair.right.key);
        post_recvs(&mut pair.right, 0..1, 100);
        let access = Access::LOCAL_WRITE;
        let region = MemoryRegion { pd: pair.right.pd, addr: BASE, len: 100, local: 0, access };
        pair.right.engine.objects_mut().reregister(key, region).expect("legal");
        send(&mut pair, 0, 100);
        pair.run();
        assert_eq!(pair.left.statuses(), [(0, WcStatus::RemoteOperational)], "{transport}");
        assert_eq!(pair.right.statuses(), [(0, WcStatus::LocalProtection)], "{transport}");
    }
}

#[test]
fn a_completion_queue_can_be_resized() {
    let mut pair = Pair::new(&Setup { completions: 3, ..setup("irn") });
    let cq = pair.left.cq;
    let too_few = |requested, holds| Err(ResourceError::Holds { what: "completion queue entries", requested, holds });
    let resize = |pair: &mut Pair, capacity| pair.left.engine.objects_mut().resize_cq(cq, capacity);
    assert_eq!(resize(&mut pair, 1), Ok(()));
    assert_eq!(resize(&mut pair, 7), Ok(()));
    for wr_id in 0..7 {
        write(&mut pair, wr_id, 10);
    }
    pair.run();
    assert_eq!(pair.left.engine.objects().cq_level(cq), Some((7, false)), "completions are missing");
    assert_eq!(resize(&mut pair, 6), too_few(6, 7));
    assert!(matches!(resize(&mut pair, 0), Err(ResourceError::Size { .. })));
    assert_eq!(resize(&mut pair, 7), Ok(()));
    assert_eq!(pair.left.engine.objects_mut().poll_cq_one(cq).map(|completion| completion.wr_id), Some(0));
    assert_eq!(resize(&mut pair, 6), Ok(()));
    assert_eq!(pair.left.statuses(), all(1..7, WcStatus::Success));
    assert_eq!(resize(&mut pair, 2), Ok(()));
    for wr_id in 0..3 {
        write(&mut pair, wr_id, 10);
    }
    pair.run();
    assert_eq!(pair.left.engine.objects().cq_level(cq), Some((2, true)), "the new size has no effect");
}

#[test]
fn a_shared_receive_queue_can_be_resized() {
    let mut pair = Pair::new(&Setup { srq: Some(4), ..setup("irn") });
    let srq = pair.right.srq.expect("the setup has an SRQ");
    let post = |pair: &mut Pair, wr_id| {
        let sges = [pair.right.sge(TARGET, 100)];
        pair.right.engine.objects_mut().post_srq_recv(srq, &RecvRequest { wr_id, sges: &sges })
    };
    (0..4).for_each(|wr_id| post(&mut pair, wr_id).expect("the queue is not full"));
    assert_eq!(post(&mut pair, 4), Err(PostError::QueueFull));
    assert_eq!(pair.right.engine.objects_mut().resize_srq(srq, 5), Ok(()));
    assert_eq!(post(&mut pair, 4), Ok(()));
    let refused = pair.right.engine.objects_mut().resize_srq(srq, 4);
    assert_eq!(refused, Err(ResourceError::Holds { what: "shared receive queue entries", requested: 4, holds: 5 }));
    pair.right.engine.objects_mut().set_srq_limit(srq, 4).expect("the limit is below the capacity");
    assert!(matches!(pair.right.engine.objects_mut().set_srq_limit(srq, 6), Err(ResourceError::Size { .. })));
    let info = SrqInfo { max_wr: 5, max_sge: 4, limit: 4, posted: 5 };
    assert_eq!(pair.right.engine.objects().query_srq(srq), Some(info));
    (0..3).for_each(|wr_id| send(&mut pair, wr_id, 10));
    pair.run();
    assert_eq!(pair.right.statuses(), all(0..3, WcStatus::Success));
    assert_eq!(events(&mut pair.right), [AsyncEvent::SrqLimitReached(srq)]);
    assert_eq!(pair.right.engine.objects().query_srq(srq), Some(SrqInfo { limit: 0, posted: 2, ..info }));
    assert_eq!(pair.right.engine.objects_mut().resize_srq(srq, 2), Ok(()));
    assert_eq!(post(&mut pair, 9), Err(PostError::QueueFull));
}

/// Checks that users of a shared receive queue get an event when a queue pair will take no more receives from it.
#[test]
fn the_last_wqe_reached_event_is_raised() {
    for transport in TRANSPORTS {
        let mut pair = Pair::new(&Setup { srq: Some(4), ..setup(transport) });
        let qpn = pair.right.qpn;
        pair.right.engine.modify_to_error(qpn).expect("legal in every state");
        pair.right.engine.modify_to_error(qpn).expect("legal in every state");
        assert_eq!(events(&mut pair.right), [AsyncEvent::LastWqeReached(qpn)], "not one event");
    }
}
