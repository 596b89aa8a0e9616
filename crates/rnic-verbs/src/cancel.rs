//! Protection against cancellation of program threads while they are inside this library.
//!
//! `pthread_cancel` terminates a thread at its next cancellation point, and most of the C library's system calls are
//! cancellation points: `write`, `recvmsg`, `open`, `close`. A thread that terminated in the middle of a call of this
//! library would leave inconsistent state behind, including a held lock; and the unwinding would run destructors in
//! stack frames below a C function, where Rust aborts the process. Cancellation is therefore disabled while
//! [`CancellationGuard`] exists, and every code path that takes a lock holds one. The only verbs that are cancellation
//! points are those that wait for an event, as with the drivers of hardware devices; they wait without holding an
//! `CancellationGuard`.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::ptr;

/// Disables cancellation of the thread that created it while it exists; a pending cancellation takes effect later.
#[derive(Debug)]
pub(crate) struct CancellationGuard {
    previous_state: c_int,
    /// Makes the type neither `Send` nor `Sync`: it belongs to one thread.
    _thread: PhantomData<*const ()>,
}

impl CancellationGuard {
    #[inline]
    pub(crate) fn begin() -> Self {
        let mut previous_state = ENABLE;
        // SAFETY: writes a local variable and thread-local state; may also be called from signal handlers.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut previous_state) };
        Self { previous_state, _thread: PhantomData }
    }
}

impl Drop for CancellationGuard {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: as above. This call is not itself a cancellation point: a cancellation requested meanwhile takes
        // effect at the next one.
        unsafe { pthread_setcancelstate(self.previous_state, ptr::null_mut()) };
    }
}

/// Reads the eight bytes of an `eventfd` into `count`, as read(2). A thread may be cancelled while it waits here. It
/// is then unwound up to the program, so no `extern "C"` function on the call stack may hold values with destructors.
#[inline(never)]
pub(crate) fn read_cancellably(fd: c_int, count: &mut u64) -> isize {
    // SAFETY: `count` provides space for eight bytes.
    unsafe { read(fd, ptr::from_mut(count).cast(), size_of::<u64>()) }
}

// The `libc` crate declares the first function for other systems only, and declares the second as never unwinding.
// SAFETY: the signatures are those of POSIX; the second function unwinds when it acts as a cancellation point.
#[allow(unknown_lints, invalid_runtime_symbol_definitions, reason = "newer compilers want a `read` that never unwinds")]
unsafe extern "C-unwind" {
    fn pthread_setcancelstate(state: c_int, previous_state: *mut c_int) -> c_int;
    fn read(fd: c_int, into: *mut c_void, len: usize) -> isize;
}

/// `PTHREAD_CANCEL_ENABLE` and `PTHREAD_CANCEL_DISABLE` of the C library's `pthread.h`.
const ENABLE: c_int = 0;
const DISABLE: c_int = 1;
