//! Falcon's mechanisms as a user of verbs observes them: F-1, F-2, F-3, F-5, F-6, F-8, F-14, F-15, F-33, F-35, F-43.

#[path = "common/falcon.rs"]
mod common;

use common::{BASE, DELIVERED, Fate, INBOX, LOST, MTU, Pair, Sent, Setup, bad};
use rnic_base::{Duration, RandomStreams, Time};
use rnic_engine::*;
use rnic_falcon::resources::{ResourceConfig, ResourcePart};
use rnic_policy::FalconShape;
use rnic_wire::falcon::{Body, NackCode, PacketType};

const UNORDERED: &[(&str, &str)] = &[("ordering", "unordered"), ("errors", "complete-in-error")];

fn kinds(pair: &Pair, from: usize) -> Vec<PacketType> {
    let is_answer = |kind: &PacketType| matches!(kind, PacketType::Ack | PacketType::ExtendedAck | PacketType::Nack);
    let sent = pair.log.iter().filter(|sent| sent.from == from).map(|sent| sent.packet.body.packet_type());
    sent.filter(|kind| !is_answer(kind)).collect()
}

fn write(pair: &mut Pair, wr_id: u64, offset: u64, len: u32) {
    let remote = pair.remote(0, INBOX + offset);
    pair.ends[0].post(wr_id, SendOp::Write { remote, immediate: None }, BASE + offset, len);
}

/// F-1: another program in the adaptive engine, with the same datapath. The packets in flight never exceed its fixed
/// window, whatever the wire does, and most lost packets are retransmitted without a timeout.
#[test]
fn f1_packets_in_flight_never_exceed_a_fixed_window() {
    for (window, flows) in [("6", "1"), ("8", "4")] {
        let options = [("control", "fixed-window"), ("window", window), ("flows", flows)];
        let mut pair = Pair::new(&Setup::new(&options), bad(RandomStreams::new(3).stream("wire"), 20, 0, 0));
        write(&mut pair, 1, 0, 300 * MTU);
        let (mut most, window) = (0, window.parse().expect("a number"));
        for _ in 0..20_000 {
            pair.run_for(Duration::from_us(1));
            let view = pair.ends[0].engine.queue_pairs().next().expect("a queue pair exists");
            assert!(view.in_flight <= window, "{options:?}: {view:?}");
            most = most.max(view.in_flight);
        }
        assert_eq!((pair.ends[0].take(), most), (vec![(1, WcStatus::Success)], window), "{options:?}");
        let stats = pair.ends[0].engine.stats();
        assert!(stats.packets_retransmitted > 3 && stats.timeouts * 2 < stats.packets_retransmitted, "{stats:?}");
    }
}

/// F-2: data that goes to the target is pushed, data that comes from it is pulled, packet by packet.
#[test]
fn f2_each_verb_is_translated_into_pushes_or_pulls() {
    use PacketType::{PullData, PullRequest, PushData};
    let remote = |pair: &Pair| pair.remote(0, BASE + 64);
    type Post = fn(&mut Pair, RemoteMemory);
    type Verb = (Post, Vec<PacketType>, Vec<PacketType>);
    let with_immediate = |pair: &mut Pair, remote| {
        pair.ends[0].post(0, SendOp::Write { remote, immediate: Some(5) }, BASE, 4 * MTU);
    };
    let verbs: [Verb; 8] = [
        (|pair, _| write(pair, 0, 0, 5 * MTU), vec![PushData; 5], vec![]),
        (with_immediate, vec![PushData; 4], vec![]),
        (|pair, _| pair.ends[0].post(0, SendOp::Send { immediate: None }, BASE, 3 * MTU), vec![PushData; 3], vec![]),
        (|pair, _| pair.ends[0].post(0, SendOp::Send { immediate: Some(5) }, BASE, 3 * MTU), vec![PushData; 3], vec![]),
        (
            |pair, remote| {
                let rkey = pair.ends[1].register(remote.addr, 64);
                pair.ends[0].post(0, SendOp::SendInvalidate { rkey }, BASE, 2 * MTU);
            },
            vec![PushData; 2],
            vec![],
        ),
        (
            |pair, remote| pair.ends[0].post(0, SendOp::Read { remote }, INBOX, 4 * MTU),
            vec![PullRequest; 4],
            vec![PullData; 4],
        ),
        (
            |pair, remote| pair.ends[0].post(0, SendOp::FetchAdd { remote, add: 1 }, INBOX, 8),
            vec![PullRequest],
            vec![PullData],
        ),
        (
            |pair, remote| pair.ends[0].post(0, SendOp::CompareSwap { remote, compare: 1, swap: 2 }, INBOX, 8),
            vec![PullRequest],
            vec![PullData],
        ),
    ];
    for (number, (post, there, back)) in verbs.into_iter().enumerate() {
        let mut pair = Pair::new(&Setup::new(&[]), |_| DELIVERED);
        pair.ends[1].post_recv(7, INBOX, 8 * MTU);
        let remote = remote(&pair);
        post(&mut pair, remote);
        pair.run_for(Duration::from_ms(2));
        assert_eq!((kinds(&pair, 0), kinds(&pair, 1)), (there, back), "verb {number}");
        assert_eq!(pair.ends[0].take(), [(0, WcStatus::Success)], "verb {number}");
    }
}

