//! Swift as Falcon runs it: two windows, one for the fabric controlled by delay and one for the receiving NIC
//! controlled by its buffer occupancy.
//!
//! Source: OCP Falcon Transport Protocol, Rev 0.9, section 10.3 (`target`, `fcwnd`, `ncwnd`, timeouts, gaps), with
//! the defaults of the public simulator except for `alpha`; Swift (SIGCOMM'20) section 3. The modules, one mechanism
//! each: [`fabric`] (fcwnd), [`scaling`] (target delay by window), [`nic`] (ncwnd), [`timers`] (one change a round
//! trip, and the gap), [`timeouts`] (timeouts, shared with other programs), [`plb`] and [`prr`] (paths), [`alpha`]
//! (shares of resources), [`ack_rate`].
//!
//! Decisions where the specification contradicts itself or the simulator:
//!
//! * the smoothing factor is the weight of the old value (0.75), as in section 10.3.4;
//! * flow scaling uses 1/sqrt(w), without which its factor is negative;
//! * a delay equal to the target still increases the window (`<=`, as in the specification);
//! * gap = rtt/fcwnd - rtt, from the measured values and not from the previous gap;
//! * every response contains a timeout, which includes the gap (as in the simulator), so that timeouts grow with a
//!   rising delay;
//! * both reactions to a retransmission are limited to one a round trip; the first reaction is for a count of one;
//! * the decrease of ncwnd uses the factor `nic_md` from the specification's parameter list for ncwnd;
//! * the marker of ncwnd is compared with, and made from, the marker of ncwnd.
//!
//! Deviations and choices:
//!
//! * integers: windows have 10 fractional bits and times are whole ticks of 131.072 ns, as in the records. Increases
//!   round to the nearest, so a window of 200 grows by 5/1024, where 5.12/1024 would be exact; other rounding is
//!   described in the file concerned;
//! * the round trip that gates changes and from which gaps are computed is the smoothed one. The public simulator
//!   uses the newest, unless configured otherwise (`calc_rtt_smooth`), except for gaps of several flows; in large
//!   incasts both give the same queue. Without a sample (a new flow) the gate is open. For a flow that was silent for
//!   2.199 s or more, the gate may be closed because of the wrap of the time counter, for one round trip at most;
//! * the timeouts of RACK and TLP have the parameters of the recovery policy `rack-tlp`, and are set with them; its
//!   `rto` applies before the first response, `rto_min` after it;
//! * ten parameters are constants, to leave parameter slots for the user: additive increase, decreases and smoothing
//!   have the commonly used values, and the window range of flow scaling is fixed, so that its constants are too;
//! * no delay smoothing (the default is none), and `delay_state` holds PLB's state, as in the simulator;
//! * there are states for four flows, which the two low bits of a label distinguish; a flow with a higher index
//!   shares the state of the flow with the index four lower. The complete state is 64 bytes. Each of two flows that
//!   share a state may fill its window, so this window counts twice in that of the connection; each report contains
//!   the number of flows. With one flow, reports and responses carry the complete state in the specification's
//!   fields. With several, they carry the state of their flow; the window towards the NIC applies to all flows and is
//!   returned with the settings in force, and its marker and direction belong to the connection. The other flows'
//!   windows and round trips are not carried, because the specification's fields describe one flow. A connection's
//!   gap, timeout, shares and rate of acknowledgements are then computed from the flow of the latest response. Where
//!   responses are delayed, events of other flows that were sent before a response arrives do not include its effect
//!   on the window towards the NIC, and may change that window again in the same round trip;
//! * `alpha` is 1 without congestion (code 3) and at most 1/2 after a retransmission, where the simulator has 1/8 and
//!   1/16: an eighth of the free resources is less than a single connection needs to fill its path (`falcon/share`). A
//!   retransmission never raises it ([`alpha`]);
//! * a connection's gap and timeout are computed from the sum of its flows' windows and the longest of their round
//!   trips;
//! * on a transport without reports the delay is the round trip including the receiver's part, the number of hops
//!   counts as zero, one sample a round trip covers all packets acknowledged since the last sample, and a window
//!   below one packet is paced by a rate ([`plain`]).

