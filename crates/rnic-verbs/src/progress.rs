//! Who makes progress when the program does not call.
//!
//! One thread a context. It sleeps until a packet comes or something is due, and then looks whether the program is at
//! work: if it has called since, it will call again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::context::Shared;
use crate::errno::{Errno, Result};

/// The thread. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Progress {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    pub(crate) fn start(shared: &Arc<Shared>) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (weak, flag) = (Arc::downgrade(shared), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("rnic-progress".to_owned())
            .spawn(move || run(&weak, &flag))
            .map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EAGAIN)))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It has panicked or not: it is over.
            let _ = thread.join();
        }
    }
}

fn run(shared: &Weak<Shared>, stop: &AtomicBool) {
    block_signals();
    let mut seen = 0;
    while !stop.load(Ordering::Relaxed) {
        let Some(shared) = shared.upgrade() else { return };
        let calls = shared.calls();
        if calls != seen {
            // The program drives the NIC itself.
            seen = calls;
            drop(shared);
            std::thread::sleep(LOOK_AGAIN);
            continue;
        }
        let mut nic = shared.nic();
        let moved = nic.nic.progress();
        drop(nic);
        drop(shared);
        std::thread::sleep(if moved { Duration::ZERO } else { SLEEP });
    }
}

/// The program's handlers shall run on its own threads.
fn block_signals() {
    // SAFETY: fills and uses a local set of signals.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
    }
}

/// A program that polls does so more often.
const LOOK_AGAIN: Duration = Duration::from_micros(100);
/// Between two looks at an idle NIC.
const SLEEP: Duration = Duration::from_micros(100);
