//! Memory windows, over every transport of the RoCE family: binding, rights, invalidation.

mod common;

use common::*;
use rnic_engine::*;

const TRANSPORTS: [&str; 4] = ["roce-gbn", "roce-sr", "irn", "fasr"];
const WRITE: Access = Access::REMOTE_WRITE;

/// Creates a window of the right side and returns its first key.
fn window(pair: &mut Pair, kind: WindowKind) -> u32 {
    let pd = pair.right.pd;
    pair.right.engine.objects_mut().allocate_window(pd, kind).expect("the limit is not reached").0
}

/// Binds the window with `key` to `len` bytes at `offset` of the right side's memory.
fn bind(pair: &mut Pair, wr_id: u64, key: u32, (offset, len): (u64, u64), access: Access) {
    let (region, addr) = (pair.right.key, BASE + offset);
    pair.right.post(wr_id, SendOp::Bind(Binding { key, region, addr, len, access, zero_based: false }), &[]);
    pair.run();
}

/// The left side writes 8 bytes at `offset` of the right side's memory with `rkey`; returns the status.
fn write(pair: &mut Pair, wr_id: u64, rkey: u32, offset: u64) -> WcStatus {
    let sge = pair.left.sge(0, 8);
    pair.left.post(
        wr_id,
        SendOp::Write { remote: RemoteMemory { addr: BASE + offset, rkey }, immediate: None },
        &[sge],
    );
    pair.run();
    let done = pair.left.completions();
    assert_eq!(done.iter().map(|done| done.wr_id).collect::<Vec<_>>(), [wr_id]);
    done[0].status
}

#[test]
fn a_window_grants_its_range_to_the_peer_until_it_is_invalidated() {
    for transport in TRANSPORTS {
        let mut pair = Pair::of(transport);
        let key = window(&mut pair, WindowKind::Two) + 5;
        bind(&mut pair, 1, key, (4_096, 64), WRITE);
        let bound = pair.right.completions();
        assert_eq!((bound[0].wr_id, bound[0].status, bound[0].opcode), (1, WcStatus::Success, WcOpcode::BindWindow));
        for offset in [4_096, 4_096 + 56] {
            assert_eq!(write(&mut pair, 2, key, offset), WcStatus::Success, "{transport}");
            assert_eq!(pair.right.memory[offset as usize..offset as usize + 8], pair.left.memory[..8]);
        }
        pair.right.post(3, SendOp::LocalInvalidate { rkey: key }, &[]);
        pair.run();
        let taken = pair.right.completions();
        assert_eq!((taken[0].status, taken[0].opcode), (WcStatus::Success, WcOpcode::LocalInvalidate));
        assert_eq!(write(&mut pair, 4, key, 4_096), WcStatus::RemoteAccess, "{transport}");
    }
}

#[test]
fn access_that_a_window_does_not_grant_is_refused() {
    for transport in TRANSPORTS {
        for (key_off, offset, access) in
            [(1, 4_097, WRITE), (1, 4_095, WRITE), (2, 4_096, WRITE), (1, 4_096, Access::REMOTE_READ)]
        {
            let mut pair = Pair::of(transport);
            let key = window(&mut pair, WindowKind::Two);
            bind(&mut pair, 1, key + 1, (4_096, 8), access);
            let before = pair.right.memory.clone();
            let status = write(&mut pair, 2, key + key_off, offset);
            assert_eq!(status, WcStatus::RemoteAccess, "{transport} {key_off} {offset} {access:?}");
            assert_eq!(pair.right.memory, before, "refused data was written");
        }
    }
}

