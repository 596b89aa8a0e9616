//! Checks that times computed by the adaptive engine are applied: RACK and TLP in a connection use Swift's times, not
//! those of the recovery policy (F-11, F-12, F-15, F-23, F-29; conformance probe 8).

mod two_ends;

use std::cell::Cell;

use rnic_base::{Duration, RandomStreams, Time};
use rnic_falcon::delivery::Departure;
use rnic_policy::FlowActions;
use rnic_policy::control::report::Ticks;
use rnic_wire::falcon::PacketType;
use two_ends::link::{Fate, Inline, LOST, Link, after, with_swift};
use two_ends::{config, config_of, micros};

const DELAY: Duration = Duration::from_us(5);
/// Round-trip time of Swift's path, without the transmission time of packets.
const ROUND_TRIP: Duration = Duration::from_us(10);
/// The longest time for which a receiver may delay an acknowledgement.
const COALESCING: Duration = Duration::from_us(8);

fn number(departure: &Departure) -> u32 {
    departure.packet.body.psn().map_or(u32::MAX, |psn| psn.value())
}

/// Loses those Push Data packets of end 0 for which `is_lost` returns `true`.
fn losing(mut is_lost: impl FnMut(&Departure) -> bool) -> impl FnMut(Time, usize, &Departure) -> Fate {
    move |_, from, departure| {
        let is_push = departure.packet.body.packet_type() == PacketType::PushData;
        if from == 0 && is_push && is_lost(departure) { LOST } else { after(DELAY) }
    }
}

/// Returns the times of all transmissions of Push Data `psn`.
fn departures(link: &Link<'_>, psn: u32) -> Vec<Time> {
    let left = link.ends[0].left(PacketType::PushData);
    left.iter().filter(|(_, sent)| number(sent) == psn).map(|(at, _)| *at).collect()
}

/// Probes and timeouts of end 0.
fn probes_and_timeouts(link: &Link<'_>) -> (u64, u64) {
    let counters = link.ends[0].delivery.counters();
    (counters.probes, counters.timeouts)
}

#[test]
fn f15_f23_rack_and_tlp_times_of_the_engine_are_applied() {
    // The recovery policy's own times would be 12.5 and 28 us.
    let (rack, tlp) = (micros(60), micros(150));
    for (lost, wait, probes) in [(110, rack, 0), (139, tlp + ROUND_TRIP, 1)] {
        let mut link =
            Link::new(config(), Box::new(losing(move |sent| !sent.is_retransmission && number(sent) == lost)));
        let (_, first) = Inline::new("swift", &[]);
        let told = FlowActions { rack: Ticks::of(rack), tlp: Ticks::of(tlp), rto: Ticks::of(micros(1_000)), ..first };
        link.ends[0].delivery.apply_response(0, &told);
        link.ends[0].upper.pushes(140);
        link.run_for(Duration::from_ms(2));
        assert!(link.ends[0].upper.all_acked());
        let left = departures(&link, lost);
        assert_eq!((left.len(), probes_and_timeouts(&link)), (2, (probes, 0)), "{lost}");
        // A probe is sent only after a silence since the last acknowledgement.
        let waited = left[1].since(left[0]);
        assert!(waited + micros(1) >= wait && waited < wait + COALESCING + micros(1), "packet {lost} waited {waited}");
    }
}

#[test]
fn f11_f15_probe8_reordering_within_swifts_window_retransmits_nothing() {
    let mut random = RandomStreams::new(3).stream("jitter");
    let rule = move |_, from, _: &_| after(DELAY + Duration::from_ns(if from == 0 { random.below(2_000) } else { 0 }));
    let mut link = Link::new(config(), Box::new(rule));
    with_swift(&mut link, 1, &[]);
    link.ends[0].upper.pushes(5_000);
    link.run_for(Duration::from_ms(20));
    assert!(link.ends[0].upper.all_acked());
    assert_eq!((link.ends[0].left_again(), probes_and_timeouts(&link)), (0, (0, 0)));
    let extended = link.ends[1].delivery.counters().extended_acks_sent;
    assert!(extended > 100, "only {extended} acknowledgements report a gap");
}

#[test]
fn f11_f15_a_lost_packet_is_retransmitted_after_a_round_trip_and_swifts_reordering_window() {
    let mut link = Link::new(config(), Box::new(losing(|sent| !sent.is_retransmission && number(sent) == 1_000)));
    with_swift(&mut link, 1, &[]);
    link.ends[0].upper.pushes(3_000);
    link.run_for(Duration::from_ms(5));
    assert!(link.ends[0].upper.all_acked());
    let left = departures(&link, 1_000);
    assert_eq!((left.len(), link.ends[0].left_again(), probes_and_timeouts(&link)), (2, 1, (0, 0)));
    let (waited, least) = (left[1].since(left[0]), ROUND_TRIP * 5 / 4);
    assert!(waited >= least && waited < least + COALESCING + micros(2), "{waited}");
}

