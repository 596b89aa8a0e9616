//! Losses: RACK-TLP, OOO-distance, timeouts, NACKs (F-11 to F-14, conformance probes 3 and 8).

mod two_ends;

use std::collections::BTreeMap;

use rnic_base::{Duration, RandomStreams, Time};
use rnic_falcon::delivery::{AckRequestRule, ControlSettings, DeliveryConfig, Departure};
use rnic_falcon::interface::Context;
use rnic_policy::Cwnd;
use rnic_policy::control::report::ReportKind;
use rnic_wire::falcon::{Body, NackCode, PacketType, RnrTimer};
use two_ends::link::{Fate, LOST, Link, after};
use two_ends::upper::Acknowledging;
use two_ends::{config, config_of, micros, tune};

/// One-way delay.
const DELAY: Duration = Duration::from_us(5);

fn is_push(departure: &Departure) -> bool {
    departure.packet.body.packet_type() == PacketType::PushData
}

fn psn(departure: &Departure) -> u32 {
    departure.packet.body.psn().map_or(u32::MAX, |psn| psn.value())
}

/// Every packet asks for an acknowledgement.
fn asking(mut config: DeliveryConfig) -> DeliveryConfig {
    config.ack_request = AckRequestRule::ALWAYS;
    config
}

/// Loses the first `times` transmissions of each of these packets of end 0.
fn losing(lost: &'static [u32], times: u32) -> impl FnMut(Time, usize, &Departure) -> Fate {
    let mut left: BTreeMap<u32, u32> = lost.iter().map(|psn| (*psn, times)).collect();
    move |_, from, departure| {
        if from == 0
            && is_push(departure)
            && let Some(left) = left.get_mut(&psn(departure))
            && *left > 0
        {
            *left -= 1;
            return LOST;
        }
        after(DELAY)
    }
}

/// Returns the times of all transmissions of packet `number`.
fn departures(link: &Link<'_>, number: u32) -> Vec<Time> {
    link.ends[0].left(PacketType::PushData).iter().filter(|(_, sent)| psn(sent) == number).map(|(at, _)| *at).collect()
}

#[test]
fn f11_probe8_reordering_within_the_window_retransmits_nothing() {
    let mut random = RandomStreams::new(3).stream("jitter");
    let rule = move |_, from, _: &_| after(DELAY + Duration::from_ns(if from == 0 { random.below(2_000) } else { 0 }));
    let mut link = Link::new(asking(config()), Box::new(rule));
    link.ends[0].upper.pushes(5_000);
    link.run_for(Duration::from_ms(20));
    let end = &link.ends[0];
    assert!(end.upper.all_acked());
    assert_eq!((end.left_again(), end.delivery.counters().retransmitted_early), (0, 0));
    let extended = link.ends[1].delivery.counters().extended_acks_sent;
    assert!(extended > 1_000, "only {extended} acknowledgements report a gap");
}

#[test]
fn f11_a_lost_packet_is_retransmitted_after_a_round_trip_and_a_reordering_window() {
    // With a window that stays open, so that the second packet is judged while the retransmission of the first is in
    // flight.
    let mut config = asking(config());
    (config.fcwnd, config.ncwnd) = (Cwnd::packets(256), 256);
    let mut link = Link::new(config, Box::new(losing(&[100, 120], 1)));
    link.packet_time = Duration::from_ns(200);
    link.ends[0].upper.pushes(400);
    link.run_for(Duration::from_ms(2));
    for number in [100, 120] {
        let left = departures(&link, number);
        assert_eq!(left.len(), 2);
        let wait = left[1].since(left[0]);
        assert!(wait >= micros(12) && wait <= micros(14), "{number} waited {wait}, not 10 us and a quarter");
    }
    assert_eq!((link.ends[0].left_again(), link.ends[0].delivery.counters().timeouts), (2, 0));
    assert!(link.ends[0].upper.all_acked());
}

