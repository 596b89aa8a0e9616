//! The settings of a session, the same at both ends.

use rnic_base::Duration;
use rnic_base::limits::WORK_REQUESTS_MAX;
use rnic_engine::CqId;

use super::{PERF_PORT, PerfError};
use crate::cm::ConnectionId;
use crate::nic::Nic;

/// How to serve.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// The service to listen on.
    pub port: u16,
    /// End after one session.
    pub once: bool,
    /// What a session may make this end allocate.
    pub memory_max_bytes: u64,
    /// A session in which nothing has come in for so long is over.
    pub patience: Duration,
}

impl Default for ServeConfig {
    fn default() -> Self {
        Self { port: PERF_PORT, once: false, memory_max_bytes: 4 << 30, patience: Duration::from_secs(30) }
    }
}

/// Makes a completion queue for `capacity` completions.
pub(super) fn make_cq(nic: &mut Nic, capacity: u32) -> Result<CqId, PerfError> {
    nic.verbs().create_cq(capacity).map_err(|error| PerfError::Nic(error.into()))
}

/// Queue pairs of a session, at most: the serving end makes as many.
pub(super) const QPS_MAX: u64 = 1_024;

/// Operations in flight on a queue pair, at most: half of a queue, the other half is for receives being posted again.
pub(super) const DEPTH_MAX: u64 = WORK_REQUESTS_MAX as u64 / 2;

/// Rejects a connection request, and says why.
pub(super) fn turn_away(nic: &mut Nic, id: ConnectionId, why: &str) {
    // It may have been taken back meanwhile.
    let _ = nic.reject(id, why);
}
