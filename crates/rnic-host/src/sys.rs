//! System calls on UDP sockets.
//!
//! Each function here is a thin, checked wrapper of one system call; the callers decide which packets to send to
//! which peer, and how to handle errors. Linux only: segmentation offload (`UDP_SEGMENT`, `UDP_GRO`; udp(7)), many
//! datagrams per call (`sendmmsg`, `recvmmsg`), the error queue (`IP_RECVERR`; ip(7)). `sendmmsg` and `recvmmsg`
//! bypass the C library: its wrappers are cancellation points, and a thread of the program that is cancelled there
//! would hold the NIC's lock forever.
//!
//! No existing crate covers all of this: `quinn-udp` sends one train per call and does not report errors of the
//! network; `socket2` has no call for many datagrams. `socket2` is used to open and bind sockets and to set plain
//! options.

mod buffer_level;
mod control;
pub mod event;
pub mod interfaces;
mod monotonic;
mod processor;
mod slice;
pub mod unix;

use std::io::{self, IoSlice};
use std::mem::{MaybeUninit, size_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;

use arrayvec::ArrayVec;
use libc::{c_int, c_void};
use socket2::{Domain, Protocol, SockAddr, Type};

use crate::ip_fields::PackedIpFields;
use control::{Control, RECEIVED_BYTES, control_messages};
use monotonic::nanoseconds;
pub use monotonic::{monotonic_ns, realtime_ns};
pub use processor::OnProcessor;
pub use slice::shorten_slices;

/// Maximum number of buffers that one call sends or receives, each with one or several datagrams: enough to make the
/// cost of the call small.
pub const MESSAGES_MAX: usize = 32;

/// Size of a receive buffer in bytes: the most that the kernel merges (GRO) is one full IP datagram.
pub const RECEIVE_BUFFER_BYTES: usize = 1 << 16;

/// Maximum number of datagrams into which the kernel splits one buffer: every kernel with `UDP_SEGMENT` accepts it
/// (`UDP_MAX_SEGMENTS`, 64 until Linux 6.8).
pub const SEGMENTS_MAX: usize = 64;

/// Options with which a socket is opened.
#[derive(Clone, Copy, Debug)]
pub struct SocketOptions {
    /// Local address; port 0 lets the kernel choose.
    pub bind: SocketAddr,
    /// Size of the receive buffer to request, in bytes.
    pub receive_buffer_bytes: usize,
    /// Size of the send buffer to request, in bytes.
    pub send_buffer_bytes: usize,
    /// True to let the kernel merge received datagrams into one buffer (GRO).
    pub receive_offload: bool,
    /// True to share the address with other sockets of this user that set this option too.
    pub shares_port: bool,
    /// True to accept IPv6 datagrams without a checksum, which RoCEv2 adapters send: the ICRC protects them.
    pub takes_no_checksum: bool,
    /// True to mark sent packets as ECN capable, so that switches may mark instead of drop them (RFC 3168).
    pub marks_congestion: bool,
    /// True to report for each received packet whether it was marked.
    pub reports_ecn: bool,
    /// True to receive nothing: the kernel drops arriving datagrams. Reported errors are still received.
    pub drops_all_input: bool,
}

impl SocketOptions {
    /// Returns the default options: exclusive use of the address `bind`, and these buffer sizes.
    pub fn at(bind: SocketAddr, receive_buffer_bytes: usize, send_buffer_bytes: usize, receive_offload: bool) -> Self {
        Self {
            bind,
            receive_buffer_bytes,
            send_buffer_bytes,
            receive_offload,
            shares_port: false,
            takes_no_checksum: false,
            marks_congestion: false,
            reports_ecn: false,
            drops_all_input: false,
        }
    }
}

/// A datagram to send, or several in one buffer (GSO): each `segment` bytes of `parts` are one datagram, the last may
/// be shorter.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Destination.
    pub to: &'a SockAddr,
    /// Local source address; `None` uses the address that the socket is bound to.
    pub from: Option<IpAddr>,
    /// The bytes, in order.
    pub parts: &'a [IoSlice<'a>],
    /// Number of bytes of each datagram, if the kernel is to split the buffer (GSO).
    pub segment: Option<u16>,
    /// Other fields of the IP headers.
    pub ip_fields: PackedIpFields,
}

