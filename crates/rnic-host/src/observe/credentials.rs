//! Identity of the process at the other end of a local socket.

use std::io;
use std::mem::size_of;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// Returns the user ID of the process that created the other end of the socket.
pub(super) fn peer_user(stream: &UnixStream) -> io::Result<u32> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: the kernel writes at most `len` bytes to `credentials`, which has that size and outlives the call.
    let result = unsafe {
        libc::getsockopt(stream.as_raw_fd(), level, option, std::ptr::from_mut(&mut credentials).cast(), &mut len)
    };
    if result == 0 { Ok(credentials.uid) } else { Err(io::Error::last_os_error()) }
}

/// Returns the effective user ID of this process, which is the one that the kernel reports to others.
pub(super) fn own_user() -> u32 {
    // SAFETY: the call has no arguments and cannot fail.
    unsafe { libc::geteuid() }
}
