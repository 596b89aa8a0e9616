//! Memory windows: bound, used and invalidated, with every ordering that a connection can have.

use rnic_base::{Duration, RandomStreams};
use rnic_engine::*;

use crate::common::{BASE, DELIVERED, INBOX, Pair, Setup, bad};

const ORDERS: [&[(&str, &str)]; 3] =
    [&[], &[("ordering", "weak")], &[("ordering", "unordered"), ("errors", "complete-in-error")]];

/// Runs until all requests have ended; returns the completion statuses of each end.
fn finish(pair: &mut Pair) -> [Vec<(u64, WcStatus)>; 2] {
    pair.run_for(Duration::from_ms(200));
    [0, 1].map(|end| pair.ends[end].take())
}

fn binding(pair: &Pair, key: u32, len: u64) -> SendOp {
    let (region, addr) = (pair.ends[1].key, INBOX);
    SendOp::Bind(Binding { key, region, addr, len, access: Access::REMOTE_WRITE, zero_based: false })
}

#[test]
fn a_window_grants_its_range_until_it_is_invalidated() {
    for options in ORDERS {
        for wire in 0..3 {
            let random = RandomStreams::new(wire).stream("wire");
            let setup = Setup::new(options);
            let mut pair = match wire {
                0 => Pair::new(&setup, |_| DELIVERED),
                _ => Pair::new(&setup, bad(random, 100, 50, 100)),
            };
            let pd = pair.ends[1].pd;
            let base = pair.ends[1].engine.objects_mut().allocate_window(pd, WindowKind::Two).expect("not at limit").0;
            for round in 1..10u32 {
                let key = base | round;
                let op = binding(&pair, key, 4_096);
                pair.ends[1].post(1, op, 0, 0);
                assert_eq!(finish(&mut pair)[1], [(1, WcStatus::Success)], "{options:?} {wire}");
                let remote = RemoteMemory { addr: INBOX, rkey: key };
                pair.ends[0].post(2, SendOp::Write { remote, immediate: None }, BASE + u64::from(round), 4_096);
                assert_eq!(finish(&mut pair)[0], [(2, WcStatus::Success)], "{options:?} {wire}");
                assert_eq!(pair.ends[1].bytes(INBOX, 4_096), pair.ends[0].bytes(BASE + u64::from(round), 4_096));
                if round % 2 == 0 {
                    pair.ends[1].post(3, SendOp::LocalInvalidate { rkey: key }, 0, 0);
                    assert_eq!(finish(&mut pair)[1], [(3, WcStatus::Success)]);
                } else {
                    pair.ends[1].post_recv(4, INBOX + 400_000, 64);
                    pair.ends[0].post(5, SendOp::SendInvalidate { rkey: key }, BASE, 8);
                    assert_eq!(finish(&mut pair), [vec![(5, WcStatus::Success)], vec![(4, WcStatus::Success)]]);
                }
            }
            let remote = RemoteMemory { addr: INBOX, rkey: base | 9 };
            pair.ends[0].post(6, SendOp::Write { remote, immediate: None }, BASE, 8);
            assert_eq!(finish(&mut pair)[0], [(6, WcStatus::RemoteAccess)], "{options:?} {wire}");
        }
    }
}

#[test]
fn an_invalid_bind_request_fails_the_queue_pair() {
    for options in ORDERS {
        let mut pair = Pair::new(&Setup::new(options), |_| DELIVERED);
        let pd = pair.ends[1].pd;
        let key = pair.ends[1].engine.objects_mut().allocate_window(pd, WindowKind::Two).expect("not at limit").0 + 1;
        let op = binding(&pair, key, 1 << 40);
        pair.ends[1].post(1, op, 0, 0);
        assert_eq!(finish(&mut pair)[1], [(1, WcStatus::WindowBind)], "{options:?}");
        assert_eq!(pair.ends[1].state(), QpState::Error);
    }
}
