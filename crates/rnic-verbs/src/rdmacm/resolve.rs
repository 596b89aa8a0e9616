//! Binding and resolution of addresses and routes: the C functions.

use std::ffi::c_int;

use super::abi::*;
use super::address::{bind, read, resolve, resolve_route};
use super::event::complete;
use super::id::object;
use crate::errno::minus_one;

/// Implements `rdma_bind_addr`.
///
/// # Safety
/// `id` is valid, `address` may be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_bind_addr(id: *mut rdma_cm_id, address: *mut libc::sockaddr) -> c_int {
    // SAFETY: guaranteed by the caller.
    minus_one(unsafe { read(address).and_then(|address| bind(object(id), address)) })
}

/// Implements `rdma_resolve_addr`. The timeout is not needed, because only the kernel is queried.
///
/// # Safety
/// `id` is valid, `source` is null or may be read, `destination` may be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    source: *mut libc::sockaddr,
    destination: *mut libc::sockaddr,
    _timeout_ms: c_int,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    let this = unsafe { object(id) };
    // SAFETY: guaranteed by the caller.
    let addresses = unsafe {
        let source = if source.is_null() { Ok(None) } else { read(source).map(Some) };
        source.and_then(|source| Ok((source, read(destination)?)))
    };
    let resolved = addresses.and_then(|(source, to)| resolve(this, source, to));
    minus_one(resolved.and_then(|()| complete(this)))
}

/// Implements `rdma_resolve_route`.
///
/// # Safety
/// `id` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_resolve_route(id: *mut rdma_cm_id, _timeout_ms: c_int) -> c_int {
    // SAFETY: guaranteed by the caller.
    let this = unsafe { object(id) };
    minus_one(resolve_route(this).and_then(|()| complete(this)))
}
