//! Swift with rates and probes: the fabric's delay from probes, the hosts' delay from their reports.
//!
//! Source: SCR (NSDI'25) appendix A.6, mechanism S-23, on Swift (SIGCOMM'20). A target delay depends on the rate, so
//! that many slow flows can share a queue: `base + hops * hop + clamp(a / sqrt(w) + b, 0, range)`, with the window w =
//! rate * round trip / packet. The round trip cancels in it, so the curve goes through `base + hops * hop + range` at
//! `rate_min` and through `base + hops * hop` at `rate_max`.
//!
//! Two decisions are made from each probe, by the delay of the fabric and by that of both hosts, and the lower rate is
//! used. Below its target, a rate grows by one packet for each round trip; otherwise it falls, at most once in a round
//! trip, by `beta` times the relative excess of the delay and at most by `most`.
//!
//! Deviations and choices, where the source leaves a choice:
//!
//! * the increase and the decrease are those of Swift (its algorithm 1); the source names neither;
//! * the target of the hosts' delay (`host_target`) is 4 us;
//! * the source subtracts the hosts' delay from the round trip. Where the NIC answers probes, which do not cross the
//!   buses, the round trip is the fabric's delay, and nothing is subtracted ([`HostDelays::are_in_round_trip`]);
//! * the next probe is sent with the first packet after one round trip. One that is not answered within four round
//!   trips counts as a fabric delay of twice the target, and says nothing of the hosts; the time doubles until an
//!   answer arrives, because the round trip may have grown;
//! * losses of packets do not change the rate: those of probes do;
//! * the source's `rate_min` and `rate_max`, which limit the curve and the rate, are 32 and 96 Gbit/s on a link of 100
//!   Gbit/s: with more than three flows, the link is overloaded. The defaults are 1 % of the link rate, and the link
//!   rate.

use bytemuck::{Pod, Zeroable};
use rnic_base::{BitRate, Duration};
use rnic_policy::control::ControlInterest;
use rnic_policy::{Control, ControlActions, ControlEvent, ControlView, HostDelays, ParamSpec, Params, Signals};

/// Per-queue-pair state.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct SwiftRate {
    /// Rates by the delays of the fabric and of the hosts, in bit/s.
    rates_bps: [u64; 2],
    /// Times of the last decreases, in ps.
    decreased_at_ps: [u64; 2],
    /// Time from which the next probe may be sent, in ps.
    probe_at_ps: u64,
    /// Last measured round trip, in ps; 0 before the first.
    rtt_ps: u64,
    /// Payload bytes sent since the last decision.
    sent_bytes: u32,
    /// 1 while a probe is outstanding.
    is_outstanding: u16,
    /// Number of lost probes since the last answer.
    lost: u16,
}

const THOUSAND: u64 = 1_000;

// Indices of the parameters.
const BASE_INDEX: usize = 0;
const HOPS_INDEX: usize = 1;
const HOP_INDEX: usize = 2;
const RANGE_INDEX: usize = 3;
const RATE_MIN_INDEX: usize = 4;
const RATE_MAX_INDEX: usize = 5;
const HOST_TARGET_INDEX: usize = 6;
const BETA_INDEX: usize = 7;
const MOST_INDEX: usize = 8;
const PERIOD_INDEX: usize = 9;