/// Properties of a received datagram, or of several that the kernel has merged (GRO).
#[derive(Clone, Copy, Debug)]
pub struct Incoming {
    /// Source address.
    pub source: SocketAddr,
    /// Local address at which the datagram arrived, if the socket is bound to all local addresses.
    pub local: Option<IpAddr>,
    /// Total length in bytes.
    pub len: usize,
    /// Number of bytes of each merged datagram (GRO); the last may be shorter.
    pub segment: usize,
    /// Set when it was longer than the buffer and has been truncated.
    pub truncated: bool,
    /// Set when it was marked for congestion, if the socket reports this.
    pub congested: bool,
    /// Other fields of its IP header, if the socket reports them ([`UdpSocket::enable_ip_fields_reports`]).
    pub ip_fields: PackedIpFields,
    /// Time at which the kernel received it, of the real-time clock, in nanoseconds, if the socket reports it
    /// ([`UdpSocket::enable_time_stamps`]); 0 otherwise.
    pub stamped_ns: u64,
}

/// An error that the network or the kernel reported about a datagram that was sent earlier.
///
/// Any host can make the network report errors: the kernel compares addresses and ports with those of the socket, and
/// nothing else. An error may be trusted only if [`Self::quoted`] contains data that only the two ends and the path
/// between them know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeferredError {
    /// Destination of the datagram, when it is known.
    pub to: Option<SocketAddr>,
    /// Error number (errno).
    pub errno: i32,
    /// The first bytes of the datagram that caused the error, as far as the report quotes it.
    pub quoted: Quoted,
}

/// The bytes that an error report quotes.
pub type Quoted = ArrayVec<u8, QUOTED_BYTES>;

/// Maximum length of a quote in bytes: enough to recognise this NIC's messages and probes.
const QUOTED_BYTES: usize = 64;

/// A non-blocking UDP socket.
#[derive(Debug)]
pub struct UdpSocket {
    socket: socket2::Socket,
    local: SocketAddr,
    fragmenting: bool,
}

impl UdpSocket {
    /// Opens and binds a socket: with "don't fragment" on every packet, reports of network errors, and offload as
    /// requested.
    ///
    /// # Errors
    /// The kernel's error; `AddrInUse` when another socket has the address.
    pub fn open(options: &SocketOptions) -> io::Result<Self> {
        let domain = Domain::for_address(options.bind);
        let socket = socket2::Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        if options.bind.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        // The kernel may grant less; the granted size is read back.
        socket.set_recv_buffer_size(options.receive_buffer_bytes)?;
        socket.set_send_buffer_size(options.send_buffer_bytes)?;
        let raw = Raw(&socket);
        let (level, report, discover, information) = ip_options(options.bind);
        raw.set(level, report, 1)?;
        raw.set(level, discover, DO_NOT_FRAGMENT)?;
        if options.bind.ip().is_unspecified() {
            raw.set(level, information, 1)?;
        }
        if options.receive_offload {
            // A kernel without this option delivers single datagrams, with no other difference.
            let _ = raw.set(libc::SOL_UDP, libc::UDP_GRO, 1);
        }
        if options.shares_port {
            raw.set(libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
        }
        if options.takes_no_checksum && options.bind.is_ipv6() {
            raw.set(libc::SOL_UDP, libc::UDP_NO_CHECK6_RX, 1)?;
        }
        if options.marks_congestion {
            raw.set(level, if options.bind.is_ipv4() { libc::IP_TOS } else { libc::IPV6_TCLASS }, ECT_0)?;
        }
        if options.reports_ecn {
            raw.set(level, if options.bind.is_ipv4() { libc::IP_RECVTOS } else { libc::IPV6_RECVTCLASS }, 1)?;
        }
        if options.drops_all_input {
            attach_drop_filter(&socket)?;
        }
        socket.bind(&options.bind.into())?;
        let local = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { socket, local, fragmenting: false })
    }

    /// Returns another handle to the same socket, with its own descriptor.
    pub fn duplicate(&self) -> io::Result<Self> {
        Ok(Self { socket: self.socket.try_clone()?, local: self.local, fragmenting: self.fragmenting })
    }

    /// Returns the local address and port.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Returns the size of the receive buffer that the kernel granted, in the kernel's own accounting (which includes
    /// its overhead).
    pub fn granted_receive_buffer(&self) -> io::Result<usize> {
        self.socket.recv_buffer_size()
    }

