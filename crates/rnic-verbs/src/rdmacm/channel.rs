//! Event channels, through which programs receive the events of their identifiers.

use std::collections::BTreeMap;
use std::ffi::c_char;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::abi::*;
use super::service::Cm;
use super::service::pending::Events;
use crate::errno::{Errno, Result, pointer};

fn create() -> Result<*mut rdma_event_channel> {
    Cm::start()?;
    let events = Arc::new(Events::new()?);
    let channel = Box::into_raw(Box::new(rdma_event_channel { fd: events.fd() }));
    channels().insert(channel as usize, events);
    Ok(channel)
}

/// Channels that have not been destroyed, by address. The list is needed because programs request events from destroyed
/// channels: rping has a thread that does so when its main thread destroys the channel first.
static CHANNELS: Mutex<BTreeMap<usize, Arc<Events>>> = Mutex::new(BTreeMap::new());

fn channels() -> MutexGuard<'static, BTreeMap<usize, Arc<Events>>> {
    CHANNELS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the event queue of a channel.
///
/// # Errors
/// When the channel has been destroyed.
pub(super) fn events(channel: *mut rdma_event_channel) -> Result<Arc<Events>> {
    channels().get(&(channel as usize)).map(Arc::clone).ok_or(Errno(libc::EBADF))
}

/// Implements `rdma_create_event_channel`.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    pointer(create())
}

/// Implements `rdma_destroy_event_channel`.
///
/// # Safety
/// `channel` is from `rdma_create_event_channel`, and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    // The descriptor is closed when no thread waits for an event any more.
    let known = channels().remove(&(channel as usize));
    if known.is_some() {
        // SAFETY: `create` allocated it as a `Box`, and the caller gives up ownership.
        drop(unsafe { Box::from_raw(channel) });
    }
}

/// Implements `rdma_event_str`.
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
