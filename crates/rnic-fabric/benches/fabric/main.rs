//! Packet-hops per second on one core, compared with a bare event loop.
//!
//! * `k8_permutation/*`: `plans/k8-permutation.toml`, 128 hosts each sending 10 MB to one other at 100 Gbit/s, with
//!   real engines at the ends. A hop is a packet on a link; acknowledgements count, pause frames do not. With IRN and
//!   Falcon also with 64 connections a host.
//! * `event_loop`: the same network and the same number of packets without engines, buffers or trace: the lower bound
//!   of the cost.
//!
//! The summary at the end measures all of them in turns, takes the fastest run of each, and gives the ratio to the
//! lower bound. The Falcon case with 64 connections is also measured as one run split over two threads, and as two
//! independent runs at once, one per thread; the second is the upper limit for the first.
//!
//! Queues and rates of all links and hosts are recorded at 10 us in two more cases, which are compared with the same
//! run without a recording.
//!
//! Run `cargo bench -p rnic-fabric`; add `-- --quick` for a short run.
#![expect(clippy::disallowed_types, reason = "a benchmark reads the clock")]
#![expect(clippy::disallowed_methods, reason = "a recording is written by a second thread, as in the command")]

mod floor;
mod recorded;

use core::ops::ControlFlow;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group};
use mimalloc::MiMalloc;
use rayon::ThreadPool;
use rayon::iter::{IndexedParallelIterator, IntoParallelRefMutIterator, ParallelIterator};
use rnic_fabric::simulation::{Part, PartRunner};
use rnic_fabric::{Plan, Simulation};

/// Same allocator as in the `rnic` command.
#[global_allocator]
static HEAP: MiMalloc = MiMalloc;

const PLAN: &str = include_str!("../../../../plans/k8-permutation.toml");

/// Name of a case, and the values of the plan that it replaces.
type Case = (&'static str, &'static [(&'static str, &'static str)]);

const ROCE: (&str, &str) = ("transport", "{ name = \"roce-gbn\", rto = \"0\" }");
const PFC: (&str, &str) = ("switch.pfc.enabled", "true");
const MTU_1024: (&str, &str) = ("mtu", "1024");

const FALCON: (&str, &str) = ("transport", "{ name = \"falcon\" }");
/// 64 connections per host, each to a host chosen at random; the total number of bytes is the same.
const CONNECTIONS_64: (&str, &str) = ("workload.connections", "64");

const CASES: [Case; 8] = [
    ("irn, 4096 B", &[]),
    ("irn, 1024 B", &[MTU_1024]),
    ("irn, 64 each, 4096 B", &[CONNECTIONS_64]),
    ("roce-gbn with PFC, 4096 B", &[ROCE, PFC]),
    ("roce-gbn with PFC, 1024 B", &[ROCE, PFC, MTU_1024]),
    ("falcon, 4096 B", &[FALCON]),
    ("falcon, 1024 B", &[FALCON, MTU_1024]),
    ("falcon, 64 each, 4096 B", &[FALCON, CONNECTIONS_64]),
];

fn plan(overrides: &[(&str, &str)]) -> Plan {
    let plan = Plan::from_toml_with(PLAN, overrides, &mut |name| Err(format!("no file {name}")));
    plan.unwrap_or_else(|error| panic!("{error}"))
}

/// Runs the simulation to its end; returns the number of packet-hops.
fn run(mut simulation: Simulation) -> u64 {
    let report = simulation.run(&mut |_| ControlFlow::Continue(()));
    report.check().unwrap_or_else(|failure| panic!("{failure}"));
    report.packet_hops
}

/// Runs parts on the rayon thread pool from which it is called.
struct Pool;

impl PartRunner for Pool {
    fn run(&mut self, parts: &mut [Part]) {
        parts.par_iter_mut().with_max_len(1).for_each(Part::run);
    }
}

