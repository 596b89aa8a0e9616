//! When a window worries, where nobody knows the network: timeouts from measured round trips.
//!
//! Source: RFC 6298 (the timeout, section 2; back-off and its end, section 5), RFC 8985 section 7 (a probe before the
//! timeout), Karn and Partridge (SIGCOMM'87: no sample from what was sent twice; a timeout stays doubled until one is
//! taken), RFC 3522 (what is acknowledged too soon after a timeout was not lost).
//!
//! After the last progress the window waits for a *probe timeout*, then sends the oldest and the newest packet that are
//! outstanding once more, and again after twice that, until the *retransmission timeout* is over: then the recovery
//! policy hears of it. The oldest repairs a repair that was lost, the newest makes the receiver tell what it misses
//! (of both, receivers that keep nothing need the first to hear of the second). After a timeout in vain the next is
//! twice as long, and there is one probe half-way.
//!
//! A wait during which nobody drove the engine ([`Absence`]) is extended by as much, once, and at most by itself: what
//! came in meanwhile has been taken in by then.
//!
//! A peer is given up when nothing at all has come back (no acknowledgement, not even of what was known) for as long as
//! the retries of the transport's fixed timeout would have taken, and three timeouts at least. The time for which a
//! retransmission waits behind other queue pairs of a peer that acknowledges theirs does not count.
//!
//! Deviations: what lies behind the choice of two packets for a probe is RFC 9002, section 6.2.4, which allows two; the
//! timeout of a peer that says nothing does not double beyond an eighth of that patience, for one that comes back shall
//! be found in time.

use rnic_base::{Absence, Duration, RttEstimator, Seq, Time};

use super::limit::{Limit, Losses};

/// What is outside of the window and counts when a timer has run out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Circumstances {
    /// The last time that nobody drove the engine.
    pub(crate) absence: Absence,
    /// How long a peer may be silent.
    pub(crate) patience: Duration,
    /// A packet may be sent to hear from the peer.
    pub(crate) may_probe: bool,
    /// Queue pairs have as much in flight to the peer as it can receive. Probes count against no credit and would fill
    /// its buffer, and packets of others lie before ours: there are no probes, and no timeout too soon.
    pub(crate) is_crowded: bool,
    /// Changes whenever the peer acknowledges something of any queue pair.
    pub(crate) answers: u32,
}

/// What a wait that is over leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Expiry {
    /// Another wait.
    Wait(Duration),
    /// A probe, and another wait.
    Probe(Duration),
    /// The timeout.
    TimedOut,
}

/// What progress after a timeout says of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    /// It answers what the timeout sent.
    Answer,
    /// It comes sooner than such an answer could: nothing was lost.
    Early,
    /// It comes later than answers do.
    Late,
}

/// The waits of one window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    rtt: RttEstimator,
    /// Until there is a sample.
    initial: Duration,
    /// The retransmission timeout in force: from the last progress.
    timeout: Duration,
    /// The wait that runs now, and what had passed before it.
    wait: Duration,
    waited: Duration,
    /// Packets to be sent once more; [`Seq::UNSET`] for none.
    probes: [Seq; 2],
    /// Timeouts since the last sample, or the last progress that was no late acknowledgement.
    backoff: u32,
    /// Timeouts since something came back.
    unheard: u32,
    timed_out_at: Time,
    last_heard_at: Time,
    /// [`Circumstances::answers`] when that was moved for a repeat that waits.
    answers: u32,
    /// The oldest packet outstanding at the last timeout.
    una: Seq,
    /// The end of the last absence that was allowed for.
    excused: Time,
    /// Losses since the last round trip, and the limit before the last timeout.
    pub(super) losses: Losses,
    pub(super) limit_before: Limit,
}

impl Timing {
    /// Of a window on which nothing was measured, whose first timeout is `initial`.
    pub(super) fn new(initial: Duration) -> Self {
        Self {
            rtt: RttEstimator::NEW,
            initial,
            timeout: initial,
            wait: initial,
            waited: Duration::ZERO,
            probes: [Seq::UNSET; 2],
            backoff: 0,
            unheard: 0,
            timed_out_at: Time::ZERO,
            last_heard_at: Time::ZERO,
            answers: 0,
            una: Seq::UNSET,
            excused: Time::ZERO,
            losses: Losses::NONE,
            limit_before: Limit::NONE,
        }
    }

    /// How long to wait after progress.
    pub(super) fn first_wait(&self) -> Duration {
        let Some(probe) = self.rtt.probe_timeout() else { return self.timeout };
        let least = if self.backoff == 0 { Duration::ZERO } else { self.timeout / 2 };
        probe.max(least).min(self.timeout)
    }

    /// Takes a sample: a packet that was sent once was acknowledged now, `rtt` after it had left.
    pub(super) fn learn(&mut self, now: Time, rtt: Duration, absence: Absence) {
        let away = absence.part_since(now - rtt);
        let sample = match self.rtt.smoothed() {
            // The acknowledgement may have come at any time of the absence.
            Some(smoothed) if away > Duration::ZERO => rtt.saturating_sub(away).max(smoothed.min(rtt)),
            _ => rtt,
        };
        self.rtt.take(sample);
        self.reset_backoff();
    }

    fn base(&self) -> Duration {
        self.rtt.timeout().unwrap_or(self.initial)
    }

    fn reset_backoff(&mut self) {
        (self.backoff, self.timeout) = (0, self.base());
    }

