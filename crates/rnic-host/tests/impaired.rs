//! Impairments in the NIC: all data arrives once, in order and unharmed despite loss, reordering, duplication and
//! corruption.

mod common;

use common::{HALF, Pair, Side};
use rnic_base::{BitRate, Duration, Probability};
use rnic_engine::{DropReason, SendOp, WcOpcode, WcStatus};
use rnic_host::{ConnectionConfig, Impairment, NicConfig, RxDrop, TransportChoice};

const ALL: [&str; 3] = ["irn", "roce-gbn", "falcon"];

fn percent(percent: u64) -> Probability {
    Probability::ratio(percent, 100)
}

/// Writes into slots of the other side's second half, many at a time, each with its own content.
fn write_slots(pair: &mut Pair, slots: usize, len: usize) {
    for slot in 0..slots {
        let (sge, remote) = (pair.left.sge(slot * len, len as u32), pair.right.region.remote(HALF + slot * len));
        pair.left.post(pair.from.qpn, slot as u64, SendOp::Write { remote, immediate: None }, &[sge]);
    }
    pair.succeed(slots);
    let sent = &pair.left.nic.bytes(&pair.left.region)[..slots * len];
    assert!(pair.right.nic.bytes(&pair.right.region)[HALF..HALF + slots * len] == *sent, "the bytes differ");
}

/// Sends into posted receives; they must arrive in order.
fn send_slots(pair: &mut Pair, slots: usize, len: usize) {
    for slot in 0..slots {
        let sge = pair.right.sge(HALF + slot * len, len as u32);
        pair.right.post_recv(pair.to.qpn, slot as u64, &[sge]);
        let sge = pair.left.sge(slot * len, len as u32);
        pair.left.post(pair.from.qpn, slot as u64, SendOp::Send { immediate: Some(slot as u32) }, &[sge]);
    }
    pair.succeed(slots);
    let mut received = Vec::new();
    pair.drive(|_, right| {
        received.extend(right.completions());
        (received.len() == slots).then_some(())
    });
    for (slot, completion) in received.iter().enumerate() {
        assert_eq!((completion.wr_id, completion.word as usize), (slot as u64, slot), "not in order");
        assert_eq!((completion.status, completion.byte_len as usize), (WcStatus::Success, len));
    }
    let sent = &pair.left.nic.bytes(&pair.left.region)[..slots * len];
    assert!(pair.right.nic.bytes(&pair.right.region)[HALF..HALF + slots * len] == *sent, "the bytes differ");
}

fn read_slots(pair: &mut Pair, slots: usize, len: usize) {
    pair.left.nic.bytes_mut(&pair.left.region)[HALF..].fill(0xaa);
    for slot in 0..slots {
        let (sge, remote) = (pair.left.sge(HALF + slot * len, len as u32), pair.right.region.remote(slot * len));
        pair.left.post(pair.from.qpn, slot as u64, SendOp::Read { remote }, &[sge]);
    }
    pair.succeed(slots);
    let there = &pair.right.nic.bytes(&pair.right.region)[..slots * len];
    assert!(pair.left.nic.bytes(&pair.left.region)[HALF..HALF + slots * len] == *there, "the read bytes differ");
}

/// Increments a counter in the other side's memory up to `count`, with many requests at a time: each must take effect
/// once, in order.
fn count_up(pair: &mut Pair, count: u64) {
    pair.right.nic.bytes_mut(&pair.right.region)[..8].fill(0);
    for step in 0..count {
        let (sge, remote) = (pair.left.sge(HALF + step as usize * 8, 8), pair.right.region.remote(0));
        let op = if step % 2 == 0 {
            SendOp::FetchAdd { remote, add: 1 }
        } else {
            SendOp::CompareSwap { remote, compare: step, swap: step + 1 }
        };
        pair.left.post(pair.from.qpn, step, op, &[sge]);
    }
    pair.succeed(count as usize);
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
    for (step, bytes) in pair.left.nic.bytes(&pair.left.region)[HALF..].chunks(8).take(count as usize).enumerate() {
        assert_eq!(word(bytes), step as u64, "the wrong value before step {step}");
    }
    assert_eq!(word(&pair.right.nic.bytes(&pair.right.region)[..8]), count);
}

