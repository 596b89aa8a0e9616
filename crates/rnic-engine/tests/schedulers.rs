//! S-2, S-19: schedulers over the engine's ring of queue pairs. The order of packets is that of an engine whose link is
//! never free, so that every queue pair always has work.

mod common;

use std::collections::VecDeque;

use common::*;
use rnic_base::{RandomStreams, Time};
use rnic_engine::*;
use rnic_wire::Qpn;

/// Two queue pairs of one engine, with `schedule`, whose messages have the given numbers of packets.
fn order(schedule: &[(&str, &str)], message_packets: [u32; 2], messages: u64) -> Vec<u32> {
    let posts: Vec<_> = (0..messages).flat_map(|_| (0..).zip(message_packets)).collect();
    order_of_posts(schedule, 2, &posts)
}

/// Returns the order of packets, by index of the queue pair, when the queue pairs of one engine are given `posts`, each
/// a queue pair and the packets of a message.
fn order_of_posts(schedule: &[(&str, &str)], queue_pairs: usize, posts: &[(u32, u32)]) -> Vec<u32> {
    let options = [&[("cap_packets", "0")], schedule].concat();
    let setup = Setup::new("irn", &options);
    let mut pair = Pair::new(&setup);
    let mut senders = vec![pair.left.qpn];
    senders.extend((1..queue_pairs).map(|_| pair.another(&setup).0));
    for (wr_id, (sender, packets)) in (0..).zip(posts) {
        let sges = [pair.left.sge(0, packets * MTU)];
        let op = SendOp::Write { remote: pair.right.remote(0), immediate: None };
        let request = SendRequest { wr_id, op, sges: &sges, flags: SendFlags::SIGNALED };
        pair.left.engine.post_send(senders[*sender as usize], &request).expect("the send queue is not full");
    }
    let engine = &mut pair.left.engine;
    let packets = std::iter::from_fn(|| engine.transmit(Time::ZERO).and_then(Departure::roce).map(|sent| sent.from));
    let from: Vec<Qpn> = packets.collect();
    let index_of = |qpn: &Qpn| senders.iter().position(|sender| sender == qpn).expect("a sender") as u32;
    from.iter().map(index_of).collect()
}

/// Returns the lengths of runs of packets of one queue pair.
fn runs(order: &[u32]) -> Vec<(u32, usize)> {
    order.chunk_by(|one, other| one == other).map(|run| (run[0], run.len())).collect()
}

#[test]
fn s19_round_robin_serves_one_packet_a_turn_whatever_the_size_of_messages() {
    let order = order(&[], [4, 64], 2);
    assert!(runs(&order)[..15].iter().all(|(_, packets)| *packets == 1), "{order:?}");
}

/// 64 KiB or nine messages: nine messages of 4 KiB, and one of 64 KiB.
#[test]
fn s19_a_greedy_turn_ends_after_its_bytes_or_messages() {
    let order = order(&[("schedule", "greedy")], [4, 64], 20);
    assert_eq!(runs(&order)[..4], [(0, 36), (1, 64), (0, 36), (1, 64)]);
}

#[test]
fn s19_the_calibrations_of_greedy_are_those_of_the_figures() {
    let of = |calibration| order(&[("schedule", "greedy"), ("calibration", calibration)], [4, 128], 4);
    assert_eq!(runs(&of("figure-11"))[..4], [(0, 4), (1, 64), (0, 4), (1, 64)]);
    assert_eq!(runs(&of("figure-12"))[..4], [(0, 4), (1, 128), (0, 4), (1, 128)]);
}

/// Values in a plan replace those of the calibration.
#[test]
fn s19_the_length_of_a_greedy_turn_can_be_set() {
    let options = [("schedule", "greedy"), ("turn_bytes", "8KiB"), ("turn_messages", "2")];
    assert_eq!(runs(&order(&options, [1, 64], 8))[..4], [(0, 2), (1, 8), (0, 2), (1, 8)]);
}

/// A queue pair with nothing more to send gives its turn away at once, and begins the next one with a full turn.
#[test]
fn s19_a_greedy_scheduler_is_work_conserving() {
    let order = order(&[("schedule", "greedy")], [1, 64], 3);
    assert_eq!(runs(&order), [(0, 3), (1, 192)]);
}

/// Computes the order of packets from `posts` and the packets, bytes and messages of a turn alone.
fn predicted(posts: &[(u32, u32)], queue_pairs: usize, [packets_max, bytes_max, messages_max]: [u32; 3]) -> Vec<u32> {
    let mut queues = vec![VecDeque::new(); queue_pairs];
    let mut ring: VecDeque<u32> = VecDeque::new();
    for (sender, packets) in posts {
        queues[*sender as usize].push_back(*packets);
        if !ring.contains(sender) {
            ring.push_back(*sender);
        }
    }
    let mut order = Vec::new();
    while let Some(sender) = ring.pop_front() {
        let queue = &mut queues[sender as usize];
        let (mut packets, mut messages) = (0, 0);
        while packets < packets_max && packets * MTU < bytes_max && messages < messages_max {
            let Some(left) = queue.front_mut() else { break };
            order.push(sender);
            (packets, *left) = (packets + 1, *left - 1);
            if *left == 0 {
                queue.pop_front();
                messages += 1;
            }
        }
        if !queue.is_empty() {
            ring.push_back(sender);
        }
    }
    order
}

/// The order in which the NIC takes work follows from its metadata and the scheduler's decisions, without any other
/// state of the engine.
#[test]
fn s2_the_order_of_work_follows_from_what_is_posted_and_the_turns() {
    const QUEUE_PAIRS: usize = 5;
    let mut random = RandomStreams::new(2).stream("schedulers/posts");
    let none = u32::MAX;
    type Options = &'static [(&'static str, &'static str)];
    let cases: [(Options, [u32; 3]); 4] = [
        (&[("schedule", "round-robin")], [1, none, none]),
        (&[("schedule", "round-robin"), ("turn_packets", "7")], [7, none, none]),
        (&[("schedule", "greedy"), ("calibration", "table-2")], [4_096, 64 << 10, 9]),
        (&[("schedule", "greedy"), ("turn_bytes", "6KiB"), ("turn_messages", "3")], [4_096, 6 << 10, 3]),
    ];
    for (schedule, turn) in cases {
        let posts: Vec<_> =
            (0..200).map(|_| (random.below(QUEUE_PAIRS as u64) as u32, random.between(1, 100) as u32)).collect();
        assert_eq!(order_of_posts(schedule, QUEUE_PAIRS, &posts), predicted(&posts, QUEUE_PAIRS, turn), "{schedule:?}");
    }
}
