//! The semantics fuzz: random verbs operations over faulty networks, checked independently of the engine; in
//! simulation, on sockets, through shared memory.
//!
//! ```text
//! CRATE    rnic-conformance (green: a check that finds a defect is always welcome)
//! Purpose  one random test driver and its checks, on four networks: fabric, engines alone, UDP sockets, memory
//! May use  rnic-base, rnic-wire, rnic-policy, rnic-transports, rnic-engine, rnic-fabric, rnic-host
//! Must not depend in the driver on the network that it runs on; inspect an engine to decide what is right
//! Add here an operation, a fault, a way to fail, a network
//! Not here tests of one mechanism (its crate's tests/), performance
//! Tested by its own runs: a defect put into the engine must be found (tests/short.rs says how)
//! ```
//!
//! A run is a [`Scenario`], generated completely from one seed: transport and options, network and faults, connections,
//! requests. The test driver posts requests, advances time, polls, and compares the results with the expected ones:
//!
//! * every request completes once, in the order in which it was posted on its queue pair, with the correct status;
//! * every message is received once, in order, with its length, immediate or key, and flags;
//! * every byte that must be written is correct, and no other byte changes: all of a host's memory is filled with a
//!   pattern;
//! * a read returns the data of the Writes before it, a fenced request is executed after the reads before it, atomics
//!   form a sequence;
//! * a request that will fail does so as expected, at both ends, everything behind it is flushed in order, and other
//!   connections are not affected;
//! * there is always progress while there is work to do; in the end all faults are disabled and everything completes;
//!   no resources are left behind.
//!
//! On the fabric the same seed results in the same trace hash. On sockets the posted requests are the same, but not
//! their times.

#![forbid(unsafe_code)]

pub mod apps;
mod arena;
pub mod backend;
mod body;
pub mod both;
mod build;
mod cable;
pub mod campaign;
pub mod individual_errors;
mod leftovers;
mod log;
mod pattern;
pub mod running;
pub mod scenario;
pub mod soak;

pub use body::{Body, Tally};
pub use build::{fabric, sockets};
pub use scenario::{Place, Scenario};
