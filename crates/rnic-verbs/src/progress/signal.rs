//! Interruption of a thread that spins on memory when a packet arrives.
//!
//! The kernel sends a signal when a socket becomes readable (`O_ASYNC`, fcntl(2)), in this case to one thread
//! (`F_SETOWN_EX`). Deviations from common practice: the signal is `SIGURG`, which is ignored by default, so that a
//! delayed signal does not terminate a program that resets its handlers; and if the program has a handler for it, the
//! signal is not armed at all.
//!
//! A thread that is interrupted while it sleeps in a system call does not only spin: its driver uses no more signals.
//! The interrupted call is restarted ([`restart`]).
//!
//! A signal costs the interrupted thread about two microseconds. When most signals find no work, because the program
//! polls after all, they are switched off again.

use std::ffi::c_void;
use std::os::fd::RawFd;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering};

use super::restart::{self, InterruptedState};
use super::{Machine, Shared, cpu_usage};
use crate::heap;

/// State of a [`Driver`](super::Driver) that the signal handler needs, without the driver's type parameter.
#[derive(Debug)]
struct SignalTarget {
    /// Drives `shared`; returns whether there was any activity, `None` when the lock is held.
    progress: fn(*const ()) -> Option<bool>,
    shared: *const (),
    owner: AtomicI32,
    /// Numbers of signals that found work, and of those that did not, since the last evaluation.
    useful_signals: AtomicU32,
    useless_signals: AtomicU32,
    /// Set when the handler requests that signals be disabled.
    wants_disabled: AtomicBool,
    /// Set when a signal has interrupted the thread while it slept.
    interrupted_sleep: AtomicBool,
}

/// The drivers that the handler serves. Slots are never freed, but reused.
static TARGETS: [Slot; TARGETS_MAX] =
    [const { Slot { target: AtomicPtr::new(std::ptr::null_mut()), users: AtomicU32::new(0) } }; TARGETS_MAX];

#[derive(Debug)]
struct Slot {
    target: AtomicPtr<SignalTarget>,
    /// Number of handlers that currently use the target.
    users: AtomicU32,
}

/// `Some(true)` if the library's signal handler is installed, `Some(false)` if not, `None` before this has been
/// decided; decided once.
static HANDLER: Mutex<Option<bool>> = Mutex::new(None);

/// The signal state of one driver.
#[derive(Debug, Default)]
pub(super) struct Armed {
    /// The thread that is to be interrupted; 0 for none.
    wanted: AtomicI32,
    /// The thread for which the signal is armed; 0 for none.
    owner: AtomicI32,
    /// Set after a signal has interrupted a sleep: the signal is not armed again.
    has_interrupted_sleep: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    descriptors: Vec<RawFd>,
    slot: Option<usize>,
    target: Option<Box<SignalTarget>>,
}

// SAFETY: the pointer in it is dereferenced only by the handler, while the driver that it refers to exists (see
// `Armed::release`).
unsafe impl Send for Inner {}

impl Armed {
    /// Requests that the signal be armed for `thread` at its next call.
    pub(super) fn want(&self, thread: i32) {
        if !self.has_interrupted_sleep.load(Ordering::Relaxed) {
            self.wanted.store(thread, Ordering::Release);
        }
    }

    /// Returns whether the signal should be armed for the calling thread `thread` and is not armed for it yet.
    #[inline]
    pub(super) fn wants_arming(&self, thread: i32) -> bool {
        let wanted = self.wanted.load(Ordering::Relaxed);
        wanted != 0 && wanted == thread && self.owner.load(Ordering::Relaxed) != thread
    }

    /// Returns whether the signal is armed for a thread.
    #[inline]
    pub(super) fn is_armed(&self) -> bool {
        self.owner.load(Ordering::Relaxed) != 0
    }

    /// Returns the thread for which the signal is armed.
    #[cfg(test)]
    pub(super) fn owner(&self) -> i32 {
        self.owner.load(Ordering::Acquire)
    }

    /// Returns the number of signals that found work since the last evaluation.
    #[cfg(test)]
    pub(super) fn useful(&self) -> u32 {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.target.as_ref().map_or(0, |target| target.useful_signals.load(Ordering::Relaxed))
    }

