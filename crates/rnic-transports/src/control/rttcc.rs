//! RTTCC-like: a rate controlled by the round-trip times of probes.
//!
//! Source: the published information on RTTCC, the adapters' default (ConnectX-7; Falcon, SIGCOMM'25, sections 2.1, 6
//! and reference 6). It sets a rate from the round trips of probe packets and needs no switch support, according to
//! NVIDIA, "Scaling Zero Touch RoCE Technology with Round Trip Time Congestion Control", and the overview of the
//! algorithm in NVIDIA's documentation. Its code is not published. The names and values of its parameters are, in the
//! deployment code that sets them (repository NVIDIA/infra-controller, `crates/dpf/src/flavor.rs`, for DOCA 3.4), and
//! so is the rule of the template that is supplied with it (DOCA PCC, `rtt_template`):
//!
//! | published | here |
//! |---|---|
//! | congestion delay threshold 13 us | `target_rtt` |
//! | responsiveness alpha, 6553 of 65536 | `alpha`, a tenth |
//! | maximum decrease factor, 63570 of 65536 | `max_cut`, 3 % |
//! | maximum increase factor, 69468 of 65536 | `max_gain`, 6 % |
//! | additive increase, 96 of 2^20 of the port's rate | `ai` |
//! | high additive increase, 1700 of 2^20 of the port's rate, each 200 us | `hai`, `hai_period` |
//! | rate on first congestion, half of the port's | `first_share` |
//! | template: minimum rate, 64 of 2^20 of the port's | `min` |
//! | template: next probe when the last is answered, with its queue pair's packet | one packet at a time is timed |
//!
//! Deviations and choices; among several interpretations, the one with the better results was chosen, because the
//! algorithm is a baseline:
//!
//! * the combination of the parameters is published only in prose: increase is additive, decrease multiplicative, and
//!   two factors bound the change by one event (NVIDIA's description of its library `doca-pcc-ztr-rttcc-algo`). The
//!   simplest interpretation is used: above the threshold the rate falls by alpha times the excess, as a fraction of
//!   the threshold; up to the threshold the additive increase is added, and the high increase once in each period in
//!   which no round trip was above it;
//! * the increase factor bounds only the high increase. If it bounded the additive increase too, growth below 300
//!   Mbit/s would be multiplicative: in an incast of 500 queue pairs, that doubles the 99 % latency;
//! * the maximum queuing delay (250 us) is not implemented. In the template, from such a delay on, the rate falls by
//!   twice the factor, and by five times the factor when a NACK was received too; that makes an incast of 5000 queue
//!   pairs less fair, and slower;
//! * CNPs are not used (no switch marks packets in this configuration); the parameters for advanced, topology and
//!   fast scheduling are not implemented, because they are not documented;
//! * probes are not separate packets: those would wait in the same queues and use bandwidth. Time at the receiver is
//!   not subtracted, since it responds immediately. A retransmitted packet is timed from its last transmission; the
//!   template requests a lost probe again after 300 us;
//! * a loss alone has no effect. A timeout, with which probes are lost too, halves the rate, once a round trip, until
//!   the next round trip is measured: when that is below the threshold, there was no congestion, and the previous
//!   rate is restored. Without the cut, an incast of 500 queue pairs achieves only a third of the link rate; if it
//!   were permanent, a single queue pair on a lossy link would not return to the line rate, because increase is slow;
//! * there is no window: packets in flight are bounded by the rate alone. The rate starts at the line rate.

use bytemuck::{Pod, Zeroable};
use rnic_base::{BitRate, Duration, Time};
use rnic_policy::control::ControlInterest;
use rnic_policy::{Control, ControlActions, ControlEvent, ControlView, ParamSpec, Params, Signals};

/// Per-queue-pair state.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Rttcc {
    /// Current rate, in bit/s.
    rate_bps: u64,
    /// Time of the last cut of the rate by a timeout, in picoseconds; 0 before the first.
    cut_at_ps: u64,
    /// The last round-trip time, in picoseconds.
    rtt_ps: u64,
    /// Start of the current period, in picoseconds, in which every round trip was below the threshold and no high
    /// increase was made; 0 when the last round trip was above the threshold.
    period_start_ps: u64,
    /// 1 if any round trip has been above the threshold.
    congested: u64,
    /// Rate before the cuts by timeouts since the last measured round trip, in bit/s; 0 when there were no such cuts.
    before_bps: u64,
}

