//! The memory placement extensions: atomic writes and flushes, over every transport of the RoCE family.

mod common;

use common::*;
use rnic_base::{Duration, RandomStreams};
use rnic_engine::*;
use rnic_wire::{Headers, PlacementOp};

const TRANSPORTS: [&str; 4] = ["roce-gbn", "roce-sr", "irn", "fasr"];
const GLOBAL: u8 = 1;
const PERSISTENT: u8 = 2;
const RANGE: u8 = 0;
const REGION: u8 = 1;

#[test]
fn an_atomic_write_is_placed_after_all_earlier_data() {
    for transport in TRANSPORTS {
        let mut pair = Pair::of(transport);
        let remote = pair.right.remote(4_096);
        pair.left.post(1, SendOp::Write { remote, immediate: None }, &[pair.left.sge(0, 5_000)]);
        pair.left.post(2, SendOp::AtomicWrite { remote, value: *b"01234567" }, &[]);
        pair.left.post(3, SendOp::Read { remote }, &[pair.left.sge(700_000, 16)]);
        pair.run();
        let done = pair.left.completions();
        let ended: Vec<_> = done.iter().map(|done| (done.wr_id, done.status, done.opcode)).collect();
        let (ok, expected) = (WcStatus::Success, [WcOpcode::RdmaWrite, WcOpcode::AtomicWrite, WcOpcode::RdmaRead]);
        assert_eq!(ended, [(1, ok, expected[0]), (2, ok, expected[1]), (3, ok, expected[2])], "{transport}");
        assert_eq!(pair.right.memory[4_096..4_104], *b"01234567");
        assert_eq!(pair.left.memory[700_000..700_008], *b"01234567");
        assert_eq!(pair.left.memory[700_008..700_016], pair.left.memory[8..16]);
    }
}

/// Losses, duplicates and delays do not matter: each atomic Write is executed once and in order.
#[test]
fn atomic_writes_stay_in_order_over_a_lossy_network() {
    for transport in TRANSPORTS {
        let mut pair = Pair::of(transport);
        let mut random = RandomStreams::new(11).stream("wire");
        pair.wire(move |_| match random.below(12) {
            0 => Fate::Drop,
            1 => Fate::TwiceLate(Duration::from_us(40)),
            _ => Fate::Deliver,
        });
        let remote = pair.right.remote(4_096);
        for round in 0..200u64 {
            pair.left.post(round, SendOp::AtomicWrite { remote, value: round.to_ne_bytes() }, &[]);
            if round % 8 == 7 {
                pair.left.post(1_000, SendOp::Read { remote }, &[pair.left.sge(600_000 + round * 8, 8)]);
                let flush = SendOp::Flush { remote, len: 8, placement: GLOBAL, selectivity: RANGE };
                pair.left.post(2_000, flush, &[]);
                pair.run();
                let statuses = pair.left.statuses();
                let is_done = statuses.len() == 10 && statuses.iter().all(|(_, status)| *status == WcStatus::Success);
                assert!(is_done, "{transport}, round {round}: {statuses:?}");
                let read = &pair.left.memory[600_000 + round as usize * 8..][..8];
                assert_eq!(read, round.to_ne_bytes(), "{transport}");
            }
        }
        assert_eq!(pair.right.memory[4_096..4_104], 199u64.to_ne_bytes());
    }
}

#[test]
fn flushes_and_atomic_writes_without_the_right_or_with_invalid_fields_are_refused() {
    let (denied, invalid) = (WcStatus::RemoteAccess, WcStatus::RemoteInvalidRequest);
    for transport in TRANSPORTS {
        let all = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let flush = |len, placement, selectivity| move |remote| SendOp::Flush { remote, len, placement, selectivity };
        type Make<'a> = &'a dyn Fn(RemoteMemory) -> SendOp;
        let write: Make<'_> = &|remote| SendOp::AtomicWrite { remote, value: [7; 8] };
        let askew: Make<'_> = &|remote| {
            let remote = RemoteMemory { addr: remote.addr + 4, ..remote };
            SendOp::AtomicWrite { remote, value: [7; 8] }
        };
        let writes = Access::REMOTE_WRITE;
        let flushes = Access::FLUSH_GLOBAL;
        let cases: [(Access, Make<'_>, WcStatus); 12] = [
            (writes, write, WcStatus::Success),
            (Access::empty(), write, denied),
            (writes, askew, invalid),
            (flushes, &flush(64, GLOBAL, RANGE), WcStatus::Success),
            (flushes, &flush(9_999_999, GLOBAL, REGION), WcStatus::Success),
            (flushes, &flush(65, GLOBAL, RANGE), denied),
            (writes, &flush(64, GLOBAL, REGION), denied),
            (flushes, &flush(64, PERSISTENT, REGION), denied),
            (flushes, &flush(64, GLOBAL | PERSISTENT, RANGE), denied),
            (flushes, &flush(64, 0, RANGE), invalid),
            (flushes, &flush(64, 4, RANGE), invalid),
            (flushes, &flush(64, GLOBAL, 2), invalid),
        ];
        for (index, (access, make, expected)) in cases.into_iter().enumerate() {
            let mut pair = Pair::of(transport);
            let (pd, addr) = (pair.right.pd, BASE + 4_096);
            let region = MemoryRegion { pd, addr, len: 64, local: 4_096, access: all | access };
            let rkey = pair.right.engine.objects_mut().register(region).expect("legal").0;
            let before = pair.right.memory.clone();
            pair.left.post(1, make(RemoteMemory { addr, rkey }), &[]);
            pair.run();
            assert_eq!(pair.left.statuses(), [(1, expected)], "{transport} case {index}");
            if expected != WcStatus::Success {
                assert_eq!(pair.right.memory, before, "{transport} case {index}");
            }
        }
    }
}

/// Checks that packets have the headers of annex A19, so that a peer of another vendor can read them.
#[test]
fn requests_have_the_headers_of_annex_a19() {
    let mut pair = Pair::of("roce-gbn");
    let remote = pair.right.remote(4_096);
    pair.left.post(1, SendOp::AtomicWrite { remote, value: *b"abcdefgh" }, &[]);
    pair.left.post(2, SendOp::Flush { remote, len: 77, placement: GLOBAL, selectivity: REGION }, &[]);
    pair.run();
    let ops: Vec<_> = pair.log.iter().filter(|sent| sent.from == From::Left).map(|sent| sent.packet.headers).collect();
    let [Headers::PlacementRequest { va, rkey, op: first, .. }, Headers::PlacementRequest { op: second, .. }] = ops[..]
    else {
        panic!("{ops:?}")
    };
    assert_eq!((va, rkey), (remote.addr, remote.rkey));
    assert_eq!(first, PlacementOp::AtomicWrite { value: *b"abcdefgh" });
    assert_eq!(second, PlacementOp::Flush { len: 77, placement: GLOBAL, selectivity: REGION });
    let answers: Vec<_> = pair.log.iter().filter(|sent| sent.from == From::Right).map(|sent| sent.packet).collect();
    assert_eq!(answers.len(), 2);
    for packet in answers {
        assert!(packet.payload_len == 0 && matches!(packet.headers, Headers::ReadResponse { .. }), "{packet:?}");
    }
}
