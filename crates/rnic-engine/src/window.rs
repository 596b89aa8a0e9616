//! Delivery windows: the shared mechanism for reliable delivery.
//!
//! A window is a sequence space with a sending end and a receiving end. A queue pair has one or two in each direction:
//! RoCE's requests and responses share theirs; IRN's have one each (sPSN, rPSN). The meaning of the packets in the
//! window is not known here.

mod limit;
pub(crate) mod pool;
pub(crate) mod receive;
pub(crate) mod send;
mod timing;

pub(crate) use pool::{Bits, LaneId, Lost, Pools, RxClass, SrPointer};
pub(crate) use receive::{Arrival, ReceiveWindow};
pub(crate) use send::{SendWindow, TimeoutVerdict};
pub(crate) use timing::Circumstances;
