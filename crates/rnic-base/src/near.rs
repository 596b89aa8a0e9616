//! Bringing memory near before it is needed.

use prefetch_index::prefetch_index;

/// Has the cache line of `value`'s first byte brought near: what is there is wanted soon. Never waits, and changes
/// nothing.
#[inline(always)]
pub fn near<T>(value: &T) {
    prefetch_index(core::slice::from_ref(value), 0);
}

/// The same for element `index` of `all`, which need not have so many.
#[inline(always)]
pub fn near_at<T>(all: &[T], index: usize) {
    prefetch_index(all, index);
}
