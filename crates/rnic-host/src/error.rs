//! Errors: invalid calls, and failures of the system or the network.

use std::io;
use std::net::SocketAddr;

use rnic_base::Duration;
use rnic_engine::{MemoryError, ModifyError, ResourceError};
use rnic_policy::ProfileError;
use rnic_wire::cm::{RejectReason, ServiceId};

/// Reason that a NIC could not be opened, or cannot perform a call.
#[derive(Debug, thiserror::Error)]
pub enum NicError {
    /// Another socket has the address.
    #[error("{0} is in use")]
    AddressInUse(SocketAddr),
    /// No interface of this machine has the address.
    #[error("{0} is not an address of this machine")]
    AddressNotAvailable(SocketAddr),
    /// Opening or binding needs more privileges.
    #[error("not allowed to use {0}")]
    NotAllowed(SocketAddr),
    /// Every port that a NIC on a shared machine could use seems to be in use.
    #[error("no UDP port is free for another device on this machine: each process that opens one needs one")]
    NoPort,
    /// A setting has an invalid value.
    #[error("{what} is `{found}`, expected {expected}")]
    Setting {
        /// The setting.
        what: &'static str,
        /// Its value.
        found: String,
        /// Accepted values.
        expected: &'static str,
    },
    /// Memory could not be allocated or registered.
    #[error("cannot register {bytes} bytes: {reason}")]
    Memory {
        /// Number of requested bytes.
        bytes: usize,
        /// The reason.
        reason: String,
    },
    /// The engine refused to register memory.
    #[error(transparent)]
    Registration(#[from] MemoryError),
    /// The engine refused to create a resource.
    #[error(transparent)]
    Resource(#[from] ResourceError),
    /// The NIC has no space for more peers.
    #[error("too many peers")]
    TooManyPeers,
    /// The call is for the other mode: this NIC's peers are entire hosts ([`crate::NicConfig::shared`]), or it has
    /// single peers and the call needs hosts.
    #[error("a NIC that {0}")]
    Mode(&'static str),
    /// The address is of the other IP version.
    #[error("{0} is not of the IP version of this NIC")]
    IpVersion(SocketAddr),
    /// The MTU of the path is too small.
    #[error("{to}: the path carries {mtu_bytes} bytes a packet, too few")]
    PathTooNarrow {
        /// Destination of the path.
        to: std::net::IpAddr,
        /// Largest IP packet, in bytes.
        mtu_bytes: u32,
    },
    /// A system call failed.
    #[error("{doing}: {error}")]
    System {
        /// The attempted operation.
        doing: &'static str,
        /// Error of the system.
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

/// Reason that a connection could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No host is at the address, or no program listens to the service.
    #[error("{to}: connection refused")]
    Refused {
        /// Requested address.
        to: SocketAddr,
    },
    /// The remote end rejected the request.
    #[error("{to}: rejected: {reason}{}", detail_of(detail))]
    Rejected {
        /// Requested address.
        to: SocketAddr,
        /// The reason, as a code of the InfiniBand specification.
        reason: RejectReason,
        /// The reason as text, when the remote end sent any.
        detail: String,
    },
    /// No response.
    #[error("{to}: no answer within {after}")]
    TimedOut {
        /// Requested address.
        to: SocketAddr,
        /// Time that was waited.
        after: Duration,
    },
    /// There is no route to the address.
    #[error("{to} is unreachable: {reason}")]
    Unreachable {
        /// Requested address.
        to: SocketAddr,
        /// Error of the kernel.
        reason: String,
    },
    /// The MTU of the path is too small.
    #[error("{to}: the path carries {mtu_bytes} bytes a packet, too few")]
    PathTooNarrow {
        /// Requested address.
        to: SocketAddr,
        /// Largest IP packet, in bytes.
        mtu_bytes: u32,
    },
    /// The remote end supports none of the transports that the local end requires.
    #[error("{to} speaks none of our transports; it has {theirs}")]
    NoCommonTransport {
        /// Requested address.
        to: SocketAddr,
        /// Transports of the remote end.
        theirs: String,
    },
    /// Both ends use Falcon, with different parameters.
    #[error("{to} speaks {theirs}; this side has {ours}{hint}")]
    OtherFalcon {
        /// Address of the remote end, whichever end made the request.
        to: SocketAddr,
        /// Parameters of the remote end.
        theirs: String,
        /// Parameters of the local end.
        ours: String,
        /// See [`crate::cm::falcon_key_hint`].
        hint: &'static str,
    },
    /// The NIC has no space for more connections.
    #[error("too many connections")]
    TooMany,
    /// The connection does not exist, or is in a later state.
    #[error("no connection that is waiting for this")]
    Gone,
    /// The private data do not fit the message.
    #[error("{given} bytes of private data, there is room for {room}")]
    PrivateData {
        /// Bytes of private data given.
        given: usize,
        /// Bytes that fit.
        room: usize,
    },
    /// The profile is not a valid transport.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The NIC returned an error.
    #[error(transparent)]
    Nic(#[from] NicError),
    /// Changing the queue pair returned an error.
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

/// Reason that listening failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ListenError {
    /// The service has a listener already.
    #[error("service {0:?} is in use")]
    ServiceInUse(ServiceId),
    /// The NIC has no space for more services.
    #[error("too many services")]
    TooMany,
}
