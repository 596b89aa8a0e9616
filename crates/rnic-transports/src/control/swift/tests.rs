//! Swift compared with its formulas, and tests of the mechanisms that are observable from outside.

use rnic_base::{BitRate, RandomStreams, Time};
use rnic_policy::control::report::{Alpha, CurrentSettings};
use rnic_policy::kit::report;

use super::*;

#[path = "tests/published.rs"]
mod published;

const VIEW: ControlView = ControlView { now: Time::ZERO, line_rate: BitRate::gbps(200), mtu: 4_096, in_flight: 0 };

/// One connection, and a datapath that applies Swift's actions.
#[derive(Clone)]
struct Driver {
    swift: Swift,
    params: Params,
    now: u32,
    fcwnd: [Cwnd; 8],
    flows: u8,
    last: FlowActions,
}

impl Driver {
    fn new(options: &[(&str, &str)]) -> Self {
        let mut params = Params::defaults(Swift::PARAMS);
        for (name, value) in options {
            assert_eq!(params.set(Swift::PARAMS, name, value), Ok(true), "{name}");
        }
        let (swift, first) = Swift::start(&params, &VIEW);
        let last = first.flow.expect("the start sets flow actions");
        Self { swift, params, now: 0, fcwnd: [last.fcwnd; 8], flows: 1, last }
    }

    /// Returns a report of flow `flow` for a packet with fabric delay `delay`, in ticks, that waited `wait` at the
    /// receiver.
    fn report(&self, flow: u8, kind: ReportKind, acked: u16, delay: u32, wait: u32) -> FlowReport {
        let in_force = CurrentSettings { fcwnd: self.fcwnd[usize::from(flow)], ..self.last.in_force() };
        let times = [delay - delay / 2, wait, delay / 2];
        FlowReport { kind, acked, flows: self.flows, ..report(flow, Ticks::new(self.now), times, in_force) }
    }

    fn on_report(&mut self, report: FlowReport) -> FlowActions {
        let actions = self.swift.on_event(&ControlEvent::Reported(report), &VIEW, &self.params);
        self.last = actions.flow.expect("every report has a response");
        self.fcwnd[usize::from(report.flow)] = self.last.fcwnd;
        self.last
    }

    /// Advances the time by `after` ticks; then `acked` packets of flow 0 are acknowledged with fabric delay `delay`.
    fn ack(&mut self, after: u32, acked: u16, delay: u32) -> FlowActions {
        self.now = self.now.wrapping_add(after);
        self.on_report(self.report(0, ReportKind::Acked, acked, delay, 0))
    }

    /// Advances the time by `after` ticks; then an acknowledgement reports `rx_level` as the occupancy of the
    /// receiver's buffers.
    fn report_level(&mut self, after: u32, rx_level: u8) -> u16 {
        self.now = self.now.wrapping_add(after);
        let report = self.report(0, ReportKind::Acked, 0, 100, 0);
        self.on_report(FlowReport { rx_level, ..report }).ncwnd
    }

    fn retransmit(&mut self, after: u32, flow: u8, count: u8, early: bool) -> FlowActions {
        self.now = self.now.wrapping_add(after);
        self.on_report(self.report(flow, ReportKind::Retransmitted { count, early }, 0, 0, 0))
    }
}

/// Returns the window in packets.
fn packets(actions: &FlowActions) -> f64 {
    actions.fcwnd.fixed() as f64 / 65_536.0
}

/// The specification's formulas for one flow, in floating point.
struct Exact {
    fcwnd: f64,
    srtt: f64,
    marker: u32,
}

impl Exact {
    fn target(&self, hops: f64) -> f64 {
        let (range, smallest, largest) = (763.0, 0.1f64, 256.0f64);
        let alpha = range / (1.0 / smallest.sqrt() - 1.0 / largest.sqrt());
        191.0 + hops * 8.0 + (alpha / self.fcwnd.sqrt() - alpha / largest.sqrt()).clamp(0.0, range)
    }

