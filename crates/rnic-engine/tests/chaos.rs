//! Random mixes of all operations over a wire that loses, delays and duplicates packets at random.
//!
//! Every operation has its own memory, so that its effect can be verified afterwards whatever other operations did in
//! between; atomics add to one shared word, which reveals any that was executed twice or not at all. A failure prints
//! the seed that replays it.
#![expect(clippy::disallowed_methods, reason = "the environment selects longer runs")]

mod common;

use common::*;
use rnic_base::{Duration, Probability, Psn, RandomStream, RandomStreams};
use rnic_engine::*;

const OPS: u64 = 150;
/// Bytes of memory of one operation.
const SLOT: u64 = 6_000;
/// The counter that atomics work on.
const COUNTER: u64 = 1_000_000;
/// Offset of the results of atomics.
const RESULTS: u64 = 1_010_000;

/// Kind of an operation, which determines how its effect is verified.
#[derive(Clone, Copy, Debug)]
enum Op {
    Write,
    WriteImm,
    Send,
    SendImm,
    Read,
    FetchAdd,
}

struct Chaos {
    pair: Pair,
    ops: Vec<(Op, u32)>,
    random: RandomStream,
    seed: u64,
}

fn probability(random: &mut RandomStream, choices: &[(u64, u64)]) -> Probability {
    let (numerator, denominator) = choices[random.below(choices.len() as u64) as usize];
    Probability::ratio(numerator, denominator)
}

impl Chaos {
    fn new(transport: &str, options: &[(&str, &str)], seed: u64) -> Self {
        let streams = RandomStreams::new(seed);
        let mut random = streams.stream("chaos/setup");
        let mut setup = Setup::new(transport, options);
        // The first PSN is either just before the wrap or random.
        setup.psn = if random.below(2) == 0 { Psn::new(random.bits() as u32) } else { Psn::new(0xff_fff8) };
        setup.mtu = [256, 1_024, 4_096][random.below(3) as usize];
        setup.reads = random.between(1, 6) as u32;
        setup.depth = random.between(1, 64) as u32;
        setup.retry_count = 1_000;
        let mut pair = Pair::new(&setup);
        pair.batch = random.below(2) == 0;
        for side in [&mut pair.left, &mut pair.right] {
            let limit = [None, None, Some(1), Some(4), Some(20)][random.below(5) as usize];
            side.engine.set_peer_limit(PeerId(7), limit);
        }
        let mut wire = streams.stream("chaos/wire");
        let loss = probability(&mut random, &[(0, 1), (1, 100), (1, 20), (1, 5)]);
        let late = probability(&mut random, &[(0, 1), (1, 50), (1, 5)]);
        let twice = probability(&mut random, &[(0, 1), (1, 50)]);
        pair.wire(move |_| {
            if wire.chance(loss) {
                Fate::Drop
            } else if wire.chance(late) {
                Fate::Late(Duration::from_ns(wire.below(60_000)))
            } else if wire.chance(twice) {
                Fate::Twice
            } else {
                Fate::Deliver
            }
        });
        let ops = (0..OPS)
            .map(|_| {
                let op =
                    [Op::Write, Op::WriteImm, Op::Send, Op::SendImm, Op::Read, Op::FetchAdd][random.below(6) as usize];
                let len = [0, 1, 100, 256, 1_024, 3_000, SLOT][random.below(7) as usize] as u32;
                (op, len)
            })
            .collect();
        Self { pair, ops, random, seed }
    }

    fn slot(index: u64) -> u64 {
        index % 80 * SLOT
    }

    fn post(&mut self, index: u64) -> Result<(), PostError> {
        let (op, len) = self.ops[index as usize];
        let left = &mut self.pair.left;
        let (local, remote) = (left.sge(Self::slot(index), len), self.pair.right.remote(500_000 + Self::slot(index)));
        let into = left.sge(500_000 + Self::slot(index), len);
        let from = self.pair.right.remote(Self::slot(index));
        let result = left.sge(RESULTS + index % 1_000 * 8, 8);
        let counter = self.pair.right.remote(COUNTER);
        let (op, sges) = match op {
            Op::Write => (SendOp::Write { remote, immediate: None }, [local]),
            Op::WriteImm => (SendOp::Write { remote, immediate: Some(index as u32) }, [local]),
            Op::Send => (SendOp::Send { immediate: None }, [local]),
            Op::SendImm => (SendOp::Send { immediate: Some(index as u32) }, [local]),
            Op::Read => (SendOp::Read { remote: from }, [into]),
            Op::FetchAdd => (SendOp::FetchAdd { remote: counter, add: 1 }, [result]),
        };
        let request = SendRequest { wr_id: index, op, sges: &sges, flags: SendFlags::SIGNALED };
        self.pair.left.engine.post_send(self.pair.left.qpn, &request)
    }

    fn post_receives(&mut self, posted: &mut u64, upto: u64) {
        let receives: Vec<u64> = self.receiving().collect();
        while *posted < upto.min(receives.len() as u64) {
            let index = receives[*posted as usize];
            let sge = self.pair.right.sge(500_000 + Self::slot(index), SLOT as u32);
            let request = RecvRequest { wr_id: index, sges: &[sge] };
            if self.pair.right.engine.post_recv(self.pair.right.qpn, &request).is_err() {
                break;
            }
            *posted += 1;
        }
    }

