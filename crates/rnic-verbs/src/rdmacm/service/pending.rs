//! Events that wait to be fetched by programs.

use std::collections::VecDeque;
use std::ffi::c_int;

use rnic_host::cm::ConnectionId;
use rnic_wire::cm::ServiceId;

use super::Key;
use crate::event::EventQueue;

/// The event queue of a channel.
pub(in crate::rdmacm) type Events = EventQueue<Pending>;

/// An event that waits to be fetched by a program.
#[derive(Clone, Debug)]
pub(in crate::rdmacm) struct Pending {
    /// Key of the identifier that the event concerns: for a request, the listening one.
    pub(in crate::rdmacm) key: Key,
    pub(in crate::rdmacm) kind: u32,
    /// Status: 0, a reject reason of the remote end, or a negative error number.
    pub(in crate::rdmacm) status: c_int,
    pub(in crate::rdmacm) content: EventContent,
    /// Private data from the remote end.
    pub(in crate::rdmacm) data: Vec<u8>,
}

/// Content of an event in addition to its type.
#[derive(Clone, Debug, Default)]
pub(in crate::rdmacm) enum EventContent {
    /// No further content.
    #[default]
    Plain,
    /// Resources that the remote end offers, from the receiver's point of view.
    Connection(Offer),
    /// A connection request.
    Arrival(Box<Arrival>),
    /// A queue pair for datagrams, in response to a lookup.
    Datagrams { qp_num: u32, qkey: u32 },
}

/// Resources of a connection from the point of view of the receiver of an offer.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(in crate::rdmacm) struct Offer {
    /// Maximum number of Reads that the receiver may have to serve at a time.
    pub(in crate::rdmacm) responder_resources: u8,
    /// Maximum number of Reads that the receiver may have outstanding.
    pub(in crate::rdmacm) initiator_depth: u8,
    pub(in crate::rdmacm) flow_control: u8,
    pub(in crate::rdmacm) retry_count: u8,
    pub(in crate::rdmacm) rnr_retry_count: u8,
    pub(in crate::rdmacm) srq: u8,
    pub(in crate::rdmacm) qp_num: u32,
}

/// Attributes of the remote queue pair that the local one needs.
#[derive(Clone, Copy, Debug)]
pub(in crate::rdmacm) struct Remote {
    pub(in crate::rdmacm) qp_num: u32,
    pub(in crate::rdmacm) psn: u32,
    /// As an `ibv_mtu` code.
    pub(in crate::rdmacm) path_mtu: u32,
    /// Numbers of Reads that the remote queue pair may have outstanding, and that it serves.
    pub(in crate::rdmacm) max_dest_rd_atomic: u8,
    pub(in crate::rdmacm) max_rd_atomic: u8,
    pub(in crate::rdmacm) retry_count: u8,
    pub(in crate::rdmacm) rnr_retry_count: u8,
    /// Index, in the list of locally offered transports, of the transport used with the remote end.
    pub(in crate::rdmacm) transport: usize,
}

/// A received request for which the program has no identifier yet.
#[derive(Clone, Debug)]
pub(in crate::rdmacm) struct Arrival {
    /// Key of the port that received it.
    pub(in crate::rdmacm) port: Key,
    pub(in crate::rdmacm) connection: ConnectionId,
    pub(in crate::rdmacm) service: ServiceId,
    pub(in crate::rdmacm) offer: Offer,
    /// Attributes of the remote queue pair, when the request is for a connection.
    pub(in crate::rdmacm) remote: Option<Remote>,
    /// Addresses with the local end as source and the requester as destination.
    pub(in crate::rdmacm) addresses: rnic_wire::Addresses,
    /// The requester's own port, as carried in the request.
    pub(in crate::rdmacm) source_port: u16,
    /// Traffic class of the requested connection.
    pub(in crate::rdmacm) traffic_class: u8,
}

impl Pending {
    pub(in crate::rdmacm) fn plain(key: Key, kind: u32, status: c_int) -> Self {
        Self { key, kind, status, content: EventContent::Plain, data: Vec::new() }
    }
}

/// Moves the events of `key` from one channel to another.
pub(in crate::rdmacm) fn move_events(from: &Events, to: &Events, key: Key) {
    let mut moving = VecDeque::new();
    from.forget(|event| {
        let is_its = event.key == key;
        if is_its {
            moving.push_back(event.clone());
        }
        is_its
    });
    moving.into_iter().for_each(|event| to.push(event));
}
