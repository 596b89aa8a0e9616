//! A window that never changes: Falcon without congestion control, or any transport with a fixed number of packets in
//! flight.
//!
//! Source: none of its own. It is the baseline to compare controllers with, and the shortest program for Falcon's
//! adaptive engine (SIGCOMM'25, section 3: the engine is programmable, F-1). The timeouts that such a program must
//! return are Swift's ([`waits`], specification Rev 0.9, section 10.3.4) with the same parameters, so that the two
//! differ in their windows alone.
//!
//! Deviations: neither window reacts to anything, so a receiver whose buffers are full refuses packets (F-34); paths
//! are never changed (F-30).

use bytemuck::{Pod, Zeroable};
use rnic_policy::control::ControlInterest;
use rnic_policy::control::report::{FlowActions, FlowReport, Gap, ReportKind, Ticks};
use rnic_policy::paths::FLOWS_MAX;
use rnic_policy::{Control, ControlActions, ControlEvent, ControlView, ParamSpec, Params};

use super::swift::ack_rate;
use super::waits::{self, SHARED, Waits};

/// Smoothed round-trip times in ticks, by flow.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct FixedWindow {
    srtt: [u32; FLOWS_MAX],
}

const WINDOW: usize = 0;
const RTO_MIN: usize = 1;
/// Index of the first parameter that is [`SHARED`] with recovery.
const SHARED_FIRST: usize = 2;

impl Control for FixedWindow {
    const NAME: &'static str = "fixed-window";
    const SUMMARY: &'static str = "a fixed window: no congestion control";
    const PARAMS: &'static [ParamSpec] = &[
        ParamSpec::count("window", 64, 1, 1_024, "packets, all flows of a connection together"),
        waits::RTO_MIN,
        SHARED[0],
        SHARED[1],
        SHARED[2],
        SHARED[3],
        SHARED[4],
    ];

    fn start(params: &Params, _: &ControlView) -> (Self, ControlActions) {
        let packets = params.get(WINDOW);
        let flow = waits::first(packets, packets, ack_rate::of_packets(packets as u32));
        let actions =
            ControlActions { window: Some(flow.fcwnd), flow: Some(flow), ..ControlActions::default() };
        (Self::zeroed(), actions)
    }

    fn interest(_: &Params) -> ControlInterest {
        ControlInterest { reports: true, ..ControlInterest::default() }
    }

    fn on_event(&mut self, event: &ControlEvent, view: &ControlView, params: &Params) -> ControlActions {
        let ControlEvent::Reported(report) = event else { return ControlActions::default() };
        let first = Self::start(params, view).1;
        let flow = first.flow.map(|first| self.answer(report, first, params));
        ControlActions { flow, ..ControlActions::default() }
    }
}

impl FixedWindow {
    /// Returns the response to `report`: the flow keeps its share of the window; timeouts follow the measured round
    /// trips.
    fn answer(&mut self, report: &FlowReport, first: FlowActions, params: &Params) -> FlowActions {
        let place = &mut self.srtt[usize::from(report.flow) % FLOWS_MAX];
        let mut srtt = Ticks::new(*place);
        let is_sample = !matches!(report.kind, ReportKind::Retransmitted { .. });
        let newest = if is_sample { report.rtt() } else { srtt };
        if is_sample {
            srtt = waits::smooth(srtt, newest);
            *place = srtt.get();
        }
        let longest = Ticks::new(self.srtt.into_iter().max().unwrap_or(0));
        let (waits, before) = (Waits::of(params, RTO_MIN, SHARED_FIRST), waits::before(&report.in_force));
        FlowActions {
            fcwnd: report.in_force.fcwnd,
            rto: waits.rto(longest, Gap::NONE, before),
            rack: waits.rack(newest, srtt, before),
            tlp: waits.tlp(longest, before),
            ..first
        }
    }
}
