//! DCQCN: rate control from ECN marks, which are signalled by congestion notification packets.
//!
//! Source: "Congestion Control for Large-Scale RDMA Deployments" (SIGCOMM'15), section 3 and its parameter table; IRN
//! (SIGCOMM'18) section 4.1 uses the same values. This file implements the reaction point; the engine implements the
//! notification point (one CNP per 50 us and queue pair), and the switch does the marking.
//!
//! Deviations: integer arithmetic, alpha in 1/65536; the alpha and rate timers are a single timer (both 55 us in the
//! paper), so they expire together; the byte counter counts payload.
//!
//! A CNP restarts the timer, as in the simulator of the paper's authors (`rpr_cnm_received` of
//! github.com/bobzhuyb/ns3-rdma): with a CNP every 50 us and a period of 55 us, the rate only falls.
//!
//! IRN says that it runs DCQCN "as implemented in the Mellanox ConnectX-4" with the parameters of the paper. The
//! published information on that adapter (its vendor's page on DCQCN parameters; the public ns-3 models of HPCC and
//! ConWeave) differs from the paper in these points:
//!
//! | | paper, and here by default | adapter, public models | here |
//! |---|---|---|---|
//! | target of a cut | always the rate before it | the same, after a timer round since the last cut | `clamp_target` |
//! | time of a cut | on the CNP | at the next check, every 4 us (`dcqcn_paper`: 50 us) | on the CNP |
//! | rounds of fast recovery | 5 | 1 | `fast_recovery_rounds` |
//! | byte counter | 10 MB | none in the models | `byte_counter` |
//! | minimum rate | not given | 100 Mbit/s (ConWeave), 1 Gbit/s (HPCC) | `rate_min`: 40 Mbit/s |
//! | increase at 40 Gbit/s | 40 Mbit/s | 16 and 40 (ConWeave), 8 and 80 (HPCC) | `rate_ai`, `rate_hai` |
//! | timers, rate and alpha | 55 us, 55 us | 300 us, 1 us; `dcqcn_paper`: 55 us, 50 us | `dcqcn_timer` for both |
//! | marks | 5 to 200 KB, 1 % | 160 to 640 KB (HPCC), 100 to 400 KB (ConWeave), 20 % | the switch's `ecn` |
//! | CNPs | one in 50 us | with the acknowledgement of each marked or out-of-order packet | `cnp_interval` |
//!
//! `cut_on_loss` (IRN section 4.3, "explicitly backing off on losses"; the paper gives no rule) treats a loss as a CNP,
//! at most once per `cnp_interval`. Off by default: DCQCN as published does not react to losses.

use bytemuck::{Pod, Zeroable};
use rnic_base::{BitRate, Duration};
use rnic_policy::control::ControlInterest;
use rnic_policy::{Control, ControlActions, ControlEvent, ControlView, ParamSpec, Params, Signals};

/// Per-queue-pair state of the reaction point.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Dcqcn {
    /// Current rate, in bit/s.
    current_bps: u64,
    /// Target rate, to which the current rate recovers, in bit/s.
    target_bps: u64,
    /// Bytes sent since the byte counter last expired.
    bytes: u64,
    /// Congestion estimate, 65536 = 1.
    alpha: u32,
    /// Expirations of the byte counter since the last cut.
    byte_rounds: u32,
    /// Expirations of the timer since the last cut.
    timer_rounds: u32,
    /// 1 from a CNP until the rate and alpha have recovered from it.
    active: u32,
    /// Time from which a loss cuts the rate again, in picoseconds.
    loss_cuts_from_ps: u64,
}

const ALPHA_ONE: u64 = 1 << 16;
/// Gain g = 1/256, as a shift.
const GAIN_SHIFT: u32 = 8;

const TIMER_INDEX: usize = 0;
const CNP_INTERVAL_INDEX: usize = 1;
const BYTE_COUNTER_INDEX: usize = 2;
const FAST_RECOVERY_ROUNDS_INDEX: usize = 3;
const ADDITIVE_RATE_INDEX: usize = 4;
const HYPER_RATE_INDEX: usize = 5;
const MINIMUM_RATE_INDEX: usize = 6;
const CUT_ON_LOSS_INDEX: usize = 7;
const CLAMP_TARGET_INDEX: usize = 8;

