//! Shared receive queues.

use std::ffi::c_int;

use rnic_base::limits::{SGE_MAX, WORK_REQUESTS_MAX};

use crate::abi::*;
use crate::context::Context;
use crate::core::Srq;
use crate::errno::{Errno, Result, number, pointer};
use crate::event::Unacknowledged;
use crate::mr::pd_id;
use crate::object::{Ptr, SrqObject};
use crate::xrc;

fn create(
    pd: *mut ibv_pd,
    srq_context: *mut std::ffi::c_void,
    attr: &mut ibv_srq_attr,
    shared: Option<(*mut ibv_xrcd, *mut ibv_cq)>,
) -> Result<*mut ibv_srq> {
    if attr.max_wr == 0 || attr.max_wr > WORK_REQUESTS_MAX || attr.max_sge > SGE_MAX as u32 {
        return Err(Errno::INVALID);
    }
    // SAFETY: programs pass protection domains that they have created.
    let (context, pd_handle) = unsafe { ((*pd).context, (*pd).handle) };
    // SAFETY: as above.
    let mut core = unsafe { Context::of(context) }.shared.enter()?;
    let domain = pd_id(&core, pd_handle)?;
    // A queue without scatter/gather entries is valid in verbs; here it gets one entry.
    attr.max_sge = attr.max_sge.max(1);
    let (id, xrcd) = match shared {
        None => (core.nic.verbs().create_srq(domain, attr.max_wr, attr.max_sge)?, None),
        Some((xrcd, cq)) => {
            // SAFETY: programs pass objects that they have created.
            let cq = core.cqs.get(unsafe { (*cq).handle } as usize).ok_or(Errno::INVALID)?.id;
            // SAFETY: as above.
            let xrcd = unsafe { xrc::join(&mut core, xrcd) }?;
            let created = core.nic.verbs().create_shared_srq(domain, (xrcd, cq), attr.max_wr, attr.max_sge);
            (created.inspect_err(|_| xrc::remove_user(&mut core, xrcd))?, Some(xrcd))
        }
    };
    let c = ibv_srq {
        context,
        srq_context,
        pd,
        handle: 0,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        events_completed: 0,
    };
    let object = Box::into_raw(Box::new(SrqObject { c, events: Unacknowledged::default() }));
    let handle = core.srqs.insert(Srq { id, object: Ptr(object), max_sge: attr.max_sge, xrcd }) as u32;
    // SAFETY: the object is new.
    unsafe { (*object).c.handle = handle };
    Ok(object.cast())
}

/// Implements `ibv_create_srq`.
///
/// # Safety
/// `pd` is a valid protection domain, `init` may be read and written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_srq(pd: *mut ibv_pd, init: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    // SAFETY: guaranteed by the caller.
    let init = unsafe { &mut *init };
    pointer(create(pd, init.srq_context, &mut init.attr, None))
}

/// Implements `ibv_create_srq_ex`.
///
/// # Safety
/// `init` may be read and written, and refers to valid objects.
pub(crate) unsafe extern "C" fn create_srq_ex(
    _context: *mut ibv_context,
    init: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    // SAFETY: guaranteed by the caller.
    let init = unsafe { &mut *init };
    let has = |bit: u32| init.comp_mask & bit != 0;
    let xrc_mask = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    let (is_shared, known) = match init.srq_type {
        IBV_SRQT_XRC if has(IBV_SRQ_INIT_ATTR_TYPE) => (true, xrc_mask),
        kind if kind == IBV_SRQT_BASIC || !has(IBV_SRQ_INIT_ATTR_TYPE) => (false, 0),
        _ => return pointer(Err(Errno::UNSUPPORTED)),
    };
    if init.comp_mask & !(IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | known) != 0 {
        return pointer(Err(Errno::UNSUPPORTED));
    }
    let is_incomplete =
        is_shared && (init.comp_mask & xrc_mask != xrc_mask || init.xrcd.is_null() || init.cq.is_null());
    if !has(IBV_SRQ_INIT_ATTR_PD) || init.pd.is_null() || is_incomplete {
        return pointer(Err(Errno::INVALID));
    }
    let shared = is_shared.then_some((init.xrcd, init.cq));
    pointer(create(init.pd, init.srq_context, &mut init.attr, shared))
}

