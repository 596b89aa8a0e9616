//! Performance measurement of a connection between two NICs: the library behind `rnic perf`.
//!
//! One end [serves](serve()) and the other [measures](measure()). They agree on a plan over a separate control
//! connection (JSON in Sends), then create as many queue pairs as the plan requires. The results of both ends are
//! combined in one [`PerfReport`]. NICs with a secret ([`crate::NicConfig::protection`]) use only Falcon with that
//! secret for control and measurement; NICs with real RoCEv2 peers ([`crate::NicConfig::real_roce_peers`]) use
//! standard RoCEv2.
//!
//! **Throughput** keeps `depth` operations in flight on each queue pair. Without verification all operations of a
//! queue pair use the same buffer, as in perftest. With verification each operation in flight has its own buffer,
//! which is filled with a pattern that is unique to the operation and compared byte by byte at the receiving end
//! (Writes then carry an immediate, so that the remote end is notified).
//!
//! **Streams** ([`crate::stream`]) are measured as they are: operations are writes, and their latency is the time until
//! all their bytes are delivered, or half of the time until they have been returned.
//!
//! **NVMe** commands access a namespace at the server, which is stored in the memory of that end. To verify NVMe
//! writes, each one is read back, because the program at a target is not notified when a command completes.
//!
//! **Latency** is a ping-pong of Sends with one in flight: both sides post Sends, and half of the round-trip time is
//! reported, as by `ib_send_lat`. For other operations with one in flight, the complete time from posting to
//! completion is reported.

mod client;
mod control;
mod latency;
mod nvme;
mod order;
mod pattern;
mod peers;
mod plan;
mod protection;
mod report;
mod run;
mod seen;
mod serve;
mod setup;
mod stream;
mod waiting;

use std::net::SocketAddr;

use rnic_base::Duration;
use rnic_engine::{NvmeFailure, PostError, WcStatus};
use serde::{Deserialize, Serialize};

use crate::defaults::ROCE_TRANSPORT;
use crate::error::{ConnectError, ListenError, NicError};
use crate::impair::Impairment;
use crate::nic::Nic;
use crate::stream::StreamError;

pub use latency::Latency;
pub use report::{FlowReport, LatencyKind, LatencyUs, PerfReport};
pub use run::WARM_UP_MAX;
pub use serve::{Served, serve};
pub use setup::ServeConfig;

pub(crate) use client::{Session, Terms, Wanted, sent};
pub(crate) use control::IdleBackoff;
pub(crate) use plan::{Task, TransferTask};

/// Default service on which measurements are served.
pub const PERF_PORT: u16 = 18_515;

/// The operation that is repeated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// RDMA Writes.
    Write,
    /// Send into a posted receive.
    Send,
    /// RDMA Reads.
    Read,
    /// Fetch-and-add on eight bytes.
    Atomic,
    /// Compare-and-swap on eight bytes.
    CompareSwap,
    /// NVMe read of blocks of the remote end's namespace.
    NvmeRead,
    /// NVMe write of blocks of the remote end's namespace.
    NvmeWrite,
}

impl Op {
    /// All operations that can be measured.
    pub const ALL: [Self; 7] =
        [Self::Write, Self::Send, Self::Read, Self::Atomic, Self::CompareSwap, Self::NvmeRead, Self::NvmeWrite];

    /// Returns the name of the operation in reports and on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Send => "send",
            Self::Read => "read",
            Self::Atomic => "atomic",
            Self::CompareSwap => "compare-swap",
            Self::NvmeRead => "nvme-read",
            Self::NvmeWrite => "nvme-write",
        }
    }

    /// Returns whether the operation is an NVMe command.
    pub const fn is_nvme(self) -> bool {
        matches!(self, Self::NvmeRead | Self::NvmeWrite)
    }

    /// Returns whether the operation accesses eight bytes, regardless of the requested size.
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::Atomic | Self::CompareSwap)
    }
}

/// Duration of a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Length {
    /// Each queue pair executes this number of operations.
    Count(u64),
    /// All operations that complete in this time.
    Time(Duration),
}

/// Settings of a measurement.
#[derive(Clone, Debug)]
pub struct PerfConfig {
    /// Service on which the remote end serves measurements.
    pub port: u16,
    /// The operation that is repeated.
    pub op: Op,
    /// Bytes of each operation; atomics always have eight.
    pub size_bytes: u32,
    /// Number of queue pairs.
    pub qps: u32,
    /// Number of operations in flight on each queue pair.
    pub depth: u32,
    /// Duration of the measurement.
    pub length: Length,
    /// True to verify every byte that arrives.
    pub verify: bool,
    /// True to measure a stream of bytes ([`crate::stream`]) instead of `op`: operations are writes to it.
    pub stream: bool,
    /// True for a ping-pong: Sends, or writes to a stream, in both directions with one in flight.
    pub ping_pong: bool,
    /// Name of the transport.
    pub transport: String,
    /// Options of the transport; an option that is not given has this crate's default ([`crate::host_defaults`]).
    pub options: Vec<(String, String)>,
    /// Impairment of packets, in both directions.
    pub impairment: Impairment,
    /// Time limit for connection setup. The time after which a silent remote end counts as failed is a multiple of
    /// it.
    pub timeout: Duration,
    /// True to sleep while no packet arrives, instead of polling for some time first: latencies are longer by the time
    /// of waking up, and the cores are left to other processes. The remote end has a setting of its own.
    pub sleeps_at_once: bool,
}

