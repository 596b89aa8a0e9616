//! Timeouts from measured round trips, for networks whose properties are unknown.
//!
//! Source: RFC 6298 (the timeout, section 2; back-off and its end, section 5), RFC 8985 section 7 (a probe before the
//! timeout), Karn and Partridge (SIGCOMM'87: no sample from retransmitted packets; a timeout stays doubled until a
//! sample is taken), RFC 3522 (packets acknowledged too soon after a timeout were not lost).
//!
//! After the last progress the window waits for a *probe timeout*, then retransmits the oldest and the newest
//! outstanding packet, and again after twice that time, until the *retransmission timeout* is over: then the recovery
//! policy is notified. The oldest packet replaces a lost retransmission; the newest makes the receiver report which
//! packets it misses (receivers that keep no out-of-order packets need the first of the two to report anything about
//! the second). After a timeout without effect the next one is twice as long, and there is one probe half-way.
//!
//! A wait during which the engine was not driven ([`Absence`]) is extended once by the length of the absence, but is
//! at most doubled: by then the packets received in the meantime have been processed.
//!
//! The window gives up on a peer when no response at all has been received (no acknowledgement, not even of known
//! packets) for as long as the retries of the transport's fixed timeout would have taken, and for at least three
//! timeouts. The time for which a retransmission waits behind other queue pairs does not count if the peer
//! acknowledges their packets.
//!
//! Deviations: the choice of two packets for a probe is based on RFC 9002, section 6.2.4, which permits two; the
//! timeout for a peer that sends no response does not double beyond an eighth of that patience, so that a peer that
//! becomes reachable again is detected in time.

use rnic_base::{Absence, Duration, RttEstimator, Seq, Time};

use super::limit::{Limit, Losses};

/// External conditions that are considered when a timer has expired.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeoutConditions {
    /// Last period during which the engine was not driven.
    pub(crate) absence: Absence,
    /// Maximum time without a response from the peer.
    pub(crate) silence_max: Duration,
    /// True when a packet may be sent as a probe.
    pub(crate) may_probe: bool,
    /// True when all queue pairs together have as many packets in flight to the peer as it can receive. Probes need
    /// no credit and would overfill its buffer, and packets of other queue pairs are queued before those of this one.
    /// Therefore no probes are sent, and the timeout has a minimum.
    pub(crate) is_peer_full: bool,
    /// Counter that changes whenever the peer acknowledges a packet of any queue pair.
    pub(crate) acks: u32,
}

/// Action due at the end of a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Expiry {
    /// Wait again, for this duration.
    Wait(Duration),
    /// Send a probe, and wait again, for this duration.
    Probe(Duration),
    /// The retransmission timeout has expired.
    TimedOut,
}

/// Classification of the timeout by the progress after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    /// The progress is a response to the packets that the timeout retransmitted.
    Answer,
    /// The progress was made sooner than such a response could arrive: nothing was lost.
    Early,
    /// The progress was made later than responses arrive.
    Late,
}

/// Timeout state of one window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    rtt: RttEstimator,
    /// Timeout used until there is a sample.
    initial: Duration,
    /// Minimum of the timeout before it is doubled: the timer that a program has set. Zero without a program.
    floor: Duration,
    /// Current retransmission timeout, counted from the last progress.
    timeout: Duration,
    /// Duration of the current wait and, in the next field, the time that had passed before it.
    wait: Duration,
    waited: Duration,
    /// Time by which waits have been extended because of absences since the first one after progress.
    excused: Duration,
    /// Packets to be retransmitted as probes; [`Seq::UNSET`] for none.
    probes: [Seq; 2],
    /// Timeouts since the last sample, or since the last progress that was not a late acknowledgement.
    backoff: u32,
    /// Timeouts since the last response was received.
    timeouts_without_response: u32,
    timed_out_at: Time,
    /// True until the first progress after the last timeout.
    is_unanswered: bool,
    /// Number of spurious timeouts; and, in the next field, whether the last one has not been reported yet.
    spurious: u32,
    is_unreported: bool,
    last_response_at: Time,
    /// Value of [`TimeoutConditions::acks`] when the start of the peer's silence was last postponed because a
    /// retransmission had to wait.
    acks: u32,
    /// The oldest packet outstanding at the last timeout.
    una: Seq,
    /// End of the last absence for which a wait was extended.
    excused_until: Time,
    /// Losses since the last round trip and, in the next field, the limit before the last timeout.
    pub(super) losses: Losses,
    pub(super) limit_before: Limit,
}