/// Denominator of factors, which are given in thousandths.
const THOUSAND: u64 = 1_000;
/// Denominator of additive steps, which are given in 2^-20 of the line rate, as in the adapters.
const RATE_STEPS: u64 = 1 << 20;

const TARGET_RTT_INDEX: usize = 0;
const ADDITIVE_STEP_INDEX: usize = 1;
const HIGH_STEP_INDEX: usize = 2;
const HIGH_STEP_PERIOD_INDEX: usize = 3;
const ALPHA_INDEX: usize = 4;
const GAIN_MAX_INDEX: usize = 5;
const CUT_MAX_INDEX: usize = 6;
const FIRST_SHARE_INDEX: usize = 7;
const MINIMUM_RATE_INDEX: usize = 8;
const TIMEOUT_CUT_INDEX: usize = 9;

impl Control for Rttcc {
    const NAME: &'static str = "rttcc";
    const SUMMARY: &'static str = "rate control from round trips of probes, as far as RTTCC is published";
    const PARAMS: &'static [ParamSpec] = &[
        ParamSpec {
            min: Duration::from_ns(1).as_ps(),
            ..ParamSpec::duration("target_rtt", Duration::from_us(13), "above this round trip the rate falls")
        },
        ParamSpec::count("ai", 96, 0, RATE_STEPS, "increase per good round trip, in 2^-20 of the line's rate"),
        ParamSpec::count("hai", 1_700, 0, RATE_STEPS, "increase per good period, in 2^-20 of the line's rate"),
        ParamSpec::duration("hai_period", Duration::from_us(200), "time without a round trip above the target"),
        ParamSpec::count("alpha", 100, 1, THOUSAND, "decrease by the distance from the target, in thousandths"),
        ParamSpec::count("max_gain", 60, 0, THOUSAND, "largest increase of the rate per period, in thousandths"),
        ParamSpec::count("max_cut", 30, 0, THOUSAND, "largest decrease of the rate per round trip, in thousandths"),
        ParamSpec::count(
            "first_share",
            500,
            1,
            THOUSAND,
            "rate at first congestion at most, in thousandths of the line's rate",
        ),
        ParamSpec::count("min", 64, 1, RATE_STEPS, "the rate never falls below this, in 2^-20 of the line's"),
        ParamSpec::count(
            "timeout_cut",
            500,
            0,
            THOUSAND,
            "share of the rate that a timeout takes off until a good round trip, in thousandths",
        ),
    ];

    fn start(_: &Params, view: &ControlView) -> (Self, ControlActions) {
        (Self { rate_bps: view.line_rate.as_bps(), ..Self::zeroed() }, ControlActions::default())
    }

    fn interest(_: &Params) -> ControlInterest {
        let needs = Signals::ROUND_TRIP | Signals::TIMEOUTS;
        ControlInterest { needs, acked: true, times_retransmitted: true, ..ControlInterest::default() }
    }

    fn on_event(&mut self, event: &ControlEvent, view: &ControlView, params: &Params) -> ControlActions {
        let rate_bps = match *event {
            ControlEvent::Acked { rtt: Some(rtt), .. } => self.rate_for_sample(rtt, view, params),
            ControlEvent::TimedOut if self.is_later_round_trip(view.now, params) => {
                self.before_bps = self.before_bps.max(self.rate_bps);
                self.rate_bps - mul_div(self.rate_bps, params.get(TIMEOUT_CUT_INDEX), THOUSAND)
            }
            _ => return ControlActions::default(),
        };
        let line_bps = view.line_rate.as_bps();
        self.rate_bps = rate_bps.max(mul_div(line_bps, params.get(MINIMUM_RATE_INDEX), RATE_STEPS)).min(line_bps);
        ControlActions { rate: Some(BitRate::bps(self.rate_bps)), ..ControlActions::default() }
    }
}