    fn ack(&mut self, now: u32, acked: f64, delay: f64, hops: f64) {
        self.srtt = if self.srtt == 0.0 { delay } else { 0.75 * self.srtt + 0.25 * delay };
        let target = self.target(hops);
        if delay <= target {
            self.fcwnd += if self.fcwnd >= 1.0 { acked / self.fcwnd } else { acked };
        } else if f64::from(Ticks::new(now).since(Ticks::new(self.marker)).get()) >= self.srtt {
            self.fcwnd *= (1.0 - 0.8 * (delay - target) / delay).max(0.5);
            self.marker = now;
        }
        self.fcwnd = self.fcwnd.clamp(0.01, 256.0);
    }
}

/// Each step starts from the window of the integer implementation, so that the error of a single step is compared.
#[test]
fn every_step_is_within_its_error_of_the_formulas() {
    let mut random = RandomStreams::new(11).stream("swift");
    let mut driver = Driver::new(&[]);
    let mut worst: f64 = 0.0;
    for _ in 0..200_000 {
        let mut exact = Exact { fcwnd: packets(&driver.last), srtt: 0.0, marker: 0 };
        let flow = driver.swift.flow(0);
        (exact.srtt, exact.marker) = (f64::from(flow.srtt.get()), flow.marker.get());
        let (acked, delay) = (random.below(10) as u16, random.between(20, 1_200) as u32);
        driver.now += random.between(1, 400) as u32;
        let hops = random.below(7) as u8;
        // The implementation compares whole ticks; at the threshold, formula and implementation may decide
        // differently.
        let rounding = (f64::from(delay) - exact.target(f64::from(hops))).abs() <= 1.1;
        let since = f64::from(Ticks::new(driver.now).since(flow.marker).get());
        let gate = (since - (0.75 * exact.srtt + 0.25 * f64::from(delay))).abs() <= 1.0;
        let report = driver.report(0, ReportKind::Acked, acked, delay, 0);
        let made = packets(&driver.on_report(FlowReport { hops, ..report }));
        exact.ack(driver.now, f64::from(acked), f64::from(delay), f64::from(hops));
        if !rounding && !gate {
            let error = (made - exact.fcwnd).abs() - exact.fcwnd * 0.002;
            worst = worst.max(error);
        }
        driver.now &= (1 << 22) - 1;
    }
    assert!(worst <= 1.0 / 1_024.0, "the error of a step is {worst} packets larger than one tick of target causes");
}

#[test]
fn probe7_at_most_one_decrease_in_a_round_trip() {
    let mut driver = Driver::new(&[]);
    driver.ack(1_000, 0, 400);
    let mut cuts = Vec::new();
    let mut window = driver.last.fcwnd;
    for step in 1..=4_000 {
        driver.ack(1, 1, 400);
        if driver.last.fcwnd < window {
            cuts.push(step);
        }
        window = driver.last.fcwnd;
        if packets(&driver.last) < 2.0 {
            break;
        }
    }
    assert!(cuts.len() > 3, "{cuts:?}");
    assert!(cuts.windows(2).all(|pair| pair[1] - pair[0] == 400), "{cuts:?}");
}

#[test]
fn probe7_the_gate_survives_the_wrap_of_24_bits() {
    for start in [0, Ticks::MAX.get() - 450, Ticks::MAX.get() - 399, Ticks::MAX.get()] {
        let mut driver = Driver::new(&[]);
        driver.now = start;
        let first = packets(&driver.ack(0, 0, 400));
        let second = packets(&driver.ack(399, 0, 400));
        assert_eq!(second, first, "cut within a round trip, start {start}");
        let third = packets(&driver.ack(1, 0, 400));
        assert!(third < second, "not cut after a round trip, start {start}");
        // Delays below the target for longer than the time counter's range: the marker is advanced with the time, and
        // the next delay above the target causes an immediate decrease.
        for _ in 0..200 {
            driver.ack(100_000, 0, 100);
        }
        let before = packets(&driver.last);
        assert!(packets(&driver.ack(150, 0, 400)) < before, "start {start}");
        // The same after one wrap of the counter, when a marker that was not advanced would appear to be slightly in
        // the future.
        for _ in 0..4 {
            driver.ack((Ticks::MAX.get() - 139) / 4, 0, 100);
        }
        let before = packets(&driver.last);
        assert!(packets(&driver.ack(150, 0, 400)) < before, "start {start}");
    }
}

