//! Timely: rate control from round-trip times and their gradient.
//!
//! Source: "TIMELY: RTT-based Congestion Control for the Datacenter" (SIGCOMM'15), section 4 and its Algorithm 1,
//! with the values given there; the list below states where those of the public ns-3 models differ. IRN (SIGCOMM'18)
//! section 4.1 runs it with the parameters of the Timely paper.
//!
//! Deviations and choices, where the source leaves a choice:
//!
//! * integers: times in picoseconds, gradient and factors in 1/65536;
//! * a sample is the round trip of one packet and its acknowledgement, and there is at most one sample per round
//!   trip: the engine times one packet at a time, and none that was retransmitted. The original takes one sample per
//!   segment of 16 to 64 KB. Where not every packet is acknowledged, the packet timed is one that requests an
//!   acknowledgement;
//! * with go-back-N and no cap, a flow whose packets are all in flight when one is lost would never be timed again,
//!   and its rate would not change. For this case set `time_resent`: a retransmitted packet is then timed from its
//!   last transmission, as in the public models, whose acknowledgements echo the transmit time. The paper's switches
//!   lose no packets;
//! * the initial rate is the line rate, as for all transports of IRN's evaluation;
//! * a normalised gradient above one counts as one, so that a single sample cuts the rate by beta at most. The
//!   formula as printed gives zero at 1.25, which one burst of another sender reaches in a shallow buffer. With
//!   `limit_gradient = false` the formula is as printed, down to `rate_min`, as in the public ns-3 models;
//! * at 40 Gbit/s, those models increase the rate by 40 Mbit/s, and by 200 Mbit/s in hyper-active mode (HPCC), which
//!   starts after five increases of any kind in a row; the paper increases it by 10 Mbit/s, and starts the mode after
//!   five falling samples between the thresholds. The values here are the paper's;
//! * five samples in a row with a gradient of zero or less enable hyper-active increase, and any other sample
//!   disables it;
//! * `cut_on_loss` (IRN section 4.3, "explicitly backing off on losses"; the paper gives no rule): a loss halves the
//!   rate, at most once per round trip as last measured.

use bytemuck::{Pod, Zeroable};
use rnic_base::{BitRate, Duration, Time};
use rnic_policy::control::ControlInterest;
use rnic_policy::{Control, ControlActions, ControlEvent, ControlView, ParamSpec, Params, Signals};

/// Per-queue-pair state.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Timely {
    /// Current rate, in bit/s.
    rate_bps: u64,
    /// The last sample, in picoseconds; 0 before the first.
    previous_ps: u64,
    /// Smoothed difference between samples, picoseconds.
    difference_ps: i64,
    /// Time of the last cut of the rate by a loss, in picoseconds.
    cut_at_ps: u64,
    /// Number of consecutive samples with a gradient of zero or less.
    falling: u32,
    /// 1 if a loss has ever cut the rate.
    has_cut: u32,
}

/// The value 1 in the fixed-point format of gradients and factors.
const FRACTION_ONE: u64 = 1 << 16;
/// Denominator of weights, which are given in thousandths.
const THOUSAND: u64 = 1_000;

// Indices of the parameters.
const RTT_LOW_INDEX: usize = 0;
const RTT_HIGH_INDEX: usize = 1;
const MIN_RTT_INDEX: usize = 2;
const ADDITIVE_RATE_INDEX: usize = 3;
const HAI_SAMPLES_INDEX: usize = 4;
const HAI_FACTOR_INDEX: usize = 5;
const BETA_INDEX: usize = 6;
const EWMA_INDEX: usize = 7;
const MINIMUM_RATE_INDEX: usize = 8;
const CUT_ON_LOSS_INDEX: usize = 9;
const LIMIT_GRADIENT_INDEX: usize = 10;
const TIME_RESENT_INDEX: usize = 11;

