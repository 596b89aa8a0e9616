//! Queues of events, each with a file descriptor that programs poll.
//!
//! The descriptor counts the pending events: it is readable exactly while there is at least one. Programs that add it
//! to their own event loop rely on this.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard};

use crate::cancel::{CancellationGuard, read_cancellably};
use crate::errno::{Errno, Result};
use crate::heap::Busy;

/// Acquires a lock and ignores poisoning. No code that can panic runs while a lock is held, and a panic would abort
/// the process at the C boundary anyway.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A queue of events that the program has not yet fetched.
#[derive(Debug)]
pub(crate) struct EventQueue<T> {
    fd: OwnedFd,
    waiting: Mutex<VecDeque<T>>,
}

impl<T> EventQueue<T> {
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: creates a new descriptor.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_SEMAPHORE) };
        if fd < 0 {
            return Err(Errno::last());
        }
        // SAFETY: the descriptor is new and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, waiting: Mutex::new(VecDeque::new()) })
    }

    pub(crate) fn fd(&self) -> c_int {
        self.fd.as_raw_fd()
    }

    /// Adds an event.
    pub(crate) fn push(&self, event: T) {
        // The signal handler delivers events too, so it must not run on a thread that holds the lock.
        let _busy = Busy::begin();
        let _cancellation_guard = CancellationGuard::begin();
        lock(&self.waiting).push_back(event);
        let one = 1u64;
        // SAFETY: writes eight bytes of a local variable. It fails only when 2^64 events are pending.
        unsafe { libc::write(self.fd(), (&raw const one).cast(), size_of::<u64>()) };
    }

    /// Pops the oldest event; waits for one unless the program has made the descriptor non-blocking. `on_fetched` is
    /// called under the queue's lock to record that the event has been fetched. Code that destroys the event's object
    /// calls [`EventQueue::forget`], and so finds either the event in the queue or that record.
    pub(crate) fn pop(&self, on_fetched: impl FnOnce(&T)) -> Result<T> {
        loop {
            let mut count = 0u64;
            if read_cancellably(self.fd(), &mut count) < 0 {
                return Err(Errno::last());
            }
            let _busy = Busy::begin();
            // The queue is empty when the event's object has been destroyed meanwhile.
            let mut waiting = lock(&self.waiting);
            if let Some(event) = waiting.pop_front() {
                on_fetched(&event);
                return Ok(event);
            }
        }
    }

    /// Removes the events of an object that is being destroyed.
    pub(crate) fn forget(&self, mut is_gone: impl FnMut(&T) -> bool) {
        let _busy = Busy::begin();
        let _cancellation_guard = CancellationGuard::begin();
        let mut waiting = lock(&self.waiting);
        let before = waiting.len();
        waiting.retain(|event| !is_gone(event));
        for _ in waiting.len()..before {
            let mut count = 0u64;
            let mut buffer = libc::iovec { iov_base: (&raw mut count).cast(), iov_len: size_of::<u64>() };
            // SAFETY: reads eight bytes into a local variable. It must not block (`RWF_NOWAIT`), because another
            // thread may have just consumed the last count; that thread then finds no event in the queue.
            unsafe { libc::preadv2(self.fd(), &raw mut buffer, 1, -1, libc::RWF_NOWAIT) };
        }
    }
}

/// Number of events of an object that the program has fetched and not yet acknowledged. The object cannot be
/// destroyed until all are acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Unacknowledged {
    count: Mutex<u32>,
    changed: Condvar,
}

impl Unacknowledged {
    pub(crate) fn fetched(&self) {
        *lock(&self.count) += 1;
    }

    pub(crate) fn acknowledge(&self, count: u32) {
        let mut unacknowledged = lock(&self.count);
        *unacknowledged = unacknowledged.saturating_sub(count);
        self.changed.notify_all();
    }

    /// Waits until all fetched events are acknowledged.
    pub(crate) fn wait(&self) {
        let mut unacknowledged = lock(&self.count);
        while *unacknowledged > 0 {
            unacknowledged = self.changed.wait(unacknowledged).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_readable(queue: &EventQueue<u32>) -> bool {
        let mut poll = libc::pollfd { fd: queue.fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: passes one structure, which outlives the call.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    }

    #[test]
    fn the_descriptor_is_readable_while_events_are_queued() {
        let queue = EventQueue::new().expect("an eventfd");
        assert!(!is_readable(&queue));
        for event in [1, 2, 1, 3] {
            queue.push(event);
        }
        assert_eq!(queue.pop(|_| ()), Ok(1));
        queue.forget(|event| *event == 1);
        assert_eq!(queue.pop(|_| ()), Ok(2));
        assert!(is_readable(&queue));
        assert_eq!(queue.pop(|_| ()), Ok(3));
        assert!(!is_readable(&queue));
    }

    #[test]
    fn an_event_is_always_queued_or_counted() {
        let queue = EventQueue::new().expect("an eventfd");
        let (events, barrier) = (Unacknowledged::default(), std::sync::Barrier::new(2));
        queue.push(1);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let count_slowly = |_: &u32| {
                    barrier.wait();
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    events.fetched();
                };
                assert_eq!(queue.pop(count_slowly), Ok(1));
            });
            barrier.wait();
            queue.forget(|_| true);
            assert_eq!(*lock(&events.count), 1, "the event is neither in the queue nor counted");
        });
    }

    #[test]
    fn destroying_waits_for_acknowledgements() {
        let events = Unacknowledged::default();
        events.fetched();
        events.fetched();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| events.wait());
            events.acknowledge(1);
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!waiting.is_finished());
            events.acknowledge(1);
        });
    }
}
