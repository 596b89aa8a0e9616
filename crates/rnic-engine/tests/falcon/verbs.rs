//! Checks that each verb has its specified effect.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use rnic_base::{Duration, RandomStreams};
use rnic_engine::*;
use rnic_wire::falcon::rdma::{Header, Operation, SinkTag};
use rnic_wire::falcon::{Body, Ulp};

use crate::common::{BASE, DELIVERED, INBOX, MEMORY, MTU, Pair, Setup, bad};

const ORDERS: [&[(&str, &str)]; 4] =
    [&[], &[("flows", "4")], &[("ordering", "weak")], &[("ordering", "unordered"), ("errors", "complete-in-error")]];

/// Returns pairs on every kind of wire.
fn pairs() -> impl Iterator<Item = (String, bool, Pair)> {
    ORDERS.into_iter().flat_map(|options| {
        (0..4).map(move |wire| {
            let random = RandomStreams::new(wire).stream("wire");
            let setup = Setup::new(options);
            let pair = match wire {
                0 => Pair::new(&setup, |_| DELIVERED),
                1 => Pair::new(&setup, bad(random, 100, 0, 0)),
                2 => Pair::new(&setup, bad(random, 0, 100, 300)),
                _ => Pair::new(&setup, bad(random, 100, 100, 300)),
            };
            (format!("{options:?}, wire {wire}"), options.contains(&("ordering", "unordered")), pair)
        })
    })
}

fn finish(pair: &mut Pair) {
    pair.run_for(Duration::from_ms(200));
}

/// Requests are numbered one by one, also those of several packets and those that found no resources at first; and a
/// retransmission has the same header as the original, although the header was not stored.
#[test]
fn retransmissions_have_the_same_headers() {
    for options in ORDERS {
        let options: Vec<_> = options.iter().copied().chain([("resources", "1"), ("isolation", "none")]).collect();
        let unordered = options.contains(&("ordering", "unordered"));
        let mut pair = Pair::new(&Setup::new(&options), bad(RandomStreams::new(4).stream("wire"), 150, 0, 0));
        pair.keeps_log = true;
        let remote = pair.remote(0, INBOX);
        for wr_id in 0..60 {
            pair.ends[1].post_recv(1_000 + wr_id, INBOX + 400_000, 3 * MTU);
            let (op, len) = match wr_id % 4 {
                0 => (SendOp::Write { remote, immediate: None }, 3 * MTU),
                1 => (SendOp::Read { remote }, 2 * MTU + 1),
                2 => (SendOp::Send { immediate: None }, if unordered { MTU } else { 3 * MTU }),
                _ => (SendOp::FetchAdd { remote, add: 1 }, 8),
            };
            pair.ends[0].post(wr_id, op, BASE, len);
        }
        pair.run_for(Duration::from_ms(2_000));
        let done = pair.ends[0].take();
        assert!(
            done.len() == 60 && done.iter().all(|(_, status)| *status == WcStatus::Success),
            "{options:?}: {done:?}"
        );
        let (mut said, mut pushes_again) = (BTreeMap::new(), 0);
        for sent in pair.log.iter().filter(|sent| sent.from == 0) {
            let (Body::PushData { rsn, ulp, .. } | Body::PullRequest { rsn, ulp, .. }) = sent.packet.body else {
                continue;
            };
            let Ulp::Rdma(header) = ulp else { panic!("{ulp:?} is not RDMA") };
            match said.entry(rsn.value()) {
                Entry::Vacant(place) => drop(place.insert(header)),
                Entry::Occupied(first) if matches!(sent.packet.body, Body::PushData { .. }) => {
                    assert_eq!(*first.get(), header, "{options:?}: {rsn} is retransmitted with another header");
                    pushes_again += 1;
                }
                // A Pull may be retransmitted when its data has already arrived and its request state is freed.
                Entry::Occupied(first) => {
                    assert!(header == *first.get() || header.sn.value() == 0, "{options:?}: {rsn}");
                }
            }
        }
        assert!(pushes_again > 5, "{options:?}: {pushes_again}");
        let first = *said.keys().next().expect("packets were sent");
        let numbers: Vec<_> = said.iter().map(|(rsn, header)| (rsn - first, header.sn.value())).collect();
        let expected: Vec<_> = (0..said.len() as u32).map(|nth| (nth, nth + 1)).collect();
        assert_eq!(numbers, expected, "{options:?}");
        // Apart from these, the packets of Reads and atomics have their own numbers, from 1 (RDMA over Falcon 8.3.2).
        let fetches: Vec<_> = said
            .values()
            .filter_map(|header| match header.operation {
                Operation::ReadRequest { rmsn, .. } | Operation::AtomicRequest { rmsn, .. } => Some(rmsn.value()),
                _ => None,
            })
            .collect();
        assert_eq!(fetches, (1..=15 * 3 + 15).collect::<Vec<_>>(), "{options:?}");
    }
}