pub(super) mod ack_rate;
mod alpha;
mod fabric;
mod lanes;
mod nic;
mod plain;
mod plb;
mod prr;
mod quotient;
mod scaling;
mod state;
mod timers;
mod unit;

use bytemuck::Zeroable;
use rnic_base::Duration;
use rnic_policy::control::ControlInterest;
use rnic_policy::control::lanes::{Acks, LaneSet, ResponseLanes, StateLanes};
use rnic_policy::control::report::{
    AckRate, Alpha, Carried, FlowActions, FlowReport, Gap, NACK_RESOURCES, RateLimit, ReportKind, Ticks,
};
use rnic_policy::{Control, ControlActions, ControlEvent, ControlView, Cwnd, ParamSpec, Params, Signals};
use rnic_policy::{ReportControl, ReportPolicy};

use super::timeouts::{self, SHARED, Timeouts, ticks};

pub use state::Swift;
use state::{Flow, WINDOW_MAX};
use unit::WINDOW_ONE;

const BASE_TARGET_INDEX: usize = 0;
const HOP_DELAY_INDEX: usize = 1;
const SCALING_RANGE_INDEX: usize = 2;
const INCREASE_INDEX: usize = 3;
const INITIAL_WINDOW_INDEX: usize = 4;
const MAXIMUM_WINDOW_INDEX: usize = 5;
const RX_TARGET_INDEX: usize = 6;
const RTO_MIN_INDEX: usize = 7;
const PLB_ROUNDS_INDEX: usize = 8;
const PRR_TIMEOUTS_INDEX: usize = 9;
const WINDOW_MIN_INDEX: usize = 10;
const ALPHA_INDEX: usize = 11;
/// Index of the first parameter that is [`SHARED`] with recovery.
const SHARED_FIRST_INDEX: usize = 12;

/// Maximum value of a time parameter: with it, the sum of 15 hop delays, base and range fits into 24 bits of ticks
/// without a check.
const TIME_MAX: Duration = Duration::from_ms(100);

const _: () = assert!(17 * (TIME_MAX.as_ps() >> 17) < 1 << Ticks::BITS);

/// Returns a time parameter with values up to [`TIME_MAX`].
const fn time(name: &'static str, default: Duration, help: &'static str) -> ParamSpec {
    ParamSpec { max: TIME_MAX.as_ps(), ..ParamSpec::duration(name, default, help) }
}

/// Initial window towards the receiving NIC, in packets.
const NCWND_INITIAL: u32 = 64;