impl Control for Dcqcn {
    const NAME: &'static str = "dcqcn";
    const SUMMARY: &'static str = "rate control from ECN marks and CNPs (SIGCOMM'15)";
    const PARAMS: &'static [ParamSpec] = &[
        ParamSpec {
            min: Duration::from_us(1).as_ps(),
            ..ParamSpec::duration("dcqcn_timer", Duration::from_us(55), "period of the rate and alpha timers")
        },
        ParamSpec::duration("cnp_interval", Duration::from_us(50), "at most one CNP per queue pair in this time"),
        ParamSpec::bytes("byte_counter", 10_000_000, 1_000, 1 << 32, "bytes sent per round of rate increase"),
        ParamSpec::count("fast_recovery_rounds", 5, 1, 1_000, "F: rounds of fast recovery"),
        ParamSpec::rate("rate_ai", BitRate::bps(40_000_000), "additive increase"),
        ParamSpec::rate("rate_hai", BitRate::bps(200_000_000), "hyper increase"),
        ParamSpec::rate("rate_min", BitRate::bps(40_000_000), "the rate never falls below this"),
        ParamSpec::switch("cut_on_loss", false, "a loss counts as a CNP, once per interval (IRN section 4.3)"),
        ParamSpec::switch("clamp_target", true, "off: cuts within one timer round return to the rate before the first"),
    ];

    fn start(_: &Params, view: &ControlView) -> (Self, ControlActions) {
        let line = view.line_rate.as_bps();
        let state = Self { current_bps: line, target_bps: line, alpha: ALPHA_ONE as u32, ..Self::zeroed() };
        (state, ControlActions::default())
    }

    fn interest(params: &Params) -> ControlInterest {
        let cnp_interval = Some(params.duration(CNP_INTERVAL_INDEX));
        let losses = if params.is_on(CUT_ON_LOSS_INDEX) { Signals::NACKS | Signals::TIMEOUTS } else { Signals::NONE };
        let needs = Signals::CNP | Signals::SENT | Signals::TICKS | losses;
        ControlInterest { needs, sent: true, cnp_interval, ..ControlInterest::default() }
    }

    fn on_event(&mut self, event: &ControlEvent, view: &ControlView, params: &Params) -> ControlActions {
        match *event {
            ControlEvent::Cnp => return self.cut(view, params),
            ControlEvent::Nacked { lost: true } | ControlEvent::TimedOut if self.reacts_to_loss(view, params) => {
                return self.cut(view, params);
            }
            ControlEvent::Sent { bytes } if self.active != 0 => {
                self.bytes += bytes;
                if self.bytes >= params.get(BYTE_COUNTER_INDEX) {
                    self.bytes = 0;
                    self.byte_rounds += 1;
                    return self.increase(view, params);
                }
            }
            ControlEvent::Tick if self.active != 0 => {
                let before = (self.current_bps, self.target_bps, self.alpha);
                self.alpha -= self.alpha >> GAIN_SHIFT;
                self.timer_rounds += 1;
                let mut actions = self.increase(view, params);
                // At line rate there is no further change, so the timer stops; the next CNP restarts it.
                let is_recovered = self.target_bps == view.line_rate.as_bps();
                if is_recovered && before == (self.current_bps, self.target_bps, self.alpha) {
                    self.active = 0;
                } else {
                    actions.tick_after = Some(params.duration(TIMER_INDEX));
                }
                return actions;
            }
            _ => {}
        }
        ControlActions::default()
    }
}

impl Dcqcn {
    /// Handles a CNP: stores the current rate as target, cuts the rate by alpha/2, raises alpha and restarts the timer
    /// and the counters.
    fn cut(&mut self, view: &ControlView, params: &Params) -> ControlActions {
        self.active = 1;
        if params.is_on(CLAMP_TARGET_INDEX) || self.timer_rounds > 0 {
            self.target_bps = self.current_bps;
        }
        let cut = (u128::from(self.current_bps) * u128::from(self.alpha)) >> 17;
        self.current_bps = self.clamp(self.current_bps - cut as u64, view, params);
        self.alpha = self.alpha - (self.alpha >> GAIN_SHIFT) + (ALPHA_ONE >> GAIN_SHIFT) as u32;
        (self.bytes, self.byte_rounds, self.timer_rounds) = (0, 0, 0);
        let tick_after = Some(params.duration(TIMER_INDEX));
        ControlActions { rate: Some(BitRate::bps(self.current_bps)), tick_after, ..ControlActions::default() }
    }

