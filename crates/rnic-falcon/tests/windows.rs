//! Windows and acknowledgements (F-4, F-9, F-10, F-21; conformance probes 2, 3 and 4).

mod two_ends;

use rnic_base::{Duration, Psn32, Time};
use rnic_falcon::delivery::{
    ControlSettings, Delivery, DeliveryConfig, Departure, ExtendedRule, OutOfWindowRule, Reception,
};
use rnic_falcon::interface::{Received, Window};
use rnic_policy::Cwnd;
use rnic_policy::control::report::Ticks;
use rnic_wire::falcon::{Acknowledgement, Bitmaps, Body, OutOfWindow, Packet, PacketType, Timestamp, WindowBases};
use two_ends::link::{LOST, Link, after};
use two_ends::packets::{ack, give, give_on, next_response, pull_packet, push_packet};
use two_ends::upper::{Acknowledging, Counting};
use two_ends::{bitmaps, config, micros, out_of_window, silent};

const DELAY: Duration = Duration::from_us(5);

fn psn(departure: &Departure) -> u32 {
    departure.packet.body.psn().map_or(u32::MAX, |psn| psn.value())
}

/// Returns the delivery parameters of transport `falcon` with these options.
fn chosen(options: &[(&str, &str)]) -> DeliveryConfig {
    let profile = rnic_transports::select("falcon", options.iter().copied()).expect("the options are valid");
    DeliveryConfig::of(&profile, profile.protocol.falcon().expect("the protocol is Falcon"))
}

#[test]
fn f4_a_blocked_request_window_does_not_block_responses() {
    // No Pull Request of end 0 ever arrives; end 1 pulls from end 0, whose responses travel in the same direction as
    // the lost requests.
    let rule = |_, from, departure: &Departure| {
        let is_request = departure.packet.body.packet_type() == PacketType::PullRequest;
        if from == 0 && is_request { LOST } else { after(DELAY) }
    };
    let mut link = Link::new(config(), Box::new(rule));
    for end in &mut link.ends {
        for _ in 0..300 {
            end.upper.pull();
        }
    }
    link.run_for(Duration::from_ms(5));
    assert_eq!(link.ends[0].upper.kept.len(), 300, "all requests of end 1 arrive");
    assert_eq!(link.ends[1].upper.kept.len(), 300, "all their responses arrive");
    assert_eq!(link.ends[0].delivery.span(Window::Request), 32, "fcwnd limits the requests in flight");
    assert_eq!(link.ends[0].delivery.span(Window::Data), 0);
}

#[test]
fn f9_one_acknowledgement_reports_every_gap() {
    let mut config = silent(config());
    config.coalesce_count = 18;
    let rule = |_, from, departure: &Departure| {
        let lost = from == 0 && !departure.is_retransmission && [3, 7, 9].contains(&psn(departure));
        if lost { LOST } else { after(DELAY) }
    };
    let mut link = Link::new(config, Box::new(rule));
    link.ends[0].upper.pushes(21);
    link.run_for(Duration::from_ms(2));
    let acks = link.ends[1].left(PacketType::ExtendedAck);
    let first = &acks[0].1;
    let received = bitmaps(first).expect("the acknowledgement has bitmaps").data_received;
    let base = first.packet.bases.data.value();
    let holes: Vec<u32> = (0..18).filter(|bit| received & (1 << bit) == 0).map(|bit| base + bit).collect();
    assert_eq!((base, holes), (3, vec![3, 7, 9]));
    assert_eq!(received >> 18, 0, "a packet that was not sent is reported");
    assert!(link.ends[0].upper.all_acked());
    let retransmitted: Vec<u32> =
        link.ends[0].log.iter().filter(|(_, d)| d.is_retransmission).map(|(_, d)| psn(d)).collect();
    assert_eq!(retransmitted, [3, 7, 9], "only lost packets are retransmitted");
}

