//! Messages between NICs: the rules by which they are sent, accepted and applied.
//!
//! Source: SCR (NSDI'25) section 4.3.1 (messages, modes, probes) and A.8 (receiver credits, back-pressure). The layout
//! of a message is in [`rnic_wire::scr`]. A driver that carries messages enables them
//! ([`crate::Messages`]); the engine then returns messages among the packets to send ([`crate::Departure::Message`]),
//! before all others.
//!
//! - [`exchange`]: owns the state of all peers and queue pairs, and applies the rules.
//! - [`config`], [`stats`]: settings and counters.
//! - [`cadence`]: when a NIC sends a message (SCR mechanism S-7).
//! - [`prober`]: round trips of paths (SCR mechanism S-8).
//! - [`peer`]: which messages are accepted, and which are answered (SCR mechanism S-6).
//! - [`grants`], [`pressure`]: what a receiver grants, and when it sends back-pressure (SCR mechanisms S-25, S-26).
//! - [`limit`]: how a sender limits a queue pair by grants and back-pressure (SCR mechanisms S-25, S-26).
//!
//! A peer is hostile. By whatever messages, it can limit only the queue pairs that are connected to it: to no less than
//! the floor ([`limit::Bounds`]), and after its last message for no longer than [`limit::VALID_MAX`] and the time in
//! which a grant fades. What it announces or delays (round trips, turn-arounds, the latency of its bus) is bounded
//! where it is used.

pub mod cadence;
pub mod config;
pub mod exchange;
pub mod grants;
pub mod limit;
pub mod peer;
pub mod pressure;
pub mod prober;
pub mod stats;
