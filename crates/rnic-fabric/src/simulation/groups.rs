//! Groups of traffic: what distinguishes their flows, and their results.

use core::ops::Range;

use rnic_base::Time;
use rnic_wire::Qpn;

use super::parts::Parts;
use super::{NEVER, Simulation};
use crate::classes::ClassPlan;
use crate::host::{Sender, TenantTally};
use crate::plan::Plan;
use crate::port::Port;
use crate::report::{ClassFigures, FlowRecord, GroupFigures, Report, Spread};
use crate::workload::WorkloadPlan;

/// Counts of the queue pairs of a group that have been destroyed.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct GroupCounts {
    packets_sent: u64,
    packets_retransmitted: u64,
    timeouts: u64,
}

impl GroupCounts {
    /// Adds the counters of both queue pairs of a flow.
    pub(super) fn add(&mut self, parts: &Parts, ends: &[(u32, Qpn); 2]) {
        for (host, qpn) in ends {
            let Some(info) = parts.host(*host).engine.query_qp(*qpn) else { continue };
            self.packets_sent += info.stats.packets_sent;
            self.packets_retransmitted += info.stats.packets_retransmitted;
            self.timeouts += u64::from(info.stats.timeouts);
        }
    }
}

/// Prepares the hosts to measure the messages of each group, when the plan has groups.
pub(super) fn prepare(simulation: &mut Simulation) {
    let plan = &simulation.plan;
    let measured: Vec<_> = plan.workload.groups().iter().map(|group| measured_time(&group.workload, plan)).collect();
    if measured.is_empty() {
        return;
    }
    for host in simulation.parts.hosts_mut() {
        host.sessions.tallies = measured.iter().cloned().map(TenantTally::new).collect();
    }
}

/// Makes `sender` a sender of group `group` of `workload`.
pub(super) fn assign(sender: &mut Sender, group: u32, workload: &WorkloadPlan) {
    if let WorkloadPlan::Groups(groups) = workload {
        sender.group = Some(group);
        sender.is_ranked = matches!(groups[group as usize].workload, WorkloadPlan::Collective(_));
    }
}

/// Returns the time in which flows and messages of `workload` start that are included in averages.
fn measured_time(workload: &WorkloadPlan, plan: &Plan) -> Range<Time> {
    Time::ZERO + plan.run.warmup..workload.ends().map_or(NEVER, |end| end - plan.run.cooldown)
}

/// Writes the results of each group to `report`, when the plan has groups.
pub(super) fn report(simulation: &Simulation, report: &mut Report) {
    let plan = &simulation.plan;
    let groups = plan.workload.groups();
    if groups.is_empty() {
        return;
    }
    let mut counts = simulation.group_counts.clone();
    for (_, active) in &simulation.active {
        let flow = &simulation.flows[active.flow as usize];
        let ends = [(flow.src, active.src_qpn), (flow.dst, active.dst_qpn)];
        counts[usize::from(flow.group)].add(&simulation.parts, &ends);
    }
    let figures = groups.iter().zip(0..).zip(counts).map(|((group, index), counts)| {
        let records: Vec<&FlowRecord> = report.records.iter().filter(|flow| flow.group == Some(index)).collect();
        let started = simulation.flows.iter().filter(|flow| u32::from(flow.group) == index).count();
        let mut figures = GroupFigures {
            transport: rnic_transports::label(&group.transport),
            class: plan.classes.get(usize::from(group.class)).map(|class| class.name.clone()),
            flows_unfinished: (started - records.len()) as u64,
            packets_sent: counts.packets_sent,
            packets_retransmitted: counts.packets_retransmitted,
            timeouts: counts.timeouts,
            ..GroupFigures::default()
        };
        let measured = measured_time(&group.workload, plan);
        figures.summarise(&records, |flow| measured.contains(&flow.start));
        let tallies = || simulation.parts.hosts().filter_map(|host| host.sessions.tallies.get(index as usize));
        figures.messages = tallies().map(TenantTally::completions).sum();
        let latencies = tallies().flat_map(TenantTally::latencies).map(|latency| latency.as_us_f64());
        figures.latency_us = Spread::of(&mut latencies.collect::<Vec<_>>());
        figures.rct_us = match group.workload {
            WorkloadPlan::Collective(_) => report.rct_us,
            _ => simulation.request_times(Some(index)).0,
        };
        (group.name.clone(), figures)
    });
    let figures = figures.collect();
    report.groups = Some(figures);
    report.classes = (!plan.classes.is_empty()).then(|| {
        let class = |(class, index): (&ClassPlan, usize)| (class.name.clone(), class_figures(simulation, index));
        plan.classes.iter().zip(0..).map(class).collect()
    });
    // The flows beside requests are those of other groups.
    report.background = None;
    let mut transports: Vec<String> = groups.iter().map(|group| rnic_transports::label(&group.transport)).collect();
    transports.sort();
    transports.dedup();
    report.transport = transports.join(" | ");
}

/// Returns the results of the class with this index.
fn class_figures(simulation: &Simulation, class: usize) -> ClassFigures {
    let mut figures = ClassFigures::default();
    let mut add_port = |port: &Port| {
        let (pauses, time) = port.class_pauses(class, simulation.now);
        figures.pauses += pauses;
        figures.pause_time_us += time.as_us_f64();
    };
    simulation.parts.hosts().for_each(|host| add_port(&host.port));
    simulation.parts.switches().for_each(|switch| switch.ports().iter().for_each(&mut add_port));
    for counts in simulation.parts.hosts().filter_map(|host| host.classes.as_ref()) {
        figures.packets += counts.packets[class];
        figures.wire_bytes += counts.bytes[class];
    }
    for counts in simulation.parts.switches().map(|switch| switch.class_counts(class)) {
        figures.dropped += counts.dropped;
        figures.marked += counts.marked;
        figures.queue_max_bytes = figures.queue_max_bytes.max(counts.queue_max_bytes);
    }
    figures
}
