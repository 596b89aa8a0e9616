//! Warnings about plans that are legal but probably not intended.

use rnic_base::Duration;

use super::{Plan, fitted};
use crate::switch::BufferPlan;

impl Plan {
    /// Returns warnings about legal values of this plan that are probably not intended, one line each. They do not
    /// prevent the run.
    pub fn warnings(&self) -> Vec<String> {
        [self.pfc_that_drops(), self.timeouts_under_pfc(), self.deaf_control(), self.unread_tags(), self.narrow_cap()]
            .into_iter()
            .flatten()
            .collect()
    }

    /// Warns about PFC without buffer space for the bytes that arrive after a pause.
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

    /// Warns about timeouts that are shorter than a pause.
    fn timeouts_under_pfc(&self) -> Option<String> {
        self.switch.as_ref()?.pfc?;
        if self.transport.protocol.falcon().is_some() {
            return None;
        }
        let full = self.auto_timeout();
        // The longest timeout counts: a short one for few packets in flight is intended (IRN section 4.1).
        let (spec, value) = fitted::timeouts(&self.transport).max_by_key(|(_, value)| *value)?;
        let is_short = value > 0 && Duration::from_ps(value) < full;
        is_short.then(|| {
            format!(
                "transport.{} is {}: under PFC packets may wait longer ({full} behind one full buffer) and be \
             retransmitted although none is lost; 0, or 10s, where nothing else loses packets",
                spec.name,
                spec.show(value)
            )
        })
    }

    /// Warns about congestion control that uses ECN marks when no switch marks.
    fn deaf_control(&self) -> Option<String> {
        let name = self.transport.control.policy.name;
        let hears_marks = matches!(name, "dcqcn" | "dctcp");
        let marks = self.switch.as_ref().is_some_and(|switch| switch.ecn.is_some());
        (hears_marks && !marks).then(|| {
            format!(
                "transport.control = \"{name}\" needs ECN marks, and no switch marks: give the switches [switch.ecn]"
            )
        })
    }

    /// Warns about switches that write tags when the transport does not read them.
    fn unread_tags(&self) -> Option<String> {
        let name = self.transport.name;
        let is_unread = self.switch.is_some_and(|switch| switch.csig) && self.transport.protocol.falcon().is_none();
        is_unread.then(|| {
            format!("switch.csig is on, and packets of `{name}` have no tag to write into: only those of falcon have")
        })
    }

    /// Warns about a cap that prevents even a single connection from filling the path.
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
