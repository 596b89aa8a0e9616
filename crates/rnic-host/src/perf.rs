//! Performance measurement of a connection between two NICs: the library behind `rnic perf`.
//!
//! One end [serves](serve()), the other [measures](measure()). They agree on a plan over a separate control connection
//! (JSON in Sends), then create as many queue pairs as the plan requires. The counts of both ends are combined in one
//! [`PerfReport`]. NICs with a secret ([`crate::NicConfig::protection`]) use only Falcon with that secret for control
//! and measurement; those with real RoCEv2 peers ([`crate::NicConfig::real_roce_peers`]) use standard RoCEv2.
//!
//! **Throughput** keeps `depth` operations in flight on each queue pair. Without verification all of a queue pair's
//! operations use one buffer, as in perftest; with it each operation in flight has its own buffer, is filled with a
//! pattern that is unique to it, and is compared byte by byte where it arrives (Writes then carry an immediate, so that
//! the remote end is notified).
//!
//! **NVMe** commands access a namespace at the serving end, which is stored in memory there. Verification of Writes
//! reads each one back, because the program at a target is not notified when a command completes.
//!
//! **Latency** is a ping-pong of Sends with one in flight: both sides Send, and half a round trip is reported, as
//! `ib_send_lat` does. With one operation of another type in flight, the complete time from posting to completion is
//! reported.

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
mod waiting;

use std::net::SocketAddr;

use rnic_base::Duration;
use rnic_engine::{NvmeFailure, PostError, WcStatus};
use serde::{Deserialize, Serialize};

use crate::defaults::ROCE_TRANSPORT;
use crate::error::{ConnectError, ListenError, NicError};
use crate::impair::Impairment;

pub use client::{check, measure};
pub use latency::Latency;
pub use report::{FlowReport, LatencyKind, LatencyUs, PerfReport};
pub use serve::{Served, serve};
pub use setup::ServeConfig;

pub(crate) use client::{Session, Terms, Wanted, sent};
pub(crate) use control::Restless;
pub(crate) use plan::{Task, TransferTask};

/// Default service that measurements are served on.
pub const PERF_PORT: u16 = 18_515;

/// The operation that is repeated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// RDMA Write.
    Write,
    /// Send into a posted receive.
    Send,
    /// RDMA Read.
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
    /// All operations.
    pub const ALL: [Self; 7] =
        [Self::Write, Self::Send, Self::Read, Self::Atomic, Self::CompareSwap, Self::NvmeRead, Self::NvmeWrite];

    /// Returns its name in reports and on command lines.
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

    /// Returns whether it is an NVMe command.
    pub const fn is_nvme(self) -> bool {
        matches!(self, Self::NvmeRead | Self::NvmeWrite)
    }

    /// Returns whether it works on eight bytes, whatever the requested size.
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::Atomic | Self::CompareSwap)
    }
}

/// Duration of a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Length {
    /// This number of operations on each queue pair.
    Count(u64),
    /// All operations that complete in this time.
    Time(Duration),
}

/// Settings of a measurement.
#[derive(Clone, Debug)]
pub struct PerfConfig {
    /// Service of the remote end.
    pub port: u16,
    /// The operation that is repeated.
    pub op: Op,
    /// Bytes of each operation; atomics have eight.
    pub size_bytes: u32,
    /// Number of queue pairs.
    pub qps: u32,
    /// Operations in flight on each queue pair.
    pub depth: u32,
    /// Duration.
    pub length: Length,
    /// True to compare every byte that arrives.
    pub verify: bool,
    /// True for a ping-pong: Sends with one in flight.
    pub ping_pong: bool,
    /// Name of the transport.
    pub transport: String,
    /// Its options; an option that is not given has this crate's default ([`crate::host_defaults`]).
    pub options: Vec<(String, String)>,
    /// Impairment of packets, in both directions.
    pub impairment: Impairment,
    /// Time limit for connection setup, and the base of the time after which a silent remote end counts as failed.
    pub timeout: Duration,
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
            ping_pong: false,
            transport: "irn".to_owned(),
            options: Vec::new(),
            impairment: Impairment::default(),
            timeout: Duration::from_secs(5),
        }
    }
}

impl PerfConfig {
    /// Returns the actual number of bytes of an operation.
    pub fn operation_bytes(&self) -> u32 {
        if self.op.is_atomic() { 8 } else { self.size_bytes }
    }
}

/// Reason why a measurement failed.
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
    /// A NIC with a secret would send unencrypted packets.
    #[error("packets of {transport} are not encrypted, those of falcon are: this end has a key")]
    Unprotected {
        /// The requested transport.
        transport: &'static str,
    },
    /// Adapters of other makes do not support the transport.
    #[error("adapters of other makes speak {ROCE_TRANSPORT}, not {transport}")]
    Foreign {
        /// The requested transport.
        transport: String,
    },
    /// The plan is invalid.
    #[error("{what} is {given}, expected {expected}")]
    Plan {
        /// The quantity that is out of range.
        what: &'static str,
        /// Its value.
        given: u64,
        /// The permitted values.
        expected: &'static str,
    },
    /// The operation needs an order that the transport does not guarantee.
    #[error("{what} needs order beyond {unless}: not with ordering=unordered, but with ordering=weak")]
    NeedsOrder {
        /// The operation that needs order.
        what: &'static str,
        /// The limit up to which it works without order.
        unless: String,
    },
    /// The transport does not carry NVMe.
    #[error("{op} is NVMe, which falcon carries and {transport} does not: take falcon")]
    NvmeNeedsFalcon {
        /// The operation.
        op: &'static str,
        /// The requested transport.
        transport: &'static str,
    },
    /// The NIC does not accept an operation.
    #[error("an operation cannot be posted: {0}")]
    Post(#[from] PostError),
    /// The remote end refused the session.
    #[error("{peer} refuses: {reason}")]
    Refused {
        /// Address of the remote end.
        peer: SocketAddr,
        /// Its reason.
        reason: String,
    },
    /// The remote end violated the protocol, or is not an `rnic perf` server.
    #[error("{peer} does not keep to the protocol: {what}")]
    Protocol {
        /// Address of the remote end.
        peer: SocketAddr,
        /// Description of the violation.
        what: String,
    },
    /// The remote end ended the session.
    #[error("{peer} has ended the session")]
    Ended {
        /// Address of the remote end.
        peer: SocketAddr,
    },
    /// The remote end's process no longer exists, as its host reports.
    #[error("{peer} is gone: no process has its port any more, so its program was killed or has exited")]
    Gone {
        /// Address of the remote end.
        peer: SocketAddr,
    },
    /// No packet has arrived for too long.
    #[error("{peer} has been silent for {after}")]
    Silent {
        /// Address of the remote end.
        peer: SocketAddr,
        /// Time of silence.
        after: Duration,
    },
    /// An operation failed.
    #[error("{peer}: an operation ended with {status:?}")]
    Operation {
        /// Address of the remote end.
        peer: SocketAddr,
        /// The status of its completion.
        status: WcStatus,
    },
    /// An NVMe command failed.
    #[error("{peer}: an NVMe command failed: {failure}")]
    Command {
        /// Address of the remote end.
        peer: SocketAddr,
        /// Reason of the failure.
        failure: NvmeFailure,
    },
    /// The service could not be offered.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A file could not be read.
    #[error("{path}: {error}")]
    File {
        /// Path of the file.
        path: String,
        /// Error that the system reported.
        error: std::io::Error,
    },
}
