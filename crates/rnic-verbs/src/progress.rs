//! Progress of a NIC: driven by the program's calls, by a thread when the program does not call, and by a signal when
//! no processor is free for the thread.
//!
//! A [`Driver`] protects a NIC by one lock. Three parties drive it:
//!
//! 1. **The program.** Every call that posts or polls takes the lock ([`Driver::lock`]) and does the work that is due.
//!    While a program polls, the other two stay inactive.
//! 2. **The thread** ([`thread`]). It sleeps on the sockets and drives the NIC when the program has made no call for a
//!    few microseconds: for programs that sleep, wait for events, or are the passive target of a peer's Writes.
//! 3. **The signal** ([`signal`]). A program that spins on memory makes no call and does not yield its processor. When
//!    every processor is used by such a program, a thread has to wait for the scheduler. The kernel is therefore set up
//!    to interrupt the spinning thread itself when a packet arrives. The signal is armed only for a thread that has
//!    been observed to use processor time without making calls ([`cpu_usage`]): a thread that sleeps in a system call
//!    is never interrupted.
//!
//! Measured: two processes pinned to one processor each, both spinning on memory (`ib_write_lat`), on a loaded machine:
//! 22 us median and 1.1 ms in the 99th percentile with the thread alone, 13 us and 0.06 ms with the signal.
//!
//! The handler runs on the program's stack, at an arbitrary point of the program. It only *tries* to take the lock;
//! when the lock is held, it sets `pending`, and the holder drives the NIC again after unlocking. The code that it runs
//! may allocate: see [`crate::heap`].

mod cpu_usage;
mod restart;
mod signal;
mod thread;

#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use cpu_usage::this_thread;

use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use crate::cancel::CancellationGuard;
use rnic_host::Progress as Mode;
use signal::Armed;
use thread::Worker;

/// A machine that is driven: a NIC together with the consumers of its events.
pub(crate) trait Machine: Send + 'static {
    /// Sends due packets and processes received ones; returns whether there was any activity.
    fn progress(&mut self) -> bool;

    /// Returns the time until [`Machine::progress`] must be called even if no packet arrives; `None` when there is no
    /// deadline.
    fn next_due(&self) -> Option<Duration>;

    /// Sends packets that are ready. If no work is left, ensures that any arrival makes a descriptor readable from now
    /// until the next [`Machine::progress`], and returns true: the caller may sleep on the descriptors.
    fn may_sleep(&mut self) -> bool;

    /// Returns the descriptors that become readable when a packet has arrived.
    fn descriptors(&self) -> Descriptors;
}

/// The descriptors of a machine.
pub(crate) type Descriptors = arrayvec::ArrayVec<RawFd, DESCRIPTORS_MAX>;

/// A machine with its lock, its worker thread and its signal state.
#[derive(Debug)]
pub(crate) struct Driver<M: Machine> {
    shared: Arc<Shared<M>>,
    worker: Option<Worker>,
}

/// State shared by the program's threads, the worker and the signal handler.
#[derive(Debug)]
struct Shared<M> {
    machine: Mutex<M>,
    mode: Mode,
    start: Instant,
    /// Set when another thread or the signal handler found the lock held: the holder drives the machine again after
    /// unlocking.
    pending: AtomicBool,
    /// Time of the program's last call, in nanoseconds since `start`.
    last_call_ns: AtomicU64,
    /// Kernel thread number of the thread that called last.
    caller: AtomicI32,
    /// Number of further calls for which the program, having announced that it is about to sleep, is not considered to
    /// be polling.
    calls_left: AtomicU32,
    /// End of the worker's current sleep, in nanoseconds since `start`; 0 when it does not sleep on the sockets.
    sleeps_until_ns: AtomicU64,
    stop: AtomicBool,
    /// Wakes the worker, by an `eventfd`.
    wake: thread::Wake,
    armed: Armed,
}

