//! Threads beside a program that does not know of them.

use std::io;
use std::thread::{self, JoinHandle};

/// Starts a thread that takes no signals: the program's handlers shall run on its own threads.
///
/// # Errors
/// When the system gives no thread.
pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let quiet = move || {
        block_signals();
        work();
    };
    thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(quiet)
}

/// As [`spawn`], for Falcon's adaptive engine (`fae_place = thread`), which the connections of a NIC share.
///
/// # Errors
/// When the system gives no thread.
pub(crate) fn start_adaptive(work: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
    spawn("rnic-fae", work)
}

fn block_signals() {
    // SAFETY: a set of signals is plain bits, which the first call fills, and the second reads; both live here.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
    }
}

/// They format text or compute windows, and nest nothing.
const STACK_BYTES: usize = 256 << 10;
