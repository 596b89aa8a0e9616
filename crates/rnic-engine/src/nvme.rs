//! NVMe on a queue pair: its requests are commands, and the peer's namespace is registered memory there.
//!
//! A queue pair on Falcon may have NVMe as its upper layer instead of RDMA, and be one of two ends
//! ([`crate::NvmeRole`]): an initiator, whose Reads and Writes go to a namespace, or a target in front of one.
//! Everything else of it is that of every queue pair: states, send queue, completions, memory, credits, pacing, its
//! place in the NIC's rings; so is what it costs its neighbours (F-35). Units, tags and statuses are `rnic-nvme`'s.
//!
//! ```text
//!   nvme/end.rs     commands into units, completions; units of a target
//!   nvme/memory.rs  where bytes lie: scatter/gather lists, namespaces
//!   namespace.rs    roles, namespaces of a NIC, and the devices behind them
//! ```
//!
//! | NVMe | here |
//! |---|---|
//! | command | a Read or Write in the send queue; its remote address is the byte of the namespace where it begins |
//! | completion | in the send completion queue, each as it comes: commands have no order |
//! | failure | a [`crate::WcStatus`], and [`crate::Completion::nvme_failure`]; the queue pair lives |
//! | lost connection | [`crate::WcStatus`] alone, as with RDMA; the queue pair has failed |
//! | namespace | a registered range of memory, and a device that says when it has read or written |
//!
//! A command that fails ends alone, as with `errors=complete-in-error`. A connection that is lost ends the queue pair,
//! as with RDMA: the oldest command that has not ended by then has the reason, [`crate::WcStatus::RetryExceeded`],
//! those behind it are flushed, wherever each of them was, and none has a failure of NVMe's. So a completion with such
//! a failure says that the queue pair lives. Both ends must be NVMe's: an RDMA queue pair refuses commands by name and
//! lives.

mod end;
mod memory;

pub(crate) use end::NvmeEnd;

/// Units under way on a connection, at most: both ends have agreed on that. 128 commands of 16 KB, which fill the queue
/// of a device four times.
const UNITS: u32 = 512;