#[test]
fn f11_probe8_only_packets_sent_after_a_retransmission_reveal_its_loss() {
    // Packet 10 of 20 is lost twice, and no packet is sent after its retransmission: only silence reveals the second
    // loss.
    let mut link = Link::new(asking(config()), Box::new(losing(&[10], 2)));
    link.ends[0].upper.pushes(20);
    link.run_for(micros(300));
    let left = departures(&link, 10);
    assert_eq!(left.len(), 3);
    let waits = [left[1].since(left[0]), left[2].since(left[1])];
    assert!(waits[0] < micros(14), "later packets did not reveal the first loss: {}", waits[0]);
    // A probe: two round trips and the coalescing time after the packet left again.
    assert!(waits[1] > micros(26) && waits[1] < micros(32), "the second loss needs a probe: {}", waits[1]);
    assert_eq!(link.ends[0].delivery.counters().probes, 1);
}

#[test]
fn f11_a_lost_retransmission_is_recovered_without_a_timeout() {
    // A window that stays open long enough: packets sent in the meantime reveal the loss.
    let mut config = asking(config());
    (config.fcwnd, config.ncwnd) = (Cwnd::packets(256), 256);
    let mut link = Link::new(config, Box::new(losing(&[100], 3)));
    link.packet_time = Duration::from_ns(200);
    link.ends[0].upper.pushes(2_000);
    link.run_for(Duration::from_ms(5));
    let left = departures(&link, 100);
    let counters = link.ends[0].delivery.counters();
    assert_eq!((left.len(), counters.timeouts, counters.probes), (4, 0, 0));
    assert!(left[3].since(left[0]) < micros(60), "more than three round trips and windows");
    assert!(link.ends[0].upper.all_acked());
}

#[test]
fn f11_probe8_packets_sent_after_the_last_arrived_one_are_not_considered_lost() {
    // Probe 8: every packet after packet 10 is lost, 10 itself is not: only silence can reveal these losses.
    let rule = |_, from, departure: &Departure| {
        if from == 0 && !departure.is_retransmission && psn(departure) > 10 { LOST } else { after(DELAY) }
    };
    let mut link = Link::new(asking(config()), Box::new(rule));
    link.ends[0].upper.pushes(20);
    link.run_for(micros(30));
    assert_eq!(link.ends[0].left_again(), 0, "no packet sent later is known to have arrived");
}

#[test]
fn f11_of_packets_sent_together_those_after_the_last_arrived_one_are_not_considered_lost() {
    // An acknowledgement reports the first half of a burst, and the rest waits for its acknowledgement longer than
    // the reordering window: one per ten packets, or after 8 us.
    let mut config = config();
    (config.fcwnd, config.ncwnd) = (Cwnd::packets(256), 256);
    let mut link = Link::new(config, Box::new(|_, _, _: &_| after(DELAY)));
    link.packet_time = Duration::ZERO;
    for _ in 0..20 {
        link.ends[0].upper.pushes(37);
        link.run_for(micros(200));
    }
    assert!(link.ends[0].upper.all_acked());
    assert_eq!((link.ends[0].left_again(), link.ends[1].delivery.counters().duplicates), (0, 0));
}

#[test]
fn f11_of_packets_sent_together_those_before_an_arrived_one_are_considered_lost() {
    let mut config = asking(config());
    (config.fcwnd, config.ncwnd) = (Cwnd::packets(256), 256);
    let mut link = Link::new(config, Box::new(losing(&[12], 1)));
    link.packet_time = Duration::ZERO;
    link.ends[0].upper.pushes(20);
    link.run_for(micros(200));
    let left = departures(&link, 12);
    assert_eq!(left.len(), 2);
    assert!(left[1].since(left[0]) < micros(14), "recovered by a probe: {}", left[1].since(left[0]));
    assert_eq!((link.ends[0].left_again(), link.ends[0].delivery.counters().probes), (1, 0));
}

