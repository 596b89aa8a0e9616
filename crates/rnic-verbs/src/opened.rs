//! The devices that this process has open, by the descriptors that represent them.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rnic_host::{Settings, print_message};

use crate::context::Shared;
use crate::errno::{Errno, Result};
use crate::file::File;

/// The open devices, each with the file of its command channel.
static OPEN: Mutex<Vec<(File, Weak<Shared>)>> = Mutex::new(Vec::new());

/// The device that was opened last, if it is still open.
static OPEN_DEVICE: Mutex<Weak<Shared>> = Mutex::new(Weak::new());

fn open_devices() -> MutexGuard<'static, Vec<(File, Weak<Shared>)>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Creates the descriptor that represents a device and that can be polled as programs expect.
///
/// # Errors
/// When the process has run out of descriptors.
pub(crate) fn command_channel() -> Result<OwnedFd> {
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"rnic-uverbs".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(Errno::last());
    }
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Registers the device: it can be found by `command` for as long as it is open.
pub(crate) fn announce(command: &OwnedFd, shared: &Arc<Shared>) {
    *OPEN_DEVICE.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(shared);
    let mut open = open_devices();
    open.retain(|(_, shared)| shared.strong_count() > 0);
    if let Some(file) = File::of(command.as_raw_fd()) {
        open.push((file, Arc::downgrade(shared)));
    }
}

/// Returns the device that `fd` represents.
///
/// # Errors
/// When `fd` is not a descriptor, or not one of a device that this process has open.
pub(crate) fn find(fd: c_int) -> Result<Arc<Shared>> {
    let file = File::of(fd).ok_or(Errno(libc::EBADF))?;
    let found = open_devices().iter().find(|(known, _)| *known == file).and_then(|(_, shared)| shared.upgrade());
    found.ok_or_else(|| {
        print_message(
            "ibv_import_device: the descriptor does not belong to a device that this process has open; devices of \
             other processes cannot be imported",
        );
        Errno::UNSUPPORTED
    })
}

/// Returns the device that this process has open, when there can be only one: real RoCEv2 peers send all packets to one
/// port, which a single socket receives. Programs open the device again (perftest with `-R` does, for itself and
/// through the connection manager) and get another context of the same device.
pub(crate) fn only(settings: &Settings) -> Option<Arc<Shared>> {
    let known =
        settings.real_roce_peers.then(|| OPEN_DEVICE.lock().unwrap_or_else(PoisonError::into_inner).upgrade())?;
    known.filter(|shared| shared.is_of_this_process())
}
