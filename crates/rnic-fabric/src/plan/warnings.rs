//! What a plan may say, and probably does not mean.

use rnic_base::Duration;

use super::{Plan, fitted};
use crate::switch::BufferPlan;

impl Plan {
    /// What is legal in this plan and yet unlikely to be meant, one line each: a run begins all the same.
    pub fn warnings(&self) -> Vec<String> {
        [self.pfc_that_drops(), self.timeouts_under_pfc(), self.deaf_control(), self.unread_tags(), self.narrow_cap()]
            .into_iter()
            .flatten()
            .collect()
    }

    /// PFC without the bytes that come in after a pause.
    fn pfc_that_drops(&self) -> Option<String> {
        let switch = self.switch.as_ref()?;
        let (slack, needed) = (switch.pfc_slack()?, self.skid());
        let key = match switch.buffer {
            BufferPlan::InputQueued { .. } => "switch.pfc.threshold leaves",
            BufferPlan::Shared { .. } => "switch.pfc.headroom has",
        };
        (slack < needed).then(|| {
            format!(
                "{key} {slack} B for what comes in after a pause; these links need {needed} B: PFC will lose packets \
                 (\"auto\" is right)"
            )
        })
    }

    /// Timeouts that a pause outlasts.
    fn timeouts_under_pfc(&self) -> Option<String> {
        self.switch.as_ref()?.pfc?;
        if self.transport.protocol.falcon().is_some() {
            return None;
        }
        let full = self.auto_timeout();
        // The longest counts: a short one for few packets in flight is meant (IRN section 4.1).
        let (spec, value) = fitted::timeouts(&self.transport).max_by_key(|(_, value)| *value)?;
        let is_short = value > 0 && Duration::from_ps(value) < full;
        is_short.then(|| format!(
            "transport.{} is {}: under PFC packets may wait longer ({full} behind one full buffer) and be sent again \
             although none is lost; 0, or 10s, where nothing else loses packets",
            spec.name,
            spec.show(value)
        ))
    }

    /// Congestion control by marks where nobody marks.
    fn deaf_control(&self) -> Option<String> {
        let name = self.transport.control.policy.name;
        let hears_marks = matches!(name, "dcqcn" | "dctcp");
        let marks = self.switch.as_ref().is_some_and(|switch| switch.ecn.is_some());
        (hears_marks && !marks).then(|| {
            format!(
                "transport.control = \"{name}\" goes by ECN marks, and nobody marks: give the switches [switch.ecn]"
            )
        })
    }

    /// Switches that write where no transport reads.
    fn unread_tags(&self) -> Option<String> {
        let name = self.transport.name;
        let is_unread = self.switch.is_some_and(|switch| switch.csig) && self.transport.protocol.falcon().is_none();
        is_unread.then(|| {
            format!("switch.csig is on, and packets of `{name}` have no tag to write into: only those of falcon have")
        })
    }

    /// A cap that keeps even one connection from filling the path.
    fn narrow_cap(&self) -> Option<String> {
        let (cap, fills) = (u64::from(self.transport.cap_packets?), self.bdp_packets());
        (cap * 10 < fills * 9).then(|| {
            format!(
                "transport.cap_packets is {cap}, and {fills} packets fill the longest path: a connection alone gets at \
                 most {} % of it (cap_packets = \"bdp\")",
                cap * 100 / fills
            )
        })
    }
}
