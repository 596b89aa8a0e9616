//! Tests of the individual parts of the NIC model.

use rnic_base::RandomStreams;
use rnic_wire::Qpn;

use super::*;
use crate::plan::{BusPlan, WorkFetch};

const PLAN: BusPlan = BusPlan { latency: Duration::from_ns(1_200), reads: 4, rate: BitRate::gbps(8) };

fn bus() -> Bus {
    Bus::new(&PLAN)
}

fn ns(ns: u64) -> Time {
    Time::from_ns(ns)
}

/// The bus has 8 Gbit/s, which is one byte per nanosecond.
#[test]
fn reads_overlap_up_to_a_limit_and_share_the_bus_rate() {
    let mut bus = bus();
    let answers: Vec<Time> = (0..6).map(|_| bus.read(ns(0), 76)).collect();
    // Each read transfers 76 bytes and a header of 24, one after another; the fifth read is requested when the first
    // has completed.
    assert_eq!(answers[..4], [ns(1_300), ns(1_400), ns(1_500), ns(1_600)]);
    assert_eq!(answers[4..], [ns(2_600), ns(2_700)]);
    assert_eq!(bus.read(ns(10_000), 512), ns(11_200 + 512 + 48), "two transactions");
}

#[test]
fn writes_wait_for_earlier_writes_but_not_for_reads() {
    let mut bus = bus();
    bus.read(ns(0), 10_000);
    bus.write(ns(0), 1_000);
    assert_eq!(bus.written(), ns(1_000 + 4 * 24));
    bus.write(ns(5_000), 100);
    assert_eq!(bus.written(), ns(5_124));
}

/// The latency is that of a read behind those that wait; the utilisation is that of the busier direction.
#[test]
fn s23_the_load_of_a_bus_is_its_latency_and_utilisation() {
    let mut bus = bus();
    assert_eq!((bus.latency(ns(0)), bus.utilisation(ns(0))), (PLAN.latency, 0));
    bus.read(ns(0), 10_240);
    // 40 transactions of 280 bytes.
    assert_eq!(bus.latency(ns(0)), Duration::from_ns(1_200 + 11_200));
    assert_eq!(bus.latency(ns(11_500)), PLAN.latency);
    bus.write(ns(0), 2_560);
    assert_eq!(bus.utilisation(ns(9_000)), 0, "in less than 10 us");
    assert_eq!(bus.utilisation(ns(22_400)), 1 << 15, "11,200 of 22,400 ns");
    assert_eq!(bus.utilisation(ns(30_000)), 1 << 15, "until 10 us have passed");
    assert_eq!(bus.utilisation(ns(33_000)), 0);
}

fn contexts(capacity: u32) -> Cache {
    Cache::new(Some(capacity), 276, RandomStreams::new(1).stream("nic/test"))
}

/// Accesses all queue pairs in cyclic order, many times; returns the share of misses in the last rounds.
fn miss_share(capacity: u32, queue_pairs: u32) -> f64 {
    let (mut contexts, mut bus) = (contexts(capacity), bus());
    let mut missed = 0;
    for round in 0..40u64 {
        let before = contexts.misses;
        for qpn in 0..queue_pairs {
            contexts.access(Time::from_us(round * 1_000), 2 + qpn, &mut bus);
        }
        missed += if round < 20 { 0 } else { contexts.misses - before };
    }
    missed as f64 / f64::from(20 * queue_pairs)
}

/// R-R6: there are no misses while all contexts fit. With more queue pairs, misses start immediately and increase
/// with their number, but even a cyclic order does not make every access miss.
#[test]
fn misses_start_when_contexts_no_longer_fit_into_the_cache() {
    assert_eq!(miss_share(200, 200), 0.0);
    let shares: Vec<f64> = [210, 300, 420, 1_000].map(|queue_pairs| miss_share(200, queue_pairs)).into();
    assert!(shares.is_sorted(), "{shares:?}");
    assert!(shares[0] > 0.02 && shares[0] < 0.3, "{shares:?}");
    // In equilibrium a context survives n accesses with probability exp(-m n / c): 1 - m = exp(-2.1 m), m = 0.83.
    assert!((0.79..0.87).contains(&shares[2]), "{shares:?}");
}

