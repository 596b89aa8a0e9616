//! Detection of threads that use their processor continuously, as opposed to sleeping.
//!
//! Every thread has a processor-time clock that other threads may read (`clock_gettime(2)`, dynamic clocks). If this
//! clock advances as fast as wall-clock time, the thread is running; while a thread sleeps in a system call, its clock
//! does not advance.

use std::cell::Cell;
use std::time::{Duration, Instant};

thread_local! {
    // `const` and without a destructor, so that a signal handler may read it.
    static THIS_THREAD: Cell<i32> = const { Cell::new(0) };
}

/// Returns the kernel thread number of the calling thread.
#[inline]
pub(crate) fn this_thread() -> i32 {
    let known = THIS_THREAD.get();
    if known != 0 {
        return known;
    }
    // SAFETY: only returns a number.
    let number = unsafe { libc::gettid() };
    THIS_THREAD.set(number);
    number
}

/// Discards the cached number of the calling thread, which has another number in the child after a fork.
pub(super) fn forget_this_thread() {
    THIS_THREAD.set(0);
}

/// Returns the processor time that a thread of this process has used, if the thread exists.
fn processor_time(thread: i32) -> Option<Duration> {
    // Clock number: complement of the thread number in the upper bits, then the flags for "per thread" and "scheduled
    // time".
    let clock = (!thread << 3) | 0b110;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes `time`; an unknown clock is an error.
    let failed = unsafe { libc::clock_gettime(clock, &raw mut time) } != 0;
    (!failed).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// Observes the processor usage of one thread at a time.
#[derive(Debug, Default)]
pub(super) struct Watch {
    last: Option<Sample>,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    thread: i32,
    wall: Instant,
    processor: Duration,
}

/// Activity of an observed thread since the previous measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// The interval is too short for a decision.
    Unknown,
    /// The thread ran nearly all the time.
    Busy,
    /// The thread ran part of the time.
    Works,
    /// The thread slept most of the time.
    Sleeps,
}

impl Watch {
    /// Measures `thread`. Intervals shorter than [`INTERVAL_MIN`] give no result and are added to the next one.
    pub(super) fn measure(&mut self, thread: i32) -> Verdict {
        let wall = Instant::now();
        if let Some(last) = self.last
            && last.thread == thread
            && wall - last.wall < INTERVAL_MIN
        {
            return Verdict::Unknown;
        }
        let Some(processor) = processor_time(thread) else {
            self.last = None;
            return Verdict::Unknown;
        };
        let previous = self.last.replace(Sample { thread, wall, processor });
        let Some(previous) = previous.filter(|previous| previous.thread == thread) else { return Verdict::Unknown };
        let percent =
            (processor.saturating_sub(previous.processor)).as_nanos() * 100 / (wall - previous.wall).as_nanos().max(1);
        match percent {
            BUSY_PERCENT.. => Verdict::Busy,
            SLEEPS_PERCENT.. => Verdict::Works,
            _ => Verdict::Sleeps,
        }
    }
}

/// Minimum interval between two measurements; in shorter ones, scheduling noise dominates.
const INTERVAL_MIN: Duration = Duration::from_micros(500);

/// Minimum processor usage in percent for a thread to count as burning; less than 100, because a thread that shares
/// its processor with the worker runs a bit less than all the time.
const BUSY_PERCENT: u128 = 75;

/// Processor usage in percent below which a thread counts as sleeping: a thread that sleeps half of the time can be
/// interrupted in a system call.
const SLEEPS_PERCENT: u128 = 50;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeping_and_spinning_threads_are_distinguished() {
        let thread = this_thread();
        let mut watch = Watch::default();
        assert_eq!(watch.measure(thread), Verdict::Unknown);
        // Other programs may use the processor meanwhile, so it suffices that one of several attempts is undisturbed.
        let was_busy = (0..50).any(|_| {
            let until = Instant::now() + Duration::from_millis(2);
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            watch.measure(thread) == Verdict::Busy
        });
        assert!(was_busy, "2 ms of spinning were never detected");
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(watch.measure(thread), Verdict::Sleeps);
        assert_eq!(watch.measure(thread), Verdict::Unknown, "measured again after too short an interval");
        assert_eq!(watch.measure(i32::MAX >> 4), Verdict::Unknown, "a thread that does not exist was measured");
    }
}
