//! Descriptors that say that something is there (eventfd(2)).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Makes one that says nothing yet, and never blocks.
///
/// # Errors
/// When the process has no more descriptors.
pub fn new() -> io::Result<OwnedFd> {
    // SAFETY: makes a new descriptor.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes it readable.
pub fn raise(fd: BorrowedFd<'_>) {
    let one = 1u64;
    // SAFETY: writes eight bytes of a local variable. It fails only when it is readable anyway.
    unsafe { libc::write(fd.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
}

/// Makes it unreadable.
pub fn clear(fd: BorrowedFd<'_>) {
    let mut count = 0u64;
    // SAFETY: reads eight bytes into a local variable; the descriptor does not block.
    unsafe { libc::read(fd.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>()) };
}
