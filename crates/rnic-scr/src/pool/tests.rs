//! Timing by hand, order, granularity, conservation.

use rnic_base::RandomStreams;

use super::*;
use crate::steering::HostThreads;

const LINE: BitRate = BitRate::gbps(100);
/// A packet of 1024 bytes on the wire, with its headers.
const PACKET: u64 = 1_102;

fn config(in_band: u16) -> PoolConfig {
    let sizes = PoolSizes { in_band, out_of_band: 1, host: HostThreads::Shared(1) };
    PoolConfig { sizes, ..PoolConfig::figures(LINE) }
}

fn pool(config: &PoolConfig, flows: u64) -> Pool {
    let mut pool = Pool::new(config).expect("it is valid");
    (0..flows).for_each(|identity| assert_eq!(pool.join(identity), Some(identity as u32)));
    pool
}

fn tx(flow: u32, ns: u64) -> Signal {
    Signal::new(Kind::Tx, flow, Time::from_ns(ns)).with_bytes(PACKET)
}

/// Pushes `record` at the time of its last signal.
fn push(pool: &mut Pool, record: &Signal) {
    pool.push(record.last, record).expect("the flow has joined");
}

/// Polls as a driver does, at each time that the pool requests, up to `end`.
fn run(pool: &mut Pool, end: Time, mut decide: impl FnMut(&Dispatch) -> u32) {
    while let Some(at) = pool.next_at().filter(|at| *at <= end) {
        while let Some(dispatch) = pool.poll(at) {
            let rate = decide(&dispatch);
            pool.on_decision(&dispatch, rate);
        }
    }
}

fn dispatches(pool: &mut Pool, end: Time) -> Vec<Dispatch> {
    let mut all = Vec::new();
    run(pool, end, |dispatch| {
        all.push(*dispatch);
        1
    });
    all
}

/// Sends packets of `flows` flows in turn at line rate for `span`, and returns the pool.
fn at_line_rate(config: &PoolConfig, flows: u64, span: Duration) -> Pool {
    let mut pool = pool(config, flows);
    let gap = LINE.serialize(PACKET);
    let packets = span.as_ps() / gap.as_ps();
    for number in 0..packets {
        let at = Time::ZERO + gap * number;
        run(&mut pool, at, |_| 1_000);
        let record = Signal::new(Kind::Tx, (number % flows) as u32, at).with_bytes(PACKET);
        pool.push(at, &record).expect("the flow has joined");
    }
    pool
}

#[test]
fn s13_a_handler_runs_to_its_end_and_a_busy_thread_takes_the_next_record_at_once() {
    let mut pool = pool(&config(1), 3);
    push(&mut pool, &tx(0, 0));
    push(&mut pool, &tx(0, 1_000));
    push(&mut pool, &tx(1, 8_000));
    let us = |dispatch: &Dispatch| {
        [dispatch.started_at, dispatch.decided_at, dispatch.installs_at].map(|at| at.as_ps() / 1_000_000)
    };
    let all = dispatches(&mut pool, Time::from_us(100));
    assert_eq!(all.iter().map(us).collect::<Vec<_>>(), [[7, 11, 17], [11, 15, 21]]);
    assert_eq!(all.iter().map(|one| (one.record.subject, one.record.count)).collect::<Vec<_>>(), [(0, 2), (1, 1)]);
    // Idle again: the trigger counts.
    push(&mut pool, &tx(2, 50_000));
    assert_eq!(dispatches(&mut pool, Time::from_us(100)).iter().map(us).collect::<Vec<_>>(), [[57, 61, 67]]);
    assert_eq!(pool.busy().next(), Some(Duration::from_us(12)));
}