#[test]
fn reads_and_atomics_work_through_windows() {
    for transport in TRANSPORTS {
        let mut pair = Pair::of(transport);
        pair.right.memory[4_096..4_104].copy_from_slice(&41u64.to_ne_bytes());
        let key = window(&mut pair, WindowKind::One) + 1;
        bind(&mut pair, 1, key, (4_096, 5_000), Access::REMOTE_READ | Access::REMOTE_ATOMIC);
        let remote = RemoteMemory { addr: BASE + 4_096, rkey: key };
        pair.left.post(2, SendOp::FetchAdd { remote, add: 1 }, &[pair.left.sge(700_000, 8)]);
        pair.left.post(3, SendOp::Read { remote }, &[pair.left.sge(600_000, 5_000)]);
        pair.run();
        assert_eq!(pair.left.statuses(), [(2, WcStatus::Success), (3, WcStatus::Success)], "{transport}");
        assert_eq!(pair.left.memory[700_000..700_008], 41u64.to_ne_bytes());
        assert_eq!(pair.left.memory[600_000..605_000], pair.right.memory[4_096..9_096]);
    }
}

#[test]
fn the_peer_can_invalidate_windows_of_type_2_only() {
    for transport in TRANSPORTS {
        for (kind, status) in [(WindowKind::Two, WcStatus::Success), (WindowKind::One, WcStatus::RemoteAccess)] {
            let mut pair = Pair::of(transport);
            let key = window(&mut pair, kind) + 1;
            bind(&mut pair, 1, key, (4_096, 8), WRITE);
            pair.right.completions();
            pair.right.post_recv(2, &[pair.right.sge(500_000, 64)]);
            pair.left.post(3, SendOp::SendInvalidate { rkey: key }, &[pair.left.sge(0, 16)]);
            pair.run();
            assert_eq!(pair.left.statuses(), [(3, status)], "{transport} {kind:?}");
            if kind == WindowKind::Two {
                let received = pair.right.completions();
                assert_eq!((received[0].word, received[0].flags), (key, WcFlags::WITH_INV));
                assert_eq!(write(&mut pair, 4, key, 4_096), WcStatus::RemoteAccess);
            }
        }
    }
}

#[test]
fn a_window_of_type_2_is_valid_only_for_the_queue_pair_that_bound_it_and_until_it_ends() {
    for transport in TRANSPORTS {
        let setup = Setup::new(transport, &[]);
        for (kind, expected) in [(WindowKind::Two, WcStatus::RemoteAccess), (WindowKind::One, WcStatus::Success)] {
            let mut pair = Pair::new(&setup);
            let (left, _) = pair.another(&setup);
            let key = window(&mut pair, kind) + 1;
            bind(&mut pair, 1, key, (4_096, 8), WRITE);
            let first = std::mem::replace(&mut pair.left.qpn, left);
            assert_eq!(write(&mut pair, 2, key, 4_096), expected, "{transport} {kind:?}");
            pair.left.qpn = first;
            let right = pair.right.qpn;
            pair.right.engine.destroy_qp(right).expect("it exists");
            let (pd, free) = (pair.right.pd, pair.right.engine.objects_mut().free_window(Key(key)));
            assert_eq!(free, Ok(()), "the window is destroyed with its queue pair");
            assert!(pair.right.engine.destroy_pd(pd).is_err(), "the region is destroyed with its window");
        }
    }
}

#[test]
fn an_invalid_bind_request_fails_the_queue_pair_in_order() {
    for transport in TRANSPORTS {
        let cases: [fn(&mut Binding); 5] = [
            |binding| binding.region ^= 1,
            |binding| binding.len = 0,
            |binding| binding.addr = 8,
            |binding| binding.len = 1 << 40,
            |binding| binding.key ^= 0x100,
        ];
        for (index, change) in cases.iter().enumerate() {
            let mut pair = Pair::of(transport);
            let key = window(&mut pair, WindowKind::Two) + 1;
            let mut binding =
                Binding { key, region: pair.right.key, addr: BASE, len: 8, access: WRITE, zero_based: false };
            change(&mut binding);
            let (remote, sge) = (pair.left.remote(0), pair.right.sge(0, 3_000));
            pair.right.post(1, SendOp::Write { remote, immediate: None }, &[sge]);
            pair.right.post(2, SendOp::Bind(binding), &[]);
            pair.right.post(3, SendOp::Write { remote, immediate: None }, &[sge]);
            pair.run();
            let expected = [(1, WcStatus::Success), (2, WcStatus::WindowBind), (3, WcStatus::WrFlushed)];
            assert_eq!(pair.right.statuses(), expected, "{transport} case {index}");
        }
        let mut pair = Pair::of(transport);
        pair.right.post(1, SendOp::LocalInvalidate { rkey: 77 }, &[]);
        pair.run();
        assert_eq!(pair.right.statuses(), [(1, WcStatus::LocalQpOperation)]);
    }
}