    /// Returns the operations that consume a receive, in order.
    fn receiving(&self) -> impl Iterator<Item = u64> + '_ {
        let consumes = |op: &Op| matches!(op, Op::WriteImm | Op::Send | Op::SendImm);
        self.ops.iter().enumerate().filter(move |(_, (op, _))| consumes(op)).map(|(index, _)| index as u64)
    }

    fn run(&mut self) {
        self.pair.right.memory[COUNTER as usize..COUNTER as usize + 8].copy_from_slice(&0u64.to_ne_bytes());
        let (mut posted, mut receives_posted, mut done, mut received) = (0, 0, 0, 0);
        let mut stalled = 0;
        while done < OPS {
            // A slot is used again only when the operation that had it before is complete.
            while posted < OPS && posted < done + 40 && self.post(posted).is_ok() {
                posted += 1;
            }
            // Receives are posted a few at a time, so that the receiver is often not ready.
            let more = self.random.below(4);
            self.post_receives(&mut receives_posted, received + more);
            let until = self.pair.now + Duration::from_ns(self.random.between(1_000, 200_000));
            self.pair.run_until(until);
            self.pair.now = self.pair.now.max(until);
            let (before, received_before) = (done, received);
            for completion in self.pair.left.completions() {
                assert_eq!((completion.wr_id, completion.status), (done, WcStatus::Success), "seed {}", self.seed);
                self.check_done(done);
                done += 1;
            }
            for completion in self.pair.right.completions() {
                let index = self.receiving().nth(received as usize).expect("each message has a receive");
                assert_eq!((completion.wr_id, completion.status), (index, WcStatus::Success), "seed {}", self.seed);
                self.check_received(index, &completion);
                received += 1;
            }
            stalled = if done + received == before + received_before { stalled + 1 } else { 0 };
            assert!(stalled < 20_000, "seed {}: no progress at {done}, {}", self.seed, self.pair.now);
        }
        let counter = &self.pair.right.memory[COUNTER as usize..COUNTER as usize + 8];
        let added = self.ops.iter().filter(|(op, _)| matches!(op, Op::FetchAdd)).count() as u64;
        assert_eq!(u64::from_ne_bytes(counter.try_into().expect("eight bytes")), added, "seed {}", self.seed);
    }

    fn check_done(&self, index: u64) {
        let (op, len) = self.ops[index as usize];
        let (slot, len) = (Self::slot(index) as usize, len as usize);
        let (left, right) = (&self.pair.left.memory, &self.pair.right.memory);
        match op {
            Op::Write => assert_eq!(left[slot..slot + len], right[500_000 + slot..500_000 + slot + len]),
            Op::Read => assert_eq!(right[slot..slot + len], left[500_000 + slot..500_000 + slot + len]),
            Op::FetchAdd => {
                let at = (RESULTS + index % 1_000 * 8) as usize;
                let before = self.ops[..index as usize].iter().filter(|(op, _)| matches!(op, Op::FetchAdd)).count();
                let found = u64::from_ne_bytes(left[at..at + 8].try_into().expect("eight bytes"));
                assert_eq!(found, before as u64, "seed {}: atomics were not executed once and in order", self.seed);
            }
            Op::WriteImm | Op::Send | Op::SendImm => {}
        }
    }

    fn check_received(&self, index: u64, completion: &Completion) {
        let (op, len) = self.ops[index as usize];
        let slot = Self::slot(index) as usize;
        assert_eq!(completion.byte_len, len, "seed {}", self.seed);
        let (left, right) = (&self.pair.left.memory, &self.pair.right.memory);
        let len = len as usize;
        assert_eq!(left[slot..slot + len], right[500_000 + slot..500_000 + slot + len], "seed {}", self.seed);
        let word = matches!(op, Op::WriteImm | Op::SendImm).then_some(index as u32);
        assert_eq!(completion.flags.contains(WcFlags::WITH_IMM).then_some(completion.word), word);
    }
}

fn chaos(transport: &str, options: &[(&str, &str)]) {
    let seeds = std::env::var("RNIC_CHAOS_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let first = std::env::var("RNIC_CHAOS_FIRST").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    for seed in first..first + seeds {
        let outcome = std::panic::catch_unwind(|| Chaos::new(transport, options, seed).run());
        if outcome.is_err() {
            let replay = format!("RNIC_CHAOS_FIRST={seed} RNIC_CHAOS_SEEDS=1 cargo test -p rnic-engine --test chaos");
            panic!("{transport} {options:?} fails; replay: {replay}");
        }
    }
}

#[test]
fn roce_gbn_survives_chaos() {
    chaos("roce-gbn", &[]);
}

#[test]
fn roce_gbn_with_a_small_window_survives_chaos() {
    chaos("roce-gbn", &[("cap_packets", "3")]);
}

#[test]
fn irn_survives_chaos() {
    chaos("irn", &[]);
}

#[test]
fn irn_with_a_small_window_survives_chaos() {
    chaos("irn", &[("cap_packets", "5")]);
}

#[test]
fn irn_variants_survive_chaos() {
    let variants: [&[(&str, &str)]; 6] = [
        &[("recovery", "go-back-n")],
        &[("sack_bitmap", "false")],
        &[("cap_packets", "0")],
        &[("dynamic_rto", "true")],
        &[("nack_threshold", "5")],
        &[("control", "dcqcn")],
    ];
    variants.into_iter().for_each(|options| chaos("irn", options));
}

#[test]
fn fasr_survives_chaos() {
    chaos("fasr", &[]);
}

#[test]
fn fasr_with_a_tiny_pool_survives_chaos() {
    chaos("fasr", &[("pool_units", "1"), ("pool_blocks", "2")]);
    chaos("fasr", &[("cap_packets", "5"), ("pool_units", "1"), ("pool_blocks", "1"), ("pool_block_bits", "1")]);
}