#[test]
fn f11_f15_a_lost_retransmission_is_recovered_without_swifts_timeout() {
    let mut times = 0;
    let is_lost = move |sent: &Departure| {
        times += u32::from(number(sent) == 1_000);
        number(sent) == 1_000 && times <= 3
    };
    let mut link = Link::new(config(), Box::new(losing(is_lost)));
    with_swift(&mut link, 1, &[]);
    // So that the window stays open: packets sent in the meantime reveal the loss.
    link.packet_time = micros(1);
    link.ends[0].upper.pushes(6_000);
    link.run_for(Duration::from_ms(10));
    assert!(link.ends[0].upper.all_acked());
    let left = departures(&link, 1_000);
    assert_eq!((left.len(), probes_and_timeouts(&link)), (4, (0, 0)));
    let (all, each) = (left[3].since(left[0]), ROUND_TRIP * 5 / 4 + COALESCING);
    assert!(all < each * 3 + micros(3), "three rounds took {all}");
}

#[test]
fn f12_f15_probe8_the_end_of_a_burst_is_recovered_by_swifts_probe() {
    for lost in [1, 5] {
        let mut link =
            Link::new(config(), Box::new(losing(move |sent| !sent.is_retransmission && number(sent) >= 400 - lost)));
        with_swift(&mut link, 1, &[]);
        link.ends[0].upper.pushes(400);
        link.run_for(Duration::from_ms(1));
        assert!(link.ends[0].upper.all_acked());
        assert_eq!(probes_and_timeouts(&link), (1, 0), "{lost} lost");
        let left = departures(&link, 400 - lost);
        let (waited, probe) = (left[1].since(left[0]), ROUND_TRIP * 2 + COALESCING);
        // The last acknowledgement arrives a round trip and the coalescing delay after the last delivered packet
        // left; round trips are slightly longer while acknowledgements queue.
        let most = probe + ROUND_TRIP + COALESCING + micros(8);
        assert!(waited >= probe && waited < most, "{lost} lost: {waited}, where a timeout is 250 us");
    }
}

#[test]
fn f15_timeouts_follow_a_round_trip_that_grows_tenfold() {
    let (delay, lost) = (Cell::new(micros(20)), Cell::new(None::<u32>));
    let rule = |_, from, departure: &Departure| {
        let is_lost = from == 0 && !departure.is_retransmission && lost.get() == Some(number(departure));
        if is_lost { LOST } else { after(delay.get()) }
    };
    let mut link = Link::new(config(), Box::new(rule));
    // Twice what the longer path needs: the window fills neither path, and the delay does not reduce it.
    with_swift(&mut link, 1, &[("base_target", "1ms")]);
    link.ends[0].upper.pushes(2_000_000);
    let rto = |link: &Link<'_>| link.ends[0].signals.last().expect("a report was sent").in_force.rto.duration();
    link.ends[0].keeps_log = false;
    link.run_for(Duration::from_ms(2));
    assert_eq!(Ticks::of(rto(&link)), Ticks::of(micros(250)), "the minimum, with a round trip of 40 us");
    delay.set(micros(200));
    link.run_for(Duration::from_ms(20));
    let grown = rto(&link);
    assert!(grown >= micros(800) && grown < micros(840), "not twice the round trip: {grown}");
    // RACK's delay has grown with the round trip, and no timeout is needed.
    let before = probes_and_timeouts(&link);
    link.ends[0].keeps_log = true;
    let next = link.ends[0].delivery.counters().first_transmissions as u32 + 50;
    lost.set(Some(next));
    link.run_for(Duration::from_ms(2));
    let left = departures(&link, next);
    assert_eq!((left.len(), probes_and_timeouts(&link)), (2, before));
    let waited = left[1].since(left[0]);
    assert!(waited >= micros(500) && waited < micros(500) + COALESCING + micros(15), "{waited}");
    link.ends[0].keeps_log = false;
    delay.set(micros(20));
    link.run_for(Duration::from_ms(20));
    assert_eq!(Ticks::of(rto(&link)), Ticks::of(micros(250)), "the timeout shrinks with the round trip");
}

#[test]
fn f29_paths_of_different_delay_cause_no_retransmission_under_swift() {
    for (paths, slow) in [("largest-window", 1), ("spray", 1), ("scatter", 1), ("spray", 0)] {
        let mut config = config_of("rack-tlp", paths);
        (config.flows, config.accept_stale) = (2, true);
        let rule =
            move |_, _, departure: &Departure| after(if departure.label.flow(1) == slow { DELAY * 5 } else { DELAY });
        let mut link = Link::new(config, Box::new(rule));
        with_swift(&mut link, 2, &[("base_target", "200us"), ("plb_rounds", "0")]);
        link.ends[0].upper.pushes(5_000);
        link.run_for(Duration::from_ms(100));
        assert!(link.ends[0].upper.all_acked(), "{paths}");
        assert_eq!((link.ends[0].left_again(), probes_and_timeouts(&link)), (0, (0, 0)), "{paths}");
        let extended = link.ends[1].delivery.counters().extended_acks_sent;
        assert!(extended > 100, "{paths}: only {extended} acknowledgements report a gap");
    }
}
