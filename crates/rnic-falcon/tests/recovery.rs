//! Losses: RACK-TLP, OOO-distance, timeouts, NACKs (F-11 to F-14, conformance probes 3 and 8).

mod two_ends;

use std::collections::BTreeMap;

use rnic_base::{Duration, RandomStreams, Time};
use rnic_falcon::delivery::{AckRequestRule, ControlSettings, DeliveryConfig, Departure};
use rnic_falcon::seam::Context;
use rnic_policy::Cwnd;
use rnic_policy::control::report::ReportKind;
use rnic_wire::falcon::{Body, NackCode, PacketType, RnrTimer};
use two_ends::link::{Fate, LOST, Link, after};
use two_ends::upper::Acknowledging;
use two_ends::{config, config_of, micros, tune};

/// One way.
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

/// When packet `number` left, each time.
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
    assert_eq!((end.left_again(), end.delivery.counters().sent_again_early), (0, 0));
    let extended = link.ends[1].delivery.counters().extended_acks_sent;
    assert!(extended > 1_000, "the link did reorder: {extended} acknowledgements saw a gap");
}

#[test]
fn f11_a_loss_is_repaired_a_round_trip_and_a_reordering_window_after_it_left() {
    // Where a window stays open, so that the second is judged while the first, sent again, is under way.
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
        assert!(wait >= micros(12) && wait <= micros(14), "10 us and a quarter, but {number} waited {wait}");
    }
    assert_eq!((link.ends[0].left_again(), link.ends[0].delivery.counters().timeouts), (2, 0));
    assert!(link.ends[0].upper.all_acked());
}

#[test]
fn f11_probe8_a_retransmission_is_judged_by_what_left_after_it() {
    // The last but nine is lost twice, and nothing leaves after it was sent again: only silence tells.
    let mut link = Link::new(asking(config()), Box::new(losing(&[10], 2)));
    link.ends[0].upper.pushes(20);
    link.run_for(micros(300));
    let left = departures(&link, 10);
    assert_eq!(left.len(), 3);
    let waits = [left[1].since(left[0]), left[2].since(left[1])];
    assert!(waits[0] < micros(14), "the first loss is seen by what came after: {}", waits[0]);
    // A probe: two round trips and the coalescing time after the packet left again.
    assert!(waits[1] > micros(26) && waits[1] < micros(32), "the second is not: {}", waits[1]);
    assert_eq!(link.ends[0].delivery.counters().probes, 1);
}

#[test]
fn f11_a_lost_retransmission_needs_no_timeout() {
    // A window that stays open for as long as it takes: what is sent meanwhile tells of the loss.
    let mut config = asking(config());
    (config.fcwnd, config.ncwnd) = (Cwnd::packets(256), 256);
    let mut link = Link::new(config, Box::new(losing(&[100], 3)));
    link.packet_time = Duration::from_ns(200);
    link.ends[0].upper.pushes(2_000);
    link.run_for(Duration::from_ms(5));
    let left = departures(&link, 100);
    let counters = link.ends[0].delivery.counters();
    assert_eq!((left.len(), counters.timeouts, counters.probes), (4, 0, 0));
    assert!(left[3].since(left[0]) < micros(60), "three round trips and windows");
    assert!(link.ends[0].upper.all_acked());
}

#[test]
fn f11_probe8_packets_sent_after_the_one_that_arrived_are_not_judged() {
    // Probe 8: everything after packet 10 is lost, 10 itself is not: nothing can be known of them but by silence.
    let rule = |_, from, departure: &Departure| {
        if from == 0 && !departure.again && psn(departure) > 10 { LOST } else { after(DELAY) }
    };
    let mut link = Link::new(asking(config()), Box::new(rule));
    link.ends[0].upper.pushes(20);
    link.run_for(micros(30));
    assert_eq!(link.ends[0].left_again(), 0, "no packet sent later is known to have arrived");
}