#[test]
fn f9_bitmaps_report_requests_and_the_last_of_128_packets() {
    let mut config = silent(config());
    (config.first_received, config.coalesce_count) = (WindowBases::default(), 1_000);
    let (mut delivery, mut upper) = (Delivery::new(config), Counting::new());
    let mut now = Time::from_us(1_000);
    for number in [1, 5, 63] {
        assert_eq!(give(&mut delivery, &mut upper, now, pull_packet(number)), Reception::Kept);
    }
    for number in [2, 64, 127] {
        assert_eq!(give(&mut delivery, &mut upper, now, push_packet(number)), Reception::Kept);
    }
    now += micros(8);
    let told = next_response(&mut delivery, &mut upper, now).expect("an acknowledgement is due");
    let told = bitmaps(&told).expect("the acknowledgement has bitmaps");
    assert_eq!(told.request_received, 1 << 1 | 1 << 5 | 1 << 63);
    assert_eq!((told.data_received, told.data_acked), (1 << 2 | 1 << 64 | 1 << 127, 1 << 2 | 1 << 64 | 1 << 127));
}

/// Packet 0 is lost once; 300 packets may be in flight, while the window is 128.
fn beyond_the_window(rule: OutOfWindowRule, room: Option<u32>) -> Link<'static> {
    let mut config = config();
    config.out_of_window = rule;
    config.fcwnd = Cwnd::packets(300);
    config.ncwnd = 300;
    let lose = |_, from, departure: &Departure| {
        if from == 0 && !departure.is_retransmission && psn(departure) == 0 { LOST } else { after(DELAY) }
    };
    let mut link = Link::new(config, Box::new(lose));
    link.packet_time = Duration::from_ns(10);
    link.ends[1].upper.room = room;
    link.ends[0].upper.pushes(300);
    link.run_for(micros(9));
    link
}

#[test]
fn f10_packets_beyond_the_window_are_kept_while_resources_are_available() {
    let mut link = beyond_the_window(OutOfWindowRule::Keep, None);
    assert_eq!(link.ends[1].upper.kept.len(), 299);
    assert_eq!(link.ends[1].delivery.counters().out_of_window, 0);
    link.run_for(Duration::from_ms(20));
    assert!(link.ends[0].upper.all_acked() && link.ends[1].upper.kept_once());
    assert_eq!(link.ends[0].left_again(), 1, "only the lost packet is retransmitted");
}

#[test]
fn f10_the_specifications_rule_drops_packets_beyond_the_window_and_notifies_the_sender() {
    let mut link = beyond_the_window(OutOfWindowRule::Drop, None);
    assert_eq!(link.ends[1].upper.kept.len(), 127, "base + 1 to base + 127");
    assert_eq!(link.ends[1].delivery.counters().out_of_window, 172);
    link.run_for(Duration::from_ms(20));
    let acks = link.ends[1].left(PacketType::ExtendedAck);
    let told = acks.iter().filter(|(_, ack)| out_of_window(ack).data).count();
    assert!(told >= 1 && acks.iter().all(|(_, ack)| !out_of_window(ack).request));
    assert!(link.ends[0].upper.all_acked() && link.ends[1].upper.kept_once());
}

/// A sender of ten packets, and an acknowledgement with an out-of-window notification that arrives at `now`.
struct Notified {
    delivery: Delivery,
    upper: Counting,
    now: Time,
    told: Packet,
}

/// Returns a `Notified` whose acknowledgement reports the packets in `data_received` as received.
fn notified(data_received: u128) -> Notified {
    notified_with(&[], data_received)
}

/// The same with these options for transport `falcon`.
fn notified_with(options: &[(&str, &str)], data_received: u128) -> Notified {
    // A recovery policy that would retransmit nothing here.
    let config = chosen(&[&[("recovery", "ooo-distance"), ("ooo_threshold", "128")], options].concat());
    let (mut delivery, mut upper) = (Delivery::new(config), Counting::new());
    let sent = Time::from_us(1_000);
    upper.pushes(10);
    while delivery.transmit(sent, &mut upper).is_some() {}
    // The echoed packet was sent 5 us later: the round trip is 6 us.
    let (echoed, now) = (sent + micros(5), sent + micros(11));
    let notification = OutOfWindow { data: true, request: false };
    let answer = Acknowledgement { t1: Timestamp::at(echoed), out_of_window: notification, ..Default::default() };
    let mut told = ack(0, 0, echoed, now);
    told.body = Body::ExtendedAck(answer, Bitmaps { data_received, ..Default::default() });
    Notified { delivery, upper, now, told }
}

