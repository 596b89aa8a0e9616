//! The semantics fuzz: random verbs work over bad networks, checked from outside, simulated, on sockets, by memory.
//!
//! ```text
//! ROOM     rnic-conformance (green: a check that finds something is always welcome)
//! Purpose  one body of random work and its checks, on four networks: fabric, engines alone, UDP sockets, memory
//! May use  rnic-base, rnic-wire, rnic-policy, rnic-transports, rnic-engine, rnic-fabric, rnic-host
//! Must not know in the body which network it runs on; look into an engine to decide what is right
//! Add here an operation, a trouble, a way to fail, a network
//! Not here tests of one mechanism (its room's tests/), performance
//! Proved by its own runs: a defect put into the engine must be found (tests/short.rs says how)
//! ```
//!
//! A run is a [`Scenario`], drawn whole from one seed: transport and options, network and troubles, connections, what
//! is posted. The body posts, lets time pass, polls, and holds what comes against what must come:
//!
//! * every request completes once, in the order in which it was posted on its queue pair, with the right status;
//! * every message is received once, in order, with its length, immediate or key, and flags;
//! * every byte is right where it must be, and no other byte changes: all of a host's memory is painted;
//! * a read sees the Writes before it, a fenced request comes after the reads before it, atomics form a sequence;
//! * a request that cannot succeed fails as it must, at both ends, everything behind it is flushed in order, and other
//!   connections do not notice;
//! * something moves all the time while there is something to do; at last the network becomes a good one and everything
//!   finishes; nothing is left behind.
//!
//! On the fabric the same seed gives the same trace hash. On sockets what is posted is the same, when is not.

pub mod apps;
mod arena;
pub mod backend;
mod body;
mod build;
mod cable;
pub mod campaign;
mod leftovers;
mod log;
pub mod loose;
mod pattern;
pub mod running;
pub mod scenario;
pub mod soak;

pub use body::{Body, Tally};
pub use build::{fabric, sockets};
pub use scenario::{Place, Scenario};
