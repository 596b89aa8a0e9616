//! Tracks when the process drives its NIC and when it cannot: a timeout that passes while the process is off its core
//! is no evidence about the network.
//!
//! A polling program drives the NIC again within a *turn*: the time that it takes to send and to receive a batch. The
//! duration of turns is measured. A gap of several turns is an *absence*: the process was off its core, or did
//! something else. A program that sleeps has recorded its wakeup deadline, and is absent only for the time that it
//! wakes later than that.

use rnic_base::{Duration, Time};

/// Tracks when the NIC is driven, to distinguish a silent network from a process that was not scheduled.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    /// Time at which the NIC was last driven.
    driven_at: Time,
    /// Latest wakeup time, if the program has gone to sleep since it last drove the NIC.
    sleeps_until: Option<Time>,
    /// True when packets were processed in the last iteration of the NIC's loop.
    moved: bool,
    /// Smoothed duration of an iteration of the NIC's loop in which packets are processed.
    turn: Duration,
}

/// Time since the NIC was last driven, as returned when it is driven again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DriveGap {
    /// Time since the NIC was last driven.
    pub(crate) gap: Duration,
    /// Part of `gap` that was an absence.
    pub(crate) absence: Duration,
}

impl Presence {
    /// Records that the NIC is driven at `now`; returns the time since the last call and how much of it was an absence.
    pub(crate) fn record_driven(&mut self, now: Time) -> DriveGap {
        let gap = now.since(self.driven_at);
        let absence = match self.sleeps_until.take() {
            Some(until) => Some(now.since(until)).filter(|late| *late > ABSENCE_MIN),
            None => Some(gap).filter(|gap| *gap > self.longest_turn()),
        };
        let absence = absence.unwrap_or(Duration::ZERO);
        if self.moved && absence == Duration::ZERO {
            self.turn = Duration::from_ps((15 * self.turn.as_ps() + gap.as_ps()) / 16);
        }
        (self.driven_at, self.moved) = (now, false);
        DriveGap { gap, absence }
    }

    /// Records that packets were processed in this iteration of the NIC's loop.
    pub(crate) fn note_work(&mut self) {
        self.moved = true;
    }

    /// Records that the program will sleep until a packet arrives, or until `due`.
    pub(crate) fn sleep(&mut self, due: Option<Time>) {
        self.sleeps_until = Some(due.unwrap_or(Time::from_ps(u64::MAX)));
        self.moved = false;
    }

    fn longest_turn(&self) -> Duration {
        self.turn.saturating_mul(ABSENCE_TURNS).max(ABSENCE_MIN)
    }
}

/// Number of average iterations of the NIC's loop up to which a gap is not an absence of the process, because the work
/// per iteration varies.
const ABSENCE_TURNS: u64 = 4;

/// Gaps shorter than this are never an absence of the process, whatever the duration of an iteration: yielding the core
/// voluntarily and waking up take less time.
const ABSENCE_MIN: Duration = Duration::from_us(500);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Time {
        Time::from_us(us)
    }

    fn absence(presence: &mut Presence, us: u64) -> u64 {
        presence.record_driven(at(us)).absence.as_ns() / 1_000
    }

    #[test]
    fn gaps_longer_than_the_minimum_are_absences() {
        let mut presence = Presence::default();
        assert_eq!(absence(&mut presence, 100), 0);
        assert_eq!(absence(&mut presence, 500), 0);
        assert_eq!(absence(&mut presence, 4_500), 4_000);
        assert_eq!(
            presence.record_driven(at(4_700)),
            DriveGap { gap: Duration::from_us(200), absence: Duration::ZERO }
        );
    }

    /// On a slow machine one turn takes 400 us: then a gap of four turns is not an absence.
    #[test]
    fn absences_are_relative_to_the_measured_turn_duration() {
        let mut presence = Presence::default();
        let mut now = 0;
        for _ in 0..100 {
            now += 400;
            assert_eq!(absence(&mut presence, now), 0);
            presence.note_work();
        }
        assert_eq!(absence(&mut presence, now + 1_200), 0);
        assert_eq!(absence(&mut presence, now + 1_200 + 2_000), 2_000);
    }

    #[test]
    fn sleep_is_an_absence_only_after_its_deadline() {
        let mut presence = Presence::default();
        presence.sleep(None);
        assert_eq!(absence(&mut presence, 1_000_000), 0, "an unlimited sleep is an absence");
        presence.sleep(Some(at(1_005_000)));
        assert_eq!(absence(&mut presence, 1_002_000), 0, "an early wake-up is an absence");
        presence.sleep(Some(at(1_005_000)));
        assert_eq!(absence(&mut presence, 1_005_100), 0, "a slightly late wake-up is an absence");
        presence.sleep(Some(at(1_006_000)));
        assert_eq!(absence(&mut presence, 1_014_000), 8_000);
        assert_eq!(absence(&mut presence, 1_018_000), 4_000, "the gap after a wake-up is not an absence");
    }
}
