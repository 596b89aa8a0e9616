//! Round trips of a flow's paths, by probes.
//!
//! Source: SCR (NSDI'25) section 4.3.1, mechanism S-8: the control program asks for a probe on a path of its choice,
//! and the answer gives the round trip. The time that the answering NIC takes is subtracted. With a probe sent at t1,
//! received at t2, answered at t3, and the answer received at t4, the round trip is (t4 - t1) - (t3 - t2): the clocks
//! of both ends need not be synchronized.

use rnic_base::{Duration, Time};
use rnic_wire::scr::{Answer, ProbePath};

/// Largest number of paths of a flow that are probed.
pub const PATHS_MAX: usize = 8;

/// Measures the paths of one flow. At most one probe is outstanding on each path.
#[derive(Clone, Copy, Debug)]
pub struct Prober {
    timeout: Duration,
    /// Time in the last probe, of whichever path: probes are told apart by it.
    last_echo: u64,
    outstanding: [Option<Outstanding>; PATHS_MAX],
}

/// A probe that has not been answered.
#[derive(Clone, Copy, Debug)]
struct Outstanding {
    label: u16,
    /// Time that the probe carries, which the answer repeats.
    echo: u64,
    sent_at: Time,
    times_out_at: Time,
}

/// A measured round trip.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Measured {
    /// Path of the probe.
    pub path: ProbePath,
    /// Round trip without the turn-around.
    pub round_trip: Duration,
    /// Time between the probe's arrival and the answer's departure, by the answering NIC's clock.
    pub turn_around: Duration,
}

/// Reason why an answer is ignored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ignored {
    /// No probe is outstanding on the path: the answer is a duplicate or late, or no probe was sent.
    NotOutstanding,
    /// The answer is to another probe than the outstanding one.
    OtherProbe,
    /// The turn-around is negative, or longer than the time since the probe was sent.
    Implausible,
}

impl Prober {
    /// Creates a prober whose probes count as lost after `timeout`.
    #[must_use]
    pub const fn new(timeout: Duration) -> Self {
        Self { timeout, last_echo: 0, outstanding: [None; PATHS_MAX] }
    }

    /// Changes the timeout of later probes.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Starts a probe on `path`; returns the time to put into it. `None` when a probe is outstanding on the path, or
    /// its number is not below [`PATHS_MAX`].
    pub fn start(&mut self, path: ProbePath, now: Time) -> Option<u64> {
        let slot = self.outstanding.get_mut(usize::from(path.index)).filter(|slot| slot.is_none())?;
        // Two probes at the same time differ, too.
        let echo = now.as_ps().max(self.last_echo.saturating_add(1));
        self.last_echo = echo;
        *slot = Some(Outstanding { label: path.label, echo, sent_at: now, times_out_at: now + self.timeout });
        Some(echo)
    }

    /// Processes an answer that arrived at `now`; returns the round trip.
    ///
    /// # Errors
    /// [`Ignored`] when the answer is not a plausible one to the outstanding probe of its path. The probe then stays
    /// outstanding.
    pub fn answered(&mut self, answer: &Answer, now: Time) -> Result<Measured, Ignored> {
        let slot = self.outstanding.get_mut(usize::from(answer.path.index)).ok_or(Ignored::NotOutstanding)?;
        let probe = slot.ok_or(Ignored::NotOutstanding)?;
        if answer.echoed != probe.echo || answer.path.label != probe.label {
            return Err(Ignored::OtherProbe);
        }
        let elapsed = now.since(probe.sent_at).as_ps();
        let turn_around = answer.sent.checked_sub(answer.received).ok_or(Ignored::Implausible)?;
        let round_trip = elapsed.checked_sub(turn_around).ok_or(Ignored::Implausible)?;
        *slot = None;
        let (round_trip, turn_around) = (Duration::from_ps(round_trip), Duration::from_ps(turn_around));
        Ok(Measured { path: answer.path, round_trip, turn_around })
    }

    /// Removes a probe that has timed out at `now`, the lowest path first; returns its path.
    pub fn take_lost(&mut self, now: Time) -> Option<ProbePath> {
        let is_lost = |slot: &Option<Outstanding>| slot.is_some_and(|probe| probe.times_out_at <= now);
        let index = self.outstanding.iter().position(is_lost)?;
        let probe = self.outstanding[index].take()?;
        Some(ProbePath { index: index as u8, label: probe.label })
    }

    /// Returns the time at which [`Self::take_lost`] has to be called.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        self.outstanding.iter().flatten().map(|probe| probe.times_out_at).min()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TIMEOUT: Duration = Duration::from_us(100);
    const PATH: ProbePath = ProbePath { index: 2, label: 0xc001 };

    fn us(us: u64) -> Time {
        Time::from_us(us)
    }

    fn answer(echoed: u64, received_us: u64, sent_us: u64) -> Answer {
        Answer { path: PATH, echoed, received: us(received_us).as_ps(), sent: us(sent_us).as_ps() }
    }

    /// t1 = 10, t4 = 37, and by a clock that is one hour ahead t2 = 8 and t3 = 15: (37 - 10) - (15 - 8) = 20 us.
    #[test]
    fn s8_the_round_trip_is_that_of_four_times_and_two_clocks() {
        let hour = 3_600_000_000;
        let mut prober = Prober::new(TIMEOUT);
        let echo = prober.start(PATH, us(10)).expect("none is outstanding");
        let measured = prober.answered(&answer(echo, hour + 8, hour + 15), us(37)).expect("an answer");
        let (round_trip, turn_around) = (Duration::from_us(20), Duration::from_us(7));
        assert_eq!(measured, Measured { path: PATH, round_trip, turn_around });
        assert_eq!(prober.next_timeout(), None);
    }