#[test]
fn f11_the_late_original_of_a_retransmitted_packet_reveals_no_loss() {
    // Packet 100 arrives 6 us late, after its retransmission was sent: packets sent between the two are in flight,
    // not lost.
    let mut config = asking(config());
    (config.fcwnd, config.ncwnd) = (Cwnd::packets(256), 256);
    let rule = |_, from, departure: &Departure| {
        let is_late = from == 0 && !departure.is_retransmission && psn(departure) == 100;
        after(DELAY + if is_late { micros(6) } else { Duration::ZERO })
    };
    let mut link = Link::new(config, Box::new(rule));
    link.packet_time = Duration::from_ns(100);
    link.ends[0].upper.pushes(400);
    link.run_for(Duration::from_ms(2));
    assert!(link.ends[0].upper.all_acked());
    let retransmitted: Vec<u32> =
        link.ends[0].log.iter().filter(|(_, d)| d.is_retransmission).map(|(_, d)| psn(d)).collect();
    assert_eq!(retransmitted, [100]);
}

#[test]
fn f11_a_reordered_acknowledgement_does_not_undo_loss_detection() {
    // Every acknowledgement has base 3, so none is stale; the eighth arrives last, and reports packets sent before
    // packet 17.
    let (mut lost, mut acks) = (losing(&[3, 17], 1), 0);
    let rule = move |now, from, departure: &Departure| {
        acks += u32::from(from == 1);
        if from == 1 && acks == 8 { after(DELAY + micros(2)) } else { lost(now, from, departure) }
    };
    let mut link = Link::new(asking(config()), Box::new(rule));
    link.packet_time = Duration::from_ns(100);
    link.ends[0].upper.pushes(20);
    link.run_for(micros(300));
    let left = departures(&link, 17);
    assert_eq!((left.len(), link.ends[0].delivery.counters().probes), (2, 0));
    let wait = left[1].since(left[0]);
    assert!(wait >= micros(12) && wait <= micros(14), "17 waited {wait}, not 10 us and a quarter");
    assert!(link.ends[0].upper.all_acked());
}

#[test]
fn f12_probe8_the_end_of_a_burst_is_recovered_by_a_probe_not_by_the_timeout() {
    for lost in [1, 5] {
        let rule = move |_, from, departure: &Departure| {
            let tail = from == 0 && !departure.is_retransmission && is_push(departure) && psn(departure) >= 20 - lost;
            if tail { LOST } else { after(DELAY) }
        };
        let mut link = Link::new(asking(config()), Box::new(rule));
        link.ends[0].upper.pushes(20);
        let start = link.now;
        link.run_for(micros(90));
        let counters = link.ends[0].delivery.counters();
        assert!(link.ends[0].upper.all_acked(), "{lost} lost: not all acknowledged after 90 us");
        assert_eq!((counters.probes, counters.timeouts), (1, 0), "{lost} lost");
        let probe = link.ends[0].log.iter().find(|(_, departure)| departure.is_retransmission).expect("a probe");
        assert_eq!(psn(&probe.1), 20 - lost, "the probe is the first missing packet");
        let waited = probe.0.since(start);
        // The silence begins with the last acknowledgement, 10 us after the last delivered packet was sent; it lasts
        // 2 round trips and 8 us.
        assert!(waited > micros(37) && waited < micros(42), "{waited}");
    }
}

#[test]
fn f13_distance_and_time_retransmit_different_packets() {
    // Packet 50 is lost, and `later` packets follow it.
    let run = |recovery, later: u32| {
        let mut link = Link::new(asking(config_of(recovery, "ecmp")), Box::new(losing(&[50], 1)));
        link.ends[0].upper.pushes(51 + later);
        link.run_for(micros(200));
        let early: Vec<u32> =
            link.ends[0].log.iter().filter(|(_, d)| d.is_retransmission).map(|(_, d)| psn(d)).collect();
        link.run_for(Duration::from_ms(10));
        assert!(link.ends[0].upper.all_acked(), "{recovery}");
        (early, link.ends[0].delivery.counters().timeouts)
    };
    assert_eq!(run("rack-tlp", 2), (vec![50], 0));
    assert_eq!(run("ooo-distance", 3), (vec![], 1), "the distance does not exceed the threshold");
    assert_eq!(run("ooo-distance", 4), (vec![50], 0));
}

