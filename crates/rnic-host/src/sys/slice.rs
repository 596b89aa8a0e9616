//! Short time slices, for threads that drive a NIC on a processor that they share with computing threads.
//!
//! Linux 6.12 and later lets an ordinary thread request its time slice (sched_setattr(2), `sched_runtime` of
//! `SCHED_OTHER`). The thread's share of a processor does not change; but when a packet wakes it, it runs immediately
//! instead of waiting for the end of another thread's slice: 4 ms at 250 Hz, which is as long as two hundred round
//! trips.

use std::mem::MaybeUninit;

/// The shortest slice that the kernel grants, in ns.
const SLICE_NS: u64 = 100_000;

/// Requests short time slices from the kernel for the calling thread, and for the threads and programs that it
/// starts. Returns `true` when they are in effect. Has no effect on threads with another scheduling policy and on
/// kernels before 6.12.
pub fn shorten_slices() -> bool {
    let Some(mut attributes) = scheduling() else { return false };
    if !matches!(attributes.sched_policy.cast_signed(), libc::SCHED_OTHER | libc::SCHED_BATCH) {
        return false;
    }
    attributes.sched_runtime = SLICE_NS;
    // SAFETY: the kernel reads as many bytes of `attributes` as its `size` states, which the kernel has set to at
    // most the size of the structure; the first 0 denotes the calling thread, the second 0 no flags.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } == 0;
    done && scheduling().is_some_and(|now| now.sched_runtime == SLICE_NS)
}

/// Returns the scheduling attributes of the calling thread.
fn scheduling() -> Option<libc::sched_attr> {
    let mut attributes = MaybeUninit::<libc::sched_attr>::zeroed();
    let size = size_of::<libc::sched_attr>();
    // SAFETY: the kernel writes at most `size` bytes, the size of `attributes`; the first 0 denotes the calling
    // thread, the second 0 no flags.
    let done = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, attributes.as_mut_ptr(), size, 0) } == 0;
    // SAFETY: all fields of the structure are integers, and zero is valid for each.
    done.then(|| unsafe { attributes.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_slice_is_inherited_and_the_nice_value_stays() {
        std::thread::spawn(|| {
            let before = scheduling().expect("the kernel reports it");
            // Kernels before 6.12 do not report the slice.
            if before.sched_runtime == 0 {
                assert!(!shorten_slices());
                return;
            }
            assert!(shorten_slices());
            let inherited = std::thread::spawn(|| scheduling().expect("it is reported")).join().expect("it ends");
            assert_eq!(inherited.sched_runtime, SLICE_NS);
            assert_eq!(inherited.sched_nice, before.sched_nice);
            assert_eq!(inherited.sched_policy, before.sched_policy);
        })
        .join()
        .expect("the thread's assertions hold");
    }

    #[test]
    fn another_scheduling_policy_is_kept() {
        std::thread::spawn(|| {
            let none = libc::sched_param { sched_priority: 0 };
            // SAFETY: SCHED_IDLE requires the priority 0 that `none` has; the argument 0 denotes the calling thread.
            assert_eq!(unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const none) }, 0);
            assert!(!shorten_slices());
            assert_eq!(scheduling().expect("the kernel reports it").sched_policy.cast_signed(), libc::SCHED_IDLE);
        })
        .join()
        .expect("the thread's assertions hold");
    }
}
