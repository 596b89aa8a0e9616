//! Every operation between two NICs on real sockets: offload on and off, both IP versions, both transports.

mod common;

use common::{HALF, Pair, Side};
use rnic_engine::{SendOp, WcFlags, WcOpcode, WcStatus};
use rnic_host::observe::{Identity, exposition};
use rnic_host::{NicConfig, Settings, TransportChoice};

const BOTH: [&str; 2] = ["irn", "roce-gbn"];

/// Runs every operation once and compares every byte.
fn do_everything(pair: &mut Pair, len: usize) {
    let (from, to) = (pair.from.qpn, pair.to.qpn);
    let sent = pair.left.nic.bytes(&pair.left.region)[..len].to_vec();

    // Write.
    pair.right.nic.bytes_mut(&pair.right.region)[HALF..HALF + len].fill(0xee);
    let (sge, remote) = (pair.left.sge(0, len as u32), pair.right.region.remote(HALF));
    pair.left.post(from, 1, SendOp::Write { remote, immediate: None }, &[sge]);
    pair.succeed(1);
    assert_eq!(pair.right.nic.bytes(&pair.right.region)[HALF..HALF + len], sent, "written");

    // Send, with immediate.
    let receive = pair.right.sge(HALF, len as u32);
    pair.right.nic.bytes_mut(&pair.right.region)[HALF..HALF + len].fill(0xdd);
    pair.right.post_recv(to, 7, &[receive]);
    pair.left.post(from, 2, SendOp::Send { immediate: Some(0xcafe) }, &[sge]);
    pair.succeed(1);
    let received = pair.drive(|_, right| right.completions().pop());
    assert_eq!((received.wr_id, received.opcode, received.byte_len), (7, WcOpcode::Recv, len as u32));
    assert_eq!((received.word, received.flags), (0xcafe, WcFlags::WITH_IMM));
    assert_eq!(pair.right.nic.bytes(&pair.right.region)[HALF..HALF + len], sent, "sent");

    // Read, into another location.
    let (sge, remote) = (pair.left.sge(HALF, len as u32), pair.right.region.remote(HALF));
    pair.left.post(from, 3, SendOp::Read { remote }, &[sge]);
    pair.succeed(1);
    assert_eq!(pair.left.nic.bytes(&pair.left.region)[HALF..HALF + len], sent, "read");

    // Atomics.
    pair.right.nic.bytes_mut(&pair.right.region)[..8].copy_from_slice(&5u64.to_ne_bytes());
    let (sge, remote) = (pair.left.sge(HALF, 8), pair.right.region.remote(0));
    pair.left.post(from, 4, SendOp::FetchAdd { remote, add: 3 }, &[sge]);
    pair.succeed(1);
    assert_eq!(word(&pair.left, HALF), 5);
    pair.left.post(from, 5, SendOp::CompareSwap { remote, compare: 8, swap: 100 }, &[sge]);
    pair.succeed(1);
    assert_eq!((word(&pair.left, HALF), word(&pair.right, 0)), (8, 100));
}

fn word(side: &Side, offset: usize) -> u64 {
    let bytes = &side.nic.bytes(&side.region)[offset..offset + 8];
    u64::from_ne_bytes(bytes.try_into().expect("eight bytes"))
}

#[test]
fn every_operation_works_with_irn_and_roce_gbn() {
    for transport in BOTH {
        let mut pair = Pair::loopback(transport);
        assert_eq!((pair.from.transport, pair.to.transport), (transport, transport));
        for len in [8, 1_000, 4_096, 4_097, 300_001] {
            do_everything(&mut pair, len);
        }
    }
}

