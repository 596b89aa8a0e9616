//! Scripts of hosts: their start, and the results of execution traces.

use rnic_base::Time;

use super::Simulation;
use crate::host::{CollectiveTime, ScriptRun};
use crate::report::{ExecutionFigures, Report, Spread};
use crate::workload::WorkloadPlan;
use crate::workload::chakra::ChakraPlan;

/// Makes every host with a script start it.
pub(super) fn start(simulation: &mut Simulation) {
    if let WorkloadPlan::Chakra(chakra) = &simulation.plan.workload {
        (0..chakra.ranks).for_each(|host| simulation.parts.lower(host, Time::ZERO));
    }
}

/// Computes the results of execution traces. The time of a collective is that from its start at the first rank until
/// the last rank has received everything; as with flows, collectives that started in the warm-up are not included.
pub(super) fn sum_up(simulation: &Simulation, chakra: &ChakraPlan, report: &mut Report) {
    let runs = || simulation.parts.hosts().filter_map(|host| host.sessions.script.as_deref());
    // Start, end, and number of ranks that have ended, of each collective.
    let mut spans = vec![(None::<Time>, Time::ZERO, 0u32); chakra.script.collectives.len()];
    for CollectiveTime { number, is_end, at } in runs().flat_map(ScriptRun::collectives).copied() {
        let (start, end, ended) = &mut spans[number as usize];
        if is_end {
            (*end, *ended) = ((*end).max(at), *ended + 1);
        } else {
            *start = Some(start.map_or(at, |start| start.min(at)));
        }
    }
    let done = spans.iter().zip(&chakra.script.collectives).filter(|((.., ended), ranks)| ended == *ranks);
    let spans: Vec<(Time, Time)> = done.filter_map(|((start, end, _), _)| Some(((*start)?, *end))).collect();
    let counted = spans.iter().filter(|(start, _)| *start >= Time::ZERO + simulation.plan.run.warmup);
    report.rct_us = Spread::of(&mut counted.map(|(start, end)| end.since(*start).as_us_f64()).collect::<Vec<_>>());
    report.requests_unfinished = (chakra.script.collectives.len() - spans.len()) as u64;
    let nodes: u64 = runs().map(|run| u64::from(run.progress().0)).sum();
    let end = runs().map(|run| run.progress().1).max().unwrap_or_default();
    report.execution = Some(ExecutionFigures {
        nodes,
        nodes_unfinished: chakra.nodes - nodes,
        collectives: spans.len() as u64,
        time_us: end.since(Time::ZERO).as_us_f64(),
        compute_us: chakra.script.shortest_time().as_us_f64(),
    });
}
