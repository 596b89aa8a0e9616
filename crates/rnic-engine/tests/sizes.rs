//! Long runs and extreme sizes: sequence numbers that wrap, messages of zero bytes and of a gibibyte, every MTU.
//!
//! Sequence numbers wrap at 24 bits, and so do IRN's names for receives and reads and the message count. Two kinds of
//! tests show that a wrap does no harm:
//!
//! * every run starts close before the wrap (and, here, before the middle of the circle), so that ordinary tests
//!   cross it;
//! * the release-only tests here use every number: more than 2^24 packets, Sends and Reads on one queue pair. A
//!   shortcut would have to set each of a dozen counters inside the engine consistently; at ten million packets a
//!   second, sending them all is simpler.

mod common;

#[path = "common/back_to_back.rs"]
mod back_to_back;

use back_to_back::{BackToBack, Shape};
use rnic_base::limits::{MESSAGE_BYTES_MAX, MTU_MAX, MTU_MIN, OUTSTANDING_PACKETS_MAX};
use rnic_base::{Probability, Psn};
use rnic_engine::*;

const TRANSPORTS: [&str; 3] = ["roce-gbn", "irn", "fasr"];
const GIB: u32 = MESSAGE_BYTES_MAX as u32;
/// More packets than there are 24-bit numbers.
const ALL_THE_WAY: u64 = (1 << 24) + 100_000;

/// Emulated memory without contents: records which pieces of 256 bytes of its first GiB have been written.
#[derive(Clone, Default)]
struct Pieces {
    bytes: u64,
    words: Vec<u64>,
}

const PIECE: u64 = 256;

impl Pieces {
    fn is_complete(&self, bytes: u64) -> bool {
        let full = (bytes / PIECE) as usize;
        let set = |index: usize| self.words.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1);
        (0..full).all(set)
    }
}

impl Dma for Pieces {
    fn place(&mut self, _: u32, target: Segment) -> Result<(), MemoryFault> {
        self.bytes += u64::from(target.len);
        assert!(target.local + u64::from(target.len) <= MESSAGE_BYTES_MAX, "{target:?} outside of the region");
        let (first, end) = (target.local.div_ceil(PIECE), (target.local + u64::from(target.len)) / PIECE);
        self.words.resize((MESSAGE_BYTES_MAX / PIECE / 64) as usize, 0);
        for piece in first..end {
            self.words[piece as usize / 64] |= 1 << (piece % 64);
        }
        Ok(())
    }

    fn place_kept(&mut self, _: u64, offset: u32, target: Segment) -> Result<(), MemoryFault> {
        self.place(offset, target)
    }

    fn store(&mut self, _: u64, _: u64) -> Result<(), MemoryFault> {
        Ok(())
    }

    fn compare_swap(&mut self, _: u64, _: u64, _: u64) -> Result<u64, MemoryFault> {
        Ok(0)
    }

    fn fetch_add(&mut self, _: u64, _: u64) -> Result<u64, MemoryFault> {
        Ok(0)
    }
}

/// Runs one message of a GiB; the MTU must be a multiple of the piece.
fn gibibyte(transport: &str, mtu: u32, op: &str, loss: Probability) {
    let mut shape = Shape::new(transport, &[]);
    (shape.mtu, shape.memory) = (mtu, MESSAGE_BYTES_MAX);
    let mut pair = BackToBack::new(&shape, Pieces::default());
    pair.loss = loss;
    let remote = pair.right.remote(0);
    let op = match op {
        "write" => SendOp::Write { remote, immediate: Some(1) },
        "send" => SendOp::Send { immediate: None },
        _ => SendOp::Read { remote },
    };
    pair.right.post_recv(pair.right.numbers[0], 9, GIB);
    pair.left.post(0, 7, op, GIB);
    let what = format!("{transport}, MTU {mtu}, {op:?}");
    while pair.left.engine.objects().cq_level(pair.left.cq).is_some_and(|(level, _)| level == 0) {
        pair.round();
    }
    let reads = matches!(op, SendOp::Read { .. });
    assert_eq!(pair.left.completion().map(|done| done.wr_id), Some(7), "{what}");
    if !reads {
        assert_eq!(pair.right.completion().map(|done| (done.wr_id, done.byte_len)), Some((9, GIB)), "{what}");
    }
    let placed = if reads { &pair.left.dma } else { &pair.right.dma };
    assert!(placed.is_complete(MESSAGE_BYTES_MAX), "{what}: bytes are missing");
    if loss.is_never() {
        assert_eq!(placed.bytes, MESSAGE_BYTES_MAX, "{what}: bytes are placed twice");
    }
}