    /// Disables the signal.
    pub(super) fn disarm(&self) {
        self.wanted.store(0, Ordering::Release);
        if self.owner.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        self.owner.store(0, Ordering::Release);
        for fd in inner.descriptors.drain(..) {
            set_async(fd, false);
        }
        release(&mut inner);
    }
}

impl<M: Machine> Shared<M> {
    /// Arms the signal for `thread`, which is the calling thread.
    #[cold]
    pub(super) fn arm(&self, thread: i32, descriptors: &[RawFd]) {
        let armed = &self.armed;
        let mut inner = armed.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if !install_handler() {
            armed.wanted.store(0, Ordering::Release);
            return;
        }
        // The handler allocates memory; its allocation must not be the first one in this thread.
        heap::prepare_thread();
        release(&mut inner);
        let target = Box::new(SignalTarget {
            progress: |shared| {
                // SAFETY: `shared` belongs to the driver, which exists until it has released its slot.
                unsafe { &*shared.cast::<Shared<M>>() }.try_progress()
            },
            shared: (&raw const *self).cast(),
            owner: AtomicI32::new(thread),
            useful_signals: AtomicU32::new(0),
            useless_signals: AtomicU32::new(0),
            wants_disabled: AtomicBool::new(false),
            interrupted_sleep: AtomicBool::new(false),
        });
        let is_free = |slot: &Slot| slot.target.load(Ordering::Acquire).is_null();
        let Some(index) = TARGETS.iter().position(is_free) else { return };
        let pointer = (&raw const *target).cast_mut();
        let null = std::ptr::null_mut();
        if TARGETS[index].target.compare_exchange(null, pointer, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // Another context took the slot first; the next call tries again.
            return;
        }
        inner.slot = Some(index);
        inner.target = Some(target);
        armed.owner.store(thread, Ordering::Release);
        inner.descriptors = descriptors.to_vec();
        for fd in descriptors {
            set_owner(*fd, thread);
            set_async(*fd, true);
        }
    }

    /// Disables the signal if the handler has requested it or has interrupted a sleep. Called by the worker.
    pub(super) fn disarm_if_unhelpful(&self) {
        if !self.armed.is_armed() {
            return;
        }
        let (wants_disabled, interrupted_sleep) = {
            let inner = self.armed.inner.lock().unwrap_or_else(PoisonError::into_inner);
            let is_set = |flag: fn(&SignalTarget) -> &AtomicBool| {
                inner.target.as_ref().is_some_and(|target| flag(target).load(Ordering::Acquire))
            };
            (is_set(|target| &target.wants_disabled), is_set(|target| &target.interrupted_sleep))
        };
        if interrupted_sleep {
            self.armed.has_interrupted_sleep.store(true, Ordering::Relaxed);
        }
        if wants_disabled || interrupted_sleep {
            self.armed.disarm();
        }
    }
}

/// Removes all drivers from the handler's table in a child process, which does not own them; also resets the user
/// counts, because handlers on other threads of the parent do not exist in the child.
pub(super) fn forget_targets() {
    for slot in &TARGETS {
        slot.target.store(std::ptr::null_mut(), Ordering::SeqCst);
        slot.users.store(0, Ordering::SeqCst);
    }
}

/// Removes a driver from the handler's table, and waits for handlers that still use it.
fn release(inner: &mut Inner) {
    let Some(index) = inner.slot.take() else { return };
    let slot = &TARGETS[index];
    slot.target.store(std::ptr::null_mut(), Ordering::SeqCst);
    // A handler on this thread has finished before execution continues here; one on another thread finishes within
    // microseconds.
    while slot.users.load(Ordering::SeqCst) > 0 {
        std::thread::yield_now();
    }
    inner.target = None;
}

/// Signal handler: drives the machines of all drivers that are armed for the interrupted thread.
extern "C" fn interrupted(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: this function is a signal handler.
    let state = unsafe { restart::resume(context) };
    // SAFETY: returns the address of the thread's own error number.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above. The interrupted code must find `errno` unchanged.
    let saved_errno = unsafe { *errno };
    let thread_id = cpu_usage::this_thread();
    if !heap::is_busy() {
        for slot in &TARGETS {
            slot.users.fetch_add(1, Ordering::SeqCst);
            let target = slot.target.load(Ordering::SeqCst);
            if !target.is_null() {
                // SAFETY: a target is freed only after its slot has been emptied and has no users.
                serve(unsafe { &*target }, thread_id, state);
            }
            slot.users.fetch_sub(1, Ordering::SeqCst);
        }
    }
    // SAFETY: as above.
    unsafe { *errno = saved_errno };
}

