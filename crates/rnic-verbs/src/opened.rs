//! The devices that this process has open, by the descriptors that stand for them.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rnic_host::{Settings, complain};

use crate::context::Shared;
use crate::errno::{Errno, Result};
use crate::file::File;

/// Each with the file of its command channel.
static OPEN: Mutex<Vec<(File, Weak<Shared>)>> = Mutex::new(Vec::new());

/// The device as it was opened last, if it still is.
static ONLY: Mutex<Weak<Shared>> = Mutex::new(Weak::new());

fn open_devices() -> MutexGuard<'static, Vec<(File, Weak<Shared>)>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the descriptor that stands for a device, and can be polled as programs expect of it.
///
/// # Errors
/// When the process has no descriptor left.
pub(crate) fn command_channel() -> Result<OwnedFd> {
    // SAFETY: the name is a string of C.
    let fd = unsafe { libc::memfd_create(c"rnic-uverbs".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(Errno::last());
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Enters the device: from now on it can be found by `command`, as long as somebody has it open.
pub(crate) fn announce(command: &OwnedFd, shared: &Arc<Shared>) {
    *ONLY.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(shared);
    let mut open = open_devices();
    open.retain(|(_, shared)| shared.strong_count() > 0);
    if let Some(file) = File::of(command.as_raw_fd()) {
        open.push((file, Arc::downgrade(shared)));
    }
}

/// Returns the device that `fd` stands for.
///
/// # Errors
/// When `fd` is no descriptor, or not of a device that this process has open.
pub(crate) fn find(fd: c_int) -> Result<Arc<Shared>> {
    let file = File::of(fd).ok_or(Errno(libc::EBADF))?;
    let found = open_devices().iter().find(|(known, _)| *known == file).and_then(|(_, shared)| shared.upgrade());
    found.ok_or_else(|| {
        complain(
            "ibv_import_device: the descriptor is not of a device that this process has open, and objects of other \
             processes cannot be reached: open the device here",
        );
        Errno::UNSUPPORTED
    })
}

/// Returns the device that this process has open, when it can have no other: real RoCEv2 peers send to one port
/// whatever a packet is for, and one socket hears that. Programs open the device again (perftest with `-R` does, for
/// itself and through the connection manager) and get another context of it.
pub(crate) fn only(settings: &Settings) -> Option<Arc<Shared>> {
    let known = settings.real_roce_peers.then(|| ONLY.lock().unwrap_or_else(PoisonError::into_inner).upgrade())?;
    known.filter(|shared| shared.is_of_this_process())
}