/// A Pull carries the address that its data goes to, in one of the memory pieces of the Read; a Pull whose data spans
/// two pieces carries no address.
#[test]
fn pulls_of_a_read_carry_the_address_of_their_memory_piece() {
    let mut pair = Pair::new(&Setup::new(&[]), |_| DELIVERED);
    let remote = pair.remote(0, INBOX);
    let end = &mut pair.ends[0];
    let sges = [end.sge(BASE, MTU), end.sge(BASE + 10_000, 2 * MTU - 1), end.sge(BASE + 20_000, MTU)];
    end.try_post(1, SendOp::Read { remote }, &sges, SendFlags::empty()).expect("the queue is not full");
    finish(&mut pair);
    assert_eq!(pair.ends[0].take(), [(1, WcStatus::Success)]);
    let said: Vec<_> = pair
        .log
        .iter()
        .filter_map(|sent| match sent.packet.body {
            Body::PullRequest {
                ulp: Ulp::Rdma(Header { operation: Operation::ReadRequest { sink, .. }, .. }), ..
            } => Some(sink),
            _ => None,
        })
        .collect();
    let lkey = pair.ends[0].key;
    let [first, second, last] = [BASE, BASE + 10_000, BASE + 20_001].map(|va| SinkTag { va, lkey });
    assert_eq!(said, [first, second, SinkTag::default(), last]);
}

#[test]
fn write_moves_bytes_of_any_length() {
    for (name, _, mut pair) in pairs() {
        let lengths = [0, 1, MTU - 1, MTU, MTU + 1, 5 * MTU, 100_001];
        let mut at = 0;
        for (wr_id, len) in lengths.into_iter().enumerate() {
            let remote = pair.remote(0, INBOX + at);
            pair.ends[0].post(wr_id as u64, SendOp::Write { remote, immediate: None }, BASE + at, len);
            at += u64::from(len) + 3;
        }
        finish(&mut pair);
        let mut done = pair.ends[0].take();
        done.sort_unstable_by_key(|(wr_id, _)| *wr_id);
        let all: Vec<_> = (0..lengths.len() as u64).map(|wr_id| (wr_id, WcStatus::Success)).collect();
        assert_eq!(done, all, "{name}");
        let mut at = 0;
        for len in lengths {
            assert_eq!(pair.ends[1].bytes(INBOX + at, len), pair.ends[0].bytes(BASE + at, len), "{name}: {len} bytes");
            at += u64::from(len) + 3;
        }
        assert!(pair.ends[1].kept.is_empty(), "{name}: payload is still kept");
    }
}

#[test]
fn sends_fill_receives_in_order() {
    for (name, unordered, mut pair) in pairs() {
        let lengths = if unordered { [0, 1, MTU, 7, MTU - 1] } else { [0, 1, 3 * MTU, MTU + 1, 10_000] };
        for wr_id in 0..lengths.len() as u64 {
            pair.ends[1].post_recv(100 + wr_id, INBOX + wr_id * 16_384, 16_384);
        }
        let mut at = 0;
        for (wr_id, len) in lengths.into_iter().enumerate() {
            let immediate = (wr_id % 2 == 0).then_some(wr_id as u32);
            pair.ends[0].post(wr_id as u64, SendOp::Send { immediate }, BASE + at, len);
            at += u64::from(len);
        }
        finish(&mut pair);
        let sent = pair.ends[0].take();
        assert_eq!(sent.len(), lengths.len(), "{name}: {sent:?}");
        assert!(sent.iter().all(|(_, status)| *status == WcStatus::Success), "{name}: {sent:?}");
        let received = pair.ends[1].done.clone();
        assert_eq!(received.len(), lengths.len(), "{name}: {received:?}");
        if unordered {
            let mut got: Vec<u32> = received.iter().map(|done| done.byte_len).collect();
            got.sort_unstable();
            let mut asked = lengths.to_vec();
            asked.sort_unstable();
            assert_eq!(got, asked, "{name}");
            continue;
        }
        let mut at = 0;
        for (wr_id, (len, done)) in lengths.into_iter().zip(&received).enumerate() {
            let flags = if wr_id % 2 == 0 { WcFlags::WITH_IMM } else { WcFlags::empty() };
            assert_eq!((done.wr_id, done.byte_len, done.flags), (100 + wr_id as u64, len, flags), "{name}");
            assert_eq!(done.word, if wr_id % 2 == 0 { wr_id as u32 } else { 0 });
            let inbox = INBOX + wr_id as u64 * 16_384;
            assert_eq!(pair.ends[1].bytes(inbox, len), pair.ends[0].bytes(BASE + at, len), "{name}: {len} bytes");
            at += u64::from(len);
        }
        assert!(pair.ends[1].kept.is_empty(), "{name}: payload is still kept");
    }
}

