//! Swift against its formulas, and what an observer of the mechanisms sees.

use rnic_base::{BitRate, RandomStreams, Time};
use rnic_policy::control::report::{Alpha, InForce};
use rnic_policy::kit::report;

use super::*;

const VIEW: ControlView = ControlView { now: Time::ZERO, line_rate: BitRate::gbps(200), mtu: 4_096, in_flight: 0 };

/// One connection and the datapath that applies what Swift says.
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
        let last = first.flow.expect("a first word on flows");
        Self { swift, params, now: 0, fcwnd: [last.fcwnd; 8], flows: 1, last }
    }

    /// A report on flow `flow`, whose packet took `delay` ticks in the fabric and waited `wait` at the receiver.
    fn report(&self, flow: u8, kind: ReportKind, acked: u16, delay: u32, wait: u32) -> FlowReport {
        let in_force = InForce { fcwnd: self.fcwnd[usize::from(flow)], ..self.last.in_force() };
        let times = [delay - delay / 2, wait, delay / 2];
        FlowReport { kind, acked, flows: self.flows, ..report(flow, Ticks::new(self.now), times, in_force) }
    }

    fn tell(&mut self, report: FlowReport) -> FlowActions {
        let actions = self.swift.on_event(&ControlEvent::Reported(report), &VIEW, &self.params);
        self.last = actions.flow.expect("every report is answered");
        self.fcwnd[usize::from(report.flow)] = self.last.fcwnd;
        self.last
    }

    /// `after` ticks later `acked` packets of flow 0 are acknowledged with `delay`.
    fn ack(&mut self, after: u32, acked: u16, delay: u32) -> FlowActions {
        self.now = self.now.wrapping_add(after);
        self.tell(self.report(0, ReportKind::Acked, acked, delay, 0))
    }

    /// `after` ticks later an acknowledgement says that the receiver's buffers stand at `rx_level`.
    fn level(&mut self, after: u32, rx_level: u8) -> u16 {
        self.now = self.now.wrapping_add(after);
        let report = self.report(0, ReportKind::Acked, 0, 100, 0);
        self.tell(FlowReport { rx_level, ..report }).ncwnd
    }

    fn again(&mut self, after: u32, flow: u8, count: u8, early: bool) -> FlowActions {
        self.now = self.now.wrapping_add(after);
        self.tell(self.report(flow, ReportKind::Retransmitted { count, early }, 0, 0, 0))
    }
}

/// A window in packets.
fn packets(actions: &FlowActions) -> f64 {
    actions.fcwnd.fixed() as f64 / 65_536.0
}

/// The formulas of the specification in floating point, for one flow.
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

/// Each step begins at the integers' own window, so that what is compared is the error of one step.
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
        // Whole ticks decide at the edge; there the two may decide differently.
        let rounding = (f64::from(delay) - exact.target(f64::from(hops))).abs() <= 1.1;
        let since = f64::from(Ticks::new(driver.now).since(flow.marker).get());
        let gate = (since - (0.75 * exact.srtt + 0.25 * f64::from(delay))).abs() <= 1.0;
        let report = driver.report(0, ReportKind::Acked, acked, delay, 0);
        let made = packets(&driver.tell(FlowReport { hops, ..report }));
        exact.ack(driver.now, f64::from(acked), f64::from(delay), f64::from(hops));
        if !rounding && !gate {
            let error = (made - exact.fcwnd).abs() - exact.fcwnd * 0.002;
            worst = worst.max(error);
        }
        driver.now &= (1 << 22) - 1;
    }
    assert!(worst <= 1.0 / 1_024.0, "a step is off by {worst} packets more than a tick of target explains");
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
        assert_eq!(second, first, "a round trip is not over, start {start}");
        let third = packets(&driver.ack(1, 0, 400));
        assert!(third < second, "a round trip is over, start {start}");
        // Below the target for longer than the circle: the marker follows, and the next excess is answered at once.
        for _ in 0..200 {
            driver.ack(100_000, 0, 100);
        }
        let before = packets(&driver.last);
        assert!(packets(&driver.ack(150, 0, 400)) < before, "start {start}");
        // The same where a marker that stayed behind would be just ahead, one time round.
        for _ in 0..4 {
            driver.ack((Ticks::MAX.get() - 139) / 4, 0, 100);
        }
        let before = packets(&driver.last);
        assert!(packets(&driver.ack(150, 0, 400)) < before, "start {start}");
    }
}

