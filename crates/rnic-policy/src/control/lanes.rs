//! Several reports at once, field by field: what a controller needs to work on independent connections side by side.
//!
//! Our choice; no source has it. One report after the other is bound by the chain of its own steps; side by side,
//! steps of the same kind stand together and the processor does several in one instruction. Decisions must not show
//! it: a lane that a controller has worked on is answered exactly as [`ControlEvent::Reported`] would have been.
//!
//! Only acknowledgements come this way, and of their fields those that a controller needs today. Everything else is
//! rare: it is reported alone.
//!
//! [`ControlEvent::Reported`]: super::ControlEvent::Reported

use super::Cwnd;
use super::report::{AckRate, Alpha, FlowActions, FlowReport, Gap, RateLimit, Ticks};

/// Reports side by side. Enough that work on one waits for no other's, few enough that all of it stays in the
/// first-level cache and that two of one connection are rare.
pub const LANES: usize = 16;

/// A bit for each lane.
pub type LaneSet = u32;

const _: () = assert!(LANES <= LaneSet::BITS as usize);

/// Acknowledgements on connections that are all different. What a lane outside of the set holds means nothing.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
pub struct Acks {
    /// See [`FlowReport::flow`](FlowReport::flow).
    pub flow: [u32; LANES],
    /// See [`FlowReport::flows`](FlowReport::flows).
    pub flows: [u32; LANES],
    /// See [`FlowReport::acked`](FlowReport::acked).
    pub acked: [u32; LANES],
    /// Now: [`FlowReport::t4`](FlowReport::t4).
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
    /// Puts the fields of `report` into lane `lane`.
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

/// What a controller answers: [`FlowActions`], field by field.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
pub struct Answers {
    /// The flow's window, with 10 fractional bits.
    pub fcwnd: [u32; LANES],
    /// The window towards the NIC, in packets.
    pub ncwnd: [u32; LANES],
    /// Pacing, in slots.
    pub gap: [u32; LANES],
    /// Retransmission timeout.
    pub rto: [Ticks; LANES],
    /// RACK's timeout.
    pub rack: [Ticks; LANES],
    /// Time until a tail loss probe.
    pub tlp: [Ticks; LANES],
    /// One for a new label, zero for none.
    pub repath: [u32; LANES],
    /// Code of the share of resources for requests.
    pub alpha_requests: [u32; LANES],
    /// Code of the share of resources for responses.
    pub alpha_responses: [u32; LANES],
    /// Code of how often to ask for acknowledgements.
    pub ack_rate: [u32; LANES],
}

impl Answers {
    /// What lane `lane` says.
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

/// Where the state of each lane lies.
pub trait StateLanes<S> {
    /// The state of lane `lane`, below [`LANES`]. No two lanes of a set share one.
    fn state(&mut self, lane: usize) -> &mut S;
}
