//! What a child process may do with what its parent has opened: nothing.
//!
//! A child has a copy of the tables and shares the sockets. If it used them, both would answer for the same queue
//! pairs. So every context remembers the process it was opened in, and refuses another one. A child may open the device
//! anew.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::progress;

/// Counts forks on the way from the first process to this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

static WATCH: Once = Once::new();

extern "C" fn in_child() {
    progress::forget_parent();
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// A process, as far as forks are concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Process(u32);

impl Process {
    /// The one that calls.
    #[inline]
    pub(crate) fn current() -> Self {
        Self(GENERATION.load(Ordering::Relaxed))
    }

    /// Whether this is the one that calls.
    #[inline]
    pub(crate) fn is_current(self) -> bool {
        self == Self::current()
    }
}

/// Begins to count forks.
pub(crate) fn watch() {
    WATCH.call_once(|| {
        // SAFETY: the handler only changes atomic numbers and a word of the thread, which is allowed after a fork.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}
