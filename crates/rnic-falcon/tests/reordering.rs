//! Reordering without loss, with one acknowledgement for several packets: nothing is retransmitted, and a receiver
//! reports a filled gap immediately and only once (F-11, F-21, F-R8).

mod two_ends;

use rnic_base::{Duration, RandomStreams, Time};
use rnic_falcon::delivery::{AckRequestRule, DeliveryConfig, Departure};
use rnic_policy::Cwnd;
use rnic_wire::falcon::PacketType;
use two_ends::link::{Fate, LOST, Link, after};
use two_ends::{config, config_of};

/// One-way delay: a round trip takes 4.4 us; a quarter of that is 6 packets.
const DELAY: Duration = Duration::from_us(2);
/// 4096 bytes and headers at 200 Gbit/s.
const PACKET: Duration = Duration::from_ns(170);
const PACKETS: u32 = 20_000;

/// The window fills the round trip, and no packet requests an acknowledgement: these are sent after ten packets, or
/// when a gap is filled.
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

/// Delays one in `one_in` packets of end 0 by the time of four packets.
fn late(one_in: u64) -> impl FnMut(Time, usize, &Departure) -> Fate {
    let mut random = RandomStreams::new(11).stream("late");
    move |_, from, _| {
        let by = if from == 0 && random.below(one_in) == 0 { PACKET * 4 } else { Duration::ZERO };
        after(DELAY + by)
    }
}

#[test]
fn f11_slightly_late_packets_are_not_retransmitted_with_one_acknowledgement_per_ten() {
    for one_in in [100, 10, 2] {
        let link = run(shared(config()), late(one_in));
        let counters = link.ends[0].delivery.counters();
        assert_eq!((counters.retransmitted_early, counters.probes, counters.timeouts), (0, 0, 0), "one in {one_in}");
        let said = link.ends[1].delivery.counters();
        assert!(said.extended_acks_sent > 10, "one in {one_in}: no gaps were reported");
        let at_most = u64::from(PACKETS) / 10 + u64::from(PACKETS) / one_in + 20;
        assert!(said.acks_sent <= at_most, "one in {one_in}: {} acknowledgements", said.acks_sent);
    }
}

#[test]
fn f21_packets_in_order_are_acknowledged_ten_at_a_time() {
    let link = run(shared(config()), |_, _, _| after(DELAY));
    let said = link.ends[1].delivery.counters().acks_sent;
    assert!(said <= u64::from(PACKETS) / 10 + 1, "{said} acknowledgements");
}

#[test]
fn f21_a_filled_gap_is_acknowledged_immediately_and_a_new_gap_is_not() {
    // Packet 3 arrives after 4 and 5; three packets are less than the ten that trigger an acknowledgement.
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
    assert!(left.len() == 1 && left[0].since(filled) < PACKET, "not one acknowledgement at {filled}: {left:?}");
    assert_eq!(link.ends[1].left(PacketType::Ack).len(), 1, "all six have arrived: the base is sufficient");
}

#[test]
fn f27_a_gap_caused_by_another_path_triggers_no_acknowledgement() {
    // Four paths in rotation, the last slower by ten packets: each of its packets arrives after later ones of the
    // other paths.
    let mut config = shared(config_of("rack-tlp", "spray"));
    (config.flows, config.accept_stale) = (4, true);
    let rule = |_, from, departure: &Departure| {
        let slow = from == 0 && departure.label.flow(2) == 3;
        after(if slow { DELAY + PACKET * 10 } else { DELAY })
    };
    let link = run(config, rule);
    let (sent, said) = (link.ends[0].delivery.counters(), link.ends[1].delivery.counters());
    assert_eq!((sent.retransmitted_early, sent.timeouts), (0, 0));
    assert!(said.extended_acks_sent > u64::from(PACKETS) / 50, "no gaps were reported");
    assert!(said.acks_sent <= u64::from(PACKETS) / 10 + 20, "{} acknowledgements", said.acks_sent);
}

#[test]
fn f11_each_loss_causes_one_additional_acknowledgement() {
    let mut random = RandomStreams::new(12).stream("loss");
    let link =
        run(shared(config()), move |_, from, _| if from == 0 && random.below(100) == 0 { LOST } else { after(DELAY) });
    let (sent, said) = (link.ends[0].delivery.counters(), link.ends[1].delivery.counters());
    let retransmissions = link.ends[0].left_again() as u64;
    assert!(retransmissions > u64::from(PACKETS) / 200, "{retransmissions} were lost");
    // After a loss it takes longer to count ten packets, so some acknowledgements are triggered by time: two in a
    // hundred.
    assert!(
        said.acks_sent <= u64::from(PACKETS) / 10 + retransmissions + u64::from(PACKETS) / 50,
        "{} acknowledgements",
        said.acks_sent
    );
    assert_eq!(sent.timeouts, 0);
}
