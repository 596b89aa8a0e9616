//! All ends of connections, and the mapping from queue pairs to ends.

use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};

use rnic_base::Psn;
use rnic_engine::QpTiming;
use rnic_wire::Qpn;

use super::end::End;
use crate::scenario::PlannedFailure;

/// Ends of all connections: connection n has the ends 2n and 2n + 1.
#[derive(Default)]
pub(super) struct Ends {
    ends: Vec<End>,
    /// Index of the end, by host and queue pair number.
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

    /// Assigns the queue pair `qpn` to `end`.
    pub(super) fn name(&mut self, end: usize, qpn: Qpn) {
        self.ends[end].qpn = qpn;
        self.by_qpn.insert((self.ends[end].host, qpn.get()), end);
    }

    /// Removes the queue pair of `end` from the mapping.
    pub(super) fn forget(&mut self, end: usize) {
        let End { host, qpn, .. } = self.ends[end];
        self.by_qpn.remove(&(host, qpn.get()));
    }

    /// Returns the end to which a queue pair belongs.
    pub(super) fn find(&self, host: usize, qpn: Qpn) -> Option<usize> {
        self.by_qpn.get(&(host, qpn.get())).copied()
    }

    /// Returns the number of requests that are not known to be complete, and of messages that have not been received.
    pub(super) fn outstanding(&self) -> usize {
        self.ends.iter().map(|end| end.ops.len() + end.messages.len()).sum()
    }

    /// Checks that every message whose sender has a completion has been received.
    ///
    /// # Errors
    /// When one has not.
    pub(super) fn check_received(&self) -> Result<(), String> {
        for (index, end) in self.ends.iter().enumerate() {
            if end.acknowledged > end.received {
                let (done, received) = (end.acknowledged, end.received);
                return Err(format!("end {index}: {done} messages completed, {received} received at the other end"));
            }
        }
        Ok(())
    }

    /// Returns whether the connection of `end` may fail at any time, because it has few retries.
    pub(super) fn is_fragile(&self, end: usize) -> bool {
        let is_fragile =
            |(_, planned)| matches!(planned, PlannedFailure::PeerUnresponsive | PlannedFailure::NeverReady);
        self.ends[end].planned.or(self.ends[end ^ 1].planned).is_some_and(is_fragile)
    }

    /// Returns the timing that the queue pair of `end` needs to send, with at most `max_rd_atomic` fetches in flight.
    pub(super) fn timing(&self, end: usize, max_rd_atomic: u32) -> QpTiming {
        let planned = self.ends[end].planned.or(self.ends[end ^ 1].planned).map(|(_, planned)| planned);
        let retry_count = match planned {
            None => u32::MAX,
            Some(PlannedFailure::PeerUnresponsive) => LOW_RETRY_COUNT,
            // RoCE cannot retransmit a response once it has refused a later request: then a retry count must end the
            // wait.
            Some(_) => FAILING_RETRY_COUNT,
        };
        let rnr_retry = (planned == Some(PlannedFailure::NeverReady)).then_some(LOW_RETRY_COUNT);
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

/// Retry count that random losses may exceed.
const LOW_RETRY_COUNT: u32 = 2;

/// Consecutive timeouts that random losses do not cause.
const FAILING_RETRY_COUNT: u32 = 200;
