//! Timeouts and windows of TCP, worked out by hand from the rules of RFC 6298, 5681 and 3465, which publish no numbers.

use rnic_base::rtt::RttEstimator;
use rnic_base::{BitRate, Duration, Time};
use rnic_policy::{Control, ControlEvent, ControlView, Params, RecoveryEvent};

use super::window::Window;
use crate::control::new_reno::NewReno;
use crate::recovery::tcp_sack::TcpSack;

/// Round trips, and SRTT, RTTVAR and RTO after each by rules 2.2 and 2.3 of RFC 6298, in microseconds:
///
/// * 100 ms: SRTT = R, RTTVAR = R / 2, RTO = 100 + 4 * 50;
/// * 180 ms: RTTVAR = 3/4 * 50 + 1/4 * |100 - 180| = 57.5, SRTT = 7/8 * 100 + 1/8 * 180 = 110, RTO = 110 + 4 * 57.5;
/// * 110 ms: RTTVAR = 3/4 * 57.5 + 1/4 * 0 = 43.125, SRTT = 110, RTO = 110 + 4 * 43.125.
const SAMPLES: [(u64, u64, u64); 3] =
    [(100_000, 100_000, 300_000), (180_000, 110_000, 340_000), (110_000, 110_000, 282_500)];

#[test]
fn rfc6298_the_timeout_follows_the_first_three_round_trips() {
    let mut estimator = RttEstimator::NEW;
    let mut window = Window::of::<TcpSack>(20, &[("rto_max", "4s")]);
    for (sample, smoothed, timeout) in SAMPLES {
        let [sample, smoothed, timeout] = [sample, smoothed, timeout].map(Duration::from_us);
        estimator.add_sample(sample);
        assert_eq!((estimator.smoothed(), estimator.timeout()), (Some(smoothed), Some(timeout)));
        let actions = window.event(RecoveryEvent::Acked { packets: 1, rtt: Some(sample) });
        assert_eq!(actions.rto, Some(Some(timeout)), "tcp-sack, {sample}");
    }
    // Rule 5.5: the timeout doubles when it expires; by 5.6 and 5.7 it stays so until a round trip is measured.
    for doublings in 1..=2 {
        let actions = window.event(RecoveryEvent::TimedOut { extended: false });
        assert_eq!(actions.rto, Some(Some(Duration::from_us(282_500 << doublings))));
    }
    assert_eq!(window.ack_up_to(3).rto, None, "an acknowledgement without a sample (Karn) changes it");
    let actions = window.event(RecoveryEvent::Acked { packets: 1, rtt: Some(Duration::from_ms(110)) });
    assert_eq!(actions.rto, Some(Some(Duration::from_ns(110_000_000 + 3 * 43_125_000))), "RTTVAR = 3/4 * 43.125");
}

/// Rules 2.2 and 2.3: where the variance vanishes, the granularity of the clock takes its place: 1 ms in software.
#[test]
fn rfc6298_the_granularity_is_the_least_margin() {
    let mut estimator = RttEstimator::NEW;
    (0..200).for_each(|_| estimator.add_sample(Duration::from_ms(100)));
    assert_eq!(estimator.timeout().map(|timeout| timeout >= Duration::from_ms(101)), Some(true));
    assert!(estimator.timeout() <= Some(Duration::from_ms(125)), "at most by the longest round trip: {estimator:?}");
}

/// A sender with this window, whose window is always full.
struct Sender(NewReno);

impl Sender {
    fn new(window: u64) -> Self {
        let params = Params::defaults(NewReno::PARAMS).with(0, window);
        Self(NewReno::start(&params, &view(0)).0)
    }

    /// Processes `event` with `in_flight` packets in flight after it; returns the window in packets.
    fn on(&mut self, event: ControlEvent, in_flight: u64) -> u64 {
        let actions = self.0.on_event(&event, &view(in_flight), &Params::defaults(NewReno::PARAMS));
        actions.window.expect("every event has an answer").fixed() >> 16
    }

    fn acked(&mut self, packets: u64, in_flight: u64) -> u64 {
        self.on(ControlEvent::Acked { packets, rtt: None, marked: 0 }, in_flight)
    }
}

fn view(in_flight: u64) -> ControlView {
    ControlView { now: Time::ZERO, line_rate: BitRate::gbps(40), mtu: 1_024, in_flight }
}

/// RFC 5681, section 3.1: in slow start each acknowledgement of a segment adds one (equation 2); after a loss the
/// threshold is half of FlightSize, 10 / 2 (equation 4), and from there on each adds a part of the window (equation 3):
/// 5.2, 5.39, 5.58, 5.76, 5.93, 6.10.
#[test]
fn rfc5681_slow_start_a_loss_and_congestion_avoidance() {
    let mut sender = Sender::new(4);
    assert_eq!([4, 5, 6, 7, 8, 9].map(|window| sender.acked(1, window - 1)), [5, 6, 7, 8, 9, 10]);
    assert_eq!(sender.on(ControlEvent::Nacked { lost: true }, 10), 5);
    assert_eq!(sender.acked(10, 5), 5, "the loss is repaired");
    let windows: Vec<u64> = (0..11).map(|_| sender.acked(1, 5)).collect();
    assert_eq!(windows, [5, 5, 5, 5, 5, 6, 6, 6, 6, 6, 6]);
    assert_eq!(sender.on(ControlEvent::Nacked { lost: true }, 3), 2, "at least two segments");
}

/// RFC 3465: segments count and not acknowledgements, so an acknowledgement of two segments adds two in slow start
/// (section 2.2, L = 2), and one after a timeout (section 2.3, L = 1). There is no L on purpose where nothing was lost:
/// an acknowledgement of five adds five, where the RFC adds two (the head of `new_reno.rs`).
#[test]
fn rfc3465_an_acknowledgement_of_two_segments_counts_twice() {
    let mut sender = Sender::new(10);
    assert_eq!(sender.acked(2, 8), 12);
    assert_eq!(sender.acked(5, 7), 17, "no L");
    assert_eq!(sender.on(ControlEvent::TimedOut, 16), 1);
    assert_eq!(sender.acked(2, 14), 2, "L = 1 after a timeout");
    assert_eq!(sender.acked(2, 12), 3);
}