#[test]
fn f20_probe7_a_window_below_one_packet_is_a_packet_every_so_many_round_trips() {
    let mut driver = Driver::new(&[]);
    for _ in 0..40 {
        driver.ack(20_000, 0, 3_000);
    }
    let window = packets(&driver.last);
    assert!((0.0095..0.0105).contains(&window), "down to the smallest window: {window}");
    // The packet is on its way for a round trip, then the gap passes.
    let between = f64::from(driver.last.gap.get()) * 0.512 + 3_000.0 * 0.131_072;
    let expected = 3_000.0 * 0.131_072 / window;
    assert!((between / expected - 1.0).abs() < 0.001, "{between} us between packets, {expected} wanted");
    let report = driver.report(0, ReportKind::Acked, 1, 900, 0);
    let grown = driver.tell(report);
    assert_eq!((grown.gap, packets(&grown)), (Gap::NONE, 1.0 + 10.0 / 1_024.0), "below one packet: += ai n");
}

#[test]
fn probe7_ncwnd_is_whole_packets_and_moves_as_specified() {
    let mut driver = Driver::new(&[]);
    driver.level(1_000, 0);
    assert_eq!(driver.last.ncwnd, 65, "the last change was no increase: at once");
    assert_eq!([driver.level(50, 14), driver.level(49, 14), driver.level(1, 14)], [65, 65, 66], "then once an rtt");
    // 66 * (1 - 0.8 * (20 - 15) / 20) = 52.8; 52 * (1 - 0.8 * 16 / 31) = 30.5.
    assert_eq!([driver.level(99, 20), driver.level(1, 20), driver.level(99, 31)], [66, 52, 52]);
    assert_eq!([driver.level(1, 31), driver.level(1, 15)], [30, 30], "at the target, within the rtt: nothing");
    assert_eq!([driver.level(1, 14), driver.level(1, 14)], [31, 31], "after a decrease: at once");
    let refused = driver.report(0, ReportKind::Nacked { code: NACK_RESOURCES }, 0, 100, 0);
    assert_eq!(driver.tell(refused).ncwnd, 16, "a NACK right after an increase halves");
    assert_eq!(driver.tell(refused).ncwnd, 16, "and once a round trip");
    for _ in 0..20 {
        driver.level(1_000, 31);
    }
    assert_eq!(driver.last.ncwnd, 1, "one packet at least");
}

#[test]
fn f18_the_widest_window_closes_when_buffers_fill_however_often_it_hears_of_it() {
    let mut driver = Driver::new(&[]);
    let grown = (0..300).map(|_| driver.level(100, 0)).max();
    assert_eq!(grown, Some(256));
    // Ten acknowledgements a round trip of 100 ticks.
    let windows: Vec<u16> = (0..30).map(|_| driver.level(10, 31)).collect();
    assert_eq!((windows[8], windows[29]), (256, 51), "256 * 0.587 each round trip: {windows:?}");
    let closed = (0..100).map(|_| driver.level(100, 31)).min();
    assert_eq!(closed, Some(1));
    assert_eq!([driver.level(1, 0), driver.level(1, 0)], [2, 2], "from the narrowest it opens at once, then as always");
}

#[test]
fn f16_the_two_windows_answer_to_their_own_signal_alone() {
    let mut fabric = Driver::new(&[]);
    let mut nic = Driver::new(&[]);
    for _ in 0..10 {
        fabric.ack(2_000, 1, 1_500);
        nic.level(2_000, 31);
    }
    assert!(packets(&fabric.last) < 4.0 && fabric.last.ncwnd > 64, "{:?}", fabric.last);
    assert!(packets(&nic.last) >= 32.0 && nic.last.ncwnd < 8, "{:?}", nic.last);
    let mut blind = Driver::new(&[("rx_target", "32")]);
    (0..500).for_each(|_| assert!(blind.level(2_000, 31) > 64));
    assert_eq!(blind.last.ncwnd, 256, "with ncwnd switched off the level means nothing");
}

