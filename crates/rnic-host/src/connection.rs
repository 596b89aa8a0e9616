//! Connections, as programs see them.

use std::net::SocketAddr;

use rnic_base::Duration;
use rnic_base::limits::READS_IN_PROGRESS_MAX;
use rnic_engine::{CqId, NvmeRole, PdId, RnrTimer, SrqId};
use rnic_wire::Qpn;
use rnic_wire::cm::ServiceId;

use crate::cm::ConnectionId;
use crate::defaults::{TransportChoice, default_transports};
use crate::error::ConnectError;

/// What the queue pair of a connection is made with; see [`rnic_engine::QpAttributes`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueConfig {
    /// Protection domain.
    pub pd: PdId,
    /// Where completions of the send queue go.
    pub send_cq: CqId,
    /// Where completions of the receive queue go.
    pub recv_cq: CqId,
    /// Take receives from here instead of from an own queue.
    pub srq: Option<SrqId>,
    /// Entries of the send queue.
    pub max_send_wr: u32,
    /// Entries of the receive queue.
    pub max_recv_wr: u32,
    /// Scatter/gather entries of a request.
    pub max_sge: u32,
    /// Every send request completes visibly, whatever its flags.
    pub signal_all: bool,
    /// The end of NVMe that it is, on Falcon; RDMA where there is none.
    pub nvme: Option<NvmeRole>,
}

/// What this end wants of a connection; the same for the end that asks and the end that accepts.
#[derive(Clone, Debug)]
pub struct ConnectionConfig {
    /// The queue pair.
    pub queues: QueueConfig,
    /// Transports that will do, best first. The order of the end that asks counts.
    pub transports: Vec<TransportChoice>,
    /// Reads and atomics in progress at most, each way.
    pub reads_max: u32,
    /// A peer that has not answered for so long is given up; the request at the head completes with
    /// [`rnic_engine::WcStatus::RetryExceeded`].
    pub give_up_after: Duration,
    /// Receiver-not-ready answers in a row after which the peer is given up; `None` waits for ever.
    pub rnr_retry: Option<u32>,
    /// How long a peer shall wait that finds no receive posted here.
    pub rnr_wait: Duration,
    /// For the program at the other end: at most 16 bytes from the end that asks, 156 from the one that accepts.
    pub private_data: Vec<u8>,
    /// How long to ask for the connection, or to wait for the last message of its making.
    pub timeout: Duration,
}

impl ConnectionConfig {
    /// Defaults for a queue pair in `pd` that completes to `cq`.
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

    /// The same, with these transports alone.
    #[must_use]
    pub fn with_transports(mut self, transports: Vec<TransportChoice>) -> Self {
        self.transports = transports;
        self
    }

    pub(crate) fn rnr_timer(&self) -> RnrTimer {
        RnrTimer::at_least(self.rnr_wait)
    }

    /// Reads that fit the byte that they travel in.
    pub(crate) fn reads(&self) -> u8 {
        self.reads_max.min(READS_IN_PROGRESS_MAX) as u8
    }

    /// How often a timeout may come in a row before the peer is given up.
    pub(crate) fn retry_count(&self, choice: &TransportChoice) -> u32 {
        let timeout = choice.timeout().unwrap_or(self.give_up_after).as_ps().max(1);
        u32::try_from(self.give_up_after.as_ps().div_ceil(timeout)).unwrap_or(u32::MAX).max(1)
    }
}

/// An established connection, or one that is about to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Connection {
    /// Its name.
    pub id: ConnectionId,
    /// Its queue pair on this side.
    pub qpn: Qpn,
    /// The other end.
    pub remote: SocketAddr,
    /// What both ends have agreed on.
    pub transport: &'static str,
    /// Payload bytes of a full packet.
    pub wire_mtu_bytes: u32,
    /// Packets that may be under way to the peer, over all connections to it; `None` when it does not say.
    pub window_packets: Option<u32>,
    /// Reads and atomics that may be outstanding.
    pub reads_max: u32,
    /// How long the other end took to answer, at the end that asked; unknown when the request was sent twice.
    pub round_trip: Option<Duration>,
    /// What the program at the other end had to say.
    pub private_data: Vec<u8>,
}

/// Somebody asks for a connection: [`crate::Nic::accept`] or [`crate::Nic::reject`] it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionRequest {
    /// Its name, already that of the connection if there will be one.
    pub id: ConnectionId,
    /// Who asks.
    pub from: SocketAddr,
    /// What for.
    pub service: ServiceId,
    /// Transports that it has, best first.
    pub transports: Vec<String>,
    /// What the program at the other end has to say.
    pub private_data: Vec<u8>,
}

/// News of the connection manager.
#[derive(Debug)]
pub enum ConnectionEvent {
    /// Somebody asks for a connection.
    Requested(ConnectionRequest),
    /// A connection may be used. The other end learns of it, and may send, with the next [`crate::Nic::progress`]: post
    /// receives before.
    Established(Connection),
    /// There will be no connection.
    Failed {
        /// The connection that was asked for.
        id: ConnectionId,
        /// Why.
        error: ConnectError,
    },
    /// A connection is over: its queue pair is in the error state, and what was posted is flushed.
    /// [`crate::Nic::close`] it.
    Disconnected(ConnectionId),
}