#[test]
fn f13_distance_retransmits_packets_with_enough_later_arrivals() {
    let mut link = Link::new(asking(config_of("ooo-distance", "ecmp")), Box::new(losing(&[50, 52, 60], 1)));
    link.ends[0].upper.pushes(200);
    link.run_for(micros(200));
    let early: Vec<u32> = link.ends[0].log.iter().filter(|(_, d)| d.is_retransmission).map(|(_, d)| psn(d)).collect();
    assert_eq!(early, [50, 52, 60]);
    assert!(link.ends[0].upper.all_acked() && link.ends[0].delivery.counters().timeouts == 0);
}

#[test]
fn f13_distance_never_recovers_a_tail_before_the_timeout() {
    let mut config = asking(config_of("ooo-distance", "ecmp"));
    tune(&mut config, "rto", "300us");
    let mut link = Link::new(config, Box::new(losing(&[17, 18, 19], 1)));
    link.ends[0].upper.pushes(20);
    let start = link.now;
    link.run_for(Duration::from_ms(2));
    for number in [17, 18, 19] {
        let left = departures(&link, number);
        assert_eq!(left.len(), 2);
        assert!(left[1].since(start) >= micros(300), "packet {number} retransmitted after {}", left[1].since(start));
    }
    assert!(link.ends[0].upper.all_acked());
}

/// The recovery policy determines whether there are probes: `ooo-distance` sends none unless it is configured to,
/// even with an adaptive engine that computes their time.
#[test]
fn f13_distance_probes_only_when_configured() {
    for (asked, engine) in [(false, true), (true, false), (true, true)] {
        let mut config = asking(config_of("ooo-distance", "ecmp"));
        tune(&mut config, "rto", "300us");
        tune(&mut config, "tail_probe", if asked { "true" } else { "false" });
        let mut link = Link::new(config, Box::new(losing(&[19], 1)));
        if engine {
            let settings = ControlSettings { probe: Some(Some(micros(40))), ..Default::default() };
            link.ends[0].delivery.apply(0, &settings);
        }
        link.ends[0].upper.pushes(20);
        link.run_for(Duration::from_ms(2));
        let counters = link.ends[0].delivery.counters();
        assert_eq!((counters.probes, counters.timeouts), (u64::from(asked), u64::from(!asked)), "{asked} {engine}");
        assert!(link.ends[0].upper.all_acked());
    }
}

#[test]
fn f14_without_acknowledgements_each_packet_times_out_by_itself() {
    let mut config = config();
    tune(&mut config, "rto", "500us");
    let rule = |_, from, _: &_| if from == 1 { LOST } else { after(DELAY) };
    let mut link = Link::new(config, Box::new(rule));
    link.packet_time = micros(3);
    link.ends[0].upper.pushes(10);
    link.run_for(micros(40));
    link.packet_time = Duration::from_ns(10);
    link.run_for(micros(500));
    for number in 0..10 {
        let left = departures(&link, number);
        assert_eq!(left.len(), 2, "packet {number}");
        let waited = left[1].since(left[0]);
        assert!(waited >= micros(500) && waited <= micros(503), "packet {number} waited {waited}");
    }
    assert_eq!(link.ends[0].delivery.counters().timeouts, 10);
    assert_eq!(link.ends[1].upper.kept.len(), 10);
    assert!(link.ends[1].upper.kept_once());
}

/// A packet times out that was lost, or that is acknowledged one microsecond after the timeout: only the second timeout
/// is spurious.
#[test]
fn f14_timeouts_of_packets_that_were_not_lost_are_counted_as_spurious() {
    for (is_lost, spurious) in [(true, 0), (false, 1)] {
        let mut config = asking(config_of("ooo-distance", "ecmp"));
        tune(&mut config, "rto", "300us");
        let rule = move |_, from, departure: &Departure| {
            let is_last = from == 0 && !departure.is_retransmission && is_push(departure) && psn(departure) == 20;
            match (is_last, is_lost) {
                (true, true) => LOST,
                (true, false) => after(micros(301) - DELAY),
                _ => after(DELAY),
            }
        };
        let mut link = Link::new(config, Box::new(rule));
        link.ends[0].upper.pushes(20);
        link.run_for(micros(200));
        link.ends[0].upper.pushes(1);
        link.run_for(Duration::from_ms(2));
        let counters = link.ends[0].delivery.counters();
        assert_eq!((counters.timeouts, counters.timeouts_spurious), (1, spurious), "lost: {is_lost}");
        assert!(link.ends[0].upper.all_acked());
    }
}

