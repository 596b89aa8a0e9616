//! Tests: admission of events by queue occupancy, and the packet counts of refused events.

use rnic_policy::control::Cwnd;
use rnic_policy::control::report::{AckRate, Carried, CurrentSettings, FlowReport, Gap, RateLimit};
use rnic_policy::kit::report;

use super::*;
use crate::queue::EventQueue;

const CAPACITY: usize = 40;
const FILTER: Filter = Filter { thresholds: [10, 20, 30], quiet: Ticks::new(1_023), packets: 512 };

fn event(connection: u32, now: u32, acked: u16) -> Event {
    let (fcwnd, rto) = (Cwnd::packets(32), Ticks::MAX);
    let in_force =
        CurrentSettings { fcwnd, ncwnd: 64, gap: Gap::NONE, rate: RateLimit::NONE, rto, ack_rate: AckRate::ALL };
    let report = FlowReport { acked, ..report(0, Ticks::new(now), [0; 3], in_force) };
    Event { connection, first: false, queue: 0, report, carried: Carried::default() }
}

/// Creates the admission state of a flow whose last event was `ticks_ago` ticks before time 100000.
fn admission(ticks_ago: u32) -> FlowAdmission {
    FlowAdmission { last: Ticks::new(100_000 - ticks_ago), has_reported: true, ..FlowAdmission::default() }
}

#[test]
fn probe10_three_thresholds_admit_fewer_and_fewer_events() {
    let admitted = |occupancy, ticks_ago, acked| {
        let admitted = FILTER.admit(&mut admission(ticks_ago), &event(1, 100_000, acked), occupancy, CAPACITY);
        admitted.map(|event| event.report.acked)
    };
    // With this filter, P1 requires a pause of more than 1023 ticks, and P2 more than 512 packets.
    let (recent, quiet, many, both) = ((5, 1), (1_024, 1), (5, 513), (1_024, 513));
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
        let got = [recent, quiet, many, both].map(|(ticks_ago, acked)| admitted(occupancy, ticks_ago, acked).is_ok());
        assert_eq!(got, expected, "occupancy {occupancy}");
    }
    assert!(admitted(10, 1_023, 512).is_err(), "neither predicate holds at its threshold");
    assert_eq!(admitted(40, 5_000, 600), Err(Refusal::Full));
    assert_eq!(admitted(39, 5, 600), Err(Refusal::Busy));
}

#[test]
fn probe10_refused_events_keep_their_packets_and_saturate() {
    let mut admission = admission(1);
    for _ in 0..3 {
        assert_eq!(FILTER.admit(&mut admission, &event(1, 100_000, 100), 15, CAPACITY), Err(Refusal::Busy));
    }
    assert_eq!(admission.unreported(), 300);
    for _ in 0..10 {
        let _ = FILTER.admit(&mut admission, &event(1, 100_000, 100), 35, CAPACITY);
    }
    assert_eq!(admission.unreported(), 1_023, "the maximum of a 10-bit count");
    let entered = FILTER.admit(&mut admission, &event(1, 100_001, 5), 0, CAPACITY).expect("the queue is empty");
    assert_eq!(entered.report.acked, 1_023);
    assert_eq!(admission.unreported(), 0);
}

#[test]
fn probe10_one_event_of_a_flow_is_outstanding() {
    let mut queue = EventQueue::new(CAPACITY, FILTER);
    let mut admissions = [FlowAdmission::default(); 2];
    assert_eq!(queue.offer(&mut admissions[0], &event(0, 1, 3)), Ok(()));
    assert_eq!(queue.offer(&mut admissions[0], &event(0, 2, 4)), Err(Refusal::Outstanding));
    assert_eq!(queue.offer(&mut admissions[0], &event(0, 3, 5)), Err(Refusal::Outstanding));
    assert_eq!(queue.offer(&mut admissions[1], &event(1, 3, 1)), Ok(()), "another flow is admitted");
    assert_eq!(queue.pop().map(|record| record.report().acked), Some(3));
    admissions[0].note_response();
    assert_eq!(queue.offer(&mut admissions[0], &event(0, 4, 1)), Ok(()));
    assert_eq!(queue.pop().map(|record| record.connection()), Some(1), "first in, first out");
    assert_eq!(queue.pop().map(|record| record.report().acked), Some(10), "the sum of 4, 5 and 1");
}

#[test]
fn the_generation_bit_flips_when_the_queue_wraps() {
    let mut queue = EventQueue::new(3, Filter::open(3));
    let mut taken = Vec::new();
    for number in 0..9 {
        queue.offer(&mut FlowAdmission::default(), &event(number, number, 1)).expect("the queue has a free slot");
        if queue.len() == 2 {
            let record = queue.pop().expect("the queue is not empty");
            taken.push((record.connection(), record.generation()));
        }
    }
    let expected: Vec<(u32, bool)> = (0..8).map(|number| (number, number / 3 % 2 == 0)).collect();
    assert_eq!(taken, expected);
    assert_eq!(queue.peek(0).map(EventRecord::connection), Some(8));
    assert!(queue.peek(1).is_none() && queue.len() == 1);
}

use crate::record::EventRecord;
