//! Steps a second of the template on one core: cycles in which an address leaves and an acknowledgement arrives, and
//! cycles that lazy stepping passes.
//!
//! Run `cargo bench -p rnic-tonic`; add `-- --quick` for a first look.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rnic_program::Transport;
use rnic_program::interface::rate;
use rnic_tonic::{Address, FlowId, FlowSetup, Input, Installed, Packet, SegmentId, Sizes, Tonic, Visits};

/// Small programs: one marks what is outstanding after a gap or a timeout, one sends at a rate.
#[allow(dead_code, reason = "the tests use more of them")]
#[path = "../tests/mechanisms/programs.rs"]
mod programs;

/// A template with flows that never run out of segments, and what acknowledges them after a delay.
struct Running {
    tonic: Tonic,
    expected: Vec<SegmentId>,
    /// A ring of packets in flight, by cycle.
    returning: Vec<Option<(FlowId, Packet)>>,
}

impl Running {
    fn new(program: &'static dyn Transport, parameters: Vec<u64>, flows: u16) -> Self {
        let program = Installed::new(program, parameters, 8_192_000).expect("the program is well formed");
        let mut tonic = Tonic::new(Sizes::default(), program).expect("the sizes are the default");
        let first = SegmentId::new(0);
        for flow in 0..flows {
            tonic.add_flow(flow, FlowSetup { first, segment_bytes: 1_500 }).expect("the flow is new");
            tonic.set_limit(flow, first.plus(1 << 21), 0).expect("the flow has no segments");
            for _ in 0..2 {
                tonic.step(&Input { packet: None, is_blocked: true });
            }
        }
        Self { tonic, expected: vec![first; usize::from(flows)], returning: vec![None; 64] }
    }

    fn step(&mut self) {
        let now = self.tonic.now();
        let place = now as usize % self.returning.len();
        let input = Input { packet: self.returning[place].take(), is_blocked: false };
        if let Some(address) = self.tonic.step(&input) {
            self.take(now, address);
        }
    }

    /// Runs the cycles in which something can change.
    fn run_lazily(&mut self, end: u64) {
        while self.tonic.now() < end {
            let now = self.tonic.now();
            let delay = self.returning.len() as u64;
            let arrival = (now..now + delay).find(|cycle| self.returning[(cycle % delay) as usize].is_some());
            match arrival {
                Some(cycle) if cycle == now => self.step(),
                _ => {
                    let until = arrival.map_or(end, |cycle| cycle.min(end));
                    if let Some((cycle, address)) = self.tonic.advance_to(until) {
                        self.take(cycle, address);
                    }
                }
            }
        }
    }

    /// Acknowledges an address after a delay.
    fn take(&mut self, cycle: u64, Address { flow, segment, .. }: Address) {
        let place = cycle as usize % self.returning.len();
        let expected = &mut self.expected[usize::from(flow)];
        *expected = segment.plus(1);
        self.returning[place] = Some((flow, Packet { ack: true, cum: *expected, ..Packet::default() }));
        // The driver announces more now and then, as long as ids last.
        if segment.value() & 0xFFFF == 0 && segment.value() != 0 {
            let _ = self.tonic.set_limit(flow, segment.plus(1 << 21), 0);
        }
    }
}

fn steps(c: &mut Criterion) {
    let mut group = c.benchmark_group("tonic");
    const CYCLES: u64 = 10_000;
    group.throughput(Throughput::Elements(CYCLES));
    for (flows, visits) in [(1, Visits::All), (1024, Visits::All), (1, Visits::Due), (1024, Visits::Due)] {
        let mut running = Running::new(&programs::repeat::Repeat, vec![128, 2_000], flows);
        running.tonic.set_visits(visits);
        let name = format!("busy in each cycle, {flows} flows, visits: {visits:?}");
        group.bench_function(name, |b| {
            b.iter(|| (0..CYCLES).for_each(|_| running.step()));
        });
        assert!(running.tonic.counters().1.transmitted > 1_000);
    }
    let mut running = Running::new(&programs::rated::Rated, vec![rate(100_000_000), 0, 0], 100);
    group.bench_function("every cycle, 100 flows of 100 Mbit/s", |b| {
        b.iter(|| (0..CYCLES).for_each(|_| running.step()));
    });
    let mut running = Running::new(&programs::rated::Rated, vec![rate(100_000_000), 0, 0], 100);
    running.tonic.set_visits(Visits::Due);
    group.bench_function("lazily, 100 flows of 100 Mbit/s", |b| {
        b.iter(|| {
            let end = running.tonic.now() + CYCLES;
            running.run_lazily(end);
        });
    });
    assert!(running.tonic.counters().1.transmitted > 1_000);
    group.finish();
}

criterion_group!(benches, steps);
criterion_main!(benches);
