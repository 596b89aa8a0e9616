//! Endpoints: creation of an identifier, its addresses and its queue pair in one call.

use std::ffi::c_int;
use std::ptr;

use super::abi::*;
use super::addrinfo;
use super::id::{self, object, rdma_destroy_id};
use super::qp::{self, rdma_destroy_qp, rdma_destroy_srq};
use super::resolve::{rdma_bind_addr, rdma_resolve_addr, rdma_resolve_route};
use crate::abi::*;
use crate::errno::{Errno, Result, minus_one};

/// Converts the return value of a called function to a result.
fn zero_or_errno(result: c_int) -> Result<()> {
    if result == 0 { Ok(()) } else { Err(Errno::last()) }
}

/// # Safety
/// As for `rdma_create_ep`.
unsafe fn create(info: &rdma_addrinfo, pd: *mut ibv_pd, attributes: *mut ibv_qp_init_attr) -> Result<*mut rdma_cm_id> {
    // SAFETY: without a channel, the identifier gets its own.
    let id = unsafe { id::create(ptr::null_mut(), ptr::null_mut(), info.ai_port_space.cast_unsigned())? };
    // SAFETY: the identifier is new.
    let this = unsafe { object(id) };
    this.c.qp_type = info.ai_qp_type.cast_unsigned();
    // SAFETY: guaranteed by the caller; the identifier is destroyed when a step fails.
    unsafe {
        let created = if info.ai_flags & RAI_PASSIVE != 0 {
            zero_or_errno(rdma_bind_addr(id, info.ai_src_addr)).map(|()| {
                if !pd.is_null() {
                    this.c.pd = pd;
                }
                if !attributes.is_null() {
                    let qp_attributes = ibv_qp_init_attr { qp_type: info.ai_qp_type.cast_unsigned(), ..*attributes };
                    this.queue_pairs = Some(Box::new(qp_attributes));
                }
            })
        } else {
            this.connect_data = addrinfo::connect_data(info);
            zero_or_errno(rdma_resolve_addr(id, info.ai_src_addr, info.ai_dst_addr, TIMEOUT_MS))
                .and_then(|()| zero_or_errno(rdma_resolve_route(id, TIMEOUT_MS)))
                .and_then(|()| {
                    if attributes.is_null() {
                        return Ok(());
                    }
                    (*attributes).qp_type = info.ai_qp_type.cast_unsigned();
                    qp::create(id, pd, &mut *attributes)
                })
        };
        if let Err(errno) = created {
            rdma_destroy_id(id);
            return Err(errno);
        }
    }
    Ok(id)
}

/// Implements `rdma_create_ep`.
///
/// # Safety
/// `id` may be written, `info` is from `rdma_getaddrinfo` or equivalent; `pd` and `attributes` are null or may be used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_ep(
    id: *mut *mut rdma_cm_id,
    info: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    attributes: *mut ibv_qp_init_attr,
) -> c_int {
    if id.is_null() || info.is_null() {
        return minus_one(Err(Errno::INVALID));
    }
    // SAFETY: guaranteed by the caller.
    minus_one(unsafe { create(&*info, pd, attributes) }.map(|created| unsafe { *id = created }))
}

/// Implements `rdma_destroy_ep`.
///
/// # Safety
/// `id` is from `rdma_create_ep` or `rdma_get_request`, and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_ep(id: *mut rdma_cm_id) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        rdma_destroy_qp(id);
        rdma_destroy_srq(id);
        rdma_destroy_id(id);
    }
}

/// Timeout argument that the called functions require; the operations return immediately.
const TIMEOUT_MS: c_int = 2_000;