#[test]
fn f20_probe7_a_window_below_one_packet_sends_one_packet_per_several_round_trips() {
    let mut driver = Driver::new(&[]);
    for _ in 0..40 {
        driver.ack(20_000, 0, 3_000);
    }
    let window = packets(&driver.last);
    assert!((0.0095..0.0105).contains(&window), "not the smallest window: {window}");
    // The packet is in flight for a round trip, then the gap elapses.
    let between = f64::from(driver.last.gap.get()) * 0.512 + 3_000.0 * 0.131_072;
    let expected = 3_000.0 * 0.131_072 / window;
    assert!((between / expected - 1.0).abs() < 0.001, "{between} us between packets, expected {expected}");
    let report = driver.report(0, ReportKind::Acked, 1, 900, 0);
    let grown = driver.on_report(report);
    assert_eq!(
        (grown.gap, packets(&grown)),
        (Gap::NONE, 1.0 + 10.0 / 1_024.0),
        "below one packet: not increased by ai n"
    );
}

#[test]
fn probe7_ncwnd_is_whole_packets_and_moves_as_specified() {
    let mut driver = Driver::new(&[]);
    driver.report_level(1_000, 0);
    assert_eq!(driver.last.ncwnd, 65, "not increased at once, although the last change was no increase");
    assert_eq!(
        [driver.report_level(50, 14), driver.report_level(49, 14), driver.report_level(1, 14)],
        [65, 65, 66],
        "not once a round trip after that"
    );
    // 66 * (1 - 0.8 * (20 - 15) / 20) = 52.8; 52 * (1 - 0.8 * 16 / 31) = 30.5.
    assert_eq!([driver.report_level(99, 20), driver.report_level(1, 20), driver.report_level(99, 31)], [66, 52, 52]);
    assert_eq!(
        [driver.report_level(1, 31), driver.report_level(1, 15)],
        [30, 30],
        "changed within a round trip, at the target"
    );
    assert_eq!(
        [driver.report_level(1, 14), driver.report_level(1, 14)],
        [31, 31],
        "not increased at once after a decrease"
    );
    let refused = driver.report(0, ReportKind::Nacked { code: NACK_RESOURCES }, 0, 100, 0);
    assert_eq!(driver.on_report(refused).ncwnd, 16, "not halved by a NACK right after an increase");
    assert_eq!(driver.on_report(refused).ncwnd, 16, "halved twice in a round trip");
    for _ in 0..20 {
        driver.report_level(1_000, 31);
    }
    assert_eq!(driver.last.ncwnd, 1, "not one packet at the minimum");
}

#[test]
fn f18_the_largest_window_closes_when_buffers_fill_at_any_report_rate() {
    let mut driver = Driver::new(&[]);
    let grown = (0..300).map(|_| driver.report_level(100, 0)).max();
    assert_eq!(grown, Some(256));
    // Ten acknowledgements per round trip of 100 ticks.
    let windows: Vec<u16> = (0..30).map(|_| driver.report_level(10, 31)).collect();
    assert_eq!((windows[8], windows[29]), (256, 51), "not reduced by a factor of 0.587 per round trip: {windows:?}");
    let closed = (0..100).map(|_| driver.report_level(100, 31)).min();
    assert_eq!(closed, Some(1));
    assert_eq!(
        [driver.report_level(1, 0), driver.report_level(1, 0)],
        [2, 2],
        "not opened once at once, and then once a round trip"
    );
}

#[test]
fn f16_each_window_reacts_only_to_its_own_signal() {
    let mut fabric = Driver::new(&[]);
    let mut nic = Driver::new(&[]);
    for _ in 0..10 {
        fabric.ack(2_000, 1, 1_500);
        nic.report_level(2_000, 31);
    }
    assert!(packets(&fabric.last) < 4.0 && fabric.last.ncwnd > 64, "{:?}", fabric.last);
    assert!(packets(&nic.last) >= 32.0 && nic.last.ncwnd < 8, "{:?}", nic.last);
    let mut ncwnd_off = Driver::new(&[("rx_target", "32")]);
    (0..500).for_each(|_| assert!(ncwnd_off.report_level(2_000, 31) > 64));
    assert_eq!(ncwnd_off.last.ncwnd, 256, "ncwnd follows the level although it is disabled");
}

