//! The state of an `rdma_cm_id` that the service keeps under its lock.

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

/// The state of an `rdma_cm_id` that the service keeps under its lock.
pub(in crate::rdmacm) struct Entry {
    /// Where the program's structure is, as a number: only the program's threads may look.
    pub(in crate::rdmacm) place: usize,
    pub(in crate::rdmacm) events: Arc<Events>,
    /// Events that the program has fetched, and acknowledged.
    pub(in crate::rdmacm) fetched: u64,
    pub(in crate::rdmacm) acknowledged: u64,
    pub(in crate::rdmacm) space: u32,
    pub(in crate::rdmacm) options: Options,
    pub(in crate::rdmacm) stage: Stage,
    pub(in crate::rdmacm) port: Option<Key>,
    pub(in crate::rdmacm) connection: Option<ConnectionId>,
    /// The other side's queue pair.
    pub(in crate::rdmacm) remote: Option<Remote>,
    /// Our queue pair, as the other side is told.
    pub(in crate::rdmacm) qp_num: u32,
    /// What the queue pairs' packets carry, as we have asked for it and as verbs count.
    pub(in crate::rdmacm) path_mtu: u32,
    /// The first sequence number of our queue pair: drawn with the identifier, since programs with queue pairs of
    /// their own ask for it before they accept.
    pub(in crate::rdmacm) psn: u32,
    /// What the other side offers.
    pub(in crate::rdmacm) offer: Offer,
    /// What the program wants of the connection.
    pub(in crate::rdmacm) responder_resources: u8,
    pub(in crate::rdmacm) initiator_depth: u8,
    /// Whom it has asked last.
    pub(in crate::rdmacm) asked: Option<SocketAddr>,
    /// The other side's vendor: ours, with its transport, or zeros.
    pub(in crate::rdmacm) remote_vendor: (u32, u32),
}

/// What a program may choose.
#[derive(Clone, Copy, Default, Debug)]
pub(in crate::rdmacm) struct Options {
    pub(in crate::rdmacm) traffic_class: u8,
    pub(in crate::rdmacm) shares_address: bool,
    pub(in crate::rdmacm) only_v6: bool,
    pub(in crate::rdmacm) ack_timeout: Option<u8>,
}

/// Where an identifier stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::rdmacm) enum Stage {
    New,
    Bound,
    Resolved,
    Routed,
    Listening,
    /// A request or a question is out.
    Connecting,
    /// The other side has accepted; we have not said so.
    Answered,
    /// A request is here.
    Asked,
    /// We have accepted; the other side has not said so.
    Accepted,
    Connected,
    Over,
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

    /// Goes on to `next` if it stands where `from` says.
    pub(in crate::rdmacm) fn advance(&mut self, from: &[Stage], next: Stage) -> Result<()> {
        if !from.contains(&self.stage) {
            return Err(Errno::INVALID);
        }
        self.stage = next;
        Ok(())
    }
}
