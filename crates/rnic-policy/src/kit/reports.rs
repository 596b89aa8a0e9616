//! Contract checks for congestion controllers that process the reports of a datapath whose connections have several
//! flows (multipath).

use rnic_base::{BitRate, Csig, Duration, RandomStream, RandomStreams, Time};

use super::{Violation, check_actions};
use crate::control::report::{
    AckRate, Carried, CurrentSettings, DelaySelect, FlowActions, FlowReport, Gap, NACK_RESOURCES, ReportKind, Ticks,
};
use crate::control::{ControlEvent, ControlPolicy, ControlView, Cwnd};
use crate::params::Params;
use crate::state::PolicyState;

/// Numbers of flows of a connection, each with the name of the random stream from which its events are drawn.
const FLOW_COUNTS: [(u64, &str); 3] = [(1, "kit/reports/one"), (4, "kit/reports/four"), (5, "kit/reports/five")];

/// Drives `policy` through `steps` random reports from `seed`, on one flow and on several.
///
/// Checks: the initial actions and every response to a report set the flow's parameters, and request no tick; equal
/// reports give equal responses; windows are above zero and fit into a record; timeouts are above zero; a gap does not
/// block sending while a window is a packet or more; on one flow, a second copy that keeps only the state that travels
/// (if any does) gives the same responses.
///
/// # Errors
/// The first violation, with the values that reproduce it.
pub(super) fn check_reports(policy: &ControlPolicy, params: &Params, seed: u64, steps: u64) -> Result<(), Violation> {
    let streams = RandomStreams::new(seed);
    for (flows, name) in FLOW_COUNTS {
        let mut random = streams.stream(name);
        let mut run = Run::start(policy, params, flows).map_err(|what| violation(policy, seed, 0, what))?;
        for step in 1..=steps {
            run.step(&mut random).map_err(|what| violation(policy, seed, step, what))?;
        }
    }
    Ok(())
}

pub(super) fn violation(policy: &ControlPolicy, seed: u64, step: u64, what: String) -> Violation {
    Violation { policy: policy.name, seed, step, what }
}

pub(super) struct Run<'a> {
    policy: &'a ControlPolicy,
    params: &'a Params,
    /// True when the controller reads reports itself.
    reads_reports: bool,
    pub(super) view: ControlView,
    pub(super) state: PolicyState,
    copy: PolicyState,
    carried: Option<Carried>,
    in_force: Flows,
    ecn: u16,
}

impl<'a> Run<'a> {
    pub(super) fn start(policy: &'a ControlPolicy, params: &'a Params, flows: u64) -> Result<Self, String> {
        let view = ControlView { now: Time::ZERO, line_rate: BitRate::gbps(200), mtu: 4_096, in_flight: 0 };
        let (mut state, first) = (policy.start_on_flows)(params, &view);
        let reads_reports = (policy.interest)(params).reports;
        let flow = first.flow.ok_or("the policy processes reports, but returns no initial flow actions")?;
        check_flow(&flow, reads_reports)?;
        let in_force = Flows::new(&flow, flows as usize);
        let carried = (policy.reports.carry)(&mut state).filter(|_| flows == 1);
        Ok(Self { policy, params, reads_reports, view, state, copy: state, carried, in_force, ecn: 0 })
    }

    fn step(&mut self, random: &mut RandomStream) -> Result<(), String> {
        // Occasionally nothing is received for longer than the wrap period of 24 bits.
        let pause = if random.below(1_000) == 0 { 3_000_000_000 } else { random.between(1, 60_000) };
        self.view.now += Duration::from_ns(pause);
        let report = self.draw(random);
        let event = ControlEvent::Reported(report);
        let actions = (self.policy.on_event)(&mut self.state, &event, &self.view, self.params);
        let repeated = (self.policy.on_event)(&mut self.copy, &event, &self.view, self.params);
        if actions != repeated || self.state != self.copy {
            return Err(format!(
                "two identical calls for {event:?} had different results, {actions:?} and {repeated:?}"
            ));
        }
        if actions.tick_after.is_some() {
            return Err(format!("{event:?}: the policy requests a tick, which an adaptive engine does not deliver"));
        }
        check_actions(&actions, self.view.line_rate).map_err(|what| format!("{event:?}: {what}"))?;
        let flow = actions.flow.ok_or_else(|| format!("{event:?}: the policy returns no flow actions"))?;
        check_flow(&flow, self.reads_reports).map_err(|what| format!("{event:?}: {what}"))?;
        if let Some(carried) = self.carried {
            let restore_error = || format!("{event:?}: the state carried in a record cannot be restored");
            let mut restored =
                (self.policy.reports.restore)(&carried, &report, self.params).ok_or_else(restore_error)?;
            let stateless = (self.policy.on_event)(&mut restored, &event, &self.view, self.params);
            if stateless != actions {
                return Err(format!(
                    "{event:?} results in {actions:?}, but in {stateless:?} after the state was carried in a record"
                ));
            }
            self.carried = (self.policy.reports.carry)(&mut restored);
        }
        self.apply(usize::from(report.flow), &flow);
        Ok(())
    }

    /// See [`Flows::apply`].
    pub(super) fn apply(&mut self, index: usize, flow: &FlowActions) {
        self.in_force.apply(index, flow);
    }

