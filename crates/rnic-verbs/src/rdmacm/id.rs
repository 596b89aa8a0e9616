//! Identifiers (`rdma_cm_id`): a program's handle of a connection, a connection attempt, or a listening endpoint.

use std::ffi::{c_int, c_void};
use std::ptr;

use rnic_host::cm::ConnectionId;
use rnic_wire::cm::{RejectInfo, RejectReason};

use super::abi::*;
use super::ack::rdma_ack_cm_event;
use super::channel::{self, rdma_create_event_channel, rdma_destroy_event_channel};
use super::service::entry::{Entry, Stage};
use super::service::pending::{Arrival, move_events};
use super::service::{Cm, Key, Owner};
use crate::abi::*;
use crate::errno::{Errno, Result, minus_one};

/// The C structure of an identifier, and its key in the connection manager.
#[repr(C)]
pub(super) struct IdObject {
    pub(super) c: rdma_cm_id,
    pub(super) key: Key,
    /// True when the identifier has its own channel: calls wait for the operations that they start.
    pub(super) is_synchronous: bool,
    /// Attributes of the queue pairs that are created for connections to a passive endpoint.
    pub(super) queue_pairs: Option<Box<ibv_qp_init_attr>>,
    /// Private data to send before the program's private data.
    pub(super) connect_data: Vec<u8>,
}

/// Returns the object that a program's pointer refers to.
///
/// # Safety
/// `id` is from this library and has not been destroyed, and no other thread uses it at the same time.
pub(super) unsafe fn object<'a>(id: *mut rdma_cm_id) -> &'a mut IdObject {
    // SAFETY: guaranteed by the caller; the C structure is the first field of the object.
    unsafe { &mut *id.cast::<IdObject>() }
}

fn queue_pair_type(space: u32) -> Result<u32> {
    match space {
        RDMA_PS_TCP | RDMA_PS_IB => Ok(IBV_QPT_RC),
        RDMA_PS_UDP => Ok(IBV_QPT_UD),
        _ => Err(Errno(libc::EPROTONOSUPPORT)),
    }
}

/// Creates an identifier.
///
/// # Safety
/// `channel` is null or a valid channel.
pub(super) unsafe fn create(
    channel: *mut rdma_event_channel,
    context: *mut c_void,
    space: u32,
) -> Result<*mut rdma_cm_id> {
    let qp_type = queue_pair_type(space)?;
    let is_synchronous = channel.is_null();
    let channel = if is_synchronous { rdma_create_event_channel() } else { channel };
    if channel.is_null() {
        return Err(Errno::last());
    }
    let events = channel::events(channel)?;
    let mut cm = Cm::lock()?;
    let key = cm.new_key();
    // SAFETY: a new identifier consists of null pointers, empty addresses and zeros.
    let mut c: rdma_cm_id = unsafe { std::mem::zeroed() };
    (c.channel, c.context, c.ps, c.qp_type) = (channel, context, space, qp_type);
    let object = Box::new(IdObject { c, key, is_synchronous, queue_pairs: None, connect_data: Vec::new() });
    let object = Box::into_raw(object);
    let psn = cm.psns.bits() as u32 & 0xff_ffff;
    cm.ids.insert(key, Entry::new(object as usize, events, space, psn));
    Ok(object.cast())
}

/// Creates the identifier of a request that the program fetches, with the channel of the listening identifier.
///
/// # Safety
/// `listener` is a valid identifier.
pub(super) unsafe fn create_child(listener: *mut rdma_cm_id, arrival: &Arrival) -> Result<*mut rdma_cm_id> {
    // SAFETY: guaranteed by the caller.
    let (channel, context, space, qp_type) =
        unsafe { ((*listener).channel, (*listener).context, (*listener).ps, (*listener).qp_type) };
    // SAFETY: the channel of a valid identifier is valid.
    let id = unsafe { create(channel, context, space)? };
    // SAFETY: the identifier is new.
    let child = unsafe { object(id) };
    child.c.qp_type = qp_type;
    let mut cm = Cm::lock()?;
    let (port, connection) = (arrival.port, arrival.connection);
    let entry = cm.entry(child.key)?;
    (entry.stage, entry.connection, entry.remote) = (Stage::RequestReceived, Some(connection), arrival.remote);
    (entry.offer, entry.responder_resources, entry.initiator_depth) =
        (arrival.offer, arrival.offer.responder_resources, arrival.offer.initiator_depth);
    // As in Linux: the connection has one class in both directions, unless the program sets another before it accepts.
    entry.options.traffic_class = arrival.traffic_class;
    cm.use_port(child.key, port)?;
    cm.owners.insert((port, connection), Owner::Id(child.key));
    Ok(id)
}