impl Rttcc {
    /// Returns the rate for the sample `rtt`, before the rate's bounds are applied.
    fn rate_for_sample(&mut self, rtt: Duration, view: &ControlView, params: &Params) -> u64 {
        let (rtt, target, line_bps) = (rtt.as_ps().max(1), params.get(TARGET_RTT_INDEX), view.line_rate.as_bps());
        self.rtt_ps = rtt;
        let before_bps = std::mem::take(&mut self.before_bps);
        if rtt <= target {
            self.rate_bps = self.rate_bps.max(before_bps);
            let step = mul_div(line_bps, params.get(ADDITIVE_STEP_INDEX), RATE_STEPS);
            if !self.record_low_rtt(view.now, params) {
                return self.rate_bps + step;
            }
            let high = step + mul_div(line_bps, params.get(HIGH_STEP_INDEX), RATE_STEPS);
            return self.rate_bps + high.min(mul_div(self.rate_bps, params.get(GAIN_MAX_INDEX), THOUSAND)).max(step);
        }
        self.period_start_ps = 0;
        let cut = mul_div(params.get(ALPHA_INDEX), rtt - target, target).min(params.get(CUT_MAX_INDEX));
        let rate_bps = self.rate_bps - mul_div(self.rate_bps, cut, THOUSAND);
        if std::mem::replace(&mut self.congested, 1) == 0 {
            return rate_bps.min(mul_div(line_bps, params.get(FIRST_SHARE_INDEX), THOUSAND));
        }
        rate_bps
    }

    /// Handles a round trip that is not above the threshold; returns `true` if a full period of such round trips has
    /// just ended, and then starts the next period.
    fn record_low_rtt(&mut self, now: Time, params: &Params) -> bool {
        let since = if self.period_start_ps == 0 { now.as_ps() } else { self.period_start_ps };
        let is_over = now.as_ps() - since >= params.get(HIGH_STEP_PERIOD_INDEX);
        self.period_start_ps = if is_over { now.as_ps() } else { since };
        is_over
    }

    /// Returns `true` if a timeout belongs to a later round trip than the last timeout that cut the rate.
    fn is_later_round_trip(&mut self, now: Time, params: &Params) -> bool {
        let since = now.as_ps().saturating_sub(self.cut_at_ps);
        if self.cut_at_ps != 0 && since < self.rtt_ps.max(params.get(TARGET_RTT_INDEX)) {
            return false;
        }
        (self.cut_at_ps, self.period_start_ps) = (now.as_ps(), 0);
        true
    }
}