#[test]
fn every_operation_succeeds_on_an_impaired_network() {
    for transport in ALL {
        for seed in 1..=3 {
            let impairment = Impairment {
                seed,
                loss: percent(2),
                corrupt: percent(1),
                duplicate: percent(2),
                reorder: percent(5),
                ..Impairment::default()
            };
            let mut pair = Pair::impaired(transport, impairment);
            write_slots(&mut pair, 8, 60_001);
            send_slots(&mut pair, 100, 777);
            send_slots(&mut pair, 20, 20_003);
            read_slots(&mut pair, 20, 20_003);
            count_up(&mut pair, 200);
            let (left, right) = (pair.left.nic.stats(), pair.right.nic.stats());
            assert!(left.impairment.lost > 0 && left.impairment.reordered > 0, "{left:?}");
            assert_eq!(right.dropped(RxDrop::Icrc) > 0, left.impairment.corrupted > 0, "corruption was not detected");
            assert!(pair.left.nic.engine_stats().packets_retransmitted > 0);
        }
    }
}

#[test]
fn reordered_packets_are_sent_in_the_train_that_overtakes_them() {
    for transport in ["irn", "falcon"] {
        let mut pair = Pair::impaired(transport, Impairment { reorder: percent(30), ..Impairment::default() });
        let before = *pair.left.nic.stats();
        write_slots(&mut pair, 8, 60_000);
        let stats = pair.left.nic.stats();
        let messages = stats.messages_sent - before.messages_sent;
        let datagrams = stats.datagrams_sent - before.datagrams_sent;
        let reordered = stats.impairment.reordered - before.impairment.reordered;
        assert!(reordered > 20, "{reordered} of {datagrams}");
        assert!(4 * messages < datagrams, "{transport}: {messages} trains of {datagrams} packets");
    }
}

#[test]
fn delay_and_jitter_only_add_latency() {
    for transport in ALL {
        let (delay, jitter) = (Duration::from_ms(2), Duration::from_us(300));
        let mut pair = Pair::impaired(transport, Impairment { delay, jitter, ..Impairment::default() });
        let round_trip = pair.from.round_trip.expect("the active side has measured a round trip");
        assert!(round_trip >= Duration::from_ms(4), "{round_trip}");
        write_slots(&mut pair, 4, 50_000);
        read_slots(&mut pair, 4, 50_000);
    }
}

#[test]
fn delayed_packets_are_sent_after_their_queue_pair_is_destroyed() {
    let delay = Duration::from_ms(300);
    let mut pair = Pair::loopback("irn");
    pair.right.nic.set_impairment(Impairment { delay, ..Impairment::default() });
    let sge = pair.right.sge(HALF, 8);
    pair.right.post_recv(pair.to.qpn, 1, &[sge]);
    let sge = pair.left.sge(0, 8);
    pair.left.post(pair.from.qpn, 2, SendOp::Send { immediate: None }, &[sge]);
    pair.drive(|_, right| right.completions().pop());
    let Pair { mut left, mut right, to, .. } = pair;
    right.nic.verbs().destroy_qp(to.qpn).expect("it exists");
    drop(right);
    let start = std::time::Instant::now();
    let completion = loop {
        left.nic.progress();
        if let Some(completion) = left.completions().pop() {
            break completion;
        }
        assert!(start.elapsed().as_millis() < 200, "the acknowledgement was still sent");
    };
    assert_eq!((completion.wr_id, completion.status), (2, WcStatus::Success));
}

/// IRN only: go-back-N collapses if its window overflows a queue repeatedly.
#[test]
fn a_slow_link_limits_the_rate() {
    let rate = BitRate::bps(200_000_000);
    let queue = Impairment { rate: Some(rate), rate_queue_bytes: 2 << 20, ..Impairment::default() };
    let mut pair = Pair::impaired("irn", queue);
    let start = std::time::Instant::now();
    write_slots(&mut pair, 8, 60_000);
    // 480 kB at 200 Mbit/s.
    assert!(start.elapsed().as_millis() >= 19, "{:?}", start.elapsed());
    assert_eq!(pair.left.nic.stats().impairment.queue_full, 0);
    // A queue of a few packets drops the others; all data arrives in the end.
    let queue = Impairment { rate_queue_bytes: 20_000, ..queue };
    let mut pair = Pair::impaired("irn", queue);
    write_slots(&mut pair, 8, 60_000);
    assert!(pair.left.nic.stats().impairment.queue_full > 0);
}

