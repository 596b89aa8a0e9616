//! Rejects the use of a parent's objects by a child process after a fork.
//!
//! A child has a copy of the tables and shares the sockets. If it used them, both processes would operate the same
//! queue pairs. Every context therefore stores the process in which it was opened, and returns an error in any other
//! process. A child may open the device again itself.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::progress;

/// Number of forks between the first process and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

static WATCH: Once = Once::new();

extern "C" fn in_child() {
    progress::forget_parent();
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Identity of a process, by the number of forks that led to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Process(u32);

impl Process {
    /// Returns the identity of the calling process.
    #[inline]
    pub(crate) fn current() -> Self {
        Self(GENERATION.load(Ordering::Relaxed))
    }

    /// Returns `true` if this is the identity of the calling process.
    #[inline]
    pub(crate) fn is_current(self) -> bool {
        self == Self::current()
    }
}

/// Installs the fork handler that counts forks.
pub(crate) fn watch() {
    WATCH.call_once(|| {
        // SAFETY: the handler only changes atomic numbers and thread-local state, which is allowed after a fork.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}