/// A target of 32 disables control of the NIC window: neither levels nor NACKs for lack of resources change it. With
/// 31, the next lower target, both do.
#[test]
fn f18_ncwnd_can_be_disabled() {
    let refuse = |driver: &mut Driver| {
        driver.now += 1_000;
        driver.on_report(driver.report(0, ReportKind::Nacked { code: NACK_RESOURCES }, 0, 100, 0))
    };
    let mut ncwnd_off = Driver::new(&[("rx_target", "32")]);
    assert_eq!(ncwnd_off.last.ncwnd, 256, "not the maximum window");
    for _ in 0..100 {
        assert_eq!((refuse(&mut ncwnd_off).ncwnd, ncwnd_off.report_level(1_000, 31)), (256, 256));
        assert_eq!(ncwnd_off.retransmit(1_000, 0, 1, true).ncwnd, 256);
    }
    let mut uses_events = Driver::new(&[("rx_target", "31")]);
    assert_eq!((uses_events.last.ncwnd, refuse(&mut uses_events).ncwnd), (64, 32), "not halved by a refusal");
    assert_eq!(uses_events.report_level(1, 30), 33);
}

/// With windows at their maximum, a connection counts as uncongested, however small the maximum is and whatever the
/// initial window is.
#[test]
fn f36_a_share_is_relative_to_the_initial_windows() {
    for (most, first) in [("8", "32"), ("256", "1024")] {
        let options = [("window_max", most), ("initial_window", first)];
        let mut driver = Driver::new(&options);
        let uncongested = driver.ack(500, 1, 100);
        assert_eq!([uncongested.alpha_requests, uncongested.alpha_responses], [Alpha::code(3); 2], "{options:?}");
        for _ in 0..40 {
            driver.ack(5_000, 0, 2_000);
        }
        assert!(driver.last.alpha_requests >= Alpha::code(8), "{options:?}: not lower with small windows");
    }
}

/// A probe is sent after two round trips and 8 us, a timeout is at least two round trips and 250 us: above 121 us the
/// timeout is earlier. Both formulas are those of the sources.
#[test]
fn f12_probes_come_before_timeouts_up_to_121_us_of_round_trip() {
    let times = |us: u64| {
        let actions = Driver::new(&[]).ack(5_000, 1, Ticks::of(Duration::from_us(us)).get());
        (actions.tlp, actions.rto)
    };
    assert!([1, 10, 50, 120].map(times).iter().all(|(tlp, rto)| tlp < rto));
    assert!([122, 200, 1_000].map(times).iter().all(|(tlp, rto)| tlp > rto));
}

#[test]
fn f17_a_coalesced_acknowledgement_does_not_look_like_congestion() {
    let mut prompt = Driver::new(&[]);
    let mut late = Driver::new(&[]);
    for _ in 0..50 {
        prompt.ack(500, 4, 150);
        late.now += 500;
        let report = late.report(0, ReportKind::Acked, 4, 150, 300);
        late.on_report(report);
    }
    assert_eq!(prompt.last.fcwnd, late.last.fcwnd);
    assert!(late.last.rto >= prompt.last.rto && late.last.tlp > prompt.last.tlp, "the round trip did not grow");
}

#[test]
fn f15_timeouts_follow_a_round_trip_that_grows_tenfold() {
    let mut driver = Driver::new(&[("rto_min", "1us")]);
    let first = driver.last;
    assert!(
        [first.rto, first.rack, first.tlp].iter().all(|t| t.duration() > Duration::from_us(999)),
        "not UNMEASURED before the first sample"
    );
    for _ in 0..40 {
        driver.ack(500, 1, 100);
    }
    let [rto, rack, tlp] = [driver.last.rto, driver.last.rack, driver.last.tlp].map(Ticks::get);
    assert_eq!([rto, rack, tlp], [200, 125, 261], "2 rtt; rtt + rtt/4; 2 rtt + 8 us");
    driver.ack(500, 1, 1_000);
    assert_eq!(driver.last.rack.get(), 1_000 + 82, "RACK does not follow the newest round trip");
    for _ in 0..40 {
        driver.ack(2_000, 1, 1_000);
    }
    let gap = driver.last.gap.ticks() as u32;
    let grown = [driver.last.rto, driver.last.rack, driver.last.tlp].map(Ticks::get);
    let expected = [2_000 + gap, 1_250, 2_061];
    assert!(grown.iter().zip(expected).all(|(made, wanted)| made.abs_diff(wanted) <= 5), "{grown:?} {expected:?}");
    assert_eq!(Driver::new(&[]).ack(500, 1, 100).rto.get(), 1_907, "not rto_min");
}

