//! Settings of the adaptive engine, and the reports that wait for it.
//!
//! Source: specification Rev 0.9, section 10.6.2 (field lists of the event and the result). The queue has a fixed
//! length.

use rnic_base::{Duration, LazyQueue};
use rnic_policy::Cwnd;
use rnic_policy::control::report::{AckRate, FlowActions, FlowReport, RateLimit, Ticks};

use crate::delivery::ack_request::AckRequestRule;

/// Individual settings; `None` leaves the value unchanged. The complete response of an adaptive engine is
/// [`FlowActions`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ControlSettings {
    /// Window of the flow.
    pub fcwnd: Option<Cwnd>,
    /// Maximum number of requests outstanding in each window of the connection, at least 1.
    pub ncwnd: Option<u32>,
    /// Wait between the opening of a window and the next packet.
    pub packet_gap: Option<Duration>,
    /// Rate of the connection.
    pub rate: Option<RateLimit>,
    /// Timeout of each packet.
    pub rto: Option<Duration>,
    /// RACK timeout (`rack_rto`) for the flow, overriding the recovery policy's; `Some(None)` removes the override.
    pub rack_rto: Option<Option<Duration>>,
    /// Wait for a probe, overriding the recovery policy's; `Some(None)` removes the override.
    pub probe: Option<Option<Duration>>,
    /// Rule for requesting acknowledgements.
    pub ack_request: Option<AckRequestRule>,
    /// New label bits, which move the flow to another path.
    pub label: Option<u32>,
}

impl ControlSettings {
    /// Returns the settings in the actions of an adaptive engine, paths aside.
    pub(crate) fn of(actions: &FlowActions) -> Self {
        let set = |time: Ticks| (time != Ticks::ZERO).then(|| time.duration());
        Self {
            fcwnd: Some(actions.fcwnd),
            ncwnd: Some(u32::from(actions.ncwnd)),
            packet_gap: Some(actions.gap.duration()),
            rate: Some(actions.rate),
            rto: set(actions.rto),
            rack_rto: Some(set(actions.rack)),
            probe: Some(set(actions.tlp)),
            ack_request: Some(AckRequestRule::of_rate(actions.ack_rate)),
            label: None,
        }
    }
}

/// Reports waiting for the adaptive engine.
#[derive(Clone, Debug)]
pub(crate) struct Signals {
    /// The oldest report.
    first: Option<FlowReport>,
    /// The reports behind it; most often each is consumed before the next is queued.
    queue: LazyQueue<FlowReport>,
}

/// Maximum number of waiting reports of a connection. Twice the number of flows would suffice for an engine that
/// answers each before it takes the next; the rest is for simultaneous timeouts.
pub const SIGNALS_MAX: usize = 32;

/// Initial acknowledgement rate, one in 8.5: the rate of the reference simulator, near the tenth that a connection
/// starts with.
pub(crate) const ACK_RATE_FIRST: AckRate = AckRate::code(4);

impl Signals {
    /// Creates the queue of a connection with `flows` flows. The queue is allocated in advance for several flows,
    /// because they may time out simultaneously in both windows with a report each; among many connections, this
    /// happens for the first time to some connection at any moment.
    pub(crate) fn new(flows: u8) -> Self {
        let (first, mut queue) = (None, LazyQueue::new());
        if flows > 1 {
            queue.made_for(2 * usize::from(flows));
        }
        Self { first, queue }
    }

    /// Returns whether no report waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Returns whether there is space for one more report.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.queue.len() + 1 < SIGNALS_MAX || self.first.is_none()
    }

    /// Appends `report`, for which there must be space.
    #[inline]
    pub(crate) fn push(&mut self, report: FlowReport) {
        if self.first.is_none() {
            self.first = Some(report);
        } else {
            self.queue.push_back(report);
        }
    }

    /// Removes and returns the oldest report.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<FlowReport> {
        let first = self.first.take();
        if first.is_some() && !self.queue.is_empty() {
            self.first = self.queue.pop_front();
        }
        first
    }
}