/// Returns `value * factor / divisor`, without intermediate overflow.
fn mul_div(value: u64, factor: u64, divisor: u64) -> u64 {
    (u128::from(value) * u128::from(factor) / u128::from(divisor)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: ControlView = ControlView { now: Time::ZERO, line_rate: BitRate::gbps(200), mtu: 4_096, in_flight: 9 };

    fn params() -> Params {
        Params::defaults(Rttcc::PARAMS)
    }

    /// Creates the state of a queue pair that has already measured a round trip above the threshold, with the rate
    /// `mbps` in Mbit/s.
    fn congested_at(mbps: u64) -> Rttcc {
        let (state, first) = Rttcc::start(&params(), &LINE);
        assert_eq!(
            (state.rate_bps, first),
            (LINE.line_rate.as_bps(), ControlActions::default()),
            "not at line rate at first"
        );
        Rttcc { rate_bps: mbps * 1_000_000, congested: 1, ..state }
    }

    fn on_event_at(state: &mut Rttcc, us: u64, event: ControlEvent) -> Option<u64> {
        let view = ControlView { now: Time::from_us(us), ..LINE };
        state.on_event(&event, &view, &params()).rate.map(|rate| rate.as_bps() / 1_000_000)
    }

    /// Returns the rate in Mbit/s after each of the round trips `samples`, in microseconds.
    fn rates(state: &mut Rttcc, start_us: u64, samples: &[u64]) -> Vec<u64> {
        let mut now = start_us;
        let mut rate = |us: &u64| {
            now += us;
            let event = ControlEvent::Acked { packets: 1, rtt: Some(Duration::from_us(*us)), marked: 0 };
            on_event_at(state, now, event).expect("a sample sets the rate")
        };
        samples.iter().map(&mut rate).collect()
    }

    /// 96 of 2^20 of 200 Gbit/s are 18.3 Mbit/s.
    #[test]
    fn up_to_the_target_the_rate_grows_by_one_step() {
        assert_eq!(rates(&mut congested_at(1_000), 0, &[13, 1]), [1_018, 1_036]);
        assert_eq!(rates(&mut congested_at(199_990), 0, &[10]), [200_000], "not limited to the line rate");
    }

    /// 1700 of 2^20 of 200 Gbit/s are 324 Mbit/s.
    #[test]
    fn a_period_of_good_round_trips_adds_a_large_step() {
        let mut state = congested_at(10_000);
        assert_eq!(rates(&mut state, 100, &[13]), [10_018], "not one step for the first round trip");
        assert_eq!(rates(&mut state, 299, &[13]), [10_036], "not one step 199 us later");
        assert_eq!(rates(&mut state, 300, &[13]), [10_379], "no large step after 200 us");
        assert_eq!(rates(&mut state, 499, &[13]), [10_397], "two large steps in one period");
        let after = rates(&mut state, 480, &[33])[0];
        assert_eq!(rates(&mut state, 900, &[13]), [after + 18], "not one step at the start of a period");
        assert_eq!(
            rates(&mut state, 1_100, &[13])[0].abs_diff(after + 18 + 342),
            1,
            "no large step at its end, within 1 Mbit/s"
        );
        let mut slow = congested_at(1_000);
        assert_eq!(rates(&mut slow, 0, &[13, 213]), [1_018, 987]);
        assert_eq!(rates(&mut slow, 400, &[13]), [1_006]);
        assert_eq!(rates(&mut slow, 600, &[13]), [1_066], "not limited to 6 %");
        assert_eq!(rates(&mut congested_at(20), 0, &[13, 13]), [38, 56], "not at least one step");
    }

    /// A tenth of (14 - 13) / 13 is 0.7 %, which is 7 thousandths; a tenth of the change to 26 is more than 3 %.
    #[test]
    fn above_the_target_the_rate_falls_in_proportion_to_the_excess() {
        assert_eq!(rates(&mut congested_at(10_000), 0, &[14, 26, 600]), [9_930, 9_632, 9_343]);
        assert_eq!(
            *rates(&mut congested_at(1_000), 0, &[500; 200]).last().expect("there are rates"),
            12,
            "not limited to 64 of 2^20"
        );
        assert_eq!(
            on_event_at(&mut congested_at(1_000), 300, ControlEvent::Nacked { lost: true }),
            None,
            "a loss changed the rate"
        );
    }

    #[test]
    fn the_first_congestion_limits_the_rate_to_half_the_line_rate() {
        let (mut state, _) = Rttcc::start(&params(), &LINE);
        assert_eq!(rates(&mut state, 0, &[10, 14, 14]), [200_000, 100_000, 99_300]);
    }

    #[test]
    fn a_timeout_halves_the_rate_until_a_round_trip_is_below_the_target() {
        let mut state = congested_at(8_000);
        assert_eq!(rates(&mut state, 0, &[40]), [7_760]);
        assert_eq!(on_event_at(&mut state, 100, ControlEvent::TimedOut), Some(3_880));
        assert_eq!(on_event_at(&mut state, 139, ControlEvent::TimedOut), None, "two cuts in one round trip of 40 us");
        assert_eq!(on_event_at(&mut state, 140, ControlEvent::TimedOut), Some(1_940));
        let mut free = state;
        assert_eq!(rates(&mut free, 150, &[13, 13]), [7_778, 7_796], "the rate was not restored");
        assert_eq!(rates(&mut state, 150, &[40, 13]), [1_881, 1_900], "the rate was restored in spite of congestion");
    }
}
