//! The verbs that the connection manager calls: the same C functions that programs call.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;

use crate::abi::*;
use crate::errno::{Errno, Result};

// SAFETY: these are functions of this library, defined with the same types in `device.rs`, `cq.rs`, `srq.rs` and
// `qp.rs`.
unsafe extern "C" {
    fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device;
    fn ibv_free_device_list(list: *mut *mut ibv_device);
    fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context;
    fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
    fn ibv_query_device(context: *mut ibv_context, attributes: *mut ibv_device_attr) -> c_int;
    fn ibv_query_port(context: *mut ibv_context, port: u8, attributes: *mut ibv_port_attr) -> c_int;
    fn ibv_query_gid(context: *mut ibv_context, port: u8, index: c_int, gid: *mut ibv_gid) -> c_int;
    fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel;
    fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int;
    fn ibv_create_cq(
        context: *mut ibv_context,
        cqe: c_int,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
        vector: c_int,
    ) -> *mut ibv_cq;
    fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int;
    fn ibv_create_srq(pd: *mut ibv_pd, attributes: *mut ibv_srq_init_attr) -> *mut ibv_srq;
    fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int;
    fn ibv_create_qp(pd: *mut ibv_pd, attributes: *mut ibv_qp_init_attr) -> *mut ibv_qp;
    fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int;
    fn ibv_modify_qp(qp: *mut ibv_qp, attributes: *mut ibv_qp_attr, mask: c_int) -> c_int;
}

fn non_null<T>(pointer: *mut T) -> Result<*mut T> {
    if pointer.is_null() { Err(Errno::last()) } else { Ok(pointer) }
}

fn zero_or_errno(result: c_int) -> Result<()> {
    match result {
        0 => Ok(()),
        -1 => Err(Errno::last()),
        errno => Err(Errno(errno.abs())),
    }
}

/// Opens the first device.
pub(super) fn open_device() -> Result<*mut ibv_context> {
    // SAFETY: the list is used between the two calls; its first element is a device or null.
    unsafe {
        let list = non_null(ibv_get_device_list(std::ptr::null_mut()))?;
        let device = *list;
        let context = if device.is_null() { Err(Errno(libc::ENODEV)) } else { non_null(ibv_open_device(device)) };
        ibv_free_device_list(list);
        context
    }
}

pub(super) fn alloc_pd(context: *mut ibv_context) -> Result<*mut ibv_pd> {
    // SAFETY: the context is open.
    non_null(unsafe { ibv_alloc_pd(context) })
}

pub(super) fn query_device(context: *mut ibv_context) -> Result<ibv_device_attr> {
    let mut attributes = MaybeUninit::zeroed();
    // SAFETY: the context is open; zeros are valid attributes, which the call fills in.
    unsafe {
        zero_or_errno(ibv_query_device(context, attributes.as_mut_ptr()))?;
        Ok(attributes.assume_init())
    }
}

pub(super) fn query_port(context: *mut ibv_context) -> Result<ibv_port_attr> {
    let mut attributes = ibv_port_attr::default();
    // SAFETY: the context is open, and `attributes` is a local variable.
    zero_or_errno(unsafe { ibv_query_port(context, 1, &raw mut attributes) })?;
    Ok(attributes)
}

pub(super) fn query_gid(context: *mut ibv_context, index: c_int) -> Result<ibv_gid> {
    let mut gid = ibv_gid::default();
    // SAFETY: the context is open, and `gid` is a local variable.
    zero_or_errno(unsafe { ibv_query_gid(context, 1, index, &raw mut gid) })?;
    Ok(gid)
}

/// Creates a completion queue with its own channel.
///
/// # Safety
/// `context` is open.
pub(super) unsafe fn create_cq(
    context: *mut ibv_context,
    entries: u32,
    cq_context: *mut c_void,
) -> Result<(*mut ibv_comp_channel, *mut ibv_cq)> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let channel = non_null(ibv_create_comp_channel(context))?;
        let entries = c_int::try_from(entries.max(1)).unwrap_or(c_int::MAX);
        match non_null(ibv_create_cq(context, entries, cq_context, channel, 0)) {
            Ok(cq) => Ok((channel, cq)),
            Err(errno) => {
                ibv_destroy_comp_channel(channel);
                Err(errno)
            }
        }
    }
}

/// Destroys a completion queue and its channel.
///
/// # Safety
/// They are null, or from [`create_cq`] and not used again.
pub(super) unsafe fn destroy_cq(channel: *mut ibv_comp_channel, cq: *mut ibv_cq) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if !cq.is_null() {
            ibv_destroy_cq(cq);
        }
        if !channel.is_null() {
            ibv_destroy_comp_channel(channel);
        }
    }
}

/// # Safety
/// As for the verb.
pub(super) unsafe fn create_srq(pd: *mut ibv_pd, attributes: &mut ibv_srq_init_attr) -> Result<*mut ibv_srq> {
    // SAFETY: guaranteed by the caller.
    non_null(unsafe { ibv_create_srq(pd, attributes) })
}

/// # Safety
/// As for the verb.
pub(super) unsafe fn destroy_srq(srq: *mut ibv_srq) -> Result<()> {
    // SAFETY: guaranteed by the caller.
    zero_or_errno(unsafe { ibv_destroy_srq(srq) })
}

/// # Safety
/// As for the verb.
pub(super) unsafe fn create_qp(pd: *mut ibv_pd, attributes: &mut ibv_qp_init_attr) -> Result<*mut ibv_qp> {
    // SAFETY: guaranteed by the caller.
    non_null(unsafe { ibv_create_qp(pd, attributes) })
}

/// Calls `ibv_create_qp_ex`, which programs reach through the context.
///
/// # Safety
/// `context` is open; the rest as for the verb.
pub(super) unsafe fn create_qp_ex(
    context: *mut ibv_context,
    attributes: &mut ibv_qp_init_attr_ex,
) -> Result<*mut ibv_qp> {
    // SAFETY: guaranteed by the caller: every context of this library is the last part of a `verbs_context`.
    unsafe {
        let before = std::mem::offset_of!(verbs_context, context);
        let verbs = context.byte_sub(before).cast::<verbs_context>();
        let create = (*verbs).create_qp_ex.ok_or(Errno::UNSUPPORTED)?;
        non_null(create(context, attributes))
    }
}

/// # Safety
/// As for the verb.
pub(super) unsafe fn destroy_qp(qp: *mut ibv_qp) -> Result<()> {
    // SAFETY: guaranteed by the caller.
    zero_or_errno(unsafe { ibv_destroy_qp(qp) })
}

/// # Safety
/// As for the verb.
pub(super) unsafe fn modify_qp(qp: *mut ibv_qp, attributes: &mut ibv_qp_attr, mask: u32) -> Result<()> {
    // SAFETY: guaranteed by the caller.
    zero_or_errno(unsafe { ibv_modify_qp(qp, attributes, mask.cast_signed()) })
}
