//! After an operation has completed, both programs may reuse its memory without harm, whatever the network does; an
//! operation that has not completed fails with the correct status. See `roce/fetch/refused_fetch.rs`.

use rnic_base::{Duration, RandomStreams};
use rnic_engine::*;

use crate::common::{BASE, DELAY, DELIVERED, Fate, INBOX, LOST, MTU, Pair, Sent, Setup, bad};

const ORDERS: [&[(&str, &str)]; 6] = [
    &[],
    &[("flows", "4"), ("paths", "largest-window")],
    &[("ordering", "weak")],
    &[("errors", "complete-in-error")],
    &[("ordering", "weak"), ("errors", "complete-in-error")],
    &[("ordering", "unordered")],
];

/// Address of the operation's memory at its target.
const FAR: u64 = BASE + 100_000;

/// Operations of end 0, each with its length in bytes.
fn operations(rkey: u32, unordered: bool) -> Vec<(SendOp, u32)> {
    let remote = RemoteMemory { addr: FAR, rkey };
    let message = if unordered { MTU } else { 3 * MTU };
    vec![
        (SendOp::Read { remote }, 8),
        (SendOp::Read { remote }, 3 * MTU + 100),
        (SendOp::FetchAdd { remote, add: 3 }, 8),
        (SendOp::Write { remote, immediate: None }, 3 * MTU),
        (SendOp::Send { immediate: None }, message),
    ]
}

/// Fate of the `nth` packet that an end sends: (end, `nth`, fate).
type Mishap = (usize, u32, Fate);

fn mishaps() -> Vec<Vec<Mishap>> {
    let late = |us| [Some(Duration::from_us(us)), None];
    let twice = |us| [Some(DELAY), Some(Duration::from_us(us))];
    let fates = [LOST, late(2_000), twice(45)];
    let mut all = vec![vec![]];
    for (end, nth) in (0..2).flat_map(|end| (0..5).map(move |nth| (end, nth))) {
        all.extend(fates.map(|fate| vec![(end, nth, fate)]));
    }
    for (left, right) in (0..3).flat_map(|left| (0..3).map(move |right| (left, right))) {
        all.push(vec![(0, left, LOST), (1, right, LOST)]);
    }
    all
}

fn befall(mishaps: &[Mishap]) -> impl FnMut(&Sent) -> Fate + 'static {
    let mishaps = mishaps.to_vec();
    let mut sent_by = [0, 0];
    move |sent| {
        let nth = sent_by[sent.from];
        sent_by[sent.from] += 1;
        let found = mishaps.iter().find(|(from, which, _)| (*from, *which) == (sent.from, nth));
        found.map_or(DELIVERED, |(.., fate)| *fate)
    }
}

fn events(pair: &mut Pair, end: usize) -> Vec<AsyncEvent> {
    let is_news = |event: &AsyncEvent| !matches!(event, AsyncEvent::CqNotify(_));
    std::iter::from_fn(|| pair.ends[end].engine.objects_mut().poll_event()).filter(is_news).collect()
}

fn bytes(pair: &mut Pair, end: usize, addr: u64, len: u32) -> &mut [u8] {
    &mut pair.ends[end].memory[(addr - BASE) as usize..][..len as usize]
}

/// Runs until end 0 has a completion, or for `most`.
fn completed(pair: &mut Pair, most: Duration) -> Vec<(u64, WcStatus)> {
    let until = pair.now + most;
    loop {
        let taken = pair.ends[0].take();
        if !taken.is_empty() || pair.now > until {
            return taken;
        }
        pair.run_for(Duration::from_us(1));
    }
}