    pub(super) fn draw(&mut self, random: &mut RandomStream) -> FlowReport {
        let flow = random.below(self.in_force.0.len() as u64) as usize;
        let now = Ticks::at(self.view.now);
        let skew = random.below(1 << Ticks::BITS) as u32;
        let [there, wait, back] = [300, 60, 300].map(|max_ticks| random.below(max_ticks) as u32);
        let unskewed = report(flow as u8, now, [there, wait, back], self.in_force.of(flow));
        let skewed = |time: Ticks| Ticks::new(time.get().wrapping_add(skew));
        self.ecn = (self.ecn + random.below(3) as u16) & 0x3fff;
        FlowReport {
            flows: self.in_force.0.len() as u8,
            kind: match random.below(20) {
                0 => ReportKind::Nacked { code: NACK_RESOURCES },
                1 => ReportKind::Nacked { code: random.between(2, 8) as u8 },
                2 => ReportKind::Retransmitted { count: random.between(1, 7) as u8, early: random.below(2) == 0 },
                _ => ReportKind::Acked,
            },
            acked: if random.below(50) == 0 { 1_023 } else { random.below(12) as u16 },
            marked: random.below(3) as u16,
            sent: random.below(12) as u16,
            in_flight: random.below(1 << 10) as u16,
            lost: random.below(20) == 0,
            t2: skewed(unskewed.t2),
            t3: skewed(unskewed.t3),
            hops: random.below(16) as u8,
            rx_level: random.below(32) as u8,
            ecn: self.ecn,
            csig: Csig::from_bits(random.below(1 << 16) as u16).filter(|_| random.below(2) == 0),
            occupancy: random.below(32) as u8,
            label: random.below(1 << 20) as u32,
            extended: random.below(2) == 0,
            window_drop: random.below(10) == 0,
            delay: if random.below(4) == 0 { DelaySelect::Full } else { DelaySelect::Fabric },
            ..unskewed
        }
    }
}

/// The current settings of the flows of a connection, for a datapath that applies all actions.
#[derive(Clone, Debug)]
pub struct Flows(Vec<CurrentSettings>);

impl Flows {
    /// Builds the initial settings: `count` flows share the window of `first`.
    pub fn new(first: &FlowActions, count: usize) -> Self {
        let share = |flow| first.fcwnd.share(flow, count as u8);
        Self((0..count as u8).map(|flow| CurrentSettings { fcwnd: share(flow), ..first.in_force() }).collect())
    }

    /// Returns the current settings of flow `index`.
    pub fn of(&self, index: usize) -> CurrentSettings {
        self.0[index]
    }

    /// Applies the response to a report on flow `index`: windows apply to the flow, everything else to the connection.
    pub fn apply(&mut self, index: usize, actions: &FlowActions) {
        let shared = actions.in_force();
        for other in &mut self.0 {
            *other = CurrentSettings { fcwnd: other.fcwnd, ..shared };
        }
        self.0[index].fcwnd = actions.fcwnd;
    }
}

/// Returns a report of an acknowledgement received at `now` in which only the timestamps are set: the packet took
/// `there` ticks, its acknowledgement was delayed by `wait` and took `back`. The clocks of both ends are equal, and
/// `flow` is the last flow of the connection.
pub fn report(flow: u8, now: Ticks, [there, wait, back]: [u32; 3], in_force: CurrentSettings) -> FlowReport {
    let ticks_before = |span: u32| Ticks::new(now.get().wrapping_sub(span));
    FlowReport {
        kind: ReportKind::Acked,
        flow,
        flows: flow + 1,
        acked: 0,
        marked: 0,
        sent: 0,
        in_flight: 0,
        lost: false,
        t1: ticks_before(there + wait + back),
        t2: ticks_before(wait + back),
        t3: ticks_before(back),
        t4: now,
        hops: 0,
        rx_level: 0,
        ecn: 0,
        csig: None,
        occupancy: 0,
        label: 0,
        extended: false,
        window_drop: false,
        delay: DelaySelect::Fabric,
        in_force,
    }
}

/// Checks the settings of a flow. A controller that does not read reports leaves timeouts to the recovery policy.
fn check_flow(flow: &FlowActions, reads_reports: bool) -> Result<(), String> {
    if flow.fcwnd.fixed() == 0 || flow.fcwnd > FlowActions::FCWND_MAX || !flow.fcwnd.fixed().is_multiple_of(1 << 6) {
        return Err(format!(
            "the policy sets fcwnd to {:?}, which is zero or cannot be represented in a record",
            flow.fcwnd
        ));
    }
    if flow.ncwnd == 0 || flow.ncwnd > FlowActions::NCWND_MAX {
        return Err(format!("the policy sets ncwnd to {}, which is 0 or exceeds FlowActions::NCWND_MAX", flow.ncwnd));
    }
    if reads_reports && [flow.rto, flow.rack, flow.tlp].contains(&Ticks::ZERO) {
        return Err("the policy sets a timeout of zero".to_owned());
    }
    if flow.fcwnd >= Cwnd::ONE && flow.gap != Gap::NONE {
        return Err(format!(
            "the policy sets a gap of {:?} although the window of {:?} is one packet or more",
            flow.gap, flow.fcwnd
        ));
    }
    if AckRate::code(u32::from(flow.ack_rate.get())) != flow.ack_rate {
        return Err("the policy sets an acknowledgement rate that cannot be represented in a record".to_owned());
    }
    Ok(())
}