impl Control for Swift {
    const NAME: &'static str = "swift";
    const SUMMARY: &'static str = "windows for fabric and NIC from delays and buffer levels (Falcon; SIGCOMM'20, '25)";
    const PARAMS: &'static [ParamSpec] = &[
        time("base_target", Duration::from_us(25), "target delay without hops and flow scaling"),
        time("hop_delay", Duration::from_us(1), "target delay of a hop").by_reports(),
        time("scaling_range", Duration::from_us(100), "most that flow scaling adds to the target delay"),
        ParamSpec::count("increase", 1_000, 1, 16_000, "additive increase a round trip, in thousandths of a packet"),
        ParamSpec::count("initial_window", 32, 1, 1_024, "initial fcwnd, in packets, all flows together"),
        ParamSpec::count("window_max", 256, 1, 1_024, "fcwnd and ncwnd at most, in packets"),
        ParamSpec::count("rx_target", 15, 1, 32, "target level of the receiver's buffers, of 31; 32: ncwnd is off")
            .by_reports(),
        timeouts::RTO_MIN,
        ParamSpec::count("plb_rounds", 5, 0, 15, "congested rounds before a flow changes its path; 0 for never")
            .by_reports(),
        ParamSpec::count("prr_timeouts", 2, 0, 7, "timeouts of a packet before its flow changes its path; 0 for never")
            .by_reports(),
        ParamSpec::count("window_min", fabric::FCWND_MIN as u64, 1, 65_536, "fcwnd at least, in 1/1024 of a packet"),
        ParamSpec::count("alpha", 3, 0, 15, "share of free resources of an uncongested connection: 2^(3 - alpha)")
            .by_reports(),
        SHARED[0],
        SHARED[1],
        SHARED[2],
        SHARED[3],
        SHARED[4],
    ];
    const REPORTS: ReportPolicy = ReportPolicy::of::<Self>();

    fn start(params: &Params, _: &ControlView) -> (Self, ControlActions) {
        let mut state = Self::zeroed();
        let packets = if nic::is_off(rx_target(params)) { window_max(params) } else { initial_ncwnd(params) };
        state.set_nic(nic::NicWindow { packets, ..Default::default() });
        let window = initial_window(params);
        let flow = FlowActions {
            fcwnd: cwnd(window),
            ncwnd: state.nic().packets as u16,
            gap: Gap::NONE,
            rate: RateLimit::NONE,
            rto: timeouts::UNMEASURED,
            rack: timeouts::UNMEASURED,
            tlp: timeouts::UNMEASURED,
            repath: false,
            alpha_requests: alpha::base(params.get(ALPHA_INDEX)),
            alpha_responses: alpha::base(params.get(ALPHA_INDEX)),
            ack_rate: AckRate::ALL,
        };
        let actions = ControlActions { window: Some(cwnd(window)), flow: Some(flow), ..ControlActions::default() };
        (state, actions)
    }

    fn interest(_: &Params) -> ControlInterest {
        let needs = Signals::ACKS | Signals::ROUND_TRIP | Signals::NACKS | Signals::TIMEOUTS;
        ControlInterest { needs, acked: true, reports: true, ..ControlInterest::default() }
    }

    #[inline(always)]
    fn on_event(&mut self, event: &ControlEvent, view: &ControlView, params: &Params) -> ControlActions {
        match event {
            ControlEvent::Reported(report) => {
                ControlActions { flow: Some(self.on_report(report, params)), ..ControlActions::default() }
            }
            _ => self.on_plain_event(event, view, params),
        }
    }
}

impl ReportControl for Swift {
    const LANES: bool = true;

    #[inline(always)]
    fn on_acks<L: StateLanes<Self> + ?Sized>(
        states: &mut L,
        acks: &Acks,
        set: LaneSet,
        params: &Params,
        answers: &mut ResponseLanes,
    ) -> LaneSet {
        lanes::on_acks(states, acks, set, params, answers)
    }

    #[inline]
    fn carry(&self) -> Option<Carried> {
        let (flow, nic) = (self.last_flow(), self.nic());
        Some(Carried {
            metadata: self.shares().bits(),
            fabric_marker: flow.marker,
            nic_marker: nic.marker,
            nic_grew: nic.grew,
            base_delay: Ticks::ZERO,
            delay_state: flow.plb.bits(),
            rtt_state: flow.srtt,
            opaque: 0,
        })
    }

    #[inline]
    fn restore(carried: &Carried, report: &FlowReport, params: &Params) -> Option<Self> {
        let mut state = Self::zeroed();
        let flow = Flow {
            fcwnd: window_in_force(report, params),
            srtt: carried.rtt_state,
            marker: carried.fabric_marker,
            plb: plb::Plb::from_bits(carried.delay_state),
        };
        state.set_flow(usize::from(report.flow) % state::FLOWS, flow);
        let packets = report.in_force.ncwnd.into();
        state.set_nic(nic::NicWindow { packets, marker: carried.nic_marker, grew: carried.nic_grew });
        state.set_shares(alpha::Alphas::from_bits(carried.metadata));
        Some(state)
    }
}

/// Results of an event besides the windows.
#[derive(Clone, Copy)]
struct Outcome {
    repath: bool,
    /// The newest round-trip time, for RACK.
    rtt: Ticks,
    alphas: alpha::Alphas,
}

