//! Warnings about plans that are valid but probably not intended.

use rnic_base::Duration;
use rnic_policy::Profile;

use super::{Plan, fitted};
use crate::switch::{BufferPlan, SwitchPlan};
use crate::workload::WorkloadPlan;
use crate::workload::groups::GroupPlan;

impl Plan {
    /// Returns warnings about values of this plan that are valid but probably not intended, one line each. They do not
    /// prevent the run.
    pub fn warnings(&self) -> Vec<String> {
        [
            self.pfc_that_drops(),
            self.timeouts_under_pfc(),
            self.control_without_marks(),
            self.unused_tags(),
            self.trimming_without_pulls(),
            self.cap_below_path(),
            self.pfc_that_deadlocks(),
        ]
        .into_iter()
        .flatten()
        .chain(self.topology.notes().iter().cloned())
        .chain(self.unused_parts_of_flows())
        .collect()
    }

    /// Warns about parts of a file of flows that have no effect.
    fn unused_parts_of_flows(&self) -> impl Iterator<Item = String> {
        let notes = |workload: &WorkloadPlan, key: &str| match workload {
            WorkloadPlan::Trace(file) => file.notes.iter().map(|note| format!("{key}.file: {note}")).collect(),
            _ => Vec::new(),
        };
        let of_groups = self.workload.groups().iter();
        let of_groups = of_groups.flat_map(move |group| notes(&group.workload, &format!("traffic.{}", group.name)));
        notes(&self.workload, "workload").into_iter().chain(of_groups.collect::<Vec<_>>())
    }

    /// Warns about PFC over routes on which buffers may wait for each other in a circle.
    fn pfc_that_deadlocks(&self) -> Option<String> {
        self.switch.as_ref()?.pfc?;
        let cycle = self.topology.buffer_cycle()?;
        Some(format!(
            "switch.pfc can deadlock: each of these links may wait for the next one, and the last one for the first: \
             {cycle}; disable PFC, or use a topology whose routes go up and then down"
        ))
    }

    /// Warns about PFC without buffer space for the bytes that arrive after a pause.
    fn pfc_that_drops(&self) -> Option<String> {
        let switch = self.switch.as_ref()?;
        let parts: Vec<_> = self.classes.iter().filter_map(|class| class.switch.as_ref()).collect();
        let parts = if parts.is_empty() { vec![switch] } else { parts };
        let slack = parts.into_iter().filter_map(SwitchPlan::pfc_slack).min()?;
        let needed = self.pause_reaction_bytes();
        let key = match switch.buffer {
            BufferPlan::InputQueued { .. } => "switch.pfc.threshold leaves only",
            BufferPlan::Shared { .. } => "switch.pfc.headroom reserves only",
        };
        (slack < needed).then(|| {
            format!(
                "{key} {slack} B for packets that arrive after a pause, but these links need {needed} B, so packets \
                 will be dropped; use \"auto\""
            )
        })
    }

    /// Returns the transports whose packets switches pause.
    fn paused_transports(&self) -> Vec<&Profile> {
        let is_paused = |group: &&GroupPlan| {
            let class = self.classes.get(usize::from(group.class));
            class.is_none_or(|class| class.switch.is_some_and(|part| part.pfc.is_some()))
        };
        match self.workload.groups() {
            [] => vec![&self.transport],
            groups => groups.iter().filter(is_paused).map(|group| &group.transport).collect(),
        }
    }

    /// Warns about timeouts that are shorter than a pause.
    fn timeouts_under_pfc(&self) -> Option<String> {
        self.switch.as_ref()?.pfc?;
        let drain_time = self.auto_timeout();
        // The longest timeout counts: a short one for few packets in flight is intended (IRN section 4.1).
        let longest = |transport: &Profile| fitted::timeouts(transport).max_by_key(|(_, value)| *value);
        let is_short = |(_, value): &(_, u64)| *value > 0 && Duration::from_ps(*value) < drain_time;
        let paused = self.paused_transports().into_iter();
        let fixed = paused.filter(|transport| transport.protocol.falcon().is_none());
        let short = fixed.filter_map(longest).find(is_short);
        short.map(|(spec, value)| {
            format!(
                "transport.{} is {}, but under PFC packets may be queued longer ({drain_time} in one full buffer) \
                 and be retransmitted unnecessarily; use 0, or 10s, in a lossless network",
                spec.name,
                spec.show(value)
            )
        })
    }

    /// Warns about congestion control that uses ECN marks when no switch marks.
    fn control_without_marks(&self) -> Option<String> {
        let names = self.transports().into_iter().map(|transport| transport.control.policy.name);
        let name = names.into_iter().find(|name| matches!(*name, "dcqcn" | "dctcp"))?;
        let marks = self.switch.as_ref().is_some_and(|switch| switch.ecn.is_some());
        (!marks).then(|| {
            format!("transport.control = \"{name}\" needs ECN marks, but no switch marks packets; add [switch.ecn]")
        })
    }

    /// Warns about switches that write tags when the transport does not read them.
    fn unused_tags(&self) -> Option<String> {
        let name = self.transport.name;
        let is_unread = self.switch.is_some_and(|switch| switch.csig) && !self.uses_falcon();
        is_unread.then(|| {
            format!(
                "switch.csig is on, but packets of transport `{name}` have no CSIG tag; only packets of falcon have \
                 one"
            )
        })
    }

    /// Warns about switches that trim packets when receivers drop the trimmed packets.
    fn trimming_without_pulls(&self) -> Option<String> {
        let transport = self.transports().into_iter().find(|transport| transport.pulls.is_none())?;
        let is_unused = self.switch.is_some_and(|switch| switch.trim.is_some());
        is_unused.then(|| {
            format!(
                "switch.trim is on, but receivers of transport `{}` do not pull, so trimmed packets count as lost",
                transport.name
            )
        })
    }

    /// Warns about a cap that prevents even a single connection from filling the path.
    fn cap_below_path(&self) -> Option<String> {
        let caps = self.transports().into_iter().filter_map(|transport| transport.cap_packets);
        let (cap, path_packets) = (u64::from(caps.min()?), self.bdp_packets());
        (cap * 10 < path_packets * 9).then(|| {
            format!(
                "transport.cap_packets is {cap}, but {path_packets} packets fill the longest path, so one connection \
                 reaches at most {} % of its rate; use cap_packets = \"bdp\"",
                cap * 100 / path_packets
            )
        })
    }
}
