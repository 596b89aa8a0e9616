//! Acknowledgements on several connections in one batch.
//!
//! The batching is OpenRNIC's and has no source. The rules are those of [`super`]. Each of a sequence of loops over the
//! lanes (one lane per connection) does one type of work: read state from memory; compute the target delay; the
//! quotients; the results that depend on them, without a branch; the gap, which needs a division where a window is
//! below one; the timeouts; write state back to memory. On processors with suitable instructions (AVX2), the compiler
//! processes several lanes of most of these loops in one instruction. A flow's first report is handled by the code
//! for single reports.

use multiversion::multiversion;
use rnic_policy::Params;
use rnic_policy::control::lanes::{Acks, LANES, LaneSet, ResponseLanes, StateLanes};
use rnic_policy::control::report::{Gap, Ticks};

use super::nic::NicWindow;
use super::state::{self, Flow, FlowWords, NicWords, Totals};
use super::timeouts::UNMEASURED;
use super::timers;
use super::{AckSample, INCREASE_INDEX, Quotients, Swift};
use super::{ack_rate, alpha, fabric, nic, on_sample, rx_target, target_delay};

type Lanes = [u32; LANES];

/// The connections' state, one word for each lane.
#[derive(Default)]
struct LaneStates {
    window: Lanes,
    rtt: Lanes,
    marker: Lanes,
    congested: Lanes,
    ncwnd: Lanes,
    nic: Lanes,
    /// [`alpha::Alphas::bits`]; written to the state, but not read from it.
    shares: Lanes,
    /// Sum of the windows of the connection's other flow states; the next field has the longest of their round trips.
    others: Lanes,
    slowest: [Ticks; LANES],
}

/// [`Quotients`] of all lanes as a structure of arrays: one array per field.
#[derive(Default)]
struct PreparedQuotients {
    target: [Ticks; LANES],
    up: Lanes,
    inverse: Lanes,
    lowered: Lanes,
}

/// [`Totals`], field by field.
#[derive(Default)]
struct AllTotals {
    fcwnd: Lanes,
    srtt: [Ticks; LANES],
}

/// See [`rnic_policy::ReportControl::on_acks`]; compiled for two targets, selected by the processor at run time.
#[multiversion(targets("x86_64+avx2+bmi1+bmi2+lzcnt"))]
pub(super) fn on_acks<L: StateLanes<Swift> + ?Sized>(
    states: &mut L,
    acks: &Acks,
    set: LaneSet,
    params: &Params,
    answers: &mut ResponseLanes,
) -> LaneSet {
    process_lanes(states, acks, set, params, answers)
}

