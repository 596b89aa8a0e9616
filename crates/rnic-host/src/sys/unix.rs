//! System calls of the same-host wire: sealed memory, and messages between processes that carry it.

use std::ffi::CStr;
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::ptr;

use libc::c_int;

use super::{Control, KernelData, Raw, control_messages};

/// Memory of `len` bytes that others may map, and nobody may make shorter or longer.
///
/// # Errors
/// What the kernel says.
pub fn sealed_memory(name: &CStr, len: usize) -> io::Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: `name` is a string.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given it to us.
    let file = unsafe { OwnedFd::from_raw_fd(fd) };
    let len = libc::off_t::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: a call about a file of ours.
    if unsafe { libc::ftruncate(fd, len) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // Had now, memory cannot be missing later, when it is touched.
    // SAFETY: as above.
    if unsafe { libc::fallocate(fd, 0, 0, len) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    if unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, SEALS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(file)
}

/// Whether `file`, a stranger's, is memory of `len` bytes that nobody can make shorter, in ordinary pages.
pub fn is_sealed_memory(file: BorrowedFd<'_>, len: usize) -> bool {
    // SAFETY: a call about an open file; other kinds of files have no seals and answer with an error.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    if seals < 0 || seals & SEALS != SEALS {
        return false;
    }
    // SAFETY: all zero is a valid value.
    let mut status: libc::stat = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: `status` has room for the answer.
    let known = unsafe { libc::fstat(file.as_raw_fd(), &mut status) } == 0;
    // SAFETY: all zero is a valid value.
    let mut system: libc::statfs = unsafe { MaybeUninit::zeroed().assume_init() };
    // Huge pages may be missing when they are touched; and what has not been had may be missing too.
    // SAFETY: `system` has room for the answer.
    let ordinary = unsafe { libc::fstatfs(file.as_raw_fd(), &mut system) } == 0 && system.f_type == libc::TMPFS_MAGIC;
    let is_there = usize::try_from(status.st_blocks).is_ok_and(|blocks| blocks * BLOCK_BYTES >= len);
    known && ordinary && is_there && usize::try_from(status.st_size).is_ok_and(|size| size == len)
}

/// A datagram that came from another process of this machine.
#[derive(Debug)]
pub struct Letter {
    /// Bytes of it in the buffer.
    pub len: usize,
    /// The abstract name of the socket that it came from.
    pub from: Option<Vec<u8>>,
    /// Whose process has sent it.
    pub uid: Option<u32>,
    /// The file that came with it.
    pub file: Option<OwnedFd>,
}

/// Binds a socket to the abstract name `name` that receives letters with their senders' user.
///
/// # Errors
/// What the kernel says; `AddrInUse` when somebody has the name.
pub fn bind_letterbox(name: &[u8]) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    socket.set_nonblocking(true)?;
    let raw = socket2::SockRef::from(&socket);
    Raw(&raw).set(libc::SOL_SOCKET, libc::SO_PASSCRED, 1)?;
    Ok(socket)
}

/// A socket that sends to the abstract name `name`, to whoever has it now and to nobody who has it later.
///
/// # Errors
/// What the kernel says; `ConnectionRefused` when nobody has the name.
pub fn connect_letterbox(name: &[u8]) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    Ok(socket)
}

/// Sends `bytes` from `socket` to the abstract name `name`.
///
/// # Errors
/// What the kernel says.
pub fn send_letter(socket: &UnixDatagram, name: &[u8], bytes: &[u8]) -> io::Result<()> {
    socket.send_to_addr(bytes, &SocketAddr::from_abstract_name(name)?).map(drop)
}

/// Sends `bytes` and `file` to the socket that `socket` is connected to.
///
/// # Errors
/// What the kernel says.
pub fn send_file(socket: &UnixDatagram, bytes: &[u8], file: BorrowedFd<'_>) -> io::Result<()> {
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = Control::new();
    // SAFETY: an all-zero header is valid: no address, no buffers.
    let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    header.msg_iov = &mut part;
    header.msg_iovlen = 1;
    let used = control.push(0, libc::SOL_SOCKET, libc::SCM_RIGHTS, &file.as_raw_fd());
    header.msg_control = control.bytes.as_mut_ptr().cast();
    header.msg_controllen = used as _;
    // SAFETY: the header's pointers lead to `part` (and through it to `bytes`, which are only read) and `control`, all
    // of which outlive the call; the lengths are theirs.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &header, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Takes a letter out of `socket`, if there is one; files beyond the first are closed.
pub fn receive_letter(socket: &UnixDatagram, into: &mut [u8]) -> Option<Letter> {
    // SAFETY: an all-zero address is valid (of no family).
    let mut address: libc::sockaddr_un = unsafe { MaybeUninit::zeroed().assume_init() };
    let mut part = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let mut control = Control::new();
    // SAFETY: an all-zero header is valid: no address, no buffers.
    let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    header.msg_name = ptr::from_mut(&mut address).cast();
    header.msg_namelen = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    header.msg_iov = &mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.bytes.as_mut_ptr().cast();
    header.msg_controllen = control.bytes.len() as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the header's pointers lead to `address`, `part` (and through it to `into`) and `control`, all of which
    // outlive the call; the lengths are theirs.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, flags) };
    let len = usize::try_from(received).ok()?.min(into.len());
    let mut letter = Letter { len, from: abstract_name(&address, header.msg_namelen), uid: None, file: None };
    for message in control_messages(&header) {
        match (message.level, message.kind) {
            (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) => {
                letter.uid = message.read::<libc::ucred>().map(|credentials| credentials.uid);
            }
            (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                for fd in message.data.as_chunks().0 {
                    // SAFETY: the kernel has just opened it for us, and nobody else knows of it.
                    let file = unsafe { OwnedFd::from_raw_fd(c_int::from_ne_bytes(*fd)) };
                    letter.file.get_or_insert(file);
                }
            }
            _ => {}
        }
    }
    Some(letter)
}

fn abstract_name(address: &libc::sockaddr_un, len: libc::socklen_t) -> Option<Vec<u8>> {
    let bytes = (len as usize).checked_sub(size_of::<libc::sa_family_t>())?;
    let name = address.sun_path.get(..bytes)?;
    let (first, name) = name.split_first()?;
    (*first == 0).then(|| name.iter().flat_map(|byte| byte.to_ne_bytes()).collect())
}

/// The user that this process acts as.
pub fn own_uid() -> u32 {
    // SAFETY: always succeeds and touches nothing.
    unsafe { libc::geteuid() }
}

// SAFETY: a structure of integers.
unsafe impl KernelData for libc::ucred {}

const SEALS: c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
/// What `stat` counts in.
const BLOCK_BYTES: usize = 512;
