//! DCTCP: a window cut in proportion to the share of marked packets.
//!
//! Source: "Data Center TCP" (SIGCOMM'10) section 3.1 and RFC 8257; IRN (SIGCOMM'18) section 4.4.4 runs it on top of
//! IRN's recovery. The receiver echoes each mark in the acknowledgement of its packet ([`ControlInterest::echo`]);
//! the switch does the marking: a step threshold at some 65 KB at 40 Gbit/s (section 3.4 of the source).
//!
//! Deviations and choices:
//!
//! * integers: alpha in 1/65536; g is a power of two, 1/16;
//! * until the first mark or loss there is no window, as for all of IRN's flows (section 4.1); `initial_window` sets
//!   a window from the start. There is no slow start;
//! * the cut is made on the first mark of a window and uses the current alpha (RFC 8257, section 3.3, step 8), at most
//!   once per window of data; alpha is updated when a window of data has been acknowledged, and starts at 1;
//! * a loss halves the window, as in TCP (RFC 8257, section 3.5), at most once per window of data; so does a timeout;
//! * where not every packet causes an acknowledgement, a mark counts for all packets that the acknowledgement covers;
//!   responses that are not acknowledged (reads over RoCE) echo no marks.

use bytemuck::{Pod, Zeroable};
use rnic_policy::control::ControlInterest;
use rnic_policy::{Control, ControlActions, ControlEvent, ControlView, ParamSpec, Params, Signals};

use super::window::Window;

/// Per-queue-pair state.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Dctcp {
    window: Window,
    /// Number of packets that must be acknowledged before another congestion signal counts.
    packets_until_next_loss: u64,
    /// Packets acknowledged in the current observation window.
    acked: u64,
    /// Marked packets among `acked`.
    marked: u64,
    /// Length of the current observation window, in packets.
    round: u64,
    /// Estimate of the share of marked packets, 65536 = 1.
    alpha: u64,
}

const ALPHA_ONE: u64 = 1 << 16;

const INITIAL_WINDOW_INDEX: usize = 0;
const GAIN_SHIFT_INDEX: usize = 1;

impl Control for Dctcp {
    const NAME: &'static str = "dctcp";
    const SUMMARY: &'static str = "window: cut by the share of packets that were marked (SIGCOMM'10)";
    const PARAMS: &'static [ParamSpec] = &[
        Window::initial(0),
        ParamSpec::count("gain_shift", 4, 1, 10, "g = 1/2^n: weight of the last window in alpha (section 3.1: 1/16)"),
    ];

    fn start(params: &Params, _: &ControlView) -> (Self, ControlActions) {
        let window = Window::packets(params.get(INITIAL_WINDOW_INDEX));
        (Self { window, alpha: ALPHA_ONE, ..Self::zeroed() }, window.actions())
    }

    fn interest(_: &Params) -> ControlInterest {
        let needs = Signals::ACKS | Signals::MARKS | Signals::NACKS | Signals::TIMEOUTS;
        ControlInterest { needs, acked: true, echo: true, ..ControlInterest::default() }
    }

    fn on_event(&mut self, event: &ControlEvent, view: &ControlView, params: &Params) -> ControlActions {
        match *event {
            ControlEvent::Acked { packets, marked, .. } => self.on_ack(packets, marked, view, params),
            ControlEvent::Nacked { lost: true } | ControlEvent::TimedOut => self.cut(1, 2, view.in_flight, view),
            _ => return ControlActions::default(),
        }
        self.window.actions()
    }
}

impl Dctcp {
    fn on_ack(&mut self, packets: u64, marked: u64, view: &ControlView, params: &Params) {
        let settled = self.packets_until_next_loss == 0;
        self.packets_until_next_loss = self.packets_until_next_loss.saturating_sub(packets);
        self.observe(packets, marked, view, params);
        if marked > 0 && settled {
            self.cut(self.alpha, 2 * ALPHA_ONE, view.in_flight.saturating_add(packets), view);
        } else if marked == 0 && settled && self.window.limits(packets, view) {
            self.window.add_per_round_trip(packets);
        }
    }