#[test]
fn requests_for_a_context_that_is_being_read_share_the_read() {
    let (mut contexts, mut bus) = (contexts(2), bus());
    let available = contexts.access(ns(0), 7, &mut bus);
    assert_eq!(available, ns(1_200 + 276 + 48));
    assert_eq!(contexts.access(ns(500), 7, &mut bus), available);
    assert_eq!(contexts.access(ns(9_000), 7, &mut bus), ns(9_000));
    assert_eq!((contexts.hits, contexts.misses), (2, 1));
    assert_eq!(bus.written(), Time::ZERO, "a context was written back");
    contexts.access(ns(9_000), 8, &mut bus);
    contexts.access(ns(9_000), 9, &mut bus);
    assert_eq!(bus.written(), ns(9_000 + 276 + 48), "no context was written back");
    contexts.forget(9);
    assert!(contexts.access(ns(20_000), 9, &mut bus) > ns(21_000), "the context was not removed");
}

/// F-38: a context evicted from the chip is read from the second level, not over the bus; one evicted from both
/// levels is read over the bus again.
#[test]
fn f38_a_context_evicted_from_the_chip_is_read_from_the_second_level() {
    let stream = RandomStreams::new(1).stream("nic/test");
    let (mut contexts, mut bus) =
        (Cache::new(Some(1), 276, stream).with_second(Some((2, Duration::from_ns(60)))), bus());
    let over_the_bus = 1_200 + 276 + 48;
    assert_eq!(contexts.access(ns(0), 7, &mut bus), ns(over_the_bus));
    contexts.access(ns(10_000), 8, &mut bus);
    assert_eq!(contexts.access(ns(20_000), 7, &mut bus), ns(20_060), "not a read from the second level");
    assert_eq!((contexts.hits, contexts.second_hits, contexts.misses), (0, 1, 2));
    assert_eq!(bus.written(), Time::ZERO, "a context was written back although both are on the NIC");
    contexts.access(ns(30_000), 9, &mut bus);
    assert!(bus.written() > ns(30_000), "none of three contexts was written back");
    let again = [7, 8, 9].map(|qpn| contexts.access(ns(50_000), qpn, &mut bus));
    assert!(again.iter().any(|at| *at >= ns(50_000 + over_the_bus)), "{again:?}");
    contexts.forget(9);
    assert!(
        contexts.access(ns(90_000), 9, &mut bus) >= ns(90_000 + over_the_bus),
        "the context was not removed from both levels"
    );
}

/// A read that follows another is one latency later than it; what is on the chip costs nothing. Translations are not
/// written back.
#[test]
fn reads_that_follow_one_another_add_their_latencies() {
    let stream = RandomStreams::new(1).stream("nic/test");
    let (mut translations, mut bus) = (Cache::new(Some(1), 76, stream).clean(), bus());
    let first = translations.access_after(ns(0), ns(1_000), 7, &mut bus);
    assert_eq!(first, ns(1_000 + 1_300));
    assert_eq!(translations.access_after(ns(100), ns(500), 7, &mut bus), first, "the same read");
    assert_eq!(translations.access_after(ns(5_000), ns(6_000), 7, &mut bus), ns(6_000));
    translations.access(ns(7_000), 8, &mut bus);
    assert_eq!((translations.hits, translations.misses, bus.written()), (2, 2, Time::ZERO));
    let mut unbounded = Cache::new(None, 76, RandomStreams::new(1).stream("nic/test"));
    assert_eq!(unbounded.access_after(ns(0), ns(700), 7, &mut bus), ns(700));
}

