//! Functions that are exported only because programs are linked against them: multicast groups, sockets over RDMA.
//!
//! Every function here fails with `EOPNOTSUPP`, with its own error return value.

use std::ffi::{c_char, c_int, c_void};

use super::abi::*;
use crate::abi::ibv_ece;
use crate::errno::{Errno, minus_one};

fn refuse() -> c_int {
    minus_one(Err(Errno::UNSUPPORTED))
}

/// Implements `rdma_join_multicast`: not supported, because there is no component that would copy datagrams to the
/// members of a group.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_join_multicast(
    _id: *mut rdma_cm_id,
    _address: *mut libc::sockaddr,
    _context: *mut c_void,
) -> c_int {
    refuse()
}

/// Implements `rdma_join_multicast_ex`: not supported, as `rdma_join_multicast`.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_join_multicast_ex(
    _id: *mut rdma_cm_id,
    _attributes: *mut c_void,
    _context: *mut c_void,
) -> c_int {
    refuse()
}

/// Implements `rdma_leave_multicast`: not supported, because no identifier is in a group.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_leave_multicast(_id: *mut rdma_cm_id, _address: *mut libc::sockaddr) -> c_int {
    refuse()
}

/// Implements `rdma_resolve_addrinfo`, of newer releases: not supported; names are resolved by `rdma_getaddrinfo` only.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_resolve_addrinfo(
    _id: *mut rdma_cm_id,
    _node: *const c_char,
    _service: *const c_char,
    _hints: *const rdma_addrinfo,
) -> c_int {
    refuse()
}

/// Implements `rdma_query_addrinfo`: not supported, as `rdma_resolve_addrinfo`.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_query_addrinfo(_id: *mut rdma_cm_id, _result: *mut *mut rdma_addrinfo) -> c_int {
    refuse()
}

/// Implements `rdma_write_cm_event`, of newer releases: not supported; channels do not carry events of programs.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_write_cm_event(_id: *mut rdma_cm_id, _event: u32, _status: c_int, _argument: u64) -> c_int {
    refuse()
}

/// Implements `rdma_set_local_ece`: the transport, which must be the same at both ends, is negotiated without the
/// program, so only empty options are accepted.
///
/// # Safety
/// `ece` may be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_set_local_ece(_id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    // SAFETY: guaranteed by the caller.
    let is_empty = !ece.is_null() && unsafe { (*ece).vendor_id == 0 && (*ece).comp_mask == 0 };
    minus_one(if is_empty { Ok(()) } else { Err(Errno::UNSUPPORTED) })
}

/// Declares the calls of sockets over RDMA, by their C names.
macro_rules! sockets {
    ($($name:ident($($argument:ty),*) -> $kind:ty = $failure:expr;)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "`: sockets over RDMA are not supported.")]
            #[unsafe(no_mangle)]
            pub extern "C" fn $name($(_: $argument),*) -> $kind {
                Errno::UNSUPPORTED.set();
                $failure
            }
        )*
    };
}

type Address = *mut libc::sockaddr;
type Length = *mut libc::socklen_t;
type Buffer = *mut c_void;
type Set = *mut c_void;

sockets! {
    rsocket(c_int, c_int, c_int) -> c_int = -1;
    rbind(c_int, Address, libc::socklen_t) -> c_int = -1;
    rlisten(c_int, c_int) -> c_int = -1;
    raccept(c_int, Address, Length) -> c_int = -1;
    rconnect(c_int, Address, libc::socklen_t) -> c_int = -1;
    rshutdown(c_int, c_int) -> c_int = -1;
    rclose(c_int) -> c_int = -1;
    rrecv(c_int, Buffer, usize, c_int) -> isize = -1;
    rrecvfrom(c_int, Buffer, usize, c_int, Address, Length) -> isize = -1;
    rrecvmsg(c_int, *mut libc::msghdr, c_int) -> isize = -1;
    rsend(c_int, Buffer, usize, c_int) -> isize = -1;
    rsendto(c_int, Buffer, usize, c_int, Address, libc::socklen_t) -> isize = -1;
    rsendmsg(c_int, *mut libc::msghdr, c_int) -> isize = -1;
    rread(c_int, Buffer, usize) -> isize = -1;
    rreadv(c_int, *mut libc::iovec, c_int) -> isize = -1;
    rwrite(c_int, Buffer, usize) -> isize = -1;
    rwritev(c_int, *mut libc::iovec, c_int) -> isize = -1;
    rpoll(*mut libc::pollfd, libc::nfds_t, c_int) -> c_int = -1;
    rselect(c_int, Set, Set, Set, *mut libc::timeval) -> c_int = -1;
    rgetpeername(c_int, Address, Length) -> c_int = -1;
    rgetsockname(c_int, Address, Length) -> c_int = -1;
    rsetsockopt(c_int, c_int, c_int, Buffer, libc::socklen_t) -> c_int = -1;
    rgetsockopt(c_int, c_int, c_int, Buffer, Length) -> c_int = -1;
    // Variadic in C; further arguments are ignored.
    rfcntl(c_int, c_int) -> c_int = -1;
    riomap(c_int, Buffer, usize, c_int, c_int, libc::off_t) -> libc::off_t = -1;
    riounmap(c_int, Buffer, usize) -> c_int = -1;
    repoll_create(c_int) -> c_int = -1;
    repoll_ctl(c_int, c_int, c_int, Buffer) -> c_int = -1;
    repoll_wait(c_int, Buffer, c_int, c_int) -> c_int = -1;
    riowrite(c_int, Buffer, usize, libc::off_t, c_int) -> usize = usize::MAX;
}