#[test]
fn f14_a_packet_never_acknowledged_becomes_a_resync_or_ends_the_connection() {
    for give_up in [false, true] {
        let mut config = config();
        config.attempts_max = 3;
        tune(&mut config, "rto", "100us");
        // Only Resyncs get through.
        let rule = |_, from, departure: &Departure| if from == 0 && is_push(departure) { LOST } else { after(DELAY) };
        let mut link = Link::new(config, Box::new(rule));
        link.ends[0].upper.give_up = give_up;
        link.ends[0].upper.pushes(1);
        link.run_for(Duration::from_ms(5));
        let end = &link.ends[0];
        assert_eq!(end.upper.exhausted, [Context(0)]);
        assert_eq!(end.left(PacketType::PushData).len(), 4, "one transmission, and three timeouts");
        assert_eq!(end.delivery.is_terminated(), give_up);
        let resyncs = end.left(PacketType::Resync);
        assert_eq!(resyncs.len(), usize::from(!give_up));
        if let Some((_, resync)) = resyncs.first() {
            assert_eq!(psn(resync), 0, "the Resync has the packet's number");
            assert!(end.upper.all_acked());
        }
    }
}

/// One packet, retransmitted `attempts_max` times at intervals of 100 us; all copies are lost.
fn unanswered(attempts_max: u16) -> Link<'static> {
    let mut config = config();
    config.attempts_max = attempts_max;
    tune(&mut config, "rto", "100us");
    let mut link = Link::new(config, Box::new(|_, from, _: &_| if from == 0 { LOST } else { after(DELAY) }));
    link.ends[0].upper.pushes(1);
    link
}

#[test]
fn f30_the_number_of_timeouts_is_reported_to_the_adaptive_engine() {
    let mut link = unanswered(5);
    link.run_for(micros(450));
    let told: Vec<ReportKind> = link.ends[0].signals.iter().map(|signal| signal.kind).collect();
    let timed_out = |count| ReportKind::Retransmitted { count, early: false };
    assert_eq!(told, [1, 2, 3, 4].map(timed_out));
}

#[test]
fn f14_a_resync_has_as_many_attempts_as_a_packet() {
    let mut link = unanswered(3);
    while link.ends[0].upper.exhausted.len() < 2 {
        link.run_for(micros(10));
        assert!(link.ends[0].log.len() < 20, "the retransmissions do not end");
    }
    let end = &link.ends[0];
    // The fifth Resync is the first of the next round.
    assert_eq!((end.left(PacketType::PushData).len(), end.left(PacketType::Resync).len()), (4, 4 + 1));
}

#[test]
fn f7_probe3_not_ready_waits_for_the_longer_of_timeout_and_nack() {
    let (long, short) = (RnrTimer::at_least(Duration::from_ms(2)), RnrTimer::from_code(1));
    for (timeout, lost_nacks) in [(long, 0), (short, 0), (short, 1)] {
        let mut nacks = 0;
        let rule = move |_, _, departure: &Departure| {
            let is_nack = matches!(departure.packet.body, Body::Nack(_));
            nacks += u32::from(is_nack);
            if is_nack && nacks <= lost_nacks { LOST } else { after(DELAY) }
        };
        let mut link = Link::new(config(), Box::new(rule));
        link.ends[1].upper.acknowledging = Acknowledging::Never;
        link.ends[1].upper.refusals.insert(0, NackCode::NotReady { timeout });
        link.ends[0].upper.pushes(1);
        link.run_for(micros(500));
        link.ends[1].upper.refusals.clear();
        link.run_for(Duration::from_ms(10));
        let left = link.ends[0].left(PacketType::PushData);
        assert!(left.len() >= 2, "the packet was not retransmitted");
        if lost_nacks == 0 {
            let waited = left[1].0.since(left[0].0);
            let least = timeout.wait().max(Duration::from_ms(1));
            assert!(waited >= least, "it waited {waited}, with {} in the NACK and a timeout of 1 ms", timeout.wait());
        }
        assert!(link.ends[1].upper.duplicates > 0, "no copy arrived at the target");
        assert_eq!(link.ends[0].delivery.counters().timeouts, 0, "the wait does not count as a timeout");
    }
}