impl Control for SwiftRate {
    const NAME: &'static str = "swift-rate";
    const SUMMARY: &'static str = "Swift with rates: fabric delay from probes, host delay from reports (SCR A.6)";
    const PARAMS: &'static [ParamSpec] = &[
        ParamSpec::duration("base", Duration::from_us(1), "target delay without switches"),
        ParamSpec::count("hops", 1, 0, 15, "switches on the path"),
        ParamSpec::duration("hop", Duration::from_us(2), "target delay of each switch"),
        ParamSpec::duration("range", Duration::from_us(2), "further target delay at rate_min"),
        ParamSpec { min: 0, ..ParamSpec::rate("rate_min", BitRate::ZERO, "lowest rate; 0 is 1 % of the link rate") },
        ParamSpec { min: 0, ..ParamSpec::rate("rate_max", BitRate::ZERO, "highest rate; 0 is the link rate") },
        ParamSpec::duration("host_target", Duration::from_us(4), "target of the delay in both hosts"),
        ParamSpec::count("beta", 800, 1, THOUSAND, "decrease by the relative excess of the delay, in thousandths"),
        ParamSpec::count("most", 500, 1, THOUSAND, "largest decrease in one round trip, in thousandths"),
        ParamSpec::duration("period", Duration::ZERO, "shortest time between an answer and the next probe"),
    ];

    fn start(params: &Params, view: &ControlView) -> (Self, ControlActions) {
        let rate_bps = bounds(params, view.line_rate)[1];
        let state = Self { rates_bps: [rate_bps; 2], ..Self::zeroed() };
        (state, ControlActions { rate: Some(BitRate::bps(rate_bps)), ..ControlActions::default() })
    }

    fn interest(_: &Params) -> ControlInterest {
        ControlInterest { needs: Signals::SENT | Signals::PROBES, sent: true, ..ControlInterest::default() }
    }

    fn on_event(&mut self, event: &ControlEvent, view: &ControlView, params: &Params) -> ControlActions {
        match *event {
            ControlEvent::Sent { bytes } => {
                self.sent_bytes = self.sent_bytes.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
                self.probe(view)
            }
            ControlEvent::RoundTrip { rtt, host, .. } => {
                (self.rtt_ps, self.lost) = (rtt.as_ps().max(1), 0);
                let (fabric, hosts) = delays(rtt, &host);
                self.decide(fabric, Some(hosts), view, params)
            }
            ControlEvent::ProbeLost { .. } => {
                self.lost = self.lost.saturating_add(1);
                self.decide(self.fabric_target(view, params) * 2, None, view, params)
            }
            _ => ControlActions::default(),
        }
    }
}

impl SwiftRate {
    /// Returns the target of the fabric's delay of a flow with `rate`, on a link of `line_rate`.
    #[must_use]
    pub fn target(rate: BitRate, line_rate: BitRate, params: &Params) -> Duration {
        target_delay(rate, bounds(params, line_rate), params)
    }

    /// Returns the target of the fabric's delay.
    fn fabric_target(&self, view: &ControlView, params: &Params) -> Duration {
        Self::target(BitRate::bps(self.rates_bps[FABRIC]), view.line_rate, params)
    }

    /// Sends a probe when none is outstanding and it is time to.
    fn probe(&mut self, view: &ControlView) -> ControlActions {
        if self.is_outstanding == 1 || view.now.as_ps() < self.probe_at_ps {
            return ControlActions::default();
        }
        self.is_outstanding = 1;
        let timeout = match self.rtt_ps {
            0 => FIRST_TIMEOUT,
            rtt => Duration::from_ps(rtt.saturating_mul(4)).max(TIMEOUT_MIN),
        };
        let timeout = timeout.saturating_mul(1 << self.lost.min(20)).min(TIMEOUT_MAX);
        ControlActions { probe: Some(timeout), ..ControlActions::default() }
    }

    /// Sets the rate by the delays of the fabric and, if it is known, of the hosts.
    fn decide(
        &mut self,
        fabric: Duration,
        hosts: Option<Duration>,
        view: &ControlView,
        params: &Params,
    ) -> ControlActions {
        self.is_outstanding = 0;
        let wait = self.rtt_ps.max(params.get(PERIOD_INDEX));
        self.probe_at_ps = view.now.as_ps().saturating_add(wait);
        // A flow that sends less than its rate permits does not raise it.
        let sent_packets = u64::from(std::mem::take(&mut self.sent_bytes)).div_ceil(u64::from(view.mtu.max(1)));
        let target = self.fabric_target(view, params);
        self.adjust(FABRIC, (fabric, target), sent_packets, view, params);
        if let Some(hosts) = hosts {
            self.adjust(HOSTS, (hosts, Duration::from_ps(params.get(HOST_TARGET_INDEX))), sent_packets, view, params);
        }
        let rate = self.rates_bps[FABRIC].min(self.rates_bps[HOSTS]);
        ControlActions { rate: Some(BitRate::bps(rate)), ..ControlActions::default() }
    }

