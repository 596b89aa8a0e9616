//! The state of one peer NIC.

use rnic_base::{Duration, Time};
use rnic_policy::PathLabel;
use rnic_wire::scr::{NodeReport, ProbePath};

use crate::messages::cadence::{Cadence, PERIODS};
use crate::messages::limit::VALID_MAX;
use crate::messages::peer::LABELS_MAX;
use crate::messages::prober::Prober;

/// A NIC to which queue pairs are connected.
#[derive(Debug)]
pub(super) struct Partner {
    /// Number of queue pairs that are connected to it.
    pub(super) flows: u32,
    /// Labels from which the peer sends data, at most [`LABELS_MAX`].
    labels: Vec<u16>,
    /// Time up to which probes of path policies are scheduled, one after another.
    probes_until: Time,
    pub(super) cadence: Cadence,
    /// Time at which data from the peer last arrived; each queue pair records it at most once in half a period of the
    /// message exchange.
    pub(super) data_at: Option<Time>,
    /// Delay in the peer's host as last reported, and the time of the report.
    host_delay: Option<(Duration, Time)>,
    /// Round trip of the last greeting that was answered.
    pub(super) round_trip: Option<Duration>,
    /// Greetings: probes between the NICs, which exchange cookies.
    greetings: Prober,
    /// Number of greetings without an answer since the last answer.
    unanswered: u32,
    /// Time of the next greeting.
    greet_at: Option<Time>,
}

impl Partner {
    pub(super) fn new(flows: u32, cadence: Cadence) -> Self {
        Self {
            flows,
            labels: Vec::new(),
            probes_until: Time::ZERO,
            cadence,
            data_at: None,
            host_delay: None,
            round_trip: None,
            greetings: Prober::default(),
            unanswered: 0,
            greet_at: None,
        }
    }

    /// Returns whether data is accepted from `label`.
    pub(super) fn has_label(&self, label: PathLabel) -> bool {
        self.labels.contains(&label.0)
    }

    /// Returns whether data is or can be accepted from `label`: not if too many others have been announced.
    pub(super) fn may_announce(&self, label: PathLabel) -> bool {
        self.has_label(label) || self.labels.len() < LABELS_MAX
    }

    /// Accepts data from `label` from now on, unless too many labels have been announced.
    pub(super) fn announce(&mut self, label: PathLabel) {
        if !self.has_label(label) && self.may_announce(label) {
            self.labels.push(label.0);
        }
    }

    /// Forgets all labels, because the peer has been restarted.
    pub(super) fn forget_labels(&mut self) {
        self.labels.clear();
    }

    /// Schedules another probe of a path policy, `spacing` after the last scheduled one; returns the time until then,
    /// limited to the maximum period. Each queue pair schedules one at a time, so closed queue pairs can leave only
    /// few.
    pub(super) fn plan_probe(&mut self, spacing: Duration, now: Time) -> Duration {
        let of_all = spacing.saturating_mul(u64::from(self.flows)).min(PERIODS[1]);
        self.probes_until = (self.probes_until.max(now) + spacing).min(now + of_all);
        self.probes_until.since(now)
    }

    /// Records a report of the peer's load; delays are limited to `delay_max`.
    pub(super) fn note_report(&mut self, report: &NodeReport, delay_max: Duration, now: Time) {
        let delay = Duration::from_ns(report.bus_latency_ns.into()).min(delay_max);
        self.host_delay = Some((delay, now));
    }

    /// Returns the delay in the peer's host, if it has been reported recently.
    pub(super) fn host_delay(&self, now: Time) -> Option<Duration> {
        let recent = self.host_delay.filter(|(_, at)| now.since(*at) <= REPORT_VALID);
        recent.map(|(delay, _)| delay)
    }

    /// Returns whether data of the peer has arrived in the last `interval`.
    pub(super) fn has_recent_data(&self, now: Time, interval: Duration) -> bool {
        self.data_at.is_some_and(|at| now.since(at) <= interval)
    }

    /// Returns the earliest time at which a timeout for the peer is due.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        let times = [self.cadence.next_timeout(), self.greetings.next_timeout(), self.greet_at];
        times.into_iter().flatten().min()
    }

    /// Requests a greeting at `now`; `configured` is the round trip used until one is measured. Returns whether the
    /// greeting has to be sent: not if one is in flight.
    pub(super) fn greet(&mut self, configured: Duration, now: Time) -> bool {
        self.greet_at = None;
        let timeout = greeting_timeout(self.round_trip.unwrap_or(configured), self.unanswered);
        self.greetings.request(GREETING_PATH, timeout, now)
    }

    /// Marks the requested greeting as sent; returns the time that it has to carry.
    pub(super) fn send_greeting(&mut self, now: Time) -> Option<u64> {
        self.greetings.send(GREETING_PATH.index, now).map(|(_, echo)| echo)
    }

    /// Processes an answer to a probe; if that was a greeting, returns the round trip.
    pub(super) fn greeted(&mut self, answer: &rnic_wire::scr::Answer, again_at: Time, now: Time) -> Option<Duration> {
        let measured = self.greetings.answered(answer, now).ok()?;
        self.round_trip = Some(measured.round_trip);
        self.unanswered = 0;
        self.greet_at = Some(again_at);
        Some(measured.round_trip)
    }

    /// Forgets a greeting in flight, because the peer has announced its cookie instead of answering.
    pub(super) fn restart_greetings(&mut self) {
        self.greetings = Prober::default();
        self.unanswered = 0;
    }

    /// Handles timeouts; returns whether a greeting has to be sent. The number of greetings to a peer that never
    /// answers is limited, because it may not support messages; a peer that does is greeted again after `interval`.
    pub(super) fn on_timeout(&mut self, now: Time, interval: Option<Duration>) -> bool {
        let mut greets = self.greet_at.is_some_and(|at| at <= now);
        if greets {
            self.greet_at = None;
        }
        while self.greetings.take_lost(now).is_some() {
            self.unanswered = self.unanswered.saturating_add(1);
            match self.unanswered < GREETINGS_MAX {
                true => greets = true,
                false => self.greet_at = interval.map(|interval| now + interval),
            }
        }
        greets
    }
}

/// Time for which a report is valid, as for grants.
const REPORT_VALID: Duration = VALID_MAX;

/// Path on which greetings are sent.
pub(super) const GREETING_PATH: ProbePath = ProbePath { index: 0, label: GREETING_LABEL.0 };

/// Label of messages that concern a whole NIC.
pub(super) const GREETING_LABEL: PathLabel = PathLabel(0);

/// Returns the timeout of a greeting after `unanswered` greetings without an answer.
fn greeting_timeout(round_trip: Duration, unanswered: u32) -> Duration {
    round_trip.saturating_mul(4 << unanswered.min(20)).clamp(GREETING_TIMEOUTS[0], GREETING_TIMEOUTS[1])
}

/// Shortest and longest timeout of a greeting.
const GREETING_TIMEOUTS: [Duration; 2] = [Duration::from_us(4), Duration::from_secs(1)];

/// Maximum number of greetings without an answer that are sent in quick succession.
const GREETINGS_MAX: u32 = 12;
