//! The functions of the C library that programs call here.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Once};
use std::time::Duration;

use libc::{c_int, sockaddr, socklen_t};

use crate::accepted::Waiting;
use crate::bridge::{Bridge, MARK, preamble};
use crate::kernel::{self, Inside, original};
use crate::registry::{self, Names};
use crate::service::Service;
use crate::{fork, report, services};

/// Connects a socket: `connect(2)`. A TCP socket is connected by a stream if the other end has this library.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    if !kernel::is_inside() {
        let _inside = Inside::enter();
        // SAFETY: the program passes a valid address of this length.
        let to = unsafe { kernel::read_address(address, len) };
        if let Some(to) = to.filter(|to| can_connect(fd, *to)) {
            match by_stream(fd, to) {
                Ok(true) => return 0,
                Ok(false) => {}
                Err(error) => return failed(&error),
            }
        }
    }
    // SAFETY: the arguments are those of the program.
    unsafe { (original().connect)(fd, address, len) }
}

/// Makes a socket accept connections: `listen(2)`. A TCP socket accepts streams as well.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    // SAFETY: the arguments are those of the program.
    let result = unsafe { (original().listen)(fd, backlog) };
    if result == 0 && !kernel::is_inside() {
        let _inside = Inside::enter();
        offer_streams(fd);
    }
    result
}

/// Accepts a connection: `accept(2)`.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: the arguments are those of the program.
    unsafe { accept4(fd, address, len, 0) }
}

/// Accepts a connection with flags: `accept4(2)`.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept4(fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int {
    let service = Some(fd).filter(|_| !kernel::is_inside()).and_then(listener);
    loop {
        // The address is written again for each connection, up to the length that the program has given.
        // SAFETY: `len` is null or valid, as the program promises.
        let given = (!len.is_null()).then(|| unsafe { *len });
        // SAFETY: the arguments are those of the program.
        let accepted = unsafe { (original().accept4)(fd, address, len, flags) };
        let Some(service) = service.as_ref().filter(|_| accepted >= 0) else { return accepted };
        let _inside = Inside::enter();
        match identify(accepted, service) {
            Identity::Plain => return accepted,
            Identity::Stream(waiting, service) => match attach(accepted, waiting, service, flags) {
                Ok(own) => return own,
                Err(error) => report::note(format!("a connection was closed: {error}")),
            },
            Identity::Lost => {}
        }
        // SAFETY: the kernel has just returned the descriptor, which the program does not know.
        unsafe { libc::close(accepted) };
        if let Some(given) = given {
            // SAFETY: as above.
            unsafe { *len = given };
        }
    }
}

/// Returns the remote address of a socket: `getpeername(2)`.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getpeername(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: the arguments are those of the program.
    unsafe { name(fd, address, len, original().getpeername, |names| names.remote) }
}

/// Returns the local address of a socket: `getsockname(2)`.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockname(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: the arguments are those of the program.
    unsafe { name(fd, address, len, original().getsockname, |names| names.local) }
}

/// Returns an address of a socket.
///
/// # Safety
/// As for `getsockname(2)`.
unsafe fn name(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    by_kernel: kernel::Name,
    select: impl FnOnce(Names) -> SocketAddr,
) -> c_int {
    let names = if kernel::is_inside() { None } else { registry::names_of(|| kernel::inode(fd)) };
    let Some(names) = names.filter(|_| !address.is_null() && !len.is_null()) else {
        // SAFETY: the arguments are those of the program.
        return unsafe { by_kernel(fd, address, len) };
    };
    let (storage, own_len) = kernel::c_address(select(names));
    // SAFETY: the program passes the size of the memory at `address`; at most as much is written, and at most the size
    // of the storage is read.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const storage).cast::<u8>(), address.cast(), own_len.min(*len) as usize);
        *len = own_len;
    }
    0
}

/// Sets `errno`, and returns the result of a call that has failed.
fn failed(error: &io::Error) -> c_int {
    // SAFETY: the C library returns a valid pointer to the variable of this thread.
    unsafe { *libc::__errno_location() = error.raw_os_error().unwrap_or(libc::EIO) };
    -1
}

