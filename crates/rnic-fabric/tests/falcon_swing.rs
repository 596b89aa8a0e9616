//! F-20: the queue of an incast with windows below one packet, compared with a model of Swift's rules alone.
//!
//! The model below uses no code of this project: queue pairs with a window and a gap, in floating point, links and a
//! queue. Where the queue of the network and that of the model oscillate alike, the rules cause the oscillation.

mod common;

use core::cmp::Reverse;
use std::collections::BinaryHeap;

use common::*;
use rnic_base::RandomStreams;

/// Picoseconds in a microsecond.
const PS_PER_US: u64 = 1_000_000;
/// Width of the samples of the queue, time of the first sample, and time at which queue pairs stop posting, in
/// microseconds.
const SLICE_US: u64 = 50;
const FIRST_SAMPLE_US: u64 = 20_000;
const POSTING_END_US: u64 = 100_000;
/// Time within which queue pairs begin, in microseconds.
const START_SPREAD_US: u64 = 10_000;
/// Approximate time that a packet takes on a link, in picoseconds: 4250 bytes, including everything around the
/// payload, at 20 Gbit/s.
const PACKET_TIME_PS: u64 = 17 * PS_PER_US / 10;

/// Queue length over all slices, in microseconds of the receiver's link: its mean and its standard deviation.
#[derive(Clone, Copy, Debug)]
struct Queue {
    mean: f64,
    deviation: f64,
}

impl Queue {
    fn of(slices: &[f64]) -> Self {
        let count = slices.len() as f64;
        let mean = slices.iter().sum::<f64>() / count;
        let variance = slices.iter().map(|slice| (slice - mean).powi(2)).sum::<f64>() / count;
        Self { mean, deviation: variance.sqrt() }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A queue pair may have something to send.
    MaySend,
    /// The packet that was sent at `sent_at` arrives at the switch.
    Arrives { sent_at: u64 },
    /// The packet that was sent at `sent_at` is acknowledged.
    Acknowledged { sent_at: u64 },
}

/// A queue pair that always has data to send. Times are picoseconds.
#[derive(Clone, Default)]
struct Pair {
    window: f64,
    srtt: f64,
    cut: Option<u64>,
    in_flight: u64,
    /// Time at which a packet last left, time at which the window last opened, and the gap required after these.
    sent_at: u64,
    opened: u64,
    gap: u64,
}

impl Pair {
    /// Processes an acknowledgement by the specification, 10.3.2 to 10.3.5, with the values of the public simulator.
    fn on_ack(&mut self, now: u64, sent_at: u64, increase: f64) {
        let delay = (now - sent_at) as f64;
        self.srtt = if self.srtt == 0.0 { delay } else { 0.75 * self.srtt + 0.25 * delay };
        let (ends, largest) = ((0.1f64.sqrt().recip(), 1.0 / 16.0), 100.0);
        let scaling = largest / (ends.0 - ends.1) * (self.window.sqrt().recip() - ends.1);
        let target = (25.0 + 1.0 + scaling.clamp(0.0, largest)) * PS_PER_US as f64;
        if delay <= target {
            self.window += increase / self.window.max(1.0);
        } else if self.cut.is_none_or(|cut| (now - cut) as f64 >= self.srtt) {
            self.window *= (1.0 - 0.8 * (delay - target) / delay).max(0.5);
            self.cut = Some(now);
        }
        self.window = self.window.clamp(0.01, 256.0);
        self.gap = (self.srtt * (self.window.recip() - 1.0).max(0.0)) as u64;
        self.in_flight -= 1;
        self.opened = now;
    }