impl Swift {
    #[inline(always)]
    fn on_report(&mut self, report: &FlowReport, params: &Params) -> FlowActions {
        let index = usize::from(report.flow) % state::FLOWS;
        let mut flow = self.flow(index);
        if flow.fcwnd == 0 {
            // The first report on this flow: it carries the flow's share of the connection's initial window.
            flow.fcwnd = window_in_force(report, params);
        }
        let mut nic = self.nic();
        let outcome = match report.kind {
            ReportKind::Retransmitted { count, early } => {
                let (after, outcome) = on_retransmit(flow, report.t4, count, early, self.shares(), params);
                flow = after;
                outcome
            }
            ReportKind::Acked | ReportKind::Nacked { .. } => on_ack_or_nack(&mut flow, &mut nic, report, params),
        };
        self.set_flow(index, flow);
        self.set_nic(nic);
        let flows = report.flows.into();
        let total = self.others(index, flows).and(&flow, index, flows);
        let gap = timers::gap(total.fcwnd, total.srtt);
        let alphas = outcome.alphas.for_windows(total.fcwnd, nic.packets, params);
        self.set_shares(alphas);
        let (timeouts, before) = (timeouts_of(params), timeouts::before(&report.in_force));
        FlowActions {
            fcwnd: cwnd(flow.fcwnd),
            ncwnd: nic.packets as u16,
            gap,
            rate: RateLimit::NONE,
            rto: timeouts.rto(total.srtt, gap, before),
            rack: timeouts.rack(outcome.rtt, flow.srtt, before),
            tlp: timeouts.tlp(total.srtt, before),
            repath: outcome.repath,
            alpha_requests: Alpha::code(alphas.requests()),
            alpha_responses: Alpha::code(alphas.responses()),
            ack_rate: ack_rate::choose(total.fcwnd, nic.packets),
        }
    }
}

/// Values carried by an acknowledgement or a NACK.
#[derive(Clone, Copy)]
struct AckSample {
    now: Ticks,
    rtt: Ticks,
    delay: Ticks,
    acked: u32,
    level: u32,
}

/// Values computed from an [`AckSample`] and the previous windows that need divisions or tables.
#[derive(Clone, Copy)]
struct Quotients {
    target: Ticks,
    changes: fabric::WindowChanges,
    /// Value to which the window towards the NIC is lowered, if it has to be.
    lowered: u32,
}

/// Handles an acknowledgement or a NACK: a sample of delays and of the receiver's buffer occupancy.
#[inline(always)]
fn on_ack_or_nack(flow: &mut Flow, nic: &mut nic::NicWindow, report: &FlowReport, params: &Params) -> Outcome {
    let (acked, level) = (u32::from(report.acked), u32::from(report.rx_level));
    let ack = AckSample { now: report.t4, rtt: report.rtt(), delay: report.delay(), acked, level };
    let quotients = Quotients {
        target: target_delay(flow.fcwnd, report.hops.into(), params),
        changes: fabric::WindowChanges::of(flow.fcwnd, acked, ack.delay, params.get(INCREASE_INDEX)),
        lowered: nic::lowered(nic.packets, level, rx_target(params)),
    };
    let refused = report.kind == (ReportKind::Nacked { code: NACK_RESOURCES });
    let repath = if report.kind == ReportKind::Acked {
        on_sample::<true>(flow, nic, &ack, &quotients, refused, params)
    } else {
        on_sample::<false>(flow, nic, &ack, &quotients, refused, params)
    };
    let alphas = alpha::Alphas::measured(ack.delay, quotients.target, ack.level, params);
    Outcome { repath, rtt: ack.rtt, alphas }
}

/// Applies `ack` to the windows and returns `true` if the flow should change its path. Apart from the code that
/// only NACKs use, it contains no operation that a processor could not perform for several connections in parallel.
#[inline(always)]
fn on_sample<const ACKED: bool>(
    flow: &mut Flow,
    nic: &mut nic::NicWindow,
    ack: &AckSample,
    quotients: &Quotients,
    refused: bool,
    params: &Params,
) -> bool {
    flow.srtt = timeouts::smooth(flow.srtt, ack.rtt);
    let repath = ACKED && {
        let window = (flow.fcwnd / WINDOW_ONE).min(nic.packets);
        let is_congested = plb::is_congested(ack.delay, quotients.target);
        flow.plb.on_ack(ack.acked, is_congested, window, params.get(PLB_ROUNDS_INDEX) as u32)
    };
    let Quotients { target, changes, .. } = *quotients;
    let sample = fabric::Sample { now: ack.now, delay: ack.delay, target, changes };
    fabric::adapt(flow, &sample, window_min(params), window_max_fixed(params));
    let is_open = timers::is_gate_open(ack.now, nic.marker, flow.srtt);
    let times = nic::Times { now: ack.now, srtt: flow.srtt };
    if !ACKED && refused && !nic::is_off(rx_target(params)) {
        nic.on_refusal(times, is_open);
    } else {
        let is_below = ack.level < rx_target(params);
        nic.on_level(is_below, quotients.lowered, times, is_open, window_max(params));
    }
    repath
}

