//! Thread domains and parent domains.
//!
//! A parent domain is another name of a protection domain: objects made with it belong to that one. The hints that it
//! brings are taken and need nothing: one lock guards a device whichever thread calls, and queues lie in the engine, so
//! there is no memory of an object that a program's allocator could provide.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::abi::*;
use crate::context::Context;
use crate::errno::{Errno, Result, number, pointer};
use crate::object::{Parent, PdObject, TdObject};

/// What `ibv_alloc_td` calls.
///
/// # Safety
/// `context` is open, `attr` may be read.
pub(crate) unsafe extern "C" fn alloc_td(context: *mut ibv_context, attr: *mut ibv_td_init_attr) -> *mut ibv_td {
    // SAFETY: the caller's promise.
    let mask = unsafe { (*attr).comp_mask };
    // SAFETY: as above.
    let entered = unsafe { Context::of(context) }.shared.enter();
    pointer(entered.and_then(|_core| {
        if mask != 0 {
            return Err(Errno::INVALID);
        }
        Ok(Box::into_raw(Box::new(TdObject { c: ibv_td { context }, users: AtomicU32::new(0) })).cast())
    }))
}

/// What `ibv_dealloc_td` calls.
///
/// # Safety
/// `td` is a living thread domain, and not used again if this succeeds.
pub(crate) unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    // SAFETY: the caller's promise.
    let (context, object) = unsafe { (Context::of((*td).context), td.cast::<TdObject>()) };
    number(context.shared.enter().and_then(|_core| {
        // SAFETY: as above.
        if unsafe { (*object).users.load(Ordering::Relaxed) } > 0 {
            return Err(Errno::BUSY);
        }
        // SAFETY: `alloc_td` made a box of it, and the caller gives it up.
        drop(unsafe { Box::from_raw(object) });
        Ok(())
    }))
}

fn create(context: *mut ibv_context, attr: &ibv_parent_domain_init_attr) -> Result<*mut ibv_pd> {
    let has = |mask: u32| attr.comp_mask & mask != 0;
    let known = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    let lacks_allocators = has(IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) && (attr.alloc.is_null() || attr.free.is_null());
    if attr.pd.is_null() || lacks_allocators {
        return Err(Errno::INVALID);
    }
    if attr.comp_mask & !known != 0 {
        return Err(Errno::UNSUPPORTED);
    }
    // SAFETY: a program hands over contexts and domains that it has made.
    let (context_of_pd, handle) = unsafe { ((*attr.pd).context, (*attr.pd).handle) };
    // SAFETY: as above.
    let is_elsewhere = context_of_pd != context || (!attr.td.is_null() && unsafe { (*attr.td).context } != context);
    // SAFETY: as above.
    let core = unsafe { Context::of(context) }.shared.enter()?;
    if is_elsewhere || core.pds.get(handle).is_none() {
        return Err(Errno::INVALID);
    }
    let parent = Parent::begin(attr.pd, attr.td);
    Ok(PdObject::make(context, handle, Some(parent)))
}

/// What `ibv_alloc_parent_domain` calls.
///
/// # Safety
/// `context` is open, `attr` may be read and names living objects.
pub(crate) unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    // SAFETY: the caller's promise.
    pointer(create(context, unsafe { &*attr }))
}
