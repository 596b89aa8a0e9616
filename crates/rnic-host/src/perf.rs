//! Measuring a connection between two NICs: the library behind `rnic perf`.
//!
//! One end [serves](serve()), the other [measures](measure()). They agree on a plan over a connection of their own
//! (JSON in Sends), then make as many queue pairs as the plan says. What is counted at both ends comes together in one
//! [`PerfReport`]. NICs with a secret ([`crate::NicConfig::protection`]) talk and measure over Falcon with that secret
//! alone; those with real RoCEv2 peers ([`crate::NicConfig::real_roce_peers`]) over RoCEv2 as it is.
//!
//! **Throughput** keeps `depth` operations in flight on each queue pair. Without verification all of a queue pair's
//! operations use one buffer, as perftest has it; with it each operation in flight has its own, is filled with a
//! pattern that belongs to it alone, and is compared byte by byte where it arrives (Writes carry an immediate then, so
//! that the far end knows).
//!
//! **NVMe** goes to a namespace of the end that serves, which is memory there. Verification of Writes reads each one
//! back: nothing at a target hears when a command is done.
//!
//! **Latency** is a ping-pong of Sends with one in flight: both sides Send, and half a round trip is reported, as
//! `ib_send_lat` does. With one operation of another kind in flight, the time from posting to completion is reported,
//! whole.

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

/// The service that measurements are served on, when nobody says otherwise.
pub const PERF_PORT: u16 = 18_515;

/// What is repeated.
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
    /// Read of blocks of the far end's namespace, over NVMe.
    NvmeRead,
    /// Write of such blocks.
    NvmeWrite,
}

impl Op {
    /// Every one.
    pub const ALL: [Self; 7] =
        [Self::Write, Self::Send, Self::Read, Self::Atomic, Self::CompareSwap, Self::NvmeRead, Self::NvmeWrite];

    /// Its name in reports and on command lines.
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

    /// Returns whether it is a command of NVMe.
    pub const fn is_nvme(self) -> bool {
        matches!(self, Self::NvmeRead | Self::NvmeWrite)
    }

    /// Whether it works on eight bytes, whatever the size asked for.
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::Atomic | Self::CompareSwap)
    }
}

/// How long to measure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Length {
    /// So many operations on each queue pair.
    Count(u64),
    /// As many as complete in this time.
    Time(Duration),
}

/// A measurement.
#[derive(Clone, Debug)]
pub struct PerfConfig {
    /// The service of the far end.
    pub port: u16,
    /// What is repeated.
    pub op: Op,
    /// Bytes of each operation; atomics have eight.
    pub size_bytes: u32,
    /// Queue pairs.
    pub qps: u32,
    /// Operations in flight on each.
    pub depth: u32,
    /// How long.
    pub length: Length,
    /// Compare every byte that arrives.
    pub verify: bool,
    /// Ping-pong: for Sends with one in flight.
    pub ping_pong: bool,
    /// Transport, by name.
    pub transport: String,
    /// Its options; what is not given has this room's defaults ([`crate::host_defaults`]).
    pub options: Vec<(String, String)>,
    /// What happens to packets on the way, in both directions.
    pub impairment: Impairment,
    /// How long to ask for connections, and how long a silent far end is believed to be there.
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
    /// Bytes that an operation really has.
    pub fn operation_bytes(&self) -> u32 {
        if self.op.is_atomic() { 8 } else { self.size_bytes }
    }
}

/// Why a measurement came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum PerfError {
    /// There is no connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The NIC refused something.
    #[error(transparent)]
    Nic(#[from] NicError),
    /// The transport does not exist or cannot be.
    #[error(transparent)]
    Transport(#[from] rnic_transports::SelectError),
    /// A NIC with a secret would send in clear.
    #[error("packets of {transport} are not encrypted, those of falcon are: this end has a key")]
    Unprotected {
        /// The transport that was asked for.
        transport: &'static str,
    },
    /// Adapters of other makes would not understand it.
    #[error("adapters of other makes speak {ROCE_TRANSPORT}, not {transport}")]
    Foreign {
        /// The transport that was asked for.
        transport: String,
    },
    /// The plan makes no sense.
    #[error("{what} is {given}, expected {expected}")]
    Plan {
        /// What of it.
        what: &'static str,
        /// What it is.
        given: u64,
        /// What would do.
        expected: &'static str,
    },
    /// The transport promises no order, and it takes some.
    #[error("{what} needs order beyond {unless}: not with ordering=unordered, but with ordering=weak")]
    NeedsOrder {
        /// What does.
        what: &'static str,
        /// What would do without.
        unless: String,
    },
    /// The transport carries no NVMe.
    #[error("{op} is NVMe, which falcon carries and {transport} does not: take falcon")]
    NvmeNeedsFalcon {
        /// The operation.
        op: &'static str,
        /// The transport that was asked for.
        transport: &'static str,
    },
    /// The NIC does not take an operation.
    #[error("an operation cannot be posted: {0}")]
    Post(#[from] PostError),
    /// The far end does not want to.
    #[error("{peer} refuses: {reason}")]
    Refused {
        /// Who.
        peer: SocketAddr,
        /// Why.
        reason: String,
    },
    /// The far end says what it should not, or is not one of ours.
    #[error("{peer} does not keep to the protocol: {what}")]
    Protocol {
        /// Who.
        peer: SocketAddr,
        /// What it did.
        what: String,
    },
    /// The far end ended the session.
    #[error("{peer} has ended the session")]
    Ended {
        /// Who.
        peer: SocketAddr,
    },
    /// The far end's process is there no more, says its host.
    #[error("{peer} is gone: nobody has its port any more, so its program was killed or has ended without a word")]
    Gone {
        /// Who.
        peer: SocketAddr,
    },
    /// Nothing happened for too long.
    #[error("{peer} has been silent for {after}")]
    Silent {
        /// Who.
        peer: SocketAddr,
        /// For how long.
        after: Duration,
    },
    /// An operation failed.
    #[error("{peer}: an operation ended with {status:?}")]
    Operation {
        /// With whom.
        peer: SocketAddr,
        /// The status of its completion.
        status: WcStatus,
    },
    /// A command of NVMe failed.
    #[error("{peer}: an NVMe command failed: {failure}")]
    Command {
        /// With whom.
        peer: SocketAddr,
        /// How.
        failure: NvmeFailure,
    },
    /// Nobody can listen.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A file could not be read.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: String,
        /// What the system says.
        error: std::io::Error,
    },
}
