//! Observation and control of a NIC while its program runs: a separate thread serves the NIC's counters on a socket,
//! and takes requests from another one: limits, transport programs, and requests for the signals that the NIC collects.
//!
//! The socket is an abstract one (unix(7)), so no file remains when a process is killed, and observers find processes
//! in the kernel's list of such sockets. Each client that connects receives one [`Snapshot`] as JSON, then the
//! connection is closed. Only clients of the same user and of root are served (`SO_PEERCRED`), and an observer
//! accepts data only from the user whose ID is in the socket's name. If the ID may stand for several users
//! ([`crate::user`]), no client is served and no data is accepted. Abstract names belong to a network namespace, so
//! observation works only within one network namespace.

mod client;
mod collect;
mod control;
mod credentials;
mod fairness;
mod prometheus;
mod server;
mod snapshot;

use rnic_transports::programs::FILE_BYTES_MAX;

pub use client::{
    Endpoint, ObserveError, devices_of, endpoints, fetch, fetch_all, fetch_signals, load_program, set_limit,
};
pub use collect::Identity;
pub use control::{
    ControlReply, ControlRequest, LimitRequest, ProgramRequest, SignalBatch, SignalRecord, SignalsRequest,
    apply_program,
};
pub use fairness::{Fairness, SharedLink, shared_links};
pub use prometheus::{exposition, metrics};
pub use server::{Observer, serve, serve_with_control};
pub use snapshot::{DeviceCounters, FlowSnapshot, LatencySnapshot, QueuePairSnapshot, ShareSnapshot, Snapshot};

/// Prefix of the sockets' names: the IDs of user and process and the index of the device follow, as in
/// `rnic-top-1000-4711-0`.
const NAME_PREFIX: &str = "rnic-top-";

/// Prefix of the names of the sockets that take one [`ControlRequest`] from each client and answer with a
/// [`ControlReply`]. The same numbers follow as after [`NAME_PREFIX`].
const CONTROL_PREFIX: &str = "rnic-ctl-";

/// Maximum length of a request in bytes: a program file as JSON, with three digits and a comma for a byte.
const CONTROL_LINE_MAX: usize = 4 * FILE_BYTES_MAX + 1_024;

#[cfg(test)]
#[path = "observe/tests.rs"]
mod tests;