/// Resets inherited state in a child process: its only thread has another kernel thread number than in the parent, and
/// no machine of the parent is driven here. Permitted after a fork, because it neither locks nor allocates.
pub(crate) fn forget_parent() {
    cpu_usage::forget_this_thread();
    signal::forget_targets();
}

impl<M: Machine> Driver<M> {
    /// Protects `machine` by a lock and, unless `mode` is `Mode::Off`, starts the worker thread.
    ///
    /// # Errors
    /// When the system cannot provide a thread or a descriptor.
    pub(crate) fn start(machine: M, mode: Mode) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            machine: Mutex::new(machine),
            mode,
            start: Instant::now(),
            pending: AtomicBool::new(false),
            last_call_ns: AtomicU64::new(0),
            caller: AtomicI32::new(0),
            calls_left: AtomicU32::new(0),
            sleeps_until_ns: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            wake: thread::Wake::new()?,
            armed: Armed::default(),
        });
        let worker = if mode == Mode::Off { None } else { Some(Worker::start(Arc::clone(&shared))?) };
        Ok(Self { shared, worker })
    }

    /// Locks the machine for a call of the program. When the guard is dropped, the work that others attempted
    /// meanwhile is done, except in `Mode::Off`.
    pub(crate) fn lock(&self) -> Guard<'_, M> {
        let cancellation_guard = CancellationGuard::begin();
        let machine = self.shared.machine.lock().unwrap_or_else(PoisonError::into_inner);
        Guard {
            shared: &self.shared,
            machine: Some(machine),
            hands_over: false,
            _cancellation_guard: cancellation_guard,
        }
    }

    /// Calls `inspect` with the locked machine; this does not count as a call of the program.
    pub(crate) fn inspect<R>(&self, inspect: impl FnOnce(&M) -> R) -> R {
        let _cancellation_guard = CancellationGuard::begin();
        let machine = self.shared.machine.lock().unwrap_or_else(PoisonError::into_inner);
        let result = inspect(&machine);
        drop(machine);
        self.shared.do_pending_work();
        result
    }
}

impl<M: Machine> Driver<M> {
    /// Calls `change` with the locked machine, and wakes the thread, because the machine may have work now; this does
    /// not count as a call of the program.
    pub(crate) fn control<R>(&self, change: impl FnOnce(&mut M) -> R) -> R {
        let _cancellation_guard = CancellationGuard::begin();
        let mut machine = self.shared.machine.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut machine);
        drop(machine);
        self.shared.do_pending_work();
        self.shared.wake.notify();
        result
    }
}

impl<M: Machine> Drop for Driver<M> {
    fn drop(&mut self) {
        self.shared.armed.disarm();
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake.notify();
        if let Some(worker) = self.worker.take() {
            worker.join();
        }
    }
}

impl<M: Machine> Shared<M> {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Drives the machine unless the lock is held; otherwise sets `pending`, so that the holder drives it again, and
    /// returns `None`.
    fn try_progress(&self) -> Option<bool> {
        let _cancellation_guard = CancellationGuard::begin();
        match self.machine.try_lock() {
            Ok(mut machine) => {
                let was_active = machine.progress();
                self.arm_descriptors(&mut machine);
                drop(machine);
                self.do_pending_work();
                Some(was_active)
            }
            Err(TryLockError::Poisoned(_)) => None,
            Err(TryLockError::WouldBlock) => {
                self.pending.store(true, Ordering::SeqCst);
                None
            }
        }
    }

    /// While signals replace the worker, ensures that any arrival makes a descriptor readable, because otherwise no
    /// signal is sent.
    #[inline]
    fn arm_descriptors(&self, machine: &mut M) {
        if self.armed.is_armed() {
            for _ in 0..STATE_TRIES_MAX {
                if machine.may_sleep() {
                    return;
                }
                machine.progress();
            }
        }
    }