impl Timing {
    /// Creates the state of a window without measurements, whose first timeout is `initial`, and no later one below
    /// `floor`.
    pub(super) fn new(initial: Duration, floor: Duration) -> Self {
        Self {
            rtt: RttEstimator::NEW,
            initial,
            floor,
            timeout: initial,
            wait: initial,
            waited: Duration::ZERO,
            excused: Duration::ZERO,
            probes: [Seq::UNSET; 2],
            backoff: 0,
            timeouts_without_response: 0,
            timed_out_at: Time::ZERO,
            is_unanswered: false,
            spurious: 0,
            is_unreported: false,
            last_response_at: Time::ZERO,
            acks: 0,
            una: Seq::UNSET,
            excused_until: Time::ZERO,
            losses: Losses::NONE,
            limit_before: Limit::NONE,
        }
    }

    /// Returns the duration of the wait after progress.
    pub(super) fn first_wait(&self) -> Duration {
        let Some(probe) = self.rtt.probe_timeout() else { return self.timeout };
        let minimum = if self.backoff == 0 { Duration::ZERO } else { self.timeout / 2 };
        probe.max(minimum).min(self.timeout)
    }

    /// Processes a sample: a packet that was sent once was acknowledged now, `rtt` after it was sent.
    pub(super) fn add_rtt(&mut self, now: Time, rtt: Duration, absence: Absence) {
        let absent = absence.overlap_since(now - rtt);
        let sample = match self.rtt.smoothed() {
            // The acknowledgement may have arrived at any time during the absence.
            Some(smoothed) if absent > Duration::ZERO => rtt.saturating_sub(absent).max(smoothed.min(rtt)),
            _ => rtt,
        };
        self.rtt.add_sample(sample);
        self.reset_backoff();
    }

    fn base(&self) -> Duration {
        self.rtt.timeout().unwrap_or(self.initial).max(self.floor)
    }

    /// Makes `floor` the minimum of the timeout. It is ignored between a timeout and the progress after it, because a
    /// program has doubled its timer then, and the timeout is doubled here. Returns whether the timeout has changed.
    pub(super) fn set_floor(&mut self, floor: Duration) -> bool {
        let floor = floor.min(BACKOFF_MAX);
        if self.backoff != 0 || floor == self.floor {
            return false;
        }
        let before = self.base();
        self.floor = floor;
        self.timeout = self.base();
        self.timeout != before
    }

    fn reset_backoff(&mut self) {
        (self.backoff, self.timeout) = (0, self.base());
    }

    /// Handles progress after a timeout. An acknowledgement that arrives sooner than half a round trip after the
    /// timeout is for packets sent before it; so is, on a path that has become longer, one that arrives later than a
    /// response would. In these cases the timeout was too short, and stays doubled until there is a sample.
    pub(super) fn end_backoff(&mut self, now: Time) -> Progress {
        let elapsed = now.since(self.timed_out_at);
        let is_first = std::mem::take(&mut self.is_unanswered);
        match self.rtt.smoothed() {
            Some(smoothed) if elapsed < smoothed / 2 => {
                self.spurious = self.spurious.saturating_add(u32::from(is_first));
                self.is_unreported |= is_first;
                Progress::Early
            }
            Some(_) if elapsed <= self.base() => {
                self.reset_backoff();
                Progress::Answer
            }
            _ => Progress::Late,
        }
    }

    /// Returns the number of spurious timeouts: those whose first progress was made too early to be an answer to the
    /// retransmission.
    pub(super) fn spurious(&self) -> u32 {
        self.spurious
    }

    /// Returns whether there was a spurious timeout since the last call.
    pub(super) fn take_unreported(&mut self) -> bool {
        std::mem::take(&mut self.is_unreported)
    }

    /// Returns whether the last timeout was the first since there was progress.
    pub(super) fn is_first_timeout(&self) -> bool {
        self.backoff == 1
    }

    /// Starts to account for waits: the first one after progress, of duration `wait`, is over.
    pub(super) fn begin(&mut self, wait: Duration) {
        (self.wait, self.waited, self.excused) = (wait, Duration::ZERO, Duration::ZERO);
    }

    /// Returns the time by which the wait that ends at `deadline` is extended because of an absence; `None` if it is
    /// not. On a machine that hardly lets the process run, absences follow each other, so the sum is bounded.
    pub(super) fn excuse(&mut self, deadline: Time, absence: Absence) -> Option<Duration> {
        if absence.ended() <= self.excused_until {
            return None;
        }
        let absent = absence.overlap_since(deadline - self.wait);
        let longest = self.wait.saturating_mul(EXCUSED_WAITS_MAX).saturating_sub(self.excused);
        let extension = absent.min(self.wait).min(longest);
        if extension == Duration::ZERO {
            return None;
        }
        self.excused_until = absence.ended();
        self.last_response_at += absent;
        self.excused += extension;
        Some(extension)
    }

