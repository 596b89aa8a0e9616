//! Imported devices, protection domains and memory regions: additional C objects for existing ones.
//!
//! A device is imported with the descriptor stored in `ibv_context::cmd_fd`, or a duplicate of it. With a hardware
//! adapter, any process that has received the descriptor can do so, because the objects are in the kernel. In this
//! library they belong to the process that has opened the device, so the import fails in other processes.

use std::ffi::{c_int, c_void};
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;

use crate::abi::*;
use crate::context::Context;
use crate::errno::{Errno, pointer};
use crate::object::{MrObject, PdObject};
use crate::{open, opened};

/// Implements `ibv_import_device`: takes ownership of the descriptor when it succeeds.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_import_device(fd: c_int) -> *mut ibv_context {
    pointer(opened::find(fd).and_then(|shared| {
        drop(shared.enter()?);
        // SAFETY: the program gives up ownership of the descriptor, as the call requires.
        Ok(open::import(unsafe { OwnedFd::from_raw_fd(fd) }, shared))
    }))
}

/// Implements `ibv_import_pd`.
///
/// # Safety
/// `context` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_import_pd(context: *mut ibv_context, handle: u32) -> *mut ibv_pd {
    // SAFETY: guaranteed by the caller.
    let entered = unsafe { Context::of(context) }.shared.enter();
    pointer(entered.and_then(|core| {
        core.pds.get(handle as usize).ok_or(Errno(libc::ENOENT))?;
        Ok(PdObject::make(context, handle, None))
    }))
}

/// Implements `ibv_unimport_pd`: the protection domain itself continues to exist.
///
/// # Safety
/// `pd` is from `ibv_import_pd`, and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_unimport_pd(pd: *mut ibv_pd) {
    // SAFETY: `PdObject::make` allocated it as a `Box`, and the caller gives up ownership.
    drop(unsafe { Box::from_raw(pd.cast::<PdObject>()) });
}

/// Implements `ibv_import_mr`: the address in the result is null, because only the exporting program knows the
/// memory.
///
/// # Safety
/// `pd` is a valid protection domain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_import_mr(pd: *mut ibv_pd, handle: u32) -> *mut ibv_mr {
    // SAFETY: guaranteed by the caller.
    let (context, domain) = unsafe { ((*pd).context, (*pd).handle) };
    // SAFETY: as above.
    let entered = unsafe { Context::of(context) }.shared.enter();
    pointer(entered.and_then(|core| {
        let known = core.mrs.get(handle as usize).filter(|mr| mr.pd == domain).ok_or(Errno(libc::ENOENT))?;
        let (key, length) = (known.region.key().0, known.region.len());
        let c = ibv_mr { context, pd, addr: ptr::null_mut(), length, handle, lkey: key, rkey: key };
        Ok(Box::into_raw(Box::new(MrObject { c })).cast())
    }))
}

/// Implements `ibv_unimport_mr`: the memory region itself continues to exist.
///
/// # Safety
/// `mr` is from `ibv_import_mr`, and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_unimport_mr(mr: *mut ibv_mr) {
    // SAFETY: `ibv_import_mr` allocated it as a `Box`, and the caller gives up ownership.
    drop(unsafe { Box::from_raw(mr.cast::<MrObject>()) });
}

/// Implements `ibv_import_dm`: not supported, because there is no device memory.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_import_dm(_context: *mut ibv_context, _handle: u32) -> *mut c_void {
    pointer(Err(Errno::UNSUPPORTED))
}

/// Implements `ibv_unimport_dm`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_unimport_dm(_dm: *mut c_void) {}
