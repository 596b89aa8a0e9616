//! Imported devices, protection domains and memory regions: a second set of C objects for what is there already.
//!
//! A device is imported by the descriptor that stands in `ibv_context::cmd_fd`, or a duplicate of it. With an adapter
//! that works from any process that was given it, because the kernel has the objects. Here they are the process's that
//! has opened the device, so others are refused.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rnic_host::complain;

use crate::abi::*;
use crate::context::{Context, Shared};
use crate::errno::{Errno, Result, pointer};
use crate::file::File;
use crate::object::{self, MrObject, PdObject};

/// The devices that this process has open.
static OPEN: Mutex<Vec<(File, Weak<Shared>)>> = Mutex::new(Vec::new());

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

/// From now on the device can be imported by `command`, as long as somebody has it open.
pub(crate) fn announce(command: &OwnedFd, shared: &Arc<Shared>) {
    let mut open = open_devices();
    open.retain(|(_, shared)| shared.strong_count() > 0);
    if let Some(file) = File::of(command.as_raw_fd()) {
        open.push((file, Arc::downgrade(shared)));
    }
}

/// The device that `fd` stands for.
fn find(fd: c_int) -> Result<Arc<Shared>> {
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

/// `ibv_import_device`: takes the descriptor over when it succeeds.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_import_device(fd: c_int) -> *mut ibv_context {
    pointer(find(fd).and_then(|shared| {
        drop(shared.enter()?);
        // SAFETY: the program gives the descriptor up, as the call demands.
        Ok(Context::import(unsafe { OwnedFd::from_raw_fd(fd) }, shared))
    }))
}

/// `ibv_import_pd`.
///
/// # Safety
/// `context` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_import_pd(context: *mut ibv_context, handle: u32) -> *mut ibv_pd {
    // SAFETY: the caller's promise.
    let entered = unsafe { object::context(context) }.shared.enter();
    pointer(entered.and_then(|core| {
        core.pds.get(handle).ok_or(Errno(libc::ENOENT))?;
        Ok(PdObject::make(context, handle, None))
    }))
}

/// `ibv_unimport_pd`: the protection domain itself stays.
///
/// # Safety
/// `pd` is from `ibv_import_pd`, and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_unimport_pd(pd: *mut ibv_pd) {
    // SAFETY: `PdObject::make` made a box of it, and the caller gives it up.
    drop(unsafe { Box::from_raw(pd.cast::<PdObject>()) });
}

/// `ibv_import_mr`: its address is null, for the memory is the exporter's to know.
///
/// # Safety
/// `pd` is a living protection domain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_import_mr(pd: *mut ibv_pd, handle: u32) -> *mut ibv_mr {
    // SAFETY: the caller's promise.
    let (context, domain) = unsafe { ((*pd).context, (*pd).handle) };
    // SAFETY: as above.
    let entered = unsafe { object::context(context) }.shared.enter();
    pointer(entered.and_then(|core| {
        let known = core.mrs.get(handle).filter(|mr| mr.pd == domain).ok_or(Errno(libc::ENOENT))?;
        let (key, length) = (known.region.key().0, known.region.len());
        let c = ibv_mr { context, pd, addr: ptr::null_mut(), length, handle, lkey: key, rkey: key };
        Ok(Box::into_raw(Box::new(MrObject { c })).cast())
    }))
}

/// `ibv_unimport_mr`: the memory region itself stays.
///
/// # Safety
/// `mr` is from `ibv_import_mr`, and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_unimport_mr(mr: *mut ibv_mr) {
    // SAFETY: `ibv_import_mr` made a box of it, and the caller gives it up.
    drop(unsafe { Box::from_raw(mr.cast::<MrObject>()) });
}

/// `ibv_import_dm`: there is no device memory.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_import_dm(_context: *mut ibv_context, _handle: u32) -> *mut c_void {
    pointer(Err(Errno::UNSUPPORTED))
}

/// `ibv_unimport_dm`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_unimport_dm(_dm: *mut c_void) {}
