//! S-1, S-22: the dequeue rate over Falcon. It applies to the cut of work requests into transactions, before the
//! windows of the delivery layer (C13).

use rnic_base::{BitRate, Duration, Time};
use rnic_engine::{LimitSource, RATE_LIMIT_MIN, RateLimit, SendOp, WaitReason, WcStatus};

use crate::common::{BASE, DELIVERED, MTU, Pair, Setup};

/// Bytes of a full packet that the limiter charges.
const WIRE_BYTES: u64 = MTU as u64 + 78;

fn pair(end: usize, rate: BitRate) -> Pair {
    let mut pair = Pair::new(&Setup::new(&[]), |_| DELIVERED);
    let limit = RateLimit { rate, burst_bytes: None };
    let (now, side) = (pair.now, &mut pair.ends[end]);
    side.engine.set_rate_limit(now, side.qpn, LimitSource::Program, Some(limit)).expect("a valid limit");
    pair
}

fn assert_rate(pair: &Pair, end: usize, rate: BitRate) {
    let data = pair.log.iter().filter(|sent| sent.from == end && sent.packet.payload_len > 0);
    let times: Vec<Time> = data.map(|sent| sent.at).collect();
    // The burst at the beginning is not measured.
    let times = &times[3..];
    let elapsed = times[times.len() - 1].since(times[0]);
    let measured = BitRate::from_transfer(WIRE_BYTES * (times.len() as u64 - 1), elapsed);
    assert!(measured.as_bps().abs_diff(rate.as_bps()) * 50 <= rate.as_bps(), "{measured} instead of {rate}");
    assert!(pair.ends[end].engine.stats().waits[WaitReason::Dequeue as usize] > 0);
}

#[test]
fn s1_requests_over_falcon_keep_to_the_limit() {
    for megabits in [100, 1_000, 10_000] {
        let rate = BitRate::bps(megabits * 1_000_000);
        let mut pair = pair(0, rate);
        let remote = pair.remote(0, BASE);
        pair.ends[0].post(1, SendOp::Write { remote, immediate: None }, BASE, 100 * MTU);
        pair.run_for(Duration::from_ms(50));
        assert_eq!(pair.ends[0].take(), [(1, WcStatus::Success)], "{megabits}");
        assert_rate(&pair, 0, rate);
    }
}

#[test]
fn s22_responses_over_falcon_keep_to_the_limit() {
    let rate = BitRate::gbps(1);
    let mut pair = pair(1, rate);
    let remote = pair.remote(0, BASE);
    pair.ends[0].post(1, SendOp::Read { remote }, BASE, 100 * MTU);
    pair.run_for(Duration::from_ms(50));
    assert_eq!(pair.ends[0].take(), [(1, WcStatus::Success)]);
    assert_rate(&pair, 1, rate);
}

#[test]
fn s1_limits_over_falcon_change_at_any_time() {
    let mut pair = pair(0, RATE_LIMIT_MIN);
    let remote = pair.remote(0, BASE);
    pair.ends[0].post(1, SendOp::Write { remote, immediate: None }, BASE, 100 * MTU);
    pair.run_for(Duration::from_ms(100));
    assert_eq!(pair.ends[0].take(), []);
    let (now, side) = (pair.now, &mut pair.ends[0]);
    assert_eq!(side.engine.stats().packets_retransmitted, 0);
    side.engine.set_rate_limit(now, side.qpn, LimitSource::Program, None).expect("limits may be removed");
    pair.run_for(Duration::from_ms(1));
    assert_eq!(pair.ends[0].take(), [(1, WcStatus::Success)]);
}

/// A wait for the rate that ends when there is nothing to send any more keeps no timer expired.
#[test]
fn s1_a_wait_over_falcon_ends_although_the_queue_pair_stops_sending() {
    let mut pair = pair(0, RATE_LIMIT_MIN);
    let remote = pair.remote(0, BASE);
    for wr_id in 0..10 {
        pair.ends[0].post(wr_id, SendOp::Write { remote, immediate: None }, BASE, MTU);
    }
    pair.run_for(Duration::from_ms(1));
    let side = &mut pair.ends[0];
    side.engine.modify_to_sqd(side.qpn).expect("the queue pair sends");
    pair.run_for(Duration::from_ms(100));
    assert_eq!(pair.ends[0].take(), [(0, WcStatus::Success)]);
}