impl Cm {
    /// Closes a connection in any state, with the message for that state, and removes its entry in `owners`.
    pub(super) fn close_connection(&mut self, port: Key, connection: ConnectionId) {
        self.owners.remove(&(port, connection));
        let now = super::service::now();
        let Some(port_entry) = self.ports.get_mut(&port) else { return };
        let endpoint = &mut port_entry.endpoint;
        // Exactly one of `disconnect`, `reject` and `forget` applies. A connection that the program has accepted is
        // disconnected even if its handshake is not complete, because a program may exit right after accepting.
        endpoint.establish(connection);
        if endpoint.disconnect(now, connection, rnic_wire::Qpn::default()) {
            return;
        }
        if !endpoint.reject(connection, RejectReason::CONSUMER, RejectInfo::default(), &[]) {
            endpoint.forget(connection);
        }
    }

    /// Rejects the requests that the program has not fetched, when the identifier that listens for them is removed.
    fn refuse_arrivals(&mut self, listener: Key) {
        let of_listener = |(_, owner): &(&(Key, ConnectionId), &Owner)| **owner == Owner::Arrival(listener);
        let waiting: Vec<(Key, ConnectionId)> = self.owners.iter().filter(of_listener).map(|(key, _)| *key).collect();
        for (port, connection) in waiting {
            self.close_connection(port, connection);
        }
    }

    /// Removes an identifier from all tables.
    fn remove(&mut self, key: Key) {
        self.refuse_arrivals(key);
        let Some(entry) = self.ids.remove(&key) else { return };
        entry.events.forget(|event| event.key == key);
        if let Some(port) = entry.port {
            if let Some(connection) = entry.connection {
                self.close_connection(port, connection);
            }
            self.release_port(key, port);
        }
    }
}

/// Implements `rdma_create_id`.
///
/// # Safety
/// `channel` is null or a valid channel, `id` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    space: u32,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    minus_one(unsafe { create(channel, context, space) }.map(|made| unsafe { *id = made }))
}

fn destroy(id: *mut rdma_cm_id) -> Result<()> {
    // SAFETY: the program passes an identifier that it gives up.
    let this = unsafe { object(id) };
    if !this.c.event.is_null() {
        // SAFETY: the event was fetched for this identifier and is acknowledged once.
        unsafe { rdma_ack_cm_event(this.c.event) };
    }
    let mut cm = Cm::lock()?;
    // A thread that has fetched an event of the identifier may use the identifier until it acknowledges the event.
    while cm.ids.get(&this.key).is_some_and(|entry| entry.fetched > entry.acknowledged) {
        cm = cm.wait();
    }
    cm.remove(this.key);
    drop(cm);
    if !this.c.route.path_rec.is_null() {
        // SAFETY: `resolve_route` allocated it as a `Box`.
        drop(unsafe { Box::from_raw(this.c.route.path_rec) });
    }
    if this.is_synchronous {
        // SAFETY: the channel is owned by this identifier.
        unsafe { rdma_destroy_event_channel(this.c.channel) };
    }
    // SAFETY: `create` allocated it as a `Box`, and the program gives up ownership.
    drop(unsafe { Box::from_raw(id.cast::<IdObject>()) });
    Ok(())
}

/// Implements `rdma_destroy_id`: waits until the program has acknowledged every event of the identifier.
///
/// # Safety
/// `id` is from this library, and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    minus_one(destroy(id))
}

/// Implements `rdma_migrate_id`: waits until the program has acknowledged every event of the identifier that it
/// fetched from the old channel.
///
/// # Safety
/// `id` and `channel` are valid; `channel` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int {
    // SAFETY: guaranteed by the caller.
    minus_one(migrate(unsafe { object(id) }, channel))
}

