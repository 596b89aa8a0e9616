//! Acknowledgement of events that a program has fetched.

use std::ffi::c_int;

use super::abi::*;
use super::service::{ACKNOWLEDGED, Cm, Key};
use crate::errno::{Errno, minus_one};

/// An event: the C structure, the private data that it points to, and the key of the identifier that waits for its
/// acknowledgement.
#[repr(C)]
pub(super) struct EventObject {
    pub(super) c: rdma_cm_event,
    pub(super) data: Vec<u8>,
    pub(super) key: Key,
}

/// Counts an event of the identifier `key` as acknowledged.
pub(super) fn acknowledge(key: Key) {
    if let Ok(mut cm) = Cm::lock()
        && let Some(entry) = cm.ids.get_mut(&key)
    {
        entry.acknowledged += 1;
        ACKNOWLEDGED.notify_all();
    }
}

/// Implements `rdma_ack_cm_event`.
///
/// # Safety
/// `event` is from `rdma_get_cm_event`, and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    if event.is_null() {
        return minus_one(Err(Errno::INVALID));
    }
    // SAFETY: `present` allocated it as a `Box`, and the program gives up ownership.
    let event = unsafe { Box::from_raw(event.cast::<EventObject>()) };
    acknowledge(event.key);
    0
}