/// An initial window of 32 packets with a minimum of 48.
#[test]
fn f40_an_initial_window_below_the_minimum_is_raised_in_the_stateless_form_too() {
    let mut driver = Driver::new(&[("initial_window", "32"), ("window_min", "49152")]);
    let report = driver.report(0, ReportKind::Acked, 0, 100, 0);
    let carried = driver.swift.carry().expect("the state can be carried");
    let mut restored = Swift::restore(&carried, &report, &driver.params).expect("the state can be restored");
    let stateless = restored.on_event(&ControlEvent::Reported(report), &VIEW, &driver.params).flow;
    assert_eq!(stateless, Some(driver.on_report(report)));
    assert_eq!(packets(&driver.last), 48.0);
}

/// The carried state describes only the report's flow: the responses equal those of an engine whose state contains
/// only this flow.
#[test]
fn f40_each_flow_carries_its_own_state() {
    for (flow, flows) in [(0, 1), (0, 5), (2, 4), (5, 6), (5, 8)] {
        let (mut driver, mut carried) = (Driver::new(&[]), Carried::default());
        driver.flows = flows;
        for step in 0..300 {
            driver.now += 37;
            let kind =
                if step % 50 == 49 { ReportKind::Retransmitted { count: 1, early: false } } else { ReportKind::Acked };
            let report = driver.report(flow, kind, 3, 100 + step * 7 % 400, 5);
            let mut restored = Swift::restore(&carried, &report, &driver.params).expect("the state can be restored");
            let stateless = restored.on_event(&ControlEvent::Reported(report), &VIEW, &driver.params).flow;
            carried = restored.carry().expect("the state can be carried");
            assert_eq!(stateless, Some(driver.on_report(report)), "flow {flow} of {flows}, step {step}");
        }
    }
}

/// After a round trip has been measured, 100 ticks here, Swift computes the times of RACK and TLP from the options of
/// `rack-tlp`.
#[test]
fn f15_rack_and_tlp_times_use_the_options_of_recovery() {
    let times = |options: &[(&str, &str)]| {
        let mut driver = Driver::new(options);
        assert_eq!(
            [driver.last.rack, driver.last.tlp],
            [timeouts::UNMEASURED; 2],
            "{options:?}: measured before the first sample"
        );
        driver.ack(500, 1, 100);
        [driver.last.rack, driver.last.tlp].map(Ticks::get)
    };
    assert_eq!(times(&[]), [125, 261], "rtt + rtt/4; 2 rtt + 8 us");
    assert_eq!(times(&[("reorder_percent", "0")]), [100, 261]);
    assert_eq!(times(&[("reorder_percent", "301")]), [401, 261]);
    assert_eq!(times(&[("reorder_min", "20us")]), [100 + 153, 261], "20 us are 152.6 ticks");
    assert_eq!(times(&[("reorder_min", "3us")]), [125, 261], "a quarter of the round trip is more");
    assert_eq!(times(&[("probe_percent", "150")]), [125, 150 + 61]);
    assert_eq!(times(&[("probe_extra", "1ns")]), [125, 200]);
    assert_eq!(times(&[("probe_min", "100us")]), [125, 763]);
    assert_eq!(times(&[("probe_min", "10us")]), [125, 261], "the minimum has an effect although it is shorter");
}

/// With the longest round trip and the largest value of every parameter, the times fit into 24 bits.
#[test]
fn no_timeout_exceeds_24_bits() {
    let large = [("reorder_percent", "400"), ("probe_percent", "1600"), ("probe_extra", "2s")];
    let driver = Driver::new(&large);
    let (timeouts, longest) = (timeouts_of(&driver.params), Ticks::new(Ticks::MAX.get() / 2));
    assert_eq!([timeouts.rack(longest, Ticks::MAX, longest), timeouts.tlp(Ticks::MAX, longest)], [Ticks::MAX; 2]);
}