#[inline(always)]
fn process_lanes<L: StateLanes<Swift> + ?Sized>(
    states: &mut L,
    acks: &Acks,
    set: LaneSet,
    params: &Params,
    answers: &mut ResponseLanes,
) -> LaneSet {
    let mut lane_states = LaneStates::default();
    let mut done = 0;
    for lane in 0..LANES {
        let state = states.state(lane);
        let is_known = lane_states.read(lane, state, index(acks, lane), acks.flows[lane]);
        done |= LaneSet::from(is_known) << lane;
    }
    let mut prepared = PreparedQuotients::default();
    for lane in 0..LANES {
        let fcwnd = lane_states.window[lane] & state::WINDOW_MAX;
        prepared.target[lane] = target_delay(fcwnd, acks.hops[lane], params);
    }
    prepared.divide(&lane_states, acks, params);
    let (mut totals, timeouts) = (AllTotals::default(), super::timeouts_of(params));
    for lane in 0..LANES {
        let (mut flow, mut nic) = (lane_states.flow(lane), lane_states.nic(lane));
        let (ack, quotients) = (respond(acks, lane), prepared.quotients(lane));
        let repath = on_sample::<true>(&mut flow, &mut nic, &ack, &quotients, false, params);
        let others = Totals { fcwnd: lane_states.others[lane], srtt: lane_states.slowest[lane] };
        let total = others.and(&flow, index(acks, lane), acks.flows[lane]);
        (totals.fcwnd[lane], totals.srtt[lane]) = (total.fcwnd, total.srtt);
        let alphas = alpha::Alphas::measured(ack.delay, quotients.target, ack.level, params);
        let alphas = alphas.for_windows(total.fcwnd, nic.packets, params);
        answers.fcwnd[lane] = flow.fcwnd;
        answers.ncwnd[lane] = nic.packets;
        answers.rack[lane] = timeouts.rack(ack.rtt, flow.srtt, UNMEASURED);
        answers.tlp[lane] = timeouts.tlp(total.srtt, UNMEASURED);
        answers.repath[lane] = repath.into();
        answers.alpha_requests[lane] = alphas.requests();
        answers.alpha_responses[lane] = alphas.responses();
        answers.ack_rate[lane] = ack_rate::choose(total.fcwnd, nic.packets).get().into();
        lane_states.shares[lane] = alphas.bits();
        lane_states.update(lane, flow, nic);
    }
    for lane in 0..LANES {
        answers.gap[lane] = timers::gap(totals.fcwnd[lane], totals.srtt[lane]).get();
    }
    for lane in 0..LANES {
        let gap = Gap::slots(answers.gap[lane].into());
        answers.rto[lane] = timeouts.rto(totals.srtt[lane], gap, UNMEASURED);
    }
    done &= set;
    for lane in 0..LANES {
        if done & (1 << lane) != 0 {
            lane_states.store(lane, states.state(lane), index(acks, lane));
        }
    }
    done
}

#[inline(always)]
fn index(acks: &Acks, lane: usize) -> usize {
    acks.flow[lane] as usize % state::FLOWS
}

#[inline(always)]
fn respond(acks: &Acks, lane: usize) -> AckSample {
    AckSample {
        now: acks.now[lane],
        rtt: acks.rtt[lane],
        delay: acks.delay[lane],
        acked: acks.acked[lane],
        level: acks.rx_level[lane],
    }
}

impl LaneStates {
    /// Reads `state` of a connection with `flows` flows; returns `true` if its flow `index` has reported before.
    #[inline(always)]
    fn read(&mut self, lane: usize, state: &Swift, index: usize, flows: u32) -> bool {
        let (words, nic, others) = (state.words(index), state.nic_words(), state.others(index, flows));
        self.window[lane] = words.window;
        self.rtt[lane] = words.rtt;
        self.marker[lane] = words.marker;
        self.congested[lane] = words.congested;
        self.ncwnd[lane] = nic.packets;
        self.nic[lane] = nic.bits;
        self.others[lane] = others.fcwnd;
        self.slowest[lane] = others.srtt;
        words.window & state::WINDOW_MAX != 0
    }

    #[inline(always)]
    fn flow_words(&self, lane: usize) -> FlowWords {
        let [window, rtt, marker] = [&self.window, &self.rtt, &self.marker].map(|lanes| lanes[lane]);
        FlowWords { window, rtt, marker, congested: self.congested[lane] }
    }

    #[inline(always)]
    fn nic_words(&self, lane: usize) -> NicWords {
        NicWords { packets: self.ncwnd[lane], bits: self.nic[lane] }
    }

    #[inline(always)]
    fn flow(&self, lane: usize) -> Flow {
        Flow::from_words(&self.flow_words(lane))
    }

    #[inline(always)]
    fn nic(&self, lane: usize) -> NicWindow {
        NicWindow::from_words(self.nic_words(lane))
    }

    #[inline(always)]
    fn update(&mut self, lane: usize, flow: Flow, nic: NicWindow) {
        let (words, nic) = (flow.to_words(), nic.to_words(self.nic[lane]));
        self.window[lane] = words.window;
        self.rtt[lane] = words.rtt;
        self.marker[lane] = words.marker;
        self.congested[lane] = words.congested;
        self.ncwnd[lane] = nic.packets;
        self.nic[lane] = nic.bits;
    }