fn serve(target: &SignalTarget, thread_id: i32, state: InterruptedState) {
    if target.owner.load(Ordering::Relaxed) != thread_id {
        return;
    }
    if state == InterruptedState::Waiting {
        target.interrupted_sleep.store(true, Ordering::Release);
    }
    let counter = match (target.progress)(target.shared) {
        Some(true) => &target.useful_signals,
        _ => &target.useless_signals,
    };
    if counter.fetch_add(1, Ordering::Relaxed) + 1 < EVALUATION_INTERVAL {
        return;
    }
    let useful = target.useful_signals.swap(0, Ordering::Relaxed);
    let useless_signals = target.useless_signals.swap(0, Ordering::Relaxed);
    if useful < useless_signals / 4 {
        target.wants_disabled.store(true, Ordering::Release);
    }
}

/// Installs [`interrupted`] as the handler of the signal, once, unless the program has a handler of its own; returns
/// whether it is installed.
fn install_handler() -> bool {
    let mut is_installed = HANDLER.lock().unwrap_or_else(PoisonError::into_inner);
    *is_installed.get_or_insert_with(|| {
        // SAFETY: plain data, filled in by the system or below.
        unsafe {
            let mut existing: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(SIGNAL, std::ptr::null(), &raw mut existing) != 0
                || (existing.sa_sigaction != libc::SIG_DFL && existing.sa_sigaction != libc::SIG_IGN)
            {
                return false;
            }
            let mut action: libc::sigaction = std::mem::zeroed();
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut c_void) = interrupted;
            action.sa_sigaction = handler as usize;
            // Restart calls where the kernel can. The handler does not run on a thread's alternative signal stack:
            // those are sized for handlers that print a message and terminate (Rust's are a few pages), and the packet
            // path needs more.
            action.sa_flags = libc::SA_RESTART | libc::SA_SIGINFO;
            libc::sigfillset(&raw mut action.sa_mask);
            // A fault in unmapped registered memory must be handled, or the kernel terminates the process.
            libc::sigdelset(&raw mut action.sa_mask, libc::SIGSEGV);
            libc::sigdelset(&raw mut action.sa_mask, libc::SIGBUS);
            libc::sigaction(SIGNAL, &raw const action, std::ptr::null_mut()) == 0
        }
    })
}

/// Sets the thread that the kernel interrupts for `fd`.
fn set_owner(fd: RawFd, thread: i32) {
    #[repr(C)]
    struct Owner {
        kind: libc::c_int,
        number: libc::pid_t,
    }
    let owner = Owner { kind: F_OWNER_TID, number: thread };
    // SAFETY: passes the structure that fcntl(2) describes; an invalid descriptor is an error without effect.
    unsafe {
        libc::fcntl(fd, F_SETSIG, SIGNAL);
        libc::fcntl(fd, F_SETOWN_EX, &raw const owner);
    }
}

fn set_async(fd: RawFd, is_enabled: bool) {
    // SAFETY: changes flags of a descriptor; an invalid one is an error without effect.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        if flags >= 0 {
            libc::fcntl(fd, libc::F_SETFL, if is_enabled { flags | libc::O_ASYNC } else { flags & !libc::O_ASYNC });
        }
    }
}

/// The signal used; see the module documentation for the reason.
const SIGNAL: libc::c_int = libc::SIGURG;

/// `F_SETSIG`, `F_SETOWN_EX` and `F_OWNER_TID` of fcntl(2), which the libc crate does not have for every platform.
const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;
const F_OWNER_TID: libc::c_int = 0;

/// Maximum number of contexts of one process that can use signals at a time; in further ones, only the program and
/// the worker thread drive the NIC.
const TARGETS_MAX: usize = 64;

/// Number of useful or of useless signals after which the handler evaluates whether signals are worthwhile.
const EVALUATION_INTERVAL: u32 = 256;
