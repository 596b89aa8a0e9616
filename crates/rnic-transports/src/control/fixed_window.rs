//! A window that never changes: Falcon without congestion control, or any transport with a fixed number of packets in
//! flight.
//!
//! Source: none. It is the baseline to compare controllers with, and the shortest program for Falcon's adaptive engine
//! (SIGCOMM'25, section 3: the engine is programmable, Falcon mechanism F-1). The timeouts that such a program must
//! return are computed as in Swift ([`timeouts`], specification Rev 0.9, section 10.3.4) with the same parameters, so
//! that the two programs differ only in their windows.
//!
//! Deviations: neither window reacts to anything, so a receiver whose buffers are full rejects packets (Falcon
//! mechanism F-34); paths are never changed (Falcon mechanism F-30).

use bytemuck::{Pod, Zeroable};
use rnic_policy::control::ControlInterest;
use rnic_policy::control::report::{FlowActions, FlowReport, Gap, ReportKind, Ticks};
use rnic_policy::paths::FLOWS_MAX;
use rnic_policy::{Control, ControlActions, ControlEvent, ControlView, ParamSpec, Params};

use super::swift::ack_rate;
use super::timeouts::{self, SHARED, Timeouts};

/// Smoothed round-trip times in ticks, by flow.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct FixedWindow {
    srtt: [u32; FLOWS_MAX],
}

const WINDOW_INDEX: usize = 0;
const RTO_MIN_INDEX: usize = 1;
/// Index of the first parameter that is [`SHARED`] with recovery.
const SHARED_FIRST_INDEX: usize = 2;

impl Control for FixedWindow {
    const NAME: &'static str = "fixed-window";
    const SUMMARY: &'static str = "a fixed window: no congestion control";
    const PARAMS: &'static [ParamSpec] = &[
        ParamSpec::count("window", 64, 1, 1_024, "packets, all flows of a connection together"),
        timeouts::RTO_MIN,
        SHARED[0],
        SHARED[1],
        SHARED[2],
        SHARED[3],
        SHARED[4],
    ];

    fn start(params: &Params, _: &ControlView) -> (Self, ControlActions) {
        let packets = params.get(WINDOW_INDEX);
        let flow = timeouts::first(packets, packets, ack_rate::of_packets(packets as u32));
        let actions = ControlActions { window: Some(flow.fcwnd), flow: Some(flow), ..ControlActions::default() };
        (Self::zeroed(), actions)
    }

    fn interest(_: &Params) -> ControlInterest {
        ControlInterest { reports: true, ..ControlInterest::default() }
    }

    fn on_event(&mut self, event: &ControlEvent, view: &ControlView, params: &Params) -> ControlActions {
        let ControlEvent::Reported(report) = event else { return ControlActions::default() };
        let first = Self::start(params, view).1;
        let flow = first.flow.map(|first| self.respond(report, first, params));
        ControlActions { flow, ..ControlActions::default() }
    }
}

impl FixedWindow {
    /// Returns the response to `report`: the flow keeps its share of the window, and timeouts follow the measured round
    /// trips.
    fn respond(&mut self, report: &FlowReport, first: FlowActions, params: &Params) -> FlowActions {
        let flow_srtt = &mut self.srtt[usize::from(report.flow) % FLOWS_MAX];
        let mut srtt = Ticks::new(*flow_srtt);
        let is_sample = !matches!(report.kind, ReportKind::Retransmitted { .. });
        let newest = if is_sample { report.rtt() } else { srtt };
        if is_sample {
            srtt = timeouts::smooth(srtt, newest);
            *flow_srtt = srtt.get();
        }
        let longest = Ticks::new(self.srtt.into_iter().max().unwrap_or(0));
        let (timeouts, before) =
            (Timeouts::of(params, RTO_MIN_INDEX, SHARED_FIRST_INDEX), timeouts::before(&report.in_force));
        FlowActions {
            fcwnd: report.in_force.fcwnd,
            rto: timeouts.rto(longest, Gap::NONE, before),
            rack: timeouts.rack(newest, srtt, before),
            tlp: timeouts.tlp(longest, before),
            ..first
        }
    }
}
