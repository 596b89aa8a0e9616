//! What is exported because programs are linked against it, and refused: multicast groups, sockets over RDMA.
//!
//! Every one of these fails with `EOPNOTSUPP`, in its own way of failing.

use std::ffi::{c_char, c_int, c_void};

use super::abi::*;
use crate::abi::ibv_ece;
use crate::errno::{Errno, minus_one};

fn refuse() -> c_int {
    minus_one(Err(Errno::UNSUPPORTED))
}

/// `rdma_join_multicast`: there is nobody who would copy datagrams to the members of a group.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_join_multicast(
    _id: *mut rdma_cm_id,
    _address: *mut libc::sockaddr,
    _context: *mut c_void,
) -> c_int {
    refuse()
}

/// `rdma_join_multicast_ex`, likewise.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_join_multicast_ex(
    _id: *mut rdma_cm_id,
    _attributes: *mut c_void,
    _context: *mut c_void,
) -> c_int {
    refuse()
}

/// `rdma_leave_multicast`: nobody is in a group.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_leave_multicast(_id: *mut rdma_cm_id, _address: *mut libc::sockaddr) -> c_int {
    refuse()
}

/// `rdma_resolve_addrinfo`, of newer releases: names are looked up by `rdma_getaddrinfo` only.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_resolve_addrinfo(
    _id: *mut rdma_cm_id,
    _node: *const c_char,
    _service: *const c_char,
    _hints: *const rdma_addrinfo,
) -> c_int {
    refuse()
}

/// `rdma_query_addrinfo`, likewise.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_query_addrinfo(_id: *mut rdma_cm_id, _result: *mut *mut rdma_addrinfo) -> c_int {
    refuse()
}

/// `rdma_write_cm_event`, of newer releases: programs' own events do not travel through channels here.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_write_cm_event(_id: *mut rdma_cm_id, _event: u32, _status: c_int, _argument: u64) -> c_int {
    refuse()
}

/// `rdma_set_local_ece`: what both ends have to agree on (the transport) is agreed on without the program. So only
/// options that say nothing can be set.
///
/// # Safety
/// `ece` may be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_set_local_ece(_id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    // SAFETY: the caller's promise.
    let says_nothing = !ece.is_null() && unsafe { (*ece).vendor_id == 0 && (*ece).comp_mask == 0 };
    minus_one(if says_nothing { Ok(()) } else { Err(Errno::UNSUPPORTED) })
}

/// Calls of sockets over RDMA, by their C names.
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
    // Variadic in C; what follows is never looked at.
    rfcntl(c_int, c_int) -> c_int = -1;
    riomap(c_int, Buffer, usize, c_int, c_int, libc::off_t) -> libc::off_t = -1;
    riounmap(c_int, Buffer, usize) -> c_int = -1;
    repoll_create(c_int) -> c_int = -1;
    repoll_ctl(c_int, c_int, c_int, Buffer) -> c_int = -1;
    repoll_wait(c_int, Buffer, c_int, c_int) -> c_int = -1;
    riowrite(c_int, Buffer, usize, libc::off_t, c_int) -> usize = usize::MAX;
}
