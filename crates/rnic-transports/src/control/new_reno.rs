//! NewReno: TCP's window, with slow start, fast recovery and a window of one packet after a timeout.
//!
//! Source: RFC 5681 (slow start, congestion avoidance), RFC 6582 (losses of one window are one loss), RFC 6928 (first
//! window of ten), RFC 3465 (bytes, here packets, are counted, not acknowledgements). Together with `tcp-sack` it is
//! the transport that IRN (SIGCOMM'18) section 4.6 calls iWARP's; Tonic (NSDI'20) has it as a program.
//!
//! Deviations and choices:
//!
//! * whole packets instead of bytes: a short last packet counts as one;
//! * the window is not inflated by duplicate acknowledgements, because the engine limits the packets in the network
//!   (RFC 6675's pipe, which excludes selectively acknowledged and lost packets) and not the outstanding packets;
//! * no limit on the increase per acknowledgement in slow start (RFC 3465), except one packet after a timeout (its
//!   section 2.3);
//! * a window that is not used does not grow (RFC 7661's first rule), and the window of an idle queue pair is not
//!   reset.

use bytemuck::{Pod, Zeroable};
use rnic_policy::control::ControlInterest;
use rnic_policy::{Control, ControlActions, ControlEvent, ControlView, ParamSpec, Params, Signals};

use super::window::Window;

/// Per-queue-pair state.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct NewReno {
    window: Window,
    /// Slow start threshold: below it the window doubles per round trip.
    threshold: Window,
    /// Number of packets that must be acknowledged before another loss counts: the packets in flight when the last
    /// loss was detected.
    packets_until_next_loss: u64,
    /// 1 while `packets_until_next_loss` counts down after a loss reported by NACKs; 2 after a timeout.
    recovers_from: u64,
}

const NACKS: u64 = 1;
const TIMEOUT: u64 = 2;

const INITIAL_WINDOW_INDEX: usize = 0;

impl Control for NewReno {
    const NAME: &'static str = "new-reno";
    const SUMMARY: &'static str = "window: TCP's slow start, congestion avoidance and fast recovery (RFC 5681, 6582)";
    const PARAMS: &'static [ParamSpec] = &[ParamSpec { min: 1, ..Window::initial(10) }];

    fn start(params: &Params, _: &ControlView) -> (Self, ControlActions) {
        let window = Window::packets(params.get(INITIAL_WINDOW_INDEX));
        (Self { window, threshold: Window::LARGEST, ..Self::zeroed() }, window.actions())
    }

    fn interest(_: &Params) -> ControlInterest {
        let needs = Signals::ACKS | Signals::NACKS | Signals::TIMEOUTS;
        ControlInterest { needs, acked: true, ..ControlInterest::default() }
    }

    fn on_event(&mut self, event: &ControlEvent, view: &ControlView, _: &Params) -> ControlActions {
        match *event {
            ControlEvent::Acked { packets, .. } => self.on_ack(packets, view),
            ControlEvent::Nacked { lost: true } if self.packets_until_next_loss == 0 => {
                self.threshold = self.half_of_flight(view);
                self.window = self.threshold;
                (self.packets_until_next_loss, self.recovers_from) = (view.in_flight, NACKS);
            }
            ControlEvent::TimedOut => {
                // RFC 5681, section 3.1: a packet that is lost again does not halve the threshold a second time.
                if self.recovers_from != TIMEOUT || self.packets_until_next_loss == 0 {
                    self.threshold = self.half_of_flight(view);
                }
                self.window = Window::packets(1);
                (self.packets_until_next_loss, self.recovers_from) = (view.in_flight, TIMEOUT);
            }
            _ => return ControlActions::default(),
        }
        self.window.actions()
    }
}

