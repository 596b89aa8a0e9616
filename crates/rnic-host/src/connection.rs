//! Connections, as seen by programs.

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
    /// Scatter/gather entries of a request.
    pub max_sge: u32,
    /// True when every send request creates a completion, whatever its flags.
    pub signal_all: bool,
    /// NVMe role of this end, on Falcon; `None` for RDMA.
    pub nvme: Option<NvmeRole>,
}

/// Requirements of this end for a connection; the same type serves the requesting and the accepting end.
#[derive(Clone, Debug)]
pub struct ConnectionConfig {
    /// The queue pair.
    pub queues: QueueConfig,
    /// Acceptable transports, best first. The order of the requesting end decides.
    pub transports: Vec<TransportChoice>,
    /// Maximum number of Reads and atomics in progress, each way.
    pub reads_max: u32,
    /// Time without a response after which the peer is given up; the request at the head completes with
    /// [`rnic_engine::WcStatus::RetryExceeded`].
    pub give_up_after: Duration,
    /// Consecutive receiver-not-ready responses after which the peer is given up; `None` waits indefinitely.
    pub rnr_retry: Option<u32>,
    /// Time that a peer shall wait when it finds no receive posted here.
    pub rnr_wait: Duration,
    /// Data for the program at the remote end: at most 16 bytes from the requesting end, 156 from the accepting one.
    pub private_data: Vec<u8>,
    /// Time for which the connection is requested, or for which the accepting end waits for the last message of the
    /// handshake.
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
            give_up_after: Duration::from_secs(2),
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

    /// Returns the maximum number of Reads, limited to the byte that carries it on the wire.
    pub(crate) fn reads(&self) -> u8 {
        self.reads_max.min(READS_IN_PROGRESS_MAX) as u8
    }

    /// Returns the number of consecutive timeouts after which the peer is given up.
    pub(crate) fn retry_count(&self, choice: &TransportChoice) -> u32 {
        let timeout = choice.timeout().unwrap_or(self.give_up_after).as_ps().max(1);
        u32::try_from(self.give_up_after.as_ps().div_ceil(timeout)).unwrap_or(u32::MAX).max(1)
    }
}

/// A connection that is established, or about to be.
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
    /// Response time of the remote end, at the requesting end; `None` when the request was retransmitted.
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
    /// Requested service.
    pub service: ServiceId,
    /// Transports that the requester supports, best first.
    pub transports: Vec<String>,
    /// Private data of the program at the remote end.
    pub private_data: Vec<u8>,
}

/// An event of the connection manager.
#[derive(Debug)]
pub enum ConnectionEvent {
    /// A peer requests a connection.
    Requested(ConnectionRequest),
    /// A connection may be used. The remote end is notified, and may send, with the next [`crate::Nic::progress`]: post
    /// receives before.
    Established(Connection),
    /// The connection could not be made.
    Failed {
        /// The requested connection.
        id: ConnectionId,
        /// The reason.
        error: ConnectError,
    },
    /// A connection is over: its queue pair is in the error state, and posted requests are flushed.
    /// [`crate::Nic::close`] it.
    Disconnected(ConnectionId),
}