pub(super) fn migrate(this: &mut IdObject, channel: *mut rdma_event_channel) -> Result<()> {
    let is_synchronous = channel.is_null();
    let channel = if is_synchronous { rdma_create_event_channel() } else { channel };
    if channel.is_null() {
        return Err(Errno::last());
    }
    let events = channel::events(channel)?;
    if this.is_synchronous && !this.c.event.is_null() {
        // SAFETY: the event was fetched for this identifier and is acknowledged once.
        unsafe { rdma_ack_cm_event(this.c.event) };
        this.c.event = ptr::null_mut();
    }
    let mut cm = Cm::lock()?;
    let entry = cm.entry(this.key)?;
    let previous_events = std::mem::replace(&mut entry.events, events);
    move_events(&previous_events, &entry.events, this.key);
    // The event of a child's connection request is counted for the listening identifier, and is not waited for here.
    while cm.ids.get(&this.key).is_some_and(|entry| entry.fetched > entry.acknowledged) {
        cm = cm.wait();
    }
    drop(cm);
    if this.is_synchronous {
        // SAFETY: the channel was owned by this identifier.
        unsafe { rdma_destroy_event_channel(this.c.channel) };
    }
    (this.c.channel, this.is_synchronous) = (channel, is_synchronous);
    Ok(())
}

/// Implements `rdma_get_remote_ece`: returns OpenRNIC's vendor identifier and the code of the remote end's transport.
///
/// # Safety
/// `id` is valid, `ece` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_remote_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    // SAFETY: guaranteed by the caller.
    let key = unsafe { object(id) }.key;
    minus_one(Cm::lock().and_then(|mut cm| {
        let (vendor_id, options) = cm.entry(key)?.remote_vendor;
        // SAFETY: guaranteed by the caller.
        unsafe { *ece = ibv_ece { vendor_id, options, comp_mask: 0 } };
        Ok(())
    }))
}

/// Implements `rdma_set_option`.
///
/// # Safety
/// `id` is valid, `value` may be read for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: usize,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    let key = unsafe { object(id) }.key;
    let byte = || {
        // SAFETY: guaranteed by the caller.
        if len == 1 && !value.is_null() { Ok(unsafe { *value.cast::<u8>() }) } else { Err(Errno::INVALID) }
    };
    let flag = || {
        let is_valid = len == size_of::<c_int>() && !value.is_null();
        // SAFETY: guaranteed by the caller.
        if is_valid { Ok(unsafe { value.cast::<c_int>().read_unaligned() } != 0) } else { Err(Errno::INVALID) }
    };
    minus_one(Cm::lock().and_then(|mut cm| {
        let entry = cm.entry(key)?;
        match (level, name) {
            (RDMA_OPTION_ID, RDMA_OPTION_ID_TOS) => entry.options.traffic_class = byte()?,
            (RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR) => entry.options.shares_address = flag()?,
            (RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY) => entry.options.only_v6 = flag()?,
            (RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT) => {
                entry.options.ack_timeout = Some(byte().ok().filter(|code| *code < 32).ok_or(Errno::INVALID)?);
            }
            // Refused, because paths are determined by the kernel.
            (RDMA_OPTION_IB, RDMA_OPTION_IB_PATH) => return Err(Errno::UNSUPPORTED),
            _ => return Err(Errno(libc::ENOSYS)),
        }
        Ok(())
    }))
}

/// Sends the final handshake message, which reports to the remote end that the connection is established.
pub(super) fn confirm(this: &mut IdObject) -> Result<()> {
    let mut cm = Cm::lock()?;
    let entry = cm.entry(this.key)?;
    entry.advance(&[Stage::ReplyReceived], Stage::Connected)?;
    let connection = entry.connection.ok_or(Errno::INVALID)?;
    cm.port_of(this.key)?.1.endpoint.confirm(connection);
    Ok(())
}

/// Returns the acknowledgement timeout to be set in queue pairs: the program's choice or the default.
pub(super) fn ack_timeout(chosen: Option<u8>) -> u8 {
    chosen.unwrap_or(ACK_TIMEOUT)
}

/// Default acknowledgement timeout, 4.096 us * 2^n = 0.54 s: with seven retries, four seconds.
const ACK_TIMEOUT: u8 = 17;