/// A target of 32 is no window at all: neither levels nor refusals move it, and it begins where it ends. The least
/// target that there is besides, 31, listens to both.
#[test]
fn f18_ncwnd_can_be_switched_off_altogether() {
    let refuse = |driver: &mut Driver| {
        driver.now += 1_000;
        driver.tell(driver.report(0, ReportKind::Nacked { code: NACK_RESOURCES }, 0, 100, 0))
    };
    let mut deaf = Driver::new(&[("rx_target", "32")]);
    assert_eq!(deaf.last.ncwnd, 256, "as wide as windows may be");
    for _ in 0..100 {
        assert_eq!((refuse(&mut deaf).ncwnd, deaf.level(1_000, 31)), (256, 256));
        assert_eq!(deaf.again(1_000, 0, 1, true).ncwnd, 256);
    }
    let mut listens = Driver::new(&[("rx_target", "31")]);
    assert_eq!((listens.last.ncwnd, refuse(&mut listens).ncwnd), (64, 32), "a refusal halves");
    assert_eq!(listens.level(1, 30), 33);
}

/// A connection with the largest windows that it may have is as uncongested as one can be, however small those are, and
/// wherever the first window is said to be.
#[test]
fn f36_a_share_goes_by_the_windows_that_a_connection_begins_with() {
    for (most, first) in [("8", "32"), ("256", "1024")] {
        let options = [("window_max", most), ("initial_window", first)];
        let mut driver = Driver::new(&options);
        let calm = driver.ack(500, 1, 100);
        assert_eq!([calm.alpha_requests, calm.alpha_responses], [Alpha::code(3); 2], "{options:?}");
        for _ in 0..40 {
            driver.ack(5_000, 0, 2_000);
        }
        assert!(driver.last.alpha_requests >= Alpha::code(8), "{options:?}: and lower when they close");
    }
}

/// A probe is two round trips and 8 us away, a timeout two round trips and 250 us at least: beyond 121 us it is the
/// timeout that comes first. Both are the sources' formulas.
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
        late.tell(report);
    }
    assert_eq!(prompt.last.fcwnd, late.last.fcwnd);
    assert!(late.last.rto >= prompt.last.rto && late.last.tlp > prompt.last.tlp, "the round trip did grow");
}

#[test]
fn f15_timeouts_follow_a_round_trip_that_grows_tenfold() {
    let mut driver = Driver::new(&[("rto_min", "1us")]);
    let first = driver.last;
    assert!([first.rto, first.rack, first.tlp].iter().all(|t| t.duration() > Duration::from_us(999)), "unmeasured");
    for _ in 0..40 {
        driver.ack(500, 1, 100);
    }
    let [rto, rack, tlp] = [driver.last.rto, driver.last.rack, driver.last.tlp].map(Ticks::get);
    assert_eq!([rto, rack, tlp], [200, 125, 261], "2 rtt; rtt + rtt/4; 2 rtt + 8 us");
    driver.ack(500, 1, 1_000);
    assert_eq!(driver.last.rack.get(), 1_000 + 82, "RACK goes by the newest round trip at once");
    for _ in 0..40 {
        driver.ack(2_000, 1, 1_000);
    }
    let gap = driver.last.gap.ticks() as u32;
    let grown = [driver.last.rto, driver.last.rack, driver.last.tlp].map(Ticks::get);
    let expected = [2_000 + gap, 1_250, 2_061];
    assert!(grown.iter().zip(expected).all(|(made, wanted)| made.abs_diff(wanted) <= 5), "{grown:?} {expected:?}");
    assert_eq!(Driver::new(&[]).ack(500, 1, 100).rto.get(), 1_907, "250 us at least");
}

/// A window of 32 packets where 48 are the least.
#[test]
fn f40_a_first_window_below_the_least_is_raised_where_state_travels_too() {
    let mut driver = Driver::new(&[("initial_window", "32"), ("window_min", "49152")]);
    let report = driver.report(0, ReportKind::Acked, 0, 100, 0);
    let carried = driver.swift.carry().expect("it travels");
    let mut restored = Swift::restore(&carried, &report, &driver.params).expect("it can be restored");
    let stateless = restored.on_event(&ControlEvent::Reported(report), &VIEW, &driver.params).flow;
    assert_eq!(stateless, Some(driver.tell(report)));
    assert_eq!(packets(&driver.last), 48.0);
}

/// Whichever flow it is, what travels is its own: the answers are those of a memory in which no other flow is.
#[test]
fn f40_each_flow_carries_its_own_state() {
    for (flow, flows) in [(0, 1), (0, 5), (2, 4), (5, 6), (5, 8)] {
        let (mut driver, mut carried) = (Driver::new(&[]), Carried::default());
        driver.flows = flows;
        for step in 0..300 {
            driver.now += 37;
            let kind = if step % 50 == 49 {
                ReportKind::Retransmitted { count: 1, early: false }
            } else {
                ReportKind::Acked
            };
            let report = driver.report(flow, kind, 3, 100 + step * 7 % 400, 5);
            let mut restored = Swift::restore(&carried, &report, &driver.params).expect("it can be restored");
            let stateless = restored.on_event(&ControlEvent::Reported(report), &VIEW, &driver.params).flow;
            carried = restored.carry().expect("it travels");
            assert_eq!(stateless, Some(driver.tell(report)), "flow {flow} of {flows}, step {step}");
        }
    }
}