#[test]
fn f11_of_packets_that_left_at_one_moment_those_behind_the_last_that_arrived_are_not_judged() {
    // An acknowledgement tells of the first half of a burst, and the rest waits for company longer than a packet may be
    // late: ten packets share one, or 8 us.
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
fn f11_of_packets_that_left_at_one_moment_those_before_one_that_arrived_are_judged() {
    let mut config = asking(config());
    (config.fcwnd, config.ncwnd) = (Cwnd::packets(256), 256);
    let mut link = Link::new(config, Box::new(losing(&[12], 1)));
    link.packet_time = Duration::ZERO;
    link.ends[0].upper.pushes(20);
    link.run_for(micros(200));
    let left = departures(&link, 12);
    assert_eq!(left.len(), 2);
    assert!(left[1].since(left[0]) < micros(14), "no probe was needed: {}", left[1].since(left[0]));
    assert_eq!((link.ends[0].left_again(), link.ends[0].delivery.counters().probes), (1, 0));
}

#[test]
fn f11_the_late_copy_of_a_packet_that_was_sent_again_says_nothing_of_the_second() {
    // Packet 100 comes 6 us late, after it was sent again: what left between the two is on its way, and not lost.
    let mut config = asking(config());
    (config.fcwnd, config.ncwnd) = (Cwnd::packets(256), 256);
    let rule = |_, from, departure: &Departure| {
        let is_late = from == 0 && !departure.again && psn(departure) == 100;
        after(DELAY + if is_late { micros(6) } else { Duration::ZERO })
    };
    let mut link = Link::new(config, Box::new(rule));
    link.packet_time = Duration::from_ns(100);
    link.ends[0].upper.pushes(400);
    link.run_for(Duration::from_ms(2));
    assert!(link.ends[0].upper.all_acked());
    let again: Vec<u32> = link.ends[0].log.iter().filter(|(_, d)| d.again).map(|(_, d)| psn(d)).collect();
    assert_eq!(again, [100]);
}

#[test]
fn f11_an_acknowledgement_that_comes_late_takes_nothing_back() {
    // Every acknowledgement has base 3, so none is stale; the eighth comes last, and tells of what left before 17 did.
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
    assert!(wait >= micros(12) && wait <= micros(14), "10 us and a quarter, but 17 waited {wait}");
    assert!(link.ends[0].upper.all_acked());
}

#[test]
fn f12_probe8_the_end_of_a_burst_is_recovered_by_a_probe_not_by_the_timeout() {
    for lost in [1, 5] {
        let rule = move |_, from, departure: &Departure| {
            let tail = from == 0 && !departure.again && is_push(departure) && psn(departure) >= 20 - lost;
            if tail { LOST } else { after(DELAY) }
        };
        let mut link = Link::new(asking(config()), Box::new(rule));
        link.ends[0].upper.pushes(20);
        let start = link.now;
        link.run_for(micros(90));
        let counters = link.ends[0].delivery.counters();
        assert!(link.ends[0].upper.all_acked(), "{lost} lost: all is well within 90 us of the start");
        assert_eq!((counters.probes, counters.timeouts), (1, 0), "{lost} lost");
        let probe = link.ends[0].log.iter().find(|(_, departure)| departure.again).expect("the probe");
        assert_eq!(psn(&probe.1), 20 - lost, "the lowest that is missing");
        let waited = probe.0.since(start);
        // Silent since the last acknowledgement, 10 us after the last packet that arrived; 2 round trips and 8 us.
        assert!(waited > micros(37) && waited < micros(42), "{waited}");
    }
}

#[test]
fn f13_distance_and_time_retransmit_different_packets() {
    // Packet 50 is lost, and so many come after it.
    let run = |recovery, later: u32| {
        let mut link = Link::new(asking(config_of(recovery, "ecmp")), Box::new(losing(&[50], 1)));
        link.ends[0].upper.pushes(51 + later);
        link.run_for(micros(200));
        let early: Vec<u32> = link.ends[0].log.iter().filter(|(_, d)| d.again).map(|(_, d)| psn(d)).collect();
        link.run_for(Duration::from_ms(10));
        assert!(link.ends[0].upper.all_acked(), "{recovery}");
        (early, link.ends[0].delivery.counters().timeouts)
    };
    assert_eq!(run("rack-tlp", 2), (vec![50], 0));
    assert_eq!(run("ooo-distance", 3), (vec![], 1), "no more above it than the threshold");
    assert_eq!(run("ooo-distance", 4), (vec![50], 0));
}

#[test]
fn f13_distance_repairs_what_has_enough_above_it() {
    let mut link = Link::new(asking(config_of("ooo-distance", "ecmp")), Box::new(losing(&[50, 52, 60], 1)));
    link.ends[0].upper.pushes(200);
    link.run_for(micros(200));
    let early: Vec<u32> = link.ends[0].log.iter().filter(|(_, d)| d.again).map(|(_, d)| psn(d)).collect();
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
        assert!(left[1].since(start) >= micros(300), "packet {number} was sent again after {}", left[1].since(start));
    }
    assert!(link.ends[0].upper.all_acked());
}

