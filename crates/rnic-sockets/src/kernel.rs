//! The C library's own functions under the names that this library replaces, and system calls on sockets.

use std::cell::Cell;
use std::ffi::CStr;
use std::io;
use std::mem::{MaybeUninit, size_of, transmute};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;

use libc::{c_int, sockaddr, sockaddr_storage, socklen_t};

/// Type of `connect`.
pub(crate) type Connect = unsafe extern "C" fn(c_int, *const sockaddr, socklen_t) -> c_int;
/// Type of `listen`.
pub(crate) type Listen = unsafe extern "C" fn(c_int, c_int) -> c_int;
/// Type of `accept4`.
pub(crate) type Accept4 = unsafe extern "C" fn(c_int, *mut sockaddr, *mut socklen_t, c_int) -> c_int;
/// Type of `getpeername` and `getsockname`.
pub(crate) type Name = unsafe extern "C" fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int;

/// The functions of the C library that this library replaces.
#[derive(Clone, Copy)]
pub(crate) struct Original {
    pub(crate) connect: Connect,
    pub(crate) listen: Listen,
    pub(crate) accept4: Accept4,
    pub(crate) getpeername: Name,
    pub(crate) getsockname: Name,
}

/// Returns the C library's functions.
pub(crate) fn original() -> &'static Original {
    static ORIGINAL: OnceLock<Original> = OnceLock::new();
    ORIGINAL.get_or_init(|| {
        // SAFETY: these functions of the C library have these types (their man pages).
        unsafe {
            Original {
                connect: transmute::<*mut libc::c_void, Connect>(next(c"connect")),
                listen: transmute::<*mut libc::c_void, Listen>(next(c"listen")),
                accept4: transmute::<*mut libc::c_void, Accept4>(next(c"accept4")),
                getpeername: transmute::<*mut libc::c_void, Name>(next(c"getpeername")),
                getsockname: transmute::<*mut libc::c_void, Name>(next(c"getsockname")),
            }
        }
    })
}

fn next(name: &CStr) -> *mut libc::c_void {
    // SAFETY: `name` is a valid string.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    assert!(!found.is_null(), "the C library has no function {name:?}");
    found
}

thread_local! {
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether the calling thread runs code of this library, whose calls are those of the kernel.
pub(crate) fn is_inside() -> bool {
    IS_INSIDE.try_with(Cell::get).unwrap_or(true)
}

/// Marks the calling thread as running code of this library, until it is dropped.
pub(crate) struct Inside(());

impl Inside {
    pub(crate) fn enter() -> Self {
        let _ = IS_INSIDE.try_with(|inside| inside.set(true));
        Self(())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let _ = IS_INSIDE.try_with(|inside| inside.set(false));
    }
}

/// Returns the error of the last call as a result.
pub(crate) fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Returns a value of a socket option of type `int`.
pub(crate) fn option(fd: RawFd, level: c_int, name: c_int) -> io::Result<c_int> {
    let (mut value, mut len) = (0, size_of::<c_int>() as socklen_t);
    // SAFETY: `value` and `len` are of the types that the call writes.
    check(unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut len) })?;
    Ok(value)
}

/// Returns whether a socket is one of TCP over IPv4 or IPv6, and its family.
pub(crate) fn tcp_family(fd: RawFd) -> Option<c_int> {
    let family = option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN).ok()?;
    let is_tcp = option(fd, libc::SOL_SOCKET, libc::SO_TYPE).ok()? == libc::SOCK_STREAM
        && option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL).ok()? == libc::IPPROTO_TCP;
    (is_tcp && (family == libc::AF_INET || family == libc::AF_INET6)).then_some(family)
}

/// Returns the number that identifies an open socket in this system, also through copies of its descriptor.
pub(crate) fn inode(fd: RawFd) -> Option<u64> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the call writes a complete structure if it succeeds.
    check(unsafe { libc::fstat(fd, status.as_mut_ptr()) }).ok()?;
    // SAFETY: the call has succeeded.
    Some(unsafe { status.assume_init() }.st_ino)
}

/// Returns the local address of a socket, as the kernel knows it.
pub(crate) fn local_address(fd: RawFd) -> io::Result<SocketAddr> {
    address_by(original().getsockname, fd)
}