impl Control for Timely {
    const NAME: &'static str = "timely";
    const SUMMARY: &'static str = "rate control from round-trip times and their gradient (SIGCOMM'15)";
    const PARAMS: &'static [ParamSpec] = &[
        ParamSpec::duration("t_low", Duration::from_us(50), "below this round trip the rate only grows"),
        ParamSpec::duration("t_high", Duration::from_us(500), "above this round trip the rate only falls"),
        ParamSpec {
            min: Duration::from_ns(100).as_ps(),
            ..ParamSpec::duration("min_rtt", Duration::from_us(20), "round trip by which differences are normalised")
        },
        ParamSpec::rate("rate_ai", BitRate::bps(10_000_000), "additive increase per sample"),
        ParamSpec::count("hai_samples", 5, 1, 1_000, "falling samples in a row before hyper-active increase"),
        ParamSpec::count("hai_factor", 5, 1, 1_000, "hyper-active increase, as a multiple of the additive one"),
        ParamSpec::count("beta", 800, 1, THOUSAND, "multiplicative decrease, in thousandths"),
        ParamSpec::count("ewma", 875, 1, THOUSAND, "weight of a new difference, in thousandths"),
        ParamSpec::rate("rate_min", BitRate::bps(100_000_000), "the rate never falls below this"),
        ParamSpec::switch("cut_on_loss", false, "a loss halves the rate, once per round trip (IRN section 4.3)"),
        ParamSpec::switch("limit_gradient", true, "a gradient above one counts as one"),
        ParamSpec::switch("time_resent", false, "retransmitted packets are timed too (for go-back-N)"),
    ];

    fn start(_: &Params, view: &ControlView) -> (Self, ControlActions) {
        (Self { rate_bps: view.line_rate.as_bps(), ..Self::zeroed() }, ControlActions::default())
    }

    fn interest(params: &Params) -> ControlInterest {
        let losses = if params.is_on(CUT_ON_LOSS_INDEX) { Signals::NACKS | Signals::TIMEOUTS } else { Signals::NONE };
        let needs = Signals::ROUND_TRIP | losses;
        let times_retransmitted = params.is_on(TIME_RESENT_INDEX);
        ControlInterest { needs, acked: true, times_retransmitted, ..ControlInterest::default() }
    }

    fn on_event(&mut self, event: &ControlEvent, view: &ControlView, params: &Params) -> ControlActions {
        let rate_bps = match *event {
            ControlEvent::Acked { rtt: Some(rtt), .. } => self.rate_for_sample(rtt, params),
            ControlEvent::Nacked { lost: true } | ControlEvent::TimedOut if self.cuts(view.now, params) => {
                self.rate_bps / 2
            }
            _ => return ControlActions::default(),
        };
        self.rate_bps = rate_bps.max(params.get(MINIMUM_RATE_INDEX)).min(view.line_rate.as_bps());
        ControlActions { rate: Some(BitRate::bps(self.rate_bps)), ..ControlActions::default() }
    }
}

impl Timely {
    /// Returns the rate for the sample `rtt` by Algorithm 1, before the rate's bounds are applied.
    fn rate_for_sample(&mut self, rtt: Duration, params: &Params) -> u64 {
        let sample = rtt.as_ps().max(1);
        let new_difference =
            if self.previous_ps == 0 { 0 } else { sample.cast_signed() - self.previous_ps.cast_signed() };
        self.previous_ps = sample;
        let weight = i128::from(params.get(EWMA_INDEX));
        let mixed =
            (i128::from(THOUSAND) - weight) * i128::from(self.difference_ps) + weight * i128::from(new_difference);
        self.difference_ps = (mixed / i128::from(THOUSAND)) as i64;
        let falls = self.difference_ps <= 0;
        self.falling = if falls { self.falling.saturating_add(1) } else { 0 };
        let (low, high) = (params.get(RTT_LOW_INDEX), params.get(RTT_HIGH_INDEX));
        if sample < low {
            return self.rate_bps + params.get(ADDITIVE_RATE_INDEX);
        }
        if sample > high {
            return self.reduced(params, FRACTION_ONE - mul_div(FRACTION_ONE, high, sample));
        }
        if falls {
            let is_hyper = u64::from(self.falling) >= params.get(HAI_SAMPLES_INDEX);
            return self.rate_bps
                + params.get(ADDITIVE_RATE_INDEX) * if is_hyper { params.get(HAI_FACTOR_INDEX) } else { 1 };
        }
        let gradient = mul_div(FRACTION_ONE, self.difference_ps.unsigned_abs(), params.get(MIN_RTT_INDEX));
        self.reduced(params, if params.is_on(LIMIT_GRADIENT_INDEX) { gradient.min(FRACTION_ONE) } else { gradient })
    }

    /// Returns the rate, reduced by the fraction beta times `share`, where 65536 is a `share` of 1.
    fn reduced(&self, params: &Params, share: u64) -> u64 {
        self.rate_bps.saturating_sub(mul_div(self.rate_bps, params.get(BETA_INDEX) * share, THOUSAND * FRACTION_ONE))
    }