/// The cases of a recording: like the first two of [`CASES`].
const RECORDED: [&[(&str, &str)]; 2] = [&[RECORD], &[RECORD, MTU_1024]];
const RECORD: (&str, &str) = ("record", r#"{ interval = "10us", what = ["links", "hosts"] }"#);

/// Returns the packet-hops of `plan` on both threads of `pool`.
fn run_shared(pool: &ThreadPool, plan: &Plan) -> u64 {
    let mut simulation = Simulation::in_parts(plan, 1, 2).expect("the plan is valid");
    simulation.set_runner(Box::new(Pool));
    pool.install(|| run(simulation))
}

/// Returns the packet-hops of two runs at the same time, one thread each.
fn run_twice(pool: &ThreadPool, plan: &Plan) -> u64 {
    let run_one = || run(Simulation::new(plan, 1).expect("the plan is valid"));
    let (one, other) = pool.install(|| rayon::join(run_one, run_one));
    one + other
}

fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("fabric/k8_permutation");
    group.sample_size(10).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(3));
    for (name, overrides) in CASES {
        let plan = plan(overrides);
        let fresh = || Simulation::new(&plan, 1).expect("the plan is valid");
        group.throughput(Throughput::Elements(run(fresh())));
        group.bench_function(name, |bencher| bencher.iter_batched(fresh, run, BatchSize::PerIteration));
    }
    group.throughput(Throughput::Elements(floor::run(FLOOR_HOPS)));
    group.bench_function("event_loop", |bencher| bencher.iter(|| floor::run(FLOOR_HOPS)));
    group.finish();
}

/// Packet-hops of the event loop: about as many as in the first case.
const FLOOR_HOPS: u64 = 3_500_000;

/// Measures all cases once more, in turns, so that all of them run under the same conditions.
fn summary() {
    let plans: Vec<_> = CASES.iter().map(|(name, overrides)| (*name, plan(overrides))).collect();
    let mut best = vec![0.0f64; CASES.len()];
    let mut floor = 0.0f64;
    let rate = |hops: u64, start: std::time::Instant| hops as f64 / start.elapsed().as_secs_f64() / 1e6;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("the threads start");
    let (_, last) = plans.last().expect("there are cases");
    let (mut shared, mut twice) = (0.0f64, 0.0f64);
    let recorded_plans = RECORDED.map(plan);
    let mut recorded = [0.0f64; RECORDED.len()];
    for _ in 0..ROUNDS {
        let start = std::time::Instant::now();
        floor = floor.max(rate(floor::run(FLOOR_HOPS), start));
        for ((_, plan), best) in plans.iter().zip(&mut best) {
            let simulation = Simulation::new(plan, 1).expect("the plan is valid");
            let start = std::time::Instant::now();
            *best = best.max(rate(run(simulation), start));
        }
        for (plan, best) in recorded_plans.iter().zip(&mut recorded) {
            let simulation = Simulation::new(plan, 1).expect("the plan is valid");
            let start = std::time::Instant::now();
            *best = best.max(rate(recorded::recorded(simulation, run), start));
        }
        let start = std::time::Instant::now();
        shared = shared.max(rate(run_shared(&pool, last), start));
        let start = std::time::Instant::now();
        twice = twice.max(rate(run_twice(&pool, last), start));
    }
    println!(
        "\nfabric, k=8 permutation, fastest of {ROUNDS}: million packet-hops a second on one core (share of the floor)"
    );
    println!("  {:<28}{floor:6.1}", "bare event loop");
    for ((name, _), best) in plans.iter().zip(&best) {
        println!("  {name:<28}{best:6.1} ({:.2})", best / floor);
    }
    println!("with links and hosts recorded every 10 us (times without):");
    for (((name, _), without), with) in plans.iter().zip(&best).zip(&recorded) {
        println!("  {name:<28}{with:6.1} ({:.2})", with / without);
    }
    let last = best.last().expect("there are cases");
    println!("the last on two threads (times one):");
    println!("  {:<28}{shared:6.1} ({:.2})", "one run in two parts", shared / last);
    println!("  {:<28}{twice:6.1} ({:.2})", "two runs side by side", twice / last);
}

const ROUNDS: usize = 5;

criterion_group!(benches, bench);

fn main() {
    benches();
    summary();
    Criterion::default().configure_from_args().final_summary();
}