#[test]
fn s13_queues_of_a_thread_are_served_in_cyclic_order() {
    let mut pool = pool(&config(1).with_strategy(Kind::Tx, Strategy::None), 3);
    for ns in 0..4 {
        (0..3).for_each(|flow| push(&mut pool, &tx(flow, ns)));
    }
    push(&mut pool, &Signal::new(Kind::Cnp, 0, Time::from_ns(5)));
    let all = dispatches(&mut pool, Time::from_us(100));
    let order: Vec<_> = all.iter().map(|one| (one.record.subject, one.record.kind.name())).collect();
    let round = [(1, "tx"), (2, "tx"), (0, "cnp"), (0, "tx")];
    let rest = [(1, "tx"), (2, "tx"), (0, "tx")];
    assert_eq!(order, [&round[..], &rest, &rest, &rest].concat());
}

#[test]
fn s12_all_threads_exist_from_the_start() {
    let mut pool = pool(&PoolConfig::figures(LINE), 300);
    assert_eq!(pool.busy().count(), 104);
    (0..300).for_each(|flow| push(&mut pool, &tx(flow, u64::from(flow))));
    dispatches(&mut pool, Time::from_us(1_000));
    assert_eq!((pool.busy().count(), pool.waiting()), (104, 0));
}

/// Random records of flows and nodes, in the order of time; several have the same time.
fn random_records(seed: u64, count: usize, flows: u64) -> Vec<Signal> {
    let mut random = RandomStreams::new(seed).stream("records");
    let mut at = Time::ZERO;
    (0..count)
        .map(|_| {
            at += Duration::from_ns(random.below(3) * 400);
            let kind = Kind::ALL[random.below(12) as usize];
            let subject = random.below(flows) as u32;
            Signal::new(kind, subject, at).with_bytes(random.below(5_000)).with_value(random.bits(), subject)
        })
        .collect()
}

/// Returns the dispatches of each thread for `records`.
fn by_thread(config: &PoolConfig, records: &[Signal]) -> Vec<Vec<Dispatch>> {
    let mut pool = pool(config, 20);
    let mut threads = vec![Vec::new(); pool.steering().threads()];
    let mut note = |dispatch: &Dispatch| {
        threads[dispatch.thread].push(*dispatch);
        1_000 + dispatch.record.subject
    };
    for record in records {
        run(&mut pool, record.last, &mut note);
        push(&mut pool, record);
    }
    run(&mut pool, Time::from_us(1_000_000), &mut note);
    threads
}

#[test]
fn s13_equal_order_of_input_per_thread_gives_equal_output() {
    let waiting = config(4).with_strategy(Kind::Tx, Strategy::WhileStable);
    for (seed, config) in (1..6).flat_map(|seed| [(seed, config(4)), (seed, waiting), (seed, config(1))]) {
        let records = random_records(seed, 4_000, 20);
        let expected = by_thread(&config, &records);
        assert_eq!(by_thread(&config, &records), expected);
        // Records of the same time in another order, but that of each thread: stable, by the reverse of threads.
        let steering = pool(&config, 20).steering;
        let thread = |record: &Signal| steering.thread(record.subject, record.kind).expect("it is known");
        let mut other = records.clone();
        other.sort_by_key(|record| (record.last, Reverse(thread(record))));
        assert_ne!(other, records);
        assert_eq!(by_thread(&config, &other), expected);
    }
}

#[test]
fn s13_dispatches_are_polled_in_the_order_of_time_and_threads() {
    let mut pool = pool(&config(8), 8);
    (0..8).rev().for_each(|flow| push(&mut pool, &tx(flow, 0)));
    let all = dispatches(&mut pool, Time::from_us(100));
    assert!(all.is_sorted_by_key(|dispatch| (dispatch.decided_at, dispatch.thread)));
    assert_eq!(all.len(), 8);
}

