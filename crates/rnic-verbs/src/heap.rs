//! The library's own memory allocator.
//!
//! The signal handler of [`crate::progress`] runs the engine at an arbitrary point of the program, possibly inside
//! `malloc`: calling the C library's allocator there could deadlock on a lock that the interrupted thread itself
//! holds. This library therefore has its own allocator (mimalloc), and records for each thread whether it is inside
//! this allocator or holds one of the small locks that the handler would need. On such a thread the handler returns
//! immediately; the next call or the progress thread does the work instead.

#[cfg(feature = "shared-object")]
use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{Ordering, compiler_fence};

#[cfg(feature = "shared-object")]
use mimalloc::MiMalloc;

/// Global allocator: mimalloc, with a per-thread count of active calls into it.
#[cfg(feature = "shared-object")]
#[derive(Debug)]
pub(crate) struct Heap;

thread_local! {
    // Initialized by a constant and without a destructor, so that a signal handler may read it.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Returns `true` if the calling thread is inside the allocator or holds a lock that the signal handler would need.
pub(crate) fn is_busy() -> bool {
    DEPTH.get() > 0
}

/// Initializes the state of the calling thread that the allocator and the signal handler need, before the handler
/// runs on it.
pub(crate) fn prepare_thread() {
    drop(Box::new(is_busy()));
}

/// While a value of this type exists, the signal handler does nothing on the thread that created it.
#[derive(Debug)]
pub(crate) struct Busy(PhantomData<*const ()>);

impl Busy {
    #[inline]
    pub(crate) fn begin() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        // The compiler must not move the protected accesses before this store; a compiler fence suffices, because a
        // handler sees the stores of its own thread in program order.
        compiler_fence(Ordering::SeqCst);
        Self(PhantomData)
    }
}

impl Drop for Busy {
    #[inline]
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        DEPTH.set(DEPTH.get() - 1);
    }
}

#[cfg(feature = "shared-object")]
#[inline]
fn inside<T>(act: impl FnOnce() -> T) -> T {
    let _busy = Busy::begin();
    act()
}

#[cfg(feature = "shared-object")]
// SAFETY: every call is forwarded unchanged to an allocator.
unsafe impl GlobalAlloc for Heap {
    // SAFETY: the caller's guarantees are passed on to the underlying allocator.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: guaranteed by the caller.
        inside(|| unsafe { MiMalloc.alloc(layout) })
    }

    // SAFETY: the caller's guarantees are passed on to the underlying allocator.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: guaranteed by the caller.
        inside(|| unsafe { MiMalloc.alloc_zeroed(layout) })
    }

    // SAFETY: the caller's guarantees are passed on to the underlying allocator.
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: guaranteed by the caller.
        inside(|| unsafe { MiMalloc.dealloc(pointer, layout) });
    }

    // SAFETY: the caller's guarantees are passed on to the underlying allocator.
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: guaranteed by the caller.
        inside(|| unsafe { MiMalloc.realloc(pointer, layout, size) })
    }
}
