//! Errors on the requester's own side: keys, ranges and rights of local memory.
//!
//! Expected by verbs: the entry fails with a local protection error in its turn, everything before it succeeds,
//! everything after it is flushed. The responder is not notified.

use super::*;

/// Posts valid requests 0 and 1, an invalid request 2, and a valid request 3.
fn check_local(transport: &str, losses: &[(From, u32)], bad: &dyn Fn(&mut Pair)) {
    let mut pair = Pair::new(&setup(transport));
    pair.wire(lose_nth(losses));
    write(&mut pair, 0, 3_000);
    read(&mut pair, 1, 3_000);
    bad(&mut pair);
    write(&mut pair, 3, 10);
    pair.run();
    assert_eq!(pair.left.statuses(), fails_at(2, WcStatus::LocalProtection, 4), "{transport}, losing {losses:?}");
    assert_eq!(pair.left.info().state, QpState::Error);
    assert_eq!(events(&mut pair.left), [], "an event is raised for a completion error");
    // IRN's responder may have responses in flight, and declares a requester gone that does not acknowledge them.
    if transport == "roce-gbn" {
        assert_eq!(pair.right.info().state, QpState::ReadyToSend, "the responder has failed");
    }
}

fn check_all(bad: &dyn Fn(&mut Pair)) {
    for transport in TRANSPORTS {
        loss_patterns().iter().for_each(|losses| check_local(transport, losses, bad));
    }
}

fn write_from(pair: &mut Pair, sges: &[Sge]) {
    let remote = pair.right.remote(TARGET);
    pair.left.post(2, SendOp::Write { remote, immediate: None }, sges);
}

#[test]
fn an_unknown_local_key_fails_the_request() {
    check_all(&|pair| {
        let sge = pair.left.sge(0, 100);
        write_from(pair, &[Sge { lkey: sge.lkey ^ 0x100, ..sge }]);
    });
}

#[test]
fn a_range_outside_the_region_fails_the_request() {
    check_all(&|pair| {
        let sge = pair.left.sge(MEMORY as u64 - 99, 100);
        write_from(pair, &[sge]);
    });
}

#[test]
fn a_key_of_another_protection_domain_fails_the_request() {
    check_all(&|pair| {
        let pd = pair.left.engine.objects_mut().create_pd().expect("a protection domain");
        let lkey = region(&mut pair.left, pd, 0, 8_192, Access::all());
        write_from(pair, &[Sge { addr: BASE, len: 100, lkey }]);
    });
}

/// The second piece is invalid, and only the third packet uses it: the first two may have left.
#[test]
fn an_invalid_later_scatter_gather_entry_fails_the_request() {
    check_all(&|pair| {
        let (good, bad) = (pair.left.sge(0, 2 * MTU), pair.left.sge(5_000, 100));
        write_from(pair, &[good, Sge { lkey: bad.lkey ^ 0x100, ..bad }]);
    });
}

#[test]
fn a_send_from_an_invalid_region_fails() {
    check_all(&|pair| {
        post_recvs(&mut pair.right, 100..101, 100);
        let sge = pair.left.sge(0, 100);
        pair.left.post(2, SendOp::Send { immediate: None }, &[Sge { lkey: 1, ..sge }]);
    });
}

/// The region is deregistered while the request waits for the window.
#[test]
fn a_region_deregistered_before_its_request_is_sent_fails_the_request() {
    for transport in TRANSPORTS {
        let mut pair = Pair::new(&Setup::new(transport, &[("cap_packets", "2")]));
        let pd = pair.left.pd;
        let lkey = region(&mut pair.left, pd, 0, 8_192, Access::all());
        write(&mut pair, 0, 5_000);
        let remote = pair.right.remote(TARGET);
        let sge = Sge { addr: BASE, len: 100, lkey };
        pair.left.post(1, SendOp::Write { remote, immediate: None }, &[sge]);
        pair.run_until(us(3));
        pair.left.engine.objects_mut().deregister(Key(lkey)).expect("registered");
        pair.run();
        assert_eq!(pair.left.statuses(), fails_at(1, WcStatus::LocalProtection, 2), "{transport}");
    }
}