/// A context that the second level was to provide at a given time, and that was then evicted from the NIC and read
/// over the bus again, is not available before that time: packets of a connection stay in order.
#[test]
fn a_context_read_again_is_not_available_earlier_than_predicted() {
    let plan = BusPlan { rate: BitRate::gbps(126), reads: 256, ..PLAN };
    let stream = RandomStreams::new(1).stream("nic/test");
    let (mut contexts, mut bus) =
        (Cache::new(Some(1), 276, stream).with_second(Some((2, Duration::from_ns(1_000)))), Bus::new(&plan));
    contexts.access(ns(0), 7, &mut bus);
    contexts.access(ns(0), 8, &mut bus);
    let promised = contexts.access(ns(0), 7, &mut bus);
    assert_eq!(contexts.second_hits, 1);
    (9..40).for_each(|qpn| _ = contexts.access(ns(0), qpn, &mut bus));
    let misses = contexts.misses;
    let again = contexts.access(ns(10), 7, &mut bus);
    assert_eq!((contexts.misses, again), (misses + 1, promised));
}

/// R-22, R-R9: eight work requests per bus latency, and no more.
#[test]
fn r22_a_queue_of_small_messages_gets_one_batch_per_bus_latency() {
    let plan = BusPlan { rate: BitRate::gbps(126), ..PLAN };
    let (mut bus, mut work) = (Bus::new(&plan), WorkQueues::new(WorkFetch::OnDemand { batch: 8 }));
    let qpn = Qpn::new(3);
    (0..800).for_each(|_| work.posted(qpn));
    let mut now = Time::ZERO;
    (0..800).for_each(|_| now = work.take(now, qpn, &mut bus));
    assert_eq!(work.fetches, 100);
    let mops = 800.0 / now.since(Time::ZERO).as_us_f64();
    assert!((6.3..6.8).contains(&mops), "{mops} million a second; the paper has 6.2, and derives 6.8");
}

/// R-R9: the engine consumes small requests before they have been fetched, as they are posted; those that are posted
/// while an earlier batch is read are read together.
#[test]
fn r22_requests_posted_during_a_read_are_read_together() {
    let plan = BusPlan { rate: BitRate::gbps(126), reads: 256, ..PLAN };
    let (mut bus, mut work) = (Bus::new(&plan), WorkQueues::new(WorkFetch::OnDemand { batch: 8 }));
    let qpn = Qpn::new(3);
    let post = |request: u64| {
        let now = ns(request * 160);
        work.posted(qpn);
        work.take(now, qpn, &mut bus).since(now)
    };
    let waits: Vec<Duration> = (0..400).map(post).collect();
    let most = waits.iter().max().copied().unwrap_or_default();
    assert!(most < ns(2_600).since(Time::ZERO), "a request waits for {most}, longer than two reads");
    assert!((50..=60).contains(&work.fetches), "{} reads of 400 requests", work.fetches);
}

/// A queue with one request at a time waits for each fetch; requests fetched in advance do not wait.
#[test]
fn only_requests_fetched_on_demand_wait_for_their_fetch() {
    let (mut bus, mut work) = (bus(), WorkQueues::new(WorkFetch::OnDemand { batch: 8 }));
    for at in [0, 10_000, 20_000] {
        work.posted(Qpn::new(3));
        assert_eq!(work.take(ns(at), Qpn::new(3), &mut bus), ns(at + 1_200 + 64 + 24));
    }
    let mut prefetching = WorkQueues::new(WorkFetch::Ahead);
    prefetching.posted(Qpn::new(3));
    assert_eq!(prefetching.take(ns(50_000), Qpn::new(3), &mut bus), ns(50_000));
}

/// Memory accepts a quarter of the bus's rate from 10 us on.
#[test]
fn slow_memory_accepts_writes_below_the_bus_rate() {
    let mut bus = bus();
    let (from, until) = (Time::from_us(10), None);
    bus.slow = Some(SlowHostPlan { hosts: "*".to_owned(), rate: BitRate::gbps(2), from, until, every: None });
    bus.write(ns(0), 1_000);
    assert_eq!(bus.written(), ns(1_000 + 4 * 24));
    bus.write(ns(10_000), 1_000);
    assert_eq!(bus.written(), ns(10_000 + 4_000));
}