    /// There was progress after a timeout. What comes sooner than half a round trip after it acknowledges what was sent
    /// before, and so does, on a path that has become longer, what comes later than answers do: then the timeout was
    /// too short, and stays doubled until there is a sample.
    pub(super) fn end_backoff(&mut self, now: Time) -> Progress {
        let passed = now.since(self.timed_out_at);
        match self.rtt.smoothed() {
            Some(smoothed) if passed < smoothed / 2 => Progress::Early,
            Some(_) if passed <= self.base() => {
                self.reset_backoff();
                Progress::Answer
            }
            _ => Progress::Late,
        }
    }

    /// Returns whether the last timeout was the first since there was progress.
    pub(super) fn is_first_timeout(&self) -> bool {
        self.backoff == 1
    }

    /// The first wait after progress, of `wait`, is over.
    pub(super) fn begin(&mut self, wait: Duration) {
        (self.wait, self.waited) = (wait, Duration::ZERO);
    }

    /// By how much the wait that would be over at `deadline` is extended, if it is.
    pub(super) fn excuse(&mut self, deadline: Time, absence: Absence) -> Option<Duration> {
        if absence.ended() <= self.excused {
            return None;
        }
        let away = absence.part_since(deadline - self.wait);
        if away == Duration::ZERO {
            return None;
        }
        self.excused = absence.ended();
        self.last_heard_at += away;
        Some(away.min(self.wait))
    }

    /// The wait is over, and what should be answered has not left yet, for others come before it: by how much the wait
    /// is extended. It is no silence of a peer that acknowledged packets of others meanwhile.
    pub(super) fn await_turn(&mut self, answers: u32) -> Duration {
        if answers != self.answers {
            self.answers = answers;
            self.last_heard_at += self.wait;
        }
        self.wait
    }

    /// The wait is over: what now.
    pub(super) fn expire(&mut self, may_probe: bool, is_crowded: bool) -> Expiry {
        self.waited += self.wait;
        let least = if is_crowded { CROWDED_TIMEOUT } else { Duration::ZERO };
        let timeout = self.timeout.max(least);
        if self.waited >= timeout {
            return Expiry::TimedOut;
        }
        let left = timeout.saturating_sub(self.waited);
        let wait = if may_probe { self.wait.saturating_mul(2).min(left) } else { left };
        self.wait = wait;
        if may_probe { Expiry::Probe(wait) } else { Expiry::Wait(wait) }
    }

    /// A timeout, with `una` the oldest packet outstanding, and something `heard` since the last one: the next one
    /// takes twice as long. Answers whether the peer is given up.
    pub(super) fn time_out(&mut self, now: Time, una: Seq, heard: bool, patience: Duration) -> bool {
        let is_answered = una != self.una || heard;
        if is_answered {
            self.last_heard_at = if heard { now } else { now - self.waited };
            (self.una, self.unheard) = (una, 0);
        }
        self.unheard += 1;
        self.backoff = (self.backoff + 1).min(DOUBLINGS_MAX);
        let is_measured = self.rtt.smoothed().is_some();
        let most = match (is_answered, is_measured) {
            (true, false) if self.backoff < DOUBLINGS_MAX => UNMEASURED_MAX,
            // A path that answers, if late, is learned in the end.
            (true, _) | (false, false) => BACKOFF_MAX,
            (false, true) => BACKOFF_MAX.min(patience / PATIENCE_PARTS),
        };
        let base = self.base();
        let most = most.max(base);
        self.timeout = base.saturating_mul(1 << self.backoff).min(most);
        self.timed_out_at = now;
        self.unheard >= TIMEOUTS_MIN && now.since(self.last_heard_at) >= patience
    }

    /// Has `oldest` and `newest` sent once more.
    pub(super) fn set_probes(&mut self, oldest: Seq, newest: Seq) {
        self.probes = [oldest, if newest == oldest { Seq::UNSET } else { newest }];
    }

    /// The packet that is to be sent next of those, if it lies between `una` and `next`.
    pub(super) fn probe(&self, una: Seq, next: Seq) -> Option<Seq> {
        self.probes.into_iter().find(|seq| *seq != Seq::UNSET && una <= *seq && *seq < next)
    }

    /// Packets from `seq` up to `end` have been sent again; whether that ends the probe.
    pub(super) fn probed(&mut self, seq: Seq, end: Seq) -> bool {
        for probe in &mut self.probes {
            if seq <= *probe && *probe < end {
                *probe = Seq::UNSET;
            }
        }
        self.probes == [Seq::UNSET; 2]
    }
}

/// Least timeout while the peer's buffer is full: a tick of its scheduler (4 ms at 250 Hz), after which it has read
/// what lies before ours.
const CROWDED_TIMEOUT: Duration = Duration::from_ms(4);

/// Timeouts without an answer before a peer can be given up, however short its patience: on a lossy path one or two may
/// be lost.
const TIMEOUTS_MIN: u32 = 3;

/// A timeout grows to this part of the peer's patience: verbs has one first try and seven retries at most.
const PATIENCE_PARTS: u64 = 8;

/// And no longer, unless round trips are.
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// And for fewer than [`DOUBLINGS_MAX`] timeouts no longer than this, while the peer makes progress and nothing could
/// be timed: most often every packet has been sent twice (Karn), for so many are lost, and the timeout stays doubled. A
/// path whose round trip is longer is learned by the timeouts after those.
const UNMEASURED_MAX: Duration = Duration::from_ms(250);

/// More would take a timeout of a microsecond beyond [`BACKOFF_MAX`].
const DOUBLINGS_MAX: u32 = 20;

#[cfg(test)]
#[path = "timing/tests.rs"]
mod tests;
