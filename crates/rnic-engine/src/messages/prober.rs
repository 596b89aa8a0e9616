//! Round trips of a flow's paths, by probes.
//!
//! Source: SCR (NSDI'25) section 4.3.1, mechanism S-8: the control program asks for a probe on a path of its choice,
//! and the answer gives the round trip. The time that the answering NIC takes is subtracted. With a probe sent at t1,
//! received at t2, answered at t3, and the answer received at t4, the round trip is (t4 - t1) - (t3 - t2): the clocks
//! of both ends need not be synchronized.
//!
//! Each request ends once: by an answer, or when its timeout, which begins with the request, is over. This holds for
//! a probe that is never sent, too.

use rnic_base::{Duration, Time};
use rnic_wire::scr::{Answer, ProbePath};

/// Maximum number of paths of a flow that are probed.
pub const PATHS_MAX: usize = 8;

/// Shortest and longest timeout; a value outside is replaced by the nearer one.
const TIMEOUTS: [Duration; 2] = [Duration::from_us(1), Duration::from_secs(10)];

/// Shortest round-trip time that is reported. The peer determines the turn-around time that is subtracted, and so could
/// make the round-trip time zero.
pub const ROUND_TRIP_MIN: Duration = Duration::from_ns(100);

/// Maximum turn-around time that is subtracted from a round trip: if it is longer, the responding NIC counts as part of
/// the delay.
pub const TURN_AROUND_MAX: Duration = Duration::from_ms(1);

/// Measures the paths of one flow. At most one probe is in flight on each path.
#[derive(Clone, Copy, Default, Debug)]
pub struct Prober {
    /// Time in the last probe, on any path: probes are distinguished by it.
    last_echo: u64,
    outstanding: [Option<Outstanding>; PATHS_MAX],
}

/// A probe that has been requested and not answered.
#[derive(Clone, Copy, Debug)]
struct Outstanding {
    label: u16,
    times_out_at: Time,
    /// Time carried by the probe, which the answer echoes, and the actual transmit time; `None` before it is sent.
    sent: Option<(u64, Time)>,
}

/// A measured round trip.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Measured {
    /// Path of the probe.
    pub path: ProbePath,
    /// Round-trip time of the probe, without the time that the peer took to respond.
    pub round_trip: Duration,
}

/// Reason why a response to a probe is ignored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ignored {
    /// No probe is in flight on the path: the answer is a duplicate or late, or no probe was sent.
    NotOutstanding,
    /// The response belongs to another probe than the outstanding one.
    OtherProbe,
    /// The turn-around time in the response is negative, or longer than the time since the probe was sent.
    Implausible,
}

impl Prober {
    /// Requests a probe on `path`, which counts as lost `timeout` after `now`. Returns whether it has to be sent: not
    /// if a probe is in flight on the path, whose outcome is then that of both requests. If that has another label, the
    /// new probe replaces it, and keeps its timeout.
    pub fn request(&mut self, path: ProbePath, timeout: Duration, now: Time) -> bool {
        let Some(slot) = self.outstanding.get_mut(usize::from(path.index)) else { return false };
        let times_out_at = match *slot {
            Some(probe) if probe.label == path.label => return false,
            Some(probe) => probe.times_out_at,
            None => now + timeout.clamp(TIMEOUTS[0], TIMEOUTS[1]),
        };
        *slot = Some(Outstanding { label: path.label, times_out_at, sent: None });
        true
    }

    /// Returns whether a probe on path `index` is outstanding.
    pub fn is_outstanding(&self, index: u8) -> bool {
        self.outstanding.get(usize::from(index)).is_some_and(Option::is_some)
    }

    /// Marks the probe that is requested on path `index` as sent; returns its path, and the time that it has to carry.
    /// `None` if none is requested, or it has already been sent.
    pub fn send(&mut self, index: u8, now: Time) -> Option<(ProbePath, u64)> {
        let slot = self.outstanding.get_mut(usize::from(index))?;
        let probe = slot.as_mut().filter(|probe| probe.sent.is_none())?;
        // Two probes at the same time differ, too.
        let echo = now.as_ps().max(self.last_echo.saturating_add(1));
        self.last_echo = echo;
        probe.sent = Some((echo, now));
        Some((ProbePath { index, label: probe.label }, echo))
    }

    /// Returns the paths whose probes have been requested and not been sent.
    pub fn unsent(&self) -> impl Iterator<Item = u8> + use<> {
        let outstanding = self.outstanding;
        (0..)
            .zip(outstanding)
            .filter(|(_, probe)| probe.is_some_and(|probe| probe.sent.is_none()))
            .map(|(path, _)| path)
    }