/// On a notification the sender immediately retransmits the packets that are not known to have arrived, but only once
/// per round trip.
#[test]
fn f10_a_notification_retransmits_packets_that_have_not_arrived() {
    let Notified { mut delivery, mut upper, now, told } = notified(0b10_1111);
    for (at, expected) in [(now, &[4, 6, 7, 8, 9][..]), (now + micros(1), &[])] {
        assert_eq!(give(&mut delivery, &mut upper, at, told), Reception::Processed);
        let retransmitted: Vec<u32> =
            std::iter::from_fn(|| delivery.transmit(at, &mut upper)).map(|left| psn(&left)).collect();
        assert_eq!(retransmitted, expected);
    }
}

/// A packet beyond the window is retransmitted when it is older than the round trip of its own path, not than that of
/// the packet echoed last: one path takes 6 us, the other 50.
#[test]
fn f29_a_notification_retransmits_packets_by_the_round_trip_of_their_own_path() {
    let options =
        [("recovery", "ooo-distance"), ("ooo_threshold", "128"), ("flows", "2"), ("paths", "spray"), ("rto", "10ms")];
    let (mut delivery, mut upper) = (Delivery::new(chosen(&options)), Counting::new());
    let at = |us| Time::from_us(1_000) + micros(us);
    let leave = |delivery: &mut Delivery, upper: &mut Counting, count, now| -> Vec<Departure> {
        upper.pushes(count);
        std::iter::from_fn(|| delivery.transmit(now, upper)).collect()
    };
    let first = leave(&mut delivery, &mut upper, 2, at(0));
    let [fast, slow] = [first[0].label, first[1].label];
    for (base, label, now) in [(1, fast, at(6)), (2, slow, at(50))] {
        give_on(&mut delivery, &mut upper, now, ack(0, base, at(0), now), label);
    }
    let second = leave(&mut delivery, &mut upper, 6, at(100));
    for (now, label) in [(at(107), fast), (at(151), slow)] {
        // The echoed packet was sent 6 us ago.
        let (t1, notification) = (Timestamp::at(now - micros(6)), OutOfWindow { data: true, request: false });
        let answer = Acknowledgement { t1, t2: t1, out_of_window: notification, ..Acknowledgement::default() };
        let mut told = ack(0, 2, at(100), now);
        told.body = Body::ExtendedAck(answer, Bitmaps::default());
        give_on(&mut delivery, &mut upper, now, told, fast);
        let retransmitted: Vec<u32> =
            std::iter::from_fn(|| delivery.transmit(now, &mut upper)).map(|left| psn(&left)).collect();
        let those: Vec<u32> = second.iter().filter(|left| left.label == label).map(psn).collect();
        assert!(those.iter().all(|psn| retransmitted.contains(psn)), "{now}: {retransmitted:?} of {those:?}");
        assert_eq!(retransmitted.len(), if label == fast { 3 } else { 6 }, "{now}: {retransmitted:?}");
    }
}

/// An acknowledgement that was overtaken by others, and one that echoes the same packet as an earlier one, do not
/// count as round-trip measurements.
#[test]
fn f17_f27_with_several_flows_old_echoes_are_not_round_trip_samples() {
    let options = [("flows", "2"), ("paths", "spray"), ("rto", "10ms")];
    let (mut delivery, mut upper) = (Delivery::new(chosen(&options)), Counting::new());
    let at = |us| Time::from_us(1_000) + micros(us);
    upper.pushes(2);
    let label = delivery.transmit(at(0), &mut upper).expect("a window is open").label;
    let flow = usize::from(label.flow(1));
    // Times in us at which the echoed packet was sent and arrived and at which the acknowledgement arrives; `true` if
    // it counts as a measurement.
    let answers = [(5, 8, 11, true), (6, 9, 12, true), (5, 8, 500, false), (6, 9, 600, false), (7, 10, 610, true)];
    for (t1, t2, now, measures) in answers {
        let mut told = ack(0, 0, at(t1), at(now - 3));
        let (t1, t2) = (Timestamp::at(at(t1)), Timestamp::at(at(t2)));
        told.body = Body::Ack(Acknowledgement { t1, t2, ..Acknowledgement::default() });
        let before = delivery.flows().nth(flow).expect("there are two flows").round_trip;
        give_on(&mut delivery, &mut upper, at(now), told, label);
        let after = delivery.flows().nth(flow).expect("there are two flows").round_trip;
        let report = std::iter::from_fn(|| delivery.signal()).last().expect("the acknowledgement is reported");
        let whole = Timestamp::at(at(now)).since(t1);
        if measures {
            assert_eq!((after, report.rtt()), (Some(whole), Ticks::of(whole)), "at {now}");
        } else {
            assert_eq!(after, before, "at {now}");
            assert!(report.rtt() == report.delay() && report.rtt() < Ticks::of(micros(20)), "at {now}: {report:?}");
        }
    }
}