/// The losses that the NIC reports equal the packets that do not arrive: within three standard deviations of the
/// configured rate, and consistent with the counters of both ends.
#[test]
fn losses_match_the_configured_rate_and_are_per_packet() {
    let loss = percent(5);
    let mut pair = Pair::impaired("irn", Impairment { seed: 42, loss, ..Impairment::default() });
    for _ in 0..12 {
        write_slots(&mut pair, 8, 65_536);
    }
    common::drive_for(&mut pair.left, &mut pair.right, std::time::Duration::from_millis(20));
    let (left, right) = (*pair.left.nic.stats(), *pair.right.nic.stats());
    let judged = left.impairment.packets;
    let (mean, deviation) = (judged as f64 * 0.05, (judged as f64 * 0.05 * 0.95).sqrt());
    assert!(judged > 1_500, "{judged}");
    assert!((left.impairment.lost as f64 - mean).abs() <= 3.0 * deviation, "{} of {judged}", left.impairment.lost);
    assert!(left.messages_sent < left.datagrams_sent / 2, "packets were not sent in trains");
    assert_eq!(judged - left.impairment.lost, left.datagrams_sent);
    assert_eq!(left.datagrams_sent, right.datagrams_received, "loopback lost packets");
}

/// Equal seeds lose the same packets, provided that the packets are the same: here single packets one after the
/// other.
#[test]
fn equal_seeds_lose_the_same_packets() {
    let run = |seed| {
        let mut pair = Pair::impaired("roce-gbn", Impairment { seed, loss: percent(20), ..Impairment::default() });
        let mut lost = Vec::new();
        for round in 0..40 {
            let (sge, remote) = (pair.left.sge(0, 8), pair.right.region.remote(HALF));
            let before = pair.left.nic.stats().impairment.lost;
            pair.left.post(pair.from.qpn, round, SendOp::Write { remote, immediate: None }, &[sge]);
            pair.left.nic.progress();
            lost.push(pair.left.nic.stats().impairment.lost > before);
            pair.succeed(1);
        }
        lost
    };
    // Connection setup takes a varying number of packets if messages are retransmitted: compare runs without that.
    let (first, again) = (run(3), run(3));
    let differing = first.iter().zip(&again).filter(|(one, other)| one != other).count();
    assert!(first.iter().any(|lost| *lost) && differing <= 16, "{differing} of {} fates differ", first.len());
}

#[test]
fn invalidation_and_immediates_work_on_an_impaired_network() {
    let impairment = Impairment { loss: percent(10), duplicate: percent(10), ..Impairment::default() };
    let mut pair = Pair::impaired("irn", impairment);
    for round in 0..30u32 {
        let access = rnic_engine::Access::all();
        let region = pair.right.nic.verbs().register(pair.right.pd, 64, access).expect("a page");
        let receive = pair.right.sge(HALF, 64);
        pair.right.post_recv(pair.to.qpn, u64::from(round), &[receive]);
        let sge = pair.left.sge(0, 64);
        pair.left.post(pair.from.qpn, 1, SendOp::SendInvalidate { rkey: region.key().0 }, &[sge]);
        pair.succeed(1);
        let completion = pair.drive(|_, right| right.completions().pop());
        assert_eq!((completion.opcode, completion.word), (WcOpcode::Recv, region.key().0));
        pair.right.nic.verbs().deregister(region);
    }
}

/// Returns the transport whose receivers pull.
fn pulled() -> TransportChoice {
    common::chosen("tonic-ndp", &[("rto", "20ms")])
}