    /// Returns the time by which a wait is extended when it is over and the packet to be acknowledged has not been sent
    /// yet, because other packets are sent before it. This time does not count as silence of a peer that acknowledged
    /// packets of other queue pairs meanwhile.
    pub(super) fn extend_for_peer(&mut self, acks: u32) -> Duration {
        if acks != self.acks {
            self.acks = acks;
            self.last_response_at += self.wait;
        }
        self.wait
    }

    /// Returns the action due at the end of a wait.
    pub(super) fn expire(&mut self, may_probe: bool, is_peer_full: bool) -> Expiry {
        self.waited += self.wait;
        let minimum = if is_peer_full { PEER_FULL_TIMEOUT } else { Duration::ZERO };
        let timeout = self.timeout.max(minimum);
        if self.waited >= timeout {
            return Expiry::TimedOut;
        }
        let remaining = timeout.saturating_sub(self.waited);
        let wait = if may_probe { self.wait.saturating_mul(2).min(remaining) } else { remaining };
        self.wait = wait;
        if may_probe { Expiry::Probe(wait) } else { Expiry::Wait(wait) }
    }

    /// Handles a timeout, with `una` the oldest outstanding packet and `response_seen` set if any response was
    /// received since the last one: the next timeout is twice as long. Returns whether the window gives up on the
    /// peer.
    pub(super) fn time_out(&mut self, now: Time, una: Seq, response_seen: bool, silence_max: Duration) -> bool {
        let is_answered = una != self.una || response_seen;
        if is_answered {
            self.last_response_at = if response_seen { now } else { now - self.waited };
            (self.una, self.timeouts_without_response) = (una, 0);
        }
        self.timeouts_without_response += 1;
        self.backoff = (self.backoff + 1).min(DOUBLINGS_MAX);
        let is_measured = self.rtt.smoothed().is_some();
        let timeout_max = match (is_answered, is_measured) {
            (true, false) if self.backoff < DOUBLINGS_MAX => UNMEASURED_MAX,
            // A path on which responses arrive, even if late, is eventually measured.
            (true, _) | (false, false) => BACKOFF_MAX,
            (false, true) => BACKOFF_MAX.min(silence_max / SILENCE_PARTS),
        };
        let base = self.base();
        let timeout_max = timeout_max.max(base);
        self.timeout = base.saturating_mul(1 << self.backoff).min(timeout_max);
        (self.timed_out_at, self.is_unanswered) = (now, true);
        self.timeouts_without_response >= TIMEOUTS_MIN && now.since(self.last_response_at) >= silence_max
    }

    /// Schedules `oldest` and `newest` to be retransmitted as probes.
    pub(super) fn set_probes(&mut self, oldest: Seq, newest: Seq) {
        self.probes = [oldest, if newest == oldest { Seq::UNSET } else { newest }];
    }

    /// Returns the probe to be sent next, if it is between `una` and `next`.
    pub(super) fn probe(&self, una: Seq, next: Seq) -> Option<Seq> {
        self.probes.into_iter().find(|seq| *seq != Seq::UNSET && una <= *seq && *seq < next)
    }

    /// Records that the packets from `seq` up to `end` have been retransmitted; returns whether that completes the
    /// probe.
    pub(super) fn probed(&mut self, seq: Seq, end: Seq) -> bool {
        for probe in &mut self.probes {
            if seq <= *probe && *probe < end {
                *probe = Seq::UNSET;
            }
        }
        self.probes == [Seq::UNSET; 2]
    }
}

/// Minimum timeout while the peer's buffer is full: a tick of the peer's scheduler (4 ms at 250 Hz), after which the
/// peer has read the packets that were queued before the packets of this window.
const PEER_FULL_TIMEOUT: Duration = Duration::from_ms(4);

/// Minimum number of timeouts without a response before the window may give up on a peer, however short the maximum
/// time without a response: on a lossy path one or two responses may be lost.
const TIMEOUTS_MIN: u32 = 3;

/// Divisor of the maximum time without a response: a timeout may grow to this fraction of it, because verbs allow one
/// transmission and at most seven retries.
const SILENCE_PARTS: u64 = 8;

/// Maximum timeout, unless round trips are longer.
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// Maximum timeout for fewer than [`DOUBLINGS_MAX`] timeouts, while the peer makes progress and no packet could be
/// timed: in most such cases every packet has been retransmitted (Karn), because so many are lost, and the timeout
/// stays doubled. A path whose round trip is longer is measured by the later, longer timeouts.
const UNMEASURED_MAX: Duration = Duration::from_ms(250);

/// Waits by which a wait is extended at most because of absences: a process that runs for an eighth of the time then
/// waits for a whole one while it runs.
const EXCUSED_WAITS_MAX: u64 = 8;

/// Maximum number of doublings: more would raise a timeout of a microsecond beyond [`BACKOFF_MAX`].
const DOUBLINGS_MAX: u32 = 20;

#[cfg(test)]
#[path = "timing/tests.rs"]
mod tests;