    /// Returns `true` if a loss at this time is treated as a CNP.
    fn reacts_to_loss(&mut self, view: &ControlView, params: &Params) -> bool {
        let now_ps = view.now.as_ps();
        if !params.is_on(CUT_ON_LOSS_INDEX) || now_ps < self.loss_cuts_from_ps {
            return false;
        }
        self.loss_cuts_from_ps = now_ps.saturating_add(params.get(CNP_INTERVAL_INDEX));
        true
    }

    /// Performs one round of fast recovery, additive increase or hyper increase.
    fn increase(&mut self, view: &ControlView, params: &Params) -> ControlActions {
        let fast = params.get(FAST_RECOVERY_ROUNDS_INDEX) as u32;
        let (most, least) = (self.timer_rounds.max(self.byte_rounds), self.timer_rounds.min(self.byte_rounds));
        if least > fast {
            self.target_bps += params.get(HYPER_RATE_INDEX);
        } else if most > fast {
            self.target_bps += params.get(ADDITIVE_RATE_INDEX);
        }
        self.target_bps = self.target_bps.min(view.line_rate.as_bps());
        let halfway = self.current_bps.midpoint(self.target_bps);
        self.current_bps = self.clamp(halfway, view, params);
        ControlActions { rate: Some(BitRate::bps(self.current_bps)), ..ControlActions::default() }
    }

