//! Who makes progress: the program when it calls, a thread when it does not, and a signal when there is no processor
//! left for the thread.
//!
//! A [`Driver`] keeps a NIC behind one lock. Three parties drive it:
//!
//! 1. **The program.** Every call that posts or polls takes the lock ([`Driver::lock`]) and does what is due. While a
//!    program polls, the other two stay out of its way.
//! 2. **The thread** ([`thread`]). It sleeps on the sockets and acts when nobody has called for a few microseconds: for
//!    programs that sleep, wait for events, or are the passive target of somebody's Writes.
//! 3. **The signal** ([`signal`]). A program that spins on memory calls nobody and leaves its processor to nobody. When
//!    every processor is taken by such a program, a thread waits for the scheduler. So the kernel is told to interrupt
//!    the spinning thread itself when a packet arrives. It is armed only for a thread that has been seen to burn
//!    processor time while it called nobody ([`burn`]): one that sleeps in a system call is never interrupted.
//!
//! Measured: two processes pinned to one processor each, both spinning on memory (`ib_write_lat`), on a loaded machine:
//! 22 us median and 1.1 ms in the 99th percentile with the thread alone, 13 and 0.06 with the signal.
//!
//! The handler runs on the program's stack, in the middle of whatever it did. It only *tries* the lock; when somebody
//! has it, `pending` tells that somebody to look again after unlocking. What it runs may allocate: see [`crate::heap`].

mod burn;
mod restart;
mod signal;
mod thread;

#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use burn::this_thread;

use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use crate::cancel::Uncancelled;
use rnic_host::Progress as Mode;
use signal::Armed;
use thread::Worker;

/// What is driven: a NIC and whatever must hear of what it did.
pub(crate) trait Machine: Send + 'static {
    /// Sends what is due, takes in what has come; answers whether anything moved.
    fn progress(&mut self) -> bool;

    /// How long until [`Machine::progress`] must be called even if nothing comes in; `None` when there is no hurry.
    fn next_due(&self) -> Option<Duration>;

    /// Sends what is ready. If nothing is left to do, sees to it that whatever comes in makes a descriptor readable
    /// from now until the next [`Machine::progress`], and answers that one may sleep on them.
    fn may_sleep(&mut self) -> bool;

    /// Descriptors that become readable when something has come in.
    fn descriptors(&self) -> Descriptors;
}

/// The descriptors of a machine.
pub(crate) type Descriptors = arrayvec::ArrayVec<RawFd, DESCRIPTORS_MAX>;

/// A machine, its lock, and those who drive it.
#[derive(Debug)]
pub(crate) struct Driver<M: Machine> {
    shared: Arc<Shared<M>>,
    worker: Option<Worker>,
}

/// What the program's threads, the worker and the signal handler share.
#[derive(Debug)]
struct Shared<M> {
    machine: Mutex<M>,
    mode: Mode,
    start: Instant,
    /// Somebody found the lock taken: whoever has it looks again.
    pending: AtomicBool,
    /// When the program last called, in nanoseconds since `start`.
    last_call_ns: AtomicU64,
    /// The thread that last called.
    caller: AtomicI32,
    /// The program has said that it is about to sleep: calls for which it is believed, in spite of their coming.
    asked: AtomicU32,
    /// Until when the worker sleeps, in nanoseconds since `start`; 0 when it does not.
    sleeps_until_ns: AtomicU64,
    stop: AtomicBool,
    /// Wakes the worker: an `eventfd`.
    wake: thread::Wake,
    armed: Armed,
}

/// In a child: its one thread has another number than the parent's, and nothing of the parent's is driven here.
/// Allowed after a fork: it neither locks nor allocates.
pub(crate) fn forget_parent() {
    burn::forget_this_thread();
    signal::forget_targets();
}

impl<M: Machine> Driver<M> {
    /// Puts `machine` behind its lock and starts its thread.
    ///
    /// # Errors
    /// When the system gives no thread or no descriptor.
    pub(crate) fn start(machine: M, mode: Mode) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            machine: Mutex::new(machine),
            mode,
            start: Instant::now(),
            pending: AtomicBool::new(false),
            last_call_ns: AtomicU64::new(0),
            caller: AtomicI32::new(0),
            asked: AtomicU32::new(0),
            sleeps_until_ns: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            wake: thread::Wake::new()?,
            armed: Armed::default(),
        });
        let worker = if mode == Mode::Off { None } else { Some(Worker::start(Arc::clone(&shared))?) };
        Ok(Self { shared, worker })
    }

    /// The machine, for a call of the program. When the guard goes, whatever others left undone is done.
    pub(crate) fn lock(&self) -> Guard<'_, M> {
        let uncancelled = Uncancelled::begin();
        let machine = self.shared.machine.lock().unwrap_or_else(PoisonError::into_inner);
        Guard { shared: &self.shared, machine: Some(machine), asks: false, _uncancelled: uncancelled }
    }

    /// The machine, for somebody who only looks: to the others that is no call of the program.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&M) -> R) -> R {
        let _uncancelled = Uncancelled::begin();
        let machine = self.shared.machine.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = look(&machine);
        drop(machine);
        self.shared.settle();
        seen
    }
}