/// F-3: a Write of two MTUs is RSN r and r + 1, PSN p and p + 1, and completes once.
#[test]
fn f3_a_long_write_is_numbered_by_transactions_and_completes_once() {
    let mut pair = Pair::new(&Setup::new(&[]), |_| DELIVERED);
    write(&mut pair, 9, 0, 2 * MTU);
    pair.run_for(Duration::from_ms(2));
    let data = pair.log.iter().filter(|sent| sent.from == 0 && sent.packet.body.rsn().is_some());
    let numbers: Vec<_> = data
        .map(|sent| (sent.packet.body.rsn().expect("data has an RSN"), sent.packet.body.psn().expect("data has a PSN")))
        .collect();
    let [(rsn, psn), second] = numbers[..] else { panic!("two packets, not {numbers:?}") };
    assert_eq!(second, (rsn.plus(1), psn.plus(1)));
    assert!(pair.log.iter().all(|sent| sent.packet.payload_len <= MTU));
    assert_eq!(pair.ends[0].take(), [(9, WcStatus::Success)]);
    // It does not complete before all of its transactions have ended.
    let mut second = None;
    let mut pair = Pair::new(&Setup::new(&[]), move |sent: &Sent| {
        let psn = sent.packet.body.psn().filter(|_| sent.from == 0 && sent.packet.payload_len > 0);
        second = second.or(psn.map(|first| first.plus(1)));
        if psn.is_some() && psn == second && sent.at < HELD_UNTIL { LOST } else { DELIVERED }
    });
    write(&mut pair, 9, 0, 2 * MTU);
    pair.run_for(Duration::from_us(200));
    assert!(pair.now < HELD_UNTIL);
    assert_eq!(pair.ends[0].take(), []);
    pair.run_for(Duration::from_ms(20));
    assert_eq!(pair.ends[0].take(), [(9, WcStatus::Success)]);
}

/// F-5: on one queue pair, whatever the wire does, operations of all kinds complete in the order in which they were
/// posted, and the receiver gets its completions in that order.
#[test]
fn f5_mixed_operations_complete_in_post_order() {
    for seed in 0..6 {
        let random = RandomStreams::new(seed).stream("wire");
        let mut pair =
            Pair::new(&Setup::new(&[("flows", if seed % 2 == 0 { "1" } else { "4" })]), bad(random, 30, 30, 400));
        pair.keeps_log = false;
        for wr_id in 0..200 {
            let remote = pair.remote(0, BASE + 300_000);
            match wr_id % 4 {
                0 => write(&mut pair, wr_id, wr_id * 1_000, 3 * MTU),
                1 => pair.ends[0].post(wr_id, SendOp::Read { remote }, INBOX + 400_000, 2 * MTU + 5),
                2 => pair.ends[0].post(wr_id, SendOp::FetchAdd { remote, add: 1 }, INBOX + 500_000, 8),
                _ => {
                    pair.ends[1].post_recv(wr_id, INBOX + 350_000, 2_000);
                    let immediate = Some(wr_id as u32);
                    pair.ends[0].post(wr_id, SendOp::Send { immediate }, BASE, 1_500);
                }
            }
        }
        pair.run_for(Duration::from_ms(500));
        let done: Vec<u64> = pair.ends[0].take().into_iter().map(|(wr_id, _)| wr_id).collect();
        assert!(done.into_iter().eq(0..200), "seed {seed}");
        let received: Vec<u32> = pair.ends[1].done.iter().map(|done| done.word).collect();
        assert!(received.into_iter().eq((3..200).step_by(4)), "seed {seed}");
    }
}

/// Time before which every transmission of the first packet of the first Write is lost.
const HELD_UNTIL: Time = Time::from_us(400);