/// Handles the `count`th retransmission of a packet of the flow; `shares` are the connection's previous shares of the
/// free resources.
///
/// Takes and returns the flow by value, so that it stays in registers on the path for acknowledgements.
#[cold]
fn on_retransmit(
    mut flow: Flow,
    now: Ticks,
    count: u8,
    early: bool,
    shares: alpha::Alphas,
    params: &Params,
) -> (Flow, Outcome) {
    let is_open = timers::is_gate_open(now, flow.marker, flow.srtt);
    let repath = prr::is_outage(count, early, is_open, params.get(PRR_TIMEOUTS_INDEX));
    let least = window_min(params);
    let cuts = fabric::on_loss(&mut flow, u32::from(count), is_open, least);
    timers::settle(&mut flow.marker, now, flow.srtt, cuts || repath || flow.fcwnd == least);
    (flow, Outcome { repath, rtt: flow.srtt, alphas: alpha::Alphas::lossy(shares, params) })
}

/// Returns the target delay of a flow with window `fcwnd` over `hops` hops.
#[inline(always)]
fn target_delay(fcwnd: u32, hops: u32, params: &Params) -> Ticks {
    let [base, hop, range] =
        [BASE_TARGET_INDEX, HOP_DELAY_INDEX, SCALING_RANGE_INDEX].map(|index| ticks(params, index));
    Ticks::new(base + hops * hop + scaling::flow_scaling_delay(fcwnd, range))
}

/// Returns the values from which timeouts are computed.
#[inline(always)]
fn timeouts_of(params: &Params) -> Timeouts {
    Timeouts::of(params, RTO_MIN_INDEX, SHARED_FIRST_INDEX)
}

/// Converts a window with 10 fractional bits to a `Cwnd`.
#[inline]
const fn cwnd(fcwnd: u32) -> Cwnd {
    Cwnd::from_fixed((fcwnd as u64) << 6)
}

fn window_max(params: &Params) -> u32 {
    params.get(MAXIMUM_WINDOW_INDEX) as u32
}

/// Returns the smallest window, with 10 fractional bits; at most the largest window.
#[inline(always)]
fn window_min(params: &Params) -> u32 {
    (params.get(WINDOW_MIN_INDEX) as u32).min(window_max_fixed(params))
}

fn window_max_fixed(params: &Params) -> u32 {
    params.get(MAXIMUM_WINDOW_INDEX) as u32 * WINDOW_ONE
}

/// Returns the window that the datapath currently applies to the flow, limited to the bounds: the first one, a share
/// of the connection's initial window, may exceed them.
#[inline(always)]
fn window_in_force(report: &FlowReport, params: &Params) -> u32 {
    let fcwnd = (report.in_force.fcwnd.fixed() >> 6).min(u64::from(WINDOW_MAX)) as u32;
    fcwnd.clamp(window_min(params), window_max_fixed(params))
}

#[inline(always)]
fn rx_target(params: &Params) -> u32 {
    params.get(RX_TARGET_INDEX) as u32
}

/// Returns the initial window towards the receiving NIC, in packets.
#[inline(always)]
fn initial_ncwnd(params: &Params) -> u32 {
    NCWND_INITIAL.min(window_max(params))
}

#[inline(always)]
fn initial_window(params: &Params) -> u32 {
    (params.get(INITIAL_WINDOW_INDEX) as u32 * WINDOW_ONE).min(window_max_fixed(params))
}

#[cfg(test)]
#[path = "swift/tests.rs"]
mod tests;
