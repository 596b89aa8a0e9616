//! Observation of a NIC while its program runs: a separate thread serves the NIC's counters on a socket.
//!
//! The socket is an abstract one (unix(7)), so a process that is killed leaves nothing behind, and observers find
//! processes in the kernel's list of such sockets. Each client that connects receives one [`Snapshot`] as JSON, then
//! the connection is closed. Only clients of the same user and of root are served (`SO_PEERCRED`), and an observer
//! accepts only data from the user whose number is in the name; neither where that number may stand for several users
//! ([`crate::user`]). Abstract names belong to a network namespace, so observation works within one network namespace
//! only.

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

/// Prefix of the sockets' names: user, process and device follow, `rnic-top-1000-4711-0`.
const NAME_PREFIX: &str = "rnic-top-";

#[cfg(test)]
#[path = "observe/tests.rs"]
mod tests;