    /// Returns `true` if a loss now cuts the rate.
    fn cuts(&mut self, now: Time, params: &Params) -> bool {
        let since = now.as_ps().saturating_sub(self.cut_at_ps);
        let is_later_round_trip = self.has_cut == 0 || since >= self.previous_ps.max(params.get(MIN_RTT_INDEX));
        if !params.is_on(CUT_ON_LOSS_INDEX) || !is_later_round_trip {
            return false;
        }
        (self.has_cut, self.cut_at_ps) = (1, now.as_ps());
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

    const LINE: ControlView = ControlView { now: Time::ZERO, line_rate: BitRate::gbps(40), mtu: 1_024, in_flight: 9 };

    fn params(options: &[(&str, &str)]) -> Params {
        let mut params = Params::defaults(Timely::PARAMS);
        for (name, value) in options {
            assert_eq!(params.set(Timely::PARAMS, name, value), Ok(true));
        }
        params
    }

    fn start(mbps: u64) -> Timely {
        let (state, first) = Timely::start(&params(&[]), &LINE);
        assert_eq!(first, ControlActions::default(), "not at line rate at first");
        Timely { rate_bps: mbps * 1_000_000, ..state }
    }

    /// Returns the rate in Mbit/s after each of `samples`, which are in microseconds.
    fn rates(state: &mut Timely, samples: &[u64]) -> Vec<f64> {
        let rate = |us: &u64| {
            let event = ControlEvent::Acked { packets: 1, rtt: Some(Duration::from_us(*us)), marked: 0 };
            let rate = state.on_event(&event, &LINE, &params(&[])).rate.expect("a sample sets the rate");
            rate.as_bps() as f64 / 1e6
        };
        samples.iter().map(rate).collect()
    }

    #[test]
    fn below_t_low_the_rate_grows_whatever_the_gradient() {
        assert_eq!(rates(&mut start(1_000), &[30, 49, 20, 45]), [1_010.0, 1_020.0, 1_030.0, 1_040.0]);
        assert_eq!(rates(&mut start(39_995), &[30]), [40_000.0], "not limited to the line rate");
    }

    /// rate * (1 - beta * (1 - T_high / rtt)): at 1 ms, 1 - 0.8 * 0.5 = 0.6; at 2 ms, 1 - 0.8 * 0.75 = 0.4.
    #[test]
    fn above_t_high_the_rate_falls_in_proportion_to_the_excess() {
        assert_eq!(rates(&mut start(10_000), &[1_000, 2_000]), [6_000.0, 2_400.0]);
        assert_eq!(
            *rates(&mut start(10_000), &[5_000; 20]).last().expect("there are rates"),
            100.0,
            "not limited to rate_min"
        );
    }

    /// All samples are between the thresholds. The first sample has no difference. The second round trip is 16 us
    /// longer: the smoothed difference is 0.875 times 16, or 14 us; divided by 20 us, that is a gradient of 0.7;
    /// times 0.8, it decreases the rate by 0.56. The third is 8 us shorter: 0.125 times 14 minus 0.875 times 8 is
    /// -5.25 us, so the rate increases.
    #[test]
    fn the_gradient_decides_between_the_thresholds() {
        let mut state = start(10_000);
        let rates = rates(&mut state, &[100, 116, 108]);
        let expected = [10_010.0, 10_010.0 * 0.44, 10_010.0 * 0.44 + 10.0];
        for (rate, expected) in rates.iter().zip(expected) {
            assert!((rate - expected).abs() < 0.5, "{rates:?}");
        }
        assert_eq!(state.difference_ps, -5_250_000);
    }

    #[test]
    fn a_steep_gradient_cuts_by_beta_at_most() {
        let cut = rates(&mut start(10_000), &[100, 400]);
        assert!((cut[1] - 10_010.0 * 0.2).abs() < 0.5, "{cut:?}");
    }

    #[test]
    fn as_printed_a_steep_gradient_leaves_the_least_rate() {
        let (mut state, as_printed) = (start(10_000), params(&[("limit_gradient", "false")]));
        let mut rate = |us| {
            let event = ControlEvent::Acked { packets: 1, rtt: Some(Duration::from_us(us)), marked: 0 };
            state.on_event(&event, &LINE, &as_printed).rate.expect("a sample sets the rate").as_bps() / 1_000_000
        };
        assert_eq!([rate(100), rate(400)], [10_010, 100]);
    }

    #[test]
    fn five_falling_samples_in_a_row_make_the_increase_hyper_active() {
        let mut state = start(1_000);
        let falling = rates(&mut state, &[100, 99, 98, 97, 96, 95]);
        assert_eq!(falling, [1_010.0, 1_020.0, 1_030.0, 1_040.0, 1_090.0, 1_140.0]);
        rates(&mut state, &[110]);
        let before = state.rate_bps as f64 / 1e6;
        let after = rates(&mut state, &[60]);
        assert_eq!(after, [before + 10.0], "hyper-active increase after a rising sample");
    }

    #[test]
    fn i_r9_explicit_back_off_halves_once_a_round_trip_and_is_off_by_default() {
        let mut state = start(8_000);
        rates(&mut state, &[40]);
        let lost = ControlEvent::Nacked { lost: true };
        assert_eq!(state.on_event(&lost, &LINE, &params(&[])), ControlActions::default());
        let on = params(&[("cut_on_loss", "true")]);
        let mut at = |us: u64, event| {
            let view = ControlView { now: Time::ZERO + Duration::from_us(us), ..LINE };
            state.on_event(&event, &view, &on).rate.map(|rate| rate.as_bps() / 1_000_000)
        };
        assert_eq!(at(100, ControlEvent::Nacked { lost: false }), None, "cut by a NACK that is not a loss");
        assert_eq!(at(100, lost), Some(4_005));
        assert_eq!(at(139, lost), None, "two cuts in one round trip of 40 us");
        assert_eq!(at(140, ControlEvent::TimedOut), Some(2_002));
    }
}