/// The region is deregistered when the request has been sent and its packet is lost: it cannot be retransmitted.
#[test]
fn a_region_deregistered_before_a_retransmission_fails_the_request() {
    for transport in TRANSPORTS {
        let mut pair = Pair::new(&setup(transport));
        let pd = pair.left.pd;
        let lkey = region(&mut pair.left, pd, 0, 8_192, Access::all());
        pair.wire(lose_nth(&[(From::Left, 3), (From::Left, 4)]));
        write(&mut pair, 0, 3_000);
        let remote = pair.right.remote(TARGET);
        let sge = Sge { addr: BASE, len: 2_000, lkey };
        pair.left.post(1, SendOp::Write { remote, immediate: None }, &[sge]);
        write(&mut pair, 2, 10);
        pair.run_until(us(3));
        pair.left.engine.objects_mut().deregister(Key(lkey)).expect("registered");
        pair.run();
        assert_eq!(pair.left.statuses(), fails_at(1, WcStatus::LocalProtection, 3), "{transport}");
    }
}

/// Responses may only be placed in memory with local write access; that is checked when they arrive.
#[test]
fn responses_into_read_only_memory_fail_the_request() {
    check_all(&|pair| {
        let pd = pair.left.pd;
        let lkey = region(&mut pair.left, pd, 0, 8_192, Access::REMOTE_READ);
        let remote = pair.right.remote(0);
        pair.left.post(2, SendOp::Read { remote }, &[Sge { addr: BASE, len: 3_000, lkey }]);
    });
    check_all(&|pair| {
        let pd = pair.left.pd;
        let lkey = region(&mut pair.left, pd, 0, 8_192, Access::empty());
        let remote = pair.right.remote(800);
        pair.left.post(2, SendOp::FetchAdd { remote, add: 1 }, &[Sge { addr: BASE, len: 8, lkey }]);
    });
}

/// Sending from memory needs no right at all: local reading is always granted.
#[test]
fn sending_needs_no_access_right() {
    for transport in TRANSPORTS {
        let mut pair = Pair::new(&setup(transport));
        let pd = pair.left.pd;
        let lkey = region(&mut pair.left, pd, 0, 8_192, Access::empty());
        write_from(&mut pair, &[Sge { addr: BASE, len: 8_192, lkey }]);
        pair.run();
        assert_eq!(pair.left.statuses(), [(2, WcStatus::Success)], "{transport}");
    }
}

/// Of two invalid entries the earlier one fails, and the later one is flushed like everything else.
#[test]
fn the_first_of_two_invalid_entries_fails() {
    for transport in TRANSPORTS {
        let mut pair = Pair::new(&setup(transport));
        pair.wire(lose_nth(&[(From::Left, 0)]));
        write(&mut pair, 0, 3_000);
        let sge = pair.left.sge(0, 100);
        let remote = pair.right.remote(TARGET);
        for wr_id in 1..3 {
            pair.left.post(wr_id, SendOp::Write { remote, immediate: None }, &[Sge { lkey: 9, ..sge }]);
        }
        pair.run();
        assert_eq!(pair.left.statuses(), fails_at(1, WcStatus::LocalProtection, 3), "{transport}");
    }
}

/// The memory of two entries is deregistered while they wait to be retransmitted: the earlier one fails, although the
/// later one is detected last.
#[test]
fn the_first_of_two_entries_that_cannot_be_retransmitted_fails() {
    for transport in TRANSPORTS {
        let mut pair = Pair::new(&setup(transport));
        pair.wire(|sent| if sent.kind == TransmitKind::Request { Fate::Drop } else { Fate::Deliver });
        let (pd, remote) = (pair.left.pd, pair.right.remote(TARGET));
        write(&mut pair, 0, 100);
        let keys = [1, 2].map(|wr_id| {
            let lkey = region(&mut pair.left, pd, 0, 8_192, Access::all());
            let sge = Sge { addr: BASE, len: 100, lkey };
            pair.left.post(wr_id, SendOp::Write { remote, immediate: None }, &[sge]);
            Key(lkey)
        });
        pair.run_until(us(3));
        for key in keys {
            pair.left.engine.objects_mut().deregister(key).expect("registered");
        }
        pair.run();
        assert_eq!(pair.left.statuses(), fails_at(1, WcStatus::LocalProtection, 3), "{transport}");
    }
}

/// A connection with an agreed read limit of zero fails the first read in its turn; that read does not wait forever.
#[test]
fn a_read_fails_when_the_read_limit_is_zero() {
    for transport in TRANSPORTS {
        for losses in loss_patterns() {
            let mut pair = Pair::new(&Setup { reads: 0, ..setup(transport) });
            pair.wire(lose_nth(&losses));
            write(&mut pair, 0, 3_000);
            read(&mut pair, 1, 10);
            write(&mut pair, 2, 10);
            pair.run();
            let expected = fails_at(1, WcStatus::LocalQpOperation, 3);
            assert_eq!(pair.left.statuses(), expected, "{transport} {losses:?}");
        }
    }
}
