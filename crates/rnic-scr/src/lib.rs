//! SCR's processors: the component beside the NIC in which control programs run on coalesced signals.
//!
//! ```text
//! CRATE    rnic-scr (amber: with a test that equal records give equal results in every place)
//! Purpose  signals, coalescing queues, steering, pools of threads (modelled and real), tools for compact state
//! May use  rnic-base, rnic-policy
//! Must not depend on packets or algorithms, read a clock, compute in floating point; start threads but in one file
//! Add here a signal, a way of coalescing, a place to run, a tool that programs share
//! Not here what is decided (rnic-transports), where signals are collected and rates enforced (rnic-engine)
//! Tested by lists as models of queues, tests of timing by hand, one test over all places; benches/scr.rs
//! ```
//!
//! Source: SCR, "White-Boxing RDMA with Packet-Granular Software Control" (NSDI'25), section 4.3.
//!
//! ```text
//!   collectors          queues                     threads                              owner of the engine
//!   twelve signals  ->  one per (flow, kind)   ->  steered; run to completion;      ->  applies each rate when its
//!   ([`Signal`])        coalescing ([`Queue`])     nothing shared ([`Pool`])            installation ends ([`Rates`])
//! ```
//!
//! * [`Pool`] models any number of threads in simulated time, as state without threads;
//! * [`thread::Threads`] is a pool of one or two threads of the operating system, behind lock-free queues ([`spsc`]);
//! * [`tools`] are Bloom filter, bitmap, flow map, HyperLogLog, Count-Min and fixed-point numbers for programs.
//!
//! Equal sequences of records give equal decisions in every place. Places differ in what they coalesce and how long
//! they take, so outcomes of a transfer differ.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_macros))]

pub mod convergence;
pub mod pool;
pub mod queue;
pub mod rates;
pub mod signal;
pub mod spsc;
pub mod steering;
pub mod thread;
pub mod tools;
mod turns;

pub use convergence::Convergence;
pub use pool::{Dispatch, KindCounters, Pool, PoolConfig, PoolCounters, PoolTimes, Refused};
pub use queue::{Backlog, FOLDED_BYTES_MAX, Pushed, QUEUE_DEPTH, Queue, Strategy};
pub use rates::Rates;
pub use signal::{Band, Domain, KeptValue, Kind, Scope, Signal};
pub use steering::{FLOWS_MAX, HostThreads, NODES_MAX, PoolError, PoolSizes, Steering, SteeringMode, flows_served};
