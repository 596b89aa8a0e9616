//! Event channels: where programs hear what becomes of their identifiers.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::{c_char, c_int};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::abi::*;
use super::service::{Cm, Key};
use crate::errno::{Errno, Result, pointer};
use crate::event::EventQueue;
use rnic_host::cm::ConnectionId;
use rnic_wire::cm::ServiceId;

/// Events that wait to be fetched.
pub(super) type Events = EventQueue<Pending>;

/// An event on its way to a program.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    /// The identifier that it concerns: the one that listens, for a request.
    pub(super) key: Key,
    pub(super) kind: u32,
    /// 0, a reason of the other side, or a negative error number.
    pub(super) status: c_int,
    pub(super) what: What,
    /// Private data of the other side.
    pub(super) data: Vec<u8>,
}

/// What an event tells beside its kind.
#[derive(Clone, Debug, Default)]
pub(super) enum What {
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
pub(super) struct Offer {
    /// Reads that the receiver may have to answer at a time.
    pub(super) responder_resources: u8,
    /// Reads that the receiver may have outstanding.
    pub(super) initiator_depth: u8,
    pub(super) flow_control: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
    pub(super) srq: u8,
    pub(super) qp_num: u32,
}

/// A request that waits to become an identifier of the program.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    /// Where it came in.
    pub(super) port: Key,
    pub(super) connection: ConnectionId,
    pub(super) service: ServiceId,
    pub(super) offer: Offer,
    /// What the queue pair needs, when it is for a connection.
    pub(super) remote: Option<super::id::Remote>,
    /// From us to who asks.
    pub(super) addresses: rnic_wire::Addresses,
    /// The port that who asks calls his own.
    pub(super) source_port: u16,
}

impl Pending {
    pub(super) fn plain(key: Key, kind: u32, status: c_int) -> Self {
        Self { key, kind, status, what: What::Plain, data: Vec::new() }
    }
}

/// Moves the events of `key` from one channel to another.
pub(super) fn move_events(from: &Events, to: &Events, key: Key) {
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

fn create() -> Result<*mut rdma_event_channel> {
    Cm::start()?;
    let events = Arc::new(Events::new()?);
    let channel = Box::into_raw(Box::new(rdma_event_channel { fd: events.fd() }));
    living().insert(channel as usize, events);
    Ok(channel)
}

/// Channels that have not been destroyed, by address. Programs ask destroyed ones for events: rping has a thread that
/// does so when its main thread was faster.
static LIVING: Mutex<BTreeMap<usize, Arc<Events>>> = Mutex::new(BTreeMap::new());

fn living() -> MutexGuard<'static, BTreeMap<usize, Arc<Events>>> {
    LIVING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The events behind a channel.
///
/// # Errors
/// When it has been destroyed.
pub(super) fn events(channel: *mut rdma_event_channel) -> Result<Arc<Events>> {
    living().get(&(channel as usize)).map(Arc::clone).ok_or(Errno(libc::EBADF))
}

/// `rdma_create_event_channel`.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    pointer(create())
}

/// `rdma_destroy_event_channel`.
///
/// # Safety
/// `channel` is from `rdma_create_event_channel`, and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    // Its descriptor closes when nobody waits for an event any more.
    let known = living().remove(&(channel as usize));
    if known.is_some() {
        // SAFETY: `create` made a box of it, and the caller gives it up.
        drop(unsafe { Box::from_raw(channel) });
    }
}

/// `rdma_event_str`.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_event_str(event: u32) -> *const c_char {
    let text = match event {
        RDMA_CM_EVENT_ADDR_RESOLVED => c"RDMA_CM_EVENT_ADDR_RESOLVED",
        RDMA_CM_EVENT_ADDR_ERROR => c"RDMA_CM_EVENT_ADDR_ERROR",
        RDMA_CM_EVENT_ROUTE_RESOLVED => c"RDMA_CM_EVENT_ROUTE_RESOLVED",
        RDMA_CM_EVENT_ROUTE_ERROR => c"RDMA_CM_EVENT_ROUTE_ERROR",
        RDMA_CM_EVENT_CONNECT_REQUEST => c"RDMA_CM_EVENT_CONNECT_REQUEST",
        RDMA_CM_EVENT_CONNECT_RESPONSE => c"RDMA_CM_EVENT_CONNECT_RESPONSE",
        RDMA_CM_EVENT_CONNECT_ERROR => c"RDMA_CM_EVENT_CONNECT_ERROR",
        RDMA_CM_EVENT_UNREACHABLE => c"RDMA_CM_EVENT_UNREACHABLE",
        RDMA_CM_EVENT_REJECTED => c"RDMA_CM_EVENT_REJECTED",
        RDMA_CM_EVENT_ESTABLISHED => c"RDMA_CM_EVENT_ESTABLISHED",
        RDMA_CM_EVENT_DISCONNECTED => c"RDMA_CM_EVENT_DISCONNECTED",
        RDMA_CM_EVENT_DEVICE_REMOVAL => c"RDMA_CM_EVENT_DEVICE_REMOVAL",
        RDMA_CM_EVENT_MULTICAST_JOIN => c"RDMA_CM_EVENT_MULTICAST_JOIN",
        RDMA_CM_EVENT_MULTICAST_ERROR => c"RDMA_CM_EVENT_MULTICAST_ERROR",
        RDMA_CM_EVENT_ADDR_CHANGE => c"RDMA_CM_EVENT_ADDR_CHANGE",
        RDMA_CM_EVENT_TIMEWAIT_EXIT => c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
        _ => c"UNKNOWN EVENT",
    };
    text.as_ptr()
}