#[test]
fn a_message_of_1_gib_arrives_in_large_packets() {
    for transport in TRANSPORTS.into_iter().chain(["falcon"]) {
        for op in ["write", "send", "read"] {
            gibibyte(transport, MTU_MAX, op, Probability::NEVER);
            gibibyte(transport, MTU_MAX, op, Probability::ratio(1, 10_000));
        }
    }
}

#[test]
#[cfg_attr(debug_assertions, ignore = "50 million packets: in release only")]
fn a_message_of_1_gib_arrives_in_packets_of_every_mtu() {
    for transport in TRANSPORTS {
        for op in ["write", "send", "read"] {
            for mtu in [MTU_MIN, 512, 1_024, 2_048, 4_096] {
                gibibyte(transport, mtu, op, Probability::NEVER);
                gibibyte(transport, mtu, op, Probability::ratio(1, 10_000));
            }
        }
    }
}

/// Every MTU from the smallest to the largest, with messages around one and two packets, byte for byte.
#[test]
fn every_mtu_carries_messages_of_every_length() {
    use common::{Pair, Setup};
    for transport in TRANSPORTS {
        for mtu in [MTU_MIN, 260, 508, 512, 1_000, 1_024, 1_408, 2_048, 4_096, 8_188, MTU_MAX] {
            let lens = [0, 1, mtu - 1, mtu, mtu + 1, 2 * mtu - 1, 2 * mtu, 2 * mtu + 1, 5 * mtu + 3];
            let mut setup = Setup::new(transport, &[]);
            setup.mtu = mtu;
            let mut pair = Pair::new(&setup);
            for (wr_id, len) in (0..).zip(lens) {
                let to = pair.right.sge(600_000, len);
                pair.right.post_recv(wr_id, &[to]);
                let (from, remote) = (pair.left.sge(wr_id, len), pair.right.remote(500_000));
                let (source, answer) = (pair.right.remote(wr_id), pair.left.sge(700_000, len));
                pair.left.post(wr_id, SendOp::Write { remote, immediate: None }, &[from]);
                pair.left.post(wr_id, SendOp::Send { immediate: None }, &[from]);
                pair.left.post(wr_id, SendOp::Read { remote: source }, &[answer]);
                pair.run();
                assert_eq!(pair.left.statuses(), [(wr_id, WcStatus::Success); 3], "{transport}, {mtu}, {len}");
                assert_eq!(pair.right.completions().iter().map(|c| c.byte_len).collect::<Vec<_>>(), [len]);
                let (first, len) = (wr_id as usize, len as usize);
                let (left, right) = (&pair.left.memory, &pair.right.memory);
                assert!(right[500_000..][..len] == left[first..][..len], "{transport}, {mtu}, {len}: write");
                assert!(right[600_000..][..len] == left[first..][..len], "{transport}, {mtu}, {len}: send");
                assert!(left[700_000..][..len] == right[first..][..len], "{transport}, {mtu}, {len}: read");
            }
        }
    }
}