/// Returns whether a socket can be connected to `to` by a stream: one of TCP that is not connected, to an IPv4 address.
fn can_connect(fd: RawFd, to: SocketAddr) -> bool {
    matches!(kernel::canonical(to).ip(), IpAddr::V4(ip) if !ip.is_unspecified())
        && to.port() != 0
        && kernel::tcp_family(fd).is_some_and(|family| can_reach_loopback(fd, family))
        && kernel::remote_address(fd).is_err()
        && report::settings().is_some()
}

/// Returns whether a socket of this family can have IPv4 addresses.
fn can_reach_loopback(fd: RawFd, family: c_int) -> bool {
    family == libc::AF_INET
        || kernel::option(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY).is_ok_and(|only_v6| only_v6 == 0)
}

/// Connects the program's socket through a stream; returns false if the other end does not offer one.
///
/// # Errors
/// The kernel's error about the TCP connection.
fn by_stream(fd: RawFd, to: SocketAddr) -> io::Result<bool> {
    let (target, family) = (kernel::canonical(to), kernel::tcp_family(fd).unwrap_or(libc::AF_INET));
    let from = kernel::local_address(fd).map(|own| kernel::canonical(own).ip());
    let from = from.ok().filter(|ip| !ip.is_unspecified());
    let Some(service) = requesting_service(from, target) else { return Ok(false) };
    let shadow = kernel::tcp_socket()?;
    kernel::bind(shadow.as_raw_fd(), SocketAddr::new(from.unwrap_or(Ipv4Addr::UNSPECIFIED.into()), 0))?;
    let (port, token) = (kernel::local_address(shadow.as_raw_fd())?.port(), kernel::random()?);
    let Ok(id) = service.connect(target, (port, token)) else { return Ok(false) };
    let connected = kernel::connect_within(shadow.as_raw_fd(), target, TCP_TIMEOUT)
        .and_then(|()| kernel::send(shadow.as_fd(), &preamble(token)))
        .and_then(|_| kernel::connect_to_self(fd, family));
    match connected {
        Ok(end) => {
            let local = kernel::of_family(kernel::local_address(shadow.as_raw_fd())?, family);
            bridge(fd, end, shadow, Names { local, remote: to }, (&service, id, None));
            Ok(true)
        }
        Err(error) => {
            service.close(id);
            Err(error)
        }
    }
}

/// Connects the stream `id` to the program's socket `fd`, whose other end is `end`.
fn bridge(
    fd: RawFd,
    end: OwnedFd,
    shadow: OwnedFd,
    names: Names,
    (service, id, token): (&Arc<Service>, rnic_host::stream::StreamId, Option<u64>),
) {
    let inode = kernel::inode(fd).unwrap_or_default();
    let bridge = Bridge::new(end, shadow, inode, token);
    registry::lock().add_connection(inode, names, bridge.descriptors());
    service.attach(id, bridge);
}

/// Returns the service that requests streams, which is started if there is none.
fn requesting_service(from: Option<IpAddr>, to: SocketAddr) -> Option<Arc<Service>> {
    let any = if to.ip().is_loopback() { Ipv4Addr::LOCALHOST } else { Ipv4Addr::UNSPECIFIED };
    let ip = from.unwrap_or(any.into());
    if let Some(service) = services::lock().requesting(ip) {
        return Some(service);
    }
    start(SocketAddr::new(ip, 0), false)
}

fn start(bind: SocketAddr, accepts: bool) -> Option<Arc<Service>> {
    fork::watch();
    deliver_at_exit();
    match Service::start(bind, accepts) {
        Ok(service) => {
            services::lock().add(bind, accepts, &service);
            Some(service)
        }
        Err(why) => {
            let what = if accepts { format!("streams are not offered at {bind}") } else { "no streams".to_owned() };
            report::note(format!("{what}, only TCP: {why}"));
            None
        }
    }
}

/// Offers streams at the address of a listening socket, if it is one of TCP, for IPv4.
fn offer_streams(fd: RawFd) {
    let Some(family) = kernel::tcp_family(fd) else { return };
    // Connections of a port that several sockets share go to any of them, and those of a stream must go to one.
    let is_shared = kernel::option(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT).is_ok_and(|shared| shared != 0);
    if is_shared || !can_reach_loopback(fd, family) || report::settings().is_none() {
        return;
    }
    let (Some(inode), Ok(at)) = (kernel::inode(fd), kernel::local_address(fd)) else { return };
    let ip = match at.ip() {
        IpAddr::V6(ip) if ip == Ipv6Addr::UNSPECIFIED => Ipv4Addr::UNSPECIFIED.into(),
        ip => ip.to_canonical(),
    };
    let bind = SocketAddr::new(ip, at.port());
    if !ip.is_ipv4() || services::lock().listener(inode).is_some() {
        return;
    }
    let known = services::lock().accepting(bind);
    if let Some(service) = known.or_else(|| start(bind, true)) {
        services::lock().set_listener(inode, &service);
    }
}

