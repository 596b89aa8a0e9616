//! What callers can do wrong, and what the world can refuse them.

use std::io;
use std::net::SocketAddr;

use rnic_base::Duration;
use rnic_engine::{MemoryError, ModifyError, ResourceError};
use rnic_policy::ProfileError;
use rnic_wire::cm::{RejectReason, ServiceId};

/// Why a NIC could not be opened, or does not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum NicError {
    /// Another socket has the address.
    #[error("{0} is in use")]
    AddressInUse(SocketAddr),
    /// No interface of this machine has the address.
    #[error("{0} is not an address of this machine")]
    AddressNotAvailable(SocketAddr),
    /// Opening or binding needs more rights.
    #[error("not allowed to use {0}")]
    NotAllowed(SocketAddr),
    /// Every port that a NIC of many could have for its own seems to be in use.
    #[error("no UDP port is free for another device on this machine: each process that opens one needs one")]
    NoPort,
    /// A setting has a value that it cannot have.
    #[error("{what} is `{found}`, expected {expected}")]
    Setting {
        /// The setting.
        what: &'static str,
        /// Its value.
        found: String,
        /// What would do.
        expected: &'static str,
    },
    /// Memory could not be had or registered.
    #[error("cannot register {bytes} bytes: {reason}")]
    Memory {
        /// How many were asked for.
        bytes: usize,
        /// Why not.
        reason: String,
    },
    /// The engine refused to register memory.
    #[error(transparent)]
    Registration(#[from] MemoryError),
    /// The engine refused to make something.
    #[error(transparent)]
    Resource(#[from] ResourceError),
    /// More peers than a NIC keeps.
    #[error("too many peers")]
    TooManyPeers,
    /// This NIC's peers are whole hosts ([`crate::NicConfig::shared`]), or the other way round.
    #[error("a NIC that {0}")]
    Mode(&'static str),
    /// The address is of the other IP version.
    #[error("{0} is not of the IP version of this NIC")]
    IpVersion(SocketAddr),
    /// The path carries packets that are too small to be of use.
    #[error("{to}: the path carries {mtu_bytes} bytes a packet, too few")]
    PathTooNarrow {
        /// Who was looked for.
        to: std::net::IpAddr,
        /// IP packet size.
        mtu_bytes: u32,
    },
    /// The system failed.
    #[error("{doing}: {error}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// What the system said.
        error: io::Error,
    },
}

impl NicError {
    pub(crate) fn opening(bind: SocketAddr, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::AddrInUse => Self::AddressInUse(bind),
            io::ErrorKind::AddrNotAvailable => Self::AddressNotAvailable(bind),
            io::ErrorKind::PermissionDenied => Self::NotAllowed(bind),
            _ => Self::System { doing: "opening the socket", error },
        }
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nobody is there, or nobody listens to the service.
    #[error("{to}: connection refused")]
    Refused {
        /// Who was asked.
        to: SocketAddr,
    },
    /// The other side said no.
    #[error("{to}: rejected: {reason}{}", detail_of(detail))]
    Rejected {
        /// Who was asked.
        to: SocketAddr,
        /// Why, as a code of the InfiniBand specification.
        reason: RejectReason,
        /// Why, in words, when the other side gave any.
        detail: String,
    },
    /// No answer.
    #[error("{to}: no answer within {after}")]
    TimedOut {
        /// Who was asked.
        to: SocketAddr,
        /// For how long.
        after: Duration,
    },
    /// There is no way to the address.
    #[error("{to} is unreachable: {reason}")]
    Unreachable {
        /// Who was asked.
        to: SocketAddr,
        /// What the kernel says.
        reason: String,
    },
    /// The path carries packets that are too small to be of use.
    #[error("{to}: the path carries {mtu_bytes} bytes a packet, too few")]
    PathTooNarrow {
        /// Who was asked.
        to: SocketAddr,
        /// IP packet size.
        mtu_bytes: u32,
    },
    /// No transport that this side asked for is one that the other side has.
    #[error("{to} speaks none of our transports; it has {theirs}")]
    NoCommonTransport {
        /// Who was asked.
        to: SocketAddr,
        /// What it has.
        theirs: String,
    },
    /// Both sides speak Falcon, and not the same.
    #[error("{to} speaks {theirs}; this side has {ours}{hint}")]
    OtherFalcon {
        /// Who was asked, or has asked.
        to: SocketAddr,
        /// What it has.
        theirs: String,
        /// What this side has.
        ours: String,
        /// See [`crate::cm::falcon_key_hint`].
        hint: &'static str,
    },
    /// More connections than a NIC keeps.
    #[error("too many connections")]
    TooMany,
    /// The connection does not exist, or is past this step.
    #[error("no connection that is waiting for this")]
    Gone,
    /// The private data do not fit the message.
    #[error("{given} bytes of private data, there is room for {room}")]
    PrivateData {
        /// How many there are.
        given: usize,
        /// How many fit.
        room: usize,
    },
    /// A transport cannot be made of the profile.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The NIC refused.
    #[error(transparent)]
    Nic(#[from] NicError),
    /// The queue pair refused.
    #[error(transparent)]
    QueuePair(#[from] ModifyError),
}

fn detail_of(detail: &str) -> String {
    if detail.is_empty() { String::new() } else { format!(": {detail}") }
}

impl From<ResourceError> for ConnectError {
    fn from(error: ResourceError) -> Self {
        Self::Nic(error.into())
    }
}

/// Why nobody can listen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ListenError {
    /// Somebody does already.
    #[error("service {0:?} is in use")]
    ServiceInUse(ServiceId),
    /// More services than a NIC keeps.
    #[error("too many services")]
    TooMany,
}
