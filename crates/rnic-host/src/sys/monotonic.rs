//! The machine's monotonic clock, which all processes read alike (clock_gettime(2)); `Instant` does not show its value.

use std::mem::MaybeUninit;

/// Returns the time of the monotonic clock in nanoseconds.
pub fn monotonic_ns() -> u64 {
    // SAFETY: all zero is a valid value.
    let mut time: libc::timespec = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: `time` has space for the result. The call cannot fail: the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    let [seconds, nanoseconds] = [time.tv_sec, time.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}
