//! Descriptors that signal events (eventfd(2)).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Creates a non-blocking event descriptor in the unsignalled state.
///
/// # Errors
/// When the process has no more descriptors.
pub fn new() -> io::Result<OwnedFd> {
    // SAFETY: creates a new descriptor.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes the descriptor readable.
pub fn raise(fd: BorrowedFd<'_>) {
    let one = 1u64;
    // SAFETY: writes eight bytes of a local variable. The call fails only when the descriptor is readable already.
    unsafe { libc::write(fd.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
}

/// Makes the descriptor unreadable.
pub fn clear(fd: BorrowedFd<'_>) {
    let mut count = 0u64;
    // SAFETY: reads eight bytes into a local variable; the descriptor does not block.
    unsafe { libc::read(fd.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>()) };
}
