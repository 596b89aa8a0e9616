//! Observation of an opened device: packet captures, and counters for `rnic top`.

use std::sync::{Arc, Once, Weak};

use rnic_host::observe::{self, Identity, LimitReply, LimitRequest, Observer};
use rnic_host::{CaptureFile, Nic, Settings, print_message};

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
    let print_error = |error: &dyn std::fmt::Display| {
        print_message(error);
        Errno::INVALID
    };
    let Some(file) = settings.open_capture().map_err(|error| print_error(&error))? else { return Ok(()) };
    static AT_EXIT: Once = Once::new();
    AT_EXIT.call_once(|| {
        // SAFETY: the function exists until the process exits, because the shared object is never unloaded.
        unsafe { libc::atexit(write_out) };
    });
    nic.start_capture(Box::new(file)).map_err(|error| print_error(&error))
}

/// Writes captured packets to the file at process exit, because most programs exit without closing the device.
extern "C" fn write_out() {
    // A packet that arrives now would make the signal handler write into the capture that this thread has locked.
    let _busy = Busy::begin();
    CaptureFile::flush_all();
}

/// Serves observers, such as `rnic top`, and limits of `rnic limit`, until the result is dropped; returns `None` when
/// the system does not permit it, in which case the program runs unobserved.
pub(crate) fn observe(shared: &Arc<Shared>, settings: &Settings, wire: &str) -> Option<Observer> {
    let identity = Identity::of_process(device::NAME, wire, settings);
    let shared = Arc::downgrade(shared);
    let limited = Weak::clone(&shared);
    let snapshot = move || shared.upgrade().map(|shared| shared.inspect(|core| core.nic.snapshot(&identity)));
    observe::serve_with_limits(snapshot, move |request| limited.upgrade().map(|shared| set_limit(&shared, request)))
        .ok()
}

/// Sets the operator's limit of queue pairs, and lets those that may send now do so.
fn set_limit(shared: &Shared, request: LimitRequest) -> LimitReply {
    if !shared.is_of_this_process() {
        return LimitReply::Refused("it is a copy of the process that opened the device".to_owned());
    }
    shared.control(|core| request.apply(&mut core.nic))
}