impl NewReno {
    fn on_ack(&mut self, packets: u64, view: &ControlView) {
        let repairs = self.packets_until_next_loss > 0;
        self.packets_until_next_loss = self.packets_until_next_loss.saturating_sub(packets);
        if packets == 0 || (repairs && self.recovers_from == NACKS) || !self.window.limits(packets, view) {
            return;
        }
        if self.window < self.threshold {
            self.window.add_up_to(if repairs { 1 } else { packets }, self.threshold);
        } else {
            self.window.add_per_round_trip(packets);
        }
    }

    /// Returns max(FlightSize / 2, 2 packets) (RFC 5681, equation 4).
    fn half_of_flight(&self, view: &ControlView) -> Window {
        let in_flight = Window::packets(view.in_flight.min(rnic_base::limits::OUTSTANDING_PACKETS_MAX));
        self.window.min(in_flight).reduced_by(1, 2).max(Window::packets(2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_base::{BitRate, Time};

    const LOST: ControlEvent = ControlEvent::Nacked { lost: true };

    struct Sender(NewReno);

    impl Sender {
        fn new(window: u64) -> Self {
            let params = Params::defaults(NewReno::PARAMS).with(INITIAL_WINDOW_INDEX, window);
            Self(NewReno::start(&params, &Self::view(0)).0)
        }

        fn view(in_flight: u64) -> ControlView {
            ControlView { now: Time::ZERO, line_rate: BitRate::gbps(40), mtu: 1_024, in_flight }
        }

        fn packets(&self) -> u64 {
            self.0.window.fixed() >> 16
        }

        fn event(&mut self, event: ControlEvent, in_flight: u64) -> u64 {
            self.0.on_event(&event, &Self::view(in_flight), &Params::defaults(NewReno::PARAMS));
            self.packets()
        }

        /// Acknowledges the packets of one window one by one; the window is always full.
        fn round(&mut self) -> u64 {
            for _ in 0..self.packets() {
                let in_flight = self.packets() - 1;
                self.event(ControlEvent::Acked { packets: 1, rtt: None, marked: 0 }, in_flight);
            }
            self.packets()
        }

        fn acked(&mut self, packets: u64, left: u64) -> u64 {
            self.event(ControlEvent::Acked { packets, rtt: None, marked: 0 }, left)
        }
    }

    #[test]
    fn slow_start_doubles_from_ten_per_round_trip() {
        let mut sender = Sender::new(10);
        assert_eq!([sender.round(), sender.round(), sender.round()], [20, 40, 80]);
    }

    #[test]
    fn fast_recovery_halves_once_and_grows_again_by_one_a_round_trip() {
        let mut sender = Sender::new(64);
        assert_eq!(sender.event(LOST, 64), 32);
        assert_eq!(sender.event(LOST, 64), 32, "cut twice in one window");
        assert_eq!(sender.acked(40, 40), 32, "grew in recovery, by a partial acknowledgement");
        assert_eq!(sender.acked(24, 32), 32);
        assert_eq!([sender.round(), sender.round()], [32, 33], "no congestion avoidance at the threshold");
        assert_eq!(sender.event(ControlEvent::Nacked { lost: false }, 33), 33, "cut by a duplicate that is not a loss");
    }

    #[test]
    fn a_timeout_starts_over_with_one_packet_up_to_half_of_what_was_in_flight() {
        let mut sender = Sender::new(64);
        assert_eq!(sender.event(ControlEvent::TimedOut, 64), 1);
        assert_eq!(sender.event(ControlEvent::TimedOut, 64), 1);
        assert_eq!(sender.0.threshold, Window::packets(32), "not halved exactly once for one window");
        assert_eq!(sender.acked(10, 54), 2, "grew by more than one packet per acknowledgement in recovery");
        sender.acked(54, 2);
        let rounds: Vec<u64> = (0..5).map(|_| sender.round()).collect();
        assert_eq!(rounds, [6, 12, 24, 32, 33]);
    }

    #[test]
    fn the_threshold_is_two_packets_at_least() {
        let mut sender = Sender::new(10);
        assert_eq!(sender.event(LOST, 1), 2);
    }
}
