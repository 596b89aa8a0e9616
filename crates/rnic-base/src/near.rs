//! Bringing memory near before it is needed.

use prefetch_index::prefetch_index;

/// Bytes of a cache line, most everywhere.
const LINE: usize = 64;

/// Has the cache line of `value`'s first byte brought near: what is there is wanted soon. Never waits, and changes
/// nothing.
#[inline(always)]
pub fn near<T>(value: &T) {
    prefetch_index(core::slice::from_ref(value), 0);
}

/// The same for element `index` of `all`, when there are so many: an address that nothing lies at takes its time too.
#[inline(always)]
pub fn near_at<T>(all: &[T], index: usize) {
    if let Some(value) = all.get(index) {
        near(value);
    }
}

/// Has all cache lines brought near that `value` lies on. Nothing of it is read: a value that is far away is not waited
/// for, as it is by whoever asks first which variant it is.
#[inline(always)]
pub fn near_whole<T>(value: &T) {
    let first = core::ptr::from_ref(value).addr();
    for offset in (0..size_of::<T>()).step_by(LINE) {
        near_address(first + offset);
    }
    near_address(first + size_of::<T>().saturating_sub(1));
}

/// The same for element `index` of `all`, when there are so many.
#[inline(always)]
pub fn near_whole_at<T>(all: &[T], index: usize) {
    if let Some(value) = all.get(index) {
        near_whole(value);
    }
}

/// An address is an index too, from an empty slice on.
#[inline(always)]
fn near_address(address: usize) {
    const NOWHERE: &[u8] = &[];
    prefetch_index(NOWHERE, address.wrapping_sub(NOWHERE.as_ptr().addr()));
}