#[test]
fn f23_every_response_contains_every_result() {
    let mut driver = Driver::new(&[]);
    let uncongested = driver.ack(500, 3, 100);
    assert_eq!(packets(&uncongested), 32.0 + 96.0 / 1_024.0, "fcwnd: 3/32 more");
    assert_eq!(uncongested.ncwnd, 65);
    assert_eq!(uncongested.gap, Gap::NONE);
    assert_eq!(
        (uncongested.alpha_requests, uncongested.alpha_responses),
        (Alpha::code(3), Alpha::code(3)),
        "not the share of an uncongested connection"
    );
    assert_eq!(uncongested.ack_rate, AckRate::code(4), "not one acknowledgement in 8.5 packets");
    for _ in 0..8 {
        driver.ack(5_000, 0, 2_500);
    }
    assert!(packets(&driver.last) < 2.0);
    assert_eq!(driver.last.ack_rate, AckRate::ALL, "not every packet while the window is two or less");
}

#[test]
fn retransmissions_cut_once_and_then_close_the_window() {
    let mut driver = Driver::new(&[]);
    driver.ack(1_000, 0, 100);
    assert_eq!(packets(&driver.retransmit(200, 0, 1, true)), 16.0);
    assert_eq!(packets(&driver.retransmit(99, 0, 1, true)), 16.0, "the same round trip");
    assert_eq!(packets(&driver.retransmit(200, 0, 2, true)), 16.0, "cut again by a second retransmission");
    assert_eq!(
        packets(&driver.retransmit(200, 0, 3, false)),
        10.0 / 1_024.0,
        "not the minimum after three retransmissions"
    );
}

#[test]
fn f30_plb_moves_a_flow_after_five_congested_rounds_in_a_row() {
    let mut driver = Driver::new(&[]);
    let round = |delay: u32, driver: &mut Driver| {
        let window = packets(&driver.last).floor().max(1.0) as u16;
        driver.ack(5_000, window, delay).repath
    };
    assert!((0..4).all(|_| !round(2_000, &mut driver)));
    assert!(!round(60, &mut driver), "moved after an uncongested round");
    let moves: Vec<bool> = (0..10).map(|_| round(2_000, &mut driver)).collect();
    let at: Vec<usize> = moves.iter().enumerate().filter(|(_, moved)| **moved).map(|(index, _)| index).collect();
    assert_eq!(at, [4, 9], "not after every five congested rounds");
    let mut never = Driver::new(&[("plb_rounds", "0")]);
    assert!((0..100).all(|_| !round(2_000, &mut never)));
}

#[test]
fn f30_prr_moves_a_flow_whose_packets_time_out_repeatedly() {
    let mut driver = Driver::new(&[]);
    driver.ack(1_000, 0, 100);
    assert!(!driver.retransmit(2_000, 0, 1, false).repath, "moved after one timeout");
    assert!(!driver.retransmit(2_000, 0, 2, true).repath, "moved after an early retransmission");
    assert!(driver.retransmit(2_000, 0, 2, false).repath);
    let burst: Vec<bool> = (0..20).map(|_| driver.retransmit(1, 0, 2, false).repath).collect();
    assert!(burst.iter().all(|moved| !moved), "moved twice in one round trip");
    assert!(driver.retransmit(2_000, 0, 3, false).repath, "not moved again from the new path");
    assert!((0..9).all(|_| driver.retransmit(2_000, 0, 7, false).repath), "not moved at every later timeout");
}

