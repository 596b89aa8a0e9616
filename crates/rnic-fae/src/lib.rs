//! Falcon's adaptive engine (FAE; "rate update engine" in the specification): where control policies run.
//!
//! ```text
//! CRATE    rnic-fae (amber: with a test that equal events give equal actions in every place)
//! Purpose  event and response records, the event queue, the engine in three places with three forms of state
//! May use  rnic-base, rnic-policy
//! Must not depend on packets or algorithms, allocate per event, use floating point; start threads but in one file
//! Add here a signal or result in the records; a place to run; a form of state
//! Not here what is decided (rnic-transports), what is measured and enforced (rnic-falcon)
//! Tested by golden records, one test over all places and forms, a counting allocator; benches/fae.rs for the rate
//! ```
//!
//! Sources: OCP Falcon Transport Protocol, Rev 0.9, section 10.6; Falcon (SIGCOMM'25) section 5.3.
//!
//! ```text
//!   datapath --Event--> Filter --EventRecord, 64 bytes--> Processor (program, state) --ResponseRecord--> datapath
//!                                     inline | behind a latency | on a thread
//! ```
//!
//! * a **program** is a control policy that processes reports ([`program`]);
//! * the **location of its state** is a [`StateLocation`]: in the event, in a table, or in a table whose lines are
//!   prefetched;
//! * the **place where it runs**: [`Processor`] inline, [`Delayed`] with a latency (for simulated time), [`Port`] on a
//!   thread.
//!
//! Equal events give equal responses in every place and form. A flow has at most one event outstanding, which its
//! [`FlowAdmission`] ensures.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_macros))]

pub mod delayed;
pub mod filter;
pub mod processor;
pub mod program;
pub mod queue;
pub mod record;
mod table;
pub mod thread;

pub use delayed::{Delayed, Latency};
pub use filter::{Filter, FlowAdmission, Refusal};
pub use processor::{FaeError, Processor, ProcessorConfig, StateLocation};
pub use program::{ErasedPolicy, Program, Typed};
pub use queue::EventQueue;
pub use record::{Event, EventRecord, Response, ResponseRecord};
pub use thread::{Port, Spawn};
