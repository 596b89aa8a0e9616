//! Events on their way to programs.

use std::collections::VecDeque;
use std::ffi::c_int;

use rnic_host::cm::ConnectionId;
use rnic_wire::cm::ServiceId;

use super::Key;
use crate::event::EventQueue;

/// Events that wait to be fetched.
pub(in crate::rdmacm) type Events = EventQueue<Pending>;

/// An event on its way to a program.
#[derive(Clone, Debug)]
pub(in crate::rdmacm) struct Pending {
    /// The identifier that it concerns: the one that listens, for a request.
    pub(in crate::rdmacm) key: Key,
    pub(in crate::rdmacm) kind: u32,
    /// 0, a reason of the other side, or a negative error number.
    pub(in crate::rdmacm) status: c_int,
    pub(in crate::rdmacm) what: What,
    /// Private data of the other side.
    pub(in crate::rdmacm) data: Vec<u8>,
}

/// What an event tells beside its kind.
#[derive(Clone, Debug, Default)]
pub(in crate::rdmacm) enum What {
    /// Nothing.
    #[default]
    Plain,
    /// What the other side offers, in the words of the receiver.
    Connection(Offer),
    /// Somebody asks.
    Arrival(Box<Arrival>),
    /// A queue pair for datagrams.
    Datagrams { qp_num: u32, qkey: u32 },
}

/// Resources of a connection as the receiver of an offer sees them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(in crate::rdmacm) struct Offer {
    /// Reads that the receiver may have to answer at a time.
    pub(in crate::rdmacm) responder_resources: u8,
    /// Reads that the receiver may have outstanding.
    pub(in crate::rdmacm) initiator_depth: u8,
    pub(in crate::rdmacm) flow_control: u8,
    pub(in crate::rdmacm) retry_count: u8,
    pub(in crate::rdmacm) rnr_retry_count: u8,
    pub(in crate::rdmacm) srq: u8,
    pub(in crate::rdmacm) qp_num: u32,
}

/// What our queue pair must know about the other.
#[derive(Clone, Copy, Debug)]
pub(in crate::rdmacm) struct Remote {
    pub(in crate::rdmacm) qp_num: u32,
    pub(in crate::rdmacm) psn: u32,
    /// As verbs count.
    pub(in crate::rdmacm) path_mtu: u32,
    /// Reads that it may have outstanding, and that it answers.
    pub(in crate::rdmacm) max_dest_rd_atomic: u8,
    pub(in crate::rdmacm) max_rd_atomic: u8,
    pub(in crate::rdmacm) retry_count: u8,
    pub(in crate::rdmacm) rnr_retry_count: u8,
    /// Which of our transports it has too.
    pub(in crate::rdmacm) transport: usize,
}

/// A request that waits to become an identifier of the program.
#[derive(Clone, Debug)]
pub(in crate::rdmacm) struct Arrival {
    /// Where it came in.
    pub(in crate::rdmacm) port: Key,
    pub(in crate::rdmacm) connection: ConnectionId,
    pub(in crate::rdmacm) service: ServiceId,
    pub(in crate::rdmacm) offer: Offer,
    /// What the queue pair needs, when it is for a connection.
    pub(in crate::rdmacm) remote: Option<Remote>,
    /// From us to who asks.
    pub(in crate::rdmacm) addresses: rnic_wire::Addresses,
    /// The port that who asks calls his own.
    pub(in crate::rdmacm) source_port: u16,
}

impl Pending {
    pub(in crate::rdmacm) fn plain(key: Key, kind: u32, status: c_int) -> Self {
        Self { key, kind, status, what: What::Plain, data: Vec::new() }
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
