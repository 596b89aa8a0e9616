//! Addresses and routes, as programs ask for them.

use std::ffi::c_int;

use super::abi::*;
use super::address::{bind, read, resolve, resolve_route};
use super::event::complete;
use super::id::object;
use crate::errno::minus_one;

/// `rdma_bind_addr`.
///
/// # Safety
/// `id` is living, `address` may be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_bind_addr(id: *mut rdma_cm_id, address: *mut libc::sockaddr) -> c_int {
    // SAFETY: the caller's promise.
    minus_one(unsafe { read(address).and_then(|address| bind(object(id), address)) })
}

/// `rdma_resolve_addr`. The timeout is not needed: nobody is asked but the kernel.
///
/// # Safety
/// `id` is living, `source` is null or may be read, `destination` may be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    source: *mut libc::sockaddr,
    destination: *mut libc::sockaddr,
    _timeout_ms: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let this = unsafe { object(id) };
    // SAFETY: the caller's promise.
    let addresses = unsafe {
        let source = if source.is_null() { Ok(None) } else { read(source).map(Some) };
        source.and_then(|source| Ok((source, read(destination)?)))
    };
    let resolved = addresses.and_then(|(source, to)| resolve(this, source, to));
    minus_one(resolved.and_then(|()| complete(this)))
}

/// `rdma_resolve_route`.
///
/// # Safety
/// `id` is living.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_resolve_route(id: *mut rdma_cm_id, _timeout_ms: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let this = unsafe { object(id) };
    minus_one(resolve_route(this).and_then(|()| complete(this)))
}
