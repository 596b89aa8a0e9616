//! One scenario, simulated and on sockets: each engine decides the same from the same calls, whichever driver made it.
//!
//! [`scenario`] runs the same work on the fabric and on sockets: two queue pairs with a rate limit each, over a network
//! that loses and reorders packets. [`recording`] records what the engines are called with, by the hook that engines
//! have for it ([`rnic_engine::Observer`]), and what they decide. [`replay`] passes recorded calls to the engine of
//! another driver and compares its decisions, one by one. [`figures`] is for what may differ: times.

pub mod figures;
pub mod recording;
pub mod replay;
pub mod scenario;
