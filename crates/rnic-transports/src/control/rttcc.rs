//! RTTCC-like: a rate from round trips of probes.
//!
//! Source: what is published of RTTCC, the adapters' default (ConnectX-7; Falcon, SIGCOMM'25, sections 2.1, 6 and
//! reference 6: NVIDIA, "Scaling Zero Touch RoCE Technology with Round Trip Time Congestion Control", and the overview
//! of the algorithm in NVIDIA's documentation): it sets a rate, by round-trip times that probe packets measure beside
//! the data path; it needs no switch. Its rule and its numbers are not published.
//!
//! Deviations and choices; where there was one, it was made in favour of the algorithm, for it is a baseline:
//!
//! * the rule is ours: below a target the rate grows by a constant, and after some such round trips in a row by a share
//!   of itself too; above it falls by how far the round trip is above, to a half at most. That is Swift's decrease, and
//!   the target is the base target of Falcon's Swift: what is compared is the path of the signal, not the set point;
//! * a probe is one of the queue pair's own packets: the engine times one at a time, so there is a round trip a round
//!   trip, as with a probe that leaves when the one before is back. Probes of their own would wait in the same queues,
//!   and cost bandwidth. Time at the receiver is not taken out, since it answers at once. A packet that is sent again
//!   is timed from its last sending;
//! * a loss says nothing (`cut_on_loss` makes it halve the rate, at most once a round trip). A timeout, with which
//!   probes are lost too, halves the rate;
//! * there is no window: nothing bounds what is under way but the rate. The rate begins at the line's.

use bytemuck::{Pod, Zeroable};
use rnic_base::{BitRate, Duration, Time};
use rnic_policy::control::ControlInterest;
use rnic_policy::{Control, ControlActions, ControlEvent, ControlView, ParamSpec, Params};

/// Per-queue-pair state.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Rttcc {
    /// Rate in force, bit/s.
    rate_bps: u64,
    /// When a loss or a timeout last cut the rate, picoseconds; 0 before the first.
    cut_at_ps: u64,
    /// The last round trip, picoseconds.
    rtt_ps: u64,
    /// Round trips in a row at or below the target.
    good: u64,
}

/// Shares are given in thousandths.
const WHOLE: u64 = 1_000;

const TARGET: usize = 0;
const ADDITIVE_RATE: usize = 1;
const HAI_SAMPLES: usize = 2;
const HAI_SHARE: usize = 3;
const BETA: usize = 4;
const MOST_CUT: usize = 5;
const MINIMUM_RATE: usize = 6;
const CUT_ON_LOSS: usize = 7;

impl Control for Rttcc {
    const NAME: &'static str = "rttcc";
    const SUMMARY: &'static str = "rate control from round trips of probes, as far as RTTCC is published (our rule)";
    const PARAMS: &'static [ParamSpec] = &[
        ParamSpec::duration("target_rtt", Duration::from_us(25), "above this round trip the rate falls"),
        ParamSpec::rate("rate_ai", BitRate::bps(20_000_000), "additive increase per round trip"),
        ParamSpec::count("hai_samples", 3, 1, 1_000, "good round trips in a row before increase by a share"),
        ParamSpec::count("hai_share", 50, 0, WHOLE, "that share of the rate, in thousandths"),
        ParamSpec::count("beta", 800, 1, WHOLE, "multiplicative decrease, in thousandths"),
        ParamSpec::count("max_cut", 500, 1, WHOLE, "most that one round trip takes off the rate, in thousandths"),
        ParamSpec::rate("rate_min", BitRate::bps(5_000_000), "the rate never falls below this"),
        ParamSpec::switch("cut_on_loss", false, "a loss halves the rate, once per round trip"),
    ];

    fn start(_: &Params, view: &ControlView) -> (Self, ControlActions) {
        (Self { rate_bps: view.line_rate.as_bps(), ..Self::zeroed() }, ControlActions::default())
    }

    fn interest(_: &Params) -> ControlInterest {
        ControlInterest { acked: true, resent: true, ..ControlInterest::default() }
    }

    fn on_event(&mut self, event: &ControlEvent, view: &ControlView, params: &Params) -> ControlActions {
        let rate_bps = match *event {
            ControlEvent::Acked { rtt: Some(rtt), .. } => self.take_sample(rtt, params),
            ControlEvent::Nacked { lost: true } if params.is_on(CUT_ON_LOSS) && self.is_news(view.now, params) => {
                self.rate_bps / 2
            }
            ControlEvent::TimedOut if self.is_news(view.now, params) => self.rate_bps / 2,
            _ => return ControlActions::default(),
        };
        self.rate_bps = rate_bps.max(params.get(MINIMUM_RATE)).min(view.line_rate.as_bps());
        ControlActions { rate: Some(BitRate::bps(self.rate_bps)), ..ControlActions::default() }
    }
}

