//! The state of one connected queue pair.

use rnic_base::{BitRate, Duration, Time};
use rnic_policy::PathLabel;
use rnic_wire::Qpn;
use rnic_wire::scr::ProbePath;

use crate::NicId;
use crate::messages::limit::{Bounds, RemoteLimit};
use crate::messages::pressure::PressureLaw;
use crate::messages::prober::{PATHS_MAX, Prober};

/// Path number of the driver's probes of a queue pair; lower numbers are used by its path policy.
pub(crate) const DRIVER_PATH: u8 = PATHS_MAX as u8 - 2;
/// Path number of the probes of congestion control.
pub(crate) const CONTROL_PATH: u8 = PATHS_MAX as u8 - 1;

const _: () = assert!(rnic_policy::paths::PROBED_MAX == DRIVER_PATH as usize);

/// A queue pair that is connected to a queue pair of the peer.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) peer: NicId,
    /// Queue pair of the peer.
    pub(super) dest_qpn: Qpn,
    /// True when the peer supports messages.
    pub(super) is_agreed: bool,
    /// Probes requested before the peer was known to support messages; at most one per path.
    held: Vec<(ProbePath, Duration)>,
    /// Path label of the last data packet.
    label: PathLabel,
    /// Time at which the queue pair last sent a data packet.
    sent_at: Option<Time>,
    /// True when the peer receives rate grants for this queue pair.
    pub(super) is_granted: bool,
    /// Time of the last received data.
    pub(super) received_at: Option<Time>,
    /// Time at which the arrival of data was last recorded at the peer's state.
    noted_at: Option<Time>,
    /// True while the queue pair is in the list of those that have received data recently.
    pub(super) is_recent: bool,
    pub(super) pressure: PressureLaw,
    pub(super) prober: Prober,
    /// Last measured round trip.
    pub(super) round_trip: Option<Duration>,
    /// Limit by messages of the peer.
    limit: RemoteLimit,
    /// The limit that was last passed to the queue pair.
    pub(super) in_force: Option<BitRate>,
    /// Time of the driver's next probe; `None` while the queue pair sends nothing.
    probe_at: Option<Time>,
    /// Next tick of the path policy.
    tick: Tick,
    /// True once the path policy has requested a tick.
    is_ticking: bool,
}

/// Time at which a path policy is called next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tick {
    /// Never: the policy has requested no tick.
    Never,
    /// The policy is called with the next data that the queue pair sends.
    WithData,
    At(Time),
}

/// Time after the last data from which a queue pair is not probed any more: more than any retransmission timeout that
/// is in use while data waits.
const IDLE_AFTER: Duration = Duration::from_secs(10);

impl Flow {
    /// Creates the state of a queue pair that is connected after the driver has dropped `drops` packets.
    pub(super) fn new(peer: NicId, dest_qpn: Qpn, threshold_bytes: u64, drops: u64) -> Self {
        Self {
            peer,
            dest_qpn,
            is_agreed: false,
            held: Vec::new(),
            label: PathLabel::default(),
            sent_at: None,
            is_granted: false,
            received_at: None,
            noted_at: None,
            is_recent: false,
            pressure: PressureLaw::new(dest_qpn, threshold_bytes, drops),
            prober: Prober::default(),
            round_trip: None,
            limit: RemoteLimit::default(),
            in_force: None,
            probe_at: None,
            tick: Tick::WithData,
            is_ticking: false,
        }
    }

    /// Returns whether the arrival of data has to be recorded in the peer's state: at most once per `interval`.
    pub(super) fn notes_data(&mut self, now: Time, interval: Duration) -> bool {
        let is_due = self.noted_at.is_none_or(|at| now.since(at) >= interval);
        if is_due {
            self.noted_at = Some(now);
        }
        is_due
    }

    /// Keeps the request for a probe until the peer is known to exchange messages. A later request for the same path
    /// replaces an earlier one: both end together.
    pub(super) fn hold(&mut self, path: ProbePath, timeout: Duration) {
        if let Some(held) = self.held.iter_mut().find(|(held, _)| held.index == path.index) {
            *held = (path, timeout);
        } else if self.held.len() < PATHS_MAX {
            self.held.push((path, timeout));
        }
    }

    /// Removes and returns the requests for probes that were kept.
    pub(super) fn take_held(&mut self) -> Vec<(ProbePath, Duration)> {
        std::mem::take(&mut self.held)
    }

    /// Returns the earliest time at which a timeout of the flow is due.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        let tick = if let Tick::At(at) = self.tick { Some(at) } else { None };
        let times = [self.limit.next_timeout(), self.prober.next_timeout(), self.probe_at, tick];
        times.into_iter().flatten().min()
    }

    /// Counts a data packet that is sent with `label`. Returns whether probes of the driver, or ticks of the path
    /// policy, start again. They start only when the peer is known to support messages, because requests made earlier
    /// would all be sent at that time.
    pub(super) fn count_sent(&mut self, label: PathLabel, now: Time, probe_interval: Option<Duration>) -> bool {
        (self.label, self.sent_at) = (label, Some(now));
        if !self.is_agreed {
            return false;
        }
        let starts_probes = probe_interval.is_some() && self.probe_at.is_none();
        if starts_probes {
            self.probe_at = Some(now);
        }
        let starts_ticks = self.tick == Tick::WithData;
        if starts_ticks {
            self.tick = Tick::At(now);
        }
        starts_probes || starts_ticks
    }

    /// Returns whether the queue pair has sent nothing for so long that its paths are no longer probed: the peer may be
    /// gone.
    fn is_idle(&self, now: Time) -> bool {
        self.sent_at.is_none_or(|at| now.since(at) > IDLE_AFTER)
    }

    /// Returns whether the path policy requests ticks, so that it can probe paths.
    pub(super) fn is_ticking(&self) -> bool {
        self.is_ticking
    }

    /// Sets the time at which the path policy is called.
    pub(super) fn set_tick(&mut self, at: Time) {
        self.tick = Tick::At(at);
        self.is_ticking = true;
    }

    /// Defers the driver's next probe until `at`.
    pub(super) fn defer_probe(&mut self, at: Time) {
        self.probe_at = self.probe_at.map(|probe_at| probe_at.max(at));
    }

    /// Returns whether the path policy has to be called now, and clears its tick. An idle queue pair's policy is called
    /// with its next data.
    pub(super) fn takes_tick(&mut self, now: Time) -> bool {
        if !matches!(self.tick, Tick::At(at) if at <= now) {
            return false;
        }
        let is_idle = self.is_idle(now);
        self.tick = if is_idle { Tick::WithData } else { Tick::Never };
        !is_idle
    }

    /// Returns the label of the driver's probe that has to be sent now, if any, and schedules the next one. An idle
    /// queue pair is probed with its next data.
    pub(super) fn takes_probe(&mut self, now: Time, interval: Option<Duration>) -> Option<PathLabel> {
        self.probe_at.filter(|at| *at <= now)?;
        self.probe_at = interval.filter(|_| !self.is_idle(now)).map(|interval| now + interval);
        self.probe_at.map(|_| self.label)
    }

    /// Applies `change` to the limit, advanced to `now`; returns the limit if it has changed.
    pub(super) fn change_limit(
        &mut self,
        now: Time,
        bounds: &Bounds,
        change: impl FnOnce(&mut RemoteLimit),
    ) -> Option<Option<BitRate>> {
        change(&mut self.limit);
        self.limit.advance(now, bounds);
        let limit = self.limit.limit(bounds);
        (std::mem::replace(&mut self.in_force, limit) != limit).then_some(limit)
    }
}