#[test]
fn every_operation_works_with_and_without_offloads() {
    let side = |segmentation, receive_offload| {
        let bind = "127.0.0.1:0".parse().expect("an address");
        Side::open(NicConfig { segmentation, receive_offload, ..NicConfig::at(bind) })
    };
    for (segmentation, receive_offload) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut pair = Pair::connected(side(segmentation, receive_offload), side(true, receive_offload), "irn");
        assert_eq!(pair.left.nic.uses_segmentation(), segmentation);
        do_everything(&mut pair, 300_001);
        let (left, right) = (*pair.left.nic.stats(), *pair.right.nic.stats());
        let trains = left.messages_sent < left.datagrams_sent;
        assert_eq!(trains, segmentation, "{left:?}");
        assert!(left.datagrams_sent <= right.datagrams_received, "packets were lost: {right:?}");
    }
}

#[test]
fn ipv6_works() {
    for transport in BOTH {
        let mut pair = Pair::connected(Side::at("[::1]:0"), Side::at("[::1]:0"), transport);
        do_everything(&mut pair, 100_000);
    }
}

#[test]
fn two_nics_use_port_4791_at_different_addresses() {
    let (left, right) = (Side::at("127.86.0.1:4791"), Side::at("127.86.0.2:4791"));
    do_everything(&mut Pair::connected(left, right, "roce-gbn"), 10_000);
}

#[test]
fn a_nic_bound_to_all_addresses_responds_from_the_requested_one() {
    for (bind, ask) in [("0.0.0.0:0", "127.0.0.3"), ("[::]:0", "::1")] {
        let (mut left, mut right) = (Side::at(bind), Side::at(bind));
        right.nic.listen(common::PORT, 8).expect("a free service");
        let to = std::net::SocketAddr::new(ask.parse().expect("an address"), right.addr().port());
        let config = left.config("irn");
        let (mine, theirs) = {
            left.nic.start_connect(to, common::PORT, &config).expect("there is a route to loopback");
            let id = common::drive(&mut left, &mut right, |_, right| common::requested(right.event()));
            let config = right.config("irn");
            let theirs = right.nic.accept(id, &config).expect("an acceptable request");
            (common::drive(&mut left, &mut right, |left, _| common::established(left.event())), theirs)
        };
        assert_eq!(mine.remote, to);
        do_everything(&mut Pair { left, right, from: mine, to: theirs }, 10_000);
    }
}

#[test]
fn a_wrong_rkey_fails_the_request_and_writes_nothing() {
    for transport in BOTH {
        let mut pair = Pair::loopback(transport);
        let mut remote = pair.right.region.remote(HALF);
        remote.rkey ^= 0x5555;
        let before = pair.right.nic.bytes(&pair.right.region).to_vec();
        let sge = pair.left.sge(0, 10_000);
        pair.left.post(pair.from.qpn, 1, SendOp::Write { remote, immediate: None }, &[sge]);
        let completions = pair.left_completions(1);
        assert_eq!(completions[0].status, WcStatus::RemoteAccess, "{transport}");
        assert!(pair.right.nic.bytes(&pair.right.region) == before, "data were written");
    }
}

#[test]
fn deregistered_memory_cannot_be_accessed() {
    let mut pair = Pair::loopback("irn");
    let access = rnic_engine::Access::all();
    let region = pair.right.nic.verbs().register(pair.right.pd, 4_096, access).expect("a page");
    let remote = region.remote(0);
    pair.right.nic.verbs().deregister(region);
    let sge = pair.left.sge(0, 64);
    pair.left.post(pair.from.qpn, 1, SendOp::Write { remote, immediate: None }, &[sge]);
    assert_eq!(pair.left_completions(1)[0].status, WcStatus::RemoteAccess);
}