/// The first acknowledgement on a flow counts as a measurement whatever the clock shows, also when it is about to
/// wrap.
#[test]
fn f27_the_first_echo_of_a_flow_is_always_a_round_trip_sample() {
    let options = [("flows", "2"), ("paths", "spray"), ("rto", "10ms")];
    for left in [Time::from_us(1), Time::from_us(562_400_000), Time::from_us(562_950_000)] {
        let (mut delivery, mut upper) = (Delivery::new(chosen(&options)), Counting::new());
        upper.pushes(1);
        let label = delivery.transmit(left, &mut upper).expect("a window is open").label;
        let now = left + micros(10);
        give_on(&mut delivery, &mut upper, now, ack(0, 1, left, now), label);
        let measured = delivery.flows().nth(usize::from(label.flow(1))).expect("there are two flows").round_trip;
        assert!(measured.is_some_and(|measured| measured > micros(9)), "at {left}: {measured:?}");
    }
}

/// Packets beyond the peer's window are retransmitted once per round trip, which may use the full capacity of a short
/// path; the packet that would open the window may be a request that has never been sent, so it must get a turn.
#[test]
fn f10_retransmissions_beyond_the_window_alternate_with_new_packets() {
    let Notified { mut delivery, mut upper, now, told } = notified(0b11_1111);
    upper.pull();
    assert_eq!(give(&mut delivery, &mut upper, now, told), Reception::Processed);
    let is_retransmission: Vec<bool> =
        std::iter::from_fn(|| delivery.transmit(now, &mut upper)).map(|left| left.is_retransmission).collect();
    assert_eq!(is_retransmission, [true, false, true, true, true], "the request is the second packet");
}

/// The other interpretation of a notification: no new request is sent in that window until the oldest packet is
/// acknowledged. Responses are sent: the peer may need one before it acknowledges that packet.
#[test]
fn f10_a_notification_pauses_new_requests_if_configured() {
    for (choice, first, then) in [("go-on", 2, 0), ("pause", 1, 1)] {
        let options = [("after_out_of_window", choice)];
        let Notified { mut delivery, mut upper, now, told } = notified_with(&options, 0b11_1111);
        upper.pull_data(Psn32::new(0));
        upper.push();
        let mut new_after = |packet, at| {
            assert_eq!(give(&mut delivery, &mut upper, at, packet), Reception::Processed);
            std::iter::from_fn(|| delivery.transmit(at, &mut upper)).filter(|left| !left.is_retransmission).count()
        };
        assert_eq!(new_after(told, now), first, "{choice}");
        let at = now + micros(1);
        assert_eq!(new_after(ack(0, 1, now, at), at), then, "{choice}, after the oldest was acknowledged");
    }
}

#[test]
fn f10_without_resources_beyond_the_window_the_sender_is_notified() {
    let mut link = beyond_the_window(OutOfWindowRule::Keep, Some(127));
    assert_eq!(link.ends[1].delivery.counters().out_of_window, 172);
    assert_eq!(link.ends[1].delivery.counters().nacks_sent, 0, "a notification, not 172 NACKs");
    link.ends[1].upper.room = None;
    link.run_for(Duration::from_ms(20));
    assert!(link.ends[0].upper.all_acked() && link.ends[1].upper.kept_once());
}