/// Has 64 requests in flight until `count` are complete.
fn many(
    shape: &Shape,
    count: u64,
    loss: Probability,
    op: impl Fn(RemoteMemory) -> SendOp,
    len: u32,
) -> BackToBack<NoDma> {
    let mut pair = BackToBack::new(shape, NoDma);
    pair.loss = loss;
    let receiver = pair.right.numbers[0];
    let (mut posted, mut done, mut received) = (0, 0, 0);
    (0..128).for_each(|wr_id| pair.right.post_recv(receiver, wr_id, 4_096));
    while done < count {
        while posted < count.min(done + 64) {
            let op = op(pair.right.remote(4_096));
            pair.left.post(0, posted, op, len);
            posted += 1;
        }
        pair.round();
        while let Some(completion) = pair.left.completion() {
            assert_eq!(completion.wr_id, done);
            done += 1;
        }
        while let Some(completion) = pair.right.completion() {
            assert_eq!(completion.wr_id, received, "receives are not used in order");
            received += 1;
            pair.right.post_recv(receiver, received + 127, 4_096);
        }
    }
    pair
}

type MakeOp = fn(RemoteMemory) -> SendOp;

const OPS: [(&str, MakeOp, u32); 5] = [
    ("write", |remote| SendOp::Write { remote, immediate: None }, 8),
    ("send", |_| SendOp::Send { immediate: Some(1) }, 8),
    ("read", |remote| SendOp::Read { remote }, 8),
    ("long read", |remote| SendOp::Read { remote }, 2_500),
    ("atomic", |remote| SendOp::FetchAdd { remote, add: 1 }, 8),
];

/// Checks every operation across the wrap and across the middle of the circle, starting at every distance up to four
/// packets, with loss.
#[test]
fn sequence_numbers_wrap_under_every_operation() {
    for transport in TRANSPORTS {
        for (name, op, len) in OPS {
            for edge in [0u32, 1 << 23, (1 << 24) - 1] {
                for before in 0..4 {
                    let mut shape = Shape::new(transport, &[]);
                    shape.psn = Psn::new(edge.wrapping_sub(before));
                    let pair = many(&shape, 300, Probability::ratio(1, 20), op, len);
                    let info = pair.right.engine.query_qp(pair.right.numbers[0]).expect("it exists");
                    assert_eq!(info.msn, 300, "{transport}, {name}, from {edge:#x} - {before}");
                }
            }
        }
    }
}

fn all_the_way(transport: &str) {
    for (name, op, len) in OPS {
        for loss in [Probability::NEVER, Probability::ratio(1, 1_000)] {
            let shape = Shape::new(transport, &[]);
            let count = ALL_THE_WAY / u64::from(len.div_ceil(shape.mtu));
            let pair = many(&shape, count, loss, op, len);
            let info = pair.right.engine.query_qp(pair.right.numbers[0]).expect("it exists");
            assert_eq!(u64::from(info.msn), count % (1 << 24), "{transport}, {name}: messages count modulo 2^24");
            assert!(pair.packets > ALL_THE_WAY);
        }
    }
}

/// The numbers of requests, responses, receives, reads and messages all wrap once.
#[test]
#[cfg_attr(debug_assertions, ignore = "400 million packets: in release only")]
fn roce_gbn_sequence_numbers_wrap_completely() {
    all_the_way("roce-gbn");
}

#[test]
#[cfg_attr(debug_assertions, ignore = "400 million packets: in release only")]
fn irn_sequence_numbers_wrap_completely() {
    all_the_way("irn");
}

/// RoCE has no cap of its own, but at most a quarter of the circle may be outstanding: beyond that, old and new
/// numbers could not be distinguished. A GiB in the smallest packets is exactly that much.
#[test]
#[cfg_attr(debug_assertions, ignore = "4 million packets under way: in release only")]
fn at_most_a_quarter_of_the_psn_space_is_in_flight() {
    let mut shape = Shape::new("roce-gbn", &[("rto", "0us")]);
    (shape.mtu, shape.memory) = (MTU_MIN, MESSAGE_BYTES_MAX);
    let mut pair = BackToBack::new(&shape, NoDma);
    let remote = pair.right.remote(0);
    (0..2).for_each(|wr_id| pair.left.post(0, wr_id, SendOp::Write { remote, immediate: None }, GIB));
    let sent = std::iter::from_fn(|| pair.left.engine.transmit(pair.now).map(|_| ())).count() as u64;
    assert_eq!(sent, OUTSTANDING_PACKETS_MAX);
    assert!(pair.left.engine.stats().waits[WaitReason::Cap as usize] > 0);
}
