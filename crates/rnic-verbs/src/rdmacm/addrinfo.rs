//! `rdma_getaddrinfo`: resolves names and services to addresses, with the C library's resolver.

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::ptr;

use super::abi::*;
use super::address;
use crate::abi::*;
use crate::errno::{Errno, Result, minus_one};

/// Allocates zeroed memory from the C library. Programs store pieces of their own in the structure, or allocate one
/// themselves, and release all of it through `rdma_freeaddrinfo`, so every piece must be suitable for `free`.
fn allocate<T>() -> Result<*mut T> {
    // SAFETY: an allocation, which may fail.
    let place = unsafe { libc::calloc(1, size_of::<T>()) };
    if place.is_null() { Err(Errno::NO_MEMORY) } else { Ok(place.cast()) }
}

/// A result list of the resolver.
struct Found(*mut libc::addrinfo);

impl Drop for Found {
    fn drop(&mut self) {
        // SAFETY: `getaddrinfo` allocated the list.
        unsafe { libc::freeaddrinfo(self.0) };
    }
}

/// # Safety
/// `node` and `service` are null or C strings.
unsafe fn look_up(node: *const c_char, service: *const c_char, flags: c_int, family: c_int) -> Result<Found> {
    // SAFETY: all zeros are valid hints.
    let mut hints: libc::addrinfo = unsafe { MaybeUninit::zeroed().assume_init() };
    hints.ai_socktype = libc::SOCK_STREAM;
    if flags & RAI_PASSIVE != 0 {
        hints.ai_flags |= libc::AI_PASSIVE;
    }
    if flags & RAI_NUMERICHOST != 0 {
        hints.ai_flags |= libc::AI_NUMERICHOST;
    }
    hints.ai_family = family;
    let mut list = ptr::null_mut();
    // SAFETY: guaranteed by the caller; hints and result are local variables.
    match unsafe { libc::getaddrinfo(node, service, &raw const hints, &raw mut list) } {
        0 if !list.is_null() => Ok(Found(list)),
        libc::EAI_SYSTEM => Err(Errno::last()),
        libc::EAI_MEMORY => Err(Errno::NO_MEMORY),
        libc::EAI_AGAIN => Err(Errno(libc::EAGAIN)),
        libc::EAI_FAMILY => Err(Errno(libc::EAFNOSUPPORT)),
        _ => Err(Errno(libc::ENODEV)),
    }
}

/// Returns the queue pair type and the port space; a missing one is derived from the other.
fn kind(hints: Option<&rdma_addrinfo>) -> Result<(c_int, c_int)> {
    let (given_type, given_space) = hints.map_or((0, 0), |hints| (hints.ai_qp_type, hints.ai_port_space));
    let space = match (given_space.cast_unsigned(), given_type.cast_unsigned()) {
        (0, IBV_QPT_UD) => RDMA_PS_UDP,
        (0, 0 | IBV_QPT_RC) => RDMA_PS_TCP,
        (0, IBV_QPT_UC) => RDMA_PS_IB,
        (0, _) => return Err(Errno::UNSUPPORTED),
        (space @ (RDMA_PS_TCP | RDMA_PS_UDP | RDMA_PS_IB), _) => space,
        _ => return Err(Errno::INVALID),
    };
    let qp_type = match given_type.cast_unsigned() {
        0 if space == RDMA_PS_UDP => IBV_QPT_UD,
        0 => IBV_QPT_RC,
        given @ (IBV_QPT_RC | IBV_QPT_UC | IBV_QPT_UD) => given,
        _ => return Err(Errno::UNSUPPORTED),
    };
    Ok((qp_type.cast_signed(), space.cast_signed()))
}

