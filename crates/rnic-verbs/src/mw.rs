//! Memory windows.

use std::ffi::c_int;
use std::ptr;

use rnic_engine::{Access, Binding, Key, SendOp, SendRequest, WindowKind};

use crate::abi::*;
use crate::context::Context;
use crate::errno::{Errno, Result, number, pointer};
use crate::mr::{pd_id, remote_rights};
use crate::object::MwObject;
use crate::request;

/// Implements `ibv_alloc_mw`.
///
/// # Safety
/// `pd` is a valid protection domain.
pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: u32) -> *mut ibv_mw {
    // SAFETY: guaranteed by the caller.
    let (context, domain) = unsafe { ((*pd).context, (*pd).handle) };
    // SAFETY: as above.
    let entered = unsafe { Context::of(context) }.shared.enter();
    pointer(entered.and_then(|mut core| {
        let window_kind = match kind {
            IBV_MW_TYPE_1 => WindowKind::One,
            IBV_MW_TYPE_2 => WindowKind::Two,
            _ => return Err(Errno::INVALID),
        };
        let id = pd_id(&core, domain)?;
        let rkey = core.nic.verbs().allocate_window(id, window_kind)?.0;
        Ok(Box::into_raw(Box::new(MwObject { c: ibv_mw { context, pd, rkey, handle: 0, kind } })).cast())
    }))
}

/// Implements `ibv_dealloc_mw`: the access that the window granted ends too.
///
/// # Safety
/// `mw` is a valid window, and not used again if this succeeds.
pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    // SAFETY: guaranteed by the caller.
    let (context, rkey) = unsafe { (Context::of((*mw).context), (*mw).rkey) };
    number(context.shared.enter().and_then(|mut core| {
        core.nic.verbs().free_window(Key(rkey))?;
        // SAFETY: `alloc_mw` allocated it as a `Box`, and the caller gives up ownership.
        drop(unsafe { Box::from_raw(mw.cast::<MwObject>()) });
        Ok(())
    }))
}

/// Returns the operation that binds `mw` with the key `rkey`.
///
/// # Safety
/// `mw` is a valid window, the region in `info` is valid or null.
pub(crate) unsafe fn bind_operation(mw: *mut ibv_mw, rkey: u32, info: &ibv_mw_bind_info) -> Result<SendOp> {
    // SAFETY: guaranteed by the caller.
    let (kind, current_rkey) = match unsafe { mw.as_ref() } {
        Some(mw) => (mw.kind, mw.rkey),
        None => return Err(Errno::INVALID),
    };
    // SAFETY: as above.
    let region = unsafe { info.mr.as_ref() };
    let rights = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    // Local access rights are accepted and ignored, as the kernel does and as programs expect.
    let supported_flags = rights | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE;
    let differs_from_window = (current_rkey ^ rkey) & !0xff != 0;
    let lacks_region = region.is_none() && (info.length > 0 || kind != IBV_MW_TYPE_1);
    if info.mw_access_flags & !supported_flags != 0 || differs_from_window || lacks_region {
        return Err(Errno::INVALID);
    }
    Ok(SendOp::Bind(Binding {
        key: rkey,
        region: region.map_or(0, |region| region.lkey),
        addr: info.addr,
        len: info.length,
        access: remote_rights(info.mw_access_flags & rights) - Access::REMOTE_INVALIDATE,
        zero_based: info.mw_access_flags & IBV_ACCESS_ZERO_BASED != 0,
    }))
}

/// Implements `ibv_bind_mw`, for memory windows of type 1: its next key is derived from the current one.
///
/// # Safety
/// `qp`, `mw` and the region are valid, `bind` may be read.
pub(crate) unsafe extern "C" fn bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind) -> c_int {
    // SAFETY: guaranteed by the caller.
    let (context, handle, bind) = unsafe { (Context::of((*qp).context), (*qp).handle, &*bind) };
    // SAFETY: as above.
    let rkey = unsafe { (*mw).rkey };
    let new_rkey = (rkey & !0xff) | (rkey.wrapping_add(1) & 0xff);
    number(context.shared.enter().and_then(|mut core| {
        // SAFETY: as above.
        let op = unsafe { bind_operation(mw, new_rkey, &bind.bind_info) }?;
        let flags = request::flags(bind.send_flags);
        core.post_send(handle, &SendRequest { wr_id: bind.wr_id, op, sges: &[], flags }, 0)?;
        core.ring_doorbell();
        // SAFETY: as above; the program reads the field after the call has returned.
        unsafe { ptr::write(&raw mut (*mw).rkey, new_rkey) };
        Ok(())
    }))
}
