//! Reordering alone, with acknowledgements that packets share: nothing is sent again, and a receiver says at once that
//! a gap is filled, once a gap (F-11, F-21, F-R8).

mod two_ends;

use rnic_base::{Duration, RandomStreams, Time};
use rnic_falcon::delivery::{AckRequestRule, DeliveryConfig, Departure};
use rnic_policy::Cwnd;
use rnic_wire::falcon::PacketType;
use two_ends::link::{Fate, LOST, Link, after};
use two_ends::{config, config_of};

/// One way: a round trip of 4.4 us, a quarter of which are 6 packets.
const DELAY: Duration = Duration::from_us(2);
/// 4096 bytes and headers at 200 Gbit/s.
const PACKET: Duration = Duration::from_ns(170);
const PACKETS: u32 = 20_000;

/// The window fills the round trip, and nobody asks: acknowledgements come by ten, or when a gap is filled.
fn shared(mut config: DeliveryConfig) -> DeliveryConfig {
    config.ack_request = AckRequestRule { threshold: Cwnd::from_fixed(0), share: 0, of: 256 };
    (config.fcwnd, config.ncwnd) = (Cwnd::packets(64), 64);
    config
}

fn run(config: DeliveryConfig, rule: impl FnMut(Time, usize, &Departure) -> Fate + 'static) -> Link<'static> {
    let mut link = Link::new(config, Box::new(rule));
    link.packet_time = PACKET;
    link.ends[0].upper.pushes(PACKETS);
    link.run_for(Duration::from_ms(10));
    assert!(link.ends[0].upper.all_acked() && link.ends[1].upper.kept_once());
    link
}

/// Packets of end 0 that are late by the time of four, one in so many.
fn late(one_in: u64) -> impl FnMut(Time, usize, &Departure) -> Fate {
    let mut random = RandomStreams::new(11).stream("late");
    move |_, from, _| {
        let by = if from == 0 && random.below(one_in) == 0 { PACKET * 4 } else { Duration::ZERO };
        after(DELAY + by)
    }
}

#[test]
fn f11_packets_that_come_late_but_in_time_are_not_sent_again_when_ten_share_an_acknowledgement() {
    for one_in in [100, 10, 2] {
        let link = run(shared(config()), late(one_in));
        let counters = link.ends[0].delivery.counters();
        assert_eq!((counters.sent_again_early, counters.probes, counters.timeouts), (0, 0, 0), "one in {one_in}");
        let said = link.ends[1].delivery.counters();
        assert!(said.extended_acks_sent > 10, "one in {one_in}: gaps were seen");
        let at_most = u64::from(PACKETS) / 10 + u64::from(PACKETS) / one_in + 20;
        assert!(said.acks_sent <= at_most, "one in {one_in}: {} acknowledgements", said.acks_sent);
    }
}

#[test]
fn f21_what_comes_in_order_is_acknowledged_by_tens() {
    let link = run(shared(config()), |_, _, _| after(DELAY));
    let said = link.ends[1].delivery.counters().acks_sent;
    assert!(said <= u64::from(PACKETS) / 10 + 1, "{said} acknowledgements");
}

#[test]
fn f21_a_gap_that_opens_waits_and_one_that_is_filled_does_not() {
    // Packet 3 comes after 4 and 5; three packets are less than ten.
    let rule = |_, from, departure: &Departure| {
        let third = from == 0 && departure.packet.body.psn().is_some_and(|psn| psn.value() == 3);
        after(if third { DELAY + PACKET * 3 } else { DELAY })
    };
    let mut link = Link::new(shared(config()), Box::new(rule));
    link.packet_time = PACKET;
    link.ends[0].upper.pushes(6);
    let start = link.now;
    link.run_for(Duration::from_us(5));
    let left: Vec<Time> = link.ends[1].log.iter().map(|(at, _)| *at).collect();
    let filled = start + PACKET * 3 + DELAY + PACKET * 3;
    assert!(left.len() == 1 && left[0].since(filled) < PACKET, "one answer, when 3 came: {left:?}, not {filled}");
    assert_eq!(link.ends[1].left(PacketType::Ack).len(), 1, "all six have come: the base tells it");
}

#[test]
fn f27_a_gap_that_another_path_makes_is_not_hurried_for() {
    // Four paths in turn, the last slower by ten packets: each of its packets comes after later ones of the others.
    let mut config = shared(config_of("rack-tlp", "spray"));
    (config.flows, config.accept_stale) = (4, true);
    let rule = |_, from, departure: &Departure| {
        let slow = from == 0 && departure.label.flow(2) == 3;
        after(if slow { DELAY + PACKET * 10 } else { DELAY })
    };
    let link = run(config, rule);
    let (sent, said) = (link.ends[0].delivery.counters(), link.ends[1].delivery.counters());
    assert_eq!((sent.sent_again_early, sent.timeouts), (0, 0));
    assert!(said.extended_acks_sent > u64::from(PACKETS) / 50, "there are always gaps");
    assert!(said.acks_sent <= u64::from(PACKETS) / 10 + 20, "{} acknowledgements", said.acks_sent);
}

#[test]
fn f11_what_was_lost_asks_for_itself_so_losses_draw_one_acknowledgement_each() {
    let mut random = RandomStreams::new(12).stream("loss");
    let link =
        run(shared(config()), move |_, from, _| if from == 0 && random.below(100) == 0 { LOST } else { after(DELAY) });
    let (sent, said) = (link.ends[0].delivery.counters(), link.ends[1].delivery.counters());
    let again = link.ends[0].left_again() as u64;
    assert!(again > u64::from(PACKETS) / 200, "{again} were lost");
    // A packet that is lost leaves the count of ten open for longer, so some come by time: two in a hundred.
    assert!(
        said.acks_sent <= u64::from(PACKETS) / 10 + again + u64::from(PACKETS) / 50,
        "{} acknowledgements",
        said.acks_sent
    );
    assert_eq!(sent.timeouts, 0);
}
