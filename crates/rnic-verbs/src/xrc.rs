//! Domains of extended reliable connections (XRC).
//!
//! A domain is shared by all callers that open it with a descriptor of the same file. With a hardware adapter that
//! works between processes; here each process has its own device, so a domain is shared within one opened device.

use std::ffi::c_int;

use crate::abi::*;
use crate::context::Context;
use crate::core::{Core, Xrcd};
use crate::errno::{Errno, Result, number, pointer};
use crate::file::File;

/// The program's object for an XRC domain.
#[repr(C)]
pub(crate) struct XrcdObject {
    c: ibv_xrcd,
    handle: u32,
}

/// Returns the handle of the domain that a program's pointer refers to, and increments its user count.
///
/// # Safety
/// `xrcd` is null or a valid domain.
pub(crate) unsafe fn join(core: &mut Core, xrcd: *mut ibv_xrcd) -> Result<u32> {
    if core.offers.preferred().falcon().is_some() {
        rnic_host::print_message(
            "extended reliable connections (XRC) require a transport of the RoCE family; set --transport irn",
        );
        return Err(Errno::UNSUPPORTED);
    }
    // SAFETY: guaranteed by the caller.
    let handle = unsafe { xrcd.cast::<XrcdObject>().as_ref() }.ok_or(Errno::INVALID)?.handle;
    core.xrcds.get_mut(handle as usize).ok_or(Errno::INVALID)?.users += 1;
    Ok(handle)
}

/// Decrements the user count of the domain, when a queue pair or shared receive queue in it is destroyed.
pub(crate) fn remove_user(core: &mut Core, handle: u32) {
    if let Some(domain) = core.xrcds.get_mut(handle as usize) {
        domain.users -= 1;
    }
}

fn open(context: *mut ibv_context, init: &ibv_xrcd_init_attr) -> Result<*mut ibv_xrcd> {
    if init.comp_mask != IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS {
        return Err(Errno::INVALID);
    }
    let has = |flag: c_int| init.oflags & flag != 0;
    // SAFETY: programs pass contexts that they have opened.
    let mut core = unsafe { Context::of(context) }.shared.enter()?;
    let file = if init.fd < 0 { None } else { Some(File::of(init.fd).ok_or(Errno(libc::EBADF))?) };
    let found = file.and_then(|file| core.xrcds.iter().find(|(_, known)| known.file == Some(file)));
    let found = found.map(|(handle, _)| handle as u32);
    let handle = match found {
        Some(_) if has(libc::O_EXCL) => return Err(Errno::INVALID),
        Some(handle) => handle,
        None if !has(libc::O_CREAT) => return Err(if file.is_none() { Errno::INVALID } else { Errno(libc::EAGAIN) }),
        None => core.xrcds.insert(Xrcd { file, opened: 0, users: 0 }) as u32,
    };
    core.xrcds.get_mut(handle as usize).ok_or(Errno::INVALID)?.opened += 1;
    Ok(Box::into_raw(Box::new(XrcdObject { c: ibv_xrcd { context }, handle })).cast())
}

/// Implements `ibv_open_xrcd`.
///
/// # Safety
/// `context` is open, `init` may be read.
pub(crate) unsafe extern "C" fn open_xrcd(context: *mut ibv_context, init: *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd {
    // SAFETY: guaranteed by the caller.
    pointer(open(context, unsafe { &*init }))
}

/// Implements `ibv_close_xrcd`.
///
/// # Safety
/// `xrcd` is a valid domain, and not used again if this succeeds.
pub(crate) unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    let object = xrcd.cast::<XrcdObject>();
    // SAFETY: guaranteed by the caller.
    let (context, handle) = unsafe { (Context::of((*object).c.context), (*object).handle) };
    number(context.shared.enter().and_then(|mut core| {
        let known = core.xrcds.get_mut(handle as usize).ok_or(Errno::INVALID)?;
        if known.opened == 1 && known.users > 0 {
            return Err(Errno::BUSY);
        }
        known.opened -= 1;
        if known.opened == 0 {
            core.xrcds.try_remove(handle as usize);
        }
        // SAFETY: `open` allocated it as a `Box`, and the caller gives up ownership.
        drop(unsafe { Box::from_raw(object) });
        Ok(())
    }))
}