impl Default for PerfConfig {
    fn default() -> Self {
        Self {
            port: PERF_PORT,
            op: Op::Write,
            size_bytes: 64 << 10,
            qps: 1,
            depth: 32,
            length: Length::Time(Duration::from_secs(2)),
            verify: false,
            stream: false,
            ping_pong: false,
            transport: "irn".to_owned(),
            options: Vec::new(),
            impairment: Impairment::default(),
            timeout: Duration::from_secs(5),
            sleeps_at_once: false,
        }
    }
}

impl PerfConfig {
    /// Returns the actual number of bytes of an operation.
    pub fn operation_bytes(&self) -> u32 {
        if self.op.is_atomic() { 8 } else { self.size_bytes }
    }
}

/// Measures a connection to the NIC at `to`, which [serves](serve()).
///
/// # Errors
/// When the session cannot be set up, an operation fails, or no more packets arrive from the remote end.
pub fn measure(nic: &mut Nic, to: SocketAddr, config: &PerfConfig) -> Result<PerfReport, PerfError> {
    if config.stream { stream::measure(nic, to, config) } else { client::measure(nic, to, config) }
}

/// Checks whether `config` can be measured with packets of at most `mtu_bytes`, as far as this end can determine it
/// without the remote end.
///
/// # Errors
/// The setting that is invalid or cannot work.
pub fn check(config: &PerfConfig, mtu_bytes: u32) -> Result<(), PerfError> {
    if config.stream { stream::check(config) } else { client::check(config, mtu_bytes) }
}

/// Reason that a measurement failed.
#[derive(Debug, thiserror::Error)]
pub enum PerfError {
    /// The connection could not be established.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The NIC refused a call.
    #[error(transparent)]
    Nic(#[from] NicError),
    /// The transport does not exist or its options are invalid.
    #[error(transparent)]
    Transport(#[from] rnic_transports::SelectError),
    /// The NIC has a secret, and the requested transport would send unencrypted packets.
    #[error(
        "transport {transport} does not encrypt packets, but this end has a key; use the transport falcon, or remove \
         the key"
    )]
    Unprotected {
        /// Name of the requested transport.
        transport: &'static str,
    },
    /// Adapters of other vendors do not support the transport.
    #[error("RoCEv2 adapters of other vendors support only the transport {ROCE_TRANSPORT}, not {transport}")]
    Foreign {
        /// Name of the requested transport.
        transport: String,
    },
    /// The plan is invalid.
    #[error("invalid {what}: {given}; expected {expected}")]
    Plan {
        /// The quantity that is out of range.
        what: &'static str,
        /// Value of the quantity.
        given: u64,
        /// The permitted values.
        expected: &'static str,
    },
    /// The operation needs ordering that the transport does not guarantee.
    #[error(
        "{what} with more than {unless} requires order, which ordering=unordered does not provide; use ordering=weak"
    )]
    NeedsOrder {
        /// The operation that needs ordering.
        what: &'static str,
        /// The limit up to which the operation works without ordering.
        unless: String,
    },
    /// The transport does not carry NVMe.
    #[error(
        "operation {op} is an NVMe command, which transport {transport} does not support; use the transport falcon"
    )]
    NvmeNeedsFalcon {
        /// Name of the operation.
        op: &'static str,
        /// Name of the requested transport.
        transport: &'static str,
    },
    /// The NIC does not accept a posted operation.
    #[error("cannot post an operation: {0}")]
    Post(#[from] PostError),
    /// The remote end refused the session.
    #[error("{peer} refused the session: {reason}")]
    Refused {
        /// Address of the remote end.
        peer: SocketAddr,
        /// The reason given by the remote end.
        reason: String,
    },
    /// The remote end violated the protocol, or is not an `rnic perf` server.
    #[error("{peer} violated the protocol of rnic perf: {what}")]
    Protocol {
        /// Address of the remote end.
        peer: SocketAddr,
        /// Description of the violation.
        what: String,
    },
    /// The remote end ended the session.
    #[error("{peer} ended the session")]
    Ended {
        /// Address of the remote end.
        peer: SocketAddr,
    },
    /// The process at the remote end no longer exists, as reported by its host.
    #[error("the program at {peer} has exited or was killed: no process uses its port any more")]
    Gone {
        /// Address of the remote end.
        peer: SocketAddr,
    },
    /// No packet has arrived for longer than the limit.
    #[error("no packet has arrived from {peer} for {after}")]
    Silent {
        /// Address of the remote end.
        peer: SocketAddr,
        /// Time since the last packet.
        after: Duration,
    },
    /// An operation failed.
    #[error("an operation with {peer} completed with status {status:?}")]
    Operation {
        /// Address of the remote end.
        peer: SocketAddr,
        /// The status of its completion.
        status: WcStatus,
    },
    /// An NVMe command failed.
    #[error("an NVMe command to {peer} failed: {failure}")]
    Command {
        /// Address of the remote end.
        peer: SocketAddr,
        /// Reason of the failure.
        failure: NvmeFailure,
    },
    /// The stream could not be made, or ended early.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The service could not be offered.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A file could not be read.
    #[error("cannot read {path}: {error}")]
    File {
        /// Path of the file.
        path: String,
        /// Error reported by the system.
        error: std::io::Error,
    },
}