    #[test]
    fn s8_one_probe_is_outstanding_on_each_path() {
        let mut prober = Prober::new(TIMEOUT);
        for index in 0..PATHS_MAX as u8 {
            assert!(prober.start(ProbePath { index, label: 7 }, us(1)).is_some());
            assert_eq!(prober.start(ProbePath { index, label: 8 }, us(2)), None, "path {index}");
        }
        assert_eq!(prober.start(ProbePath { index: PATHS_MAX as u8, label: 7 }, us(3)), None);
    }

    #[test]
    fn s8_a_probe_without_an_answer_is_lost_after_the_timeout_once() {
        let mut prober = Prober::new(TIMEOUT);
        let first = prober.start(PATH, us(10)).expect("none is outstanding");
        let other = ProbePath { index: 0, label: 1 };
        prober.start(other, us(30)).expect("another path");
        assert_eq!((prober.next_timeout(), prober.take_lost(us(109))), (Some(us(110)), None));
        assert_eq!((prober.take_lost(us(110)), prober.take_lost(us(110))), (Some(PATH), None));
        assert_eq!(prober.next_timeout(), Some(us(130)));
        assert_eq!(prober.answered(&answer(first, 0, 0), us(111)), Err(Ignored::NotOutstanding), "late");
        let second = prober.start(PATH, us(112)).expect("the first is lost");
        assert_eq!(prober.answered(&answer(first, 0, 0), us(113)), Err(Ignored::OtherProbe), "stale");
        assert!(prober.answered(&answer(second, 0, 0), us(114)).is_ok());
        assert_eq!(prober.answered(&answer(second, 0, 0), us(115)), Err(Ignored::NotOutstanding), "duplicate");
    }

    #[test]
    fn s8_probes_of_one_instant_are_told_apart() {
        let mut prober = Prober::new(TIMEOUT);
        let first = prober.start(PATH, us(5)).expect("none is outstanding");
        assert!(prober.answered(&answer(first, 0, 0), us(5)).is_ok());
        let second = prober.start(PATH, us(5)).expect("none is outstanding");
        assert_eq!(prober.answered(&answer(first, 0, 0), us(6)), Err(Ignored::OtherProbe));
        assert_eq!(
            prober.answered(&answer(second, 0, 0), us(6)).map(|measured| measured.round_trip.as_ns()),
            Ok(1_000)
        );
    }

    #[test]
    fn s8_unknown_and_implausible_answers_are_ignored() {
        let mut prober = Prober::new(TIMEOUT);
        let echo = prober.start(PATH, us(10)).expect("none is outstanding");
        let right = answer(echo, 100, 101);
        let at = |index, label| Answer { path: ProbePath { index, label }, ..right };
        assert_eq!(prober.answered(&at(3, 0xc001), us(20)), Err(Ignored::NotOutstanding));
        assert_eq!(prober.answered(&at(255, 0xc001), us(20)), Err(Ignored::NotOutstanding));
        assert_eq!(prober.answered(&at(2, 0xc002), us(20)), Err(Ignored::OtherProbe));
        assert_eq!(prober.answered(&answer(echo + 1, 100, 101), us(20)), Err(Ignored::OtherProbe));
        assert_eq!(prober.answered(&answer(echo, 101, 100), us(20)), Err(Ignored::Implausible), "sent before received");
        assert_eq!(prober.answered(&answer(echo, 100, 111), us(20)), Err(Ignored::Implausible), "longer than 10 us");
        assert_eq!(prober.answered(&right, us(20)).map(|measured| measured.round_trip), Ok(Duration::from_us(9)));
    }

    proptest! {
        /// For any answers, a round trip is never longer than the time since its probe, and each probe is
        /// measured or lost at most once.
        #[test]
        fn s8_hostile_answers_measure_nothing_twice(
            steps in prop::collection::vec((0..3u8, 0..4u8, 0..200u64, any::<(u64, u64)>(), any::<bool>()), 0..200)
        ) {
            let mut prober = Prober::new(TIMEOUT);
            let (mut now, mut started, mut ended) = (Time::ZERO, 0, 0);
            let mut echoes = [(0, Time::ZERO); 4];
            for (action, index, wait_us, (received, turn_around), is_right) in steps {
                now += Duration::from_us(wait_us);
                let path = ProbePath { index, label: 1 };
                let (echo, sent_at) = echoes[usize::from(index)];
                match action {
                    0 => if let Some(echo) = prober.start(path, now) {
                        echoes[usize::from(index)] = (echo, now);
                        started += 1;
                    },
                    1 => ended += usize::from(prober.take_lost(now).is_some()),
                    _ => {
                        let echoed = if is_right { echo } else { received };
                        let answer = Answer { path, echoed, received, sent: received.wrapping_add(turn_around) };
                        if let Ok(measured) = prober.answered(&answer, now) {
                            prop_assert!(measured.round_trip <= now.since(sent_at));
                            ended += 1;
                        }
                    }
                }
                prop_assert!(ended <= started && started - ended <= PATHS_MAX);
            }
        }
    }
}
