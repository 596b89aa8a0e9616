//! Pins a thread to one processor, for measurements.

use std::mem::MaybeUninit;

/// Pins the calling thread to one processor until it is dropped.
#[must_use = "the thread is let go when this is dropped"]
pub struct OnProcessor(Option<libc::cpu_set_t>);

impl OnProcessor {
    /// Pins the calling thread to the `nth` of the processors that it may run on, modulo their number. When this fails
    /// nothing changes: it is used for measurements, which are slightly less exact then.
    pub fn nth(nth: usize) -> Self {
        // SAFETY: an all-zero set is valid (and empty).
        let mut allowed: libc::cpu_set_t = unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: `allowed` has the size that is passed; 0 is the calling thread.
        if unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut allowed) } != 0 {
            return Self(None);
        }
        // SAFETY: reads one bit of `allowed`, within its size.
        let is_allowed = |processor: &usize| unsafe { libc::CPU_ISSET(*processor, &allowed) };
        let processors: Vec<usize> = (0..libc::CPU_SETSIZE as usize).filter(is_allowed).collect();
        let Some(chosen) = processors.get(nth % processors.len().max(1)) else { return Self(None) };
        // SAFETY: as above.
        let mut only: libc::cpu_set_t = unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: sets one bit of `only`, within its size.
        unsafe { libc::CPU_SET(*chosen, &mut only) };
        // SAFETY: `only` has the size that is passed.
        let done = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &only) } == 0;
        Self(done.then_some(allowed))
    }
}

impl Drop for OnProcessor {
    fn drop(&mut self) {
        if let Some(allowed) = &self.0 {
            // SAFETY: the set was returned by the kernel and has the size that is passed.
            unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), allowed) };
        }
    }
}
