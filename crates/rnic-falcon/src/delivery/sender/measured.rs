//! Timeouts where nobody knows the network: at least what was measured, and doubled while nothing comes back.
//!
//! Source: RFC 6298 (the timeout, back-off and its end). The adaptive engine computes twice the smoothed round trip
//! (specification 10.3.4), which is for NICs that answer at once: between processes, round trips vary by more than
//! their mean, and a timeout that comes too early is told to the engine as a loss. So the timeout in force is the
//! greater of both. Answers echo when a packet left: every one gives a sample, also of what was sent twice.
//!
//! What lies before an [`Absence`] of whoever drives the connection is waited for as much longer, but no longer than
//! twice as long. A peer is given up when there was no answer of it for as long as all attempts would take with the
//! fixed timeout, whatever their number was.

use rnic_base::{Absence, Duration, RttEstimator, Time};

/// What is measured of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    rtt: RttEstimator,
    /// The adaptive engine's timeout, or the first.
    set: Duration,
    /// The transport's fixed timeout, which patience is counted in.
    nominal: Duration,
    /// Timeouts since the last answer.
    backoff: u32,
    timed_out_at: Time,
    /// When the peer was last heard, or something was sent to it that had nothing under way.
    heard_at: Time,
    absence: Absence,
}

impl Measured {
    /// Of a connection that begins with the timeout `first`, whose transport has the fixed timeout `nominal`.
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

    /// How long the peer may say nothing, if it has `attempts`.
    fn patience(&self, attempts: u16) -> Duration {
        self.nominal.saturating_mul(attempts.into())
    }

    /// The timeout in force.
    fn timeout(&self, attempts: u16) -> Duration {
        let base = self.rtt.timeout().map_or(self.set, |measured| measured.max(self.set));
        let most = Duration::from_ps(self.patience(attempts).as_ps() / PATIENCE_PARTS).min(BACKOFF_MAX).max(base);
        base.saturating_mul(1 << self.backoff).min(most)
    }

    /// When a wait of `wait` that began at `start` is over. An absence is looked at from its end on: what has come by
    /// then is taken in after it.
    #[inline]
    pub(super) fn end_of_wait(&self, start: Time, wait: Duration) -> Time {
        let away = self.absence.part_since(start);
        let end = start + wait;
        if away == Duration::ZERO { end } else { end.max(self.absence.ended() + away.min(wait)) }
    }

    /// Nobody drove the connection for a while.
    #[inline]
    pub(super) fn note_absence(&mut self, absence: Absence) {
        if self.absence != absence {
            if self.absence.ended() != absence.ended() {
                self.heard_at += absence.part_since(self.heard_at);
            }
            self.absence = absence;
        }
    }

    /// Returns how long before `now` a packet that is taken in at `now` may have arrived.
    #[inline]
    pub(super) fn backlog(&self, now: Time) -> Duration {
        self.absence.backlog(now)
    }

    /// The adaptive engine has set the timeout to `set`: returns the one in force.
    pub(super) fn limit(&mut self, set: Duration, attempts: u16) -> Duration {
        self.set = set;
        self.timeout(attempts)
    }

    /// An answer came now; it echoes a packet that left `rtt` ago, if it says so: returns the timeout then.
    #[inline]
    pub(super) fn note_answer(&mut self, now: Time, rtt: Option<Duration>, attempts: u16) -> Option<Duration> {
        self.heard_at = now;
        let rtt = rtt?;
        let away = self.absence.part_since(now - rtt);
        let sample = match self.rtt.smoothed() {
            // The answer may have come at any time of the absence.
            Some(smoothed) if away > Duration::ZERO => rtt.saturating_sub(away).max(smoothed.min(rtt)),
            _ => rtt,
        };
        self.rtt.take(sample);
        self.backoff = 0;
        Some(self.timeout(attempts))
    }

    /// Something leaves on a connection that had nothing under way.
    #[inline]
    pub(super) fn note_start(&mut self, now: Time) {
        self.heard_at = now;
    }

    /// Packets have timed out after `rto`: returns the timeout of later ones, if it was not said just now.
    pub(super) fn back_off(&mut self, now: Time, rto: Duration, attempts: u16) -> Option<Duration> {
        if now.since(self.timed_out_at) < rto {
            return None;
        }
        self.timed_out_at = now;
        self.backoff = (self.backoff + 1).min(DOUBLINGS_MAX);
        Some(self.timeout(attempts))
    }

    /// Returns whether a packet that timed out for the `timeouts`-th time was one time too many.
    pub(super) fn is_exhausted(&self, now: Time, timeouts: u16, attempts: u16) -> bool {
        timeouts >= TIMEOUTS_MIN && now.since(self.heard_at) >= self.patience(attempts)
    }
}

/// Timeouts of a packet before its peer can be given up, however short its patience.
const TIMEOUTS_MIN: u16 = 3;

/// A timeout grows to this part of the peer's patience: verbs has one first try and seven retries at most.
const PATIENCE_PARTS: u64 = 8;

/// And no longer, unless round trips are.
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// More would take any timeout beyond [`BACKOFF_MAX`].
const DOUBLINGS_MAX: u32 = 20;