    /// Returns whether the kernel splits buffers into datagrams (GSO).
    pub fn has_segmentation(&self) -> bool {
        Raw(&self.socket).set(libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok()
    }

    /// Requests that the kernel merges received datagrams (GRO); returns whether it supports this.
    pub fn has_receive_offload(&self) -> bool {
        Raw(&self.socket).set(libc::SOL_UDP, libc::UDP_GRO, 1).is_ok()
    }

    /// Allows or forbids fragmentation of packets that are sent from now on.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn allow_fragments(&mut self, allow: bool) -> io::Result<()> {
        if self.fragmenting != allow {
            let (level, _, discover, _) = ip_options(self.local);
            let value = if allow { FRAGMENT } else { DO_NOT_FRAGMENT };
            Raw(&self.socket).set(level, discover, value)?;
            self.fragmenting = allow;
        }
        Ok(())
    }

    /// Enables [`Incoming::ip_fields`]: from now on, they are filled in from received packets.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn enable_ip_fields_reports(&self) -> io::Result<()> {
        let (level, options) = match self.local {
            SocketAddr::V4(_) => (libc::SOL_IP, &[libc::IP_RECVTOS, libc::IP_RECVTTL][..]),
            SocketAddr::V6(_) => (libc::SOL_IPV6, &[libc::IPV6_RECVTCLASS, libc::IPV6_RECVHOPLIMIT, IPV6_FLOWINFO][..]),
        };
        options.iter().try_for_each(|option| Raw(&self.socket).set(level, *option, 1))
    }

    /// Enables [`Incoming::stamped_ns`]: from now on, it is filled in from received packets (socket(7),
    /// `SO_TIMESTAMPNS`).
    ///
    /// # Errors
    /// The kernel's error.
    pub fn enable_time_stamps(&self) -> io::Result<()> {
        Raw(&self.socket).set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
    }

    /// Sends `messages`, at most [`MESSAGES_MAX`]; returns the number that the kernel accepted.
    ///
    /// # Errors
    /// The reason why it did not accept the first one. It may also be a pending error about an earlier datagram; in
    /// that case the next attempt succeeds.
    pub fn send(&self, messages: &[Outgoing<'_>]) -> io::Result<usize> {
        let fd = self.socket.as_raw_fd();
        // Control buffers must not move once a header points to them, so all are created before the first header.
        let mut controls = ArrayVec::<Control, MESSAGES_MAX>::new();
        let mut headers = ArrayVec::<libc::mmsghdr, MESSAGES_MAX>::new();
        let messages = &messages[..messages.len().min(MESSAGES_MAX)];
        messages.iter().for_each(|_| controls.push(Control::new()));
        for (message, control) in messages.iter().zip(&mut controls) {
            let msg_hdr = message_header(message, control);
            headers.push(libc::mmsghdr { msg_hdr, msg_len: 0 });
        }
        let count = headers.len() as libc::c_uint;
        // SAFETY: `headers` holds `count` initialised headers. Their pointers point to `messages` (addresses, parts
        // and the bytes of the parts, all borrowed for this call) and to `controls`, which is valid until the end of
        // this function.
        let sent = unsafe { libc::syscall(libc::SYS_sendmmsg, fd, headers.as_mut_ptr(), count, libc::MSG_DONTWAIT) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
    }

    /// Returns whether half of the send buffer is free. Packets that wait in the kernel for address resolution occupy
    /// it for seconds.
    pub fn is_half_free(&self) -> bool {
        let mut waiting: c_int = 0;
        // SAFETY: the call writes one integer (udp(7), SIOCOUTQ, which is TIOCOUTQ).
        let known = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut waiting) } == 0;
        let granted = self.socket.send_buffer_size().unwrap_or(0);
        known && usize::try_from(waiting).is_ok_and(|waiting| waiting <= granted / 2)
    }

    /// Receives up to `wanted` datagrams into `batch`, where datagrams that the kernel has merged (GRO) count as one;
    /// returns the number received.
    ///
    /// # Errors
    /// The kernel's error, except `WouldBlock`, for which 0 is returned. It may be a pending error of the socket that
    /// was caused by a datagram sent earlier.
    pub fn receive(&self, batch: &mut ReceiveBatch, wanted: usize) -> io::Result<usize> {
        batch.incoming.clear();
        let headers = batch.prepare(wanted);
        let count = headers.len() as libc::c_uint;
        let (fd, flags) = (self.socket.as_raw_fd(), libc::MSG_DONTWAIT);
        // SAFETY: `headers` holds `count` headers whose pointers point to the buffers, addresses and control buffers of
        // `batch`, which is borrowed mutably for this call; the lengths are those of these buffers.
        let received = unsafe {
            libc::syscall(libc::SYS_recvmmsg, fd, headers.as_mut_ptr(), count, flags, ptr::null_mut::<libc::timespec>())
        };
        if received < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(0) } else { Err(error) };
        }
        for header in &batch.headers.0[..received as usize] {
            batch.incoming.push(read_header(header)?);
        }
        Ok(received as usize)
    }

    /// Returns the next error in the socket's error queue.
    pub fn next_deferred_error(&self) -> Option<DeferredError> {
        let mut control: Control = Control::new();
        // SAFETY: an all-zero address is valid (family `AF_UNSPEC`).
        let mut name: libc::sockaddr_storage = unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: an all-zero header is valid: no address, no buffers.
        let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
        let mut bytes = [0; QUOTED_BYTES];
        let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        header.msg_name = ptr::from_mut(&mut name).cast();
        header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        header.msg_iov = &mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.bytes.as_mut_ptr().cast();
        header.msg_controllen = control.bytes.len() as _;
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // SAFETY: the header's pointers point to `name`, `part` (and through it to `bytes`) and `control`, which
        // outlive the call; the lengths match.
        let received = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &mut header, flags) };
        // A quote that is longer than the buffer is truncated.
        let len = usize::try_from(received).ok()?.min(bytes.len());
        let quoted = bytes[..len].iter().copied().collect();
        let to = socket_address(&name, header.msg_namelen);
        let errno = control_messages(&header).find_map(|message| match (message.level, message.kind) {
            (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR) => {
                message.read::<libc::sock_extended_err>().map(|error| error.ee_errno.cast_signed())
            }
            _ => None,
        });
        Some(DeferredError { to, errno: errno.unwrap_or(0), quoted })
    }
}