/// Ways in which a listening socket of the program accepts incoming streams.
#[derive(Clone, Debug)]
enum Listener {
    /// A service of this process accepts the listener's connections.
    Own(Arc<Service>),
    /// A service of the parent process accepts the listener's connections, and cannot pass them to this process.
    OfParent,
}

/// Returns how the socket accepts streams, if it does.
fn listener(fd: RawFd) -> Option<Listener> {
    services::listener_of(|| kernel::inode(fd)).map(|service| service.map_or(Listener::OfParent, Listener::Own))
}

/// Kind of an accepted TCP connection.
enum Identity {
    /// A connection of a client without this library.
    Plain,
    /// The shadow of a stream.
    Stream(Waiting, Arc<Service>),
    /// The socket belongs to a stream that this process does not have.
    Lost,
}

fn identify(accepted: RawFd, listener: &Listener) -> Identity {
    // SAFETY: the descriptor is open during the call: the program does not know it yet.
    let connection = unsafe { BorrowedFd::borrow_raw(accepted) };
    let wait = match listener {
        Listener::Own(service) => {
            let from = kernel::remote_address(accepted).map(kernel::canonical);
            if let Some(waiting) = from.ok().and_then(|from| service.take_accepted(from)) {
                return Identity::Stream(waiting, Arc::clone(service));
            }
            Duration::ZERO
        }
        Listener::OfParent => FORKED_WAIT,
    };
    // A client sends the mark as soon as it is connected.
    if kernel::begins_with(connection, &MARK, wait) {
        report::note(match listener {
            Listener::Own(_) => "a stream failed before the program accepted it",
            Listener::OfParent => "a child process cannot accept streams for its parent; the connection was closed",
        });
        return Identity::Lost;
    }
    Identity::Plain
}

/// Returns a descriptor for the program, which is connected to the stream.
fn attach(accepted: RawFd, waiting: Waiting, service: Arc<Service>, flags: c_int) -> io::Result<RawFd> {
    let made = kernel::duplicate(accepted).and_then(|shadow| {
        let own = kernel::tcp_socket()?;
        let end = kernel::connect_to_self(own.as_raw_fd(), libc::AF_INET)?;
        let names = Names { local: kernel::local_address(accepted)?, remote: kernel::remote_address(accepted)? };
        bridge(own.as_raw_fd(), end, shadow, names, (&service, waiting.id, Some(waiting.token)));
        Ok(own)
    });
    match made {
        Ok(own) => {
            kernel::set_flags(own.as_raw_fd(), flags);
            // The program knows the connection by the number that the kernel has given.
            kernel::replace(accepted, own, flags)
        }
        Err(error) => {
            service.close(waiting.id);
            Err(error)
        }
    }
}

/// Arranges that data which the program has written is delivered before the process exits.
fn deliver_at_exit() {
    static AT_EXIT: Once = Once::new();
    AT_EXIT.call_once(|| {
        // SAFETY: the function exists until the process exits, because the library is never unloaded.
        unsafe { libc::atexit(deliver) };
    });
}

extern "C" fn deliver() {
    let _inside = Inside::enter();
    let services = services::all_at_exit();
    let done: Vec<_> = services.iter().map(|service| service.drain()).collect();
    for done in done {
        // The time limit is that of the thread; this one holds if the thread no longer runs.
        let _ = done.recv_timeout(EXIT_TIMEOUT);
    }
}

/// Time limit for the TCP connection that accompanies a stream.
const TCP_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for which a child process waits for the mark of a stream's connection at a socket of its parent.
const FORKED_WAIT: Duration = Duration::from_millis(200);

/// Time limit for the delivery of data when the process exits.
const EXIT_TIMEOUT: Duration = Duration::from_secs(4);
