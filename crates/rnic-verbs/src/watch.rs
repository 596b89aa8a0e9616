//! Observation of an opened device: packet captures, and counters for `rnic top`.

use std::sync::{Arc, Once};

use rnic_host::observe::{self, Identity, Observer};
use rnic_host::{CaptureFile, Nic, Settings, complain};

use crate::context::Shared;
use crate::device;
use crate::errno::{Errno, Result};
use crate::heap::Busy;

/// Starts the packet capture if the settings request one.
///
/// # Errors
/// When the capture file cannot be written, which is also reported on standard error: otherwise a missing capture would
/// be noticed too late.
pub(crate) fn capture(nic: &mut Nic, settings: &Settings) -> Result<()> {
    let said = |error: &dyn std::fmt::Display| {
        complain(error);
        Errno::INVALID
    };
    let Some(file) = settings.open_capture().map_err(|error| said(&error))? else { return Ok(()) };
    static AT_EXIT: Once = Once::new();
    AT_EXIT.call_once(|| {
        // SAFETY: the function exists until the process exits, because the shared object is never unloaded.
        unsafe { libc::atexit(write_out) };
    });
    nic.start_capture(Box::new(file)).map_err(|error| said(&error))
}

/// Writes captured packets to the file at process exit, because most programs exit without closing the device.
extern "C" fn write_out() {
    // A packet that arrives now would make the signal handler write into the capture that this thread has locked.
    let _busy = Busy::begin();
    CaptureFile::flush_all();
}

/// Serves observers until the result is dropped; returns `None` when the system does not permit it, and the program
/// runs unobserved.
pub(crate) fn observe(shared: &Arc<Shared>, settings: &Settings, wire: &str) -> Option<Observer> {
    let identity = Identity::of_process(device::NAME, wire, settings);
    let shared = Arc::downgrade(shared);
    observe::serve(move || shared.upgrade().map(|shared| shared.look(|core| core.nic.snapshot(&identity)))).ok()
}