impl AsRawFd for UdpSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// Makes the kernel drop every datagram that arrives at `socket`, before it occupies buffer space or wakes a thread.
fn attach_drop_filter(socket: &socket2::Socket) -> io::Result<()> {
    // One instruction: accept zero bytes.
    let mut drop_all = libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
    let program = libc::sock_fprog { len: 1, filter: &mut drop_all };
    let (pointer, len): (*const libc::sock_fprog, _) = (&program, size_of::<libc::sock_fprog>() as libc::socklen_t);
    // SAFETY: `pointer` points to a program of one instruction, both valid during the call, and `len` is its size; the
    // kernel copies it.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, pointer.cast::<c_void>(), len)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Blocks until a packet can be received on one of `sockets`, a packet can be sent (if `writable`), an error is
/// reported, or `timeout_ns` is over; `None` waits indefinitely. A signal ends the wait early. Returns whether errors
/// wait in an error queue.
///
/// # Errors
/// The kernel's error.
pub fn wait(sockets: &[RawFd], timeout_ns: Option<u64>, writable: bool) -> io::Result<bool> {
    let events = if writable { libc::POLLIN | libc::POLLOUT } else { libc::POLLIN };
    let mut polls: ArrayVec<libc::pollfd, POLLED_MAX> =
        sockets.iter().take(POLLED_MAX).map(|fd| libc::pollfd { fd: *fd, events, revents: 0 }).collect();
    let time = timeout_ns.map(|ns| libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    });
    let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
    let count = polls.len() as libc::nfds_t;
    // SAFETY: `count` pollfds, a timeout that is null or is valid until the end of this function, no signal mask.
    let ready = unsafe { libc::ppoll(polls.as_mut_ptr(), count, time, ptr::null()) };
    if ready < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::Interrupted { Ok(false) } else { Err(error) };
    }
    Ok(polls.iter().any(|poll| poll.revents & libc::POLLERR != 0))
}

/// Maximum number of sockets that [`wait`] polls: two IP versions, two sockets each, and the shared-memory path.
const POLLED_MAX: usize = 5;

/// Returns 64 unpredictable bits.
///
/// # Errors
/// The kernel's error.
pub fn random_bits() -> io::Result<u64> {
    let mut bytes = [0; size_of::<u64>()];
    fill_random(&mut bytes).map(|()| u64::from_ne_bytes(bytes))
}

