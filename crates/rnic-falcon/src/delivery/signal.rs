//! What the adaptive engine sets, and the reports that wait for it.
//!
//! Source: specification Rev 0.9, section 10.6.2 (field lists of the event and the result). The queue has a fixed
//! length.

use rnic_base::{Duration, RareQueue};
use rnic_policy::Cwnd;
use rnic_policy::control::report::{AckRate, FlowActions, FlowReport, RateLimit, Ticks};

use crate::delivery::ack_request::AckRequestRule;

/// Single settings; `None` leaves things as they are. An adaptive engine's whole answer is [`FlowActions`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ControlSettings {
    /// Window of the flow.
    pub fcwnd: Option<Cwnd>,
    /// Requests outstanding in each window of the connection, at least 1.
    pub ncwnd: Option<u32>,
    /// Wait between the opening of a window and the next packet.
    pub packet_gap: Option<Duration>,
    /// Rate of the connection.
    pub rate: Option<RateLimit>,
    /// Timeout of each packet.
    pub rto: Option<Duration>,
    /// RACK's timeout (`rack_rto`) for the flow instead of the recovery policy's; `Some(None)` gives it back.
    pub rack_rto: Option<Option<Duration>>,
    /// The wait for a probe instead of the recovery policy's; `Some(None)` gives it back.
    pub probe: Option<Option<Duration>>,
    /// When to ask for acknowledgements.
    pub ack_request: Option<AckRequestRule>,
    /// Another path for the flow: new bits for its label.
    pub label: Option<u32>,
}

impl ControlSettings {
    /// What an adaptive engine wants, paths aside.
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
    /// The oldest.
    first: Option<FlowReport>,
    /// Those behind it; most often each is taken before the next comes.
    queue: RareQueue<FlowReport>,
}

/// Reports of a connection that can wait. Twice the flows would do for an engine that answers each before it takes the
/// next; the rest is for timeouts that come together.
pub const SIGNALS_MAX: usize = 32;

/// One in 8.5: the rate of the reference simulator, near the tenth that a connection begins with.
pub(crate) const ACK_RATE_FIRST: AckRate = AckRate::code(4);

impl Signals {
    /// Of a connection with `flows` flows. Several may time out at one moment in both windows, and each has a report;
    /// which, among many connections, happens to one for the first time at any moment.
    pub(crate) fn new(flows: u8) -> Self {
        let (first, mut queue) = (None, RareQueue::new());
        if flows > 1 {
            queue.made_for(2 * usize::from(flows));
        }
        Self { first, queue }
    }

    /// Whether there is none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Whether there is room for one more.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.queue.len() + 1 < SIGNALS_MAX || self.first.is_none()
    }

    /// Appends `report`, for which there must be room.
    #[inline]
    pub(crate) fn push(&mut self, report: FlowReport) {
        if self.first.is_none() {
            self.first = Some(report);
        } else {
            self.queue.push_back(report);
        }
    }

    /// Takes the oldest.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<FlowReport> {
        let first = self.first.take();
        if first.is_some() && !self.queue.is_empty() {
            self.first = self.queue.pop_front();
        }
        first
    }
}
