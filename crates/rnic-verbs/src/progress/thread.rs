//! The thread that drives a machine while the program does not.
//!
//! It sleeps on the sockets. When a packet arrives, it checks whether the program is making calls: if so, it leaves the
//! packet to the program and checks again later, with increasing delay; if not, it drives the machine until there is no
//! more activity.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use arrayvec::ArrayVec;
use rnic_host::AbortOnPanic;

use super::cpu_usage::{Verdict, Watch};
use super::{DESCRIPTORS_MAX, Machine, Mode, Shared};

/// Handle of the running thread.
#[derive(Debug)]
pub(super) struct Worker(JoinHandle<()>);

impl Worker {
    pub(super) fn start<M: Machine>(shared: Arc<Shared<M>>) -> io::Result<Self> {
        // Signals of the program must be handled by the program's own threads.
        let previous_mask = block_signals();
        let started = std::thread::Builder::new().name("rnic-progress".to_owned()).spawn(move || run(&shared));
        restore_signals(&previous_mask);
        started.map(Self)
    }

    pub(super) fn join(self) {
        // The thread cannot have panicked, because a panic ends the process.
        let _ = self.0.join();
    }
}

/// Blocks every signal for the calling thread, and for threads that it starts; returns the previous signal mask.
fn block_signals() -> libc::sigset_t {
    // SAFETY: signal sets are plain bits, initialized before they are read.
    unsafe {
        let mut every_signal = std::mem::zeroed();
        let mut previous_mask = std::mem::zeroed();
        libc::sigfillset(&raw mut every_signal);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const every_signal, &raw mut previous_mask);
        previous_mask
    }
}

fn restore_signals(previous_mask: &libc::sigset_t) {
    // SAFETY: a signal set that the system has filled in.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, previous_mask, std::ptr::null_mut()) };
}

fn run<M: Machine>(shared: &Shared<M>) {
    let _abort_on_panic = AbortOnPanic::begin();
    let mut watch = Watch::default();
    let mut backoff = BACKOFF_MIN;
    while !shared.stop.load(Ordering::Acquire) {
        shared.disarm_if_unhelpful();
        let silent_ns = silence(shared);
        let was_active = if is_calling(shared, silent_ns) { None } else { shared.try_progress() };
        let Some(was_active) = was_active else {
            // The program is making calls, or holds the lock at the moment.
            sleep(shared, &[], backoff);
            backoff = (backoff * 2).min(BACKOFF_MAX);
            continue;
        };
        backoff = BACKOFF_MIN;
        if (was_active && silent_ns >= LONG_SILENCE_NS) || shared.armed.is_armed() {
            update_signal_arming(shared, &mut watch);
        }
        if shared.armed.is_armed() {
            // Packets are processed by the signal handler: waking this thread for each packet would only take processor
            // time from the program.
            sleep(shared, &[], BACKOFF_MAX);
        } else if !was_active {
            sleep_on_packets(shared);
        }
    }
}

/// Returns the time since the program's last call, in nanoseconds.
fn silence<M: Machine>(shared: &Shared<M>) -> u64 {
    shared.now_ns().saturating_sub(shared.last_call_ns.load(Ordering::Relaxed))
}

/// Returns whether the program drives the machine by its own calls.
fn is_calling<M: Machine>(shared: &Shared<M>, silent_ns: u64) -> bool {
    silent_ns < CALL_INTERVAL_MAX_NS && shared.calls_left.load(Ordering::Acquire) == 0
}

/// Arms or disarms the signal according to the activity of the thread that called last. Used when packets arrived while
/// the program made no calls.
fn update_signal_arming<M: Machine>(shared: &Shared<M>, watch: &mut Watch) {
    if shared.mode != Mode::Auto {
        return;
    }
    let caller = shared.caller.load(Ordering::Relaxed);
    match watch.measure(caller) {
        Verdict::Busy => shared.armed.want(caller),
        Verdict::Sleeps => shared.armed.disarm(),
        Verdict::Works | Verdict::Unknown => {}
    }
}

/// Sleeps until a packet arrives, a deadline expires, or the thread is woken.
fn sleep_on_packets<M: Machine>(shared: &Shared<M>) {
    let Ok(mut machine) = shared.machine.try_lock() else { return };
    if !machine.may_sleep() {
        return;
    }
    let sockets = machine.descriptors();
    let due = machine.next_due().unwrap_or(IDLE_MAX).min(IDLE_MAX);
    // Stored before the lock is released, so that a call that changes the next deadline sees it.
    shared.sleeps_until_ns.store(shared.now_ns().saturating_add(due.as_nanos() as u64).max(1), Ordering::Release);
    drop(machine);
    shared.do_pending_work();
    sleep(shared, &sockets, due);
    shared.sleeps_until_ns.store(0, Ordering::Release);
}

/// Sleeps for at most `at_most`, until the thread is woken or one of `sockets` is ready.
fn sleep<M: Machine>(shared: &Shared<M>, sockets: &[RawFd], at_most: Duration) {
    let awaited = std::iter::once(shared.wake.0.as_raw_fd()).chain(sockets.iter().copied());
    let mut polls: ArrayVec<libc::pollfd, { DESCRIPTORS_MAX + 1 }> =
        awaited.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
    let timeout = libc::timespec {
        tv_sec: libc::time_t::try_from(at_most.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: at_most.subsec_nanos().into(),
    };
    // SAFETY: `polls` outlives the call and the passed length is its length; no signal mask is given.
    unsafe { libc::ppoll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, &raw const timeout, std::ptr::null()) };
    if polls[0].revents != 0 {
        shared.wake.clear();
    }
}

/// Event descriptor that wakes the thread.
#[derive(Debug)]
pub(super) struct Wake(OwnedFd);

impl Wake {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: creates a descriptor, which has no other owner.
        let fd: RawFd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor has just been created.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub(super) fn notify(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: writes eight bytes, as eventfd(2) requires. When the counter is full, the thread is awake anyway.
        unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    fn clear(&self) {
        let mut count = [0u8; 8];
        // SAFETY: space for eight bytes, as eventfd(2) requires.
        unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

/// Time in ns since the program's last call up to which the program counts as making calls. A polling program calls
/// every few microseconds; if it shares its processor with this thread, it has not called since this thread was
/// scheduled. A program whose last call is longer ago is doing something else.
const CALL_INTERVAL_MAX_NS: u64 = 30_000;

/// Interval in ns that is longer than any between two calls of a polling program; only after that long without a call
/// may POSIX signals be used.
const LONG_SILENCE_NS: u64 = 100_000;

/// Initial and maximum delay after which the thread checks again while the program makes calls. The maximum is also
/// the delay that occurs once, until the thread sleeps on the sockets, when a program stops polling without
/// requesting an event.
const BACKOFF_MIN: Duration = Duration::from_micros(50);
const BACKOFF_MAX: Duration = Duration::from_millis(1);

/// Maximum sleep when there is no work; bounds the delay if a wake-up is ever missed.
const IDLE_MAX: Duration = Duration::from_millis(100);