/// Fills up to 256 bytes with unpredictable data.
///
/// # Errors
/// The kernel's error.
pub fn fill_random(bytes: &mut [u8]) -> io::Result<()> {
    // SAFETY: the buffer has the given length. Requests of at most 256 bytes are never served partially (getrandom(2)).
    let count = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if usize::try_from(count) == Ok(bytes.len()) { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns whether the kernel has given this program rights that the user who started it may not have (getauxval(3),
/// `AT_SECURE`). If so, the environment must not be trusted, because that user controls it.
pub fn has_more_rights_than_caller() -> bool {
    // SAFETY: reads a value that the kernel has stored beside the program's arguments.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Properties of the route to an address, according to the kernel's current routing table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// Largest IP packet that the path carries, in bytes, as far as is known.
    pub mtu_bytes: u32,
    /// Source address of packets on this route.
    pub source: IpAddr,
}

/// Returns the kernel's route from `local` (which may be unspecified) to `remote`.
///
/// # Errors
/// The kernel's error; `NetworkUnreachable` and `HostUnreachable` when there is no route.
pub fn route(local: SocketAddr, remote: SocketAddr) -> io::Result<Route> {
    let socket = socket2::Socket::new(Domain::for_address(remote), Type::DGRAM, Some(Protocol::UDP))?;
    socket.bind(&SocketAddr::new(local.ip(), 0).into())?;
    let (level, _, discover, _) = ip_options(remote);
    // Without this option the kernel could return the interface's MTU instead of the path's.
    Raw(&socket).set(level, discover, DO_NOT_FRAGMENT)?;
    socket.connect(&remote.into())?;
    let option = if remote.is_ipv4() { libc::IP_MTU } else { libc::IPV6_MTU };
    let mtu_bytes = Raw(&socket).get(level, option)?.max(0).cast_unsigned();
    let source = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?.ip();
    Ok(Route { mtu_bytes, source })
}

/// Returns whether `ip` is an address of this machine, except link-local ones. Uses system calls only, so it may be
/// called from a signal handler; the C library's function for listing all addresses may not, because it allocates
/// memory.
pub fn is_own(ip: IpAddr) -> bool {
    let bind = SocketAddr::new(ip, 0);
    let is_bindable = !ip.is_unspecified() && !ip.is_multicast();
    let bind_socket = || {
        let socket = socket2::Socket::new(Domain::for_address(bind), Type::DGRAM, Some(Protocol::UDP))?;
        socket.bind(&bind.into())
    };
    is_bindable && bind_socket().is_ok()
}

/// Buffers for the datagrams that one call receives.
pub struct ReceiveBatch {
    buffers: Box<[[u8; RECEIVE_BUFFER_BYTES]]>,
    names: Box<[libc::sockaddr_storage]>,
    parts: Box<[libc::iovec]>,
    controls: Box<[Control<RECEIVED_BYTES>]>,
    /// Pointers into the four fields above, which are on the heap and do not move.
    headers: Headers,
    incoming: ArrayVec<Incoming, MESSAGES_MAX>,
}

struct Headers(Box<[libc::mmsghdr]>);

// SAFETY: the pointers in `headers` and `parts` point into the batch's own boxes, which move along with the batch.
unsafe impl Send for ReceiveBatch {}

impl std::fmt::Debug for ReceiveBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReceiveBatch").field("capacity", &self.names.len()).field("incoming", &self.incoming).finish()
    }
}

impl ReceiveBatch {
    /// Returns `count` buffers for received datagrams, at least one and at most [`MESSAGES_MAX`].
    pub fn new(count: usize) -> Self {
        let count = count.clamp(1, MESSAGES_MAX);
        // SAFETY: an all-zero address is valid (family `AF_UNSPEC`).
        let name: libc::sockaddr_storage = unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: an all-zero header is valid: no address, no buffers.
        let header: libc::mmsghdr = unsafe { MaybeUninit::zeroed().assume_init() };
        let mut batch = Self {
            buffers: vec![[0; RECEIVE_BUFFER_BYTES]; count].into_boxed_slice(),
            names: vec![name; count].into_boxed_slice(),
            parts: vec![libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; count].into_boxed_slice(),
            controls: (0..count).map(|_| Control::new()).collect(),
            headers: Headers(vec![header; count].into_boxed_slice()),
            incoming: ArrayVec::new(),
        };
        batch.connect();
        batch
    }

    /// Returns the datagrams that the last call received: their properties and bytes.
    pub fn iter(&self) -> impl Iterator<Item = (&Incoming, &[u8])> {
        self.incoming.iter().zip(self.buffers.iter()).map(|(incoming, buffer)| (incoming, &buffer[..incoming.len]))
    }

    /// Does the same as `iter`, with mutable access to the bytes.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&Incoming, &mut [u8])> {
        let pairs = self.incoming.iter().zip(self.buffers.iter_mut());
        pairs.map(|(incoming, buffer)| (incoming, &mut buffer[..incoming.len]))
    }

    /// Sets the headers' pointers to the buffers.
    fn connect(&mut self) {
        let slots = self.buffers.iter_mut().zip(&mut self.names).zip(&mut self.parts).zip(&mut self.controls);
        for ((((buffer, name), part), control), header) in slots.zip(&mut self.headers.0) {
            *part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
            let header = &mut header.msg_hdr;
            header.msg_name = ptr::from_mut(name).cast();
            header.msg_iov = part;
            header.msg_iovlen = 1;
            header.msg_control = control.bytes.as_mut_ptr().cast();
        }
    }

    /// Returns the headers for the next call, with the lengths reset that the kernel changed in the last one.
    fn prepare(&mut self, wanted: usize) -> &mut [libc::mmsghdr] {
        let wanted = wanted.clamp(1, self.names.len());
        let headers = &mut self.headers.0[..wanted];
        for header in headers.iter_mut() {
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            header.msg_hdr.msg_controllen = RECEIVED_BYTES as _;
        }
        headers
    }
}

