//! Threads of the program that are cancelled while they call us.
//!
//! `pthread_cancel` ends a thread at its next cancellation point, and most system calls of the C library are one:
//! `write`, `recvmsg`, `open`, `close`. A thread that ended in the middle of ours would leave things half done, a lock
//! among them; and the unwinding would meet destructors under a function of C, where Rust ends the process. So nobody
//! is cancelled while [`Uncancelled`] lives, which everything that locks has. No verb is a cancellation point but those
//! that wait for an event, as with the drivers of real devices; they wait without it.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::ptr;

/// While it lives, the thread that made it is not cancelled: that comes later.
#[derive(Debug)]
pub(crate) struct Uncancelled {
    before: c_int,
    /// Of one thread.
    _thread: PhantomData<*const ()>,
}

impl Uncancelled {
    #[inline]
    pub(crate) fn begin() -> Self {
        let mut before = ENABLE;
        // SAFETY: writes a local variable, and a word of the thread's own: signal handlers may call it too.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
        Self { before, _thread: PhantomData }
    }
}

impl Drop for Uncancelled {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: as above. It is no cancellation point itself: what was asked for meanwhile waits for the next one.
        unsafe { pthread_setcancelstate(self.before, ptr::null_mut()) };
    }
}

/// Reads the eight bytes of an `eventfd` into `count`, as read(2). A thread may be cancelled while it waits here; it is
/// unwound up to the program: what has destructors on the way must not stand in a function of C.
#[inline(never)]
pub(crate) fn read_cancellably(fd: c_int, count: &mut u64) -> isize {
    // SAFETY: eight bytes of room.
    unsafe { read(fd, ptr::from_mut(count).cast(), size_of::<u64>()) }
}

// The `libc` crate has the first for other systems only, and says of the second that it never unwinds.
// SAFETY: the signatures are those of POSIX; the second unwinds where it is a point of cancellation.
#[allow(unknown_lints, invalid_runtime_symbol_definitions, reason = "newer compilers want a `read` that never unwinds")]
unsafe extern "C-unwind" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    fn read(fd: c_int, into: *mut c_void, len: usize) -> isize;
}

/// `PTHREAD_CANCEL_ENABLE` and `PTHREAD_CANCEL_DISABLE` of the C library's `pthread.h`.
const ENABLE: c_int = 0;
const DISABLE: c_int = 1;
