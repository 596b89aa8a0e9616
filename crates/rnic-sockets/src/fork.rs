//! Child processes: the parent's thread continues to forward the bytes of all streams, and the child closes its copies
//! of the library's descriptors, because a connection ends only when its last copy is closed.

use std::cell::UnsafeCell;
use std::sync::{MutexGuard, Once};

use crate::kernel;
use crate::registry::{self, Registry};
use crate::services::{self, Services};

/// The locks of the state.
type Guards = (MutexGuard<'static, Services>, MutexGuard<'static, Registry>);

/// The locks of the state, held while the process forks.
struct Held(UnsafeCell<Option<Guards>>);

// SAFETY: the cell is accessed by the thread that forks only, between the handlers before and after the fork, during
// which it holds the lock; another thread that forks waits for the lock first.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

/// Installs the fork handlers.
pub(crate) fn watch() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // SAFETY: the handlers exist until the process exits, because the library is never unloaded.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    });
}

extern "C" fn before() {
    let guards = (services::lock(), registry::lock());
    // SAFETY: this thread holds the locks, see `Held`.
    unsafe { *HELD.0.get() = Some(guards) };
}

extern "C" fn in_parent() {
    // SAFETY: this thread has stored the guards before the fork, see `Held`.
    drop(unsafe { (*HELD.0.get()).take() });
}

extern "C" fn in_child() {
    let _inside = kernel::Inside::enter();
    // SAFETY: as in `in_parent`; the child has only this thread.
    let Some((mut services, mut registry)) = (unsafe { (*HELD.0.get()).take() }) else { return };
    for fd in registry.take_descriptors() {
        // SAFETY: a descriptor of this library, whose owners are threads that do not exist in this process.
        unsafe { libc::close(fd) };
    }
    services.leave_to_parent();
}
