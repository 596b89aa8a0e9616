//! Requests of a queue pair that is reset or destroyed are dropped without completions, whatever is in flight. A
//! queue pair that has refused a request still responds, and holds no resource that others need.

use rnic_base::Duration;
use rnic_engine::*;
use rnic_wire::falcon::Body;

use crate::common::{BASE, DELAY, DELIVERED, INBOX, LOST, MTU, Pair, Setup};

const ORDERS: [&[(&str, &str)]; 4] = [
    &[],
    &[("ordering", "weak")],
    &[("errors", "complete-in-error")],
    &[("ordering", "unordered"), ("errors", "complete-in-error")],
];

/// Resets or destroys the queue pair.
fn end(engine: &mut Engine, qpn: rnic_wire::Qpn, destroys: bool) {
    if destroys {
        engine.destroy_qp(qpn).expect("it exists");
    } else {
        engine.modify_to_reset(qpn).expect("legal in every state");
    }
}

/// Posts Writes and Reads both ways, and receives that no Send consumes.
fn busy(pair: &mut Pair) {
    for end in [0, 1] {
        let remote = pair.remote(end, INBOX);
        for wr_id in 0..6 {
            let op = if wr_id % 2 == 0 { SendOp::Write { remote, immediate: None } } else { SendOp::Read { remote } };
            pair.ends[end].post(wr_id, op, BASE, 5 * MTU);
        }
        (100..150).for_each(|wr_id| pair.ends[end].post_recv(wr_id, INBOX, 10));
    }
}

/// Ends a queue pair at various moments, with its own receive queue and with a shared one.
#[test]
fn requests_of_a_queue_pair_that_is_reset_or_destroyed_do_not_complete() {
    for options in ORDERS {
        for (destroys, srq) in [(false, None), (true, None), (false, Some(64)), (true, Some(64))] {
            for moment in [1, 6, 11, 13, 20, 31] {
                let name = format!("{options:?}, destroyed: {destroys}, {srq:?}, {moment} us");
                let setup = Setup { srq, ..Setup::new(options) };
                let mut pair = Pair::new(&setup, |_| DELIVERED);
                busy(&mut pair);
                pair.run_for(Duration::from_us(moment));
                let qpn = pair.ends[0].qpn;
                pair.ends[0].take();
                end(&mut pair.ends[0].engine, qpn, destroys);
                pair.run_for(Duration::from_us(100));
                assert_eq!(pair.ends[0].take(), [], "{name}");
                assert_eq!(pair.ends[0].engine.objects_mut().poll_event(), None, "{name}");
                let stats = pair.ends[0].engine.falcon_stats().expect("Falcon is in use");
                assert!(stats.is_idle, "{name}: resources are held");
                assert_eq!(
                    pair.ends[0].srq.and_then(|srq| pair.ends[0].engine.objects().srq_level(srq)),
                    srq.map(|_| 50),
                    "{name}"
                );
            }
        }
    }
}

/// A completion queue that two queue pairs share has room for the completions of the queue pair that stays in use,
/// and for no more: the one that ends must not fill it.
#[test]
fn a_queue_pair_that_ends_does_not_fill_a_shared_completion_queue() {
    for options in ORDERS {
        for destroys in [false, true] {
            let name = format!("{options:?}, destroyed: {destroys}");
            let mut setup = Setup::new(options);
            setup.signal_all = false;
            let mut pair = Pair::new(&setup, |_| DELIVERED);
            let [other, _] = pair.connect_another(&setup);
            let (qpn, cq) = (pair.ends[0].qpn, pair.ends[0].cq);
            pair.ends[0].engine.objects_mut().resize_cq(cq, 16).expect("a legal size");
            busy(&mut pair);
            pair.run_for(Duration::from_us(8));
            end(&mut pair.ends[0].engine, qpn, destroys);
            let remote = pair.remote(0, INBOX);
            pair.ends[0].post_on(other, 1, SendOp::Write { remote, immediate: None }, BASE, MTU);
            pair.run_for(Duration::from_us(100));
            assert_eq!(pair.ends[0].engine.objects_mut().poll_event(), None, "{name}");
            let state = pair.ends[0].engine.query_qp(other).expect("it exists").state;
            assert_eq!(state, QpState::ReadyToSend, "{name}");
            assert_eq!(pair.ends[0].engine.objects().cq_level(cq), Some((0, false)), "{name}");
        }
    }
}