    /// Processes an answer that arrived at `now`; returns the round trip.
    ///
    /// # Errors
    /// [`Ignored`] when the answer is not plausible, or not to the probe in flight on its path, which then stays in
    /// flight.
    pub fn answered(&mut self, answer: &Answer, now: Time) -> Result<Measured, Ignored> {
        let slot = self.outstanding.get_mut(usize::from(answer.path.index)).ok_or(Ignored::NotOutstanding)?;
        let probe = slot.ok_or(Ignored::NotOutstanding)?;
        let (echo, sent_at) = probe.sent.ok_or(Ignored::NotOutstanding)?;
        if answer.echoed != echo || answer.path.label != probe.label {
            return Err(Ignored::OtherProbe);
        }
        let elapsed = now.since(sent_at).as_ps();
        let turn_around = answer.sent.checked_sub(answer.received).ok_or(Ignored::Implausible)?;
        if turn_around > elapsed {
            return Err(Ignored::Implausible);
        }
        *slot = None;
        let round_trip = Duration::from_ps(elapsed - turn_around.min(TURN_AROUND_MAX.as_ps())).max(ROUND_TRIP_MIN);
        Ok(Measured { path: answer.path, round_trip })
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

    /// Requests and sends a probe; returns the time in it, if it was sent.
    fn start(prober: &mut Prober, path: ProbePath, now: Time) -> Option<u64> {
        if !prober.request(path, TIMEOUT, now) {
            return None;
        }
        prober.send(path.index, now).map(|(_, echo)| echo)
    }

    fn answer(echoed: u64, received_us: u64, sent_us: u64) -> Answer {
        Answer { path: PATH, echoed, received: us(received_us).as_ps(), sent: us(sent_us).as_ps() }
    }

    /// t1 = 10, t4 = 37, and by a clock that is one hour ahead t2 = 8 and t3 = 15: (37 - 10) - (15 - 8) = 20 us.
    #[test]
    fn s8_the_round_trip_is_that_of_four_times_and_two_clocks() {
        let hour = 3_600_000_000;
        let mut prober = Prober::default();
        let echo = start(&mut prober, PATH, us(10)).expect("none is outstanding");
        let measured = prober.answered(&answer(echo, hour + 8, hour + 15), us(37)).expect("an answer");
        assert_eq!(measured, Measured { path: PATH, round_trip: Duration::from_us(20) });
        assert_eq!(prober.next_timeout(), None);
    }

    #[test]
    fn s8_one_probe_is_outstanding_on_each_path() {
        let mut prober = Prober::default();
        for index in 0..PATHS_MAX as u8 {
            assert!(start(&mut prober, ProbePath { index, label: 7 }, us(1)).is_some());
            assert_eq!(start(&mut prober, ProbePath { index, label: 7 }, us(2)), None, "path {index}");
        }
        assert_eq!(start(&mut prober, ProbePath { index: PATHS_MAX as u8, label: 7 }, us(3)), None);
    }

    #[test]
    fn s8_a_probe_without_an_answer_is_lost_after_the_timeout_once() {
        let mut prober = Prober::default();
        let first = start(&mut prober, PATH, us(10)).expect("none is outstanding");
        let other = ProbePath { index: 0, label: 1 };
        start(&mut prober, other, us(30)).expect("another path");
        assert_eq!((prober.next_timeout(), prober.take_lost(us(109))), (Some(us(110)), None));
        assert_eq!((prober.take_lost(us(110)), prober.take_lost(us(110))), (Some(PATH), None));
        assert_eq!(prober.next_timeout(), Some(us(130)));
        assert_eq!(prober.answered(&answer(first, 0, 0), us(111)), Err(Ignored::NotOutstanding), "late");
        let second = start(&mut prober, PATH, us(112)).expect("the first is lost");
        assert_eq!(prober.answered(&answer(first, 0, 0), us(113)), Err(Ignored::OtherProbe), "stale");
        assert!(prober.answered(&answer(second, 0, 0), us(114)).is_ok());
        assert_eq!(prober.answered(&answer(second, 0, 0), us(115)), Err(Ignored::NotOutstanding), "duplicate");
    }

    /// A request ends even if its probe cannot be sent, because the peer is not known yet or too many messages are
    /// queued.
    #[test]
    fn s8_a_request_ends_although_its_probe_is_never_sent() {
        let mut prober = Prober::default();
        assert!(prober.request(PATH, TIMEOUT, us(10)));
        assert!(prober.unsent().eq([PATH.index]) && !prober.request(PATH, TIMEOUT, us(50)), "one is outstanding");
        assert_eq!(prober.answered(&answer(0, 0, 0), us(60)), Err(Ignored::NotOutstanding), "nothing was sent");
        assert_eq!((prober.take_lost(us(109)), prober.take_lost(us(110))), (None, Some(PATH)));
        assert_eq!((prober.send(PATH.index, us(111)), prober.unsent().count()), (None, 0));
    }

    /// With another label, the answer to the old probe does not apply to the path.
    #[test]
    fn s8_a_request_with_another_label_replaces_the_outstanding_one_and_ends_with_it() {
        let mut prober = Prober::default();
        let other = ProbePath { label: 0xc002, ..PATH };
        let first = start(&mut prober, PATH, us(10)).expect("none is outstanding");
        let second = start(&mut prober, other, us(60)).expect("it replaces the first");
        assert_eq!(prober.answered(&answer(first, 0, 0), us(61)), Err(Ignored::OtherProbe));
        assert_eq!((prober.next_timeout(), prober.take_lost(us(110))), (Some(us(110)), Some(other)));
        assert_eq!(
            prober.answered(&Answer { path: other, ..answer(second, 0, 0) }, us(111)),
            Err(Ignored::NotOutstanding)
        );
    }

    #[test]
    fn s8_timeouts_are_bounded() {
        for (timeout, expected) in [(Duration::ZERO, TIMEOUTS[0]), (Duration::MAX, TIMEOUTS[1])] {
            let mut prober = Prober::default();
            assert!(prober.request(PATH, timeout, us(10)));
            assert_eq!(prober.next_timeout(), Some(us(10) + expected));
        }
    }

    /// The answering peer states how long it took; the time that is subtracted is bounded, and so is the result.
    #[test]
    fn s8_the_turn_around_that_a_peer_announces_is_bounded() {
        let ms = Duration::from_ms;
        for (elapsed_ms, turn_around_ms, expected) in
            [(5, 0, ms(5)), (5, 1, ms(4)), (5, 4, ms(4)), (5, 5, ms(4)), (1, 1, ROUND_TRIP_MIN)]
        {
            let mut prober = Prober::default();
            assert!(prober.request(PATH, ms(10), us(0)));
            let (_, echo) = prober.send(PATH.index, us(0)).expect("it is requested");
            let answer = answer(echo, 7, 7 + 1_000 * turn_around_ms);
            let measured = prober.answered(&answer, us(1_000 * elapsed_ms)).map(|measured| measured.round_trip);
            assert_eq!(measured, Ok(expected), "{turn_around_ms} of {elapsed_ms} ms");
        }
    }

    #[test]
    fn s8_probes_of_one_instant_are_told_apart() {
        let mut prober = Prober::default();
        let first = start(&mut prober, PATH, us(5)).expect("none is outstanding");
        assert!(prober.answered(&answer(first, 0, 0), us(5)).is_ok());
        let second = start(&mut prober, PATH, us(5)).expect("none is outstanding");
        assert_eq!(prober.answered(&answer(first, 0, 0), us(6)), Err(Ignored::OtherProbe));
        assert_eq!(
            prober.answered(&answer(second, 0, 0), us(6)).map(|measured| measured.round_trip.as_ns()),
            Ok(1_000)
        );
    }

    #[test]
    fn s8_unknown_and_implausible_answers_are_ignored() {
        let mut prober = Prober::default();
        let echo = start(&mut prober, PATH, us(10)).expect("none is outstanding");
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
            let mut prober = Prober::default();
            let (mut now, mut started, mut ended) = (Time::ZERO, 0, 0);
            let mut echoes = [(0, Time::ZERO); 4];
            for (action, index, wait_us, (received, turn_around), is_right) in steps {
                now += Duration::from_us(wait_us);
                let path = ProbePath { index, label: 1 };
                let (echo, sent_at) = echoes[usize::from(index)];
                match action {
                    0 => if let Some(echo) = start(&mut prober, path, now) {
                        echoes[usize::from(index)] = (echo, now);
                        started += 1;
                    },
                    1 => ended += usize::from(prober.take_lost(now).is_some()),
                    _ => {
                        let echoed = if is_right { echo } else { received };
                        let answer = Answer { path, echoed, received, sent: received.wrapping_add(turn_around) };
                        if let Ok(measured) = prober.answered(&answer, now) {
                            prop_assert!(measured.round_trip >= ROUND_TRIP_MIN);
                            prop_assert!(measured.round_trip <= now.since(sent_at).max(ROUND_TRIP_MIN));
                            ended += 1;
                        }
                    }
                }
                prop_assert!(ended <= started && started - ended <= PATHS_MAX);
            }
        }
    }
}
