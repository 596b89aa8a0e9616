//! Tests of the sequence of waits of a window.

use super::*;

fn us(us: u64) -> Duration {
    Duration::from_us(us)
}

fn at(us: u64) -> Time {
    Time::from_us(us)
}

/// Returns the state after so many samples of `rtt` that earlier values have no effect.
fn steady(rtt: u64) -> Timing {
    let mut timing = Timing::new(us(8_000), Duration::ZERO);
    (0..300).for_each(|_| timing.add_rtt(at(1_000_000), us(rtt), Absence::default()));
    timing
}

/// Returns the end of each wait of a timer that starts now and the resulting action, up to the timeout.
fn waits(timing: &mut Timing, may_probe: bool) -> Vec<(u64, Expiry)> {
    let mut wait = timing.first_wait();
    timing.begin(wait);
    let (mut elapsed, mut actions) = (Duration::ZERO, Vec::new());
    loop {
        elapsed += wait;
        let expiry = timing.expire(may_probe, false);
        actions.push((elapsed.as_ns() / 1_000, expiry));
        match expiry {
            Expiry::Wait(next) | Expiry::Probe(next) => wait = next,
            Expiry::TimedOut => return actions,
        }
    }
}

#[test]
fn before_the_first_sample_the_timeout_is_the_configured_one() {
    let mut timing = Timing::new(us(8_000), Duration::ZERO);
    assert_eq!(waits(&mut timing, true), [(8_000, Expiry::TimedOut)]);
}

#[test]
fn probes_come_after_two_round_trips_and_double_until_the_timeout() {
    let mut timing = steady(100);
    let probes = waits(&mut timing, true);
    assert_eq!(probes.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [200, 600, 1_100]);
    assert!(matches!(probes[..], [(_, Expiry::Probe(_)), (_, Expiry::Probe(_)), (_, Expiry::TimedOut)]));
    let silent = waits(&mut timing, false);
    assert!(matches!(silent[..], [(200, Expiry::Wait(_)), (1_100, Expiry::TimedOut)]), "{silent:?}");
}

/// A program's timer is the minimum of the timeout. It doubles once at each timeout, not here and in the program.
#[test]
fn the_timer_of_a_program_is_the_minimum_of_the_timeout() {
    let mut timing = steady(100);
    assert!(timing.set_floor(us(5_000)), "the timeout is still {}", timing.timeout);
    assert_eq!(waits(&mut timing, false).last(), Some(&(5_000, Expiry::TimedOut)));
    timing.add_rtt(at(2_000_000), us(100), Absence::default());
    assert_eq!(timing.timeout, us(5_000), "a sample has lowered the timeout below the timer");
    assert_eq!(time_out(&mut timing, 1, true, us(80_000)), [10_000]);
    assert!(!timing.set_floor(us(10_000)));
    assert_eq!(time_out(&mut timing, 1, true, us(80_000)), [20_000]);
    timing.add_rtt(at(2_000_000), us(100), Absence::default());
    assert_eq!(timing.timeout, us(5_000));
    assert!(timing.set_floor(us(500)), "a timer below the measured timeout");
    assert_eq!(timing.timeout, us(1_100));
}

/// While the peer's buffer is full no packet is retransmitted for four milliseconds.
#[test]
fn while_the_peer_buffer_is_full_the_timeout_is_at_least_4_ms() {
    let mut timing = steady(100);
    timing.begin(us(1_100));
    assert_eq!(timing.expire(false, true), Expiry::Wait(us(2_900)));
    assert_eq!(timing.expire(false, true), Expiry::TimedOut);
}

/// Returns the timeouts of `timing` from `at(0)` on; `response_seen` is set if responses of the peer were received.
fn time_out(timing: &mut Timing, times: u32, response_seen: bool, silence_max: Duration) -> Vec<u64> {
    let mut timeouts = Vec::new();
    for _ in 0..times {
        timing.time_out(at(0), Seq::UNSET, response_seen, silence_max);
        timeouts.push(timing.timeout.as_ns() / 1_000);
    }
    timeouts
}

/// RFC 6298, 5.5: back-off, and its end by a sample or by progress in response to the retransmission.
#[test]
fn timeouts_double_up_to_a_bound_and_are_reset_by_progress() {
    let silence_max = us(80_000);
    let mut timing = steady(100);
    assert_eq!(time_out(&mut timing, 6, false, silence_max), [2_200, 4_400, 8_800, 10_000, 10_000, 10_000]);
    assert_eq!(timing.first_wait(), us(5_000), "the probe is not at half of the timeout");
    assert_eq!(timing.end_backoff(at(49)), Progress::Early);
    assert_eq!(timing.end_backoff(at(1_101)), Progress::Late);
    assert_eq!(timing.timeout, us(10_000), "the timeout is not doubled after early progress");
    assert_eq!(timing.end_backoff(at(100)), Progress::Answer);
    assert_eq!(timing.first_wait(), us(200));
    time_out(&mut timing, 1, false, silence_max);
    timing.add_rtt(at(200), us(100), Absence::default());
    assert_eq!(timing.first_wait(), us(200));
}

/// On a path whose round trip has become longer than the bound, responses arrive, but never for packets sent only
/// once: the bound does not apply to it.
#[test]
fn a_peer_that_responds_may_have_a_round_trip_beyond_the_bound() {
    let mut timing = steady(100);
    assert_eq!(time_out(&mut timing, 6, true, us(80_000)).last(), Some(&70_400));
    let mut unknown = Timing::new(us(8_000), Duration::ZERO);
    assert_eq!(time_out(&mut unknown, 9, false, us(16_000)).last(), Some(&1_000_000));
    let mut long = steady(300_000);
    assert!(time_out(&mut long, 1, false, us(100_000)) >= vec![300_000]);
}

