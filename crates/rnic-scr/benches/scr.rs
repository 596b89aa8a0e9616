//! Real cost of SCR's processors on one core, and rates of events of the modelled pool (S-R9, S-R10, S-R11), and the
//! latencies of its loop on real threads (S-R29).
//!
//! * time per event of TX, credit and bus records, from the queue to the decision, when the program processes each, and
//!   when it waits while its rate is stable. The law is one of the cost of Swift by rate, in fixed point;
//! * events a second of the modelled pool by its number of threads, with coalescing by hardware (accumulate) and by
//!   hardware and software (wait while stable), and the same for one and two real threads;
//! * the time from a record to its handler, of the handler, and from the decision to its owner, with a thread that
//!   spins and one that sleeps; the paper's are up to 7 us, 4 us and 6 us, on other hardware;
//! * tests a second of the bitmap and of the Bloom filter.
//!
//! Run `cargo bench -p rnic-scr` on a machine with nothing else to do; add `-- --quick` for a first look, and the names
//! of parts (`events`, `model`, `threads`, `loop`, `membership`) for those alone.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a benchmark reads the clock and its command line"
)]

use std::hint::black_box;
use std::time::{Duration as RealTime, Instant};

use rnic_base::{BitRate, Duration, RandomStreams, Time};
use rnic_policy::{Meter, MeterScale, MeterWeight};
use rnic_scr::thread::{Handler, Threads, spawn};
use rnic_scr::tools::{BloomFilter, FlowBitmap, Fpx16};
use rnic_scr::{Backlog, Convergence, HostThreads, Kind, Pool, PoolConfig, PoolSizes, Queue, Signal, Strategy};

const LINE: BitRate = BitRate::gbps(100);
/// Bytes of a packet on the wire.
const PACKET: u64 = 1_102;
const SCALE: MeterScale = MeterScale::new(LINE, MeterWeight::Event);

/// A law of the cost of Swift by rate: a meter, a target by `1 / sqrt` of the window, a decrease by the share above it.
/// Signals of this benchmark are steady, so it settles.
#[derive(Clone, Default)]
struct Law {
    meter: Meter,
    rate: Fpx16,
}

impl Law {
    fn handle(&mut self, record: &Signal) -> u32 {
        self.meter.record(record.bytes, record.last, &SCALE);
        let delay = Fpx16::from_bits((record.value >> 8) as i32 & 0xf_ffff) + Fpx16::ONE;
        let window = (self.rate + Fpx16::ONE) * delay + Fpx16::ONE;
        let target = Fpx16::from_int(3) + window.recip_sqrt() * Fpx16::from_int(2);
        let wanted = if delay > target {
            self.rate * (Fpx16::ONE - (delay - target) / delay * Fpx16::ratio(4, 5))
        } else {
            Fpx16::from_bits((self.meter.share() >> 4) as i32) + Fpx16::ratio(1, 20)
        };
        self.rate = self.rate + (wanted - self.rate) * Fpx16::ratio(1, 2);
        // In steps of 1/256, as a controller that answers only when its rate has changed.
        (self.rate.to_bits() as u32 & !0xff) + 0x1_0000
    }
}

/// Returns the record number `number` of `kind`: steady signals.
fn record(kind: Kind, flow: u32, number: u64, gap: Duration) -> Signal {
    let signal = Signal::new(kind, flow, Time::ZERO + gap * (number + 1));
    match kind {
        Kind::Tx => signal.with_bytes(PACKET),
        Kind::Credit => signal.with_value(80_000_000_000, 0),
        _ => signal.with_value(600_000, 32_768),
    }
}

/// Returns the nanoseconds per event of `kind`, and the share of events that were folded, in percent: the best of
/// `rounds`, each of a few milliseconds, so that some are not interrupted.
fn nanoseconds_per_event(kind: Kind, strategy: Strategy, rounds: u32) -> (f64, f64) {
    const FLOWS: u32 = 64;
    const EVENTS: u64 = 64_000;
    let gap = LINE.serialize(PACKET) * 4;
    let mut best = (f64::MAX, 0.0);
    for _ in 0..rounds {
        let mut backlog = Backlog::with_capacity(64);
        let mut queues: Vec<Queue> = (0..FLOWS).map(|_| Queue::new(strategy)).collect();
        let mut states: Vec<Convergence> = vec![Convergence::default(); FLOWS as usize];
        let mut laws = vec![Law::default(); FLOWS as usize];
        let mut folded = 0u64;
        let started = Instant::now();
        for event in 0..EVENTS {
            let flow = event as u32 % FLOWS;
            let index = flow as usize;
            queues[index].push(&mut backlog, &record(kind, flow, event / u64::from(FLOWS), gap));
            let Some(taken) = queues[index].take(&mut backlog) else { continue };
            let offered = match strategy {
                Strategy::WhileStable => states[index].offer(&taken, 0, &SCALE),
                _ => Some(taken),
            };
            match offered {
                Some(sum) => {
                    let rate = black_box(laws[index].handle(&sum));
                    if strategy == Strategy::WhileStable {
                        states[index].on_decision(rate);
                    }
                }
                None => folded += 1,
            }
        }
        let each = started.elapsed().as_secs_f64() * 1e9 / EVENTS as f64;
        if each < best.0 {
            best = (each, folded as f64 * 100.0 / EVENTS as f64);
        }
    }
    best
}

