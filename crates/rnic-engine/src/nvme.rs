//! NVMe over a queue pair: work requests are NVMe commands, and the namespace is registered memory of the peer.
//!
//! A queue pair on Falcon may have NVMe as its upper layer instead of RDMA, in one of two roles ([`crate::NvmeRole`]):
//! an initiator, whose Reads and Writes address a namespace, or a target that serves one. Everything else is as for
//! every queue pair: states, send queue, completions, memory, credits, pacing, its position in the NIC's rings, and its
//! use of shared resources (Falcon mechanism F-35). Units, tags and statuses are implemented in `rnic-nvme`.
//!
//! ```text
//!   nvme/end.rs     initiator: commands to units, completions; target: units to device operations
//!   nvme/memory.rs  data location: scatter/gather lists, namespaces
//!   namespace.rs    roles, namespaces of a NIC, and the devices behind them
//! ```
//!
//! | NVMe | here |
//! |---|---|
//! | command | a Read or Write in the send queue; its remote address is the byte offset in the namespace |
//! | completion | in the send completion queue, in any order: commands are not ordered |
//! | failure | a [`crate::WcStatus`], and [`crate::Completion::nvme_failure`]; the queue pair remains usable |
//! | lost connection | [`crate::WcStatus`] alone, as with RDMA; the queue pair has failed |
//! | namespace | a registered range of memory, and a device that reports when it has read or written |
//!
//! A failed command does not affect others, as with `errors=complete-in-error`. The loss of the connection fails the
//! queue pair, as with RDMA: the oldest command not finished by then completes with the reason,
//! [`crate::WcStatus::RetryExceeded`], those behind it are flushed, regardless of their progress, and none reports an
//! NVMe failure. A completion with an NVMe failure therefore means that the queue pair is still usable. Both ends must
//! be NVMe queue pairs: an RDMA queue pair refuses commands with an explicit error and remains usable.

mod end;
mod memory;

pub(crate) use end::NvmeEnd;

/// Maximum number of units (4 KiB parts of commands) in flight on a connection, fixed at both ends: 128 commands of 16
/// KB, which fill the queue of a device four times.
const UNITS_IN_FLIGHT_MAX: u32 = 512;
