//! S-19, S-22: schedulers that set rates over Falcon, for requests and for responses.

use rnic_base::{BitRate, Duration, Time};
use rnic_engine::{SendOp, WcStatus};
use rnic_wire::Qpn;

use crate::common::{BASE, DELIVERED, MTU, Pair, Setup};

/// Rate that the queue pairs of an engine may use in total.
const CAPACITY: BitRate = BitRate::gbps(4);

/// Returns two connections, whose queue pairs at `end` have weights 1 and 3 and share `CAPACITY`.
fn sharing(schedule: &str, end: usize) -> (Pair, [Qpn; 2], [Qpn; 2]) {
    let setup = Setup::new(&[("schedule", schedule)]);
    let mut pair = Pair::new(&setup, |_| DELIVERED);
    let first = [pair.ends[0].qpn, pair.ends[1].qpn];
    let second = pair.connect_another(&setup);
    let engine = &mut pair.ends[end].engine;
    engine.sharing().set_capacity(Some(CAPACITY));
    engine.sharing().set_weight(Time::ZERO, second[end], 3).expect("a valid weight");
    (pair, first, second)
}

/// Returns the payload bytes that each of two queue pairs at `end` sent from `begin` on.
fn bytes(pair: &Pair, end: usize, qpns: [Qpn; 2], begin: Time) -> [u64; 2] {
    let data = || pair.log.iter().filter(|sent| sent.from == end && sent.at >= begin);
    qpns.map(|qpn| data().filter(|sent| sent.qpn == qpn).map(|sent| u64::from(sent.packet.payload_len)).sum())
}

#[test]
fn s19_requests_over_falcon_share_by_weight() {
    for schedule in ["static", "water-filling"] {
        let (mut pair, first, second) = sharing(schedule, 0);
        let qpns = [first[0], second[0]];
        for (qpn, wr_id) in qpns.into_iter().flat_map(|qpn| (0..8).map(move |wr_id| (qpn, wr_id))) {
            let remote = pair.remote(0, BASE);
            pair.ends[0].post_on(qpn, wr_id, SendOp::Write { remote, immediate: None }, BASE, 100 * MTU);
        }
        pair.run_for(Duration::from_us(500));
        let begin = pair.now;
        pair.run_for(Duration::from_ms(1));
        let [one, three] = bytes(&pair, 0, qpns, begin);
        assert!((27 * one / 10..=33 * one / 10).contains(&three), "{schedule}: {one} and {three}");
        let total = CAPACITY.bytes_in(Duration::from_ms(1));
        assert!((one + three) * 10 >= total * 8, "{schedule}: {one} and {three} of {total}");
        assert_eq!(pair.ends[0].engine.shares().weights, 4);
        pair.run_for(Duration::from_ms(50));
        assert!(pair.ends[0].take().iter().all(|(_, status)| *status == WcStatus::Success));
        assert_eq!(pair.ends[0].engine.shares().members, 0, "{schedule}: idle queue pairs leave");
    }
}

#[test]
fn s22_responses_over_falcon_share_by_weight() {
    let (mut pair, first, second) = sharing("water-filling", 1);
    for (qpn, wr_id) in [first[0], second[0]].into_iter().flat_map(|qpn| (0..8).map(move |wr_id| (qpn, wr_id))) {
        let remote = pair.remote(0, BASE);
        pair.ends[0].post_on(qpn, wr_id, SendOp::Read { remote }, BASE, 100 * MTU);
    }
    pair.run_for(Duration::from_us(500));
    let begin = pair.now;
    pair.run_for(Duration::from_ms(1));
    let [one, three] = bytes(&pair, 1, [first[1], second[1]], begin);
    assert!((27 * one / 10..=33 * one / 10).contains(&three), "{one} and {three}");
}
