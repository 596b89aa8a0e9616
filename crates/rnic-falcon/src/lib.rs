//! Falcon below the verbs: transactions of at most one MTU, and the reliable delivery of their packets.
//!
//! ```text
//! CRATE    rnic-falcon (red: two layers that must not depend on each other)
//! Purpose  the transaction layer (RSN order, resources, errors) and the packet delivery layer (windows, gates, flows)
//! May use  rnic-base, rnic-wire, rnic-policy, rnic-fae
//! Must not depend on verbs, read a clock, touch payload, allocate per packet, compute in floating point
//! Add here a mechanism of one of the two layers, in its own file; what passes between them goes into interface.rs
//! Not here algorithms (rnic-transports), where control policies run (rnic-fae), queues and memory (rnic-engine)
//! Tested by mechanism tests named after the ids of the paper's mechanisms, and a two-ended run over a bad link
//! ```
//!
//! Sources: Falcon (SIGCOMM'25) sections 3 to 5, and the "OCP Falcon Transport Protocol, Rev 0.9" specification.
//!
//! The delivery layer numbers packets, opens and closes gates, retransmits, and reports the outcome of each packet. The
//! transaction layer knows the transaction that a packet belongs to. Their only interface is [`interface`].
//! [`connection`] combines them, and connects them to the adaptive engine ([`adaptive`]). [`search`] runs transaction
//! layers over a model of the delivery layer, to find schedules that end in a deadlock.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_macros))]

pub mod adaptive;
pub mod connection;
pub mod delivery;
pub mod interface;
mod profile;
pub mod resources;
pub mod search;
pub mod transaction;