#[test]
fn memory_may_be_deregistered_when_its_operation_is_complete() {
    for options in ORDERS {
        let unordered = options.contains(&("ordering", "unordered"));
        let mut skipped = 0;
        for kind in 0..operations(0, unordered).len() {
            for mishaps in mishaps() {
                let mut pair = Pair::new(&Setup::new(options), befall(&mishaps));
                let [near, far] = [pair.ends[0].register(INBOX, 8_192), pair.ends[1].register(FAR, 8_192)];
                let (op, len) = operations(far, unordered)[kind];
                let what = format!("{options:?}, {op:?}, {mishaps:?}");
                let qpns = [pair.ends[0].qpn, pair.ends[1].qpn];
                if let SendOp::Send { .. } = op {
                    let sges = &[Sge { addr: FAR, len: 8_192, lkey: far }];
                    pair.ends[1].engine.post_recv(qpns[1], &RecvRequest { wr_id: 50, sges }).expect("not full");
                }
                let sges = &[Sge { addr: INBOX, len, lkey: near }];
                pair.ends[0].try_post(7, op, sges, SendFlags::SIGNALED).expect("the queue is not full");
                assert_eq!(completed(&mut pair, Duration::from_ms(100)), [(7, WcStatus::Success)], "{what}");
                pair.ends[0].engine.objects_mut().deregister(Key(near)).expect("registered");
                pair.ends[1].engine.objects_mut().deregister(Key(far)).expect("registered");
                bytes(&mut pair, 0, INBOX, 8_192).fill(0xaa);
                bytes(&mut pair, 1, FAR, 8_192).fill(0x55);
                // Their addresses are registered again, under other keys.
                pair.ends[0].register(INBOX, 8_192);
                pair.ends[1].register(FAR, 8_192);
                pair.run_for(Duration::from_ms(100));
                skipped += pair.log.iter().filter(|sent| is_resync(sent)).count();
                assert!(bytes(&mut pair, 0, INBOX, 8_192).iter().all(|byte| *byte == 0xaa), "{what}: late data");
                assert!(bytes(&mut pair, 1, FAR, 8_192).iter().all(|byte| *byte == 0x55), "{what}: late data");
                let remote = pair.remote(0, BASE);
                pair.ends[0].post(8, SendOp::Read { remote }, INBOX, 3 * MTU);
                pair.run_for(Duration::from_ms(100));
                assert_eq!(pair.ends[0].take(), [(8, WcStatus::Success)], "{what}");
                for end in [0, 1] {
                    assert_eq!(
                        (pair.ends[end].state(), events(&mut pair, end)),
                        (QpState::ReadyToSend, vec![]),
                        "{what}"
                    );
                }
            }
        }
        assert!(skipped > 5, "{options:?}: only {skipped} responses had to be retransmitted");
    }
}

fn is_resync(sent: &Sent) -> bool {
    matches!(sent.packet.body, rnic_wire::falcon::Body::Resync { .. })
}

/// Checks a Read whose target deregisters the memory before the Read is complete.
#[test]
fn an_incomplete_read_of_deregistered_memory_ends_in_a_remote_access_error() {
    for options in ORDERS {
        let is_verbs = !options.iter().any(|(_, value)| matches!(*value, "complete-in-error" | "unordered"));
        let mut failed = 0;
        for (wire, after) in (0..6).flat_map(|wire| [102, 106, 111, 116, 131].map(|after| (wire, after))) {
            let mut pair = match wire {
                0 => Pair::new(&Setup::new(options), |_| DELIVERED),
                _ => Pair::new(&Setup::new(options), bad(RandomStreams::new(wire).stream("wire"), 150, 50, 100)),
            };
            let far = pair.ends[1].register(FAR, 200 * u64::from(MTU));
            let remote = RemoteMemory { addr: FAR, rkey: far };
            pair.ends[0].post(7, SendOp::Read { remote }, INBOX, 200 * MTU);
            pair.run_for(Duration::from_us(after - 100));
            pair.ends[1].engine.objects_mut().deregister(Key(far)).expect("registered");
            bytes(&mut pair, 1, FAR, 200 * MTU).fill(0x55);
            pair.run_for(Duration::from_ms(2_000));
            let (what, taken) = (format!("{options:?}, wire {wire}, gone at {after} us"), pair.ends[0].take());
            if taken == [(7, WcStatus::Success)] {
                continue;
            }
            failed += 1;
            assert_eq!(taken, [(7, WcStatus::RemoteAccess)], "{what}");
            let state = if is_verbs { QpState::Error } else { QpState::ReadyToSend };
            assert_eq!(pair.ends[0].state(), state, "{what}");
            if is_verbs && wire == 0 {
                let expected = vec![AsyncEvent::QpAccessError(pair.ends[1].qpn)];
                assert_eq!((pair.ends[1].state(), events(&mut pair, 1)), (state, expected), "{what}");
            } else if !is_verbs {
                assert_eq!((pair.ends[1].state(), events(&mut pair, 1)), (state, vec![]), "{what}");
            }
        }
        assert!(failed > 10, "{options:?}: only {failed} Reads were too late");
    }
}