impl Rttcc {
    /// The rate that `rtt` asks for, bounds aside.
    fn take_sample(&mut self, rtt: Duration, params: &Params) -> u64 {
        let (rtt, target) = (rtt.as_ps().max(1), params.get(TARGET));
        self.rtt_ps = rtt;
        if rtt <= target {
            self.good += 1;
            let share = if self.good >= params.get(HAI_SAMPLES) { params.get(HAI_SHARE) } else { 0 };
            return self.rate_bps + params.get(ADDITIVE_RATE) + mul_div(self.rate_bps, share, WHOLE);
        }
        self.good = 0;
        let cut = mul_div(params.get(BETA), rtt - target, rtt).min(params.get(MOST_CUT));
        self.rate_bps - mul_div(self.rate_bps, cut, WHOLE)
    }

    /// Whether a loss is of another round trip than the last one that was heeded.
    fn is_news(&mut self, now: Time, params: &Params) -> bool {
        let since = now.as_ps().saturating_sub(self.cut_at_ps);
        if self.cut_at_ps != 0 && since < self.rtt_ps.max(params.get(TARGET)) {
            return false;
        }
        (self.cut_at_ps, self.good) = (now.as_ps(), 0);
        true
    }
}

/// `value * by / divisor`, without overflow on the way.
fn mul_div(value: u64, by: u64, divisor: u64) -> u64 {
    (u128::from(value) * u128::from(by) / u128::from(divisor)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: ControlView = ControlView { now: Time::ZERO, line_rate: BitRate::gbps(200), mtu: 4_096, in_flight: 9 };

    fn params(options: &[(&str, &str)]) -> Params {
        let mut params = Params::defaults(Rttcc::PARAMS);
        for (name, value) in options {
            assert_eq!(params.set(Rttcc::PARAMS, name, value), Ok(true));
        }
        params
    }

    fn at(mbps: u64) -> Rttcc {
        let (state, first) = Rttcc::start(&params(&[]), &LINE);
        assert_eq!((state.rate_bps, first), (LINE.line_rate.as_bps(), ControlActions::default()), "line rate at first");
        Rttcc { rate_bps: mbps * 1_000_000, ..state }
    }

    /// Megabits per second after each round trip, given in microseconds.
    fn rates(state: &mut Rttcc, samples: &[u64]) -> Vec<u64> {
        let rate = |us: &u64| {
            let event = ControlEvent::Acked { packets: 1, rtt: Some(Duration::from_us(*us)), marked: 0 };
            state.on_event(&event, &LINE, &params(&[])).rate.expect("a sample sets the rate").as_bps() / 1_000_000
        };
        samples.iter().map(rate).collect()
    }

    #[test]
    fn up_to_the_target_the_rate_grows_and_later_by_a_share() {
        assert_eq!(rates(&mut at(1_000), &[10, 25, 10, 10]), [1_020, 1_040, 1_112, 1_187]);
        assert_eq!(rates(&mut at(199_990), &[10]), [200_000], "up to the line's");
    }

    /// 0.8 * (40 - 25) / 40 = 0.3; 0.8 * 75 / 100 = 0.6, of which one half is taken.
    #[test]
    fn above_the_target_it_falls_by_how_far() {
        let mut state = at(10_000);
        assert_eq!(rates(&mut state, &[40, 100]), [7_000, 3_500]);
        assert_eq!(rates(&mut state, &[10, 10]), [3_520, 3_540], "good ones are counted anew");
        assert_eq!(*rates(&mut at(10_000), &[500; 20]).last().expect("some"), 5, "down to rate_min");
    }

    #[test]
    fn a_timeout_halves_it_once_a_round_trip_and_a_loss_when_told_so() {
        let mut state = at(8_000);
        rates(&mut state, &[40]);
        let mut hear = |us: u64, event, options: &[(&str, &str)]| {
            let view = ControlView { now: Time::from_us(us), ..LINE };
            state.on_event(&event, &view, &params(options)).rate.map(|rate| rate.as_bps() / 1_000_000)
        };
        let lost = ControlEvent::Nacked { lost: true };
        assert_eq!(hear(100, lost, &[]), None);
        assert_eq!(hear(100, ControlEvent::TimedOut, &[]), Some(2_800));
        assert_eq!(hear(139, ControlEvent::TimedOut, &[]), None, "the same round trip of 40 us");
        assert_eq!(hear(140, lost, &[("cut_on_loss", "true")]), Some(1_400));
        assert_eq!(hear(300, ControlEvent::Nacked { lost: false }, &[("cut_on_loss", "true")]), None);
    }
}