    /// Changes one of the rates by a delay and its target.
    fn adjust(
        &mut self,
        index: usize,
        (delay, target): (Duration, Duration),
        sent_packets: u64,
        view: &ControlView,
        params: &Params,
    ) {
        let (rate, rtt) = (self.rates_bps[index], self.rtt_ps.max(1));
        let now = view.now.as_ps();
        let changed = if delay < target {
            // One packet for each round trip, in proportion to what was sent of a window.
            let packet_bits = u64::from(view.mtu) * 8;
            let window_bits = u128::from(rate) * u128::from(rtt) / PS_PER_SECOND;
            let sent_bits = u128::from(sent_packets) * u128::from(packet_bits);
            let step = u128::from(packet_bits) * PS_PER_SECOND / u128::from(rtt);
            let share = step * sent_bits.min(window_bits) / window_bits.max(1);
            rate.saturating_add(share as u64)
        } else if now >= self.decreased_at_ps[index].saturating_add(rtt) {
            self.decreased_at_ps[index] = now;
            let excess = u128::from(delay.as_ps() - target.as_ps());
            let cut = u128::from(params.get(BETA_INDEX)) * excess / u128::from(delay.as_ps().max(1));
            let cut = (cut as u64).min(params.get(MOST_INDEX));
            (u128::from(rate) * u128::from(THOUSAND - cut) / u128::from(THOUSAND)) as u64
        } else {
            rate
        };
        let [lowest, highest] = bounds(params, view.line_rate);
        self.rates_bps[index] = changed.clamp(lowest, highest);
    }
}

/// Returns the delay of the fabric, and that of both hosts.
fn delays(rtt: Duration, host: &HostDelays) -> (Duration, Duration) {
    let hosts = host.local + host.peer;
    let fabric = if host.are_in_round_trip { rtt.saturating_sub(hosts) } else { rtt };
    (fabric, hosts)
}

/// Indices of the rates: by the delay of the fabric, and by that of the hosts.
const FABRIC: usize = 0;
const HOSTS: usize = 1;

/// Returns the lowest and the highest rate in bit/s, at least 1 and at most the link rate.
fn bounds(params: &Params, line_rate: BitRate) -> [u64; 2] {
    let line = line_rate.as_bps().max(1);
    let given = |index, default: u64| if params.get(index) == 0 { default } else { params.get(index) };
    let lowest = given(RATE_MIN_INDEX, line / 100).clamp(1, line);
    [lowest, given(RATE_MAX_INDEX, line).clamp(lowest, line)]
}

/// Returns the target of the fabric's delay at `rate`, with the lowest and the highest rate.
fn target_delay(rate: BitRate, bounds: [u64; 2], params: &Params) -> Duration {
    let fixed = params.get(BASE_INDEX) + params.get(HOPS_INDEX) * params.get(HOP_INDEX);
    let range = u128::from(params.get(RANGE_INDEX));
    let [lowest, highest] = bounds.map(inverse_root);
    let rate = inverse_root(rate.as_bps());
    // The share of the range: (1/sqrt(rate) - 1/sqrt(highest)) / (1/sqrt(lowest) - 1/sqrt(highest)).
    let share = if lowest > highest {
        range * u128::from(rate.saturating_sub(highest).min(lowest - highest)) / u128::from(lowest - highest)
    } else {
        0
    };
    Duration::from_ps(fixed + share as u64)
}

/// Returns 2^62 / sqrt(rate): the square root of 2^124 / rate, whose error is below one part in 2^37 for rates up to
/// 2^50 bit/s.
fn inverse_root(rate_bps: u64) -> u64 {
    ((1u128 << 124) / u128::from(rate_bps.max(1))).isqrt() as u64
}

const PS_PER_SECOND: u128 = 1_000_000_000_000;

/// Timeout of a probe before a round trip has been measured.
const FIRST_TIMEOUT: Duration = Duration::from_us(100);

