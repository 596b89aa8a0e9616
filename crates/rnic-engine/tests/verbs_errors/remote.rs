//! Requests that the responder refuses: keys, ranges, rights, lengths, alignment. Three requests are posted, of which
//! the middle one is invalid; two receives are posted at the responder.
//!
//! Expected by verbs: the first one succeeds, the middle one has the status of the refusal, the last one is flushed;
//! the responder's queue pair is in the error state too, its receives are flushed in order and an asynchronous event
//! gives the reason. Lost packets change none of it.

use super::*;

/// An invalid request and its expected results.
struct Case {
    name: &'static str,
    /// Changes the setup of both sides.
    set_up: fn(&mut Setup),
    /// Posts the invalid request as number 1.
    post: fn(&mut Pair),
    status: WcStatus,
    /// Expected statuses of the receives 100 and 101 at the responder.
    receives: [WcStatus; 2],
    event: fn(rnic_wire::Qpn) -> AsyncEvent,
}

const FLUSHED: [WcStatus; 2] = [WcStatus::WrFlushed; 2];

impl Case {
    /// Returns a case that is refused because of its key, range or right.
    const fn denied(name: &'static str, post: fn(&mut Pair)) -> Self {
        let (status, event) = (WcStatus::RemoteAccess, AsyncEvent::QpAccessError as fn(_) -> _);
        Self { name, set_up: |_| {}, post, status, receives: FLUSHED, event }
    }

    /// Returns a case that is refused because the request itself is invalid.
    const fn invalid(name: &'static str, post: fn(&mut Pair)) -> Self {
        let (status, event) = (WcStatus::RemoteInvalidRequest, AsyncEvent::QpRequestError as fn(_) -> _);
        Self { name, set_up: |_| {}, post, status, receives: FLUSHED, event }
    }
}

fn post_write(pair: &mut Pair, remote: RemoteMemory, len: u32) {
    let sge = pair.left.sge(0, len);
    pair.left.post(1, SendOp::Write { remote, immediate: None }, &[sge]);
}

fn post_read(pair: &mut Pair, remote: RemoteMemory, len: u32) {
    let sge = pair.left.sge(TARGET, len);
    pair.left.post(1, SendOp::Read { remote }, &[sge]);
}

fn post_add(pair: &mut Pair, remote: RemoteMemory) {
    let sge = pair.left.sge(TARGET, 8);
    pair.left.post(1, SendOp::FetchAdd { remote, add: 1 }, &[sge]);
}

/// Registers memory of the right side with rights other than those of the main region.
fn restricted(pair: &mut Pair, access: Access) -> RemoteMemory {
    let pd = pair.right.pd;
    let rkey = region(&mut pair.right, pd, 0, 8_192, access);
    RemoteMemory { addr: BASE, rkey }
}

/// Registers memory of the right side in another protection domain.
fn foreign(pair: &mut Pair) -> RemoteMemory {
    let pd = pair.right.engine.objects_mut().create_pd().expect("a protection domain");
    let rkey = region(&mut pair.right, pd, 0, 8_192, Access::all());
    RemoteMemory { addr: BASE, rkey }
}

const LOCAL: Access = Access::LOCAL_WRITE;