    /// Called after unlocking: does the work that other threads attempted while the lock was held.
    #[inline]
    fn do_pending_work(&self) {
        while self.pending.load(Ordering::SeqCst) && self.pending.swap(false, Ordering::SeqCst) {
            match self.machine.try_lock() {
                Ok(mut machine) => {
                    machine.progress();
                    self.arm_descriptors(&mut machine);
                }
                // The current holder took the lock after the packet had arrived, and processes received packets too.
                Err(_) => return,
            }
        }
    }
}

/// The machine, locked by a call of the program.
#[derive(Debug)]
pub(crate) struct Guard<'a, M: Machine> {
    shared: &'a Shared<M>,
    machine: Option<MutexGuard<'a, M>>,
    hands_over: bool,
    /// Disables cancellation of the thread until `drop` has finished.
    _cancellation_guard: CancellationGuard,
}

impl<M: Machine> Guard<'_, M> {
    /// Requests that the thread takes over immediately, because the program is about to sleep until an event arrives.
    pub(crate) fn hand_over(&mut self) {
        self.hands_over = true;
    }
}

impl<M: Machine> Deref for Guard<'_, M> {
    type Target = M;

    fn deref(&self) -> &M {
        self.machine.as_ref().expect("the guard holds the lock")
    }
}

impl<M: Machine> DerefMut for Guard<'_, M> {
    fn deref_mut(&mut self) -> &mut M {
        self.machine.as_mut().expect("the guard holds the lock")
    }
}

impl<M: Machine> Drop for Guard<'_, M> {
    fn drop(&mut self) {
        let Some(mut machine) = self.machine.take() else { return };
        let shared = self.shared;
        let now = shared.now_ns();
        shared.last_call_ns.store(now, Ordering::Relaxed);
        if shared.mode == Mode::Off {
            return;
        }
        let caller = cpu_usage::this_thread();
        if shared.caller.load(Ordering::Relaxed) != caller {
            shared.caller.store(caller, Ordering::Relaxed);
        }
        let due = machine.next_due().map_or(u64::MAX, |due| now.saturating_add(due.as_nanos() as u64));
        let descriptors = shared.armed.wants_arming(caller).then(|| machine.descriptors());
        shared.arm_descriptors(&mut machine);
        drop(machine);
        shared.do_pending_work();
        if let Some(descriptors) = descriptors {
            shared.arm(caller, &descriptors);
        }
        let calls_left = shared.calls_left.load(Ordering::Relaxed);
        if self.hands_over {
            shared.calls_left.store(CALLS_AFTER_NOTIFY, Ordering::Release);
        } else if calls_left > 0 {
            shared.calls_left.store(calls_left - 1, Ordering::Release);
        }
        // Wake a worker that sleeps on the sockets until later than this deadline. A worker that has found the program
        // calling sleeps for `thread::BACKOFF_MAX` at most, and needs to be woken only if the program is about to
        // sleep.
        let sleeps_until = shared.sleeps_until_ns.load(Ordering::Acquire);
        if due.saturating_add(DEADLINE_SLACK_NS) < sleeps_until || (self.hands_over && sleeps_until == 0) {
            shared.wake.notify();
        }
    }
}

/// Tolerated delay of a deadline in ns before the thread is woken for it: waking it costs the program a microsecond or
/// two, and deadlines are retransmission timeouts, milliseconds away.
const DEADLINE_SLACK_NS: u64 = 500_000;

/// Maximum number of attempts to reach a state without pending arrivals; after that, the worker's next iteration
/// tries again.
const STATE_TRIES_MAX: u32 = 4;

/// Number of calls tolerated after a request for an event, because the program polls once more before it sleeps, or
/// once for each of its queues.
const CALLS_AFTER_NOTIFY: u32 = 16;

/// Maximum number of descriptors of one machine: four sockets and those of the same-host wire, plus a reserve.
pub(crate) const DESCRIPTORS_MAX: usize = 16;
