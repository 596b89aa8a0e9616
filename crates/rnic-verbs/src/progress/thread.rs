//! The thread that drives a machine while the program does not.
//!
//! It sleeps on the sockets. When something comes in it looks whether the program is calling: if so it leaves the
//! packet alone and looks again a little later, each time later; if not it drives until nothing moves any more.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use arrayvec::ArrayVec;
use rnic_host::PanicEnds;

use super::burn::{Verdict, Watch};
use super::{DESCRIPTORS_MAX, Machine, Mode, Shared};

/// The running thread.
#[derive(Debug)]
pub(super) struct Worker(JoinHandle<()>);

impl Worker {
    pub(super) fn start<M: Machine>(shared: Arc<Shared<M>>) -> io::Result<Self> {
        // The program's signals are the program's threads' business.
        let blocked = block_signals();
        let started = std::thread::Builder::new().name("rnic-progress".to_owned()).spawn(move || run(&shared));
        restore_signals(&blocked);
        started.map(Self)
    }

    pub(super) fn join(self) {
        // It has not panicked: a panic ends the process.
        let _ = self.0.join();
    }
}

/// Blocks every signal for the calling thread, and for threads that it starts; answers what was blocked before.
fn block_signals() -> libc::sigset_t {
    // SAFETY: a set of plain bits, filled in before it is read.
    unsafe {
        let mut all = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    }
}

fn restore_signals(blocked: &libc::sigset_t) {
    // SAFETY: a set that the system has given.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, blocked, std::ptr::null_mut()) };
}

fn run<M: Machine>(shared: &Shared<M>) {
    let _ends = PanicEnds::begin();
    let mut watch = Watch::default();
    let mut backoff = BACKOFF_MIN;
    while !shared.stop.load(Ordering::Acquire) {
        shared.heed_tired_handler();
        let silent_ns = silence(shared);
        let moved = if is_calling(shared, silent_ns) { None } else { shared.try_progress() };
        let Some(moved) = moved else {
            // The program calls, perhaps just now.
            sleep(shared, &[], backoff);
            backoff = (backoff * 2).min(BACKOFF_MAX);
            continue;
        };
        backoff = BACKOFF_MIN;
        if (moved && silent_ns >= LONG_SILENCE_NS) || shared.armed.is_armed() {
            heed(shared, &mut watch);
        }
        if shared.armed.is_armed() {
            // Packets are the handler's business: waking us for each would only take the processor from it.
            sleep(shared, &[], BACKOFF_MAX);
        } else if !moved {
            sleep_on_packets(shared);
        }
    }
}

/// How long the program has not called, nanoseconds.
fn silence<M: Machine>(shared: &Shared<M>) -> u64 {
    shared.now_ns().saturating_sub(shared.last_call_ns.load(Ordering::Relaxed))
}

/// Whether the program makes progress itself.
fn is_calling<M: Machine>(shared: &Shared<M>, silent_ns: u64) -> bool {
    silent_ns < CALLING_NS && shared.asked.load(Ordering::Acquire) == 0
}

/// Packets came in while the program did not call: what does it do?
fn heed<M: Machine>(shared: &Shared<M>, watch: &mut Watch) {
    if shared.mode != Mode::Auto {
        return;
    }
    let caller = shared.caller.load(Ordering::Relaxed);
    match watch.look(caller) {
        Verdict::Burns => shared.armed.want(caller),
        Verdict::Sleeps => shared.armed.disarm(),
        Verdict::Works | Verdict::Unknown => {}
    }
}

/// Sleeps until a packet comes in, something is due, or somebody wakes us.
fn sleep_on_packets<M: Machine>(shared: &Shared<M>) {
    let Ok(mut machine) = shared.machine.try_lock() else { return };
    if !machine.may_sleep() {
        return;
    }
    let sockets = machine.descriptors();
    let due = machine.next_due().unwrap_or(IDLE_MAX).min(IDLE_MAX);
    // Said before the lock goes, so that a call that changes what is due finds out.
    shared.sleeps_until_ns.store(shared.now_ns().saturating_add(due.as_nanos() as u64).max(1), Ordering::Release);
    drop(machine);
    shared.settle();
    sleep(shared, &sockets, due);
    shared.sleeps_until_ns.store(0, Ordering::Release);
}

/// Sleeps for `at_most`, until we are woken or one of `sockets` is ready.
fn sleep<M: Machine>(shared: &Shared<M>, sockets: &[RawFd], at_most: Duration) {
    let awaited = std::iter::once(shared.wake.0.as_raw_fd()).chain(sockets.iter().copied());
    let mut all: ArrayVec<libc::pollfd, { DESCRIPTORS_MAX + 1 }> =
        awaited.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
    let timeout = libc::timespec {
        tv_sec: libc::time_t::try_from(at_most.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: at_most.subsec_nanos().into(),
    };
    // SAFETY: `all` lives during the call and its length is its length; no signal mask is given.
    unsafe { libc::ppoll(all.as_mut_ptr(), all.len() as libc::nfds_t, &raw const timeout, std::ptr::null()) };
    if all[0].revents != 0 {
        shared.wake.clear();
    }
}

/// Wakes the thread.
#[derive(Debug)]
pub(super) struct Wake(OwnedFd);

impl Wake {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: makes a descriptor, which is nobody else's.
        let fd: RawFd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub(super) fn kick(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight bytes, as eventfd(2) wants them. When the counter is full the thread is awake anyway.
        unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    fn clear(&self) {
        let mut count = [0u8; 8];
        // SAFETY: eight bytes of room, as eventfd(2) wants them.
        unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

/// A program that polls calls every few microseconds; where it shares its processor with this thread, it has not called
/// since this thread was switched to. One whose last call is longer ago does something else.
const CALLING_NS: u64 = 30_000;

/// One that polls is never silent for so long, and needs no signals.
const LONG_SILENCE_NS: u64 = 100_000;

/// How long the program is left alone before we look again: at first, and at most. The longest is what a program that
/// stops polling without saying so waits, once, until the thread has its sockets in view.
const BACKOFF_MIN: Duration = Duration::from_micros(50);
const BACKOFF_MAX: Duration = Duration::from_millis(1);

/// Even with nothing to do, look around now and then: should a wake-up ever be missed, this is what it costs.
const IDLE_MAX: Duration = Duration::from_millis(100);