/// # Safety
/// As for `rdma_getaddrinfo`.
unsafe fn get(
    node: *const c_char,
    service: *const c_char,
    hints: Option<&rdma_addrinfo>,
) -> Result<*mut rdma_addrinfo> {
    if node.is_null() && service.is_null() && hints.is_none() {
        return Err(Errno::INVALID);
    }
    let flags = hints.map_or(0, |hints| hints.ai_flags);
    let is_passive = flags & RAI_PASSIVE != 0;
    let family = match hints.map_or(0, |hints| hints.ai_family) {
        family @ (libc::AF_INET | libc::AF_INET6) => family,
        _ => libc::AF_UNSPEC,
    };
    let (qp_type, space) = kind(hints)?;
    let mut name = ptr::null_mut();
    let named = if node.is_null() && service.is_null() {
        None
    } else {
        // SAFETY: guaranteed by the caller; the list has a first element, whose address may be read.
        unsafe {
            let found = look_up(node, service, flags, family)?;
            if !(*found.0).ai_canonname.is_null() {
                name = libc::strdup((*found.0).ai_canonname);
            }
            Some(address::read((*found.0).ai_addr)?)
        }
    };
    let read_hint = |address: *mut libc::sockaddr| match address.is_null() {
        true => Ok(None),
        // SAFETY: guaranteed by the caller.
        false => unsafe { address::read(address) }.map(Some),
    };
    let (source, destination) = match hints {
        _ if is_passive && named.is_some() => (named, None),
        Some(hints) => {
            (read_hint(hints.ai_src_addr)?, named.map_or_else(|| read_hint(hints.ai_dst_addr), |it| Ok(Some(it)))?)
        }
        None => (None, named),
    };
    let some = destination.or(source).ok_or(Errno::INVALID)?;
    let info = allocate::<rdma_addrinfo>()?;
    // SAFETY: the structure is new, zeroed, and has no other owner.
    let c = unsafe { &mut *info };
    c.ai_flags = flags;
    c.ai_family = if some.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    (c.ai_qp_type, c.ai_port_space) = (qp_type, space);
    if let Some(source) = source {
        (c.ai_src_len, c.ai_src_addr) = put(source)?;
    }
    if let Some(destination) = destination {
        (c.ai_dst_len, c.ai_dst_addr) = put(destination)?;
    }
    *(if is_passive { &mut c.ai_src_canonname } else { &mut c.ai_dst_canonname }) = name;
    Ok(info)
}

/// Stores an address in newly allocated memory; returns its length and a pointer to it.
fn put(address: SocketAddr) -> Result<(libc::socklen_t, *mut libc::sockaddr)> {
    let len = match address {
        SocketAddr::V4(_) => size_of::<libc::sockaddr_in>(),
        SocketAddr::V6(_) => size_of::<libc::sockaddr_in6>(),
    };
    let place = allocate::<libc::sockaddr_storage>()?;
    // SAFETY: the storage is new and has space for any address.
    unsafe { place.write(address::write(address)) };
    Ok((len as libc::socklen_t, place.cast()))
}

/// Implements `rdma_getaddrinfo`.
///
/// # Safety
/// `node` and `service` are null or C strings, `hints` is null or may be read, `result` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    result: *mut *mut rdma_addrinfo,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    minus_one(unsafe { get(node, service, hints.as_ref()) }.map(|found| unsafe { *result = found }))
}

/// Implements `rdma_freeaddrinfo`.
///
/// # Safety
/// `list` is null or from `rdma_getaddrinfo`, and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_freeaddrinfo(list: *mut rdma_addrinfo) {
    let mut next = list;
    while !next.is_null() {
        // SAFETY: every piece was allocated by the C library's allocator, by this library or by the program, and the
        // caller gives up ownership. `free` accepts null too.
        unsafe {
            let c = next.read();
            libc::free(c.ai_src_addr.cast());
            libc::free(c.ai_dst_addr.cast());
            libc::free(c.ai_src_canonname.cast());
            libc::free(c.ai_dst_canonname.cast());
            libc::free(c.ai_route);
            libc::free(c.ai_connect);
            libc::free(next.cast());
            next = c.ai_next;
        }
    }
}

/// Returns the private data of a resolution result that is to be sent before the program's private data.
///
/// # Safety
/// `info` may be read.
pub(super) unsafe fn connect_data(info: &rdma_addrinfo) -> Vec<u8> {
    let data: *const c_void = info.ai_connect;
    if data.is_null() || info.ai_connect_len == 0 {
        return Vec::new();
    }
    // SAFETY: guaranteed by the caller.
    unsafe { std::slice::from_raw_parts(data.cast::<u8>(), info.ai_connect_len) }.to_vec()
}
