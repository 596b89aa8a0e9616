//! Events that a program has fetched, and has done with.

use std::ffi::c_int;

use super::abi::*;
use super::service::{ACKNOWLEDGED, Cm, Key};
use crate::errno::{Errno, minus_one};

/// The C structure, the private data that it leads to, and whose acknowledgement it waits for.
#[repr(C)]
pub(super) struct EventObject {
    pub(super) c: rdma_cm_event,
    pub(super) data: Vec<u8>,
    pub(super) key: Key,
}

/// Counts an event of `key` as done with.
pub(super) fn acknowledge(key: Key) {
    if let Ok(mut cm) = Cm::lock()
        && let Some(entry) = cm.ids.get_mut(&key)
    {
        entry.acknowledged += 1;
        ACKNOWLEDGED.notify_all();
    }
}

/// `rdma_ack_cm_event`.
///
/// # Safety
/// `event` is from `rdma_get_cm_event`, and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    if event.is_null() {
        return minus_one(Err(Errno::INVALID));
    }
    // SAFETY: `present` made a box of it, and the program gives it up.
    let event = unsafe { Box::from_raw(event.cast::<EventObject>()) };
    acknowledge(event.key);
    0
}
