//! Two or more NICs with transaction layers over a bad network, without the delivery layer: the least that delivers.
//!
//! A window is a bound on packets not yet acknowledged. Packets, acknowledgements and refusals may be lost, doubled and
//! overtake each other. Everything random comes from one seeded stream, and everything that can happen next is drawn
//! from it, so a run is a random schedule.

#![allow(dead_code, reason = "each test uses its part")]

pub mod net;
pub mod ulp;
