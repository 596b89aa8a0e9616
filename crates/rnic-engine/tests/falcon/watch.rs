//! Counters that an observer sees of queue pairs and of the NIC that they share.

use rnic_base::{Duration, RandomStreams};
use rnic_engine::*;

use crate::common::{BASE, DELAY, DELIVERED, INBOX, LOST, MTU, Pair, Setup, bad};

/// Creates a pair that is observed at both ends; only queue pairs that are created after the observer was attached
/// are observed.
fn watched(options: &[(&str, &str)]) -> (Pair, [rnic_wire::Qpn; 2]) {
    let setup = Setup::new(options);
    let mut pair = Pair::new(&setup, |_| DELIVERED);
    pair.ends.iter_mut().for_each(|end| end.engine.watch());
    let numbers = pair.connect_another(&setup);
    (pair, numbers)
}

fn view(pair: &Pair, end: usize, qpn: rnic_wire::Qpn) -> QpSnapshot {
    pair.ends[end].engine.queue_pairs().find(|view| view.info.number == qpn).expect("it exists")
}

#[test]
fn windows_packets_in_flight_and_round_trips_are_reported_per_connection() {
    let (mut pair, [from, to]) = watched(&[("window_max", "20")]);
    assert_eq!(view(&pair, 0, from).round_trip, None, "a round trip is reported before the first measurement");
    let remote = pair.remote(0, INBOX);
    pair.ends[0].post_on(from, 1, SendOp::Write { remote, immediate: None }, BASE, 400 * MTU);
    pair.run_for(Duration::from_us(30));
    let busy = view(&pair, 0, from);
    assert!((1..=20).contains(&busy.in_flight) && busy.window <= 20, "{busy:?}");
    let measured = busy.round_trip.expect("responses have arrived");
    // Timestamps are multiples of 131.072 ns.
    assert!(measured + Duration::from_ns(132) >= DELAY * 2 && measured < DELAY * 4, "not twice the delay: {measured}");
    pair.run_for(Duration::from_ms(5));
    assert_eq!(pair.ends[0].take(), [(1, WcStatus::Success)]);
    assert_eq!((view(&pair, 0, from).in_flight, view(&pair, 1, to).traffic.packets_out_of_order), (0, 0));
}

/// Checks the counters with ordered and with weak ordering: out-of-order packets that are held until their turn, and
/// those that are executed immediately.
#[test]
fn out_of_order_packets_are_counted() {
    for options in [&[][..], &[("ordering", "weak")]] {
        let (mut pair, [from, to]) = watched(options);
        pair.set_fate(bad(RandomStreams::new(4).stream("wire"), 20, 0, 100));
        let remote = pair.remote(0, INBOX);
        pair.ends[0].post_on(from, 1, SendOp::Write { remote, immediate: None }, BASE, 400 * MTU);
        pair.run_for(Duration::from_ms(500));
        assert_eq!(pair.ends[0].take(), [(1, WcStatus::Success)]);
        let (receiver, engine) = (view(&pair, 1, to).traffic, pair.ends[1].engine.stats().packets_out_of_order);
        assert!(receiver.packets_out_of_order > 0 && receiver.packets_out_of_order < 400, "{options:?}: {receiver:?}");
        assert_eq!(receiver.packets_out_of_order, engine, "{options:?}: the engine counts differ");
        assert_eq!(view(&pair, 0, from).traffic.packets_out_of_order, 0, "{options:?}: early responses");
    }
}

#[test]
fn f34_nacks_are_counted_by_their_receiver() {
    let (mut pair, [from, _]) = watched(&[("errors", "complete-in-error")]);
    let nobody = RemoteMemory { addr: BASE, rkey: 0xdead_0000 };
    for (wr_id, remote) in [(1, nobody), (2, pair.remote(0, INBOX))] {
        pair.ends[0].post_on(from, wr_id, SendOp::Write { remote, immediate: None }, BASE, MTU);
    }
    pair.run_for(Duration::from_ms(20));
    assert_eq!(pair.ends[0].take(), [(1, WcStatus::RemoteAccess), (2, WcStatus::Success)]);
    assert_eq!((view(&pair, 0, from).info.stats.nacks, pair.ends[0].engine.stats().nacks), (1, 1));
    assert_eq!(pair.ends[1].engine.stats().nacks, 0);
    // A receiver that is not ready is counted separately.
    pair.ends[0].post_on(from, 3, SendOp::Send { immediate: None }, BASE, MTU);
    pair.run_for(Duration::from_ms(1));
    let stats = view(&pair, 0, from).info.stats;
    assert!((stats.nacks, stats.rnr_naks > 0) == (1, true), "{stats:?}");
}

/// Checks that contexts and buffers each have a high-water mark, and that the counters of destroyed connections are
/// still included.
#[test]
fn f31_the_nic_counts_contexts_and_buffers_in_use() {
    let (mut pair, [from, _]) = watched(&[]);
    let fullest = |pair: &Pair, end: usize| pair.ends[end].engine.falcon_stats().expect("Falcon is in use").fullest;
    assert_eq!((fullest(&pair, 0).packets, fullest(&pair, 0).buffers), (0, 0));
    let remote = pair.remote(0, INBOX);
    pair.ends[0].post_on(from, 1, SendOp::Write { remote, immediate: None }, BASE, 200 * MTU);
    pair.run_for(Duration::from_ms(5));
    let long = fullest(&pair, 0);
    // 200 of 5775 contexts; a Push that waits to be sent takes one buffer, of which there are as many.
    assert_eq!((long.packets, long.buffers), (34, 34), "not 34 thousandths");
    pair.ends[0].post_on(from, 2, SendOp::Write { remote, immediate: None }, BASE, MTU);
    pair.run_for(Duration::from_ms(5));
    assert_eq!(fullest(&pair, 0), long, "the high-water mark has fallen");
    pair.set_fate(|_| LOST);
    pair.ends[0].post_on(from, 3, SendOp::Write { remote, immediate: None }, BASE, MTU);
    pair.run_for(Duration::from_ms(2));
    let before = pair.ends[0].engine.falcon_stats().expect("Falcon is in use").delivery;
    assert!(before.first_transmissions > 200 && before.probes > 0 && before.timeouts > 0, "{before:?}");
    pair.ends[0].engine.destroy_qp(from).expect("it exists");
    assert_eq!(pair.ends[0].engine.falcon_stats().expect("Falcon is in use").delivery, before);
}