#[test]
fn s11_no_strategy_loses_bytes_or_signals() {
    for (seed, strategy) in (1..4).flat_map(|seed| {
        [Strategy::None, Strategy::Accumulate, Strategy::Latest, Strategy::Oldest, Strategy::WhileStable]
            .map(|strategy| (seed, strategy))
    }) {
        let config = PoolConfig { strategies: [strategy; Kind::COUNT], ..config(2) };
        let records = random_records(seed, 20_000, 20);
        let mut pool = pool(&config, 20);
        let mut processed = [(0, 0); Kind::COUNT];
        let mut decide = |dispatch: &Dispatch| {
            let (signals, bytes) = &mut processed[dispatch.record.kind.index()];
            *signals += u64::from(dispatch.record.count);
            *bytes += dispatch.record.bytes;
            7
        };
        for record in &records {
            run(&mut pool, record.last, &mut decide);
            push(&mut pool, record);
        }
        run(&mut pool, Time::from_us(1_000_000), &mut decide);
        let folded_at_the_end = if strategy == Strategy::WhileStable { 15 * 20 } else { 0 };
        for kind in Kind::ALL {
            let pushed = records.iter().filter(|record| record.kind == kind);
            let (signals, bytes) = (pushed.clone().count() as u64, pushed.map(|record| record.bytes).sum());
            let counters = *pool.counters().of(kind);
            assert_eq!((counters.pushed, counters.bytes), (signals, bytes), "threads have taken all");
            let (processed, _) = processed[kind.index()];
            assert!((signals - folded_at_the_end.min(signals)..=signals).contains(&processed));
        }
        // Folded signals that were not processed are removed with their flow.
        (0..20).for_each(|flow| pool.forget(flow));
        for kind in Kind::ALL.into_iter().filter(|kind| kind.scope() == Scope::Flow) {
            let counters = pool.counters().of(kind);
            assert_eq!(processed[kind.index()].0 + counters.forgotten, counters.pushed, "{strategy:?} {kind}");
        }
    }
}

#[test]
fn s10_kinds_and_flows_do_not_mix() {
    let mut pool = pool(&config(2), 20);
    for record in random_records(3, 20_000, 20) {
        // Every value tells its queue.
        let value = u64::from(record.subject) << 8 | record.kind.index() as u64;
        push(&mut pool, &record.with_value(value, 0));
    }
    for dispatch in dispatches(&mut pool, Time::from_us(1_000_000)) {
        let record = dispatch.record;
        assert_eq!(record.value, u64::from(record.subject) << 8 | record.kind.index() as u64);
    }
}

#[test]
fn s10_idle_flows_use_little_memory() {
    let mut pool = pool(&PoolConfig::figures(LINE), 1_024);
    assert_eq!(pool.memory(), 0, "queues are made at their first record");
    let kinds = [Kind::Tx, Kind::Rx, Kind::Cnp, Kind::Ack, Kind::Nack];
    for (number, (flow, kind)) in (0..1_024).flat_map(|flow| kinds.map(|kind| (flow, kind))).enumerate() {
        let at = Time::from_us(number as u64);
        run(&mut pool, at, |_| 1);
        push(&mut pool, &Signal::new(kind, flow, at));
    }
    // 5 x 1024 x 64 records of 64 bytes would be 21 MB.
    assert!(pool.memory() < 512 << 10, "{} bytes", pool.memory());
    (0..1_024).for_each(|flow| pool.forget(flow));
    let before = pool.memory();
    (0..1_024).for_each(|flow| assert_eq!(pool.join(9), Some(flow)));
    for flow in 0..1_024 {
        push(&mut pool, &tx(flow, 6_000_000));
        pool.forget(flow);
    }
    assert!(pool.memory() <= before + 64 * 64, "queues of flows that left are used again");
}