/// Shortest and longest timeout of a probe.
const TIMEOUT_MIN: Duration = Duration::from_us(2);
const TIMEOUT_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_base::Time;
    use rnic_policy::PathLabel;

    const LINE: BitRate = BitRate::gbps(100);

    /// The source's rates, 32 to 96 Gbit/s.
    fn params() -> Params {
        let [lowest, highest] = [32, 96].map(|gbps| BitRate::gbps(gbps).as_bps());
        Params::defaults(SwiftRate::PARAMS).with(RATE_MIN_INDEX, lowest).with(RATE_MAX_INDEX, highest)
    }

    fn view(us: u64) -> ControlView {
        ControlView { now: Time::from_us(us), line_rate: LINE, mtu: 1_024, in_flight: 0 }
    }

    fn round_trip(rtt_us: u64, host_us: [u64; 2]) -> ControlEvent {
        let [local, peer] = host_us.map(Duration::from_us);
        let host = HostDelays { local, peer, are_in_round_trip: false };
        ControlEvent::RoundTrip { path: PathLabel(0), rtt: Duration::from_us(rtt_us), host }
    }

    /// As the preceding helper, but on sockets, where a probe waits for the hosts as data does.
    fn round_trip_with_hosts(rtt_us: u64, host_us: [u64; 2]) -> ControlEvent {
        let [local, peer] = host_us.map(Duration::from_us);
        let host = HostDelays { local, peer, are_in_round_trip: true };
        ControlEvent::RoundTrip { path: PathLabel(0), rtt: Duration::from_us(rtt_us), host }
    }

    /// Passes packets, and an answer of `event` every 200 us, to a new state.
    fn rate_after(event: ControlEvent, answers: u64) -> BitRate {
        let (mut state, first) = SwiftRate::start(&params(), &view(0));
        let mut rate = first.rate.expect("a rate is set");
        for nth in 1..=answers {
            let sent = state.on_event(&ControlEvent::Sent { bytes: 65_536 }, &view(200 * nth), &params());
            assert!(sent.probe.is_some(), "no probe is sent");
            let again = state.on_event(&ControlEvent::Sent { bytes: 65_536 }, &view(200 * nth), &params());
            assert_eq!(again.probe, None, "two probes are outstanding");
            rate = state.on_event(&event, &view(200 * nth + 5), &params()).rate.expect("a rate is set");
        }
        rate
    }

    /// The curve of the source's parameters at five rates: 1/sqrt of the rate, scaled to 3 to 5 us.
    #[test]
    fn s23_the_target_curve_goes_through_five_points() {
        let target = |gbps| target_delay(BitRate::gbps(gbps), bounds(&params(), LINE), &params());
        for (gbps, target_ns) in [(32, 5_000), (48, 4_132), (64, 3_614), (80, 3_261), (96, 3_000)] {
            let target = target(gbps).as_ns();
            assert!(target.abs_diff(target_ns) <= 10, "{gbps} Gbit/s: {target} instead of {target_ns} ns");
        }
        assert_eq!(target(1).as_ns(), 5_000, "below the lowest rate");
        assert_eq!(target(400).as_ns(), 3_000, "above the highest rate");
    }

    #[test]
    fn s23_the_rate_falls_above_the_target_and_grows_below_it() {
        assert_eq!(rate_after(round_trip(2, [0, 0]), 5), BitRate::gbps(96), "the highest rate");
        let fallen = rate_after(round_trip(4, [0, 0]), 1);
        // Target 3 us, delay 4 us: 0.8 times the excess of a quarter.
        assert_eq!(fallen.as_bps(), 96_000_000_000 / 1_000 * 800);
        assert_eq!(rate_after(round_trip(100, [0, 0]), 20), BitRate::gbps(32), "the lowest rate");
        let (mut state, _) = SwiftRate::start(&params(), &view(0));
        state.rates_bps = [40_000_000_000; 2];
        state.on_event(&ControlEvent::Sent { bytes: 65_536 }, &view(10), &params());
        let grown = state.on_event(&round_trip(2, [0, 0]), &view(20), &params()).rate.expect("a rate");
        // One packet of 1024 bytes in 2 us.
        assert_eq!(grown.as_bps(), 40_000_000_000 + 4_096_000_000);
    }

    /// The delays of both hosts are compared with a separate target, and do not hide the fabric's delay.
    #[test]
    fn s23_the_hosts_delay_is_judged_by_itself() {
        assert_eq!(rate_after(round_trip(2, [2, 1]), 1), BitRate::gbps(96), "both are below their targets");
        // 5 us are spent in the hosts: the excess over 4 us is a fifth.
        let fallen = rate_after(round_trip(2, [3, 2]), 1);
        assert_eq!(fallen.as_bps(), 96_000_000_000 / 1_000 * 840);
        let hidden = rate_after(round_trip(4, [3, 1]), 1);
        assert_eq!(hidden.as_bps(), 96_000_000_000 / 1_000 * 800, "the fabric's delay is a third above its target");
    }

    /// The targets are 3 us for the fabric and 4 us for the hosts, as above.
    #[test]
    fn s23_the_hosts_delay_is_taken_out_of_a_round_trip_that_contains_it() {
        assert_eq!(rate_after(round_trip_with_hosts(6, [2, 1]), 1).as_bps(), 96_000_000_000, "3 us each");
        let fallen = rate_after(round_trip_with_hosts(7, [2, 1]), 1);
        assert_eq!(fallen.as_bps(), 96_000_000_000 / 1_000 * 800, "the fabric's 4 us");
        let fallen = rate_after(round_trip_with_hosts(7, [3, 2]), 1);
        assert_eq!(fallen.as_bps(), 96_000_000_000 / 1_000 * 840, "the hosts' 5 us");
        // The reported delays are older than the round trip, and may exceed it.
        assert_eq!(rate_after(round_trip_with_hosts(2, [1, 2]), 1), BitRate::gbps(96));
    }

    /// Half of the delay is excess, so the rate is reduced by 0.8 times one half. The limit by the hosts' delay, about
    /// which a lost probe says nothing, is unchanged.
    #[test]
    fn s23_a_lost_probe_counts_as_twice_the_targets_delay_in_the_fabric() {
        let lost = ControlEvent::ProbeLost { path: PathLabel(0) };
        assert_eq!(rate_after(lost, 1).as_bps(), 96_000_000_000 / 1_000 * 600);
        let (mut state, _) = SwiftRate::start(&params(), &view(0));
        state.rates_bps[HOSTS] = 50_000_000_000;
        state.on_event(&ControlEvent::Sent { bytes: 65_536 }, &view(10), &params());
        state.on_event(&lost, &view(20), &params());
        assert_eq!(state.rates_bps[HOSTS], 50_000_000_000);
    }

    /// A path's round trip may exceed the timeout, which then doubles until there is an answer.
    #[test]
    fn s23_the_timeout_of_probes_is_four_round_trips_and_doubles_with_each_loss() {
        let (mut state, _) = SwiftRate::start(&params(), &view(0));
        let mut now = 0;
        let mut timeout_after = |event: ControlEvent| {
            now += 10_000_000;
            state.on_event(&event, &view(now), &params());
            now += 10_000_000;
            state.on_event(&ControlEvent::Sent { bytes: 1_024 }, &view(now), &params()).probe.expect("a probe")
        };
        let (lost, us) = (ControlEvent::ProbeLost { path: PathLabel(0) }, Duration::from_us);
        let sent = ControlEvent::TimedOut;
        assert_eq!([sent, lost, lost].map(&mut timeout_after), [100, 200, 400].map(us), "before the first answer");
        assert_eq!(timeout_after(round_trip(150, [0, 0])), us(600));
        assert_eq!([lost; 30].map(&mut timeout_after)[29], TIMEOUT_MAX);
        assert_eq!(timeout_after(round_trip(5, [0, 0])), us(20));
    }

    /// Without parameters, the rate is between 1 % of the link rate and the link rate, on any link.
    #[test]
    fn s23_the_defaults_suit_any_link() {
        let params = Params::defaults(SwiftRate::PARAMS);
        for gbps in [1, 10, 100, 400] {
            let at = |us| ControlView { line_rate: BitRate::gbps(gbps), ..view(us) };
            let (mut state, first) = SwiftRate::start(&params, &at(0));
            assert_eq!(first.rate, Some(BitRate::gbps(gbps)));
            let mut after = |rtt_us: u64| {
                let mut rate = BitRate::ZERO;
                for nth in 1..200 {
                    let now = state.probe_at_ps / 1_000_000 + 1_000 * nth;
                    state.on_event(&ControlEvent::Sent { bytes: 1 << 30 }, &at(now), &params);
                    rate = state.on_event(&round_trip(rtt_us, [0, 0]), &at(now), &params).rate.expect("a rate");
                }
                rate
            };
            assert_eq!(after(100).as_bps(), gbps * 10_000_000, "{gbps} Gbit/s: the lowest");
            assert_eq!(after(2), BitRate::gbps(gbps), "{gbps} Gbit/s: the highest");
        }
    }
}