fn message_header(message: &Outgoing<'_>, control: &mut Control) -> libc::msghdr {
    // SAFETY: an all-zero header is valid: no address, no buffers.
    let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    header.msg_name = message.to.as_ptr().cast_mut().cast();
    header.msg_namelen = message.to.len();
    // `IoSlice` has the layout of `iovec`, according to its documentation.
    header.msg_iov = message.parts.as_ptr().cast_mut().cast();
    header.msg_iovlen = message.parts.len() as _;
    let mut used = 0;
    if let Some(segment) = message.segment {
        used += control.push(used, libc::SOL_UDP, libc::UDP_SEGMENT, &segment);
    }
    used += match message.from {
        None => 0,
        Some(IpAddr::V4(ip)) => {
            let source = libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) };
            let information = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: source, ipi_addr: source };
            control.push(used, libc::SOL_IP, libc::IP_PKTINFO, &information)
        }
        Some(IpAddr::V6(ip)) => {
            let source = libc::in6_addr { s6_addr: ip.octets() };
            let information = libc::in6_pktinfo { ipi6_addr: source, ipi6_ifindex: 0 };
            control.push(used, libc::SOL_IPV6, libc::IPV6_PKTINFO, &information)
        }
    };
    if message.ip_fields != PackedIpFields::NONE {
        used = control.push_ip_fields(used, message);
    }
    if used > 0 {
        header.msg_control = control.bytes.as_mut_ptr().cast();
        header.msg_controllen = used as _;
    }
    header
}

fn read_header(header: &libc::mmsghdr) -> io::Result<Incoming> {
    let len = header.msg_len as usize;
    let (message, name) = (&header.msg_hdr, header.msg_hdr.msg_name.cast::<libc::sockaddr_storage>());
    // SAFETY: the name is one of the batch's addresses, which the kernel has filled.
    let source = socket_address(unsafe { &*name }, message.msg_namelen).ok_or(io::ErrorKind::InvalidData)?;
    let truncated = message.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0;
    let (local, len_kept) = (None, len.min(RECEIVE_BUFFER_BYTES));
    let ip_fields = PackedIpFields::NONE;
    let (congested, stamped_ns) = (false, 0);
    let mut incoming =
        Incoming { source, local, len: len_kept, segment: len, truncated, congested, ip_fields, stamped_ns };
    for control in control_messages(message) {
        match (control.level, control.kind) {
            (libc::SOL_UDP, libc::UDP_GRO) => {
                let size = control.read::<c_int>().and_then(|size| usize::try_from(size).ok());
                incoming.segment = size.filter(|size| *size > 0).unwrap_or(len);
            }
            (libc::SOL_IP, libc::IP_PKTINFO) => {
                incoming.local = control
                    .read::<libc::in_pktinfo>()
                    .map(|information| Ipv4Addr::from(information.ipi_addr.s_addr.to_ne_bytes()).into());
            }
            (libc::SOL_IPV6, libc::IPV6_PKTINFO) => {
                incoming.local = control
                    .read::<libc::in6_pktinfo>()
                    .map(|information| Ipv6Addr::from(information.ipi6_addr.s6_addr).into());
            }
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                incoming.stamped_ns = control.read::<libc::timespec>().map_or(0, |time| nanoseconds(&time));
            }
            (libc::SOL_IP, libc::IP_TOS) => set_class(&mut incoming, control.read::<u8>()),
            (libc::SOL_IPV6, libc::IPV6_TCLASS) => {
                set_class(&mut incoming, control.read::<c_int>().map(|class| class as u8));
            }
            (libc::SOL_IP, libc::IP_TTL) | (libc::SOL_IPV6, libc::IPV6_HOPLIMIT) => {
                incoming.ip_fields = incoming.ip_fields.with_hop_limit(control.read::<c_int>().unwrap_or(0) as u8);
            }
            (libc::SOL_IPV6, IPV6_FLOWINFO) => {
                let word = control.read::<c_int>().map_or(0, |word| u32::from_be(word.cast_unsigned()));
                incoming.ip_fields = incoming.ip_fields.with_flow_label(word);
            }
            _ => {}
        }
    }
    Ok(incoming)
}