/// Requests that are posted after a bind find the window bound, and complete after the bind, whatever the network
/// loses.
#[test]
fn a_bind_request_takes_effect_before_the_send_after_it() {
    for transport in TRANSPORTS {
        let mut pair = Pair::of(transport);
        let mut nth = 0u32;
        pair.wire(move |_| {
            nth += 1;
            if nth.is_multiple_of(4) { Fate::Drop } else { Fate::Deliver }
        });
        let base = window(&mut pair, WindowKind::Two);
        for round in 0..40u32 {
            let key = base | (round % 256);
            let binding = Binding {
                key,
                region: pair.right.key,
                addr: BASE + 4_096,
                len: 4_096,
                access: WRITE,
                zero_based: false,
            };
            let id = u64::from(round) * 10;
            pair.left.post_recv(id, &[pair.left.sge(500_000, 64)]);
            pair.right.post(id + 1, SendOp::Bind(binding), &[]);
            pair.right.post(id + 2, SendOp::Send { immediate: Some(key) }, &[pair.right.sge(0, 32)]);
            pair.run();
            let told = pair.left.completions();
            assert_eq!((told[0].status, told[0].word), (WcStatus::Success, key), "{transport} {round}");
            assert_eq!(pair.right.statuses(), [(id + 1, WcStatus::Success), (id + 2, WcStatus::Success)]);
            let sge = pair.left.sge(u64::from(round), 3_000);
            let remote = RemoteMemory { addr: BASE + 4_096, rkey: key };
            pair.right.post_recv(id + 3, &[pair.right.sge(500_000, 64)]);
            pair.left.post(id + 4, SendOp::Write { remote, immediate: None }, &[sge]);
            pair.left.post(id + 5, SendOp::SendInvalidate { rkey: key }, &[pair.left.sge(0, 8)]);
            pair.run();
            assert_eq!(pair.left.statuses(), [(id + 4, WcStatus::Success), (id + 5, WcStatus::Success)]);
            assert_eq!(pair.right.statuses(), [(id + 3, WcStatus::Success)]);
            let at = round as usize;
            assert_eq!(pair.right.memory[4_096..7_096], pair.left.memory[at..at + 3_000]);
        }
    }
}

#[test]
fn windows_work_on_unreliable_connections() {
    let setup = Setup { service: Service::UnreliableConnection, ..Setup::new("irn", &[]) };
    let mut pair = Pair::new(&setup);
    let key = window(&mut pair, WindowKind::Two) + 1;
    bind(&mut pair, 1, key, (4_096, 8), WRITE);
    assert_eq!(pair.right.statuses(), [(1, WcStatus::Success)]);
    assert_eq!(write(&mut pair, 2, key, 4_096), WcStatus::Success);
    assert_eq!(pair.right.memory[4_096..4_104], pair.left.memory[..8]);
    pair.right.post(3, SendOp::LocalInvalidate { rkey: key }, &[]);
    pair.right.post(4, SendOp::LocalInvalidate { rkey: key }, &[]);
    pair.run();
    assert_eq!(pair.right.statuses(), [(3, WcStatus::Success), (4, WcStatus::LocalQpOperation)]);
    let before = pair.right.memory.clone();
    assert_eq!(write(&mut pair, 5, key, 4_097), WcStatus::Success, "the Write waits for a response");
    assert_eq!(pair.right.memory, before);
}