/// Returns the remote address of a socket, as the kernel knows it.
pub(crate) fn remote_address(fd: RawFd) -> io::Result<SocketAddr> {
    address_by(original().getpeername, fd)
}

fn address_by(call: Name, fd: RawFd) -> io::Result<SocketAddr> {
    // SAFETY: any bytes are a valid storage; zero is a family without address.
    let mut storage: sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut len = size_of::<sockaddr_storage>() as socklen_t;
    // SAFETY: the storage has the length that is passed.
    check(unsafe { call(fd, (&raw mut storage).cast(), &raw mut len) })?;
    // SAFETY: the storage is large enough for every family.
    unsafe { read_address((&raw const storage).cast(), len) }.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Returns the address that `address` points to, if it is of IP.
///
/// # Safety
/// `address` must be valid for reading `len` bytes.
pub(crate) unsafe fn read_address(address: *const sockaddr, len: socklen_t) -> Option<SocketAddr> {
    let len = len as usize;
    if address.is_null() || len < size_of::<libc::sa_family_t>() {
        return None;
    }
    // SAFETY: the family is at the beginning, and `len` bytes can be read.
    let family = c_int::from(unsafe { (*address).sa_family });
    if family == libc::AF_INET && len >= size_of::<libc::sockaddr_in>() {
        // SAFETY: as above; the family states the type.
        let found = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
        let ip = Ipv4Addr::from(u32::from_be(found.sin_addr.s_addr));
        return Some(SocketAddrV4::new(ip, u16::from_be(found.sin_port)).into());
    }
    if family == libc::AF_INET6 && len >= size_of::<libc::sockaddr_in6>() {
        // SAFETY: as above.
        let found = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
        let ip = Ipv6Addr::from(found.sin6_addr.s6_addr);
        return Some(SocketAddrV6::new(ip, u16::from_be(found.sin6_port), 0, found.sin6_scope_id).into());
    }
    None
}

/// Returns `address` as a structure of C, and its length.
pub(crate) fn c_address(address: SocketAddr) -> (sockaddr_storage, socklen_t) {
    // SAFETY: any bytes are a valid storage.
    let mut storage: sockaddr_storage = unsafe { std::mem::zeroed() };
    let at = &raw mut storage;
    let len = match address {
        SocketAddr::V4(address) => {
            let value = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(*address.ip()).to_be() },
                sin_zero: [0; 8],
            };
            // SAFETY: the storage is larger, and aligned for every family.
            unsafe { at.cast::<libc::sockaddr_in>().write(value) };
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(address) => {
            let value = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: address.scope_id(),
            };
            // SAFETY: as above.
            unsafe { at.cast::<libc::sockaddr_in6>().write(value) };
            size_of::<libc::sockaddr_in6>()
        }
    };
    (storage, len as socklen_t)
}

/// Returns `address` in the form that a socket of this family shows.
pub(crate) fn of_family(address: SocketAddr, family: c_int) -> SocketAddr {
    match (address.ip(), family) {
        (IpAddr::V4(ip), libc::AF_INET6) => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
        _ => address,
    }
}

/// Opens a TCP socket for IPv4, which programs that are started do not inherit.
pub(crate) fn tcp_socket() -> io::Result<OwnedFd> {
    // SAFETY: a system call without pointers.
    let fd = check(unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the kernel has just returned the descriptor, so it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Binds a socket.
pub(crate) fn bind(fd: RawFd, to: SocketAddr) -> io::Result<()> {
    let (storage, len) = c_address(to);
    // SAFETY: the address has this length.
    check(unsafe { libc::bind(fd, (&raw const storage).cast(), len) }).map(drop)
}

/// Connects a socket by the kernel.
pub(crate) fn connect(fd: RawFd, to: SocketAddr) -> io::Result<()> {
    let (storage, len) = c_address(to);
    // SAFETY: the address has this length.
    check(unsafe { (original().connect)(fd, (&raw const storage).cast(), len) }).map(drop)
}

/// Connects a socket by the kernel within this time.
pub(crate) fn connect_within(fd: RawFd, to: SocketAddr, timeout: std::time::Duration) -> io::Result<()> {
    let time = libc::timeval { tv_sec: timeout.as_secs() as libc::time_t, tv_usec: 0 };
    let len = size_of::<libc::timeval>() as socklen_t;
    // SAFETY: the option's value is of this type and length.
    check(unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_SNDTIMEO, (&raw const time).cast(), len) })?;
    connect(fd, to).map_err(|error| match error.raw_os_error() {
        Some(libc::EINPROGRESS | libc::EAGAIN) => io::Error::from_raw_os_error(libc::ETIMEDOUT),
        _ => error,
    })
}