#[test]
fn s10_a_flow_that_left_is_dispatched_no_more() {
    let mut pool = pool(&config(1), 2);
    assert_eq!(
        pool.push(Time::ZERO, &tx(2, 0)).map_err(|error| error.to_string()),
        Err("no flow or node has number 2 (signal `tx`): join it, or number nodes below 4096".to_owned(),)
    );
    // Queued, running and decided.
    for forgotten_at in [3, 9, 11] {
        let start = pool.now;
        push(&mut pool, &tx(0, start.as_ps() / 1_000));
        push(&mut pool, &tx(1, start.as_ps() / 1_000));
        let at = start + Duration::from_us(forgotten_at);
        pool.advance(at);
        pool.forget(0);
        assert_eq!(pool.join(77), Some(0), "its number is free");
        let all = dispatches(&mut pool, at + Duration::from_us(100));
        assert_eq!(all.iter().map(|one| one.record.subject).collect::<Vec<_>>(), [1], "{forgotten_at}");
    }
    assert_eq!(pool.counters().of(Kind::Tx).forgotten, 3);
    assert_eq!(pool.counters().refused, 1);
}

#[test]
fn s15_the_bytes_of_an_event_do_not_grow_with_the_number_of_flows() {
    let mut table = Vec::new();
    for flows in [16, 17, 24, 32, 64, 100, 256, 1_024] {
        let pool = at_line_rate(&config(16), flows, Duration::from_ms(6));
        let counters = *pool.counters().of(Kind::Tx);
        table.push((flows, counters.bytes_per_event()));
    }
    // 12.5 GB/s x 4 us / 16 threads.
    for (flows, bytes) in &table {
        assert!((2_813..=3_437).contains(bytes), "{flows} flows: {bytes} of 3125 bytes; {table:?}");
    }
}

#[test]
fn s15_below_the_number_of_threads_events_grow_with_the_share_of_a_flow() {
    for (flows, expected) in [(1, 50_000), (2, 25_000), (4, 12_500), (8, 6_250)] {
        let pool = at_line_rate(&config(16), flows, Duration::from_ms(6));
        let bytes = pool.counters().of(Kind::Tx).bytes_per_event();
        assert!(bytes.abs_diff(expected) * 10 <= expected, "{flows} flows: {bytes} of {expected} bytes");
    }
}

#[test]
fn s15_an_event_is_never_less_than_a_packet_and_follows_the_number_of_threads() {
    for (threads, expected) in [(4, 12_500), (8, 6_250), (16, 3_125)] {
        let pool = at_line_rate(&config(threads), 256, Duration::from_ms(6));
        let bytes = pool.counters().of(Kind::Tx).bytes_per_event();
        assert!(bytes.abs_diff(expected) * 10 <= expected, "{threads} threads: {bytes} of {expected} bytes");
    }
    let pool = at_line_rate(&config(64), 256, Duration::from_ms(6));
    let bytes = pool.counters().of(Kind::Tx).bytes_per_event();
    assert!((PACKET..2 * PACKET).contains(&bytes), "64 threads can process every packet: {bytes}");
}

#[test]
fn s15_every_byte_of_the_line_is_processed() {
    let span = Duration::from_ms(6);
    let pool = at_line_rate(&config(16), 256, span);
    let counters = pool.counters().of(Kind::Tx);
    let sent = LINE.bytes_in(span);
    assert!(counters.bytes * 100 >= sent * 99, "{} of {sent} bytes", counters.bytes);
}

#[test]
fn s11_waiting_while_rates_are_stable_raises_the_rate_of_events_until_threads_are_idle() {
    // A flow per thread. With more, a flow's records are further apart, and the bound of 100 us ends the waiting
    // before 15 are folded.
    let gain = |threads: u16| {
        let rate = |strategy| {
            let config = config(threads).with_strategy(Kind::Tx, strategy);
            at_line_rate(&config, threads.into(), Duration::from_ms(6)).counters().of(Kind::Tx).events
        };
        rate(Strategy::WhileStable) as f64 / rate(Strategy::Accumulate) as f64 * 100.0 - 100.0
    };
    let gains = [4, 8, 16, 32, 64].map(gain);
    assert!((41.0..61.0).contains(&gains[0]), "SCR: 51 % on four threads; {gains:?}");
    assert!(gains.is_sorted_by(|fewer, more| *more <= fewer + 1.0), "it falls with the number of threads: {gains:?}");
    assert!(gains[4].abs() < 1.0, "threads wait for packets: {gains:?}");
}
