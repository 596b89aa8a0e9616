//! F-20: what waits in an incast of windows below one packet, held against Swift's rules alone.
//!
//! The model below has nothing of this project's: queue pairs with a window and a gap, in floating point, links and a
//! queue. Where the queue of the network and that of the model swing alike, the swing is in the rules.

mod common;

use core::cmp::Reverse;
use std::collections::BinaryHeap;

use common::*;
use rnic_base::RandomStreams;

/// Picoseconds in a microsecond.
const US: u64 = 1_000_000;
/// How finely the queue is looked at, from when on, and how long queue pairs post, in microseconds.
const SLICE: u64 = 50;
const FROM: u64 = 20_000;
const UNTIL: u64 = 100_000;
/// Within which queue pairs begin, in microseconds.
const BEGIN: u64 = 10_000;
/// What a packet takes of a link, about: 4250 bytes with all that is around the payload, at 20 Gbit/s.
const PACKET: u64 = 17 * US / 10;

/// What waited, by slices, in microseconds of the receiver's link: on average, and by how much it swings about that.
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
    Turn,
    /// The packet that left then is at the switch.
    Arrives { left: u64 },
    /// It is acknowledged.
    Acknowledged { left: u64 },
}

/// A queue pair that always has something to send. Times are picoseconds.
#[derive(Clone, Default)]
struct Pair {
    window: f64,
    srtt: f64,
    cut: Option<u64>,
    under_way: u64,
    /// When a packet last left, when the window last opened, and what is to pass then.
    left: u64,
    opened: u64,
    gap: u64,
}

impl Pair {
    /// Specification, 10.3.2 to 10.3.5, with the public simulator's values.
    fn hear(&mut self, now: u64, left: u64, increase: f64) {
        let delay = (now - left) as f64;
        self.srtt = if self.srtt == 0.0 { delay } else { 0.75 * self.srtt + 0.25 * delay };
        let (ends, largest) = ((0.1f64.sqrt().recip(), 1.0 / 16.0), 100.0);
        let scaling = largest / (ends.0 - ends.1) * (self.window.sqrt().recip() - ends.1);
        let target = (25.0 + 1.0 + scaling.clamp(0.0, largest)) * US as f64;
        if delay <= target {
            self.window += increase / self.window.max(1.0);
        } else if self.cut.is_none_or(|cut| (now - cut) as f64 >= self.srtt) {
            self.window *= (1.0 - 0.8 * (delay - target) / delay).max(0.5);
            self.cut = Some(now);
        }
        self.window = self.window.clamp(0.01, 256.0);
        self.gap = (self.srtt * (self.window.recip() - 1.0).max(0.0)) as u64;
        self.under_way -= 1;
        self.opened = now;
    }

    /// When the next packet may leave, if the window lets one out.
    fn departure(&self) -> Option<u64> {
        let has_room = self.under_way < (self.window as u64).max(1);
        let paced = if self.gap == 0 { 0 } else { self.opened.max(self.left) + self.gap };
        has_room.then_some(paced)
    }
}

/// The rules alone, on the links of five senders and of the receiver.
fn model(pairs: u64, increase: f64) -> Queue {
    let mut begins = RandomStreams::new(1).stream("begin");
    let mut agenda: BinaryHeap<_> =
        (0..pairs).map(|pair| Reverse((begins.below(BEGIN * US), Event::Turn, pair))).collect();
    let mut all = vec![Pair { window: 1.0, ..Pair::default() }; pairs as usize];
    let (mut senders, mut receiver) = ([0u64; 5], 0u64);
    let (mut slices, mut looks) = (Vec::new(), (FROM..UNTIL).peekable());
    while let Some(Reverse((now, event, index))) = agenda.pop() {
        while let Some(at) = looks.next_if(|at| at * US <= now) {
            if at % SLICE == 0 {
                slices.push(0.0);
            }
            // What is on the link waits no more.
            let waits = receiver.saturating_sub(at * US).saturating_sub(PACKET / 2);
            *slices.last_mut().expect("times begin with a slice") += waits as f64 / (US * SLICE) as f64;
        }
        if looks.peek().is_none() {
            break;
        }
        let pair = &mut all[index as usize];
        match event {
            Event::Turn => {}
            Event::Arrives { left } => {
                receiver = receiver.max(now) + PACKET;
                // The receiver's link, and both on the way back.
                agenda.push(Reverse((receiver + 33 * US / 10, Event::Acknowledged { left }, index)));
                continue;
            }
            Event::Acknowledged { left } => pair.hear(now, left, increase),
        }
        while let Some(departure) = pair.departure() {
            if departure > now {
                agenda.push(Reverse((departure, Event::Turn, index)));
                break;
            }
            let sender = &mut senders[index as usize % 5];
            let left = now.max(*sender);
            *sender = left + PACKET;
            (pair.left, pair.under_way) = (left, pair.under_way + 1);
            agenda.push(Reverse((*sender + 11 * US / 10, Event::Arrives { left }, index)));
        }
    }
    Queue::of(&slices)
}

/// The network.
fn network(pairs: u64, increase: u32) -> Queue {
    let transport = format!("{{ name = \"falcon\", initial_window = 1, increase = {increase} }}");
    let workload = format!(
        "{{ kind = \"closed-loop\", op = \"write\", message = \"64KiB\", clients = 5, from = 1, to = 0,
            queue_pairs = {pairs}, jitter = \"{BEGIN}us\", duration = \"{UNTIL}us\" }}",
    );
    let timing = format!("{{ slice = \"{SLICE}us\", warmup = \"{FROM}us\", limit = \"1s\" }}");
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
    let waits = &report.slices.expect("the plan asks for them").hosts["host-0"].queue_mean_bytes;
    // 20 Gbit/s are 2500 bytes a microsecond.
    let waits: Vec<f64> = waits.iter().map(|bytes| bytes / 2_500.0).collect();
    Queue::of(&waits[(FROM / SLICE) as usize..(UNTIL / SLICE) as usize])
}

/// The network does what the rules do alone; by how much the queue swings there, of its mean.
fn swing(pairs: u64, increase: u32) -> f64 {
    let there = network(pairs, increase);
    let alone = model(pairs, f64::from(increase) / 1_000.0);
    println!("{pairs} to one, increase {increase}: {there:.1?} us, by the rules alone {alone:.1?}");
    let is_near = |value: f64, expected: f64, share: f64| (value - expected).abs() < share * expected;
    assert!(is_near(there.mean, alone.mean, 0.06), "{pairs} to one, increase {increase}");
    assert!(is_near(there.deviation, alone.deviation, 0.15), "{pairs} to one, increase {increase}");
    there.deviation / there.mean
}

/// F-20: a queue pair hears of the queue once in as long as all of them together take to send a packet each. Where
/// that is longer than what waits, the queue is steered late and swings; the more so with increases that are small,
/// which bring all up and down together.
#[test]
fn f20_paced_windows_swing_about_their_target_as_swifts_rules_alone_do() {
    assert!(swing(50, 1_000) < 0.12, "85 us: about a round trip");
    assert!((0.2..0.4).contains(&swing(100, 1_000)), "170 us: two of them");
    assert!((0.25..0.45).contains(&swing(200, 1_000)), "340 us");
    assert!((0.25..0.45).contains(&swing(500, 1_000)), "850 us: as with 5000 queue pairs at ten times the rate");
    assert!(swing(500, 100) > 0.6, "a tenth of a packet at a time: the queue runs empty and overshoots in turn");
}