#[test]
fn probe2_edges_of_both_windows_under_the_specification() {
    for first in [0, u32::MAX - 5, u32::MAX] {
        let mut config = silent(config());
        config.out_of_window = OutOfWindowRule::Drop;
        config.first_received = WindowBases::both(Psn32::new(first));
        let mut upper = Counting::new();
        upper.answers = false;
        let mut delivery = Delivery::new(config);
        let mut now = Time::from_us(1_000);
        let at = |offset: u32| first.wrapping_add(offset);
        let expected = [
            (u32::MAX, Reception::Duplicate, Reception::Duplicate),
            (63, Reception::Kept, Reception::Kept),
            (64, Reception::OutOfWindow, Reception::Kept),
            (127, Reception::OutOfWindow, Reception::Kept),
            (128, Reception::OutOfWindow, Reception::OutOfWindow),
        ];
        for (offset, request, data) in expected {
            assert_eq!(give(&mut delivery, &mut upper, now, pull_packet(at(offset))), request, "request {offset}");
            assert_eq!(give(&mut delivery, &mut upper, now, push_packet(at(offset))), data, "data {offset}");
        }
        now += micros(8);
        let first_answer = next_response(&mut delivery, &mut upper, now).expect("an acknowledgement is due");
        assert_eq!(out_of_window(&first_answer), OutOfWindow { data: true, request: true });
        let told = bitmaps(&first_answer).expect("the acknowledgement has bitmaps");
        assert_eq!(told.request_received, 1 << 63);
        assert_eq!(told.data_received, 1 << 63 | 1 << 64 | 1 << 127);
        assert_eq!(told.data_acked, told.data_received);
        // The packets at the bases arrive, and the acknowledgement reports all packets; the notification is not
        // repeated.
        assert_eq!(give(&mut delivery, &mut upper, now, push_packet(at(0))), Reception::Kept);
        assert_eq!(give(&mut delivery, &mut upper, now, pull_packet(at(0))), Reception::Kept);
        assert_eq!(delivery.bases(), WindowBases::both(Psn32::new(at(1))));
        now += micros(8);
        let answer = next_response(&mut delivery, &mut upper, now).expect("an acknowledgement is due");
        assert_eq!(out_of_window(&answer), OutOfWindow::default());
        let told = bitmaps(&answer).expect("a request is beyond the base");
        assert_eq!((told.data_received, told.request_received), (1 << 62 | 1 << 63 | 1 << 126, 1 << 62));
    }
}

/// If packets beyond the window are kept, the limit is what bitmaps can represent: 512 from the base on.
#[test]
fn f10_limits_of_packets_kept_beyond_the_window() {
    let mut upper = Counting::new();
    upper.answers = false;
    let mut delivery = Delivery::new(silent(config()));
    let now = Time::from_us(1_000);
    for (offset, kept) in [(64, true), (128, true), (511, true), (512, false)] {
        let expected = if kept { Reception::Kept } else { Reception::OutOfWindow };
        assert_eq!(give(&mut delivery, &mut upper, now, pull_packet(offset)), expected, "request {offset}");
        assert_eq!(give(&mut delivery, &mut upper, now, push_packet(offset)), expected, "data {offset}");
    }
    let told = next_response(&mut delivery, &mut upper, now + micros(8)).expect("a notification is due");
    assert_eq!(out_of_window(&told), OutOfWindow { data: true, request: true });
    // The base advances by one, and the packet that was too far is accepted.
    for packet in [pull_packet(0), push_packet(0), pull_packet(512), push_packet(512)] {
        assert_eq!(give(&mut delivery, &mut upper, now, packet), Reception::Kept, "{packet:?}");
    }
    assert_eq!(upper.kept.len(), 10);
}

/// A drop beyond a window is reported after the coalescing time, even if the packet requests an acknowledgement.
#[test]
fn f21_a_drop_beyond_a_window_is_not_reported_immediately() {
    let mut config = silent(config());
    config.out_of_window = OutOfWindowRule::Drop;
    for beyond in [push_packet(128), pull_packet(64)] {
        let (mut delivery, mut upper) = (Delivery::new(config), Counting::new());
        let now = Time::from_us(1_000);
        let asking = Packet { ack_request: true, ..beyond };
        assert_eq!(give(&mut delivery, &mut upper, now, asking), Reception::OutOfWindow);
        for at in [now, now + micros(7)] {
            assert_eq!(next_response(&mut delivery, &mut upper, at), None);
        }
        assert!(
            next_response(&mut delivery, &mut upper, now + micros(8)).is_some_and(|told| out_of_window(&told).any())
        );
    }
}

