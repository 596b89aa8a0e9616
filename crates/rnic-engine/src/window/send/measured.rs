//! Round trips of a window, and what acknowledgements show about its last timeout, when timeouts are based on measured
//! round trips.

use rnic_base::{Absence, Duration, Seq, Time};

use super::SendWindow;
use crate::timer::Deadline;
use crate::window::timing::{Progress, Timing};

impl SendWindow {
    /// Returns the round-trip time, if the packet being timed has just been acknowledged. `timer_before` is the state
    /// of the timer before that.
    pub(super) fn take_rtt(&mut self, now: Time, timer_before: (Deadline, bool)) -> Option<Duration> {
        let recovery = self.recovery.as_mut()?;
        if let Some(program) = &mut recovery.program {
            program.timer_before = timer_before;
        }
        let (_, at) = recovery.timed.take_if(|(seq, _)| *seq < self.una)?;
        Some(now.since(at))
    }

    /// Returns the round-trip time, if `seq`, which has arrived out of order, was being timed.
    pub(crate) fn take_selective_rtt(&mut self, seq: Seq, now: Time) -> Option<Duration> {
        let recovery = self.recovery.as_mut()?;
        let (_, at) = recovery.timed.take_if(|(timed, _)| *timed == seq)?;
        Some(now.since(at))
    }

    /// Processes a round-trip time returned by [`SendWindow::acknowledge`] or [`SendWindow::take_selective_rtt`], when
    /// timeouts are based on measured round trips.
    pub(crate) fn add_rtt(&mut self, now: Time, rtt: Duration, absence: Absence) {
        let una = self.una;
        let Some(timing) = self.timing() else { return };
        timing.add_rtt(now, rtt, absence);
        timing.losses.note_round_trip(una);
        let wait = timing.first_wait();
        (self.rto, self.backs_off) = (wait, false);
    }

    /// Returns whether the last call of [`SendWindow::acknowledge`] has shown that the timeout before it was spurious.
    /// Must be called before [`SendWindow::add_rtt`].
    #[inline]
    pub(crate) fn was_timeout_spurious(&mut self) -> bool {
        self.backs_off && self.timing().is_some_and(Timing::take_unreported)
    }

    /// Returns the number of timeouts that acknowledgements have shown to be spurious.
    pub(crate) fn spurious_timeouts(&self) -> u32 {
        self.recovery.as_ref().and_then(|recovery| recovery.timing.as_deref()).map_or(0, Timing::spurious)
    }

    /// Records acknowledged packets on a path with a limit, which may then grow.
    #[cold]
    pub(super) fn widen_limit(&mut self, packets: u64) {
        let mut limit = self.limit;
        if let Some(timing) = self.timing() {
            timing.losses.note_acknowledged(packets, &mut limit);
            self.limit = limit;
        }
    }

    /// Handles progress after a timeout.
    #[cold]
    pub(super) fn end_backoff(&mut self, now: Time) {
        let Some(timing) = self.timing() else { return };
        match timing.end_backoff(now) {
            Progress::Answer => (self.rto, self.backs_off) = (timing.first_wait(), false),
            // The timeout was spurious: no packets were lost.
            Progress::Early => self.limit = timing.limit_before,
            Progress::Late => {}
        }
    }
}
