//! Looking at an opened device from outside: captures, and counters for `rnic top`.

use std::sync::{Arc, Once};

use rnic_host::observe::{self, Identity, Observer};
use rnic_host::{CaptureFile, Nic, Settings, complain};

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
