//! AIMD: a window that grows by one packet per round trip and halves on loss.
//!
//! Source: IRN (SIGCOMM'18) section 4.4.4, "TCP's AIMD" on top of IRN; Chiu and Jain, "Analysis of the Increase and
//! Decrease Algorithms" (1989); RFC 5681 section 3.1 for the increase per acknowledgement. IRN's recovery has no slow
//! start, and neither has this controller.
//!
//! Deviations and choices:
//!
//! * until the first loss there is no window: flows start at line rate, within the static cap, as all of IRN's do
//!   (section 4.1). The first loss sets the window to half of the packets in flight. `initial_window` sets a window
//!   from the start;
//! * "once per round trip": after a cut, as many packets as were in flight must be acknowledged before another loss
//!   counts. All losses of one window of data count as one loss (as with RFC 6582's recovery point);
//! * a timeout is treated as any other loss. TCP falls back to one packet then; that is `new-reno`;
//! * the window grows only while it limits the sender (RFC 7661's first rule), and not before the cut window is
//!   acknowledged.

use bytemuck::{Pod, Zeroable};
use rnic_policy::control::ControlInterest;
use rnic_policy::{Control, ControlActions, ControlEvent, ControlView, ParamSpec, Params, Signals};

use super::window::Window;

/// Per-queue-pair state.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Aimd {
    window: Window,
    /// Number of packets that must be acknowledged before another loss counts.
    packets_until_next_loss: u64,
}

const INITIAL_WINDOW_INDEX: usize = 0;

impl Control for Aimd {
    const NAME: &'static str = "aimd";
    const SUMMARY: &'static str = "window: a packet more per round trip, half on loss (IRN 4.4.4)";
    const PARAMS: &'static [ParamSpec] = &[Window::initial(0)];

    fn start(params: &Params, _: &ControlView) -> (Self, ControlActions) {
        let window = Window::packets(params.get(INITIAL_WINDOW_INDEX));
        (Self { window, packets_until_next_loss: 0 }, window.actions())
    }

    fn interest(_: &Params) -> ControlInterest {
        let needs = Signals::ACKS | Signals::NACKS | Signals::TIMEOUTS;
        ControlInterest { needs, acked: true, ..ControlInterest::default() }
    }

    fn on_event(&mut self, event: &ControlEvent, view: &ControlView, _: &Params) -> ControlActions {
        match *event {
            ControlEvent::Acked { packets, .. } => {
                if self.packets_until_next_loss == 0 && self.window.limits(packets, view) {
                    self.window.add_per_round_trip(packets);
                }
                self.packets_until_next_loss = self.packets_until_next_loss.saturating_sub(packets);
            }
            ControlEvent::Nacked { lost: true } | ControlEvent::TimedOut if self.packets_until_next_loss == 0 => {
                self.window = self.window.or_packets(view.in_flight).reduced_by(1, 2);
                self.packets_until_next_loss = view.in_flight;
            }
            _ => return ControlActions::default(),
        }
        self.window.actions()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_base::{BitRate, Time};
    use rnic_policy::Cwnd;

    const LOST: ControlEvent = ControlEvent::Nacked { lost: true };

    fn view(in_flight: u64) -> ControlView {
        ControlView { now: Time::ZERO, line_rate: BitRate::gbps(40), mtu: 1_024, in_flight }
    }

    fn acked(packets: u64) -> ControlEvent {
        ControlEvent::Acked { packets, rtt: None, marked: 0 }
    }

    /// Acknowledges the packets of one window one by one; the window is always full.
    fn round(state: &mut Aimd, params: &Params) -> f64 {
        let packets = Cwnd::from_fixed(state.window.fixed()).whole_packets();
        let mut window = 0.0;
        for _ in 0..packets {
            let left = Cwnd::from_fixed(state.window.fixed()).whole_packets() - 1;
            let actions = state.on_event(&acked(1), &view(left), params);
            window = actions.window.expect("the window is set").fixed() as f64 / 65_536.0;
        }
        window
    }

    #[test]
    fn line_rate_until_the_first_loss_then_half_of_what_was_in_flight() {
        let params = Params::defaults(Aimd::PARAMS);
        let (mut state, first) = Aimd::start(&params, &view(0));
        assert_eq!(first, ControlActions::default());
        assert_eq!(state.on_event(&acked(1), &view(109), &params).window, None);
        assert_eq!(state.on_event(&LOST, &view(110), &params).window, Some(Cwnd::packets(55)));
    }

    #[test]
    fn a_packet_more_per_round_trip() {
        let params = Params::defaults(Aimd::PARAMS).with(INITIAL_WINDOW_INDEX, 20);
        let (mut state, _) = Aimd::start(&params, &view(0));
        for expected in [21.0, 22.0, 23.0] {
            let window = round(&mut state, &params);
            assert!((window - expected).abs() < 0.2, "{window} instead of {expected}");
        }
        let before = state.window.fixed();
        state.on_event(&acked(1), &view(3), &params);
        assert_eq!(state.window.fixed(), before, "an unused window grew");
    }

    #[test]
    fn losses_of_one_window_are_one_loss() {
        let params = Params::defaults(Aimd::PARAMS).with(INITIAL_WINDOW_INDEX, 64);
        let (mut state, _) = Aimd::start(&params, &view(0));
        assert_eq!(state.on_event(&LOST, &view(64), &params).window, Some(Cwnd::packets(32)));
        for event in [LOST, ControlEvent::TimedOut, acked(63), LOST] {
            let window = state.on_event(&event, &view(64), &params).window;
            assert!(window.is_none_or(|window| window == Cwnd::packets(32)), "{event:?}");
        }
        state.on_event(&acked(1), &view(1), &params);
        let cut = state.on_event(&LOST, &view(32), &params).window.expect("a new loss cuts the window");
        assert_eq!(cut.whole_packets(), 16);
        assert_eq!(state.on_event(&ControlEvent::Nacked { lost: false }, &view(9), &params).window, None);
    }

    #[test]
    fn the_window_is_at_least_one_packet() {
        let params = Params::defaults(Aimd::PARAMS).with(INITIAL_WINDOW_INDEX, 1);
        let (mut state, _) = Aimd::start(&params, &view(0));
        for _ in 0..10 {
            let cut = state.on_event(&ControlEvent::TimedOut, &view(1), &params).window;
            assert!(cut.is_none_or(|window| window == Cwnd::ONE));
            state.on_event(&acked(1), &view(0), &params);
        }
    }
}
