//! The state of an `rdma_cm_id` that the service protects by its lock.

use std::net::SocketAddr;
use std::sync::Arc;

use rnic_host::cm::ConnectionId;

use super::Key;
use super::pending::{Events, Offer, Remote};
use crate::abi::IBV_MTU_4096;
use crate::errno::{Errno, Result};
use crate::rdmacm::abi::{RDMA_MAX_INIT_DEPTH, RDMA_MAX_RESP_RES};

/// The path MTU of a queue pair, as an `ibv_mtu` code.
pub(in crate::rdmacm) const PATH_MTU: u32 = IBV_MTU_4096;

/// The state of an `rdma_cm_id` that the service protects by its lock.
pub(in crate::rdmacm) struct Entry {
    /// Address of the program's structure, as an integer: only the program's threads may access it.
    pub(in crate::rdmacm) place: usize,
    pub(in crate::rdmacm) events: Arc<Events>,
    /// Numbers of events that the program has fetched and acknowledged.
    pub(in crate::rdmacm) fetched: u64,
    pub(in crate::rdmacm) acknowledged: u64,
    pub(in crate::rdmacm) space: u32,
    pub(in crate::rdmacm) options: Options,
    pub(in crate::rdmacm) stage: Stage,
    pub(in crate::rdmacm) port: Option<Key>,
    pub(in crate::rdmacm) connection: Option<ConnectionId>,
    /// The remote end's queue pair.
    pub(in crate::rdmacm) remote: Option<Remote>,
    /// Number of the local queue pair, as sent to the remote end.
    pub(in crate::rdmacm) qp_num: u32,
    /// Path MTU of the queue pair as requested by the local end, as an `ibv_mtu` code.
    pub(in crate::rdmacm) path_mtu: u32,
    /// Initial packet sequence number of the local queue pair: generated together with the identifier, because programs
    /// that manage their queue pairs themselves query it before they accept.
    pub(in crate::rdmacm) psn: u32,
    /// Resources that the remote end offers.
    pub(in crate::rdmacm) offer: Offer,
    /// Numbers of Reads that the program wants to serve and to issue at a time.
    pub(in crate::rdmacm) responder_resources: u8,
    pub(in crate::rdmacm) initiator_depth: u8,
    /// Destination of the last connection request.
    pub(in crate::rdmacm) asked: Option<SocketAddr>,
    /// Vendor fields of the remote end: OpenRNIC's vendor with its transport, or zeros.
    pub(in crate::rdmacm) remote_vendor: (u32, u32),
}

/// Options that a program can set on an identifier.
#[derive(Clone, Copy, Default, Debug)]
pub(in crate::rdmacm) struct Options {
    pub(in crate::rdmacm) traffic_class: u8,
    pub(in crate::rdmacm) shares_address: bool,
    pub(in crate::rdmacm) only_v6: bool,
    pub(in crate::rdmacm) ack_timeout: Option<u8>,
}

/// State of an identifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::rdmacm) enum Stage {
    New,
    Bound,
    Resolved,
    Routed,
    Listening,
    /// A connection or lookup request has been sent.
    Connecting,
    /// The remote end has accepted; this has not been confirmed to it yet.
    ReplyReceived,
    /// A connection request has been received.
    RequestReceived,
    /// The local program has accepted; the remote end has not confirmed it yet.
    Accepted,
    Connected,
    Closed,
}

impl Entry {
    pub(in crate::rdmacm) fn new(place: usize, events: Arc<Events>, space: u32, psn: u32) -> Self {
        Self {
            place,
            events,
            fetched: 0,
            acknowledged: 0,
            space,
            options: Options::default(),
            stage: Stage::New,
            port: None,
            connection: None,
            remote: None,
            qp_num: 0,
            path_mtu: PATH_MTU,
            psn,
            offer: Offer::default(),
            responder_resources: RDMA_MAX_RESP_RES,
            initiator_depth: RDMA_MAX_INIT_DEPTH,
            asked: None,
            remote_vendor: (0, 0),
        }
    }

    /// Changes the state to `next`.
    ///
    /// # Errors
    /// When the current state is not one of `from`.
    pub(in crate::rdmacm) fn advance(&mut self, from: &[Stage], next: Stage) -> Result<()> {
        if !from.contains(&self.stage) {
            return Err(Errno::INVALID);
        }
        self.stage = next;
        Ok(())
    }
}
