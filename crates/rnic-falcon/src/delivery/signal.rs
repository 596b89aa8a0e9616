//! Settings made by the adaptive engine, and the reports waiting to be passed to it.
//!
//! Source: specification Rev 0.9, section 10.6.2 (field lists of the event and the result). The queue of reports has
//! a fixed length.

use rnic_base::{Duration, LazyQueue};
use rnic_policy::Cwnd;
use rnic_policy::control::report::{AckRate, FlowActions, FlowReport, RateLimit, Ticks};

use crate::delivery::ack_request::AckRequestRule;

/// Individual settings; `None` leaves a value unchanged. The complete response of an adaptive engine is
/// [`FlowActions`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ControlSettings {
    /// Window of the flow.
    pub fcwnd: Option<Cwnd>,
    /// Maximum number of requests outstanding in each window of the connection, at least 1.
    pub ncwnd: Option<u32>,
    /// Minimum time between the opening of a window, or the previous packet, and the next packet.
    pub packet_gap: Option<Duration>,
    /// Rate of the connection.
    pub rate: Option<RateLimit>,
    /// Timeout of each packet.
    pub rto: Option<Duration>,
    /// RACK timeout (`rack_rto`) for the flow, overriding the recovery policy's; `Some(None)` removes the override.
    pub rack_rto: Option<Option<Duration>>,
    /// Wait before a probe, overriding the recovery policy's; `Some(None)` removes the override.
    pub probe: Option<Option<Duration>>,
    /// Rule for requesting acknowledgements.
    pub ack_request: Option<AckRequestRule>,
    /// New label bits, which move the flow to another path.
    pub label: Option<u32>,
}

impl ControlSettings {
    /// Returns the settings contained in the actions of an adaptive engine, except for the path change.
    pub(crate) fn of(actions: &FlowActions) -> Self {
        let nonzero = |time: Ticks| (time != Ticks::ZERO).then(|| time.duration());
        Self {
            fcwnd: Some(actions.fcwnd),
            ncwnd: Some(u32::from(actions.ncwnd)),
            packet_gap: Some(actions.gap.duration()),
            rate: Some(actions.rate),
            rto: nonzero(actions.rto),
            rack_rto: Some(nonzero(actions.rack)),
            probe: Some(nonzero(actions.tlp)),
            ack_request: Some(AckRequestRule::of_rate(actions.ack_rate)),
            label: None,
        }
    }
}

/// Reports waiting for the adaptive engine.
#[derive(Clone, Debug)]
pub(crate) struct Signals {
    /// The oldest report.
    oldest: Option<FlowReport>,
    /// The later reports; usually there are none, because each report is consumed before the next is queued.
    queue: LazyQueue<FlowReport>,
}

/// Maximum number of waiting reports of a connection. Twice the number of flows would suffice for an engine that
/// responds to each report before the next one; the rest is for simultaneous timeouts.
pub const SIGNALS_MAX: usize = 32;

/// Initial acknowledgement rate, one in 8.5: the rate of the reference simulator, close to the one in ten packets
/// with which a connection starts.
pub(crate) const ACK_RATE_INITIAL: AckRate = AckRate::code(4);

impl Signals {
    /// Creates the queue of a connection with `flows` flows. The queue is allocated in advance for several flows,
    /// because they may time out simultaneously in both windows, with one report each. Among many connections, this
    /// can happen to some connection for the first time at any moment, and must not allocate memory then.
    pub(crate) fn new(flows: u8) -> Self {
        let (oldest, mut queue) = (None, LazyQueue::new());
        if flows > 1 {
            queue.get_or_allocate(2 * usize::from(flows));
        }
        Self { oldest, queue }
    }

    /// Returns `true` if there is no report.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.oldest.is_none()
    }

    /// Returns `true` if there is space for one more report.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.queue.len() + 1 < SIGNALS_MAX || self.oldest.is_none()
    }

    /// Appends `report`, for which there must be space.
    #[inline]
    pub(crate) fn push(&mut self, report: FlowReport) {
        if self.oldest.is_none() {
            self.oldest = Some(report);
        } else {
            self.queue.push_back(report);
        }
    }

    /// Removes and returns the oldest report.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<FlowReport> {
        let oldest = self.oldest.take();
        if oldest.is_some() && !self.queue.is_empty() {
            self.oldest = self.queue.pop_front();
        }
        oldest
    }
}