/// Connects two NICs with this transport and impairment.
fn connected(choice: &TransportChoice, impairment: Impairment) -> Pair {
    let side = |name: &str| {
        let bind = "127.0.0.1:0".parse().expect("an address");
        Side::open(NicConfig { impairment, name: name.to_owned(), ..NicConfig::at(bind) })
    };
    let (left, right) = (side("left"), side("right"));
    let config = |side: &Side| ConnectionConfig::new(side.pd, side.cq).with_transports(vec![choice.clone()]);
    let (from, to) = (config(&left), config(&right));
    Pair::connected_with(left, right, &from, &to)
}

/// Messages in any order over several flows, each with its own losses; what has an order keeps it.
#[test]
fn t27_every_operation_succeeds_over_several_flows_on_an_impaired_network() {
    for (name, flows) in [("tonic-new-reno", "4"), ("tonic-dcqcn", "3")] {
        let impairment = Impairment {
            loss: percent(2),
            duplicate: percent(2),
            reorder: percent(5),
            corrupt: percent(1),
            ..Impairment::default()
        };
        let mut pair = connected(&common::chosen(name, &[("flows", flows)]), impairment);
        write_slots(&mut pair, 16, 30_001);
        send_slots(&mut pair, 50, 777);
        read_slots(&mut pair, 16, 30_001);
        count_up(&mut pair, 100);
        assert_eq!(pair.left.nic.queue_pairs().count(), 1, "flows are listed as queue pairs");
    }
}

/// Packets arrive without payload: the receiver reports each of them, and they are retransmitted, without timeouts. A
/// transport whose receivers do not pull recovers as from losses.
#[test]
fn trimmed_packets_are_reported_or_count_as_lost() {
    for pulls in [true, false] {
        let impairment = Impairment { trim: percent(20), ..Impairment::default() };
        let choice = if pulls { pulled() } else { common::chosen("irn", &[]) };
        let mut pair = connected(&choice, impairment);
        write_slots(&mut pair, 8, 60_001);
        send_slots(&mut pair, 50, 777);
        send_slots(&mut pair, 20, 20_003);
        read_slots(&mut pair, 20, 20_003);
        count_up(&mut pair, 100);
        for side in [&pair.left, &pair.right] {
            let (trimmed, stats) = (side.nic.stats().impairment.trimmed, side.nic.engine_stats());
            assert!(trimmed > 0, "pulls {pulls}: nothing was trimmed");
            assert_eq!(stats.drops[DropReason::Trimmed as usize], trimmed, "pulls {pulls}");
            assert!(stats.packets_retransmitted > 0);
            // A busy machine may delay acknowledgements.
            assert!(!pulls || stats.timeouts < trimmed / 4, "{} timeouts, {trimmed} trimmed", stats.timeouts);
        }
    }
}

/// Pulls, NACKs and everything else may be lost, too.
#[test]
fn every_operation_succeeds_with_pulls_on_an_impaired_network() {
    for seed in 1..=3 {
        let impairment = Impairment {
            seed,
            loss: percent(2),
            duplicate: percent(2),
            reorder: percent(5),
            trim: percent(5),
            ..Impairment::default()
        };
        let mut pair = connected(&pulled(), impairment);
        write_slots(&mut pair, 8, 60_001);
        send_slots(&mut pair, 100, 777);
        read_slots(&mut pair, 20, 20_003);
        count_up(&mut pair, 200);
        assert!(pair.left.nic.stats().impairment.lost > 0);
    }
}

/// Marks reach the engine as those of a switch do: receivers notify the sender, and DCQCN slows it down.
#[test]
fn marked_packets_cause_notifications() {
    for transport in ["irn", "roce-gbn"] {
        let impairment = Impairment { mark: percent(30), ..Impairment::default() };
        let mut pair = connected(&common::chosen(transport, &[("control", "dcqcn")]), impairment);
        write_slots(&mut pair, 8, 60_001);
        let (stats, engine) = (pair.right.nic.stats(), pair.right.nic.engine_stats());
        assert!(stats.impairment.marked > 0, "{stats:?}");
        assert_eq!((engine.marks_received, stats.impairment.trimmed), (stats.impairment.marked, 0), "{transport}");
        assert!(engine.cnps_sent > 0 && pair.left.nic.engine_stats().cnps_received > 0, "{transport}");
    }
}
