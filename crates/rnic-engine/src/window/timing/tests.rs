//! The waits of a window, one after the other.

use super::*;

fn us(us: u64) -> Duration {
    Duration::from_us(us)
}

fn at(us: u64) -> Time {
    Time::from_us(us)
}

/// Samples of `rtt`, so many that nothing else is remembered.
fn steady(rtt: u64) -> Timing {
    let mut timing = Timing::new(us(8_000));
    (0..300).for_each(|_| timing.learn(at(1_000_000), us(rtt), Absence::default()));
    timing
}

/// What the waits of a timer that starts now lead to, and when, until the timeout.
fn waits(timing: &mut Timing, may_probe: bool) -> Vec<(u64, Expiry)> {
    let mut wait = timing.first_wait();
    timing.begin(wait);
    let (mut passed, mut seen) = (Duration::ZERO, Vec::new());
    loop {
        passed += wait;
        let expiry = timing.expire(may_probe, false);
        seen.push((passed.as_ns() / 1_000, expiry));
        match expiry {
            Expiry::Wait(next) | Expiry::Probe(next) => wait = next,
            Expiry::TimedOut => return seen,
        }
    }
}

#[test]
fn before_anything_is_measured_the_transports_own_timeout_holds() {
    let mut timing = Timing::new(us(8_000));
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

/// While the peer's buffer is full nothing is sent again for four milliseconds.
#[test]
fn at_a_peer_whose_buffer_is_full_timeouts_take_their_time() {
    let mut timing = steady(100);
    timing.begin(us(1_100));
    assert_eq!(timing.expire(false, true), Expiry::Wait(us(2_900)));
    assert_eq!(timing.expire(false, true), Expiry::TimedOut);
}

/// Timeouts of `timing` from `at(0)` on, of a peer that says nothing or `heard`.
fn time_out(timing: &mut Timing, times: u32, heard: bool, patience: Duration) -> Vec<u64> {
    let mut taken = Vec::new();
    for _ in 0..times {
        timing.time_out(at(0), Seq::UNSET, heard, patience);
        taken.push(timing.timeout.as_ns() / 1_000);
    }
    taken
}

/// RFC 6298, 5.5, and its end: by a sample, or by progress that is an answer to what the timeout sent.
#[test]
fn timeouts_double_up_to_a_bound_and_no_longer_after_progress() {
    let patience = us(80_000);
    let mut timing = steady(100);
    assert_eq!(time_out(&mut timing, 6, false, patience), [2_200, 4_400, 8_800, 10_000, 10_000, 10_000]);
    assert_eq!(timing.first_wait(), us(5_000), "a probe half-way");
    assert_eq!(timing.end_backoff(at(49)), Progress::Early);
    assert_eq!(timing.end_backoff(at(1_101)), Progress::Late);
    assert_eq!(timing.timeout, us(10_000), "it was too early, and stays doubled");
    assert_eq!(timing.end_backoff(at(100)), Progress::Answer);
    assert_eq!(timing.first_wait(), us(200));
    time_out(&mut timing, 1, false, patience);
    timing.learn(at(200), us(100), Absence::default());
    assert_eq!(timing.first_wait(), us(200));
}

/// A path that has become longer than the bound answers, but never to what was sent once: the bound is not for it.
#[test]
fn what_answers_is_waited_for_however_long_it_takes() {
    let mut timing = steady(100);
    assert_eq!(time_out(&mut timing, 6, true, us(80_000)).last(), Some(&70_400));
    let mut unknown = Timing::new(us(8_000));
    assert_eq!(time_out(&mut unknown, 9, false, us(16_000)).last(), Some(&1_000_000));
    let mut long = steady(300_000);
    assert!(time_out(&mut long, 1, false, us(100_000)) >= vec![300_000]);
}

/// Nothing could be timed, and the peer makes progress: timeouts are a quarter of a second at most, and from the
/// twentieth on a second, for the path may be as long.
#[test]
fn what_cannot_be_timed_is_tried_again_soon_and_learned_in_the_end() {
    let mut timing = Timing::new(us(8_000));
    let timeouts = time_out(&mut timing, 21, true, us(64_000));
    assert_eq!(timeouts[..6], [16_000, 32_000, 64_000, 128_000, 250_000, 250_000]);
    assert_eq!(timeouts[18..], [250_000, 1_000_000, 1_000_000]);
}

/// A peer that says nothing ends; one that says what is known does not, and neither does one that makes progress.
#[test]
fn only_silence_counts_against_a_peer() {
    let patience = us(20_000);
    let (first, second) = (Seq::UNSET + 1, Seq::UNSET + 2);
    let mut timing = steady(100);
    timing.begin(us(1_000));
    let _ = timing.expire(false, false);
    let ends = |timing: &mut Timing, at_us, una, heard| timing.time_out(at(at_us), una, heard, patience);
    assert!(!ends(&mut timing, 10_000, first, false));
    assert!(!ends(&mut timing, 20_000, first, false));
    assert!(!ends(&mut timing, 28_900, first, false), "silent since 9 ms");
    assert!(!ends(&mut timing, 29_100, first, true), "it has been heard");
    assert!(!ends(&mut timing, 60_000, first, false), "twice in silence is not often enough");
    assert!(!ends(&mut timing, 61_000, second, false), "progress");
    assert!(!ends(&mut timing, 70_000, second, false));
    assert!(ends(&mut timing, 90_000, second, false));
}

/// A peer that is busy with other queue pairs is not silent; one that is silent towards all of them is given up.
#[test]
fn a_repeat_that_waits_its_turn_is_no_silence_of_a_peer_that_answers_others() {
    let ends = |answers: [u32; 2]| {
        let mut timing = steady(100);
        timing.begin(us(15_000));
        let last = (0..3).map(|turn| {
            timing.await_turn(answers[0] + turn * answers[1]);
            timing.time_out(at(15_000 * u64::from(turn + 1)), Seq::UNSET + 1, false, us(20_000))
        });
        last.last().expect("three timeouts")
    };
    assert!(!ends([7, 1]), "it answers others");
    assert!(ends([0, 0]), "it says nothing");
}

/// A wait of 1 ms into which 5 ms fell is extended by itself, once; one after the absence is not.
#[test]
fn an_absence_extends_the_wait_that_it_fell_into() {
    let mut timing = steady(100);
    timing.begin(us(1_000));
    let absence = Absence::until(at(6_000), us(5_000));
    assert_eq!(timing.excuse(at(1_500), absence), Some(us(1_000)));
    assert_eq!(timing.excuse(at(7_000), absence), None, "once");
    let short = Absence::until(at(10_300), us(300));
    assert_eq!(timing.excuse(at(10_500), short), Some(us(300)));
    let before = Absence::until(at(20_000), us(300));
    assert_eq!(timing.excuse(at(21_500), before), None, "the wait began after it");
}

/// An acknowledgement that came while nobody looked is taken in late: what is learned is the round trip, not the delay.
#[test]
fn absences_are_no_part_of_round_trips() {
    let mut timing = steady(100);
    let before = timing.rtt;
    timing.learn(at(50_100), us(50_100), Absence::until(at(50_000), us(50_000)));
    assert_eq!(timing.rtt, before);
    timing.learn(at(50_100), us(50_100), Absence::until(at(50_000), us(40_000)));
    assert!(timing.first_wait() > us(2_000), "ten of them were the network's: {:?}", timing.rtt);
}

#[test]
fn a_probe_is_the_oldest_packet_and_the_newest() {
    let (oldest, newest) = (Seq::UNSET + 5, Seq::UNSET + 9);
    let mut timing = steady(100);
    timing.set_probes(oldest, newest);
    assert_eq!(timing.probe(oldest, newest + 1), Some(oldest));
    assert!(!timing.probed(oldest, oldest + 1));
    assert_eq!(timing.probe(oldest, newest + 1), Some(newest));
    assert!(timing.probed(newest, newest + 1));
    timing.set_probes(oldest, oldest);
    assert!(timing.probed(oldest, oldest + 1), "it is one packet");
}
