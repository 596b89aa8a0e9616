//! Queues of events behind a file descriptor that programs poll.
//!
//! The descriptor counts the waiting events: it is readable exactly while there are some. Programs that add it to their
//! own event loop rely on this.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard};

use crate::cancel::{Uncancelled, read_cancellably};
use crate::errno::{Errno, Result};
use crate::heap::Busy;

/// Takes a lock and ignores poisoning. No code that can panic runs with one held, and a panic would end the process at
/// the C boundary anyway.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A queue of events that wait to be fetched by the program.
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
        // The signal handler delivers events too: it must not find the lock held by the thread that it interrupts.
        let _busy = Busy::begin();
        let _uncancelled = Uncancelled::begin();
        lock(&self.waiting).push_back(event);
        let one = 1u64;
        // SAFETY: writes eight bytes of a local variable. It fails only when 2^64 events wait.
        unsafe { libc::write(self.fd(), (&raw const one).cast(), size_of::<u64>()) };
    }

    /// Pops the oldest event; waits for one unless the program has made the descriptor non-blocking. `fetched` is
    /// called under the queue's lock to record that the event is on its way to the program, so that code that destroys
    /// the event's object, which calls [`EventQueue::forget`], finds either the event in the queue or that record.
    pub(crate) fn pop(&self, fetched: impl FnOnce(&T)) -> Result<T> {
        loop {
            let mut count = 0u64;
            if read_cancellably(self.fd(), &mut count) < 0 {
                return Err(Errno::last());
            }
            let _busy = Busy::begin();
            // The queue is empty when the event's object has been destroyed meanwhile.
            let mut waiting = lock(&self.waiting);
            if let Some(event) = waiting.pop_front() {
                fetched(&event);
                return Ok(event);
            }
        }
    }

    /// Removes the events of an object that is being destroyed.
    pub(crate) fn forget(&self, mut is_gone: impl FnMut(&T) -> bool) {
        let _busy = Busy::begin();
        let _uncancelled = Uncancelled::begin();
        let mut waiting = lock(&self.waiting);
        let before = waiting.len();
        waiting.retain(|event| !is_gone(event));
        for _ in waiting.len()..before {
            let mut count = 0u64;
            let mut into = libc::iovec { iov_base: (&raw mut count).cast(), iov_len: size_of::<u64>() };
            // SAFETY: reads eight bytes into a local variable. It does not block, because another thread may have just
            // consumed the last count; that thread then finds no event for it.
            unsafe { libc::preadv2(self.fd(), &raw mut into, 1, -1, libc::RWF_NOWAIT) };
        }
    }
}

/// Number of events of an object that the program has fetched and not yet acknowledged. The object cannot be destroyed
/// while there are any.
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
        let mut left = lock(&self.count);
        *left = left.saturating_sub(count);
        self.changed.notify_all();
    }

    /// Waits until all fetched events are acknowledged.
    pub(crate) fn wait(&self) {
        let mut left = lock(&self.count);
        while *left > 0 {
            left = self.changed.wait(left).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_readable(queue: &EventQueue<u32>) -> bool {
        let mut poll = libc::pollfd { fd: queue.fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, which outlives the call.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    }

    #[test]
    fn the_descriptor_is_readable_while_events_wait() {
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
    fn who_destroys_finds_the_event_or_its_count() {
        let queue = EventQueue::new().expect("an eventfd");
        let (events, about_to) = (Unacknowledged::default(), std::sync::Barrier::new(2));
        queue.push(1);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let slowly = |_: &u32| {
                    about_to.wait();
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    events.fetched();
                };
                assert_eq!(queue.pop(slowly), Ok(1));
            });
            about_to.wait();
            queue.forget(|_| true);
            assert_eq!(*lock(&events.count), 1, "neither in the queue nor counted: its object would go");
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