    /// Updates alpha = (1 - g) alpha + g F, once per window of data (equation 1).
    fn observe(&mut self, packets: u64, marked: u64, view: &ControlView, params: &Params) {
        self.acked += packets;
        self.marked += marked;
        if self.acked == 0 || self.acked < self.round {
            return;
        }
        let share = self.marked * ALPHA_ONE / self.acked;
        let shift = params.get(GAIN_SHIFT_INDEX);
        self.alpha = self.alpha - (self.alpha >> shift) + (share >> shift);
        (self.acked, self.marked, self.round) = (0, 0, view.in_flight);
    }

    /// Cuts the window by the fraction `part / whole` (equation 2); when there is no window yet, the new one is
    /// computed from the packets `in_flight`. Has no effect until all packets in flight at the last cut have been
    /// acknowledged.
    fn cut(&mut self, part: u64, whole: u64, in_flight: u64, view: &ControlView) {
        if self.packets_until_next_loss == 0 {
            self.window = self.window.or_packets(in_flight).reduced_by(part, whole);
            self.packets_until_next_loss = view.in_flight;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_base::{BitRate, Time};
    use rnic_policy::Cwnd;

    fn view(in_flight: u64) -> ControlView {
        ControlView { now: Time::ZERO, line_rate: BitRate::gbps(40), mtu: 1_024, in_flight }
    }

    /// Acknowledges `rounds` windows of 64 packets one by one; every `one_in`-th packet is marked.
    fn run(rounds: u64, one_in: u64) -> Dctcp {
        let params = Params::defaults(Dctcp::PARAMS);
        let (mut state, _) = Dctcp::start(&params, &view(0));
        for index in 0..rounds * 64 {
            let marked = u64::from(index % one_in == 0);
            state.on_event(&ControlEvent::Acked { packets: 1, rtt: None, marked }, &view(64), &params);
        }
        state
    }

    /// The fixed point of equation 1 is the share of marked packets; the old value is weighted by 15/16 per window.
    #[test]
    fn alpha_becomes_the_share_of_marked_packets() {
        for one_in in [1, 2, 4, 16] {
            let alpha = run(200, one_in).alpha as f64 / ALPHA_ONE as f64;
            let share = 1.0 / one_in as f64;
            assert!((alpha - share).abs() < 0.02, "one in {one_in}: alpha is {alpha}");
        }
        let params = Params::defaults(Dctcp::PARAMS);
        let (mut state, _) = Dctcp::start(&params, &view(0));
        state.round = 64;
        for _ in 0..10 * 64 {
            state.on_event(&ControlEvent::Acked { packets: 1, rtt: None, marked: 0 }, &view(64), &params);
        }
        let expected = (15.0_f64 / 16.0).powi(10);
        assert!((state.alpha as f64 / ALPHA_ONE as f64 - expected).abs() < 0.001);
    }

    /// cwnd = cwnd * (1 - alpha / 2), once per window of data (equation 2).
    #[test]
    fn the_cut_is_half_of_alpha() {
        let params = Params::defaults(Dctcp::PARAMS);
        for (alpha, left) in [(ALPHA_ONE, 50), (ALPHA_ONE / 2, 75), (ALPHA_ONE / 5, 90)] {
            let (mut state, first) = Dctcp::start(&params, &view(0));
            assert_eq!(first, ControlActions::default(), "not at line rate at first");
            (state.alpha, state.round) = (alpha, 1_000);
            let marked = ControlEvent::Acked { packets: 1, rtt: None, marked: 1 };
            let cut = state.on_event(&marked, &view(99), &params).window.expect("the window is set");
            assert!(cut.fixed().abs_diff(Cwnd::packets(left).fixed()) < 200, "alpha {alpha}: {cut:?}");
            for _ in 0..99 {
                assert_eq!(state.on_event(&marked, &view(99), &params).window, Some(cut), "cut twice in one window");
            }
            let next = state.on_event(&marked, &view(left), &params).window.expect("the window is set");
            assert!(next < cut, "not cut in the next window of data");
        }
    }

    #[test]
    fn loss_halves_the_window_and_marks_are_requested() {
        let params = Params::defaults(Dctcp::PARAMS);
        assert!(Dctcp::interest(&params).echo);
        let (mut state, _) = Dctcp::start(&params, &view(0));
        state.alpha = 0;
        let lost = ControlEvent::Nacked { lost: true };
        assert_eq!(state.on_event(&lost, &view(40), &params).window, Some(Cwnd::packets(20)));
        assert_eq!(state.on_event(&lost, &view(40), &params).window, Some(Cwnd::packets(20)));
    }
}