/// Probes are the policy's: with an adaptive engine that computes when, too, distance has none, unless it is asked to.
#[test]
fn f13_distance_probes_only_when_asked_to() {
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

#[test]
fn f14_a_packet_that_is_never_answered_becomes_a_resync_or_the_end() {
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
        assert_eq!(end.left(PacketType::PushData).len(), 4, "once, and three timeouts");
        assert_eq!(end.delivery.is_dead(), give_up);
        let resyncs = end.left(PacketType::Resync);
        assert_eq!(resyncs.len(), usize::from(!give_up));
        if let Some((_, resync)) = resyncs.first() {
            assert_eq!(psn(resync), 0, "with the packet's number");
            assert!(end.upper.all_acked());
        }
    }
}

/// One packet, sent `attempts_max` times again after 100 us each, of which nothing arrives.
fn unanswered(attempts_max: u16) -> Link<'static> {
    let mut config = config();
    config.attempts_max = attempts_max;
    tune(&mut config, "rto", "100us");
    let mut link = Link::new(config, Box::new(|_, from, _: &_| if from == 0 { LOST } else { after(DELAY) }));
    link.ends[0].upper.pushes(1);
    link
}

#[test]
fn f30_the_adaptive_engine_hears_how_often_a_packet_has_timed_out() {
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
        assert!(link.ends[0].log.len() < 20, "it goes on for ever");
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
        assert!(left.len() >= 2, "the packet is sent again");
        if lost_nacks == 0 {
            let waited = left[1].0.since(left[0].0);
            let least = timeout.wait().max(Duration::from_ms(1));
            assert!(waited >= least, "it waited {waited}, told to wait {}, with a timeout of 1 ms", timeout.wait());
        }
        assert!(link.ends[1].upper.duplicates > 0, "the target hears of it again");
        assert_eq!(link.ends[0].delivery.counters().timeouts, 0, "waiting is no timeout");
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
        assert_eq!(sender.upper.nacked, [(Context(4), code)], "told once, though the NACK came twice");
        assert!(sender.upper.all_acked(), "{lost_nacks} NACKs lost");
        let resyncs = sender.left(PacketType::Resync);
        let Some((_, resync)) = resyncs.first() else { panic!("no Resync left") };
        assert_eq!((psn(resync), resync.packet.body.rsn().map(|rsn| rsn.value())), (4, Some(4)));
        assert!(receiver.delivery.counters().nacks_sent > u64::from(lost_nacks), "duplicates draw the same NACK");
        assert_eq!(receiver.upper.kept[&(PacketType::Resync, 4)], 1);
    }
}

#[test]
fn f34_want_of_resources_is_reported_and_repaired() {
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
    assert!(codes.count() > 0, "the adaptive engine hears of it");
}

#[test]
fn f12_f34_refusals_leave_the_probes_wait_and_what_arrives_ends_it() {
    let mut link = Link::new(asking(config()), Box::new(|_, _, _: &_| after(DELAY)));
    link.ends[0].upper.pushes(10);
    link.run_for(micros(100));
    for _ in 0..2 {
        link.ends[1].upper.room = Some(0);
        link.ends[0].log.clear();
        let start = link.now;
        link.ends[0].upper.pushes(1);
        link.run_for(Duration::from_ms(100));
        let again: Vec<u64> =
            link.ends[0].log.iter().filter(|(_, d)| d.again).map(|(at, _)| at.since(start).as_ns() / 1_000).collect();
        // Each is refused 10 us after it left; 28 us later, then 56, 112, 224, 448 and 896, the next leaves, and from
        // there on the timeout sends it, which never gives up: whoever refuses lives.
        let doubling = [38_u64, 104, 226, 460, 918, 1824];
        let first = &again[..doubling.len()];
        assert!(doubling.iter().zip(first).all(|(due, left)| due.abs_diff(*left) <= 5), "{first:?}");
        assert!(again[5..].windows(2).all(|pair| (1_000..1_010).contains(&(pair[1] - pair[0]))));
        assert!(link.ends[0].upper.exhausted.is_empty() && !link.ends[0].upper.all_acked());
        // So it has gone a timeout after there is room, and the wait begins anew.
        link.ends[1].upper.room = None;
        link.run_for(Duration::from_ms(1) + DELAY * 2);
        assert!(link.ends[0].upper.all_acked());
    }
}

