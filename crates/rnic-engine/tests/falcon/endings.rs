//! What is posted to a queue pair that is reset or destroyed is forgotten, whatever is under way: nobody hears of it.
//! One that has refused a request answers on, and holds nothing that others need.

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

/// Reset, or destroyed.
fn end(engine: &mut Engine, qpn: rnic_wire::Qpn, destroys: bool) {
    if destroys {
        engine.destroy_qp(qpn).expect("it is there");
    } else {
        engine.modify_to_reset(qpn).expect("from anywhere");
    }
}

/// Writes and Reads both ways, and receives for nobody.
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

/// At any moment, with receives of its own and with shared ones.
#[test]
fn nothing_completes_that_was_posted_to_a_queue_pair_that_is_reset_or_destroyed() {
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
                let stats = pair.ends[0].engine.falcon_stats().expect("there is one");
                assert!(stats.is_idle, "{name}: what was held is back");
                assert_eq!(
                    pair.ends[0].srq.and_then(|srq| pair.ends[0].engine.objects().srq_level(srq)),
                    srq.map(|_| 50),
                    "{name}"
                );
            }
        }
    }
}

/// A completion queue that two share has room for what the one completes whose program goes on, and for no more.
#[test]
fn a_queue_pair_that_ends_fills_nobodys_completion_queue() {
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
            let state = pair.ends[0].engine.query_qp(other).expect("it is there").state;
            assert_eq!(state, QpState::ReadyToSend, "{name}");
            assert_eq!(pair.ends[0].engine.objects().cq_level(cq), Some((0, false)), "{name}");
        }
    }
}

/// Behind a hole that nobody fills any more, for the peer fails: what came early can only be refused, and so can what
/// still comes. Whether a Write or a Read was refused, late, when others had come.
#[test]
fn who_has_refused_a_request_keeps_nothing_that_comes_early() {
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

/// It has asked for data itself, which its peer, that has failed, never sends: nothing is held for it.
#[test]
fn who_has_refused_a_request_expects_nothing() {
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
