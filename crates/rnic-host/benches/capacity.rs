//! Queue pairs of one process that share what its processors reach, without a known rate of a link: `cargo bench -p
//! rnic-host --bench capacity [-- ROUNDS]`.
//!
//! One queue pair writes 4 KB, another one 1 MB, to a NIC of the same process, through shared memory: under `greedy`
//! and `round-robin`, which divide nothing, and under `water-filling`, which divides the capacity that the NIC measures
//! (`src/share/capacity.rs`). The receiver is driven by the sender's thread, or by one on the other processor. Rates
//! are measured only while packets queue in front of the scheduler: with a thread of its own, a receiver that is slower
//! than the sender closes the windows, and there is no capacity. All are measured one after the other in each round;
//! each result is the median over rounds.

#[path = "common/figures.rs"]
mod figures;
#[path = "common/hosts.rs"]
mod hosts;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hosts::Host;
use rnic_engine::{RemoteMemory, SendFlags, SendOp, SendRequest, WcStatus};
use rnic_host::baseline::OnProcessor;
use rnic_host::observe::Identity;
use rnic_host::{Nic, Settings, TransportChoice};
use rnic_wire::Qpn;

const LENGTHS: [u32; 2] = [4 << 10, 1 << 20];
/// Writes in flight of each queue pair.
const DEPTHS: [u64; 2] = [128, 4];
/// Time in which rates settle, and time that is measured.
const WARM_UP: Duration = Duration::from_millis(1_000);
const RUN_TIME: Duration = Duration::from_millis(1_500);

fn main() {
    let Some(rounds) = figures::rounds(5) else { return };
    let mut figures = figures::Figures::default();
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}");
        for threads in [1, 2] {
            run_round(&mut figures, threads);
        }
    }
    figures.print();
}

fn run_round(figures: &mut figures::Figures, threads: u32) {
    let of = if threads == 1 { "1 thread" } else { "2 threads" };
    let mut sums = Vec::new();
    for schedule in ["greedy", "round-robin", "water-filling"] {
        let (gbps, capacity) = Sender::open(schedule).run(threads == 2);
        let [small, large] = gbps;
        figures.add(&format!("{of}: {schedule}, 4 KB, Gbit/s"), small);
        figures.add(&format!("{of}: {schedule}, 1 MB, Gbit/s"), large);
        figures.add(&format!("{of}: {schedule}, 4 KB / 1 MB"), small / large);
        sums.push(small + large);
        if schedule == "water-filling" {
            figures.add(&format!("{of}: capacity, Gbit/s"), capacity.unwrap_or(f64::NAN));
        }
    }
    figures.add(&format!("{of}: round-robin / greedy, goodput"), sums[1] / sums[0]);
    figures.add(&format!("{of}: water-filling / greedy, goodput"), sums[2] / sums[0]);
}

/// Two queue pairs of one NIC, connected to another NIC.
struct Sender {
    left: Host,
    right: Host,
    qpns: [Qpn; 2],
    remote: RemoteMemory,
}

impl Sender {
    fn open(schedule: &str) -> Self {
        let choice = || TransportChoice::named("irn", &[("schedule", schedule)]).expect("a transport");
        let open = |name| Host::with(name, LENGTHS[1] as usize, choice(), DEPTHS[0] as u32);
        let (mut left, mut right) = (open("left"), open("right"));
        let qpns = [0, 1].map(|_| {
            let (from, to) = (left.create_qp(), right.create_qp());
            left.join(from, to);
            right.join(to, from);
            from
        });
        let remote = right.region.remote(0);
        Self { left, right, qpns, remote }
    }

    /// Keeps Writes of both queue pairs in flight; returns their goodputs, and the measured capacity, in Gbit/s.
    fn run(self, has_own_thread: bool) -> ([f64; 2], Option<f64>) {
        let Self { mut left, right, qpns, remote } = self;
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let mut beside = Some(right.nic);
            if has_own_thread {
                let mut nic = beside.take().expect("it is open");
                let is_over = &is_over;
                scope.spawn(move || {
                    let _pinned = OnProcessor::nth(1);
                    while !is_over.load(Ordering::Relaxed) {
                        nic.progress();
                    }
                });
            }
            let _pinned = OnProcessor::nth(0);
            let result = write(&mut left, qpns, remote, beside.as_mut());
            is_over.store(true, Ordering::Relaxed);
            result
        })
    }
}

/// Writes with both queue pairs of `left`, and drives `beside`, if it has no thread of its own.
fn write(
    left: &mut Host,
    qpns: [Qpn; 2],
    remote: RemoteMemory,
    mut beside: Option<&mut Nic>,
) -> ([f64; 2], Option<f64>) {
    let (mut posted, mut done, mut before) = ([0; 2], [0; 2], None);
    let start = Instant::now();
    let elapsed = loop {
        for index in [0, 1] {
            while posted[index] < done[index] + DEPTHS[index] {
                let sges = [left.region.sge(0, LENGTHS[index])];
                let op = SendOp::Write { remote, immediate: None };
                let request = SendRequest { wr_id: index as u64, op, sges: &sges, flags: SendFlags::SIGNALED };
                left.nic.verbs().post_send(qpns[index], &request).expect("space in the queue");
                posted[index] += 1;
            }
        }
        left.nic.progress();
        if let Some(nic) = &mut beside {
            nic.progress();
        }
        while let Some(completion) = left.nic.verbs().poll_cq_one(left.cq) {
            assert_eq!(completion.status, WcStatus::Success);
            done[completion.wr_id as usize] += 1;
        }
        match before {
            None if start.elapsed() >= WARM_UP => before = Some((done, Instant::now())),
            Some((_, at)) if Instant::now() - at >= RUN_TIME => break Instant::now() - at,
            _ => {}
        }
    };
    let (before, _) = before.expect("it is set before the end");
    let gbps = |index: usize| {
        (done[index] - before[index]) as f64 * f64::from(LENGTHS[index]) * 8.0 / elapsed.as_secs_f64() / 1e9
    };
    let capacity = left.nic.snapshot(&Identity::of_process("rnic0", "bench", &Settings::default())).capacity_gbps;
    ([gbps(0), gbps(1)], capacity)
}
