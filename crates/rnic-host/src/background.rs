//! Helpers for a library that runs inside a program which is not aware of it: starting threads, printing messages on
//! the program's standard error, and process exit.

use std::io::{self, Write};
use std::process;
use std::ptr;
use std::sync::{Mutex, MutexGuard, Once, TryLockError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Starts a thread with all POSIX signals blocked, so that the program's signal handlers run on its own threads.
///
/// # Errors
/// Returns an error if the system cannot create the thread.
pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let quiet = move || {
        let _ends = AbortOnPanic::begin();
        work();
    };
    // A thread inherits the signal mask of its creator. If the thread blocked the signals itself, one could arrive
    // before it did so.
    let before = set_blocked(&all_signals());
    let started = thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(quiet);
    set_blocked(&before);
    started
}

/// Guard: if the thread that holds it panics, the process aborts after the panic message has been printed: other
/// threads would otherwise use the half-updated state, and threads that wait for the panicked one would wait
/// indefinitely.
#[derive(Debug)]
#[must_use = "a panic ends the process while this lives"]
pub struct AbortOnPanic(());

impl AbortOnPanic {
    /// Returns a guard that is active until it is dropped.
    pub fn begin() -> Self {
        Self(())
    }
}

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            process::abort();
        }
    }
}

/// Starts a thread, like [`spawn`], for Falcon's adaptive engine (`fae_place = thread`), which the connections of a
/// NIC share. Without the thread, `rnic-engine` runs the engine on the threads that send and receive. This is not
/// what the user has configured, so the failure is reported on standard error, once per process.
///
/// # Errors
/// Returns an error if the system cannot create the thread.
pub(crate) fn start_adaptive(work: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
    static REPORTED: Once = Once::new();
    report_thread_failure(spawn("rnic-fae", work), "Falcon's adaptive engine (fae_place=thread)", |text| {
        REPORTED.call_once(|| print_message(text));
    })
}

/// Starts a thread, like [`spawn`], for schedulers that set rates ([`crate::NicConfig::schedule_threads`]). Without the
/// thread, `rnic-engine` runs them on the threads that send and receive, and the failure is reported as that of the
/// adaptive engine is.
///
/// # Errors
/// Returns an error if the system cannot create the thread.
pub(crate) fn start_scheduler(work: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
    static REPORTED: Once = Once::new();
    report_thread_failure(spawn("rnic-schedule", work), "schedulers (schedule-threads)", |text| {
        REPORTED.call_once(|| print_message(text));
    })
}

/// Prints a message for the user on standard error. It is written with one system call, because otherwise the lines
/// of two processes that share a terminal could be mixed. Errors, for example because standard error is closed, are
/// ignored.
pub fn print_message(text: impl std::fmt::Display) {
    let _ = io::stderr().write_all(format!("rnic: {text}\n").as_bytes());
}

/// Returns the lock for work at process exit, or `None` if it cannot be acquired in time. A thread may have been
/// terminated while it held the lock, so this function does not wait indefinitely.
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

/// Time for which process exit waits for a lock, in milliseconds (one attempt per millisecond).
const EXIT_TRIES: u32 = 50;

/// Returns `started` unchanged; if the thread for `work` could not be created, reports that through `report`.
fn report_thread_failure<T>(started: io::Result<T>, work: &str, report: impl FnOnce(&str)) -> io::Result<T> {
    started.inspect_err(|error| {
        report(&format!(
            "cannot start a thread for {work}: {error}; the threads that send and receive do its work instead"
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

/// Blocks exactly these signals for the calling thread; returns the previous signal mask.
fn set_blocked(signals: &libc::sigset_t) -> libc::sigset_t {
    // SAFETY: a signal set is plain data; the call reads one and fills the other.
    unsafe {
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_SETMASK, ptr::from_ref(signals), &raw mut before);
        before
    }
}

/// Stack size of background threads, in bytes: they format text or compute windows, and have no deep call chains.
const STACK_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_at_exit_takes_a_poisoned_lock_and_gives_up_on_a_held_one() {
        let mutex = Mutex::new(7);
        let held = mutex.lock().expect("no thread has panicked");
        assert!(std::thread::scope(|scope| scope.spawn(|| lock_at_exit(&mutex).is_none()).join()).expect("it ends"));
        drop(held);
        let panics = || {
            let _held = mutex.lock();
            panic!("intended panic");
        };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err() && mutex.is_poisoned());
        assert_eq!(lock_at_exit(&mutex).as_deref(), Some(&7));
    }

    #[test]
    fn background_threads_start_with_all_signals_blocked() {
        let is_blocked = |set: &libc::sigset_t| {
            // SAFETY: the call only reads a bit of the set.
            unsafe { libc::sigismember(ptr::from_ref(set), libc::SIGUSR1) == 1 }
        };
        let (sender, receiver) = std::sync::mpsc::channel();
        let work = move || sender.send(is_blocked(&set_blocked(&all_signals()))).expect("the test waits");
        spawn("rnic-test", work).expect("a thread").join().expect("it ends");
        assert_eq!(receiver.recv(), Ok(true));
        let signal_mask = set_blocked(&all_signals());
        set_blocked(&signal_mask);
        assert!(!is_blocked(&signal_mask), "the starting thread blocks the signal");
    }

    #[test]
    fn f40_a_failure_to_start_the_engine_thread_is_reported() {
        let reports = |started: io::Result<u8>| {
            let mut reports = Vec::new();
            let result = report_thread_failure(started, "the adaptive engine (fae_place=thread)", |text| {
                reports.push(text.to_owned());
            });
            (result.map_err(|error| error.kind()), reports)
        };
        let (result, text) = reports(Err(io::Error::new(io::ErrorKind::WouldBlock, "all are taken")));
        assert_eq!(result, Err(io::ErrorKind::WouldBlock));
        let [text] = &text[..] else { panic!("{text:?}") };
        let parts = ["adaptive engine (fae_place=thread)", "all are taken", "the threads that send"];
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        assert_eq!(reports(Ok(1)), (Ok(1), Vec::new()));
    }
}