fn coalescing(rounds: u32) {
    println!("time per event from its queue to a decision, one core, 64 flows (S-R9)");
    println!("{:>10} {:>16} {:>16} {:>10} {:>10}", "signal", "each, ns", "while stable, ns", "factor", "folded");
    for kind in [Kind::Tx, Kind::Credit, Kind::Bus] {
        let (each, _) = nanoseconds_per_event(kind, Strategy::of(kind), rounds);
        let (stable, folded) = nanoseconds_per_event(kind, Strategy::WhileStable, rounds);
        println!("{:>10} {each:>16.1} {stable:>16.1} {:>10.2} {folded:>8.1} %", kind.name(), each / stable);
    }
}

/// Returns million events of TX a second of a modelled pool at line rate.
fn modelled_rate(threads: u16, flows: u64, strategy: Strategy) -> f64 {
    let sizes = PoolSizes { in_band: threads, out_of_band: 1, host: HostThreads::Shared(1) };
    let config = PoolConfig { sizes, ..PoolConfig::figures(LINE).with_strategy(Kind::Tx, strategy) };
    let mut pool = Pool::new(&config).expect("it is valid");
    (0..flows).for_each(|identity| assert!(pool.join(identity).is_some()));
    let (gap, span) = (LINE.serialize(PACKET), Duration::from_ms(5));
    for number in 0..span.as_ps() / gap.as_ps() {
        let at = Time::ZERO + gap * number;
        while let Some(due) = pool.next_at().filter(|due| *due <= at) {
            while let Some(dispatch) = pool.poll(due) {
                pool.on_decision(&dispatch, 1_000);
            }
        }
        let signal = Signal::new(Kind::Tx, (number % flows) as u32, at).with_bytes(PACKET);
        pool.push(at, &signal).expect("the flow has joined");
    }
    pool.counters().of(Kind::Tx).events as f64 / span.as_us_f64()
}

fn modelled() {
    println!("million events a second of the modelled pool, 4 us per event, 2.5 us folded (S-R10: +51 % on 4 threads)");
    println!("{:>8} {:>34} {:>34}", "", "a flow per thread", "64 flows");
    println!("{:>8} {} {}", "threads", heads(), heads());
    for threads in [1, 2, 4, 8, 16, 32, 64] {
        let row = [u64::from(threads), 64].map(|flows| {
            let hardware = modelled_rate(threads, flows, Strategy::Accumulate);
            let both = modelled_rate(threads, flows, Strategy::WhileStable);
            format!("{hardware:>11.2} {both:>11.2} {:>8.1} %", (both / hardware - 1.0) * 100.0)
        });
        println!("{threads:>8} {}", row.join(" "));
    }
}

fn heads() -> String {
    format!("{:>11} {:>11} {:>10}", "hardware", "and softw.", "gain")
}

/// The laws of all flows of a thread.
struct Laws(Vec<Law>);

impl Handler for Laws {
    type Answer = u32;
    type Flow = ();

    fn join(&mut self, _: u32, (): ()) {}

    fn handle(&mut self, record: &Signal) -> u32 {
        self.0[record.subject as usize].handle(record)
    }

    fn rate(answer: &u32) -> u32 {
        *answer
    }

    fn forget(&mut self, _: u32) {}
}

/// Returns million events a second of `count` real threads, whose owner pushes TX records of 64 flows without a pause.
fn real_rate(count: usize, strategy: Strategy, span: RealTime) -> f64 {
    const FLOWS: u64 = 64;
    let handlers = (0..count).map(|_| Laws(vec![Law::default(); FLOWS as usize])).collect();
    let mut threads = Threads::start(handlers, [strategy; Kind::COUNT], LINE, spawn).expect("threads start");
    (0..FLOWS).for_each(|identity| assert!(threads.join(identity, ()).is_some()));
    let gap = LINE.serialize(PACKET);
    let (started, mut number) = (Instant::now(), 0);
    while number % 4_096 != 0 || started.elapsed() < span {
        let signal = Signal::new(Kind::Tx, (number % FLOWS) as u32, Time::ZERO + gap * number).with_bytes(PACKET);
        threads.push(&signal).expect("the flow has joined");
        if number % 8 == 0 {
            while threads.poll().is_some() {}
        }
        number += 1;
    }
    threads.events() as f64 / 1e6 / started.elapsed().as_secs_f64()
}

