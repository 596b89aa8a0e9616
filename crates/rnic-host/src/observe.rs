//! Watching a NIC while its program runs: what it has counted, answered on a socket by a thread of its own.
//!
//! The socket is an abstract one (unix(7)), so a process that is killed leaves nothing behind, and the kernel's list of
//! such sockets is how watchers find processes. Whoever connects gets one [`Snapshot`] as JSON and the connection is
//! closed. Only the same user and root are answered (`SO_PEERCRED`), and a watcher believes only what comes from the
//! user whose number is in the name; neither where that number may stand for several users ([`crate::user`]). Abstract
//! names belong to a network namespace: so does watching.

mod client;
mod collect;
mod credentials;
mod prometheus;
mod server;
mod snapshot;

pub use client::{Endpoint, ObserveError, endpoints, fetch, fetch_all};
pub use collect::Identity;
pub use prometheus::exposition;
pub use server::{Observer, serve};
pub use snapshot::{DeviceCounters, FlowSnapshot, QueuePairSnapshot, Snapshot};

/// What the names of the sockets begin with: user, process and device follow, `rnic-top-1000-4711-0`.
const NAME_PREFIX: &str = "rnic-top-";

#[cfg(test)]
#[path = "observe/tests.rs"]
mod tests;
