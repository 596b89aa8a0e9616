//! Errors of this crate: invalid calls, and failures of the system or the network.

use std::io;
use std::net::SocketAddr;

use rnic_base::Duration;
use rnic_engine::{MemoryError, ModifyError, ResourceError};
use rnic_policy::ProfileError;
use rnic_wire::cm::{RejectReason, ServiceId};

use crate::share::ShareError;

/// Reason that a NIC could not be opened, or cannot perform a call.
#[derive(Debug, thiserror::Error)]
pub enum NicError {
    /// The address is already used by another socket.
    #[error("address {0} is in use by another socket")]
    AddressInUse(SocketAddr),
    /// No interface of this machine has the address.
    #[error("{0} is not an address of an interface of this machine")]
    AddressNotAvailable(SocketAddr),
    /// Opening or binding the socket requires more privileges.
    #[error("this process has no permission to use the address {0}")]
    NotAllowed(SocketAddr),
    /// Every port that a NIC on a shared machine could use seems to be in use.
    #[error("no UDP port is free for another device on this machine; each process that opens a device needs one")]
    NoPort,
    /// A setting has an invalid value.
    #[error("{what} is `{found}`; expected {expected}")]
    Setting {
        /// Name of the setting.
        what: &'static str,
        /// Value of the setting.
        found: String,
        /// Values that are accepted.
        expected: &'static str,
    },
    /// Memory could not be allocated or registered.
    #[error("cannot register {bytes} bytes of memory: {reason}")]
    Memory {
        /// Number of requested bytes.
        bytes: usize,
        /// Reason of the failure.
        reason: String,
    },
    /// The engine rejected the registration of memory.
    #[error(transparent)]
    Registration(#[from] MemoryError),
    /// The engine rejected the creation of a resource.
    #[error(transparent)]
    Resource(#[from] ResourceError),
    /// The NIC has no space for more peers.
    #[error("the NIC has reached its maximum number of peers; release one first")]
    TooManyPeers,
    /// The call is for a NIC in the other mode: its peers are hosts ([`crate::NicConfig::shared`]) and the call is for
    /// single peers, or vice versa.
    #[error("{0}")]
    Mode(&'static str),
    /// The address has the wrong IP version for this NIC.
    #[error("{0} has a different IP version from the address of this NIC")]
    IpVersion(SocketAddr),
    /// The MTU of the path is too small.
    #[error(
        "the path to {to} carries only {mtu_bytes} bytes per packet, which is too few; raise the MTU of its \
         interfaces"
    )]
    PathMtuTooSmall {
        /// Destination of the path.
        to: std::net::IpAddr,
        /// Largest IP packet that the path carries, in bytes.
        mtu_bytes: u32,
    },
    /// The NIC cannot use the shared link.
    #[error(transparent)]
    Share(#[from] ShareError),
    /// A system call failed.
    #[error("error while {doing}: {error}")]
    System {
        /// Operation that was attempted.
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
    /// There is no host at the address, or no program listens for the service.
    #[error("{to} refused the connection: no program is listening on this service at this address")]
    Refused {
        /// Address to which a connection was requested.
        to: SocketAddr,
    },
    /// The remote end rejected the request.
    #[error("{to} rejected the connection: {reason}{}", detail_of(detail))]
    Rejected {
        /// Address to which a connection was requested.
        to: SocketAddr,
        /// The reason, as a code of the InfiniBand specification.
        reason: RejectReason,
        /// The reason as text, when the remote end sent any.
        detail: String,
    },
    /// No response was received.
    #[error("{to} did not respond within {after}")]
    TimedOut {
        /// Address to which a connection was requested.
        to: SocketAddr,
        /// Time for which the local end has waited.
        after: Duration,
    },
    /// There is no route to the address.
    #[error("{to} is unreachable: {reason}")]
    Unreachable {
        /// Address to which a connection was requested.
        to: SocketAddr,
        /// Error of the kernel.
        reason: String,
    },
    /// The MTU of the path is too small.
    #[error(
        "the path to {to} carries only {mtu_bytes} bytes per packet, which is too few; raise the MTU of its \
         interfaces"
    )]
    PathMtuTooSmall {
        /// Address to which a connection was requested.
        to: SocketAddr,
        /// Largest IP packet that the path carries, in bytes.
        mtu_bytes: u32,
    },
    /// The remote end supports none of the transports that are acceptable to the local end.
    #[error("{to} supports none of the transports of this end, only {theirs}; select the same transport at both ends")]
    NoCommonTransport {
        /// Address to which a connection was requested.
        to: SocketAddr,
        /// Transports of the remote end.
        theirs: String,
    },
    /// Both ends use Falcon with different parameters, or a transport with different numbers of flows.
    #[error("{to} uses {theirs}, but this end uses {ours}{hint}; use the same transport options and key at both ends")]
    FalconMismatch {
        /// Address of the remote end, regardless of which end sent the request.
        to: SocketAddr,
        /// Parameters of the remote end.
        theirs: String,
        /// Parameters of the local end.
        ours: String,
        /// Explanation of the difference for the user; see [`crate::cm::falcon_key_hint`].
        hint: &'static str,
    },
    /// The NIC has no space for more connections.
    #[error("the NIC has reached its maximum number of connections; close one first")]
    TooMany,
    /// The connection does not exist, or its state no longer permits the call.
    #[error("the connection does not exist, or its state does not allow this call")]
    Gone,
    /// The private data does not fit in the message.
    #[error("{length} bytes of private data exceed the maximum of {limit} bytes")]
    PrivateData {
        /// Length of the length private data in bytes.
        length: usize,
        /// Maximum length in bytes.
        limit: usize,
    },
    /// The profile does not describe a valid transport.
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

/// Reason that a call to listen failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ListenError {
    /// The service has a listener already.
    #[error("service {0:?} already has a listener; choose another service, or stop the other listener")]
    ServiceInUse(ServiceId),
    /// The NIC has no space for more services.
    #[error("the NIC has reached its maximum number of services; stop listening on one first")]
    TooMany,
}
