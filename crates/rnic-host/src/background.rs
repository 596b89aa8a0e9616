//! Helpers for running inside a program that does not know of this library: threads, messages on its standard error,
//! and process exit.

use std::io::{self, Write};
use std::process;
use std::ptr;
use std::sync::{Mutex, MutexGuard, Once, TryLockError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Starts a thread with all signals blocked, so that the program's signal handlers run on its own threads.
///
/// # Errors
/// When the system cannot create the thread.
pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let quiet = move || {
        let _ends = PanicEnds::begin();
        work();
    };
    // A thread inherits the signal mask of its creator; a thread that blocked signals itself could be interrupted
    // before it did so.
    let before = set_blocked(&all_signals());
    let started = thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(quiet);
    set_blocked(&before);
    started
}

/// Guard that makes a panic of its thread abort the process after the panic message has been printed: other threads
/// would otherwise use the half-updated state, and threads that wait for this one would wait indefinitely.
#[derive(Debug)]
#[must_use = "a panic ends the process while this lives"]
pub struct PanicEnds(());

impl PanicEnds {
    /// Returns a guard that is active until it is dropped.
    pub fn begin() -> Self {
        Self(())
    }
}

impl Drop for PanicEnds {
    fn drop(&mut self) {
        if thread::panicking() {
            process::abort();
        }
    }
}

/// Starts a thread as [`spawn`] does, for Falcon's adaptive engine (`fae_place = thread`), which the connections of a
/// NIC share. The engine also runs without the thread (`rnic-engine` ensures that), but not as the user who configured
/// a thread expects; so a refusal is reported on standard error, once per process.
///
/// # Errors
/// When the system cannot create the thread.
pub(crate) fn start_adaptive(work: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
    static TOLD: Once = Once::new();
    tell_refusal(spawn("rnic-fae", work), |text| {
        TOLD.call_once(|| complain(text));
    })
}

/// Prints a message for the user on standard error, in one system call, because the lines of two processes that share a
/// terminal would otherwise be mixed. A closed standard error is ignored.
pub fn complain(text: impl std::fmt::Display) {
    let _ = io::stderr().write_all(format!("rnic: {text}\n").as_bytes());
}

/// Returns the lock for work at process exit, or `None` when it cannot be acquired: a thread may have been terminated
/// while it held the lock, so this does not wait indefinitely.
pub fn lock_at_exit<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    for _ in 0..EXIT_TRIES {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(1)),
        }
    }
    None
}

/// Time that process exit waits for a lock, in milliseconds (one try per millisecond).
const EXIT_TRIES: u32 = 50;

/// Returns `started` unchanged; when the thread for the adaptive engine could not be created, reports that through
/// `say`.
fn tell_refusal<T>(started: io::Result<T>, say: impl FnOnce(&str)) -> io::Result<T> {
    started.inspect_err(|error| {
        say(&format!(
            "no thread for Falcon's adaptive engine (fae_place = thread): {error}; it decides the same, in the time of \
             those who send and receive"
        ));
    })
}

fn all_signals() -> libc::sigset_t {
    // SAFETY: a signal set is plain data, all zeros is a valid value, and the call fills it.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        all
    }
}

/// Blocks these signals, and no others, for the calling thread; returns the previous signal mask.
fn set_blocked(signals: &libc::sigset_t) -> libc::sigset_t {
    // SAFETY: a signal set is plain data; the call reads one and fills the other.
    unsafe {
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_SETMASK, ptr::from_ref(signals), &raw mut before);
        before
    }
}

/// Stack of these threads, in bytes: they format text or compute windows, and do not nest calls deeply.
const STACK_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_takes_a_lock_that_a_panic_left_and_gives_up_one_that_is_held() {
        let mutex = Mutex::new(7);
        let held = mutex.lock().expect("nobody has panicked");
        assert!(std::thread::scope(|scope| scope.spawn(|| lock_at_exit(&mutex).is_none()).join()).expect("it ends"));
        drop(held);
        let panics = || {
            let _held = mutex.lock();
            panic!("as it should");
        };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err() && mutex.is_poisoned());
        assert_eq!(lock_at_exit(&mutex).as_deref(), Some(&7));
    }

    #[test]
    fn a_thread_of_ours_begins_with_all_signals_blocked() {
        let is_blocked = |set: &libc::sigset_t| {
            // SAFETY: reads a bit of a set.
            unsafe { libc::sigismember(ptr::from_ref(set), libc::SIGUSR1) == 1 }
        };
        let (tell, told) = std::sync::mpsc::channel();
        let work = move || tell.send(is_blocked(&set_blocked(&all_signals()))).expect("the test waits");
        spawn("rnic-test", work).expect("a thread").join().expect("it ends");
        assert_eq!(told.recv(), Ok(true));
        let here = set_blocked(&all_signals());
        set_blocked(&here);
        assert!(!is_blocked(&here), "the thread that started it hears them as before");
    }

    #[test]
    fn f40_an_engine_without_its_thread_is_told_of() {
        let said = |started: io::Result<u8>| {
            let mut said = Vec::new();
            let passed_on = tell_refusal(started, |text| said.push(text.to_owned()));
            (passed_on.map_err(|error| error.kind()), said)
        };
        let (passed_on, text) = said(Err(io::Error::new(io::ErrorKind::WouldBlock, "all are taken")));
        assert_eq!(passed_on, Err(io::ErrorKind::WouldBlock));
        let [text] = &text[..] else { panic!("{text:?}") };
        let parts = ["adaptive engine (fae_place = thread)", "all are taken", "in the time of those who send"];
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        assert_eq!(said(Ok(1)), (Ok(1), Vec::new()));
    }
}
