//! Delivery windows: the shared mechanism for reliable delivery.
//!
//! A window is a sequence space with a sending end and a receiving end. A queue pair has one or two in each
//! direction: with RoCE, requests and responses share one; with IRN, each has its own (sPSN, rPSN). Windows do not
//! depend on the meaning of the packets.

mod limit;
pub(crate) mod pool;
pub(crate) mod receive;
pub(crate) mod send;
mod timing;

pub(crate) use pool::{Bits, LaneId, Lost, Pools, RxClass, SrPointer};
pub(crate) use receive::{Arrival, ReceiveWindow};
pub(crate) use send::{SendWindow, TimeoutVerdict};
pub(crate) use timing::TimeoutConditions;