    #[inline(always)]
    fn store(&self, lane: usize, state: &mut Swift, index: usize) {
        state.set_flow_words(index, &self.flow_words(lane));
        state.set_nic_words(self.nic_words(lane));
        state.set_shares(alpha::Alphas::from_bits(self.shares[lane]));
    }
}

impl PreparedQuotients {
    #[inline(always)]
    fn divide(&mut self, lane_states: &LaneStates, acks: &Acks, params: &Params) {
        let increase = params.get(INCREASE_INDEX);
        for lane in 0..LANES {
            let (fcwnd, acked, delay) =
                (lane_states.window[lane] & state::WINDOW_MAX, acks.acked[lane], acks.delay[lane]);
            let changes = if increase == fabric::THOUSAND {
                fabric::WindowChanges::of_one(fcwnd, acked, delay)
            } else {
                fabric::WindowChanges::of(fcwnd, acked, delay, increase)
            };
            (self.up[lane], self.inverse[lane]) = (changes.up, changes.inverse);
        }
        let target = rx_target(params);
        for lane in 0..LANES {
            self.lowered[lane] = nic::lowered(lane_states.ncwnd[lane], acks.rx_level[lane], target);
        }
    }

    #[inline(always)]
    fn quotients(&self, lane: usize) -> Quotients {
        Quotients {
            target: self.target[lane],
            changes: fabric::WindowChanges { up: self.up[lane], inverse: self.inverse[lane] },
            lowered: self.lowered[lane],
        }
    }
}

#[cfg(test)]
mod tests {
    use bytemuck::{Pod, Zeroable};
    use rnic_policy::control::ControlInterest;
    use rnic_policy::{Control, ControlActions, ControlEvent, ControlPolicy, ControlView, ParamSpec};
    use rnic_policy::{ReportControl, ReportPolicy};

    use super::*;

    /// Swift, with the lanes processed by portable code for any processor.
    #[derive(Clone, Copy, Pod, Zeroable)]
    #[repr(transparent)]
    struct Plain(Swift);

    /// Access to the states of [`Plain`] in the wrapped lanes.
    struct Inner<'a, L: ?Sized>(&'a mut L);

    impl<L: StateLanes<Plain> + ?Sized> StateLanes<Swift> for Inner<'_, L> {
        fn state(&mut self, lane: usize) -> &mut Swift {
            &mut self.0.state(lane).0
        }
    }

    impl Control for Plain {
        const NAME: &'static str = Swift::NAME;
        const SUMMARY: &'static str = Swift::SUMMARY;
        const PARAMS: &'static [ParamSpec] = Swift::PARAMS;
        const REPORTS: ReportPolicy = ReportPolicy::of::<Self>();

        fn start(params: &Params, view: &ControlView) -> (Self, ControlActions) {
            let (swift, actions) = Swift::start(params, view);
            (Self(swift), actions)
        }

        fn interest(params: &Params) -> ControlInterest {
            Swift::interest(params)
        }

        fn on_event(&mut self, event: &ControlEvent, view: &ControlView, params: &Params) -> ControlActions {
            self.0.on_event(event, view, params)
        }
    }

    impl ReportControl for Plain {
        const LANES: bool = true;

        fn on_acks<L: StateLanes<Self> + ?Sized>(
            states: &mut L,
            acks: &Acks,
            set: LaneSet,
            params: &Params,
            answers: &mut ResponseLanes,
        ) -> LaneSet {
            process_lanes(&mut Inner(states), acks, set, params, answers)
        }
    }

    #[test]
    fn f40_batched_reports_give_the_same_results_as_single_ones() {
        for seed in 1..=4 {
            for policy in [ControlPolicy::of::<Plain>(), ControlPolicy::of::<Swift>()] {
                assert_eq!(rnic_policy::kit::check_control(&policy, seed, 2_000), Ok(()));
            }
        }
    }
}