/// Implements `ibv_get_srq_num`: only shared receive queues of XRC have numbers.
///
/// # Safety
/// `srq` is a valid shared receive queue, `into` may be written.
pub(crate) unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, into: *mut u32) -> c_int {
    // SAFETY: guaranteed by the caller.
    let (context, handle) = unsafe { (Context::of((*srq).context), (*srq).handle) };
    number(context.shared.enter().and_then(|core| {
        let known = core.srqs.get(handle as usize).ok_or(Errno::INVALID)?;
        known.xrcd.ok_or(Errno::UNSUPPORTED)?;
        // SAFETY: guaranteed by the caller.
        unsafe { *into = known.id.number() };
        Ok(())
    }))
}

/// Implements `ibv_modify_srq`: sets the size, the limit, or both.
///
/// # Safety
/// `srq` is a valid shared receive queue, `attr` may be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_modify_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr, mask: c_int) -> c_int {
    // SAFETY: guaranteed by the caller.
    let (context, handle, attr) = unsafe { (Context::of((*srq).context), (*srq).handle, &*attr) };
    let mask = mask as u32;
    number(context.shared.enter().and_then(|mut core| {
        if mask & !(IBV_SRQ_LIMIT | IBV_SRQ_MAX_WR) != 0 {
            return Err(Errno::INVALID);
        }
        let id = core.srqs.get(handle as usize).ok_or(Errno::INVALID)?.id;
        let current = core.nic.query_srq(id).ok_or(Errno::INVALID)?;
        let (sets_size, sets_limit) = (mask & IBV_SRQ_MAX_WR != 0, mask & IBV_SRQ_LIMIT != 0);
        let max_wr = if sets_size { attr.max_wr } else { current.max_wr };
        if sets_limit && attr.srq_limit > max_wr {
            return Err(Errno::INVALID);
        }
        // A lower limit is set before the resize, a limit above the old size after it, so that the limit never exceeds
        // the size.
        if sets_limit && attr.srq_limit <= current.max_wr {
            core.nic.verbs().set_srq_limit(id, attr.srq_limit)?;
        }
        if sets_size && let Err(error) = core.nic.verbs().resize_srq(id, attr.max_wr) {
            // On failure, restore the limit: either both changes take effect or none.
            core.nic.verbs().set_srq_limit(id, current.limit)?;
            return Err(error.into());
        }
        if sets_limit {
            core.nic.verbs().set_srq_limit(id, attr.srq_limit)?;
        }
        Ok(())
    }))
}

/// Implements `ibv_query_srq`.
///
/// # Safety
/// `srq` is a valid shared receive queue, `attr` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    // SAFETY: guaranteed by the caller.
    let (context, handle) = unsafe { (Context::of((*srq).context), (*srq).handle) };
    number(context.shared.enter().and_then(|core| {
        let id = core.srqs.get(handle as usize).ok_or(Errno::INVALID)?.id;
        // Query the engine's current state, because the limit event disarms the limit.
        let now = core.nic.query_srq(id).ok_or(Errno::INVALID)?;
        // SAFETY: guaranteed by the caller.
        unsafe { *attr = ibv_srq_attr { max_wr: now.max_wr, max_sge: now.max_sge, srq_limit: now.limit } };
        Ok(())
    }))
}

/// Implements `ibv_destroy_srq`: waits until all its events are acknowledged.
///
/// # Safety
/// `srq` is a valid shared receive queue, and not used again if this succeeds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    // SAFETY: guaranteed by the caller.
    let (context, handle) = unsafe { (Context::of((*srq).context), (*srq).handle) };
    let object = srq.cast::<SrqObject>();
    number(context.shared.enter().and_then(|mut core| {
        let known = core.srqs.get(handle as usize).ok_or(Errno::INVALID)?;
        let (id, xrcd) = (known.id, known.xrcd);
        core.nic.verbs().destroy_srq(id)?;
        core.srqs.try_remove(handle as usize);
        if let Some(xrcd) = xrcd {
            xrc::remove_user(&mut core, xrcd);
        }
        drop(core);
        context.shared.events.forget(|waiting| waiting.element.pointer() == object.cast());
        // SAFETY: the only remaining references to the object are events that the program has fetched, whose
        // acknowledgement this call waits for; `create` allocated it as a `Box`, and the caller gives up ownership.
        unsafe {
            (*object).events.wait();
            drop(Box::from_raw(object));
        }
        Ok(())
    }))
}