/// Makes a loopback connection of `socket`; returns its other end.
pub(crate) fn connect_to_self(socket: RawFd, family: c_int) -> io::Result<OwnedFd> {
    let listener = tcp_socket()?;
    bind(listener.as_raw_fd(), SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    // SAFETY: a system call without pointers.
    check(unsafe { (original().listen)(listener.as_raw_fd(), BACKLOG) })?;
    let at = of_family(local_address(listener.as_raw_fd())?, family);
    match connect(socket, at) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => return Err(error),
        // On loopback, a connection is made before the call returns, also in non-blocking mode.
        _ => {}
    }
    let own = local_address(socket)?;
    for _ in 0..ACCEPT_TRIES {
        if !wait_readable(listener.as_raw_fd(), CONNECT_MS)? {
            break;
        }
        // SAFETY: no address is requested.
        let fd = unsafe {
            (original().accept4)(
                listener.as_raw_fd(),
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
            )
        };
        // SAFETY: the kernel has just returned the descriptor, so it has no other owner.
        let end = unsafe { OwnedFd::from_raw_fd(check(fd)?) };
        // Any process of the machine can connect to the port.
        if remote_address(end.as_raw_fd()).is_ok_and(|from| from == canonical(own)) {
            set_no_delay(&end);
            return Ok(end);
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// Returns `address` with an IPv4 address if it is one in the form of IPv6.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn set_no_delay(end: &OwnedFd) {
    let on: c_int = 1;
    let len = size_of::<c_int>() as socklen_t;
    // SAFETY: the option's value is of this type and length. An error only delays small segments.
    unsafe { libc::setsockopt(end.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_NODELAY, (&raw const on).cast(), len) };
}

/// Closes a connection so that the other end sees a reset.
pub(crate) fn reset(end: OwnedFd) {
    let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
    let len = size_of::<libc::linger>() as socklen_t;
    // SAFETY: the option's value is of this type and length. After an error the connection is closed without a reset.
    unsafe { libc::setsockopt(end.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, (&raw const at_once).cast(), len) };
    drop(end);
}

/// Ends the sending direction of a connection.
pub(crate) fn shut_down_sending(end: &OwnedFd) {
    // SAFETY: a system call without pointers. If the connection has been reset, there is nothing to end.
    unsafe { libc::shutdown(end.as_raw_fd(), libc::SHUT_WR) };
}

/// Receives bytes without waiting.
pub(crate) fn receive(fd: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the buffer has this length.
    let len = unsafe { libc::recv(fd.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), libc::MSG_DONTWAIT) };
    usize::try_from(len).map_err(|_| io::Error::last_os_error())
}

/// Sends bytes without blocking, and without raising SIGPIPE if the peer has closed the connection.
pub(crate) fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the buffer has this length.
    let len = unsafe { libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
    usize::try_from(len).map_err(|_| io::Error::last_os_error())
}

/// Waits until a socket is readable; returns false after `timeout_ms`.
fn wait_readable(fd: RawFd, timeout_ms: c_int) -> io::Result<bool> {
    let mut wanted = [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }];
    loop {
        match wait(&mut wanted, Some(std::time::Duration::from_millis(timeout_ms as u64))) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result.map(|()| wanted[0].revents != 0),
        }
    }
}

/// Waits for events on descriptors.
pub(crate) fn wait(wanted: &mut [libc::pollfd], timeout: Option<std::time::Duration>) -> io::Result<()> {
    let time = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs() as libc::time_t,
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the array has this length; the time is null or valid during the call.
    check(unsafe { libc::ppoll(wanted.as_mut_ptr(), wanted.len() as libc::nfds_t, time, std::ptr::null()) }).map(drop)
}

