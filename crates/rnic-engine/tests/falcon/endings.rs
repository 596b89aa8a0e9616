//! What is posted to a queue pair that is reset or destroyed is forgotten, whatever is under way: nobody hears of it.

use rnic_base::Duration;
use rnic_engine::*;

use crate::common::{BASE, DELIVERED, INBOX, MTU, Pair, Setup};

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
                assert_eq!(pair.ends[0].engine.poll_event(), None, "{name}");
                let stats = pair.ends[0].engine.falcon_stats().expect("there is one");
                assert!(stats.is_idle, "{name}: what was held is back");
                assert_eq!(
                    pair.ends[0].srq.and_then(|srq| pair.ends[0].engine.srq_level(srq)),
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
            pair.ends[0].engine.resize_cq(cq, 16).expect("a legal size");
            busy(&mut pair);
            pair.run_for(Duration::from_us(8));
            end(&mut pair.ends[0].engine, qpn, destroys);
            let remote = pair.remote(0, INBOX);
            pair.ends[0].post_on(other, 1, SendOp::Write { remote, immediate: None }, BASE, MTU);
            pair.run_for(Duration::from_us(100));
            assert_eq!(pair.ends[0].engine.poll_event(), None, "{name}");
            let state = pair.ends[0].engine.query_qp(other).expect("it is there").state;
            assert_eq!(state, QpState::ReadyToSend, "{name}");
            assert_eq!(pair.ends[0].engine.cq_level(cq), Some((0, false)), "{name}");
        }
    }
}