impl<M: Machine> Drop for Driver<M> {
    fn drop(&mut self) {
        self.shared.armed.disarm();
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake.kick();
        if let Some(worker) = self.worker.take() {
            worker.join();
        }
    }
}

impl<M: Machine> Shared<M> {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Drives the machine unless somebody has it; `None` then, and that somebody will look again.
    fn try_progress(&self) -> Option<bool> {
        let _uncancelled = Uncancelled::begin();
        match self.machine.try_lock() {
            Ok(mut machine) => {
                let moved = machine.progress();
                self.stay_in_reach(&mut machine);
                drop(machine);
                self.settle();
                Some(moved)
            }
            Err(TryLockError::Poisoned(_)) => None,
            Err(TryLockError::WouldBlock) => {
                self.pending.store(true, Ordering::SeqCst);
                None
            }
        }
    }

    /// While signals stand in for the worker, what comes in must make a descriptor readable, or there is no signal.
    #[inline]
    fn stay_in_reach(&self, machine: &mut M) {
        if self.armed.is_armed() {
            for _ in 0..STAY_TRIES {
                if machine.may_sleep() {
                    return;
                }
                machine.progress();
            }
        }
    }

    /// After unlocking: does what somebody wanted to do while we had the lock.
    #[inline]
    fn settle(&self) {
        while self.pending.load(Ordering::SeqCst) && self.pending.swap(false, Ordering::SeqCst) {
            match self.machine.try_lock() {
                Ok(mut machine) => {
                    machine.progress();
                    self.stay_in_reach(&mut machine);
                }
                // Whoever has it now took it after the packet had come, and looks for packets too.
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
    asks: bool,
    /// Until all is done that `drop` does.
    _uncancelled: Uncancelled,
}

impl<M: Machine> Guard<'_, M> {
    /// The program is about to sleep until an event: the thread shall take over at once.
    pub(crate) fn hand_over(&mut self) {
        self.asks = true;
    }
}

impl<M: Machine> Deref for Guard<'_, M> {
    type Target = M;

    fn deref(&self) -> &M {
        self.machine.as_ref().expect("locked until dropped")
    }
}

impl<M: Machine> DerefMut for Guard<'_, M> {
    fn deref_mut(&mut self) -> &mut M {
        self.machine.as_mut().expect("locked until dropped")
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
        let caller = burn::this_thread();
        if shared.caller.load(Ordering::Relaxed) != caller {
            shared.caller.store(caller, Ordering::Relaxed);
        }
        let due = machine.next_due().map_or(u64::MAX, |due| now.saturating_add(due.as_nanos() as u64));
        let descriptors = shared.armed.wants_arming(caller).then(|| machine.descriptors());
        shared.stay_in_reach(&mut machine);
        drop(machine);
        shared.settle();
        if let Some(descriptors) = descriptors {
            shared.arm(caller, &descriptors);
        }
        let asked = shared.asked.load(Ordering::Relaxed);
        if self.asks {
            shared.asked.store(ASKED_CALLS, Ordering::Release);
        } else if asked > 0 {
            shared.asked.store(asked - 1, Ordering::Release);
        }
        // A thread that sleeps on the sockets until later than this must know. One that finds the program calling
        // sleeps for `thread::BACKOFF_MAX` at most, and must know only if the program asks for it.
        let sleeps_until = shared.sleeps_until_ns.load(Ordering::Acquire);
        if due.saturating_add(SLACK_NS) < sleeps_until || (self.asks && sleeps_until == 0) {
            shared.wake.kick();
        }
    }
}

/// How much too late a deadline may be noticed before the thread is woken for it: waking it costs the program a
/// microsecond or two, and deadlines are retransmission timeouts, milliseconds away.
const SLACK_NS: u64 = 500_000;

/// Times that packets may come in just as we want to stop looking; after that the worker's next round does.
const STAY_TRIES: u32 = 4;

/// A program that asks for an event polls once more before it sleeps, or for each of its queues.
const ASKED_CALLS: u32 = 16;

/// Descriptors of one machine, at most: four sockets and those of the same-host wire, with room.
pub(crate) const DESCRIPTORS_MAX: usize = 16;
