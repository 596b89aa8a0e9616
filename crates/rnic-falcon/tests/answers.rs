//! When an acknowledgement is due, when it is sent, and which received acknowledgements are applied (F-21, F-27;
//! probe 4).

mod two_ends;

use rnic_base::{Duration, Time};
use rnic_falcon::delivery::{AckRequestRule, Arrival, Delivery, DeliveryConfig, OutOfWindowRule, Reception};
use rnic_falcon::interface::Window;
use rnic_policy::Cwnd;
use rnic_wire::falcon::{Acknowledgement, Bitmaps, Body, NackCode, Packet, PacketType, Timestamp};
use two_ends::link::{Link, after};
use two_ends::packets::{ack, give, next_response, pull_packet, push_packet, refusal};
use two_ends::upper::Counting;
use two_ends::{bitmaps, config, config_of, micros, out_of_window, silent};

const DELAY: Duration = Duration::from_us(5);

#[test]
fn probe4_a_stale_acknowledgement_is_dropped_completely() {
    for accept_stale in [false, true] {
        let mut config = config();
        config.accept_stale = accept_stale;
        let (mut delivery, mut upper) = (Delivery::new(config), Counting::new());
        let now = Time::from_us(1_000);
        for _ in 0..4 {
            upper.pull();
            upper.push();
        }
        while delivery.transmit(now, &mut upper).is_some() {}
        let later = now + micros(10);
        assert_eq!(give(&mut delivery, &mut upper, later, ack(2, 1, now, later)), Reception::Processed);
        assert_eq!((delivery.span(Window::Request), delivery.span(Window::Data)), (2, 3));
        // One base is newer, the other older.
        let reception = give(&mut delivery, &mut upper, later, ack(1, 4, now, later));
        let (expected, left) = if accept_stale { (Reception::Processed, 0) } else { (Reception::Stale, 3) };
        assert_eq!((reception, delivery.span(Window::Data)), (expected, left));
        assert_eq!(delivery.counters().stale_acks, u64::from(!accept_stale));
        // A base that acknowledges packets never sent is an error of the peer.
        assert_eq!(give(&mut delivery, &mut upper, later, ack(2, 9, now, later)), Reception::Dropped);
        assert_eq!(delivery.counters().peer_errors, 1);
    }
}

/// An acknowledgement with either base older is ignored: neither its other base nor its bitmaps, its NACK code and
/// its round trip count, and it is not reported to the adaptive engine.
#[test]
fn probe4_no_field_of_a_stale_acknowledgement_is_used() {
    let now = Time::from_us(1_000);
    let later = now + micros(10);
    let bits = Bitmaps { data_acked: 0b10, data_received: 0b110, request_received: 0b10 };
    let t1 = Timestamp::at(now);
    let told = Acknowledgement { t1, t2: t1, ..Acknowledgement::default() };
    let refusal = refusal(3, NackCode::CompleteInError { ulp: 7 }, now);
    for (request, data) in [(1, 4), (4, 1), (1, 2), (2, 1)] {
        for body in [Body::Ack(told), Body::ExtendedAck(told, bits), refusal] {
            let (mut delivery, mut upper) = (Delivery::new(config()), Counting::new());
            for _ in 0..4 {
                upper.pull();
                upper.push();
            }
            while delivery.transmit(now, &mut upper).is_some() {}
            assert_eq!(give(&mut delivery, &mut upper, later, ack(2, 2, now, later)), Reception::Processed);
            assert!(delivery.signal().is_some() && delivery.signal().is_none());
            let round_trip = delivery.round_trip();
            let stale = Packet { body, ..ack(request, data, now, later) };
            let much_later = now + micros(50);
            assert_eq!(give(&mut delivery, &mut upper, much_later, stale), Reception::Stale, "{stale:?}");
            assert_eq!((delivery.span(Window::Request), delivery.span(Window::Data)), (2, 2), "{stale:?}");
            assert_eq!((upper.acked_count(), upper.nacked.len(), delivery.in_flight()), (4, 0, 4), "{stale:?}");
            assert!(delivery.signal().is_none() && delivery.round_trip() == round_trip, "{stale:?}");
            assert!(delivery.transmit(much_later, &mut upper).is_none(), "{stale:?}");
        }
    }
}

