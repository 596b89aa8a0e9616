//! The library's own memory allocator.
//!
//! The signal handler of [`crate::progress`] runs the engine in the middle of whatever the program did, which may have
//! been `malloc`: calling the C library's allocator there would wait for a lock that the interrupted thread itself
//! holds. So this library has an allocator of its own (mimalloc), and notes for each thread whether it is inside of it,
//! or holds one of the small locks that the handler would need. The handler does nothing in a thread that is; the next
//! call or the progress thread does it instead.

#[cfg(feature = "shared-object")]
use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{Ordering, compiler_fence};

#[cfg(feature = "shared-object")]
use mimalloc::MiMalloc;

/// mimalloc, and whether the calling thread is in it.
#[cfg(feature = "shared-object")]
#[derive(Debug)]
pub(crate) struct Heap;

thread_local! {
    // Without a destructor, so that a signal handler may read it.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Whether the calling thread is inside of the allocator.
pub(crate) fn is_busy() -> bool {
    DEPTH.get() > 0
}

/// Makes sure that the calling thread has what the allocator and the handler need, before a handler does.
pub(crate) fn prepare_thread() {
    drop(Box::new(is_busy()));
}

/// While it lives, no handler does anything on the thread that made it.
#[derive(Debug)]
pub(crate) struct Busy(PhantomData<*const ()>);

impl Busy {
    #[inline]
    pub(crate) fn begin() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        // The compiler must not move the mark behind what it protects; a handler sees its own thread's order.
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
// SAFETY: every call is passed on unchanged to an allocator.
unsafe impl GlobalAlloc for Heap {
    // SAFETY: the allocator below is given what the caller promises.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        inside(|| unsafe { MiMalloc.alloc(layout) })
    }

    // SAFETY: the allocator below is given what the caller promises.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        inside(|| unsafe { MiMalloc.alloc_zeroed(layout) })
    }

    // SAFETY: the allocator below is given what the caller promises.
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        inside(|| unsafe { MiMalloc.dealloc(pointer, layout) });
    }

    // SAFETY: the allocator below is given what the caller promises.
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        inside(|| unsafe { MiMalloc.realloc(pointer, layout, size) })
    }
}
