//! Reports in batches, stored field by field, for controllers that process independent connections in parallel.
//!
//! This design is OpenRNIC's and has no published source. The speed of processing one report after the other is limited
//! by the dependency chain of its own steps; in a batch, the same step of several reports is stored contiguously, and
//! one instruction executes several of them. Decisions must not depend on batching: the response in a lane that a
//! controller has processed must be the same as the response to [`ControlEvent::Reported`].
//!
//! Only acknowledgements are batched, and of their fields only those that a controller needs today. All other events
//! are rare and are reported one by one.
//!
//! [`ControlEvent::Reported`]: super::ControlEvent::Reported

use super::Cwnd;
use super::report::{AckRate, Alpha, FlowActions, FlowReport, Gap, RateLimit, Ticks};

/// Number of reports in a batch. Large enough that the processing of reports overlaps, and small enough that the
/// batch stays in the first-level cache and that two reports of one connection are rare.
pub const LANES: usize = 16;

/// A set of lanes (positions in a batch of events that are processed together), one bit for each.
pub type LaneSet = u32;

const _: () = assert!(LANES <= LaneSet::BITS as usize);

/// Acknowledgements in a batch, each on a different connection and at its own position (lane). The contents of a lane
/// that is not in the set are undefined.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
pub struct Acks {
    /// See [`FlowReport::flow`](FlowReport::flow).
    pub flow: [u32; LANES],
    /// See [`FlowReport::flows`](FlowReport::flows).
    pub flows: [u32; LANES],
    /// See [`FlowReport::acked`](FlowReport::acked).
    pub acked: [u32; LANES],
    /// Time of the acknowledgement: [`FlowReport::t4`](FlowReport::t4).
    pub now: [Ticks; LANES],
    /// See [`FlowReport::rtt`](FlowReport::rtt).
    pub rtt: [Ticks; LANES],
    /// See [`FlowReport::delay`](FlowReport::delay()).
    pub delay: [Ticks; LANES],
    /// See [`FlowReport::hops`](FlowReport::hops).
    pub hops: [u32; LANES],
    /// See [`FlowReport::rx_level`](FlowReport::rx_level).
    pub rx_level: [u32; LANES],
}

impl Acks {
    /// Writes the fields of `report` to position `lane` of each array.
    pub fn put(&mut self, lane: usize, report: &FlowReport) {
        self.flow[lane] = report.flow.into();
        self.flows[lane] = report.flows.into();
        self.acked[lane] = report.acked.into();
        self.now[lane] = report.t4;
        self.rtt[lane] = report.rtt();
        self.delay[lane] = report.delay();
        self.hops[lane] = report.hops.into();
        self.rx_level[lane] = report.rx_level.into();
    }
}

/// Responses of a controller to events of [`LANES`] connections, which are processed together, as a structure of
/// arrays: one array for each field of [`FlowActions`].
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
pub struct ResponseLanes {
    /// The flow's window in packets, with 10 fractional bits.
    pub fcwnd: [u32; LANES],
    /// The window towards the receiving NIC, in packets.
    pub ncwnd: [u32; LANES],
    /// Gap between packets for pacing, in slots of Falcon's timing wheel.
    pub gap: [u32; LANES],
    /// Retransmission timeout, in ticks.
    pub rto: [Ticks; LANES],
    /// RACK's timeout, in ticks.
    pub rack: [Ticks; LANES],
    /// Time until a tail loss probe, in ticks.
    pub tlp: [Ticks; LANES],
    /// 1 to request a new flow label, 0 otherwise.
    pub repath: [u32; LANES],
    /// Code of the share of resources for requests.
    pub alpha_requests: [u32; LANES],
    /// Code of the share of resources for responses.
    pub alpha_responses: [u32; LANES],
    /// Code of the rate at which to request acknowledgements.
    pub ack_rate: [u32; LANES],
}

impl ResponseLanes {
    /// Returns the actions at position `lane` of the batch.
    pub fn actions(&self, lane: usize) -> FlowActions {
        FlowActions {
            fcwnd: Cwnd::from_fixed(u64::from(self.fcwnd[lane]) << 6),
            ncwnd: self.ncwnd[lane] as u16,
            gap: Gap::slots(self.gap[lane].into()),
            rate: RateLimit::NONE,
            rto: self.rto[lane],
            rack: self.rack[lane],
            tlp: self.tlp[lane],
            repath: self.repath[lane] != 0,
            alpha_requests: Alpha::code(self.alpha_requests[lane]),
            alpha_responses: Alpha::code(self.alpha_responses[lane]),
            ack_rate: AckRate::code(self.ack_rate[lane]),
        }
    }
}

/// Access to the controller state of each connection in a batch of events.
pub trait StateLanes<S> {
    /// Returns the state of the connection at position `lane` of the batch, below [`LANES`]. No two positions of a set
    /// share a state.
    fn state(&mut self, lane: usize) -> &mut S;
}