#[test]
fn probe4_piggybacked_bases_cancel_the_timer_only_if_they_are_complete() {
    for early in [false, true] {
        let (mut delivery, mut upper) = (Delivery::new(silent(config())), Counting::new());
        let now = Time::from_us(1_000);
        give(&mut delivery, &mut upper, now, push_packet(u32::from(early)));
        upper.push();
        let left = delivery.transmit(now, &mut upper).expect("a Push in the other direction is sent");
        assert_eq!(left.packet.bases.data.value(), u32::from(!early));
        let answer = next_response(&mut delivery, &mut upper, now + micros(8));
        assert_eq!(answer.is_some(), early, "a gap needs an acknowledgement of its own");
    }
    // A gap among requests needs an acknowledgement of its own, too.
    let (mut delivery, mut upper) = (Delivery::new(silent(config())), Counting::new());
    upper.answers = false;
    let now = Time::from_us(1_000);
    give(&mut delivery, &mut upper, now, pull_packet(1));
    upper.push();
    delivery.transmit(now, &mut upper).expect("a Push in the other direction is sent");
    let answer = next_response(&mut delivery, &mut upper, now + micros(8)).expect("a request is beyond the base");
    assert_eq!(bitmaps(&answer).expect("the acknowledgement has bitmaps").request_received, 0b10);
    // A notification does as well.
    let config = DeliveryConfig { out_of_window: OutOfWindowRule::Drop, ..silent(config()) };
    let (mut delivery, mut upper) = (Delivery::new(config), Counting::new());
    let now = Time::from_us(1_000);
    assert_eq!(give(&mut delivery, &mut upper, now, push_packet(128)), Reception::OutOfWindow);
    upper.push();
    delivery.transmit(now, &mut upper).expect("a Push in the other direction is sent");
    let answer = next_response(&mut delivery, &mut upper, now + micros(8)).expect("a notification is due");
    assert!(out_of_window(&answer).data);
}

#[test]
fn f21_the_share_of_packets_that_request_acknowledgements_follows_the_rule() {
    let count = |rule: AckRequestRule, fcwnd: u64| {
        let mut config = config();
        (config.ack_request, config.fcwnd) = (rule, Cwnd::packets(fcwnd));
        let mut link = Link::new(config, Box::new(|_, _, _: &_| after(DELAY)));
        link.ends[0].upper.pushes(2_560);
        link.run_for(Duration::from_ms(20));
        assert!(link.ends[0].upper.all_acked());
        assert_eq!(link.ends[0].left_again(), 0, "{:?}", link.ends[0].delivery.counters());
        let asked = link.ends[0].log.iter().filter(|(_, departure)| departure.packet.ack_request).count();
        (asked, link.ends[1].delivery.counters().acks_sent)
    };
    let (asked, few) = count(AckRequestRule::DEFAULT, 32);
    assert_eq!(asked, 260);
    let (asked, all) = count(AckRequestRule::ALWAYS, 32);
    assert_eq!((asked, all), (2_560, 2_560));
    assert!(few < all / 4, "{few} acknowledgements instead of {all}");
    let (asked, _) = count(AckRequestRule::DEFAULT, 2);
    assert_eq!(asked, 2_560, "with at most two packets in flight, each requests one");
}

#[test]
fn f21_a_requested_acknowledgement_is_immediate_and_others_are_coalesced() {
    for asks in [false, true] {
        let mut config = silent(config());
        if asks {
            config.ack_request = AckRequestRule::ALWAYS;
        }
        let mut link = Link::new(config, Box::new(|_, _, _: &_| after(DELAY)));
        link.ends[0].upper.pushes(1);
        let start = link.now;
        link.run_for(micros(100));
        let (left, _) = link.ends[1].left(PacketType::Ack)[0];
        let expected = if asks { DELAY } else { DELAY + micros(8) };
        assert_eq!(left.since(start), expected);
    }
}

/// Each flow counts its own received packets, and its acknowledgement covers these: six packets are three on each of
/// two flows.
#[test]
fn f21_f27_each_flow_coalesces_acknowledgements_separately() {
    let mut config = silent(config_of("rack-tlp", "spray"));
    (config.flows, config.coalesce_count) = (2, 4);
    let (mut delivery, mut upper) = (Delivery::new(config), Counting::new());
    let labels = [0, 1].map(|flow| delivery.label(flow));
    let start = Time::from_us(1_000);
    // Each packet was sent 20 us before it arrives; all packets of flow 1 are ECN-marked.
    let arrive = |delivery: &mut Delivery, upper: &mut Counting, number: u32, now: Time| {
        let flow = number as usize % 2;
        let packet = Packet { timestamp: Timestamp::at(now - micros(20)), ..push_packet(number) };
        let arrival = Arrival { packet: &packet, label: labels[flow], marked: flow == 1, hops: 1, csig: None };
        assert_eq!(delivery.receive(now, &arrival, upper), Reception::Kept);
    };
    let at = |number: u32| start + micros(1) * u64::from(number);
    for number in 0..6 {
        arrive(&mut delivery, &mut upper, number, at(number));
        assert_eq!(next_response(&mut delivery, &mut upper, at(number)), None, "{number}");
    }
    arrive(&mut delivery, &mut upper, 6, at(6));
    let echo = |number| (Timestamp::at(at(number) - micros(20)), Timestamp::at(at(number)));
    for (flow, last, now, marked) in [(0, 6, at(6), 0), (1, 5, at(1) + micros(8), 3)] {
        if flow == 1 {
            assert_eq!(next_response(&mut delivery, &mut upper, now - Duration::from_ns(1)), None, "it is early");
        }
        let answer = next_response(&mut delivery, &mut upper, now).expect("the acknowledgement is due");
        let Body::Ack(told) = answer.packet.body else { panic!("{answer:?}") };
        assert_eq!((answer.label, (told.t1, told.t2), told.ecn), (labels[flow], echo(last), marked), "flow {flow}");
        assert_eq!(next_response(&mut delivery, &mut upper, now), None, "only flow {flow} is due");
    }
}
