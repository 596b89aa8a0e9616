//! Swift on a transport without flows, timestamps and reports (IRN): controlled by round-trip times alone.
//!
//! The documentation of [`super`] lists the differences. A loss that is recovered without a timeout counts as a first
//! retransmission, consecutive timeouts as retransmissions of one packet. There is no ncwnd, since no receiver reports
//! its buffers.

use rnic_base::{BitRate, Duration};
use rnic_policy::control::report::Ticks;
use rnic_policy::{ControlActions, ControlEvent, ControlView, Params};

use super::state::Swift;
use super::unit::WINDOW_ONE;
use super::{
    INCREASE_INDEX, cwnd, fabric, initial_window, target_delay, timeouts, timers, window_max_fixed, window_min,
};

/// Maximum number of packets that the 10 bits of a report hold.
const ACKED_MAX: u64 = 1_023;

impl Swift {
    #[inline(never)]
    pub(super) fn on_plain_event(
        &mut self,
        event: &ControlEvent,
        view: &ControlView,
        params: &Params,
    ) -> ControlActions {
        let mut flow = self.flow(0);
        if flow.fcwnd == 0 {
            flow.fcwnd = initial_window(params);
        }
        let (before, now) = (flow.fcwnd, Ticks::at(view.now));
        match *event {
            ControlEvent::Acked { packets, rtt, .. } => {
                self.set_unsampled_packets((u64::from(self.unsampled_packets()) + packets).min(ACKED_MAX) as u16);
                if packets > 0 {
                    self.set_timeouts(0);
                }
                let Some(rtt) = rtt.map(Ticks::of) else { return ControlActions::default() };
                flow.srtt = timeouts::smooth(flow.srtt, rtt);
                let target = target_delay(flow.fcwnd, 0, params);
                let acked = u32::from(self.unsampled_packets());
                self.set_unsampled_packets(0);
                let changes = fabric::WindowChanges::of(flow.fcwnd, acked, rtt, params.get(INCREASE_INDEX));
                let sample = fabric::Sample { now, delay: rtt, target, changes };
                fabric::adapt(&mut flow, &sample, window_min(params), window_max_fixed(params));
            }
            ControlEvent::Nacked { lost: true } => record_loss(&mut flow, now, 1, window_min(params)),
            ControlEvent::TimedOut => {
                self.set_timeouts(self.timeouts() + 1);
                record_loss(&mut flow, now, self.timeouts(), window_min(params));
            }
            _ => return ControlActions::default(),
        }
        self.set_flow(0, flow);
        let rate = match (before < WINDOW_ONE, flow.fcwnd < WINDOW_ONE) {
            (_, true) => Some(pace(flow.fcwnd, flow.srtt.duration(), view)),
            (true, false) => Some(view.line_rate),
            (false, false) => None,
        };
        ControlActions { window: Some(cwnd(flow.fcwnd)), rate, ..ControlActions::default() }
    }
}

fn record_loss(flow: &mut super::Flow, now: Ticks, count: u32, least: u32) {
    let is_open = timers::is_gate_open(now, flow.marker, flow.srtt);
    let cuts = fabric::on_loss(flow, count, is_open, least);
    timers::settle(&mut flow.marker, now, flow.srtt, cuts || flow.fcwnd == least);
}

/// Returns the rate of one full packet every rtt/fcwnd.
fn pace(fcwnd: u32, srtt: Duration, view: &ControlView) -> BitRate {
    let span = srtt.as_ps().max(1) * u64::from(WINDOW_ONE) / u64::from(fcwnd.max(1));
    let rate = BitRate::from_transfer(u64::from(view.mtu), Duration::from_ps(span.max(1)));
    rate.min(view.line_rate).max(BitRate::bps(1))
}