/// Creates a descriptor by which a thread is woken.
pub(crate) fn event() -> io::Result<OwnedFd> {
    // SAFETY: a system call without pointers.
    let fd = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
    // SAFETY: the kernel has just returned the descriptor, so it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Wakes the thread that waits for `event`.
pub(crate) fn signal(event: &OwnedFd) {
    let one = 1u64;
    // SAFETY: eight bytes are read. If the counter is full, the thread is being woken already.
    unsafe { libc::write(event.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
}

/// Clears `event`.
pub(crate) fn clear(event: &OwnedFd) {
    let mut count = 0u64;
    // SAFETY: eight bytes are written. If the counter is zero, there is nothing to clear.
    unsafe { libc::read(event.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>()) };
}

/// Sets the status flags of a socket as `accept4` does: `SOCK_NONBLOCK`.
pub(crate) fn set_flags(fd: RawFd, flags: c_int) {
    if flags & libc::SOCK_NONBLOCK != 0 {
        // SAFETY: system calls on an open descriptor, without pointers; they do not fail for sockets.
        unsafe { libc::fcntl(fd, libc::F_SETFL, libc::fcntl(fd, libc::F_GETFL) | libc::O_NONBLOCK) };
    }
}

/// Returns another descriptor of an open socket, which programs that are started do not inherit.
pub(crate) fn duplicate(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: a system call without pointers.
    let copy = check(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, FIRST_COPY) })?;
    // SAFETY: the kernel has just returned the descriptor, so it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Replaces `fd`, which the program has not received yet, by a descriptor of the socket `by`, with the flags of
/// `accept4`.
pub(crate) fn replace(fd: RawFd, by: OwnedFd, flags: c_int) -> io::Result<RawFd> {
    let flags = if flags & libc::SOCK_CLOEXEC == 0 { 0 } else { libc::O_CLOEXEC };
    // SAFETY: a system call without pointers; `fd` belongs to the caller.
    check(unsafe { libc::dup3(by.as_raw_fd(), fd, flags) })
}

/// Returns whether the first bytes that arrive within `timeout` are `mark`. The bytes are not consumed.
pub(crate) fn begins_with(connection: BorrowedFd<'_>, mark: &[u8], timeout: std::time::Duration) -> bool {
    let fd = connection.as_raw_fd();
    if !timeout.is_zero() && !wait_readable(fd, timeout.as_millis() as c_int).unwrap_or(false) {
        return false;
    }
    let mut found = [0u8; 8];
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: the buffer has this length.
    let len = unsafe { libc::recv(fd, found.as_mut_ptr().cast(), found.len(), flags) };
    len == found.len() as isize && found == *mark
}

/// Returns random bits.
pub(crate) fn random() -> io::Result<u64> {
    let mut bits = 0u64;
    // SAFETY: eight bytes are written.
    let len = unsafe { libc::getrandom((&raw mut bits).cast(), size_of::<u64>(), 0) };
    if len == size_of::<u64>() as isize { Ok(bits) } else { Err(io::Error::last_os_error()) }
}

/// Starts a thread with all of the program's POSIX signals blocked.
pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    // SAFETY: signal sets are plain bits, initialized before they are read.
    let previous = unsafe {
        let mut all = std::mem::zeroed();
        let mut previous = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut previous);
        previous
    };
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        // All calls of this thread are those of the kernel.
        std::mem::forget(Inside::enter());
        work();
    });
    // SAFETY: a signal set that the system has filled in.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const previous, std::ptr::null_mut()) };
    started.map(drop)
}

/// Connections that may wait at the listener of a loopback connection.
const BACKLOG: c_int = 8;

/// Connections of other processes that are discarded there.
const ACCEPT_TRIES: usize = 8;

/// Time limit of a loopback connection, in milliseconds.
const CONNECT_MS: c_int = 1_000;

/// Lowest number of a duplicated descriptor: programs that use `select` need small numbers for theirs.
const FIRST_COPY: c_int = 3;
