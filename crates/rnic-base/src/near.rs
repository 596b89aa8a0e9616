//! Bringing memory near before it is needed.
//!
//! What lies on few cache lines is asked for into the first level of cache, what lies on many into the second: a core
//! waits for some twenty lines of the first level at a time, and where it was measured (AMD Zen 4) it drops what it is
//! asked for beyond. Of 160 lines asked for in a row, most were not there microseconds later; of as many asked for into
//! the second level, nearly all. So a table of states of 512 bytes makes 1.6 to 1.8 times as many events a second
//! (`cargo bench -p rnic-fae`), and a simulation with many connections takes 0.7 of the time.

use branches::prefetch_read_data;

/// Bytes of a cache line, most everywhere.
const LINE: usize = 64;

/// Bytes that lie on few lines: entries of queues and headers, of which some are wanted at a time, not connections.
const FEW: usize = 2 * LINE;

/// Levels of cache, as [`prefetch_read_data`] counts them.
const FIRST_LEVEL: i32 = 0;
const SECOND_LEVEL: i32 = 1;

/// Has the cache line of `value`'s first byte brought near: what is there is wanted soon. Never waits, and changes
/// nothing.
#[inline(always)]
pub fn near<T>(value: &T) {
    prefetch_read_data::<_, FIRST_LEVEL>(value);
}

/// The same for element `index` of `all`, when there are so many: an address that nothing lies at takes its time too.
#[inline(always)]
pub fn near_at<T>(all: &[T], index: usize) {
    if let Some(value) = all.get(index) {
        near(value);
    }
}

/// Has all cache lines brought near that `value` lies on, into the second level of cache where they are many. Nothing
/// of it is read: a value that is far away is not waited for, as it is by whoever asks first which variant it is.
#[inline(always)]
pub fn near_whole<T>(value: &T) {
    if size_of::<T>() > FEW {
        lines_near::<T, SECOND_LEVEL>(core::slice::from_ref(value));
    } else {
        lines_near::<T, FIRST_LEVEL>(core::slice::from_ref(value));
    }
}

/// The same for element `index` of `all`, when there are so many.
#[inline(always)]
pub fn near_whole_at<T>(all: &[T], index: usize) {
    if let Some(value) = all.get(index) {
        near_whole(value);
    }
}

/// Has all cache lines that `values` lie on brought into the second level of cache: for who asks for many in a row.
#[inline(always)]
pub fn near_all<T>(values: &[T]) {
    lines_near::<T, SECOND_LEVEL>(values);
}

#[inline(always)]
fn lines_near<T, const LEVEL: i32>(values: &[T]) {
    let (first, bytes) = (values.as_ptr().cast::<u8>(), size_of_val(values));
    let ask = |offset: usize| prefetch_read_data::<_, LEVEL>(first.wrapping_add(offset));
    (0..bytes).step_by(LINE).for_each(ask);
    // What does not begin with a line may end on one more.
    if align_of::<T>() < LINE {
        ask(bytes.saturating_sub(1));
    }
}
