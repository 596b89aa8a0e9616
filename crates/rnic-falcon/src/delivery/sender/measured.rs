//! Timeouts for networks with unknown delays: at least the measured value, and doubled while no response arrives.
//!
//! Source: RFC 6298 (the timeout, the back-off and its end). The adaptive engine computes twice the smoothed round
//! trip (specification 10.3.4), which suits NICs that respond immediately: between processes, round trips vary by
//! more than their mean, and a premature timeout is reported to the engine as a loss. Therefore the maximum of the
//! engine's and the measured timeout is used. Acknowledgements and NACKs echo the send time of a packet, so each of
//! them provides a round-trip sample, even for packets that were sent twice.
//!
//! A timer that was running during an [`Absence`] of the driver is extended by the length of the absence, but at most
//! to twice its duration. The connection fails when the peer has not responded for the time that all attempts would
//! take with the fixed timeout, independent of the number of attempts made.

use rnic_base::{Absence, Duration, RttEstimator, Time};

/// Measured times of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct MeasuredTimes {
    rtt: RttEstimator,
    /// The last timeout set by the adaptive engine; before that, the connection's initial timeout.
    engine_timeout: Duration,
    /// The transport's fixed timeout; the maximum time without a response is a multiple of it.
    nominal: Duration,
    /// Number of timeouts since the last response.
    backoff: u32,
    timed_out_at: Time,
    /// Time of the last response of the peer, or of the first packet sent after none was in flight.
    last_response_at: Time,
    absence: Absence,
}

impl MeasuredTimes {
    /// Creates the state of a connection with the initial timeout `initial`; `nominal` is the fixed timeout of its
    /// transport.
    pub(super) fn new(initial: Duration, nominal: Duration) -> Self {
        Self {
            rtt: RttEstimator::NEW,
            engine_timeout: initial,
            nominal,
            backoff: 0,
            timed_out_at: Time::ZERO,
            last_response_at: Time::ZERO,
            absence: Absence::default(),
        }
    }

    /// Returns how long the peer may be silent before the connection fails, if `attempts` attempts are allowed.
    fn silence_max(&self, attempts: u16) -> Duration {
        self.nominal.saturating_mul(attempts.into())
    }

    /// Returns the current timeout.
    fn timeout(&self, attempts: u16) -> Duration {
        let base = self.rtt.timeout().map_or(self.engine_timeout, |measured| measured.max(self.engine_timeout));
        let max_timeout =
            Duration::from_ps(self.silence_max(attempts).as_ps() / SILENCE_DIVISOR).min(BACKOFF_MAX).max(base);
        base.saturating_mul(1 << self.backoff).min(max_timeout)
    }

    /// Returns the end of a wait of length `wait` that started at `start`. If the driver was absent in the meantime,
    /// the wait is extended from the end of the absence by the length of the absence, because packets that arrived
    /// during the absence are processed after it.
    #[inline]
    pub(super) fn end_of_wait(&self, start: Time, wait: Duration) -> Time {
        let absence_time = self.absence.overlap_since(start);
        let end = start + wait;
        if absence_time == Duration::ZERO { end } else { end.max(self.absence.ended() + absence_time.min(wait)) }
    }

    /// Records the last period in which the connection was not driven.
    #[inline]
    pub(super) fn note_absence(&mut self, absence: Absence) {
        if self.absence != absence {
            if self.absence.ended() != absence.ended() {
                self.last_response_at += absence.overlap_since(self.last_response_at);
            }
            self.absence = absence;
        }
    }

    /// Returns the maximum age of a packet processed at `now`: how long ago it may have arrived.
    #[inline]
    pub(super) fn backlog(&self, now: Time) -> Duration {
        self.absence.backlog(now)
    }

    /// Records the timeout `engine_timeout` of the adaptive engine; returns the resulting timeout.
    pub(super) fn limit(&mut self, engine_timeout: Duration, attempts: u16) -> Duration {
        self.engine_timeout = engine_timeout;
        self.timeout(attempts)
    }

    /// Records a response that arrives now and echoes a packet sent `rtt` ago, if that is known; returns the
    /// resulting timeout if it may have changed.
    #[inline]
    pub(super) fn note_response(&mut self, now: Time, rtt: Option<Duration>, attempts: u16) -> Option<Duration> {
        self.last_response_at = now;
        let rtt = rtt?;
        let absence_time = self.absence.overlap_since(now - rtt);
        let sample = match self.rtt.smoothed() {
            // The response may have arrived at any time during the absence.
            Some(smoothed) if absence_time > Duration::ZERO => rtt.saturating_sub(absence_time).max(smoothed.min(rtt)),
            _ => rtt,
        };
        self.rtt.add_sample(sample);
        self.backoff = 0;
        Some(self.timeout(attempts))
    }

    /// Records that a packet is sent on a connection that had no packet in flight.
    #[inline]
    pub(super) fn note_start(&mut self, now: Time) {
        self.last_response_at = now;
    }

    /// Records that packets have timed out after `rto`; returns the increased timeout, or `None` if the timeout was
    /// already increased within the last `rto`.
    pub(super) fn back_off(&mut self, now: Time, rto: Duration, attempts: u16) -> Option<Duration> {
        if now.since(self.timed_out_at) < rto {
            return None;
        }
        self.timed_out_at = now;
        self.backoff = (self.backoff + 1).min(DOUBLINGS_MAX);
        Some(self.timeout(attempts))
    }

    /// Returns `true` if the connection fails, after a packet has timed out for the `timeouts`-th time.
    pub(super) fn is_exhausted(&self, now: Time, timeouts: u16, attempts: u16) -> bool {
        timeouts >= TIMEOUTS_MIN && now.since(self.last_response_at) >= self.silence_max(attempts)
    }
}

/// Minimum number of timeouts of a packet before the connection can fail, however short the maximum time without a
/// response.
const TIMEOUTS_MIN: u16 = 3;

/// Divisor of the maximum time without a response: a timeout grows to at most this fraction of it, because verbs allow
/// one transmission and at most seven retries.
const SILENCE_DIVISOR: u64 = 8;

/// Absolute maximum of a timeout after back-off, unless the measured round trips require a longer one.
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// Maximum number of doublings: one more would take any timeout beyond [`BACKOFF_MAX`].
const DOUBLINGS_MAX: u32 = 20;
