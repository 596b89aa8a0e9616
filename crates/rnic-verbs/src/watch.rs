//! Looking at an opened device from outside: captures, counters for `rnic top`, and what a NIC has to tell.

use std::mem::{Discriminant, discriminant};
use std::sync::{Arc, Mutex, Once, PoisonError};

use rnic_host::observe::{self, Identity, Observer};
use rnic_host::{CaptureFile, Nic, Notice, Settings, complain};

use crate::context::Shared;
use crate::device;
use crate::errno::{Errno, Result};
use crate::heap::Busy;

/// Begins the capture that was asked for, if one was.
///
/// # Errors
/// When it cannot be written, which is said on standard error: a capture that is missed is found out too late.
pub(crate) fn capture(nic: &mut Nic, settings: &Settings) -> Result<()> {
    let said = |error: &dyn std::fmt::Display| {
        complain(error);
        Errno::INVALID
    };
    let Some(file) = settings.open_capture().map_err(|error| said(&error))? else { return Ok(()) };
    static AT_EXIT: Once = Once::new();
    AT_EXIT.call_once(|| {
        // SAFETY: the function is there as long as the process is: the shared object is never unloaded.
        unsafe { libc::atexit(write_out) };
    });
    nic.start_capture(Box::new(file)).map_err(|error| said(&error))
}

/// Most programs close nothing before they end.
extern "C" fn write_out() {
    // A packet that comes now would have the signal handler write into the capture that this thread has locked.
    let _busy = Busy::begin();
    CaptureFile::flush_all();
}

/// Answers watchers until it is dropped; none when the system does not let us, and the program runs on unwatched.
pub(crate) fn observe(shared: &Arc<Shared>, settings: &Settings, wire: &str) -> Option<Observer> {
    let identity = Identity::of_process(device::NAME, wire, settings);
    let shared = Arc::downgrade(shared);
    observe::serve(move || shared.upgrade().map(|shared| shared.look(|core| core.nic.snapshot(&identity)))).ok()
}

/// Says a notice of a NIC on standard error: each kind once in a process, however many devices it opens, as paths that
/// change would fill the screen.
#[cold]
pub(crate) fn tell(notice: &Notice) {
    static TOLD: Mutex<Told> = Mutex::new(Told(Vec::new()));
    if TOLD.lock().unwrap_or_else(PoisonError::into_inner).is_first_of_kind(notice) {
        complain(notice);
    }
}

/// Kinds of notices that have been said.
#[derive(Debug)]
struct Told(Vec<Discriminant<Notice>>);

impl Told {
    fn is_first_of_kind(&mut self, notice: &Notice) -> bool {
        let kind = discriminant(notice);
        let is_first = !self.0.contains(&kind);
        if is_first {
            self.0.push(kind);
        }
        is_first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_notice_is_said_once() {
        let mut told = Told(Vec::new());
        let narrow = |peer: &str| Notice::PathTooNarrow(peer.parse().expect("an address"));
        assert!(told.is_first_of_kind(&narrow("10.0.0.1:4791")));
        assert!(!told.is_first_of_kind(&narrow("10.0.0.2:4791")));
        assert!(told.is_first_of_kind(&Notice::CaptureEnded("No space left on device".to_owned())));
        assert!(!told.is_first_of_kind(&Notice::CaptureEnded("File too large".to_owned())));
    }
}
