//! An allocator that counts separately for each thread, because tests run in parallel.
#![expect(unsafe_code, reason = "only an allocator can count allocations")]
#![allow(dead_code, reason = "each test file asks for its own part")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static LIVE_BYTES: Cell<i64> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static HEAP: Counting = Counting;

/// Counts an allocation that changed the live bytes of this thread by `bytes`.
fn count(allocations: u64, bytes: i64) {
    // A thread that is ending has no counters any more, and no test asks for them.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + allocations));
    let _ = LIVE_BYTES.try_with(|live| live.set(live.get() + bytes));
}

// SAFETY: every call goes to the system's allocator unchanged; counting touches only thread-local cells, which neither
// allocate nor unwind.
unsafe impl GlobalAlloc for Counting {
    // SAFETY: the caller upholds the contract of this method, which is also that of `System`.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    // SAFETY: the caller upholds the contract of this method, which is also that of `System`.
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, -(layout.size() as i64));
        // SAFETY: the caller's promise about `pointer` and `layout` is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    // SAFETY: the caller upholds the contract of this method, which is also that of `System`.
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(1, size as i64 - layout.size() as i64);
        // SAFETY: the caller's promise about all three is passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Number of allocations of this thread so far, including those that grow an existing one.
pub fn allocations() -> u64 {
    ALLOCATIONS.get()
}

/// Number of bytes that this thread has allocated and not freed.
pub fn live_bytes() -> i64 {
    LIVE_BYTES.get()
}
