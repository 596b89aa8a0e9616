//! Settings and limits of sessions, shared by both ends.

use rnic_base::Duration;
use rnic_base::limits::WORK_REQUESTS_MAX;
use rnic_engine::CqId;

use super::{PERF_PORT, PerfError};
use crate::cm::ConnectionId;
use crate::nic::Nic;

/// Settings of the server.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// Service to listen on.
    pub port: u16,
    /// True to stop after one session.
    pub once: bool,
    /// Maximum number of bytes that a session may make this end allocate.
    pub memory_max_bytes: u64,
    /// Time without received packets after which a session is ended.
    pub patience: Duration,
    /// True to sleep while no packet arrives, instead of polling for some time first.
    pub sleeps_at_once: bool,
}

impl Default for ServeConfig {
    fn default() -> Self {
        Self {
            port: PERF_PORT,
            once: false,
            memory_max_bytes: 4 << 30,
            patience: Duration::from_secs(30),
            sleeps_at_once: false,
        }
    }
}

/// Creates a completion queue for `capacity` completions.
pub(super) fn make_cq(nic: &mut Nic, capacity: u32) -> Result<CqId, PerfError> {
    nic.verbs().create_cq(capacity).map_err(|error| PerfError::Nic(error.into()))
}

/// Maximum number of queue pairs of a session: the server creates the same number.
pub(super) const QPS_MAX: u64 = 1_024;

/// Maximum number of operations in flight on a queue pair: half of the entries of a queue, because the other half is
/// needed for receives that are being posted again.
pub(super) const DEPTH_MAX: u64 = WORK_REQUESTS_MAX as u64 / 2;

/// Rejects a connection request, with the reason `why`.
pub(super) fn reject_client(nic: &mut Nic, id: ConnectionId, why: &str) {
    // The request may have been withdrawn meanwhile.
    let _ = nic.reject(id, why);
}

/// Number of connection timeouts without any packet after which the remote end counts as stuck. (If the remote end no
/// longer exists, operations fail.)
pub(super) const SILENCE_TIMEOUTS: u64 = 6;