const CASES: &[Case] = &[
    Case::denied("write, wrong key", |pair| {
        let remote = pair.right.remote(TARGET);
        post_write(pair, RemoteMemory { rkey: remote.rkey ^ 0x100, ..remote }, 3_000);
    }),
    Case::denied("write, last byte outside", |pair| {
        let remote = pair.right.remote(MEMORY as u64 - 2_999);
        post_write(pair, remote, 3_000);
    }),
    Case::denied("write, first byte outside", |pair| {
        let remote = pair.right.remote(0);
        post_write(pair, RemoteMemory { addr: remote.addr - 1, ..remote }, 3_000);
    }),
    Case::denied("write, wraps the address space", |pair| {
        let remote = pair.right.remote(0);
        post_write(pair, RemoteMemory { addr: u64::MAX - 10, ..remote }, 3_000);
    }),
    Case::denied("write, no right", |pair| {
        let remote = restricted(pair, LOCAL | Access::REMOTE_READ | Access::REMOTE_ATOMIC);
        post_write(pair, remote, 3_000);
    }),
    Case::denied("write, other domain", |pair| {
        let remote = foreign(pair);
        post_write(pair, remote, 10);
    }),
    Case::denied("write, region gone", |pair| {
        let remote = restricted(pair, Access::all());
        pair.right.engine.objects_mut().deregister(Key(remote.rkey)).expect("the region is registered");
        post_write(pair, remote, 10);
    }),
    Case::denied("read, wrong key", |pair| {
        let remote = pair.right.remote(0);
        post_read(pair, RemoteMemory { rkey: remote.rkey ^ 0x100, ..remote }, 3_000);
    }),
    Case::denied("read, last byte outside", |pair| {
        let remote = pair.right.remote(MEMORY as u64 - 2_999);
        post_read(pair, remote, 3_000);
    }),
    Case::denied("read, no right", |pair| {
        let remote = restricted(pair, LOCAL | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        post_read(pair, remote, 3_000);
    }),
    Case::denied("read, other domain", |pair| {
        let remote = foreign(pair);
        post_read(pair, remote, 3_000);
    }),
    Case::denied("atomic, no right", |pair| {
        let remote = restricted(pair, LOCAL | Access::REMOTE_READ | Access::REMOTE_WRITE);
        post_add(pair, remote);
    }),
    Case::denied("atomic, last byte outside", |pair| {
        let pd = pair.right.pd;
        let rkey = region(&mut pair.right, pd, 0, 15, Access::all());
        post_add(pair, RemoteMemory { addr: BASE + 8, rkey });
    }),
    Case::denied("send with invalidate, no right", |pair| {
        let RemoteMemory { rkey, .. } = restricted(pair, LOCAL | Access::REMOTE_WRITE);
        let sge = pair.left.sge(0, 100);
        pair.left.post(1, SendOp::SendInvalidate { rkey }, &[sge]);
    }),
    Case::denied("send with invalidate, no such key", |pair| {
        let sge = pair.left.sge(0, 3_000);
        pair.left.post(1, SendOp::SendInvalidate { rkey: pair.right.key ^ 0x100 }, &[sge]);
    }),
    Case::denied("send with invalidate, other domain", |pair| {
        let RemoteMemory { rkey, .. } = foreign(pair);
        let sge = pair.left.sge(0, 100);
        pair.left.post(1, SendOp::SendInvalidate { rkey }, &[sge]);
    }),
    Case::invalid("atomic, not aligned", |pair| {
        let remote = pair.right.remote(804);
        post_add(pair, remote);
    }),
    Case {
        receives: [WcStatus::LocalLength, WcStatus::WrFlushed],
        ..Case::invalid("send longer than the receive", |pair| {
            let sge = pair.left.sge(0, 4_097);
            pair.left.post(1, SendOp::Send { immediate: None }, &[sge]);
        })
    },
    Case {
        set_up: |setup| setup.served = Some(0),
        ..Case::invalid("read, where none is served", |pair| {
            let remote = pair.right.remote(0);
            post_read(pair, remote, 10);
        })
    },
    Case {
        name: "send into a receive with a bad key",
        set_up: |_| {},
        post: |pair| {
            let sge = pair.left.sge(0, 2_000);
            pair.left.post(1, SendOp::Send { immediate: None }, &[sge]);
            // The receives are posted before the requests, so their memory is invalidated instead.
            pair.right.engine.objects_mut().deregister(Key(pair.right.key)).expect("registered");
        },
        status: WcStatus::RemoteOperational,
        receives: [WcStatus::LocalProtection, WcStatus::WrFlushed],
        event: AsyncEvent::QpFatal,
    },
];

fn check(transport: &str, case: &Case, losses: &[(From, u32)]) {
    let mut setup = setup(transport);
    (case.set_up)(&mut setup);
    let mut pair = Pair::new(&setup);
    pair.wire(lose_nth(losses));
    post_recvs(&mut pair.right, 100..102, 4_096);
    // The first request touches no memory, so that it succeeds whatever the case does to memory.
    write(&mut pair, 0, 0);
    (case.post)(&mut pair);
    write(&mut pair, 2, 2_000);
    pair.run();
    let what = format!("{transport}: {}, losing {losses:?}", case.name);
    assert_eq!(pair.left.statuses(), fails_at(1, case.status, 3), "{what}");
    let receives: Vec<_> = (100..).zip(case.receives).collect();
    assert_eq!(pair.right.statuses(), receives, "{what}");
    assert_eq!(events(&mut pair.right), [(case.event)(pair.right.qpn)], "{what}");
    assert_eq!(events(&mut pair.left), [], "{what}");
    assert_eq!((pair.left.info().state, pair.right.info().state), (QpState::Error, QpState::Error), "{what}");
}

#[test]
fn a_refused_request_fails_in_order_and_both_ends_flush() {
    for transport in TRANSPORTS {
        CASES.iter().for_each(|case| check(transport, case, &[]));
    }
}

#[test]
fn the_outcome_is_the_same_whichever_packet_is_lost() {
    for transport in TRANSPORTS {
        for case in CASES {
            loss_patterns().iter().for_each(|losses| check(transport, case, losses));
        }
    }
}

/// Checks that a request that is refused at its first packet has changed nothing at the responder.
#[test]
fn a_refused_request_changes_nothing_at_the_responder() {
    for transport in TRANSPORTS {
        let mut pair = Pair::new(&setup(transport));
        let before = pair.right.memory.clone();
        let remote = restricted(&mut pair, LOCAL | Access::REMOTE_READ);
        post_write(&mut pair, remote, 3_000);
        pair.run();
        assert!(pair.right.memory == before, "{transport}");
        assert_eq!(pair.right.info().msn, 0);
    }
}

/// Just inside the limit of every range: the last byte of a region, the last aligned word.
#[test]
fn the_last_byte_of_a_region_is_accessible() {
    for transport in TRANSPORTS {
        let mut pair = Pair::new(&setup(transport));
        let end = MEMORY as u64;
        let (write, read, word) =
            (pair.right.remote(end - 3_000), pair.right.remote(end - 3_000), pair.right.remote(end - 8));
        pair.left.post(0, SendOp::Write { remote: write, immediate: None }, &[pair.left.sge(0, 3_000)]);
        pair.left.post(1, SendOp::Read { remote: read }, &[pair.left.sge(TARGET, 3_000)]);
        pair.left.post(2, SendOp::FetchAdd { remote: word, add: 1 }, &[pair.left.sge(TARGET, 8)]);
        post_recvs(&mut pair.right, 100..101, 4_096);
        send(&mut pair, 3, 4_096);
        pair.run();
        assert_eq!(pair.left.statuses(), all(0..4, WcStatus::Success), "{transport}");
    }
}

/// The remote key of operations of zero bytes is not checked.
#[test]
fn zero_length_operations_need_no_key() {
    for transport in TRANSPORTS {
        let mut pair = Pair::new(&setup(transport));
        let nowhere = RemoteMemory { addr: u64::MAX, rkey: 0xdead_beef };
        pair.left.post(0, SendOp::Write { remote: nowhere, immediate: None }, &[]);
        pair.left.post(1, SendOp::Read { remote: nowhere }, &[]);
        // A list of pieces of zero bytes is equally empty, whatever its keys.
        let empty = Sge { addr: 5, len: 0, lkey: 77 };
        pair.left.post(2, SendOp::Write { remote: nowhere, immediate: Some(3) }, &[empty]);
        pair.left.post(3, SendOp::Send { immediate: None }, &[empty, empty]);
        pair.right.post_recv(100, &[]);
        pair.right.post_recv(101, &[empty]);
        pair.run();
        assert_eq!(pair.left.statuses(), all(0..4, WcStatus::Success), "{transport}");
        let received = pair.right.completions();
        assert_eq!(received.iter().map(|c| (c.wr_id, c.byte_len)).collect::<Vec<_>>(), [(100, 0), (101, 0)]);
    }
}

/// A Send of one byte is too long for a receive of zero bytes.
#[test]
fn a_send_into_a_receive_of_zero_bytes_fails() {
    for transport in TRANSPORTS {
        let mut pair = Pair::new(&setup(transport));
        pair.right.post_recv(100, &[]);
        send(&mut pair, 0, 1);
        pair.run();
        assert_eq!(pair.left.statuses(), [(0, WcStatus::RemoteInvalidRequest)], "{transport}");
        assert_eq!(pair.right.statuses(), [(100, WcStatus::LocalLength)]);
    }
}

/// More reads are outstanding than the responder serves: the excess one is invalid, those before it are served.
#[test]
fn more_reads_than_the_responder_serves_are_refused() {
    for transport in TRANSPORTS {
        for losses in loss_patterns() {
            let mut setup = setup(transport);
            (setup.reads, setup.served) = (4, Some(2));
            let mut pair = Pair::new(&setup);
            pair.batch = true;
            pair.wire(lose_nth(&losses));
            (0..4).for_each(|wr_id| read(&mut pair, wr_id, 10));
            pair.run();
            // A loss may reduce the number of reads that arrive together, so that none is in excess.
            let statuses = pair.left.statuses();
            let ok = fails_at(2, WcStatus::RemoteInvalidRequest, 4);
            let later = fails_at(3, WcStatus::RemoteInvalidRequest, 4);
            let never = all(0..4, WcStatus::Success);
            let mut legal = if losses.is_empty() { vec![ok] } else { vec![ok, later, never] };
            if transport == "roce-gbn" {
                // RoCE's responses are not stored: one that is lost before the refusal cannot be requested again.
                legal.extend([fails_at(0, WcStatus::RetryExceeded, 4), fails_at(1, WcStatus::RetryExceeded, 4)]);
            }
            assert!(legal.contains(&statuses), "{transport}, losing {losses:?}: {statuses:?}");
        }
    }
}

/// A key that a peer has invalidated stays invalid; a region that is registered in its slot has another key.
#[test]
fn an_invalidated_key_is_never_reused() {
    for transport in TRANSPORTS {
        let mut pair = Pair::new(&setup(transport));
        let first = restricted(&mut pair, Access::all());
        post_recvs(&mut pair.right, 100..101, 100);
        pair.left.post(0, SendOp::SendInvalidate { rkey: first.rkey }, &[]);
        pair.run();
        let second = restricted(&mut pair, Access::all());
        assert_ne!(first.rkey, second.rkey, "{transport}");
        post_write(&mut pair, second, 10);
        pair.run();
        assert_eq!(pair.left.statuses(), all(0..2, WcStatus::Success));
        assert_eq!(pair.right.engine.objects_mut().deregister(Key(first.rkey)), Err(MemoryError::Unknown(first.rkey)));
        let sge = pair.left.sge(0, 10);
        pair.left.post(2, SendOp::Write { remote: first, immediate: None }, &[sge]);
        pair.run();
        assert_eq!(pair.left.statuses(), [(2, WcStatus::RemoteAccess)]);
    }
}

/// The responder's program deregisters memory in the middle of a response: the Read fails at both ends, as if the
/// memory had never been registered.
#[test]
fn memory_deregistered_in_the_middle_of_a_response_fails_the_read() {
    for transport in TRANSPORTS {
        let mut pair = Pair::new(&Setup::new(transport, &[("cap_packets", "4")]));
        let remote = restricted(&mut pair, Access::all());
        let sge = pair.left.sge(TARGET, 8_000);
        pair.left.post(0, SendOp::Read { remote }, &[sge]);
        write(&mut pair, 1, 10);
        pair.run_until(us(7));
        pair.right.engine.objects_mut().deregister(Key(remote.rkey)).expect("registered");
        pair.run();
        assert_eq!(pair.left.statuses(), fails_at(0, WcStatus::RemoteAccess, 2), "{transport}");
        assert_eq!(events(&mut pair.right), [AsyncEvent::QpAccessError(pair.right.qpn)], "{transport}");
    }
}
