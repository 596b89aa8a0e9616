//! Times of a connection: the timeout, the wait for a probe, round trips.

use rnic_base::{Absence, Duration, Time};

use crate::delivery::config::DeliveryConfig;
use crate::delivery::signal::ControlSettings;

use super::measured::Measured;

/// Times of a connection: timeouts, probes, round trips.
#[derive(Clone, Debug)]
pub(crate) struct Waits {
    rto: Duration,
    /// The adaptive engine's instead of the policy's; [`Duration::MAX`] for none.
    probe: Duration,
    /// The last round trip, of any flow; [`Duration::MAX`] before the first.
    round_trip: Duration,
    /// When a packet last left, or an acknowledgement came.
    pub(super) quiet_since: Time,
    /// Probes that nothing answered, or nothing but that there is no room; each doubles the wait for the next.
    pub(super) probes: u32,
    /// Where timeouts follow what is measured.
    measured: Option<Box<Measured>>,
}

impl Waits {
    pub(super) fn new(config: &DeliveryConfig) -> Self {
        let recovery = &config.recovery;
        let rto = (recovery.policy.initial_rto)(&recovery.params).unwrap_or(RTO_WITHOUT_POLICY);
        Self {
            rto,
            probe: Duration::MAX,
            round_trip: Duration::MAX,
            quiet_since: Time::ZERO,
            probes: 0,
            measured: config.measured.map(|nominal| Box::new(Measured::new(rto, nominal))),
        }
    }

    /// Takes the adaptive engine's times. A peer has `attempts`.
    pub(super) fn apply(&mut self, settings: &ControlSettings, attempts: u16) {
        if let Some(rto) = settings.rto {
            let set = rto.max(Duration::from_ns(1));
            match &mut self.measured {
                Some(measured) => self.rto = measured.limit(set, attempts),
                None => self.rto = set,
            }
        }
        self.probe = settings.probe.map_or(self.probe, |probe| probe.unwrap_or(Duration::MAX));
    }

    /// The retransmission timeout at the moment.
    #[inline]
    pub(crate) const fn rto(&self) -> Duration {
        self.rto
    }

    /// The last round trip; the timeout before there was one.
    pub(super) fn round_trip(&self) -> Duration {
        self.last_round_trip().unwrap_or(self.rto)
    }

    /// The last round trip; none before there was one.
    #[inline]
    pub(crate) fn last_round_trip(&self) -> Option<Duration> {
        (self.round_trip != Duration::MAX).then_some(self.round_trip)
    }

    /// A round trip was measured, of any flow.
    #[inline]
    pub(super) fn note_round_trip(&mut self, round_trip: Duration) {
        self.round_trip = round_trip;
    }

    /// How long to be silent before the next probe, where the recovery policy says `known`; none where the timeout does
    /// better.
    #[inline]
    pub(super) fn before_probe(&self, known: Duration) -> Option<Duration> {
        let wait = if self.probe == Duration::MAX { known } else { self.probe };
        let wait = wait.saturating_mul(1 << self.probes.min(16));
        (wait < self.rto).then_some(wait)
    }

    /// Nobody drove the connection for a while.
    #[inline]
    pub(super) fn note_absence(&mut self, absence: Absence) {
        if let Some(measured) = &mut self.measured {
            measured.note_absence(absence);
        }
    }

    /// Returns how long before `now` a packet that is taken in at `now` may have arrived: an adapter notes when packets
    /// arrive, and what they waited for a process is no delay of the network.
    #[inline]
    pub(super) fn backlog(&self, now: Time) -> Duration {
        self.measured.as_ref().map_or(Duration::ZERO, |measured| measured.backlog(now))
    }

    /// When a wait of `wait` that began at `start` is over.
    #[inline]
    pub(super) fn end_of_wait(&self, start: Time, wait: Duration) -> Time {
        self.measured.as_ref().map_or(start + wait, |measured| measured.end_of_wait(start, wait))
    }

    /// An answer came now; it echoes a packet that left `rtt` ago, if it says so. The timeout may change.
    #[inline]
    pub(super) fn note_answer(&mut self, now: Time, rtt: Option<Duration>, attempts: u16) {
        let Some(measured) = &mut self.measured else { return };
        if let Some(timeout) = measured.note_answer(now, rtt, attempts) {
            self.rto = timeout;
        }
    }

    /// Something leaves on a connection that had nothing under way.
    #[inline]
    pub(super) fn note_start(&mut self, now: Time) {
        if let Some(measured) = &mut self.measured {
            measured.note_start(now);
        }
    }

    /// Packets have timed out: all later ones take twice as long, if that was not said just now. The timeout may
    /// change.
    pub(super) fn back_off(&mut self, now: Time, attempts: u16) {
        if let Some(measured) = &mut self.measured
            && let Some(timeout) = measured.back_off(now, self.rto, attempts)
        {
            self.rto = timeout;
        }
    }

    /// Returns whether a packet that timed out for the `timeouts`-th time was one time too many, if it has `attempts`.
    pub(super) fn is_exhausted(&self, now: Time, timeouts: u16, attempts: u16) -> bool {
        match &self.measured {
            None => timeouts > attempts,
            Some(measured) => measured.is_exhausted(now, timeouts, attempts),
        }
    }

    /// Returns whether timeouts follow what is measured.
    #[inline]
    pub(super) fn are_measured(&self) -> bool {
        self.measured.is_some()
    }
}

/// The backstop must be there even under a policy that has none.
const RTO_WITHOUT_POLICY: Duration = Duration::from_ms(1);
