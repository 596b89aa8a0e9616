//! Contract checks for a controller that processes reports in batches: its decisions must not depend on batching.

use rnic_base::{Duration, RandomStream, RandomStreams};

use super::Violation;
use super::reports::{Run, violation};
use crate::control::lanes::{Acks, LANES, LaneSet, ResponseLanes, StateLanes};
use crate::control::report::{FlowReport, ReportKind};
use crate::control::{ControlEvent, ControlPolicy};
use crate::params::Params;
use crate::state::PolicyState;

/// Numbers of flows per connection that the check uses, each with the name of its random stream.
const FLOW_COUNTS: [(u64, &str); 4] =
    [(1, "kit/lanes/one"), (4, "kit/lanes/four"), (5, "kit/lanes/five"), (8, "kit/lanes/eight")];

/// Passes `steps` random reports to each of [`LANES`] connections.
///
/// Checks: lanes that are not in the set, or that the controller does not process, keep their state; in all others,
/// state and response are the same as for the report alone.
///
/// # Errors
/// The first violation, with the values that reproduce it.
pub(super) fn check_lanes(policy: &ControlPolicy, params: &Params, seed: u64, steps: u64) -> Result<(), Violation> {
    let streams = RandomStreams::new(seed);
    for (flows, name) in FLOW_COUNTS {
        let mut random = streams.stream(name);
        let violation_at = |step| move |what| violation(policy, seed, step, what);
        let mut runs = Vec::with_capacity(LANES);
        for _ in 0..LANES {
            runs.push(Run::start(policy, params, flows).map_err(violation_at(0))?);
        }
        for step in 1..=steps {
            check_batch(policy, params, &mut runs, &mut random).map_err(violation_at(step))?;
        }
    }
    Ok(())
}

/// Copies of the controller states of a batch of connections.
struct Copies(Vec<PolicyState>);

impl StateLanes<PolicyState> for Copies {
    fn state(&mut self, lane: usize) -> &mut PolicyState {
        &mut self.0[lane]
    }
}

fn check_batch(
    policy: &ControlPolicy,
    params: &Params,
    runs: &mut [Run<'_>],
    random: &mut RandomStream,
) -> Result<(), String> {
    let (mut acks, mut answers, mut set) = (Acks::default(), ResponseLanes::default(), 0);
    let mut reports: Vec<FlowReport> = Vec::with_capacity(LANES);
    for (lane, run) in runs.iter_mut().enumerate() {
        run.view.now += Duration::from_ns(random.between(1, 60_000));
        let report = run.draw(random);
        acks.put(lane, &report);
        let is_in_set = report.kind == ReportKind::Acked && random.below(8) != 0;
        set |= LaneSet::from(is_in_set) << lane;
        reports.push(report);
    }
    let mut copies = Copies(runs.iter().map(|run| run.state).collect());
    let processed = (policy.reports.on_acks)(&mut copies, &acks, set, params, &mut answers);
    if processed & !set != 0 {
        return Err(format!("the policy received reports for lanes {set:#x} but processed lanes {processed:#x}"));
    }
    for (lane, run) in runs.iter_mut().enumerate() {
        let is_processed = processed >> lane & 1 != 0;
        if !is_processed && copies.0[lane] != run.state {
            return Err(format!("the policy changed the state of lane {lane}, which it did not report as processed"));
        }
        let event = ControlEvent::Reported(reports[lane]);
        let actions = (policy.on_event)(&mut run.state, &event, &run.view, params);
        let flow = actions.flow.ok_or_else(|| format!("{event:?}: the policy returns no flow actions"))?;
        if is_processed && (answers.actions(lane) != flow || copies.0[lane] != run.state) {
            return Err(format!(
                "{event:?} results in {flow:?} when processed alone, but in {:?} when processed with other lanes",
                answers.actions(lane)
            ));
        }
        run.apply(usize::from(reports[lane].flow), &flow);
    }
    Ok(())
}