/// A receiver with two receives, each posted again after its completion, and a sender with 60 Sends at once. With
/// end-to-end credits (I-20, IBA 9.7.7.2) the receiver is ready for all of them; without credits, often not. Data is
/// compared in both cases.
#[test]
fn i20_senders_keep_to_the_receives_at_the_other_end() {
    for transport in BOTH {
        let refused = |credits: &str| {
            let choice = TransportChoice::named(transport, &[("end_to_end_credits", credits)]).expect("legal options");
            let sides = [Side::at("127.0.0.1:0"), Side::at("127.0.0.1:0")];
            let [from, to] = [0, 1].map(|end: usize| {
                rnic_host::ConnectionConfig::new(sides[end].pd, sides[end].cq).with_transports(vec![choice.clone()])
            });
            let [left, right] = sides;
            let mut pair = Pair::connected_with(left, right, &from, &to);
            let (qpn, receiving) = (pair.from.qpn, pair.to.qpn);
            let slot = |index: u64| HALF + index as usize * 3_000;
            (0..2).for_each(|index| pair.right.post_recv(receiving, index, &[pair.right.sge(slot(index), 3_000)]));
            // The first acknowledgement carries the number of receives available.
            pair.left.post(qpn, 0, SendOp::Send { immediate: None }, &[pair.left.sge(0, 3_000)]);
            pair.succeed(1);
            for index in 1..61_u64 {
                let sge = pair.left.sge(index as usize * 3_000, 3_000);
                pair.left.post(qpn, index, SendOp::Send { immediate: None }, &[sge]);
            }
            let (mut sent, mut received) = (0, Vec::new());
            pair.drive(|left, right| {
                sent += left.completions().iter().filter(|one| one.status == WcStatus::Success).count();
                for completion in right.completions() {
                    received.push(completion.wr_id);
                    let next = completion.wr_id + 2;
                    right.post_recv(receiving, next, &[right.sge(slot(next), 3_000)]);
                }
                (sent == 60 && received.len() == 61).then_some(())
            });
            assert_eq!(received, (0..61).collect::<Vec<_>>());
            let all = 61 * 3_000;
            let came = &pair.right.nic.bytes(&pair.right.region)[HALF..HALF + all];
            assert!(*came == pair.left.nic.bytes(&pair.left.region)[..all], "{transport}: data differs");
            pair.right.nic.engine_stats().rnr_naks_sent
        };
        let (without, with) = (refused("false"), refused("true"));
        assert!(without > 0 && with == 0, "{transport}: {without} times not ready without credits, {with} with");
    }
}

/// The histogram has the same requests and the same time as the sums of the queue pair, and they are those that this
/// test has waited for; without the setting there is none.
#[test]
fn latencies_are_counted_in_a_histogram() {
    for latencies in [true, false] {
        let side = || Side::open(NicConfig { latencies, ..NicConfig::at("127.0.0.1:0".parse().expect("an address")) });
        let mut pair = Pair::connected(side(), side(), "irn");
        let start = std::time::Instant::now();
        for wr_id in 0..50 {
            let (sge, remote) = (pair.left.sge(0, 10_000), pair.right.region.remote(HALF));
            pair.left.post(pair.from.qpn, wr_id, SendOp::Write { remote, immediate: None }, &[sge]);
            pair.succeed(1);
        }
        let waited = start.elapsed();
        let snapshot = pair.left.nic.snapshot(&Identity::of_process("rnic0", "UDP", &Settings::default()));
        let text = exposition(std::slice::from_ref(&snapshot));
        let Some(histogram) = snapshot.latencies else {
            assert!(!latencies && !text.contains("rnic_operation_seconds"), "{text}");
            continue;
        };
        let of = &snapshot.queue_pairs[0];
        assert!(latencies && text.contains("rnic_operation_seconds_count"), "{text}");
        assert_eq!((histogram.counts.iter().sum::<u64>(), of.operations), (50, 50));
        // Each of the three parts is cut to a nanosecond by itself.
        let parts = of.admission_ns + of.window_ns + of.network_ns;
        assert!((parts..=parts + 150).contains(&histogram.sum_ns), "{} for {parts}", histogram.sum_ns);
        assert!(u128::from(histogram.sum_ns) <= waited.as_nanos(), "{} ns in {waited:?}", histogram.sum_ns);
    }
}
