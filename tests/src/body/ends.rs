//! All ends of connections, and which queue pair is whose.

use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};

use rnic_base::Psn;
use rnic_engine::QpTiming;
use rnic_wire::Qpn;

use super::end::End;
use crate::scenario::PlannedFailure;

/// Ends of connections: those of the n-th one are 2n and 2n + 1.
#[derive(Default)]
pub(super) struct Ends {
    ends: Vec<End>,
    /// By host and queue pair number.
    by_qpn: BTreeMap<(usize, u32), usize>,
}

impl Ends {
    pub(super) fn push(&mut self, end: End) {
        self.ends.push(end);
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &End> {
        self.ends.iter()
    }

    /// Gives `end` the queue pair `qpn`.
    pub(super) fn name(&mut self, end: usize, qpn: Qpn) {
        self.ends[end].qpn = qpn;
        self.by_qpn.insert((self.ends[end].host, qpn.get()), end);
    }

    /// The queue pair of `end` is no more.
    pub(super) fn forget(&mut self, end: usize) {
        let End { host, qpn, .. } = self.ends[end];
        self.by_qpn.remove(&(host, qpn.get()));
    }

    /// Returns whose queue pair this is.
    pub(super) fn find(&self, host: usize, qpn: Qpn) -> Option<usize> {
        self.by_qpn.get(&(host, qpn.get())).copied()
    }

    /// Returns requests that are not known to be done, and messages that nobody has received.
    pub(super) fn outstanding(&self) -> usize {
        self.ends.iter().map(|end| end.ops.len() + end.messages.len()).sum()
    }

    /// Checks that whatever a sender knows to be done has been received.
    ///
    /// # Errors
    /// When it has not.
    pub(super) fn check_received(&self) -> Result<(), String> {
        for (index, end) in self.ends.iter().enumerate() {
            if end.acknowledged > end.received {
                let (done, received) = (end.acknowledged, end.received);
                return Err(format!("end {index}: {done} messages completed, {received} received at the other end"));
            }
        }
        Ok(())
    }

    /// Returns whether the connection of `end` may end at any time: with few retries it may.
    pub(super) fn is_fragile(&self, end: usize) -> bool {
        let is_fragile = |(_, planned)| matches!(planned, PlannedFailure::PeerVanishes | PlannedFailure::NeverReady);
        self.ends[end].planned.or(self.ends[end ^ 1].planned).is_some_and(is_fragile)
    }

    /// Returns what the queue pair of `end` needs to send, with so many fetches at a time.
    pub(super) fn timing(&self, end: usize, max_rd_atomic: u32) -> QpTiming {
        let planned = self.ends[end].planned.or(self.ends[end ^ 1].planned).map(|(_, planned)| planned);
        let retry_count = match planned {
            None => u32::MAX,
            Some(PlannedFailure::PeerVanishes) => FEW_RETRIES,
            // RoCE cannot repeat an answer once it has refused what came behind: then a count must end the wait.
            Some(_) => DOOMED_RETRIES,
        };
        let rnr_retry = (planned == Some(PlannedFailure::NeverReady)).then_some(FEW_RETRIES);
        QpTiming { sq_psn: Psn::new(self.ends[end].psn), retry_count, rnr_retry, max_rd_atomic }
    }
}

impl Index<usize> for Ends {
    type Output = End;

    fn index(&self, end: usize) -> &End {
        &self.ends[end]
    }
}

impl IndexMut<usize> for Ends {
    fn index_mut(&mut self, end: usize) -> &mut End {
        &mut self.ends[end]
    }
}

/// Retries that may be exceeded by chance.
const FEW_RETRIES: u32 = 2;

/// Timeouts in a row that no loss brings about by chance.
const DOOMED_RETRIES: u32 = 200;