/// The peer fails, so that a gap in the sequence is never filled. Requests that arrived after the gap, and those that
/// still arrive, can only be refused. The request that is refused is a Write or a Read, and it arrives late, after
/// others.
#[test]
fn after_a_refusal_no_out_of_order_requests_are_kept() {
    for read in [false, true] {
        let mut pair = Pair::new(&Setup::new(&[]), |sent| {
            let place = sent.packet.body.rsn().map(|rsn| rsn.value().wrapping_sub(0xff_fffa));
            match place.filter(|_| sent.from == 0) {
                Some(0) => [Some(DELAY * 5), None],
                Some(2) => LOST,
                Some(5 | 10) => [Some(DELAY * 9), None],
                _ => DELIVERED,
            }
        });
        let remote = pair.remote(0, INBOX);
        let nobodys = RemoteMemory { rkey: remote.rkey ^ 0x1357, ..remote };
        let write = |remote| SendOp::Write { remote, immediate: None };
        let refused = if read { SendOp::Read { remote: nobodys } } else { write(nobodys) };
        pair.ends[0].post(0, refused, BASE, 10);
        (1..9).for_each(|wr_id| pair.ends[0].post(wr_id, write(remote), BASE, 10));
        (9..11).for_each(|wr_id| pair.ends[0].post(wr_id, SendOp::Read { remote }, BASE, 10));
        pair.run_for(DELAY * 2);
        assert_eq!((pair.ends[1].kept.len(), pair.ends[1].state()), (6, QpState::ReadyToSend), "read: {read}");
        pair.run_for(DELAY * 4);
        assert_eq!((pair.ends[1].kept.len(), pair.ends[1].state()), (0, QpState::Error), "read: {read}");
        pair.run_for(Duration::from_ms(1_000));
        let flushed = (1..11).map(|wr_id| (wr_id, WcStatus::WrFlushed));
        let all: Vec<_> = [(0, WcStatus::RemoteAccess)].into_iter().chain(flushed).collect();
        assert_eq!(pair.ends[0].take(), all, "read: {read}");
        assert_eq!((pair.ends[1].kept.len(), pair.ends[1].kept_most), (0, 6), "read: {read}");
        for end in &pair.ends {
            assert!(end.engine.falcon_stats().is_some_and(|stats| stats.is_idle), "read: {read}");
        }
    }
}

/// The end that refuses a request has itself posted a Read, whose data its failed peer never sends: no resource stays
/// allocated for that data.
#[test]
fn after_a_refusal_no_resources_stay_allocated_for_responses() {
    for options in &ORDERS[..2] {
        let mut pair = Pair::new(&Setup::new(options), |sent| match sent.packet.body {
            Body::PullData { .. } => LOST,
            _ => DELIVERED,
        });
        let remote = pair.remote(1, INBOX);
        pair.ends[1].post(0, SendOp::Read { remote }, BASE, 4 * MTU);
        pair.run_for(DELAY * 6);
        let nobodys = RemoteMemory { rkey: 0x1357, ..pair.remote(0, INBOX) };
        pair.ends[0].post(0, SendOp::Write { remote: nobodys, immediate: None }, BASE, 10);
        pair.run_for(Duration::from_ms(2_000));
        assert_eq!(pair.ends[0].take(), [(0, WcStatus::RemoteAccess)], "{options:?}");
        assert_eq!(pair.ends[1].take(), [(0, WcStatus::WrFlushed)], "{options:?}");
        for end in &pair.ends {
            assert!(end.engine.falcon_stats().is_some_and(|stats| stats.is_idle), "{options:?}");
        }
    }
}
