//! Sockets of bytes over a transport of segments: what is sent when, and which connections the template serves.
//!
//! ```text
//! CRATE    rnic-stream (red: simulations, sockets and circuits follow it)
//! Purpose  segments of one size from writes of any size, delay of partial segments, assignment of flow ids
//! May use  rnic-base
//! Must not depend on packets, sockets or payload, read a clock, allocate per segment
//! Add here a rule of the stream layer that every driver follows
//! Not here how segments are carried (rnic-tonic, rnic-engine), sockets and threads (rnic-host)
//! Tested by tests/t26.rs: random writes over a path with a delay, every size and time
//! ```
//!
//! Source: Tonic, "Enabling Programmable Transport Protocols in High-Speed NICs" (NSDI'20), section 5 and appendix D.
//!
//! ```text
//!   head                 tonic-tail      tail
//!    |  sent, outstanding  |  not announced |  space
//! ```
//!
//! * [`Sender`] is the sending half of a connection, a position in a stream for each of the three;
//! * [`Flows`] gives out the flow ids of a template; connections beyond them run in software, and are counted.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_macros))]

mod flows;
mod sender;

pub use flows::{Flows, NotAssigned, Place};
pub use sender::{ConfigError, NotSent, SEGMENT_BYTES_MAX, Segment, Sender, State, StreamConfig};