#[test]
fn f36_congestion_of_one_connection_lowers_only_its_own_share() {
    let (mut slow, mut uncongested) = (Driver::new(&[]), Driver::new(&[]));
    let base = uncongested.ack(500, 1, 100);
    // Target: 191 + 246 / sqrt(32) - 15 = 219; 900 is more than four times that.
    let delayed = slow.ack(500, 0, 900);
    assert_eq!([delayed.alpha_requests, delayed.alpha_responses], [Alpha::code(5); 2], "not a quarter of the share");
    for _ in 0..30 {
        slow.ack(5_000, 0, 900);
    }
    let small_window = slow.last;
    assert!(
        packets(&small_window) < 1.0 && small_window.alpha_requests >= Alpha::code(8),
        "not reduced by the window: {small_window:?}"
    );
    let unchanged = uncongested.ack(500, 1, 100);
    assert_eq!((unchanged.alpha_requests, unchanged.alpha_responses), (base.alpha_requests, base.alpha_responses));
    let mut full = Driver::new(&[]);
    full.report_level(500, 31);
    let held = full.last;
    assert_eq!(
        (held.alpha_requests, held.alpha_responses),
        (Alpha::code(4), Alpha::code(3)),
        "not only requests are reduced"
    );
    assert_eq!(full.retransmit(500, 0, 1, false).alpha_requests, Alpha::code(4), "not half on retransmissions");
}

#[test]
fn f36_a_timeout_never_raises_a_share() {
    let shares = |actions: &FlowActions| [actions.alpha_requests, actions.alpha_responses];
    let mut uncongested = Driver::new(&[]);
    assert_eq!(shares(&uncongested.ack(500, 1, 100)), [Alpha::code(3); 2]);
    assert_eq!(shares(&uncongested.retransmit(5_000, 0, 1, false)), [Alpha::code(4); 2], "not half");
    assert_eq!(
        shares(&uncongested.ack(500, 1, 100)),
        [Alpha::code(3); 2],
        "not restored by an acknowledgement, with a window of 16"
    );
    let mut fresh = Driver::new(&[]);
    assert_eq!(
        shares(&fresh.retransmit(5_000, 0, 1, false)),
        [Alpha::code(4); 2],
        "not half before the first acknowledgement"
    );
    // The previous share may be lower because of the windows, or because of delays and levels, which reports of
    // retransmissions do not contain.
    let mut small_window = Driver::new(&[]);
    for _ in 0..30 {
        small_window.ack(5_000, 0, 900);
    }
    let mut delayed = Driver::new(&[]);
    delayed.ack(500, 0, 3_000);
    let mut full = Driver::new(&[("rx_target", "3")]);
    full.report_level(500, 31);
    assert_eq!(shares(&full.last), [Alpha::code(6), Alpha::code(3)], "not an eighth, for requests only");
    for (driver, least) in [(small_window, [8, 8]), (delayed, [6, 6]), (full, [6, 4])] {
        for (count, early) in [(1, false), (1, true), (2, false), (3, false), (7, false)] {
            let mut driver = driver.clone();
            let before = shares(&driver.last);
            let after = shares(&driver.retransmit(5_000, 0, count, early));
            assert!(after[0] >= before[0] && after[1] >= before[1], "{count}, {early}: {before:?}, {after:?}");
            assert!(after[0].get() >= least[0] && after[1].get() >= least[1], "{count}, {early}: {after:?}");
            assert!(
                count < 3 || after == [Alpha::code(14); 2],
                "not reduced by a window of 10/1024 of a packet: {after:?}"
            );
            assert_eq!(shares(&driver.retransmit(1, 0, 2, false)), after, "changed by a second retransmission");
        }
    }
}

#[test]
fn probe9_flows_have_separate_windows_and_share_timeout_and_gap() {
    let mut driver = Driver::new(&[("plb_rounds", "0")]);
    (driver.fcwnd, driver.flows) = ([Cwnd::packets(8); 8], 4);
    for step in 0..4_000u32 {
        driver.now += 100;
        let flow = (step % 4) as u8;
        let delay = if flow == 2 { 1_000 } else { 100 };
        let report = driver.report(flow, ReportKind::Acked, 2, delay, 0);
        driver.on_report(report);
    }
    let [a, b, slow, d, ..] = driver.fcwnd.map(|window| window.fixed() as f64 / 65_536.0);
    assert!(slow < 2.0 && [a, b, d].iter().all(|window| *window > 30.0), "{:?}", driver.fcwnd);
    assert_eq!(driver.last.rto.get(), 2_000, "not twice the longest round trip of the four");
    assert_eq!(driver.last.gap, Gap::NONE, "paced although the sum of the windows is above one packet");
    let total = f64::from(driver.swift.others(0, 4).and(&driver.swift.flow(0), 0, 4).fcwnd) / 1_024.0;
    assert!((total - (a + b + slow + d)).abs() < 1e-9);
}

