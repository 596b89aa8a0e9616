//! Who enters at which occupancy, and what becomes of those who do not.

use rnic_policy::control::Cwnd;
use rnic_policy::control::report::{AckRate, Carried, FlowReport, Gap, InForce, RateLimit};
use rnic_policy::kit::report;

use super::*;
use crate::queue::EventQueue;

const CAPACITY: usize = 40;
const FILTER: Filter = Filter { thresholds: [10, 20, 30], quiet: Ticks::new(1_023), packets: 512 };

fn event(connection: u32, now: u32, acked: u16) -> Event {
    let (fcwnd, rto) = (Cwnd::packets(32), Ticks::MAX);
    let in_force = InForce { fcwnd, ncwnd: 64, gap: Gap::NONE, rate: RateLimit::NONE, rto, ack_rate: AckRate::ALL };
    let report = FlowReport { acked, ..report(0, Ticks::new(now), [0; 3], in_force) };
    Event { connection, first: false, queue: 0, report, carried: Carried::default() }
}

/// A gate whose last event was `ago` ticks before 100000.
fn gate(ago: u32) -> FlowGate {
    FlowGate { last: Ticks::new(100_000 - ago), has_sent: true, ..FlowGate::default() }
}

#[test]
fn probe10_three_thresholds_let_fewer_and_fewer_in() {
    let enters = |occupancy, ago, acked| {
        FILTER.admit(&mut gate(ago), &event(1, 100_000, acked), occupancy, CAPACITY).map(|event| event.report.acked)
    };
    // P1 is a pause of more than 1023 ticks, P2 more than 512 packets.
    let (news, quiet, many, both) = ((5, 1), (1_024, 1), (5, 513), (1_024, 513));
    let table = [
        (0, [true, true, true, true]),
        (9, [true, true, true, true]),
        (10, [false, true, true, true]),
        (19, [false, true, true, true]),
        (20, [false, true, false, true]),
        (29, [false, true, false, true]),
        (30, [false, false, false, true]),
        (39, [false, false, false, true]),
        (40, [false, false, false, false]),
    ];
    for (occupancy, expected) in table {
        let got = [news, quiet, many, both].map(|(ago, acked)| enters(occupancy, ago, acked).is_ok());
        assert_eq!(got, expected, "occupancy {occupancy}");
    }
    assert!(enters(10, 1_023, 512).is_err(), "neither predicate holds at its threshold");
    assert_eq!(enters(40, 5_000, 600), Err(Refusal::Full));
    assert_eq!(enters(39, 5, 600), Err(Refusal::Busy));
}

#[test]
fn probe10_refused_events_keep_their_packets_and_saturate() {
    let mut gate = gate(1);
    for _ in 0..3 {
        assert_eq!(FILTER.admit(&mut gate, &event(1, 100_000, 100), 15, CAPACITY), Err(Refusal::Busy));
    }
    assert_eq!(gate.untold(), 300);
    for _ in 0..10 {
        let _ = FILTER.admit(&mut gate, &event(1, 100_000, 100), 35, CAPACITY);
    }
    assert_eq!(gate.untold(), 1_023, "what ten bits count");
    let entered = FILTER.admit(&mut gate, &event(1, 100_001, 5), 0, CAPACITY).expect("the queue is empty");
    assert_eq!(entered.report.acked, 1_023);
    assert_eq!(gate.untold(), 0);
}

#[test]
fn probe10_one_event_of_a_flow_is_outstanding() {
    let mut queue = EventQueue::new(CAPACITY, FILTER);
    let mut gates = [FlowGate::default(); 2];
    assert_eq!(queue.offer(&mut gates[0], &event(0, 1, 3)), Ok(()));
    assert_eq!(queue.offer(&mut gates[0], &event(0, 2, 4)), Err(Refusal::Outstanding));
    assert_eq!(queue.offer(&mut gates[0], &event(0, 3, 5)), Err(Refusal::Outstanding));
    assert_eq!(queue.offer(&mut gates[1], &event(1, 3, 1)), Ok(()), "another flow's business");
    assert_eq!(queue.pop().map(|record| record.report().acked), Some(3));
    gates[0].answered();
    assert_eq!(queue.offer(&mut gates[0], &event(0, 4, 1)), Ok(()));
    assert_eq!(queue.pop().map(|record| record.connection()), Some(1), "first in, first out");
    assert_eq!(queue.pop().map(|record| record.report().acked), Some(10), "4, 5 and 1 together");
}

#[test]
fn a_queue_goes_round_and_its_records_say_so() {
    let mut queue = EventQueue::new(3, Filter::open(3));
    let mut taken = Vec::new();
    for number in 0..9 {
        queue.offer(&mut FlowGate::default(), &event(number, number, 1)).expect("there is room");
        if queue.len() == 2 {
            let record = queue.pop().expect("two wait");
            taken.push((record.connection(), record.generation()));
        }
    }
    let expected: Vec<(u32, bool)> = (0..8).map(|number| (number, number / 3 % 2 == 0)).collect();
    assert_eq!(taken, expected);
    assert_eq!(queue.peek(0).map(EventRecord::connection), Some(8));
    assert!(queue.peek(1).is_none() && queue.len() == 1);
}

use crate::record::EventRecord;
