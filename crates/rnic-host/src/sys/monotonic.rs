//! The machine's clocks (clock_gettime(2)). All processes see the same monotonic clock; `Instant` does not show its
//! value.

use std::mem::MaybeUninit;

/// Returns the time of the monotonic clock in nanoseconds.
pub fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Returns the time of the real-time clock in nanoseconds, which the time stamps of received packets use. It jumps when
/// the date is set.
pub fn realtime_ns() -> u64 {
    read(libc::CLOCK_REALTIME)
}

fn read(clock: libc::clockid_t) -> u64 {
    // SAFETY: all zero is a valid value.
    let mut time: libc::timespec = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: `time` has space for the result. The call cannot fail: these clocks exist on every Linux.
    unsafe { libc::clock_gettime(clock, &mut time) };
    nanoseconds(&time)
}

/// Returns a time in nanoseconds.
pub(super) fn nanoseconds(time: &libc::timespec) -> u64 {
    let [seconds, nanoseconds] = [time.tv_sec, time.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}
