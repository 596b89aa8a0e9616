//! Short time slices, for threads that drive a NIC next to other threads that compute.
//!
//! Linux 6.12 and later lets an ordinary thread request its time slice (sched_setattr(2), `sched_runtime` of
//! `SCHED_OTHER`). The thread's share of a processor does not change; but when a packet wakes it, it runs immediately
//! instead of waiting until another thread's slice is over: 4 ms at 250 Hz, two hundred round trips.

use std::mem::MaybeUninit;

/// The shortest slice that the kernel grants, in ns.
const SLICE_NS: u64 = 100_000;

/// Requests short time slices from the kernel for the calling thread, and for the threads and programs that it starts.
/// Returns `true` when they are in effect. Threads with another scheduling policy keep it, and kernels before 6.12
/// change nothing.
pub fn shorten_slices() -> bool {
    let Some(mut attributes) = scheduling() else { return false };
    if !matches!(attributes.sched_policy.cast_signed(), libc::SCHED_OTHER | libc::SCHED_BATCH) {
        return false;
    }
    attributes.sched_runtime = SLICE_NS;
    // SAFETY: the kernel reads as many bytes of `attributes` as its `size` states, which the kernel has set to no more
    // than the structure has; 0 is the calling thread, 0 are no flags.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } == 0;
    done && scheduling().is_some_and(|now| now.sched_runtime == SLICE_NS)
}

/// Returns the scheduling attributes of the calling thread.
fn scheduling() -> Option<libc::sched_attr> {
    let mut attributes = MaybeUninit::<libc::sched_attr>::zeroed();
    let size = size_of::<libc::sched_attr>();
    // SAFETY: the kernel writes at most `size` bytes, which `attributes` has; 0 is the calling thread, 0 are no flags.
    let done = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, attributes.as_mut_ptr(), size, 0) } == 0;
    // SAFETY: all of its fields are integers, and zeroed.
    done.then(|| unsafe { attributes.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_slice_is_inherited_and_the_nice_value_stays() {
        std::thread::spawn(|| {
            let before = scheduling().expect("the kernel tells");
            // Kernels before 6.12 tell of no slice.
            if before.sched_runtime == 0 {
                assert!(!shorten_slices());
                return;
            }
            assert!(shorten_slices());
            let inherited = std::thread::spawn(|| scheduling().expect("the kernel tells")).join().expect("it ends");
            assert_eq!(inherited.sched_runtime, SLICE_NS);
            assert_eq!(inherited.sched_nice, before.sched_nice);
            assert_eq!(inherited.sched_policy, before.sched_policy);
        })
        .join()
        .expect("it holds");
    }

    #[test]
    fn another_policy_is_left_alone() {
        std::thread::spawn(|| {
            let none = libc::sched_param { sched_priority: 0 };
            // SAFETY: `none` is what SCHED_IDLE takes; 0 is the calling thread.
            assert_eq!(unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const none) }, 0);
            assert!(!shorten_slices());
            assert_eq!(scheduling().expect("the kernel tells").sched_policy.cast_signed(), libc::SCHED_IDLE);
        })
        .join()
        .expect("it holds");
    }
}