    fn clamp(&self, bps: u64, view: &ControlView, params: &Params) -> u64 {
        let line = view.line_rate.as_bps();
        bps.max(params.get(MINIMUM_RATE_INDEX)).min(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_base::Time;

    const LINE: ControlView = ControlView { now: Time::ZERO, line_rate: BitRate::gbps(100), mtu: 1_024, in_flight: 0 };

    /// Returns the rate in Mbit/s after each of `events`.
    fn rates(state: &mut Dcqcn, events: impl IntoIterator<Item = ControlEvent>) -> Vec<f64> {
        let params = Params::defaults(Dcqcn::PARAMS);
        let rate = |event| state.on_event(&event, &LINE, &params).rate.map_or(0.0, |rate| rate.as_bps() as f64 / 1e6);
        events.into_iter().map(rate).collect()
    }

    /// Section 3.1 with its parameters: two cuts by half (alpha is 1); five rounds, each halving the distance to the
    /// rate before the last cut; then 40 Mbit/s a round, and 200 when both timer and byte counter have completed five
    /// rounds.
    #[test]
    fn rates_recover_in_the_three_stages_of_the_paper() {
        let (mut state, _) = Dcqcn::start(&Params::defaults(Dcqcn::PARAMS), &LINE);
        assert_eq!(rates(&mut state, [ControlEvent::Cnp, ControlEvent::Cnp]), [50_000.0, 25_000.0]);
        let fast = [37_500.0, 43_750.0, 46_875.0, 48_437.5, 49_218.75];
        assert_eq!(rates(&mut state, [ControlEvent::Tick; 5]), fast);
        assert_eq!(rates(&mut state, [ControlEvent::Tick]), [49_629.375], "not half way to 50040");
        let a_round = |parts: u64| (0..parts).map(move |_| ControlEvent::Sent { bytes: 10_000_000 / parts });
        let counted = rates(&mut state, a_round(4));
        assert_eq!(counted[..3], [0.0; 3], "a round with fewer than ten million bytes");
        assert_eq!(counted[3], 49_854.687_5, "not half way to 50080");
        rates(&mut state, (0..4).flat_map(|_| a_round(1)));
        assert_eq!(state.target_bps, 50_240_000_000, "no additive increase after five rounds of bytes");
        rates(&mut state, a_round(1));
        assert_eq!(state.target_bps, 50_440_000_000, "no hyper increase after six rounds of both");
    }

    /// As documented for ConnectX-4: after two cuts without a timer round in between, the rate returns to the value
    /// before both.
    #[test]
    fn without_clamping_cuts_in_one_timer_round_return_to_the_rate_before_the_first() {
        let params = Params::defaults(Dcqcn::PARAMS).with(CLAMP_TARGET_INDEX, 0);
        let (mut state, _) = Dcqcn::start(&params, &LINE);
        let mut after = |event: ControlEvent| {
            state.on_event(&event, &LINE, &params);
            (state.current_bps / 1_000_000, state.target_bps / 1_000_000)
        };
        assert_eq!([after(ControlEvent::Cnp), after(ControlEvent::Cnp)], [(50_000, 100_000), (25_000, 100_000)]);
        assert_eq!(after(ControlEvent::Tick), (62_500, 100_000));
        assert_eq!(after(ControlEvent::Cnp).1, 62_500, "the target was kept after a timer round");
    }

    /// As in the simulator of the paper's authors: every CNP starts the period again, and its end lowers alpha, too.
    #[test]
    fn a_cnp_restarts_the_timer() {
        let params = Params::defaults(Dcqcn::PARAMS);
        let (mut state, _) = Dcqcn::start(&params, &LINE);
        for _ in 0..3 {
            let cut = state.on_event(&ControlEvent::Cnp, &LINE, &params);
            assert_eq!(cut.tick_after, Some(Duration::from_us(55)));
        }
        let before = state.alpha;
        let increased = state.on_event(&ControlEvent::Tick, &LINE, &params);
        assert_eq!(increased.rate, Some(BitRate::bps(18_750_000_000)), "half way from 12.5 to 25 Gbit/s");
        assert_eq!(state.alpha, before - (before >> GAIN_SHIFT));
    }

    /// Alpha, the estimate of congestion, decreases by 1/256 in every period without a notification.
    #[test]
    fn the_cut_shrinks_with_the_time_since_the_last_cnp() {
        let cut_after = |periods: usize| {
            let (mut state, _) = Dcqcn::start(&Params::defaults(Dcqcn::PARAMS), &LINE);
            rates(&mut state, [ControlEvent::Cnp]);
            rates(&mut state, vec![ControlEvent::Tick; periods]);
            let before = state.current_bps;
            rates(&mut state, [ControlEvent::Cnp]);
            (before - state.current_bps) as f64 / before as f64
        };
        for (periods, share) in [(0, 0.5), (177, 0.25), (2_000, 0.002)] {
            let cut = cut_after(periods);
            assert!((cut - share).abs() < 0.002, "after {periods} periods: {cut}");
        }
    }

    #[test]
    fn i_r9_explicit_back_off_counts_losses_as_notifications_and_is_off_by_default() {
        let lost = ControlEvent::Nacked { lost: true };
        let (mut state, _) = Dcqcn::start(&Params::defaults(Dcqcn::PARAMS), &LINE);
        assert_eq!(rates(&mut state, [lost, ControlEvent::TimedOut]), [0.0, 0.0]);
        let params = Params::defaults(Dcqcn::PARAMS).with(CUT_ON_LOSS_INDEX, 1);
        let mut at = |us: u64, event| {
            let view = ControlView { now: Time::ZERO + Duration::from_us(us), ..LINE };
            state.on_event(&event, &view, &params).rate.map(|rate| rate.as_bps() / 1_000_000)
        };
        assert_eq!(at(10, ControlEvent::Nacked { lost: false }), None);
        assert_eq!(at(10, lost), Some(50_000));
        assert_eq!(at(59, lost), None, "two cuts in 50 us");
        assert_eq!(at(60, ControlEvent::TimedOut), Some(25_000));
    }

    /// The timer of an idle queue pair stops eventually.
    #[test]
    fn the_timer_ends_with_recovery_and_starts_with_the_next_cnp() {
        let view = ControlView { now: Time::ZERO, line_rate: BitRate::gbps(10), mtu: 1_024, in_flight: 0 };
        let params = Params::defaults(Dcqcn::PARAMS);
        let (mut state, _) = Dcqcn::start(&params, &view);
        for _ in 0..2 {
            let cut = state.on_event(&ControlEvent::Cnp, &view, &params);
            assert!(cut.tick_after.is_some() && cut.rate < Some(view.line_rate));
            let mut rates = Vec::new();
            while state.active != 0 {
                rates.push(state.on_event(&ControlEvent::Tick, &view, &params).rate.expect("every tick sets the rate"));
                assert!(rates.len() < 10_000, "the timer does not stop");
            }
            assert!(rates.is_sorted());
            assert!(
                rates.last().expect("there are rates").as_bps() >= view.line_rate.as_bps() - 1,
                "not recovered, except for rounding"
            );
        }
    }
}