    /// Returns the time at which the next packet may leave, if the window allows one.
    fn departure(&self) -> Option<u64> {
        let has_open_window = self.in_flight < (self.window as u64).max(1);
        let paced = if self.gap == 0 { 0 } else { self.opened.max(self.sent_at) + self.gap };
        has_open_window.then_some(paced)
    }
}

/// Simulates the rules alone, on the links of five senders and of the receiver.
fn model(pairs: u64, increase: f64) -> Queue {
    let mut start_times = RandomStreams::new(1).stream("begin");
    let mut calendar: BinaryHeap<_> = (0..pairs)
        .map(|pair| Reverse((start_times.below(START_SPREAD_US * PS_PER_US), Event::MaySend, pair)))
        .collect();
    let mut all = vec![Pair { window: 1.0, ..Pair::default() }; pairs as usize];
    let (mut senders, mut receiver) = ([0u64; 5], 0u64);
    let (mut slices, mut sample_times) = (Vec::new(), (FIRST_SAMPLE_US..POSTING_END_US).peekable());
    while let Some(Reverse((now, event, index))) = calendar.pop() {
        while let Some(at) = sample_times.next_if(|at| at * PS_PER_US <= now) {
            if at % SLICE_US == 0 {
                slices.push(0.0);
            }
            // A packet that is on the link does not count as waiting.
            let waits = receiver.saturating_sub(at * PS_PER_US).saturating_sub(PACKET_TIME_PS / 2);
            *slices.last_mut().expect("times begin with a slice") += waits as f64 / (PS_PER_US * SLICE_US) as f64;
        }
        if sample_times.peek().is_none() {
            break;
        }
        let pair = &mut all[index as usize];
        match event {
            Event::MaySend => {}
            Event::Arrives { sent_at } => {
                receiver = receiver.max(now) + PACKET_TIME_PS;
                // The delays of the receiver's link, and of both links on the way back.
                calendar.push(Reverse((receiver + 33 * PS_PER_US / 10, Event::Acknowledged { sent_at }, index)));
                continue;
            }
            Event::Acknowledged { sent_at } => pair.on_ack(now, sent_at, increase),
        }
        while let Some(departure) = pair.departure() {
            if departure > now {
                calendar.push(Reverse((departure, Event::MaySend, index)));
                break;
            }
            let sender = &mut senders[index as usize % 5];
            let sent_at = now.max(*sender);
            *sender = sent_at + PACKET_TIME_PS;
            (pair.sent_at, pair.in_flight) = (sent_at, pair.in_flight + 1);
            calendar.push(Reverse((*sender + 11 * PS_PER_US / 10, Event::Arrives { sent_at }, index)));
        }
    }
    Queue::of(&slices)
}

/// Simulates the network with this project's implementation.
fn network(pairs: u64, increase: u32) -> Queue {
    let transport = format!("{{ name = \"falcon\", initial_window = 1, increase = {increase} }}");
    let workload = format!(
        "{{ kind = \"closed-loop\", op = \"write\", message = \"64KiB\", clients = 5, from = 1, to = 0,
            queue_pairs = {pairs}, jitter = \"{START_SPREAD_US}us\", duration = \"{POSTING_END_US}us\" }}",
    );
    let timing = format!("{{ slice = \"{SLICE_US}us\", warmup = \"{FIRST_SAMPLE_US}us\", limit = \"1s\" }}");
    let with = [
        ("mtu", "4096"),
        ("topology", r#"{ kind = "star", hosts = 6 }"#),
        ("links", r#"{ rate = "20Gbps", delay = "1.1us" }"#),
        ("switch", r#"{ model = "shared-buffer", buffer = "16MB" }"#),
        ("transport", transport.as_str()),
        ("workload", workload.as_str()),
        ("run", timing.as_str()),
    ];
    let report = run(STAR, &with, 1);
    assert_eq!(report.packets_dropped, 0);
    let waits = &report.slices.expect("the plan has slices").hosts["host-0"].queue_mean_bytes;
    // 20 Gbit/s are 2500 bytes a microsecond.
    let waits: Vec<f64> = waits.iter().map(|bytes| bytes / 2_500.0).collect();
    Queue::of(&waits[(FIRST_SAMPLE_US / SLICE_US) as usize..(POSTING_END_US / SLICE_US) as usize])
}

/// Asserts that the network behaves as the rules alone; returns the standard deviation of its queue as a share of the
/// mean.
fn relative_deviation(pairs: u64, increase: u32) -> f64 {
    let simulated = network(pairs, increase);
    let modelled = model(pairs, f64::from(increase) / 1_000.0);
    println!("{pairs} to one, increase {increase}: {simulated:.1?} us, by the rules alone {modelled:.1?}");
    let is_near = |value: f64, expected: f64, share: f64| (value - expected).abs() < share * expected;
    assert!(is_near(simulated.mean, modelled.mean, 0.06), "{pairs} to one, increase {increase}");
    assert!(is_near(simulated.deviation, modelled.deviation, 0.15), "{pairs} to one, increase {increase}");
    simulated.deviation / simulated.mean
}

/// F-20: a queue pair gets feedback about the queue once per time in which all of them send one packet each. Where
/// that time is longer than the queue, control of the queue is late and the queue oscillates; the more so with small
/// increases, with which all windows grow and shrink together.
#[test]
fn f20_paced_windows_swing_about_their_target_as_swifts_rules_alone_do() {
    assert!(relative_deviation(50, 1_000) < 0.12, "85 us: about a round trip");
    assert!((0.2..0.4).contains(&relative_deviation(100, 1_000)), "170 us: two of them");
    assert!((0.25..0.45).contains(&relative_deviation(200, 1_000)), "340 us");
    assert!(
        (0.25..0.45).contains(&relative_deviation(500, 1_000)),
        "850 us: as with 5000 queue pairs at ten times the rate"
    );
    assert!(
        relative_deviation(500, 100) > 0.6,
        "a tenth of a packet at a time: the queue runs empty and overshoots in turn"
    );
}