#[test]
fn probe9_all_flows_are_paced_by_the_sum_of_their_windows() {
    let gap_of = |flows: u8| {
        let mut driver = Driver::new(&[]);
        driver.flows = flows;
        for step in 0..8 * 40u32 {
            driver.now += 20_000;
            let report = driver.report((step % u32::from(flows)) as u8, ReportKind::Acked, 0, 10_000, 0);
            driver.on_report(report);
        }
        let all = &driver.fcwnd[..usize::from(flows)];
        assert!(all.iter().all(|window| *window == cwnd(fabric::FCWND_MIN)), "{all:?}");
        let sum: u64 = all.iter().map(|window| window.fixed() >> 6).sum();
        assert_eq!(driver.last.gap, timers::gap(sum as u32, Ticks::new(10_000)), "{flows}");
        let timeouts = timeouts_of(&driver.params);
        assert_eq!(driver.last.rto, timeouts.rto(Ticks::new(10_000), driver.last.gap, Ticks::ZERO), "{flows}");
        driver.last.gap.ticks()
    };
    let gaps = [1, 2, 3, 4, 5, 6, 7, 8].map(gap_of);
    assert!(gaps.is_sorted_by(|more, less| more > less), "{gaps:?}");
}

#[test]
fn swift_controls_a_transport_without_reports_by_round_trips_alone() {
    let params = Params::defaults(Swift::PARAMS);
    let (mut swift, first) = Swift::start(&params, &VIEW);
    assert_eq!(first.window, Some(Cwnd::packets(32)));
    let mut now = Time::ZERO;
    let mut event_after = |us: u64, event: ControlEvent| {
        now += Duration::from_us(us);
        swift.on_event(&event, &ControlView { now, ..VIEW }, &params)
    };
    let acked = |packets, rtt: Option<u64>| ControlEvent::Acked { packets, rtt: rtt.map(Duration::from_us), marked: 0 };
    assert_eq!(event_after(1, acked(31, None)), ControlActions::default(), "acted before the first sample");
    assert_eq!(
        event_after(1, acked(1, Some(20))).window,
        Some(Cwnd::packets(33)),
        "32 packets of a window of 32 did not add one packet"
    );
    let halved = event_after(100, ControlEvent::Nacked { lost: true }).window.expect("the window is cut");
    assert_eq!(halved, Cwnd::from_fixed(Cwnd::packets(33).fixed() / 2));
    assert_eq!(event_after(1, ControlEvent::Nacked { lost: false }), ControlActions::default());
    for _ in 0..3 {
        event_after(1_000, ControlEvent::TimedOut);
    }
    let closed = event_after(1, ControlEvent::TimedOut);
    assert_eq!(closed.window, Some(Cwnd::from_fixed(10 << 6)), "not the smallest window after three timeouts in a row");
    // 4096 bytes every 20 us / (10/1024).
    let rate = closed.rate.expect("a window below one packet sets a rate").as_bps() as f64;
    assert!((rate / (4_096.0 * 8.0 / (20e-6 * 102.4)) - 1.0).abs() < 0.02, "{rate}");
    let open = event_after(1_000, acked(1, Some(20)));
    assert_eq!(open.rate, Some(VIEW.line_rate), "still paced above one packet");
}

#[test]
fn no_window_is_below_its_minimum() {
    for (text, least) in [("10", 10), ("4096", 4_096)] {
        let mut driver = Driver::new(&[("window_min", text), ("plb_rounds", "0")]);
        for _ in 0..200 {
            driver.ack(9_000, 0, 4_000);
        }
        assert_eq!(driver.swift.flow(0).fcwnd, least, "below the minimum by delay");
        driver.retransmit(9_000, 0, 3, false);
        assert_eq!(driver.swift.flow(0).fcwnd, least, "below the minimum by losses");
    }
    let narrow = Driver::new(&[("window_min", "65536"), ("window_max", "2"), ("initial_window", "1")]);
    assert!(packets(&narrow.last) <= 2.0, "above window_max");
}
