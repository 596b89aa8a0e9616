//! Times of a connection: the timeout, the wait before a probe, round trips.

use rnic_base::{Absence, Duration, Time};

use crate::delivery::config::DeliveryConfig;
use crate::delivery::signal::ControlSettings;

use super::measured::MeasuredTimes;

/// Times of a connection: timeouts, probes, round trips.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionTimes {
    rto: Duration,
    /// Wait before a probe set by the adaptive engine, which overrides that of the policy; [`Duration::MAX`] if not
    /// set.
    probe: Duration,
    /// The last round-trip time of any flow; [`Duration::MAX`] before the first.
    round_trip: Duration,
    /// Time of the last packet sent or acknowledgement received.
    pub(super) quiet_since: Time,
    /// Number of probes since the last response other than a NACK for lack of resources; each doubles the wait before
    /// the next probe.
    pub(super) probes: u32,
    /// Measured times, if timeouts are based on measured round trips.
    measured: Option<Box<MeasuredTimes>>,
}

impl ConnectionTimes {
    pub(super) fn new(config: &DeliveryConfig) -> Self {
        let recovery = &config.recovery;
        let rto = (recovery.policy.initial_rto)(&recovery.params).unwrap_or(RTO_WITHOUT_POLICY);
        Self {
            rto,
            probe: Duration::MAX,
            round_trip: Duration::MAX,
            quiet_since: Time::ZERO,
            probes: 0,
            measured: config.measured.map(|nominal| Box::new(MeasuredTimes::new(rto, nominal))),
        }
    }

    /// Applies the times set by the adaptive engine; `attempts` is the maximum number of attempts.
    pub(super) fn apply(&mut self, settings: &ControlSettings, attempts: u16) {
        if let Some(rto) = settings.rto {
            let engine_rto = rto.max(Duration::from_ns(1));
            match &mut self.measured {
                Some(measured) => self.rto = measured.limit(engine_rto, attempts),
                None => self.rto = engine_rto,
            }
        }
        self.probe = settings.probe.map_or(self.probe, |probe| probe.unwrap_or(Duration::MAX));
    }

    /// Returns the current retransmission timeout.
    #[inline]
    pub(crate) const fn rto(&self) -> Duration {
        self.rto
    }

    /// Returns the last round-trip time, or the timeout before the first measurement.
    pub(super) fn round_trip(&self) -> Duration {
        self.last_round_trip().unwrap_or(self.rto)
    }

    /// Returns the last round-trip time; `None` before the first.
    #[inline]
    pub(crate) fn last_round_trip(&self) -> Option<Duration> {
        (self.round_trip != Duration::MAX).then_some(self.round_trip)
    }

    /// Records a round-trip time measured on any flow.
    #[inline]
    pub(super) fn note_round_trip(&mut self, round_trip: Duration) {
        self.round_trip = round_trip;
    }

    /// Returns the wait before the next probe, where `policy_wait` is the value of the recovery policy; `None` if the
    /// timeout expires sooner.
    #[inline]
    pub(super) fn before_probe(&self, policy_wait: Duration) -> Option<Duration> {
        let wait = if self.probe == Duration::MAX { policy_wait } else { self.probe };
        let wait = wait.saturating_mul(1 << self.probes.min(16));
        (wait < self.rto).then_some(wait)
    }

    /// Records a period in which the connection was not driven.
    #[inline]
    pub(super) fn note_absence(&mut self, absence: Absence) {
        if let Some(measured) = &mut self.measured {
            measured.note_absence(absence);
        }
    }

    /// Returns the maximum age of a packet processed at `now`: how long ago it may have arrived. An adapter would
    /// record the arrival time; here, the time for which a packet waited for the process must not be taken for
    /// network delay.
    #[inline]
    pub(super) fn backlog(&self, now: Time) -> Duration {
        self.measured.as_ref().map_or(Duration::ZERO, |measured| measured.backlog(now))
    }

    /// Returns the end of a wait of length `wait` that started at `start`.
    #[inline]
    pub(super) fn end_of_wait(&self, start: Time, wait: Duration) -> Time {
        self.measured.as_ref().map_or(start + wait, |measured| measured.end_of_wait(start, wait))
    }

    /// Records a response that arrives now and echoes a packet sent `rtt` ago, if that is known. The timeout may
    /// change.
    #[inline]
    pub(super) fn note_response(&mut self, now: Time, rtt: Option<Duration>, attempts: u16) {
        let Some(measured) = &mut self.measured else { return };
        if let Some(timeout) = measured.note_response(now, rtt, attempts) {
            self.rto = timeout;
        }
    }

    /// Records that a packet is sent on a connection that had no packet in flight.
    #[inline]
    pub(super) fn note_start(&mut self, now: Time) {
        if let Some(measured) = &mut self.measured {
            measured.note_start(now);
        }
    }

    /// Records that packets have timed out: doubles the timeout of all later packets, unless that was done within the
    /// last timeout.
    pub(super) fn back_off(&mut self, now: Time, attempts: u16) {
        if let Some(measured) = &mut self.measured
            && let Some(timeout) = measured.back_off(now, self.rto, attempts)
        {
            self.rto = timeout;
        }
    }

    /// Returns `true` if the connection fails after a packet has timed out for the `timeouts`-th time, with a maximum
    /// of `attempts`.
    pub(super) fn is_exhausted(&self, now: Time, timeouts: u16, attempts: u16) -> bool {
        match &self.measured {
            None => timeouts > attempts,
            Some(measured) => measured.is_exhausted(now, timeouts, attempts),
        }
    }

    /// Returns `true` if timeouts are based on measured round trips.
    #[inline]
    pub(super) fn are_measured(&self) -> bool {
        self.measured.is_some()
    }
}

/// Retransmission timeout under a recovery policy that sets none, because a timeout is always required as a fallback.
const RTO_WITHOUT_POLICY: Duration = Duration::from_ms(1);