#[test]
fn reads_return_bytes_of_any_length() {
    for (name, _, mut pair) in pairs() {
        let lengths = [0, 1, MTU, MTU + 1, 70_003, 8, 9, 10, 11];
        let mut at = 0;
        for (wr_id, len) in lengths.into_iter().enumerate() {
            let remote = pair.remote(0, BASE + at);
            pair.ends[0].post(wr_id as u64, SendOp::Read { remote }, INBOX + at, len);
            at += u64::from(len);
        }
        finish(&mut pair);
        let mut done = pair.ends[0].take();
        done.sort_unstable_by_key(|(wr_id, _)| *wr_id);
        let all: Vec<_> = (0..lengths.len() as u64).map(|wr_id| (wr_id, WcStatus::Success)).collect();
        assert_eq!(done, all, "{name}");
        assert_eq!(pair.ends[0].bytes(INBOX, at as u32), pair.ends[1].bytes(BASE, at as u32), "{name}");
    }
}

#[test]
fn atomics_are_executed_once() {
    for (name, _, mut pair) in pairs() {
        let target = BASE + 800;
        let before = pair.ends[1].word(target);
        for wr_id in 0..40 {
            let remote = pair.remote(0, target);
            pair.ends[0].post(wr_id, SendOp::FetchAdd { remote, add: 3 }, INBOX + wr_id * 8, 8);
        }
        finish(&mut pair);
        let done = pair.ends[0].take();
        assert_eq!(done.len(), 40, "{name}");
        assert!(done.iter().all(|(_, status)| *status == WcStatus::Success), "{name}: {done:?}");
        assert_eq!(pair.ends[1].word(target), before.wrapping_add(120), "{name}");
        let mut found: Vec<u64> = (0..40).map(|at| pair.ends[0].word(INBOX + at * 8).wrapping_sub(before)).collect();
        found.sort_unstable();
        assert!(found.into_iter().eq((0..40).map(|nth| nth * 3)), "{name}: wrong values were returned");
        let (remote, compare) = (pair.remote(0, target), before.wrapping_add(120));
        pair.ends[0].post(1, SendOp::CompareSwap { remote, compare, swap: 5 }, INBOX, 8);
        finish(&mut pair);
        assert_eq!((pair.ends[0].word(INBOX), pair.ends[1].word(target)), (compare, 5), "{name}");
    }
}

#[test]
fn write_with_immediate_completes_a_receive_after_its_data() {
    for (name, unordered, mut pair) in pairs() {
        let len = if unordered { MTU } else { 5 * MTU + 3 };
        for wr_id in 0..8 {
            pair.ends[1].post_recv(wr_id, INBOX, 0);
        }
        for wr_id in 0..8 {
            let remote = pair.remote(0, INBOX + wr_id * 8_192);
            let op = SendOp::Write { remote, immediate: Some(wr_id as u32) };
            pair.ends[0].post(wr_id, op, BASE + wr_id * 8_192, len);
        }
        finish(&mut pair);
        assert_eq!(pair.ends[0].take().len(), 8, "{name}");
        let mut words: Vec<u32> = pair.ends[1].done.iter().map(|done| done.word).collect();
        if unordered {
            words.sort_unstable();
        }
        assert!(words.into_iter().eq(0..8), "{name}");
        for done in &pair.ends[1].done {
            assert_eq!((done.opcode, done.byte_len), (WcOpcode::RecvRdmaWithImm, len), "{name}");
        }
        for at in (0..8).map(|wr_id| wr_id * 8_192) {
            assert_eq!(pair.ends[1].bytes(INBOX + at, len), pair.ends[0].bytes(BASE + at, len), "{name}");
        }
    }
}