#[test]
fn f8_probe3_a_refused_push_is_replaced_by_a_resync_even_when_the_nack_is_lost() {
    for lost_nacks in [0, 1, 3] {
        let mut nacks = 0;
        let rule = move |_, _, departure: &Departure| {
            let is_nack = matches!(departure.packet.body, Body::Nack(_));
            nacks += u32::from(is_nack);
            match is_nack {
                true if nacks <= lost_nacks => LOST,
                true => [Some(DELAY), Some(DELAY + micros(3))],
                false => after(DELAY),
            }
        };
        let mut link = Link::new(config(), Box::new(rule));
        let code = NackCode::CompleteInError { ulp: 7 };
        link.ends[1].upper.refusals.insert(4, code);
        link.ends[0].upper.pushes(10);
        link.run_for(Duration::from_ms(60));
        let (sender, receiver) = (&link.ends[0], &link.ends[1]);
        assert_eq!(sender.upper.nacked, [(Context(4), code)], "one notification for a duplicated NACK");
        assert!(sender.upper.all_acked(), "{lost_nacks} NACKs lost");
        let resyncs = sender.left(PacketType::Resync);
        let Some((_, resync)) = resyncs.first() else { panic!("no Resync was sent") };
        assert_eq!((psn(resync), resync.packet.body.rsn().map(|rsn| rsn.value())), (4, Some(4)));
        assert!(receiver.delivery.counters().nacks_sent > u64::from(lost_nacks), "the NACK was not repeated");
        assert_eq!(receiver.upper.kept[&(PacketType::Resync, 4)], 1);
    }
}

#[test]
fn f34_a_lack_of_resources_is_reported_and_the_packets_are_retransmitted() {
    let mut link = Link::new(config(), Box::new(|_, _, _: &_| after(DELAY)));
    link.ends[1].upper.room = Some(5);
    link.ends[0].upper.pushes(20);
    link.run_for(micros(40));
    assert!(link.ends[1].delivery.counters().nacks_sent > 0);
    link.ends[1].upper.room = None;
    link.run_for(Duration::from_ms(20));
    assert!(link.ends[0].upper.all_acked() && link.ends[1].upper.kept_once());
    let refused = ReportKind::Nacked { code: NackCode::Resource.code() };
    let codes = link.ends[0].signals.iter().filter(|signal| signal.kind == refused);
    assert!(codes.count() > 0, "the NACK was not reported");
}

#[test]
fn f12_f34_resource_nacks_keep_the_probe_backoff_and_an_acknowledgement_resets_it() {
    let mut link = Link::new(asking(config()), Box::new(|_, _, _: &_| after(DELAY)));
    link.ends[0].upper.pushes(10);
    link.run_for(micros(100));
    for _ in 0..2 {
        link.ends[1].upper.room = Some(0);
        link.ends[0].log.clear();
        let start = link.now;
        link.ends[0].upper.pushes(1);
        link.run_for(Duration::from_ms(100));
        let retransmitted: Vec<u64> = link.ends[0]
            .log
            .iter()
            .filter(|(_, d)| d.is_retransmission)
            .map(|(at, _)| at.since(start).as_ns() / 1_000)
            .collect();
        // Each copy is refused 10 us after it was sent; the next ones follow 28, 56, 112, 224, 448 and 896 us later.
        // From then on the timeout retransmits the packet, without limit: a peer that refuses is alive.
        let doubling = [38_u64, 104, 226, 460, 918, 1824];
        let first = &retransmitted[..doubling.len()];
        assert!(doubling.iter().zip(first).all(|(due, left)| due.abs_diff(*left) <= 5), "{first:?}");
        assert!(retransmitted[5..].windows(2).all(|pair| (1_000..1_010).contains(&(pair[1] - pair[0]))));
        assert!(link.ends[0].upper.exhausted.is_empty() && !link.ends[0].upper.all_acked());
        // So it has been sent within a timeout after the receiver has room, and the delays start from the beginning.
        link.ends[1].upper.room = None;
        link.run_for(Duration::from_ms(1) + DELAY * 2);
        assert!(link.ends[0].upper.all_acked());
    }
}