#[test]
fn probe3_a_push_is_acknowledged_when_its_upper_layer_acknowledges_it() {
    let mut config = silent(config());
    config.extended = ExtendedRule::WhenReceived;
    let mut upper = Counting::new();
    upper.acknowledging = Acknowledging::Never;
    let mut delivery = Delivery::new(config);
    let mut now = Time::from_us(1_000);
    let asking = |number| Packet { ack_request: true, ..push_packet(number) };
    assert_eq!(give(&mut delivery, &mut upper, now, asking(0)), Reception::Kept);
    assert_eq!(next_response(&mut delivery, &mut upper, now), None, "the upper layer has not acknowledged it");
    now += micros(8);
    let told = next_response(&mut delivery, &mut upper, now).expect("the coalescing timer is due");
    let bits = bitmaps(&told).expect("the acknowledgement has bitmaps");
    assert_eq!((told.packet.bases.data.value(), bits.data_received, bits.data_acked), (0, 1, 0));
    now += micros(20);
    delivery.acknowledge(now, Received { window: Window::Data, psn: Psn32::new(0) });
    let told = next_response(&mut delivery, &mut upper, now).expect("a requested acknowledgement is immediate");
    assert_eq!((told.packet.bases.data.value(), bitmaps(&told)), (1, None));
    assert_eq!(give(&mut delivery, &mut upper, now, asking(0)), Reception::Duplicate);
    let told = next_response(&mut delivery, &mut upper, now).expect("a duplicate is acknowledged again");
    assert_eq!(told.packet.bases.data.value(), 1);
}

/// The owner of the connection limits what is in flight to the peer's host: it counts what may be in that host's
/// receive buffer. A lost packet that may not be retransmitted yet is not there, and must not keep others out.
#[test]
fn a_lost_packet_blocked_from_retransmission_is_not_in_flight() {
    let rule = |_, from, departure: &Departure| if from == 0 && psn(departure) == 5 { LOST } else { after(DELAY) };
    let mut link = Link::new(config(), Box::new(rule));
    link.ends[1].upper.acknowledging = Acknowledging::Never;
    link.ends[0].upper.pushes(6);
    link.run_for(micros(20));
    assert_eq!(link.ends[0].delivery.in_flight(), 1);
    link.ends[0].delivery.apply(0, &ControlSettings { fcwnd: Some(Cwnd::ONE), ..Default::default() });
    link.run_for(Duration::from_ms(3));
    assert_eq!((link.ends[0].left_again(), link.ends[0].delivery.in_flight()), (0, 0));
    link.ends[0].delivery.apply(0, &ControlSettings { fcwnd: Some(Cwnd::packets(6)), ..Default::default() });
    link.run_for(micros(20));
    assert_eq!((link.ends[0].left_again(), link.ends[0].delivery.in_flight()), (1, 1), "it is in flight again");
}

#[test]
fn packets_that_the_peer_drops_beyond_its_window_are_not_in_flight() {
    let mut config = config();
    (config.out_of_window, config.fcwnd, config.ncwnd) = (OutOfWindowRule::Drop, Cwnd::packets(300), 300);
    let mut link = Link::new(config, Box::new(|_, _, _: &_| after(DELAY)));
    link.ends[1].upper.acknowledging = Acknowledging::Never;
    link.ends[0].upper.pushes(140);
    link.run_for(micros(200));
    assert_eq!(link.ends[1].upper.kept.len(), 128);
    let beyond = |link: &Link<'_>| {
        link.ends[0].log.iter().filter(|(_, sent)| sent.is_retransmission && psn(sent) >= 128).count()
    };
    assert!(beyond(&link) >= 24, "too few retransmissions: {}", beyond(&link));
    assert_eq!(link.ends[0].delivery.in_flight(), 0, "they do not count as in flight");
}
