//! System calls of the shared-memory path: sealed memory, and messages between processes that carry its descriptors.

use std::ffi::CStr;
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::ptr;

use libc::c_int;

use super::Raw;
use super::control::{Control, KernelData, control_messages};

/// Returns memory of `len` bytes that other processes may map, and whose size no process may change.
///
/// # Errors
/// The kernel's error.
pub fn sealed_memory(name: &CStr, len: usize) -> io::Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: `name` is a valid string.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned the descriptor, so it has no other owner.
    let file = unsafe { OwnedFd::from_raw_fd(fd) };
    let len = libc::off_t::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: a call on a file that this function owns.
    if unsafe { libc::ftruncate(fd, len) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // Pages are allocated now, so that a later access cannot fail for lack of memory. SAFETY: as above.
    if unsafe { libc::fallocate(fd, 0, 0, len) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    if unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, SEALS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(file)
}

/// Returns whether `file`, which is untrusted, is memory of `len` bytes that no process can shrink, in ordinary pages.
pub fn is_sealed_memory(file: BorrowedFd<'_>, len: usize) -> bool {
    // SAFETY: a call on an open file; other types of files have no seals and return an error.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    if seals < 0 || seals & SEALS != SEALS {
        return false;
    }
    // SAFETY: all zero is a valid value.
    let mut status: libc::stat = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: `status` has space for the result.
    let known = unsafe { libc::fstat(file.as_raw_fd(), &mut status) } == 0;
    // SAFETY: all zero is a valid value.
    let mut system: libc::statfs = unsafe { MaybeUninit::zeroed().assume_init() };
    // The first access to a huge page, or to a page that is not allocated yet, may fail for lack of memory. SAFETY:
    // `system` has space for the result.
    let ordinary = unsafe { libc::fstatfs(file.as_raw_fd(), &mut system) } == 0 && system.f_type == libc::TMPFS_MAGIC;
    let is_there = usize::try_from(status.st_blocks).is_ok_and(|blocks| blocks * BLOCK_BYTES >= len);
    known && ordinary && is_there && usize::try_from(status.st_size).is_ok_and(|size| size == len)
}

/// A datagram received from another process of this machine.
#[derive(Debug)]
pub struct UnixMessage {
    /// Length of its data in the buffer, in bytes.
    pub len: usize,
    /// The abstract name of the sending socket.
    pub from: Option<Vec<u8>>,
    /// User ID of the sending process.
    pub uid: Option<u32>,
    /// The file that was passed with the datagram.
    pub file: Option<OwnedFd>,
}

/// Binds a socket to the abstract name `name` that receives messages together with their senders' user IDs.
///
/// # Errors
/// The kernel's error; `AddrInUse` when another socket has the name.
pub fn bind_control_socket(name: &[u8]) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    socket.set_nonblocking(true)?;
    let raw = socket2::SockRef::from(&socket);
    Raw(&raw).set(libc::SOL_SOCKET, libc::SO_PASSCRED, 1)?;
    Ok(socket)
}

/// Returns a socket that sends to the socket that has the abstract name `name` now, and never to a later one with
/// that name.
///
/// # Errors
/// The kernel's error; `ConnectionRefused` when no socket has the name.
pub fn connect_control_socket(name: &[u8]) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    Ok(socket)
}

/// Sends `bytes` from `socket` to the abstract name `name`.
///
/// # Errors
/// The kernel's error.
pub fn send_control_message(socket: &UnixDatagram, name: &[u8], bytes: &[u8]) -> io::Result<()> {
    socket.send_to_addr(bytes, &SocketAddr::from_abstract_name(name)?).map(drop)
}

/// Sends `bytes` and `file` to the socket that `socket` is connected to.
///
/// # Errors
/// The kernel's error.
pub fn send_file(socket: &UnixDatagram, bytes: &[u8], file: BorrowedFd<'_>) -> io::Result<()> {
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control: Control = Control::new();
    // SAFETY: an all-zero header is valid: no address, no buffers.
    let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    header.msg_iov = &mut part;
    header.msg_iovlen = 1;
    let used = control.push(0, libc::SOL_SOCKET, libc::SCM_RIGHTS, &file.as_raw_fd());
    header.msg_control = control.bytes.as_mut_ptr().cast();
    header.msg_controllen = used as _;
    // SAFETY: the header's pointers point to `part` (and through it to `bytes`, which are only read) and `control`, all
    // of which outlive the call; the lengths match.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &header, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Receives a message from `socket`, if there is one; files beyond the first are closed.
pub fn receive_control_message(socket: &UnixDatagram, into: &mut [u8]) -> Option<UnixMessage> {
    // SAFETY: an all-zero address is valid (family `AF_UNSPEC`).
    let mut address: libc::sockaddr_un = unsafe { MaybeUninit::zeroed().assume_init() };
    let mut part = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let mut control: Control = Control::new();
    // SAFETY: an all-zero header is valid: no address, no buffers.
    let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    header.msg_name = ptr::from_mut(&mut address).cast();
    header.msg_namelen = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    header.msg_iov = &mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.bytes.as_mut_ptr().cast();
    header.msg_controllen = control.bytes.len() as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the header's pointers point to `address`, `part` (and through it to `into`) and `control`, all of which
    // outlive the call; the lengths match.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, flags) };
    let len = usize::try_from(received).ok()?.min(into.len());
    let mut received = UnixMessage { len, from: abstract_name(&address, header.msg_namelen), uid: None, file: None };
    for message in control_messages(&header) {
        match (message.level, message.kind) {
            (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) => {
                received.uid = message.read::<libc::ucred>().map(|credentials| credentials.uid);
            }
            (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                for fd in message.data.as_chunks().0 {
                    // SAFETY: the kernel has just opened the file for this process, so the descriptor has no other
                    // owner.
                    let file = unsafe { OwnedFd::from_raw_fd(c_int::from_ne_bytes(*fd)) };
                    received.file.get_or_insert(file);
                }
            }
            _ => {}
        }
    }
    Some(received)
}

fn abstract_name(address: &libc::sockaddr_un, len: libc::socklen_t) -> Option<Vec<u8>> {
    let bytes = (len as usize).checked_sub(size_of::<libc::sa_family_t>())?;
    let name = address.sun_path.get(..bytes)?;
    let (first, name) = name.split_first()?;
    (*first == 0).then(|| name.iter().flat_map(|byte| byte.to_ne_bytes()).collect())
}

/// Returns the effective user ID of this process.
pub fn own_uid() -> u32 {
    // SAFETY: always succeeds and accesses no memory.
    unsafe { libc::geteuid() }
}

// SAFETY: a structure of integers.
unsafe impl KernelData for libc::ucred {}

const SEALS: c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
/// Unit of the block count of `stat`, in bytes.
const BLOCK_BYTES: usize = 512;
