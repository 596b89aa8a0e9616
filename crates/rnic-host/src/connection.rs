//! Connections as seen by programs.

use std::net::SocketAddr;

use rnic_base::Duration;
use rnic_base::limits::READS_IN_PROGRESS_MAX;
use rnic_engine::{CqId, NvmeRole, PdId, RnrTimer, SrqId};
use rnic_wire::Qpn;
use rnic_wire::cm::ServiceId;

use crate::cm::ConnectionId;
use crate::defaults::{TransportChoice, default_transports};
use crate::error::ConnectError;

/// Attributes of the queue pair of a connection; see [`rnic_engine::QpAttributes`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueConfig {
    /// Protection domain.
    pub pd: PdId,
    /// Completion queue of the send queue.
    pub send_cq: CqId,
    /// Completion queue of the receive queue.
    pub recv_cq: CqId,
    /// Shared receive queue to use instead of a separate receive queue.
    pub srq: Option<SrqId>,
    /// Entries of the send queue.
    pub max_send_wr: u32,
    /// Entries of the receive queue.
    pub max_recv_wr: u32,
    /// Maximum number of scatter/gather entries per request.
    pub max_sge: u32,
    /// True when every send request creates a completion, whatever its flags.
    pub signal_all: bool,
    /// NVMe role of this end, on Falcon; `None` for RDMA.
    pub nvme: Option<NvmeRole>,
}

/// Parameters that this end requires of a connection; the same type is used by the requesting and the accepting end.
#[derive(Clone, Debug)]
pub struct ConnectionConfig {
    /// Attributes of the queue pair.
    pub queues: QueueConfig,
    /// Acceptable transports, best first. The order of the requesting end has priority.
    pub transports: Vec<TransportChoice>,
    /// Maximum number of Reads and atomics in progress in each direction.
    pub reads_max: u32,
    /// Time without a response after which the peer counts as failed; the request at the head of the send queue then
    /// completes with [`rnic_engine::WcStatus::RetryExceeded`].
    pub peer_timeout: Duration,
    /// Number of consecutive receiver-not-ready responses after which the peer counts as failed; `None` retries
    /// indefinitely.
    pub rnr_retry: Option<u32>,
    /// Time that a peer waits before it retries, after it found no receive posted at this end.
    pub rnr_wait: Duration,
    /// Private data for the program at the remote end: at most 16 bytes from the requesting end, 156 from the
    /// accepting one.
    pub private_data: Vec<u8>,
    /// At the requesting end, the time within which the connection must be made; at the accepting end, the time
    /// within which the last message of the handshake must arrive.
    pub timeout: Duration,
}

impl ConnectionConfig {
    /// Returns the defaults for a queue pair in `pd` that completes to `cq`.
    pub fn new(pd: PdId, cq: CqId) -> Self {
        Self {
            queues: QueueConfig {
                pd,
                send_cq: cq,
                recv_cq: cq,
                srq: None,
                max_send_wr: 256,
                max_recv_wr: 256,
                max_sge: 4,
                signal_all: false,
                nvme: None,
            },
            transports: default_transports(),
            reads_max: 16,
            peer_timeout: Duration::from_secs(2),
            rnr_retry: None,
            rnr_wait: Duration::from_us(100),
            private_data: Vec::new(),
            timeout: Duration::from_secs(5),
        }
    }

    /// Returns `self` with these transports only.
    #[must_use]
    pub fn with_transports(mut self, transports: Vec<TransportChoice>) -> Self {
        self.transports = transports;
        self
    }

    pub(crate) fn rnr_timer(&self) -> RnrTimer {
        RnrTimer::at_least(self.rnr_wait)
    }

    /// Returns the maximum number of Reads in progress, limited to the range of the one-byte field that carries it.
    pub(crate) fn reads(&self) -> u8 {
        self.reads_max.min(READS_IN_PROGRESS_MAX) as u8
    }

    /// Returns the number of consecutive timeouts after which the peer counts as failed.
    pub(crate) fn retry_count(&self, choice: &TransportChoice) -> u32 {
        let timeout = choice.timeout().unwrap_or(self.peer_timeout).as_ps().max(1);
        u32::try_from(self.peer_timeout.as_ps().div_ceil(timeout)).unwrap_or(u32::MAX).max(1)
    }
}

/// A connection that is established or about to be established.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Connection {
    /// Identifier of the connection.
    pub id: ConnectionId,
    /// Local queue pair.
    pub qpn: Qpn,
    /// Address of the remote end.
    pub remote: SocketAddr,
    /// Transport on which both ends have agreed.
    pub transport: &'static str,
    /// Payload bytes of a full packet.
    pub wire_mtu_bytes: u32,
    /// Packets that may be in flight to the peer, over all connections to it; `None` when it does not specify a limit.
    pub window_packets: Option<u32>,
    /// Maximum number of outstanding Reads and atomics.
    pub reads_max: u32,
    /// At the requesting end, the time until the remote end responded; `None` when the request was retransmitted.
    pub round_trip: Option<Duration>,
    /// Private data of the program at the remote end.
    pub private_data: Vec<u8>,
}

/// A connection request from a peer: [`crate::Nic::accept`] or [`crate::Nic::reject`] it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionRequest {
    /// Identifier of the request, which is also that of the connection if it is accepted.
    pub id: ConnectionId,
    /// Address of the requester.
    pub from: SocketAddr,
    /// Service to which a connection is requested.
    pub service: ServiceId,
    /// Transports that are acceptable to the requester, best first.
    pub transports: Vec<String>,
    /// Private data of the program at the remote end.
    pub private_data: Vec<u8>,
}

/// An event of the connection manager.
#[derive(Debug)]
pub enum ConnectionEvent {
    /// A peer requests a connection.
    Requested(ConnectionRequest),
    /// A connection is ready for use. The next [`crate::Nic::progress`] notifies the remote end, which may then send,
    /// so receives must be posted before that.
    Established(Connection),
    /// The connection could not be made.
    Failed {
        /// Connection that was requested.
        id: ConnectionId,
        /// Reason of the failure.
        error: ConnectError,
    },
    /// A connection has ended: its queue pair is in the error state, and posted requests are flushed. The program
    /// must [`crate::Nic::close`] it.
    Disconnected(ConnectionId),
}
