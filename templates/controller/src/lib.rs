//! `my-controller`: a congestion controller, one type with the state of a queue pair.
//!
//! The controller to start from: a window that grows by a packet a round trip, and is cut, once a round trip, when the
//! receiver echoes congestion marks of switches (ECN). Events come from the engine, which applies the actions that are
//! returned: a window, a rate, a timer.

use bytemuck::{Pod, Zeroable};
use rnic_policy::control::ControlInterest;
use rnic_policy::{Control, ControlActions, ControlEvent, ControlView, Cwnd, ParamSpec, Params, Signals};

/// State of a queue pair: integers, at most 64 bytes (56 on Falcon), so that it fits into the memory of a NIC.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Controller {
    /// Window, in packets, with 16 fractional bits.
    window: u64,
    /// Packets that have to be acknowledged before the window is cut again.
    settling: u64,
}

/// Indices of the options.
const FIRST_WINDOW: usize = 0;
const CUT: usize = 1;

/// Largest window, in packets.
const WINDOW_MAX: u64 = 4_096;

impl Control for Controller {
    const NAME: &'static str = "my-controller";
    const SUMMARY: &'static str = "window: a packet more per round trip, an eighth less for marks";
    // Name, default, least, largest, help.
    const PARAMS: &'static [ParamSpec] = &[
        ParamSpec::count("first_window", 16, 1, WINDOW_MAX, "packets of the first window"),
        ParamSpec::count("cut", 8, 2, 64, "the window is cut by one part in this many"),
    ];

    fn start(params: &Params, _: &ControlView) -> (Self, ControlActions) {
        let state = Self { window: Cwnd::packets(params.get(FIRST_WINDOW)).fixed(), settling: 0 };
        (state, state.actions())
    }

    fn interest(_: &Params) -> ControlInterest {
        // A transport that does not measure one of these is refused with an error that names it.
        let needs = Signals::ACKS | Signals::MARKS;
        ControlInterest { needs, acked: true, echo: true, ..ControlInterest::default() }
    }

    fn on_event(&mut self, event: &ControlEvent, view: &ControlView, params: &Params) -> ControlActions {
        // Others: gaps, timeouts, notifications, ticks that an action has asked for.
        let ControlEvent::Acked { packets, marked, .. } = *event else { return ControlActions::default() };
        self.settling = self.settling.saturating_sub(packets);
        if marked == 0 {
            // One packet a round trip: an acknowledged packet adds its part of the window.
            self.window = (self.window + packets * (1 << 32) / self.window).min(Cwnd::packets(WINDOW_MAX).fixed());
        } else if self.settling == 0 {
            self.window = (self.window - self.window / params.get(CUT)).max(Cwnd::ONE.fixed());
            self.settling = view.in_flight.max(self.window >> 16);
        }
        self.actions()
    }
}

impl Controller {
    fn actions(self) -> ControlActions {
        ControlActions { window: Some(Cwnd::from_fixed(self.window)), ..ControlActions::default() }
    }
}