fn set_class(incoming: &mut Incoming, class: Option<u8>) {
    let class = class.unwrap_or(0);
    incoming.congested = class & ECN == CONGESTED;
    incoming.ip_fields = incoming.ip_fields.with_traffic_class(class);
}

fn socket_address(name: &libc::sockaddr_storage, len: libc::socklen_t) -> Option<SocketAddr> {
    let name: *const libc::sockaddr_storage = name;
    // SAFETY: every socket address begins with its family.
    let family = unsafe { (*name).ss_family };
    match c_int::from(family) {
        libc::AF_INET if len as usize >= size_of::<libc::sockaddr_in>() => {
            // SAFETY: the family indicates an IPv4 address, and the length that it is complete; storage is large and
            // aligned enough for any address.
            let name = unsafe { &*name.cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(name.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(name.sin_port)).into())
        }
        libc::AF_INET6 if len as usize >= size_of::<libc::sockaddr_in6>() => {
            // SAFETY: as above, for IPv6.
            let name = unsafe { &*name.cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(name.sin6_addr.s6_addr);
            Some(SocketAddrV6::new(ip, u16::from_be(name.sin6_port), 0, name.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// Integer options of a socket.
struct Raw<'a>(&'a socket2::Socket);

impl Raw<'_> {
    fn set(&self, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
        let (value, len): (*const c_int, _) = (&value, size_of::<c_int>() as libc::socklen_t);
        // SAFETY: `value` points to one integer, and `len` is its size.
        let result = unsafe { libc::setsockopt(self.0.as_raw_fd(), level, option, value.cast::<c_void>(), len) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn get(&self, level: c_int, option: c_int) -> io::Result<c_int> {
        let (mut value, mut len): (c_int, _) = (0, size_of::<c_int>() as libc::socklen_t);
        let pointer = ptr::from_mut(&mut value).cast::<c_void>();
        // SAFETY: `pointer` points to one integer, and `len` is its size.
        let result = unsafe { libc::getsockopt(self.0.as_raw_fd(), level, option, pointer, &mut len) };
        if result == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
    }
}

/// Returns the option level, and the options for error reports, path MTU discovery and destination addresses.
fn ip_options(address: SocketAddr) -> (c_int, c_int, c_int, c_int) {
    match address {
        SocketAddr::V4(_) => (libc::SOL_IP, libc::IP_RECVERR, libc::IP_MTU_DISCOVER, libc::IP_PKTINFO),
        SocketAddr::V6(_) => (libc::SOL_IPV6, libc::IPV6_RECVERR, libc::IPV6_MTU_DISCOVER, libc::IPV6_RECVPKTINFO),
    }
}

// The values are the same for both IP versions.
const DO_NOT_FRAGMENT: c_int = libc::IP_PMTUDISC_DO;
const FRAGMENT: c_int = libc::IP_PMTUDISC_DONT;

/// Mask of the ECN field in the traffic class (RFC 3168, section 5).
const ECN: u8 = 0b11;
const ECT_0: c_int = 0b10;
const CONGESTED: u8 = 0b11;

/// Option for sending and receiving the flow label (`linux/in6.h`; not in the C library's headers).
const IPV6_FLOWINFO: c_int = 11;