/// Once a round trip was measured, 100 ticks here, RACK's and TLP's times are Swift's: by `rack-tlp`'s options.
#[test]
fn f15_times_of_rack_and_tlp_go_by_the_options_of_recovery() {
    let times = |options: &[(&str, &str)]| {
        let mut driver = Driver::new(options);
        assert_eq!([driver.last.rack, driver.last.tlp], [waits::UNMEASURED; 2], "{options:?}: nothing was measured");
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
    assert_eq!(times(&[("probe_min", "10us")]), [125, 261], "it would be later anyway");
}

/// The longest round trip with the largest of all parameters stays within 24 bits.
#[test]
fn no_time_wraps() {
    let large = [("reorder_percent", "400"), ("probe_percent", "1600"), ("probe_extra", "2s")];
    let driver = Driver::new(&large);
    let (waits, longest) = (waits_of(&driver.params), Ticks::new(Ticks::MAX.get() / 2));
    assert_eq!([waits.rack(longest, Ticks::MAX, longest), waits.tlp(Ticks::MAX, longest)], [Ticks::MAX; 2]);
}

#[test]
fn f23_every_result_comes_with_every_answer() {
    let mut driver = Driver::new(&[]);
    let calm = driver.ack(500, 3, 100);
    assert_eq!(packets(&calm), 32.0 + 96.0 / 1_024.0, "fcwnd: 3/32 more");
    assert_eq!(calm.ncwnd, 65);
    assert_eq!(calm.gap, Gap::NONE);
    assert_eq!((calm.alpha_requests, calm.alpha_responses), (Alpha::code(3), Alpha::code(3)), "as much as is free");
    assert_eq!(calm.ack_rate, AckRate::code(4), "about one in 8.5");
    for _ in 0..8 {
        driver.ack(5_000, 0, 2_500);
    }
    assert!(packets(&driver.last) < 2.0);
    assert_eq!(driver.last.ack_rate, AckRate::ALL, "every packet while the window is two or less");
}

#[test]
fn retransmissions_cut_once_and_then_close_the_window() {
    let mut driver = Driver::new(&[]);
    driver.ack(1_000, 0, 100);
    assert_eq!(packets(&driver.again(200, 0, 1, true)), 16.0);
    assert_eq!(packets(&driver.again(99, 0, 1, true)), 16.0, "the same round trip");
    assert_eq!(packets(&driver.again(200, 0, 2, true)), 16.0, "a count of two says nothing");
    assert_eq!(packets(&driver.again(200, 0, 3, false)), 10.0 / 1_024.0, "the limit");
}

#[test]
fn f30_plb_moves_a_flow_after_five_congested_rounds_in_a_row() {
    let mut driver = Driver::new(&[]);
    let round = |delay: u32, driver: &mut Driver| {
        let window = packets(&driver.last).floor().max(1.0) as u16;
        driver.ack(5_000, window, delay).repath
    };
    assert!((0..4).all(|_| !round(2_000, &mut driver)));
    assert!(!round(60, &mut driver), "one good round begins the count anew");
    let moves: Vec<bool> = (0..10).map(|_| round(2_000, &mut driver)).collect();
    let at: Vec<usize> = moves.iter().enumerate().filter(|(_, moved)| **moved).map(|(index, _)| index).collect();
    assert_eq!(at, [4, 9], "after five congested rounds, and after five more");
    let mut never = Driver::new(&[("plb_rounds", "0")]);
    assert!((0..100).all(|_| !round(2_000, &mut never)));
}

#[test]
fn f30_prr_moves_a_flow_whose_packets_time_out_again_and_again() {
    let mut driver = Driver::new(&[]);
    driver.ack(1_000, 0, 100);
    assert!(!driver.again(2_000, 0, 1, false).repath, "one timeout may be a lost packet");
    assert!(!driver.again(2_000, 0, 2, true).repath, "an early retransmission is no outage");
    assert!(driver.again(2_000, 0, 2, false).repath);
    let burst: Vec<bool> = (0..20).map(|_| driver.again(1, 0, 2, false).repath).collect();
    assert!(burst.iter().all(|moved| !moved), "all packets of a dead path time out together: one change");
    assert!(driver.again(2_000, 0, 3, false).repath, "the new path is dead too");
    assert!((0..9).all(|_| driver.again(2_000, 0, 7, false).repath), "for as long as it takes");
}

#[test]
fn f36_congestion_of_one_connection_lowers_its_share_and_no_others() {
    let (mut slow, mut calm) = (Driver::new(&[]), Driver::new(&[]));
    let base = calm.ack(500, 1, 100);
    // Target: 191 + 246 / sqrt(32) - 15 = 219; 900 is more than four times that.
    let delayed = slow.ack(500, 0, 900);
    assert_eq!([delayed.alpha_requests, delayed.alpha_responses], [Alpha::code(5); 2], "a quarter of it");
    for _ in 0..30 {
        slow.ack(5_000, 0, 900);
    }
    let worn = slow.last;
    assert!(packets(&worn) < 1.0 && worn.alpha_requests >= Alpha::code(8), "by the window: {worn:?}");
    let unchanged = calm.ack(500, 1, 100);
    assert_eq!((unchanged.alpha_requests, unchanged.alpha_responses), (base.alpha_requests, base.alpha_responses));
    let mut full = Driver::new(&[]);
    full.level(500, 31);
    let held = full.last;
    assert_eq!((held.alpha_requests, held.alpha_responses), (Alpha::code(4), Alpha::code(3)), "requests alone");
    assert_eq!(full.again(500, 0, 1, false).alpha_requests, Alpha::code(4), "half on retransmissions");
}

#[test]
fn f36_a_timeout_never_raises_a_share() {
    let shares = |of: &FlowActions| [of.alpha_requests, of.alpha_responses];
    let mut calm = Driver::new(&[]);
    assert_eq!(shares(&calm.ack(500, 1, 100)), [Alpha::code(3); 2]);
    assert_eq!(shares(&calm.again(5_000, 0, 1, false)), [Alpha::code(4); 2], "half");
    assert_eq!(shares(&calm.ack(500, 1, 100)), [Alpha::code(3); 2], "until more is measured: the window is 16");
    let mut fresh = Driver::new(&[]);
    assert_eq!(shares(&fresh.again(5_000, 0, 1, false)), [Alpha::code(4); 2], "nothing was said before");
    // By its windows, and by what no report of a retransmission has: delays and levels.
    let mut worn = Driver::new(&[]);
    for _ in 0..30 {
        worn.ack(5_000, 0, 900);
    }
    let mut delayed = Driver::new(&[]);
    delayed.ack(500, 0, 3_000);
    let mut full = Driver::new(&[("rx_target", "3")]);
    full.level(500, 31);
    assert_eq!(shares(&full.last), [Alpha::code(6), Alpha::code(3)], "an eighth, for requests alone");
    for (driver, least) in [(worn, [8, 8]), (delayed, [6, 6]), (full, [6, 4])] {
        for (count, early) in [(1, false), (1, true), (2, false), (3, false), (7, false)] {
            let mut driver = driver.clone();
            let before = shares(&driver.last);
            let after = shares(&driver.again(5_000, 0, count, early));
            assert!(after[0] >= before[0] && after[1] >= before[1], "{count}, {early}: {before:?}, {after:?}");
            assert!(after[0].get() >= least[0] && after[1].get() >= least[1], "{count}, {early}: {after:?}");
            assert!(count < 3 || after == [Alpha::code(14); 2], "by a window of 10/1024 of a packet: {after:?}");
            assert_eq!(shares(&driver.again(1, 0, 2, false)), after, "once more, and the same");
        }
    }
}

#[test]
fn probe9_flows_have_windows_of_their_own_and_share_the_rest() {
    let mut driver = Driver::new(&[("plb_rounds", "0")]);
    (driver.fcwnd, driver.flows) = ([Cwnd::packets(8); 8], 4);
    for turn in 0..4_000u32 {
        driver.now += 100;
        let flow = (turn % 4) as u8;
        let delay = if flow == 2 { 1_000 } else { 100 };
        let report = driver.report(flow, ReportKind::Acked, 2, delay, 0);
        driver.tell(report);
    }
    let [a, b, slow, d, ..] = driver.fcwnd.map(|window| window.fixed() as f64 / 65_536.0);
    assert!(slow < 2.0 && [a, b, d].iter().all(|window| *window > 30.0), "{:?}", driver.fcwnd);
    assert_eq!(driver.last.rto.get(), 2_000, "twice the longest round trip of the four");
    assert_eq!(driver.last.gap, Gap::NONE, "the sum of the windows is above one packet");
    let total = f64::from(driver.swift.others(0, 4).and(&driver.swift.flow(0), 0, 4).fcwnd) / 1_024.0;
    assert!((total - (a + b + slow + d)).abs() < 1e-9);
}

#[test]
fn probe9_all_flows_are_paced_by_what_all_may_send() {
    let gap_of = |flows: u8| {
        let mut driver = Driver::new(&[]);
        driver.flows = flows;
        for turn in 0..8 * 40u32 {
            driver.now += 20_000;
            let report = driver.report((turn % u32::from(flows)) as u8, ReportKind::Acked, 0, 10_000, 0);
            driver.tell(report);
        }
        let all = &driver.fcwnd[..usize::from(flows)];
        assert!(all.iter().all(|window| *window == cwnd(fabric::FCWND_MIN)), "{all:?}");
        let sum: u64 = all.iter().map(|window| window.fixed() >> 6).sum();
        assert_eq!(driver.last.gap, timers::gap(sum as u32, Ticks::new(10_000)), "{flows}");
        let waits = waits_of(&driver.params);
        assert_eq!(driver.last.rto, waits.rto(Ticks::new(10_000), driver.last.gap, Ticks::ZERO), "{flows}");
        driver.last.gap.ticks()
    };
    let gaps = [1, 2, 3, 4, 5, 6, 7, 8].map(gap_of);
    assert!(gaps.is_sorted_by(|more, less| more > less), "{gaps:?}");
}

#[test]
fn from_round_trips_alone_it_regulates_a_transport_without_reports() {
    let params = Params::defaults(Swift::PARAMS);
    let (mut swift, first) = Swift::start(&params, &VIEW);
    assert_eq!(first.window, Some(Cwnd::packets(32)));
    let mut now = Time::ZERO;
    let mut tell = |us: u64, event: ControlEvent| {
        now += Duration::from_us(us);
        swift.on_event(&event, &ControlView { now, ..VIEW }, &params)
    };
    let acked = |packets, rtt: Option<u64>| ControlEvent::Acked { packets, rtt: rtt.map(Duration::from_us), marked: 0 };
    assert_eq!(tell(1, acked(31, None)), ControlActions::default(), "counted, and waits for a sample");
    assert_eq!(tell(1, acked(1, Some(20))).window, Some(Cwnd::packets(33)), "32 packets of a window of 32: one more");
    let halved = tell(100, ControlEvent::Nacked { lost: true }).window.expect("a cut");
    assert_eq!(halved, Cwnd::from_fixed(Cwnd::packets(33).fixed() / 2));
    assert_eq!(tell(1, ControlEvent::Nacked { lost: false }), ControlActions::default());
    for _ in 0..3 {
        tell(1_000, ControlEvent::TimedOut);
    }
    let closed = tell(1, ControlEvent::TimedOut);
    assert_eq!(closed.window, Some(Cwnd::from_fixed(10 << 6)), "three timeouts in a row: the smallest window");
    // 4096 bytes every 20 us / (10/1024).
    let rate = closed.rate.expect("below one packet it is paced").as_bps() as f64;
    assert!((rate / (4_096.0 * 8.0 / (20e-6 * 102.4)) - 1.0).abs() < 0.02, "{rate}");
    let open = tell(1_000, acked(1, Some(20)));
    assert_eq!(open.rate, Some(VIEW.line_rate), "above one packet it is not");
}

#[test]
fn no_window_is_smaller_than_it_may_be() {
    for (text, least) in [("10", 10), ("4096", 4_096)] {
        let mut driver = Driver::new(&[("window_min", text), ("plb_rounds", "0")]);
        for _ in 0..200 {
            driver.ack(9_000, 0, 4_000);
        }
        assert_eq!(driver.swift.flow(0).fcwnd, least, "by delay");
        driver.again(9_000, 0, 3, false);
        assert_eq!(driver.swift.flow(0).fcwnd, least, "by losses");
    }
    let narrow = Driver::new(&[("window_min", "65536"), ("window_max", "2"), ("initial_window", "1")]);
    assert!(packets(&narrow.last) <= 2.0, "the largest is the largest");
}