#[test]
fn a_receiver_that_is_not_ready_delays_later_requests() {
    for (name, _, mut pair) in pairs() {
        for wr_id in 0..6 {
            pair.ends[0].post(wr_id, SendOp::Send { immediate: None }, BASE + wr_id * 100, 100);
        }
        pair.run_for(Duration::from_ms(2));
        assert_eq!(pair.ends[0].take(), [], "{name}");
        for wr_id in 0..6 {
            pair.ends[1].post_recv(wr_id, INBOX + wr_id * 100, 100);
        }
        finish(&mut pair);
        let all: Vec<_> = (0..6).map(|wr_id| (wr_id, WcStatus::Success)).collect();
        let mut done = [pair.ends[0].take(), pair.ends[1].take()];
        if name.contains("unordered") {
            done.iter_mut().for_each(|done| done.sort_unstable_by_key(|(wr_id, _)| *wr_id));
        } else {
            assert_eq!(pair.ends[1].bytes(INBOX, 600), pair.ends[0].bytes(BASE, 600), "{name}");
        }
        assert_eq!(done, [all.clone(), all], "{name}");
        assert!(pair.ends[1].kept.is_empty(), "{name}: payload is still kept");
    }
}

#[test]
fn scatter_gather_lists_are_gathered_and_scattered() {
    for (name, unordered, mut pair) in pairs() {
        let lens: [u32; 4] = if unordered { [100, 0, 300, 7] } else { [1_000, 0, 3_000, 77] };
        let list = |side: &crate::common::Side, base: u64| {
            let mut at = base;
            lens.map(|len| {
                at += 5_000;
                side.sge(at, len)
            })
        };
        let (from, to) = (list(&pair.ends[0], BASE), list(&pair.ends[1], INBOX));
        let qpn = pair.ends[1].qpn;
        pair.ends[1].engine.post_recv(qpn, &RecvRequest { wr_id: 9, sges: &to }).expect("the queue is not full");
        pair.ends[0].try_post(1, SendOp::Send { immediate: None }, &from, SendFlags::empty()).expect("not full");
        let back = list(&pair.ends[0], INBOX);
        let remote = pair.remote(0, BASE + 300_000);
        pair.ends[0].try_post(2, SendOp::Read { remote }, &back, SendFlags::FENCE).expect("the queue is not full");
        finish(&mut pair);
        assert_eq!(pair.ends[0].take().len(), 2, "{name}");
        let mut at = BASE + 300_000;
        for ((from, to), back) in from.iter().zip(&to).zip(&back) {
            assert_eq!(pair.ends[1].bytes(to.addr, to.len), pair.ends[0].bytes(from.addr, from.len), "{name}");
            assert_eq!(pair.ends[0].bytes(back.addr, back.len), pair.ends[1].bytes(at, back.len), "{name}");
            at += u64::from(back.len);
        }
        assert!(at < BASE + MEMORY as u64);
    }
}

/// Checks that a key is invalidated only after the message is placed, since the message may go to the memory of that
/// key; and that a message that is refused does not invalidate its key.
#[test]
fn a_key_is_invalidated_after_the_data_is_placed() {
    for options in ORDERS {
        let mut pair = Pair::new(&Setup::new(options), |_| DELIVERED);
        let (qpn, pd) = (pair.ends[1].qpn, pair.ends[1].pd);
        let access = Access::LOCAL_WRITE | Access::REMOTE_INVALIDATE;
        let region = MemoryRegion { pd, addr: INBOX, len: 1_000, local: MEMORY as u64 / 2, access };
        let engine = &mut pair.ends[1].engine;
        let [own, gone, other] = [0; 3].map(|_| engine.objects_mut().register(region).expect("a legal region"));
        for (wr_id, key) in [(7, own), (8, gone)] {
            let sges = &[Sge { addr: INBOX, len: 100, lkey: key.0 }];
            engine.post_recv(qpn, &RecvRequest { wr_id, sges }).expect("the queue is not full");
        }
        pair.ends[0].post(1, SendOp::SendInvalidate { rkey: own.0 }, BASE, 10);
        finish(&mut pair);
        assert_eq!(pair.ends[0].take(), [(1, WcStatus::Success)], "{options:?}");
        assert_eq!(pair.ends[1].take(), [(7, WcStatus::Success)], "{options:?}");
        assert_eq!(pair.ends[1].bytes(INBOX, 10), pair.ends[0].bytes(BASE, 10), "{options:?}");
        pair.ends[1].engine.objects_mut().deregister(own).expect_err("the key is invalid");
        pair.ends[1].engine.objects_mut().deregister(gone).expect("it is registered");
        pair.ends[0].post(2, SendOp::SendInvalidate { rkey: other.0 }, BASE, 10);
        finish(&mut pair);
        assert_eq!(pair.ends[0].take(), [(2, WcStatus::RemoteOperational)], "{options:?}");
        assert_eq!(pair.ends[1].take(), [(8, WcStatus::LocalProtection)], "{options:?}");
        pair.ends[1].engine.objects_mut().deregister(other).expect("a refused message invalidates no key");
    }
}
