//! S-19: schedulers over the engine's ring of queue pairs. The order of packets is that of an engine whose link is
//! never free, so that every queue pair always has work.

mod common;

use common::*;
use rnic_base::Time;
use rnic_engine::*;
use rnic_wire::Qpn;

/// Two queue pairs of one engine, with `schedule`, whose messages have the given numbers of packets.
fn order(schedule: &[(&str, &str)], message_packets: [u32; 2], messages: u64) -> Vec<u32> {
    let options = [&[("cap_packets", "0")], schedule].concat();
    let setup = Setup::new("irn", &options);
    let mut pair = Pair::new(&setup);
    let (second, _) = pair.another(&setup);
    let senders = [pair.left.qpn, second];
    for wr_id in 0..messages {
        for (qpn, packets) in senders.into_iter().zip(message_packets) {
            let sges = [pair.left.sge(0, packets * MTU)];
            let op = SendOp::Write { remote: pair.right.remote(0), immediate: None };
            let request = SendRequest { wr_id, op, sges: &sges, flags: SendFlags::SIGNALED };
            pair.left.engine.post_send(qpn, &request).expect("the send queue is not full");
        }
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