fn real(rounds: u32, span: RealTime) {
    println!("million events a second of real threads, records pushed without a pause (medians of {rounds})");
    println!("{:>8} {}", "threads", heads());
    for count in [1, 2] {
        let median = |strategy| {
            let mut rates: Vec<f64> = (0..rounds).map(|_| real_rate(count, strategy, span)).collect();
            rates.sort_by(f64::total_cmp);
            rates[rates.len() / 2]
        };
        let (hardware, both) = (median(Strategy::Accumulate), median(Strategy::WhileStable));
        println!("{count:>8} {hardware:>11.2} {both:>11.2} {:>8.1} %", (both / hardware - 1.0) * 100.0);
    }
}

/// A law that notes when it began and ended, in nanoseconds from a common start.
struct Timed {
    law: Law,
    start: Instant,
}

impl Handler for Timed {
    type Answer = [u64; 2];
    type Flow = ();

    fn join(&mut self, _: u32, (): ()) {}

    fn handle(&mut self, record: &Signal) -> [u64; 2] {
        let begun = since(self.start);
        black_box(self.law.handle(record));
        [begun, since(self.start)]
    }

    fn rate(_: &[u64; 2]) -> u32 {
        0
    }

    fn forget(&mut self, _: u32) {}
}

fn since(start: Instant) -> u64 {
    start.elapsed().as_nanos() as u64
}

/// Returns the median times, in microseconds, from a record to its handler, of the handler, and from there to the
/// owner, which polls without a pause. Between records the owner waits for `pause`.
fn latencies(records: u32, pause: RealTime) -> [f64; 3] {
    let start = Instant::now();
    let timed = Timed { law: Law::default(), start };
    let mut threads = Threads::start(vec![timed], [Strategy::Accumulate; Kind::COUNT], LINE, spawn).expect("a thread");
    let flow = threads.join(1, ()).expect("a flow");
    let mut times = [const { Vec::new() }; 3];
    for number in 0..records {
        let until = Instant::now() + pause;
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        let pushed = since(start);
        let record = Signal::new(Kind::Tx, flow, Time::from_us(number.into())).with_bytes(PACKET);
        threads.push(&record).expect("the flow has joined");
        let decision = loop {
            if let Some(decision) = threads.poll() {
                break decision;
            }
        };
        let [begun, ended] = decision.answer;
        let steps = [begun.saturating_sub(pushed), ended - begun, since(start).saturating_sub(ended)];
        times.iter_mut().zip(steps).for_each(|(times, step)| times.push(step));
    }
    times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2] as f64 / 1e3
    })
}

fn latency_of_the_loop(rounds: u32) {
    println!("microseconds of the loop on a real thread, medians (S-R29; the paper: up to 7, 4, up to 6)");
    println!("{:>8} {:>11} {:>11} {:>11}", "thread", "to handler", "handler", "to owner");
    for (what, pause) in [("spins", RealTime::from_micros(10)), ("sleeps", RealTime::from_millis(2))] {
        let [trigger, work, install] = latencies(rounds * 100, pause);
        println!("{what:>8} {trigger:>11.2} {work:>11.2} {install:>11.2}");
    }
}

fn membership(rounds: u32) {
    let mut random = RandomStreams::new(1).stream("flows");
    let flows: Vec<u32> = (0..8_192).map(|_| random.below(1 << 24) as u32).collect();
    let tests: Vec<u32> = (0..1 << 16)
        .map(|number| if number % 2 == 0 { flows[random.below(8_192) as usize] } else { random.below(1 << 24) as u32 })
        .collect();
    let (mut bitmap, mut filter) = (FlowBitmap::default(), BloomFilter::new(7));
    for flow in &flows {
        bitmap.insert(*flow);
        filter.insert(u64::from(*flow));
    }
    let rate = |test: &dyn Fn() -> usize| {
        let each = (0..rounds).map(|_| {
            let started = Instant::now();
            black_box(test());
            started.elapsed()
        });
        tests.len() as f64 / 1e6 / each.min().unwrap_or_default().as_secs_f64()
    };
    let of_bitmap = rate(&|| tests.iter().filter(|flow| bitmap.contains(black_box(**flow))).count());
    let of_filter = rate(&|| tests.iter().filter(|flow| filter.contains(black_box(u64::from(**flow)))).count());
    println!("million tests a second, 8192 flows, half of the tests of other flows (S-R11)");
    println!("bitmap, {} KiB: {of_bitmap:.0}", FlowBitmap::memory() >> 10);
    println!("Bloom filter, {} KiB: {of_filter:.0}", BloomFilter::memory() >> 10);
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let (rounds, span) = if quick { (3, RealTime::from_millis(100)) } else { (9, RealTime::from_millis(500)) };
    let parts: [(&str, &dyn Fn()); 5] = [
        ("events", &|| coalescing(rounds * 10)),
        ("model", &modelled),
        ("threads", &|| real(rounds, span)),
        ("loop", &|| latency_of_the_loop(rounds)),
        ("membership", &|| membership(rounds * 10)),
    ];
    let is_chosen = |name: &str| arguments.iter().any(|argument| argument == name);
    let all = !parts.iter().any(|(name, _)| is_chosen(name));
    for (_, run) in parts.iter().filter(|(name, _)| all || is_chosen(name)) {
        run();
    }
}
