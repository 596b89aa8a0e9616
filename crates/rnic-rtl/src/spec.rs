//! Specifications of circuits that are written by hand: the circuit's state and its function, written plainly.
//!
//! A specification stands between the engine, whose numbers have 64 bits and whose state is another, and the circuit,
//! whose structure is chosen for its gates. Engine and specification must send the same packets, specification and
//! circuit must have equal outputs and equal next states.

pub mod falcon;
pub mod fasr;
pub mod irn;