#[test]
fn probe5_ordered_connections_retransmit_in_rsn_order_across_both_windows() {
    // Pull Requests alternate with Push Data; every packet is lost once, and all losses are detected at the same
    // time.
    let rule =
        |_, from, departure: &Departure| if from == 0 && !departure.is_retransmission { LOST } else { after(DELAY) };
    let mut link = Link::new(config(), Box::new(rule));
    link.ends[1].upper.answers = false;
    for _ in 0..8 {
        link.ends[0].upper.pull();
        link.ends[0].upper.push();
        link.ends[0].upper.push();
    }
    link.run_for(micros(100));
    link.ends[0].delivery.apply(0, &ControlSettings { rto: Some(micros(50)), ..Default::default() });
    link.run_for(micros(20));
    let retransmitted: Vec<u32> = link.ends[0]
        .log
        .iter()
        .filter(|(_, departure)| departure.is_retransmission)
        .map(|(_, departure)| departure.packet.body.rsn().expect("it has an RSN").value())
        .collect();
    assert_eq!(retransmitted, (0..24).collect::<Vec<u32>>());
    let kept: Vec<u32> = link.ends[1].upper.order.iter().map(|(_, rsn)| *rsn).collect();
    assert!(kept.is_sorted(), "{kept:?}");
}

#[test]
fn probe5_packets_retransmitted_before_keep_their_position_in_rsn_order() {
    // No packet arrives, and the first four are retransmitted before the windows let the others follow.
    let mut link = Link::new(config(), Box::new(|_, from, _: &_| if from == 0 { LOST } else { after(DELAY) }));
    for _ in 0..4 {
        link.ends[0].upper.pull();
        link.ends[0].upper.push();
        link.ends[0].upper.push();
    }
    let windows = |packets| ControlSettings { fcwnd: Some(Cwnd::packets(packets)), ..Default::default() };
    link.run_for(micros(100));
    link.ends[0].delivery.apply(0, &ControlSettings { rto: Some(micros(50)), ..windows(2) });
    link.run_for(micros(20));
    let so_far = link.ends[0].log.len();
    assert_eq!(so_far, 12 + 4, "two packets in each window");
    // Nothing may be sent until those four have timed out again.
    link.ends[0].delivery.apply(0, &ControlSettings { packet_gap: Some(micros(500)), ..Default::default() });
    link.run_for(micros(60));
    assert_eq!(link.ends[0].log.len(), so_far);
    link.ends[0].log.clear();
    link.ends[0].delivery.apply(0, &ControlSettings { packet_gap: Some(Duration::ZERO), ..windows(32) });
    link.run_for(micros(20));
    let retransmitted =
        link.ends[0].log.iter().map(|(_, departure)| departure.packet.body.rsn().expect("it has an RSN").value());
    assert_eq!(retransmitted.collect::<Vec<u32>>(), (0..12).collect::<Vec<u32>>());
}

#[test]
fn f12_unanswered_probes_double_their_wait_and_never_replace_the_timeout() {
    // The peer sends nothing more after the first ten packets.
    let rule = |_, from, departure: &Departure| {
        if from == 0 && psn(departure) >= 10 { LOST } else { after(DELAY) }
    };
    let mut link = Link::new(asking(config()), Box::new(rule));
    link.ends[0].upper.pushes(10);
    link.run_for(micros(100));
    link.ends[0].upper.pushes(10);
    let start = link.now;
    link.run_for(micros(990));
    let retransmitted: Vec<u64> = link.ends[0]
        .log
        .iter()
        .filter(|(_, d)| d.is_retransmission)
        .map(|(at, _)| at.since(start).as_ns() / 1_000)
        .collect();
    // The last packet is sent at 0.9 us, the first probe 2 round trips and 8 us later, the others at 56, 112, 224 and
    // 448 us after the one before.
    assert_eq!(retransmitted, [28, 84, 196, 420, 868]);
    assert_eq!(link.ends[0].delivery.counters().timeouts, 0);
    link.run_for(micros(50));
    assert!(link.ends[0].delivery.counters().timeouts > 0);
}

