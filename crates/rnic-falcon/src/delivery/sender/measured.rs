//! Timeouts for networks with unknown delays: at least the measured value, and doubled while no response arrives.
//!
//! Source: RFC 6298 (the timeout, back-off and its end). The adaptive engine computes twice the smoothed round trip
//! (specification 10.3.4), which suits NICs that respond immediately: between processes, round trips vary by more than
//! their mean, and a premature timeout is reported to the engine as a loss. Therefore the timeout in force is the
//! greater of both. Acknowledgements and NACKs echo the send time of a packet, so each gives a sample, also for packets
//! that were sent twice.
//!
//! A timer that was running during an [`Absence`] of the driver is extended by its length, but at most to twice its
//! duration. A peer is given up when it has not responded for as long as all attempts would take with the fixed
//! timeout, whatever the number of attempts made.

use rnic_base::{Absence, Duration, RttEstimator, Time};

/// Measured times of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    rtt: RttEstimator,
    /// The timeout set by the adaptive engine, initially the first one.
    set: Duration,
    /// The transport's fixed timeout, the unit of the patience.
    nominal: Duration,
    /// Number of timeouts since the last response.
    backoff: u32,
    timed_out_at: Time,
    /// Time of the last response of the peer, or of the last packet sent while none was in flight.
    heard_at: Time,
    absence: Absence,
}

impl Measured {
    /// Creates the state of a connection with the initial timeout `first`, whose transport has the fixed timeout
    /// `nominal`.
    pub(super) fn new(first: Duration, nominal: Duration) -> Self {
        Self {
            rtt: RttEstimator::NEW,
            set: first,
            nominal,
            backoff: 0,
            timed_out_at: Time::ZERO,
            heard_at: Time::ZERO,
            absence: Absence::default(),
        }
    }

    /// Returns how long the peer may be silent, if it has `attempts`.
    fn patience(&self, attempts: u16) -> Duration {
        self.nominal.saturating_mul(attempts.into())
    }

    /// Returns the timeout in force.
    fn timeout(&self, attempts: u16) -> Duration {
        let base = self.rtt.timeout().map_or(self.set, |measured| measured.max(self.set));
        let most = Duration::from_ps(self.patience(attempts).as_ps() / PATIENCE_PARTS).min(BACKOFF_MAX).max(base);
        base.saturating_mul(1 << self.backoff).min(most)
    }

    /// Returns the end of a wait of length `wait` that started at `start`. An absence in it counts from its end on,
    /// because packets that arrived during the absence are processed after it.
    #[inline]
    pub(super) fn end_of_wait(&self, start: Time, wait: Duration) -> Time {
        let away = self.absence.part_since(start);
        let end = start + wait;
        if away == Duration::ZERO { end } else { end.max(self.absence.ended() + away.min(wait)) }
    }

    /// Records a period in which the connection was not driven.
    #[inline]
    pub(super) fn note_absence(&mut self, absence: Absence) {
        if self.absence != absence {
            if self.absence.ended() != absence.ended() {
                self.heard_at += absence.part_since(self.heard_at);
            }
            self.absence = absence;
        }
    }

    /// Returns how long before `now` a packet that is processed at `now` may have arrived.
    #[inline]
    pub(super) fn backlog(&self, now: Time) -> Duration {
        self.absence.backlog(now)
    }

    /// Records the timeout `set` of the adaptive engine; returns the one in force.
    pub(super) fn limit(&mut self, set: Duration, attempts: u16) -> Duration {
        self.set = set;
        self.timeout(attempts)
    }

    /// Records a response that arrives now and echoes a packet sent `rtt` ago, if known; returns the resulting timeout.
    #[inline]
    pub(super) fn note_answer(&mut self, now: Time, rtt: Option<Duration>, attempts: u16) -> Option<Duration> {
        self.heard_at = now;
        let rtt = rtt?;
        let away = self.absence.part_since(now - rtt);
        let sample = match self.rtt.smoothed() {
            // The response may have arrived at any time of the absence.
            Some(smoothed) if away > Duration::ZERO => rtt.saturating_sub(away).max(smoothed.min(rtt)),
            _ => rtt,
        };
        self.rtt.take(sample);
        self.backoff = 0;
        Some(self.timeout(attempts))
    }

    /// Records that a packet is sent on a connection that had none in flight.
    #[inline]
    pub(super) fn note_start(&mut self, now: Time) {
        self.heard_at = now;
    }

    /// Records that packets have timed out after `rto`; returns the timeout for later packets, unless it was already
    /// doubled within the last `rto`.
    pub(super) fn back_off(&mut self, now: Time, rto: Duration, attempts: u16) -> Option<Duration> {
        if now.since(self.timed_out_at) < rto {
            return None;
        }
        self.timed_out_at = now;
        self.backoff = (self.backoff + 1).min(DOUBLINGS_MAX);
        Some(self.timeout(attempts))
    }

    /// Returns whether the peer is to be given up, after a packet timed out for the `timeouts`-th time.
    pub(super) fn is_exhausted(&self, now: Time, timeouts: u16, attempts: u16) -> bool {
        timeouts >= TIMEOUTS_MIN && now.since(self.heard_at) >= self.patience(attempts)
    }
}

/// Minimum number of timeouts of a packet before its peer can be given up, however short the patience.
const TIMEOUTS_MIN: u16 = 3;

/// A timeout grows to at most this fraction of the patience: verbs has one first try and seven retries at most.
const PATIENCE_PARTS: u64 = 8;

/// Absolute maximum of a timeout after back-off, unless the measured round trips require a longer one.
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// Maximum number of doublings: more would take any timeout beyond [`BACKOFF_MAX`].
const DOUBLINGS_MAX: u32 = 20;
