//! Groups of traffic: several workloads in one run, each with a transport of its own.
//!
//! Every group has random streams of its own, so that its flows do not change when other groups are added.

use rnic_base::{BitRate, RandomStreams, Time};
use rnic_policy::Profile;

use super::{FlowSpec, Source, WorkloadPlan};

/// A group of traffic.
#[derive(Clone, Debug)]
pub struct GroupPlan {
    /// Name in reports.
    pub name: String,
    /// Flows of the group.
    pub workload: WorkloadPlan,
    /// Transport of its queue pairs.
    pub transport: Profile,
    /// Index of the class of its packets in [`crate::plan::Plan::classes`]; 0 in a plan without classes.
    pub class: u8,
}

/// The flows of all groups, in order of their start; of flows that start at the same time, that of the first group is
/// returned first.
#[derive(Debug)]
pub(super) struct Mixed {
    sources: Vec<Box<dyn Source>>,
    /// For each flow that was returned: its group, and its number among the flows of the group.
    flows: Vec<(u32, u32)>,
    /// Number of flows of each group that were returned.
    counts: Vec<u32>,
}

impl Mixed {
    pub(super) fn new(groups: &[GroupPlan], rates: &[BitRate], streams: &RandomStreams) -> Self {
        let source = |group: &GroupPlan| {
            let seed = streams.stream(&format!("traffic/{}", group.name)).bits();
            group.workload.source(rates, &RandomStreams::new(seed))
        };
        let sources: Vec<_> = groups.iter().map(source).collect();
        Self { counts: vec![0; sources.len()], sources, flows: Vec::new() }
    }

    /// Returns the start and the group of the next flow.
    fn next(&self) -> Option<(Time, usize)> {
        self.sources.iter().zip(0..).filter_map(|(source, group)| Some((source.next_start()?, group))).min()
    }
}

impl Source for Mixed {
    fn next_start(&self) -> Option<Time> {
        self.next().map(|(start, _)| start)
    }

    fn next_flow(&mut self) -> FlowSpec {
        let (_, group) = self.next().expect("a flow is left");
        self.flows.push((group as u32, self.counts[group]));
        self.counts[group] += 1;
        self.sources[group].next_flow()
    }

    fn next_group(&self) -> u32 {
        self.next().map_or(0, |(_, group)| group as u32)
    }

    fn ended(&mut self, flow: u32, is_at_receiver: bool, now: Time) {
        let (group, number) = self.flows[flow as usize];
        self.sources[group as usize].ended(number, is_at_receiver, now);
    }
}
