//! Connections that are reset and connected again under the same queue pair numbers, again and again, while packets
//! and responses of their earlier incarnations still arrive. Nothing panics, no resource stays allocated, and
//! connections that are not involved are not affected.

use rnic_base::{Duration, RandomStream, RandomStreams};
use rnic_engine::*;
use rnic_wire::Qpn;

use crate::common::{BASE, INBOX, MTU, Pair, Setup, bad};

/// Queue pairs at each end. The last one is never reset.
const COUNT: usize = 5;
const ALONE: usize = COUNT - 1;
/// Bytes of memory that each queue pair has for itself, at both ends.
const PART: u64 = 4_096;
/// Address that messages are received at.
const RECEIVES: u64 = INBOX + COUNT as u64 * PART;
const UNDER_WAY_MAX: u64 = 20;

struct Crowd {
    pair: Pair,
    numbers: Vec<[Qpn; 2]>,
    /// Requests that each queue pair has posted since it was last connected, and how many of them are complete.
    posted: [u64; COUNT],
    done: [u64; COUNT],
    /// Number of times that a connection was reset and connected again.
    lives: u64,
}

impl Crowd {
    fn new(setup: &Setup, streams: &RandomStreams) -> Self {
        let mut pair = Pair::new(setup, bad(streams.stream("wire"), 20, 20, 200));
        pair.keeps_log = false;
        let mut numbers = vec![[pair.ends[0].qpn, pair.ends[1].qpn]];
        numbers.extend((1..COUNT).map(|_| pair.connect_another(setup)));
        Self { pair, numbers, posted: [0; COUNT], done: [0; COUNT], lives: 0 }
    }

    fn post(&mut self, index: usize, random: &mut RandomStream) {
        if self.posted[index] - self.done[index] >= UNDER_WAY_MAX {
            return;
        }
        let [here, there] = self.numbers[index];
        let at = PART * index as u64;
        let remote = self.pair.remote(0, INBOX + at);
        let (op, len) = match random.below(3) {
            0 => (SendOp::Read { remote }, 3 * MTU),
            1 => (SendOp::Write { remote, immediate: None }, 3 * MTU),
            _ => (SendOp::Send { immediate: None }, MTU),
        };
        if let SendOp::Send { .. } = op {
            let sges = [self.pair.ends[1].sge(RECEIVES + at, MTU)];
            // A receiver that has failed retains no receive: it flushes it immediately.
            let _ = self.pair.ends[1].engine.post_recv(there, &RecvRequest { wr_id: 0, sges: &sges });
        }
        self.posted[index] += 1;
        self.pair.ends[0].post_on(here, index as u64, op, BASE + at, len);
    }

    fn run_for(&mut self, time: Duration) {
        self.pair.run_for(time);
        self.pair.ends[1].done.clear();
        for (index, status) in self.pair.ends[0].take() {
            self.done[index as usize] += 1;
            assert!(index != ALONE as u64 || status == WcStatus::Success, "{status:?}");
        }
    }

    /// Resets and reconnects both ends of a connection, one after the other.
    fn begin_anew(&mut self, setup: &Setup, index: usize, random: &mut RandomStream) {
        let numbers = self.numbers[index];
        let first = random.below(2) as usize;
        for end in [first, 1 - first] {
            self.pair.ends[end].engine.modify_to_reset(numbers[end]).expect("it exists");
            self.run_for(Duration::from_ns(random.below(10_000)));
            self.pair.ends[end].begin_receiving_on(numbers[end], setup, numbers[1 - end], end);
            self.run_for(Duration::from_ns(random.below(10_000)));
            let now = self.pair.now;
            self.pair.ends[end].begin_sending_on(numbers[end], now, setup, end);
        }
        self.run_for(Duration::ZERO);
        (self.posted[index], self.done[index]) = (0, 0);
        self.lives += 1;
    }
}

fn live_again(options: &[(&str, &str)], seed: u64) {
    let streams = RandomStreams::new(seed);
    let (setup, mut random) = (Setup::new(options), streams.stream("again"));
    let mut crowd = Crowd::new(&setup, &streams);
    let mut posted_alone = 0;
    for _ in 0..200 {
        (0..COUNT).for_each(|index| crowd.post(index, &mut random));
        crowd.run_for(Duration::from_ns(random.below(20_000)));
        if random.below(4) == 0 {
            let index = random.below(ALONE as u64) as usize;
            crowd.begin_anew(&setup, index, &mut random);
        }
        posted_alone = crowd.posted[ALONE];
    }
    crowd.run_for(Duration::from_ms(50));
    assert_eq!(crowd.done[ALONE], posted_alone, "{options:?}, seed {seed}");
    assert!(crowd.lives > 20 && posted_alone > 50, "{options:?}, seed {seed}: {} lives", crowd.lives);
    let Crowd { mut pair, numbers, .. } = crowd;
    for end in [0, 1] {
        for number in &numbers {
            pair.ends[end].engine.modify_to_reset(number[end]).expect("it exists");
        }
        let stats = pair.ends[end].engine.falcon_stats().expect("Falcon is in use");
        assert!(stats.is_idle, "{options:?}, seed {seed}, end {end}: {stats:?}");
    }
}

#[test]
fn a_queue_pair_that_reconnects_does_not_disturb_others() {
    let variants: [&[(&str, &str)]; 5] = [
        &[],
        &[("fae_interface", "5us"), ("fae_work", "1us")],
        &[("flows", "4"), ("fae_interface", "5us"), ("fae_form", "stateless")],
        &[("ordering", "weak"), ("fae_interface", "20us")],
        &[("flows", "4"), ("resources", "1"), ("ordering", "weak")],
    ];
    for options in variants {
        (0..10).for_each(|seed| live_again(options, seed));
    }
}