/// No packet could be timed, and the peer makes progress: timeouts are at most a quarter of a second, and from the
/// twentieth on one second, because the round trip may be that long.
#[test]
fn without_samples_timeouts_stay_short_at_first_and_grow_to_one_second() {
    let mut timing = Timing::new(us(8_000), Duration::ZERO);
    let timeouts = time_out(&mut timing, 21, true, us(64_000));
    assert_eq!(timeouts[..6], [16_000, 32_000, 64_000, 128_000, 250_000, 250_000]);
    assert_eq!(timeouts[18..], [250_000, 1_000_000, 1_000_000]);
}

/// The window gives up on a peer that sends no responses, but not on one that sends responses without new information
/// or makes progress.
#[test]
fn only_a_silent_peer_is_declared_gone() {
    let silence_max = us(20_000);
    let (first, second) = (Seq::UNSET + 1, Seq::UNSET + 2);
    let mut timing = steady(100);
    timing.begin(us(1_000));
    let _ = timing.expire(false, false);
    let ends =
        |timing: &mut Timing, at_us, una, response_seen| timing.time_out(at(at_us), una, response_seen, silence_max);
    assert!(!ends(&mut timing, 10_000, first, false));
    assert!(!ends(&mut timing, 20_000, first, false));
    assert!(!ends(&mut timing, 28_900, first, false), "silent since 9 ms");
    assert!(!ends(&mut timing, 29_100, first, true), "a peer that responded is declared gone");
    assert!(!ends(&mut timing, 60_000, first, false), "the peer is declared gone after two silent timeouts");
    assert!(!ends(&mut timing, 61_000, second, false), "the peer is declared gone after progress");
    assert!(!ends(&mut timing, 70_000, second, false));
    assert!(ends(&mut timing, 90_000, second, false));
}

/// A peer that acknowledges packets of other queue pairs is not considered silent; the window gives up on one that
/// acknowledges none.
#[test]
fn a_peer_that_acknowledges_other_queue_pairs_is_not_silent() {
    let ends = |acks: [u32; 2]| {
        let mut timing = steady(100);
        timing.begin(us(15_000));
        let last = (0..3).map(|turn| {
            timing.extend_for_peer(acks[0] + turn * acks[1]);
            timing.time_out(at(15_000 * u64::from(turn + 1)), Seq::UNSET + 1, false, us(20_000))
        });
        last.last().expect("three timeouts")
    };
    assert!(!ends([7, 1]), "a peer that acknowledges other queue pairs is declared gone");
    assert!(ends([0, 0]), "a silent peer is not declared gone");
}

/// A wait of 1 ms that overlaps an absence of 5 ms is extended by its own length, once; a wait after the absence is
/// not extended.
#[test]
fn an_absence_extends_the_wait_that_it_overlaps() {
    let mut timing = steady(100);
    timing.begin(us(1_000));
    let absence = Absence::until(at(6_000), us(5_000));
    assert_eq!(timing.excuse(at(1_500), absence), Some(us(1_000)));
    assert_eq!(timing.excuse(at(7_000), absence), None, "the wait is extended twice");
    let short = Absence::until(at(10_300), us(300));
    assert_eq!(timing.excuse(at(10_500), short), Some(us(300)));
    let before = Absence::until(at(20_000), us(300));
    assert_eq!(timing.excuse(at(21_500), before), None, "the wait began after it");
}

/// The engine is driven once in 5 ms, and each time its wait of 1 ms is over: absences that follow each other extend it
/// eight times, not forever.
#[test]
fn absences_that_follow_each_other_do_not_postpone_a_timeout_forever() {
    let mut timing = steady(100);
    timing.begin(us(1_000));
    let extended = (1..100u64).take_while(|turn| {
        let absence = Absence::until(at(5_000 * turn), us(4_900));
        timing.excuse(at(5_000 * turn - 500), absence).is_some()
    });
    assert_eq!(extended.count(), 8);
    timing.begin(us(1_000));
    assert!(
        timing.excuse(at(999_500), Absence::until(at(1_000_000), us(4_900))).is_some(),
        "the next wait is not extended"
    );
}

/// An acknowledgement that arrived while the engine was not driven is processed late: the sample contains the round
/// trip, not the delay.
#[test]
fn absences_are_subtracted_from_round_trips() {
    let mut timing = steady(100);
    let before = timing.rtt;
    timing.add_rtt(at(50_100), us(50_100), Absence::until(at(50_000), us(50_000)));
    assert_eq!(timing.rtt, before);
    timing.add_rtt(at(50_100), us(50_100), Absence::until(at(50_000), us(40_000)));
    assert!(timing.first_wait() > us(2_000), "the sample is not the 10 ms round trip: {:?}", timing.rtt);
}

#[test]
fn a_probe_retransmits_the_oldest_and_the_newest_packet() {
    let (oldest, newest) = (Seq::UNSET + 5, Seq::UNSET + 9);
    let mut timing = steady(100);
    timing.set_probes(oldest, newest);
    assert_eq!(timing.probe(oldest, newest + 1), Some(oldest));
    assert!(!timing.probed(oldest, oldest + 1));
    assert_eq!(timing.probe(oldest, newest + 1), Some(newest));
    assert!(timing.probed(newest, newest + 1));
    timing.set_probes(oldest, oldest);
    assert!(timing.probed(oldest, oldest + 1), "the probe of the only packet is not complete");
}
