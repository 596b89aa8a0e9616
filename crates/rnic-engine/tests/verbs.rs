//! Verbs semantics on a reliable and on an unreliable wire, for every transport.

mod common;

use common::*;
use rnic_engine::*;

const TRANSPORTS: [&str; 3] = ["roce-gbn", "irn", "fasr"];

#[test]
fn write_moves_bytes_and_completes_once() {
    for transport in TRANSPORTS {
        for len in [0u32, 1, 4, 1_023, 1_024, 1_025, 10_000, 200_000] {
            let mut pair = Pair::of(transport);
            let (sge, remote) = (pair.left.sge(100, len), pair.right.remote(300_000));
            pair.left.post(1, SendOp::Write { remote, immediate: None }, &[sge]);
            pair.run();
            assert_eq!(pair.left.statuses(), [(1, WcStatus::Success)], "{transport} {len}");
            assert!(pair.right.completions().is_empty());
            let len = len as usize;
            assert_eq!(pair.right.memory[300_000..300_000 + len], pair.left.memory[100..100 + len]);
            assert_eq!(pair.right.info().msn, 1);
        }
    }
}

#[test]
fn send_fills_receives_in_order_and_scatters() {
    for transport in TRANSPORTS {
        let mut pair = Pair::of(transport);
        let scattered = [pair.right.sge(500_000, 700), pair.right.sge(502_000, 2_000)];
        pair.right.post_recv(10, &scattered);
        pair.right.post_recv(11, &[pair.right.sge(510_000, 100)]);
        let gathered = [pair.left.sge(0, 1_000), pair.left.sge(5_000, 1_500)];
        pair.left.post(1, SendOp::Send { immediate: None }, &gathered);
        pair.left.post(2, SendOp::Send { immediate: Some(0xfeed) }, &[pair.left.sge(9_000, 60)]);
        pair.run();
        assert_eq!(pair.left.statuses(), [(1, WcStatus::Success), (2, WcStatus::Success)]);
        let received = pair.right.completions();
        assert_eq!(received.iter().map(|c| (c.wr_id, c.byte_len)).collect::<Vec<_>>(), [(10, 2_500), (11, 60)]);
        assert_eq!((received[1].word, received[1].flags), (0xfeed, WcFlags::WITH_IMM));
        let sent: Vec<u8> = [&pair.left.memory[0..1_000], &pair.left.memory[5_000..6_500]].concat();
        assert_eq!(pair.right.memory[500_000..500_700], sent[..700]);
        assert_eq!(pair.right.memory[502_000..503_800], sent[700..]);
    }
}

#[test]
fn read_and_atomics_return_the_previous_values() {
    for transport in TRANSPORTS {
        let mut pair = Pair::of(transport);
        pair.right.memory[800..808].copy_from_slice(&41u64.to_ne_bytes());
        let right = |offset| pair.right.remote(offset);
        let (long, word) = (right(4_000), right(800));
        pair.left.post(1, SendOp::Read { remote: long }, &[pair.left.sge(600_000, 5_000)]);
        pair.left.post(2, SendOp::FetchAdd { remote: word, add: 1 }, &[pair.left.sge(700_000, 8)]);
        let swap = SendOp::CompareSwap { remote: word, compare: 42, swap: 99 };
        pair.left.post(3, swap, &[pair.left.sge(700_008, 8)]);
        pair.left.post(4, SendOp::Read { remote: word }, &[pair.left.sge(700_016, 8)]);
        pair.run();
        let done: Vec<_> = (1..=4).map(|id| (id, WcStatus::Success)).collect();
        assert_eq!(pair.left.statuses(), done, "{transport}");
        assert_eq!(pair.left.memory[600_000..605_000], pair.right.memory[4_000..9_000]);
        let word = |at: usize| u64::from_ne_bytes(pair.left.memory[at..at + 8].try_into().expect("eight bytes"));
        assert_eq!([word(700_000), word(700_008), word(700_016)], [41, 42, 99], "{transport}");
    }
}