#[test]
fn probe5_ordered_connections_send_again_in_rsn_order_across_both_windows() {
    // Pull Requests and Push Data take turns; everything is lost once, and found lost at the same moment.
    let rule = |_, from, departure: &Departure| if from == 0 && !departure.again { LOST } else { after(DELAY) };
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
    let again: Vec<u32> = link.ends[0]
        .log
        .iter()
        .filter(|(_, departure)| departure.again)
        .map(|(_, departure)| departure.packet.body.rsn().expect("it has one").value())
        .collect();
    assert_eq!(again, (0..24).collect::<Vec<u32>>());
    let kept: Vec<u32> = link.ends[1].upper.order.iter().map(|(_, rsn)| *rsn).collect();
    assert!(kept.is_sorted(), "{kept:?}");
}

#[test]
fn probe5_what_left_again_before_does_not_wait_for_what_did_not() {
    // Nothing arrives, and the first four leave once more before the windows let the others follow.
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
    assert_eq!(so_far, 12 + 4, "two in each window");
    // Until those are late again too, nothing may leave.
    link.ends[0].delivery.apply(0, &ControlSettings { packet_gap: Some(micros(500)), ..Default::default() });
    link.run_for(micros(60));
    assert_eq!(link.ends[0].log.len(), so_far);
    link.ends[0].log.clear();
    link.ends[0].delivery.apply(0, &ControlSettings { packet_gap: Some(Duration::ZERO), ..windows(32) });
    link.run_for(micros(20));
    let again = link.ends[0].log.iter().map(|(_, departure)| departure.packet.body.rsn().expect("it has one").value());
    assert_eq!(again.collect::<Vec<u32>>(), (0..12).collect::<Vec<u32>>());
}

#[test]
fn f12_probes_that_nothing_answers_come_at_twice_the_wait_and_never_replace_the_timeout() {
    // The peer falls silent for good after the first ten packets.
    let rule = |_, from, departure: &Departure| {
        if from == 0 && psn(departure) >= 10 { LOST } else { after(DELAY) }
    };
    let mut link = Link::new(asking(config()), Box::new(rule));
    link.ends[0].upper.pushes(10);
    link.run_for(micros(100));
    link.ends[0].upper.pushes(10);
    let start = link.now;
    link.run_for(micros(990));
    let again: Vec<u64> =
        link.ends[0].log.iter().filter(|(_, d)| d.again).map(|(at, _)| at.since(start).as_ns() / 1_000).collect();
    // The last left at 0.9 us. 2 round trips and 8 us later, then 56, 112, 224 and 448 us after the one before.
    assert_eq!(again, [28, 84, 196, 420, 868]);
    assert_eq!(link.ends[0].delivery.counters().timeouts, 0);
    link.run_for(micros(50));
    assert!(link.ends[0].delivery.counters().timeouts > 0);
}

#[test]
fn f15_times_that_the_adaptive_engine_sets_replace_the_policys() {
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
fn f15_a_shorter_timeout_counts_for_what_is_under_way() {
    let mut link = Link::new(config(), Box::new(|_, from, _: &_| if from == 1 { LOST } else { after(DELAY) }));
    link.ends[0].upper.pushes(1);
    link.run_for(micros(20));
    let left = link.ends[0].left(PacketType::PushData)[0].0;
    link.ends[0].delivery.apply(0, &ControlSettings { rto: Some(micros(60)), ..Default::default() });
    assert_eq!(link.ends[0].delivery.expiry(), Some(left + micros(60)), "and nothing is looked through before");
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
    // No acknowledgement ever comes back, and an earlier request is lost, so that bases do not tell.
    let rule = |_, from, departure: &Departure| {
        let is_answer = departure.context.is_none();
        let is_first = from == 0 && psn(departure) == 0 && !departure.again;
        if is_answer || is_first { LOST } else { after(DELAY) }
    };
    let mut link = Link::new(config(), Box::new(rule));
    for _ in 0..4 {
        link.ends[0].upper.pull();
    }
    link.run_for(micros(100));
    assert_eq!(link.ends[0].upper.acked, [0, 1, 1, 1]);
}
