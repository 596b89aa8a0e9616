//! Observation of an opened device: packet captures, and counters for `rnic top`.

use std::sync::{Arc, Once, Weak};

use rnic_host::observe::{self, ControlReply, ControlRequest, Identity, Observer};
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

/// Serves observers, such as `rnic top`, and requests of `rnic limit`, `rnic program load` and
/// `rnic signals`, until the result is dropped;
/// returns `None` when the system does not permit it, in which case the program runs unobserved.
pub(crate) fn observe(shared: &Arc<Shared>, settings: &Settings, wire: &str) -> Option<Observer> {
    let identity = Identity::of_process(device::NAME, wire, settings);
    let shared = Arc::downgrade(shared);
    let controlled = Weak::clone(&shared);
    let snapshot = move || shared.upgrade().map(|shared| shared.inspect(|core| core.nic.snapshot(&identity)));
    let carry_out = move |request| controlled.upgrade().map(|shared| carry_out(&shared, request));
    observe::serve_with_control(snapshot, carry_out).ok()
}

/// Applies an operator's request, and wakes queue pairs that may send now.
pub(crate) fn carry_out(shared: &Shared, request: ControlRequest) -> ControlReply {
    if !shared.is_of_this_process() {
        return ControlReply::Refused("it is a copy of the process that opened the device".to_owned());
    }
    let ControlRequest::Program(request) = request else {
        return shared.control(|core| request.apply(&mut core.nic));
    };
    // The check of a program takes some milliseconds, so the program of the process is not kept waiting for it.
    let program = match request.program() {
        Ok(program) => program,
        Err(refused) => return refused,
    };
    shared.control(|core| observe::apply_program(program, &mut core.offers))
}
