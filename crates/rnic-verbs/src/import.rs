//! Imported devices, protection domains and memory regions: a second set of C objects for what is there already.
//!
//! A device is imported by the descriptor that stands in `ibv_context::cmd_fd`, or a duplicate of it. With an adapter
//! that works from any process that was given it, because the kernel has the objects. Here they are the process's that
//! has opened the device, so others are refused.

use std::ffi::{c_int, c_void};
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;

use crate::abi::*;
use crate::context::Context;
use crate::errno::{Errno, pointer};
use crate::object::{MrObject, PdObject};
use crate::{open, opened};

/// `ibv_import_device`: takes the descriptor over when it succeeds.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_import_device(fd: c_int) -> *mut ibv_context {
    pointer(opened::find(fd).and_then(|shared| {
        drop(shared.enter()?);
        // SAFETY: the program gives the descriptor up, as the call demands.
        Ok(open::import(unsafe { OwnedFd::from_raw_fd(fd) }, shared))
    }))
}

/// `ibv_import_pd`.
///
/// # Safety
/// `context` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_import_pd(context: *mut ibv_context, handle: u32) -> *mut ibv_pd {
    // SAFETY: the caller's promise.
    let entered = unsafe { Context::of(context) }.shared.enter();
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
    let entered = unsafe { Context::of(context) }.shared.enter();
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
