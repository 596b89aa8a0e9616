//! Long-lived connections: their behaviour depends neither on the value of the clock nor on how long they were idle.
//!
//! Timestamps have 32 bits of 131.072 ns on the wire (563 s), and 24 bits where controllers see them (2.199 s).

mod two_ends;

use rnic_base::{Duration, RandomStreams, Time};
use rnic_falcon::delivery::{Delivery, Departure};
use rnic_policy::control::report::Ticks;
use rnic_wire::falcon::PacketType;
use two_ends::link::{LOST, Link, after, with_swift};
use two_ends::packets::{ack, give};
use two_ends::upper::Counting;
use two_ends::{config, config_of, us};

/// A whole number of clock units and of slots of the timing wheel: with any smaller step, rounding would differ
/// between runs.
const STEP: Duration = Duration::from_ps(125 << 17);
/// Times at which the 24-bit and the 32-bit timestamps wrap.
const WRAPS: [Duration; 2] = [Duration::from_ps(1 << (24 + 17)), Duration::from_ps(1 << (32 + 17))];
/// Time within which a burst must be complete.
const BUSY: Duration = Duration::from_ms(4);

fn steps(length: Duration) -> Duration {
    STEP * (length.as_ps() / STEP.as_ps())
}

/// Sends bursts over a bad path, one per `period` from `begin` on. Returns for each burst the packets sent and the
/// reports to controllers; times are relative to the start of the burst.
fn life(begin: Duration, period: Duration, flows: u8, seed: u64) -> Vec<Vec<String>> {
    let mut random = RandomStreams::new(seed).stream("long life");
    let rule = move |_, _, departure: &Departure| {
        let is_ack = departure.packet.body.packet_type() == PacketType::Ack;
        let late = 60_000 * u64::from(random.below(50) == 0);
        let delay = Duration::from_ns(5_000 + random.below(3_000) + late);
        if !is_ack && random.below(30) == 0 { LOST } else { after(delay) }
    };
    let mut config = config_of("rack-tlp", if flows == 1 { "ecmp" } else { "largest-window" });
    (config.flows, config.accept_stale) = (flows, flows > 1);
    let mut link = Link::new(config, Box::new(rule));
    link.now = Time::ZERO + steps(begin);
    with_swift(&mut link, flows, &[]);
    let mut bursts = Vec::new();
    for _ in 0..4 {
        let now = link.now;
        link.ends[0].upper.pushes(200);
        for _ in 0..50 {
            link.ends[1].upper.pull();
        }
        link.run_for(BUSY);
        let mut burst = Vec::new();
        for end in &mut link.ends {
            assert!(end.upper.all_acked() && end.upper.kept_once(), "{begin} {period}, {flows} flows, seed {seed}");
            burst.extend(end.log.drain(..).map(|(at, Departure { packet, label, is_retransmission, .. })| {
                let (kind, psn, bases) = (packet.body.packet_type(), packet.body.psn(), packet.bases);
                format!("{} {kind:?} {psn:?} {bases:?} {label:?} {is_retransmission}", at.since(now))
            }));
            burst.extend(end.signals.drain(..).map(|report| {
                let (at, rtt, delay) = (report.t4.since(Ticks::at(now)), report.rtt(), report.delay());
                format!("{at:?} {:?} {rtt:?} {delay:?} {} {:?}", report.kind, report.acked, report.in_force)
            }));
        }
        bursts.push(burst);
        link.run_until(now + steps(period));
    }
    bursts
}

fn agree(expected: &[Vec<String>], found: &[Vec<String>], which: &str) {
    for (burst, (expected, found)) in expected.iter().zip(found).enumerate() {
        let differs = expected.iter().zip(found).find(|(expected, found)| expected != found);
        assert!(differs.is_none(), "{which}, burst {burst}: {differs:?}");
        assert_eq!(expected.len(), found.len(), "{which}, burst {burst}");
    }
}

#[test]
fn the_clock_value_does_not_affect_connections() {
    let (early, period) = (Duration::from_ms(1), Duration::from_ms(6));
    let late = [Duration::from_secs(3_600), Duration::from_secs(100 * 24 * 3_600)];
    // Wraps in the middle of a burst, between two bursts, and right after one.
    let at_wraps =
        WRAPS.iter().flat_map(|wrap| [100, 2_000, 5_000, 6_050, 12_900].map(|us| *wrap - Duration::from_us(us)));
    let begins: Vec<Duration> = late.into_iter().chain(at_wraps).collect();
    for (flows, seed) in [(1, 1), (4, 2), (1, 3), (4, 4)] {
        let expected = life(early, period, flows, seed);
        for begin in &begins {
            agree(&expected, &life(*begin, period, flows, seed), &format!("{flows} flows from {begin} on"));
        }
    }
}

/// Pauses of exactly one wrap of the timestamps, and a little less: then the timestamps of a burst appear to be just
/// before those of the previous one.
#[test]
fn the_length_of_a_pause_does_not_affect_connections() {
    let wraps = [WRAPS[0], WRAPS[0] * 3, WRAPS[1], WRAPS[1] * 2];
    let around = wraps.iter().flat_map(|wrap| {
        [STEP, Duration::ZERO]
            .map(|more| *wrap + more)
            .into_iter()
            .chain([1, 5, 500].map(|ms| *wrap - Duration::from_ms(ms)))
    });
    let halves = WRAPS.map(|wrap| wrap / 2);
    let periods: Vec<Duration> = around.chain(halves).chain([Duration::from_secs(3_600)]).collect();
    for (flows, seed) in [(1, 1), (4, 2), (1, 3), (4, 4)] {
        let expected = life(Duration::from_ms(1), Duration::from_ms(100), flows, seed);
        for period in &periods {
            let found = life(Duration::from_ms(1), *period, flows, seed);
            agree(&expected, &found, &format!("{flows} flows, a burst each {period}"));
        }
    }
}

/// The longest time reported to controllers is half the 24-bit range, not the remainder modulo that range: an
/// acknowledgement that arrives after seconds must not look as if it had taken no time. The time at the receiver is
/// not part of the delay.
#[test]
fn an_acknowledgement_after_seconds_is_reported_as_late() {
    let longest = Ticks::new(Ticks::MAX.get() / 2);
    for (took, waited) in
        [(900, 0), (900, 899), (1_200, 0), (1_200, 1_150), (2_000, 0), (2_300, 0), (2_300, 2_250), (9_000, 0)]
    {
        let [took, waited] = [took, waited].map(Duration::from_ms);
        let (mut delivery, mut upper) = (Delivery::new(config()), Counting::new());
        upper.pushes(1);
        assert!(delivery.transmit(us(1_000), &mut upper).is_some());
        give(&mut delivery, &mut upper, us(1_000) + took, ack(0, 1, us(1_000), us(1_000) + waited));
        let report = delivery.signal().expect("an acknowledgement is reported");
        let is_near = |told: Ticks, length: Duration| told.get().abs_diff(Ticks::of(length).min(longest).get()) <= 1;
        assert!(is_near(report.rtt(), took), "{took}, with {waited} at the receiver: {:?}", report.rtt().duration());
        let delay = report.delay();
        assert!(is_near(delay, took - waited), "{took}, with {waited} at the receiver: {:?}", delay.duration());
    }
}