fn holding_the_first() -> impl FnMut(&Sent) -> Fate + 'static {
    let mut first = None;
    move |sent| {
        let rsn = sent.packet.body.rsn().filter(|_| sent.from == 0);
        first = first.or(rsn);
        if rsn.is_some() && rsn == first && sent.at < HELD_UNTIL { LOST } else { DELIVERED }
    }
}

/// F-6: the first of three Writes is late. Checks for each ordering whether the other two are placed and complete.
#[test]
fn f6_three_orders_of_placement_and_completion() {
    type Order<'o> = (&'o [(&'o str, &'o str)], bool, &'o [u64]);
    let orders: [Order<'_>; 3] = [(&[], false, &[]), (&[("ordering", "weak")], true, &[]), (UNORDERED, true, &[1, 2])];
    for (options, is_placed, complete) in orders {
        let mut pair = Pair::new(&Setup::new(options), holding_the_first());
        for wr_id in 0..3 {
            write(&mut pair, wr_id, wr_id * 4_096, MTU);
        }
        pair.run_for(Duration::from_us(200));
        assert!(pair.now < HELD_UNTIL);
        for at in [4_096, 8_192] {
            let equal = pair.ends[1].bytes(INBOX + at, MTU) == pair.ends[0].bytes(BASE + at, MTU);
            assert_eq!(equal, is_placed, "{options:?}: at {at}");
        }
        assert_eq!(pair.ends[1].kept.len(), if is_placed { 0 } else { 2 }, "{options:?}: not held in the NIC");
        let succeed = |wr_ids: &[u64]| wr_ids.iter().map(|wr_id| (*wr_id, WcStatus::Success)).collect::<Vec<_>>();
        assert_eq!(pair.ends[0].take(), succeed(complete), "{options:?}");
        pair.run_for(Duration::from_ms(20));
        let later: &[u64] = if complete.is_empty() { &[0, 1, 2] } else { &[0] };
        assert_eq!(pair.ends[0].take(), succeed(later), "{options:?}: wrong completion order");
        assert_eq!(pair.ends[1].bytes(INBOX, MTU), pair.ends[0].bytes(BASE, MTU), "{options:?}");
        assert!(pair.ends[1].kept.is_empty());
    }
}

/// F-8: the fifth of ten Writes lacks the right; it completes in error, the five after it succeed, and the queue pair
/// stays usable.
#[test]
fn f8_the_fifth_of_ten_writes_ends_in_error_and_the_queue_pair_lives() {
    for seed in 0..4 {
        let random = RandomStreams::new(seed).stream("wire");
        let mut pair = Pair::new(&Setup::new(UNORDERED), bad(random, seed * 30, 20, 200));
        for wr_id in 0..10 {
            let mut remote = pair.remote(0, INBOX + wr_id * 4_096);
            remote.rkey ^= if wr_id == 4 { 0x55 } else { 0 };
            pair.ends[0].post(wr_id, SendOp::Write { remote, immediate: None }, BASE + wr_id * 4_096, MTU);
        }
        pair.run_for(Duration::from_ms(100));
        let mut done = pair.ends[0].take();
        done.sort_unstable_by_key(|(wr_id, _)| *wr_id);
        let status = |wr_id| if wr_id == 4 { WcStatus::RemoteAccess } else { WcStatus::Success };
        assert_eq!(done, (0..10).map(|wr_id| (wr_id, status(wr_id))).collect::<Vec<_>>(), "seed {seed}");
        assert_eq!([0, 1].map(|end| pair.ends[end].state()), [QpState::ReadyToSend; 2]);
        let refusals = pair.log.iter().filter_map(|sent| match sent.packet.body {
            Body::Nack(nack) => Some(nack.code),
            _ => None,
        });
        let is_refused = |code| matches!(code, NackCode::CompleteInError { .. });
        assert!(refusals.filter(|code| is_refused(*code)).count() > 0, "seed {seed}");
        for at in (5..10).map(|wr_id| wr_id * 4_096) {
            assert_eq!(pair.ends[1].bytes(INBOX + at, MTU), pair.ends[0].bytes(BASE + at, MTU));
        }
        write(&mut pair, 11, 0, 3 * MTU);
        pair.run_for(Duration::from_ms(20));
        assert_eq!(pair.ends[0].take(), [(11, WcStatus::Success)], "seed {seed}");
    }
}

/// F-33, F-35: posted requests occupy the NIC's contexts up to the limit of their connection, even if its window does
/// not let them leave; thresholds exist for this case. All packets of one connection are lost; another one wants to
/// send.
#[test]
fn f33_f35_unsent_requests_fill_the_nic_unless_their_connection_is_paused() {
    let stopped: [&[(&str, &str)]; 2] =
        [&[("isolation", "dynamic")], &[("isolation", "static"), ("isolation_packets", "8")]];
    for (isolation, gets_through) in [(&[("isolation", "none")][..], false), (stopped[0], true), (stopped[1], true)] {
        let mut options = vec![("resources", "1")];
        options.extend(isolation);
        let setup = Setup::new(&options);
        let mut pair = Pair::new(&setup, |_| DELIVERED);
        let [other, _] = pair.connect_another(&setup);
        let slow = pair.ends[1].qpn.get();
        pair.set_fate(move |sent| if sent.packet.cid.get() == slow { LOST } else { DELIVERED });
        let remote = pair.remote(0, INBOX);
        let write = SendOp::Write { remote, immediate: None };
        pair.ends[0].post(1, write, BASE, 100 * MTU);
        pair.run_for(Duration::from_us(50));
        pair.ends[0].post_on(other, 2, write, BASE, MTU);
        pair.run_for(Duration::from_us(400));
        let done = pair.ends[0].take();
        assert_eq!(done == [(2, WcStatus::Success)], gets_through, "{options:?}: {done:?}");
    }
}

/// F-33: buffers for a Read's data are reserved before the data is requested, so there are never more Pulls in flight
/// than buffers for them, and all buffers are used.
#[test]
fn f33_reads_in_flight_are_limited_by_the_buffers() {
    const WIRE: Duration = Duration::from_us(25);
    const PACKETS: u32 = 400;
    let setup = Setup::new(&[("resources", "1"), ("isolation", "none")]);
    let mut pair = Pair::new(&setup, |_| [Some(WIRE), None]);
    let remote = pair.remote(0, BASE);
    pair.ends[0].post(1, SendOp::Read { remote }, INBOX, PACKETS * MTU);
    pair.run_for(Duration::from_ms(20));
    assert_eq!(pair.ends[0].take(), [(1, WcStatus::Success)]);
    assert_eq!(pair.ends[0].bytes(INBOX, PACKETS * MTU), pair.ends[1].bytes(BASE, PACKETS * MTU));
    // Times of events: +1 when a Pull is sent, -1 when its data arrives, which sorts first at equal times.
    let (mut events, mut length): (Vec<(Time, i32)>, u16) = (Vec::new(), 0);
    for sent in &pair.log {
        match sent.packet.body {
            Body::PullRequest { length: with_headers, .. } => {
                length = with_headers;
                events.push((sent.at, 1));
            }
            Body::PullData { .. } => events.push((sent.at + WIRE, -1)),
            _ => {}
        }
    }
    events.sort_unstable();
    let under_way = events.iter().scan(0, |count, (_, change)| {
        *count += change;
        Some(*count)
    });
    let most = under_way.max().expect("packets are in flight");
    let one_percent = ResourceConfig::of(&FalconShape { resources_percent: 1, ..FalconShape::DEFAULT });
    let room = one_percent.capacity[ResourcePart::ResponseRx as usize];
    let places = room.buffers / one_percent.units.pull(length.into()).rx.buffers;
    assert!(places < room.packets && u32::from(length) > MTU, "the limit is not the number of buffers: {room:?}");
    assert_eq!((events.len(), most), (2 * PACKETS as usize, places as i32), "a retransmission, or unused buffers");
    assert!((0..2).all(|end| pair.ends[end].engine.falcon_stats().is_some_and(|stats| stats.is_idle)));
}

/// F-43: each queue pair is a connection with its own identifier and its own sequence numbers, which all of its
/// requests share.
#[test]
fn f43_each_queue_pair_is_a_separate_connection() {
    let setup = Setup::new(&[]);
    let mut pair = Pair::new(&setup, |_| DELIVERED);
    let mut numbers = vec![[pair.ends[0].qpn, pair.ends[1].qpn]];
    numbers.extend((0..3).map(|_| pair.connect_another(&setup)));
    let remote = pair.remote(0, INBOX);
    for (nth, [ours, _]) in (1..).zip(&numbers) {
        pair.ends[0].post_on(*ours, u64::from(nth), SendOp::Write { remote, immediate: None }, BASE, nth * MTU);
        pair.ends[0].post_on(*ours, u64::from(nth), SendOp::Read { remote }, BASE + 400_000, nth * MTU);
    }
    pair.run_for(Duration::from_ms(5));
    assert_eq!(pair.ends[0].take().len(), 2 * numbers.len());
    for from in [0, 1] {
        let mut cids: Vec<u32> = pair.log.iter().filter(|s| s.from == from).map(|s| s.packet.cid.get()).collect();
        cids.sort_unstable();
        cids.dedup();
        let mut theirs: Vec<u32> = numbers.iter().map(|ends| ends[1 - from].get()).collect();
        theirs.sort_unstable();
        assert_eq!(cids, theirs, "not one CID for each connection, from {from}");
    }
    for (nth, [_, theirs]) in (1..).zip(&numbers) {
        let of_it = pair.log.iter().filter(|sent| sent.from == 0 && sent.packet.cid.get() == theirs.get());
        let rsns: Vec<_> = of_it.filter_map(|sent| sent.packet.body.rsn()).collect();
        assert_eq!(rsns.len(), 2 * nth, "not exactly the requests of this connection");
        let mut gone_by: Vec<i64> = rsns.iter().map(|rsn| rsns[0].distance_to(*rsn)).collect();
        gone_by.sort_unstable();
        assert!(gone_by.into_iter().eq(0..2 * nth as i64), "the RSNs are not numbered from 0: {rsns:?}");
    }
}

/// F-14, F-15: before the first measurement, the timeout is the configured one.
#[test]
fn f14_f15_the_first_timeout_is_the_configured_one() {
    for (rto, sent_in_50_ms) in [("1ms", 50), ("20ms", 3), ("1s", 1)] {
        let mut setup = Setup::new(&[("rto", rto), ("rto_min", "100us")]);
        setup.retry_count = 100;
        let mut pair = Pair::new(&setup, |_| LOST);
        write(&mut pair, 1, 0, 100);
        pair.run_for(Duration::from_ms(50) - Duration::from_us(100));
        assert_eq!(pair.log.len(), sent_in_50_ms, "rto {rto}");
    }
}

/// F-33: a queue pair that waits for resources gets those of a queue pair that ends, even if the latter was itself
/// waiting and was first in the queue.
#[test]
fn f33_waiting_queue_pairs_get_the_resources_of_one_that_ends() {
    for way in 0..3 {
        let setup = Setup::new(&[("resources", "1"), ("isolation", "none")]);
        let mut pair = Pair::new(&setup, |_| DELIVERED);
        let [other, _] = pair.connect_another(&setup);
        let (first, far) = (pair.ends[0].qpn, pair.ends[1].qpn.get());
        pair.set_fate(move |sent| if sent.packet.cid.get() == far { LOST } else { DELIVERED });
        let remote = pair.remote(0, INBOX);
        let write = SendOp::Write { remote, immediate: None };
        pair.ends[0].post(1, write, BASE, 100 * MTU);
        pair.run_for(Duration::from_us(50));
        pair.ends[0].post_on(other, 2, write, BASE, MTU);
        pair.run_for(Duration::from_us(50));
        let engine = &mut pair.ends[0].engine;
        match way {
            0 => engine.modify_to_error(first).expect("legal in every state"),
            1 => engine.modify_to_reset(first).expect("legal in every state"),
            _ => engine.destroy_qp(first).expect("it exists"),
        }
        pair.run_for(Duration::from_us(400));
        let flushed = (way == 0).then_some((1, WcStatus::WrFlushed));
        let done: Vec<_> = flushed.into_iter().chain([(2, WcStatus::Success)]).collect();
        assert_eq!(pair.ends[0].take(), done, "way {way}: a reset or destroyed queue pair completes requests");
    }
}

/// F-14: a queue pair that only serves requests has no retry count of its own, but still declares a peer gone.
#[test]
fn f14_a_queue_pair_that_only_responds_declares_a_silent_peer_gone() {
    let setup = Setup::new(&[]);
    let mut pair = Pair::unconnected(&setup, |sent| if sent.from == 1 { LOST } else { DELIVERED });
    let [ours, theirs] = [pair.ends[0].qpn, pair.ends[1].qpn];
    pair.ends[0].begin_receiving(&setup, theirs, 0);
    pair.ends[0].begin_sending(pair.now, &setup, 0);
    pair.ends[1].begin_receiving(&setup, ours, 1);
    let remote = pair.remote(0, INBOX);
    pair.ends[0].post(1, SendOp::Read { remote }, BASE, 100);
    pair.run_for(Duration::from_secs(30));
    assert_eq!(pair.ends[1].state(), QpState::ReadyToReceive, "the queue pair has failed too early");
    pair.run_for(Duration::from_secs(170));
    assert_eq!(pair.ends[1].state(), QpState::Error);
}