#[test]
fn f15_times_of_the_adaptive_engine_replace_those_of_the_policy() {
    let wait_for = |settings: ControlSettings| {
        let mut link = Link::new(asking(config()), Box::new(losing(&[100], 1)));
        link.ends[0].delivery.apply(0, &settings);
        link.ends[0].upper.pushes(120);
        link.run_for(Duration::from_ms(2));
        let left = departures(&link, 100);
        assert!(left.len() >= 2 && link.ends[0].upper.all_acked());
        left[1].since(left[0])
    };
    let rack = wait_for(ControlSettings {
        rack_rto: Some(Some(micros(30))),
        probe: Some(Some(micros(500))),
        ..Default::default()
    });
    assert!(rack >= micros(30) && rack < micros(31), "{rack}");
    let settings =
        ControlSettings { rack_rto: Some(Some(micros(900))), probe: Some(Some(micros(60))), ..Default::default() };
    let probe = wait_for(settings);
    assert!(probe >= micros(60) && probe < micros(80), "{probe}");
    let settings = ControlSettings {
        rack_rto: Some(Some(micros(900))),
        probe: Some(Some(micros(900))),
        rto: Some(micros(200)),
        ..Default::default()
    };
    let timeout = wait_for(settings);
    assert!(timeout >= micros(200) && timeout < micros(201), "{timeout}");
}

#[test]
fn f15_a_shorter_timeout_applies_to_packets_in_flight() {
    let mut link = Link::new(config(), Box::new(|_, from, _: &_| if from == 1 { LOST } else { after(DELAY) }));
    link.ends[0].upper.pushes(1);
    link.run_for(micros(20));
    let left = link.ends[0].left(PacketType::PushData)[0].0;
    link.ends[0].delivery.apply(0, &ControlSettings { rto: Some(micros(60)), ..Default::default() });
    assert_eq!(link.ends[0].delivery.expiry(), Some(left + micros(60)), "the windows are not scanned earlier");
    link.run_for(micros(45));
    assert_eq!(link.ends[0].delivery.counters().timeouts, 1);
}

#[test]
fn f15_timeouts_follow_the_round_trip() {
    // Ten times the delay from 1 ms on; packet 100 is lost before, 900 after.
    let start = rnic_base::Time::from_us(1_000);
    let mut lose = losing(&[100, 900], 1);
    let rule = move |now: Time, from, departure: &Departure| {
        let slow = now.since(start) > Duration::from_ms(1);
        let fate = lose(now, from, departure);
        if fate == LOST || !slow { fate } else { after(DELAY.saturating_mul(10)) }
    };
    let mut link = Link::new(asking(config()), Box::new(rule));
    link.packet_time = Duration::from_ns(500);
    link.ends[0].upper.pushes(200);
    link.run_until(start + Duration::from_ms(1) + micros(1));
    link.ends[0].upper.pushes(1_000);
    link.run_for(Duration::from_ms(10));
    let wait = |number| {
        let left = departures(&link, number);
        left[1].since(left[0])
    };
    assert!(wait(100) < micros(15), "{}", wait(100));
    assert!(wait(900) > micros(100) && wait(900) < micros(150), "{}", wait(900));
    assert!(link.ends[0].upper.all_acked());
}

#[test]
fn pull_data_acknowledges_its_request() {
    // No acknowledgement arrives, and an earlier request is lost, so that bases do not report the packets either.
    let rule = |_, from, departure: &Departure| {
        let is_answer = departure.context.is_none();
        let is_first = from == 0 && psn(departure) == 0 && !departure.is_retransmission;
        if is_answer || is_first { LOST } else { after(DELAY) }
    };
    let mut link = Link::new(config(), Box::new(rule));
    for _ in 0..4 {
        link.ends[0].upper.pull();
    }
    link.run_for(micros(100));
    assert_eq!(link.ends[0].upper.acked, [0, 1, 1, 1]);
}
