//! Thread domains and parent domains.
//!
//! A parent domain is another name for a protection domain: objects created with it belong to the underlying
//! protection domain. Its hints are accepted and need no action: one lock guards a device for all threads, and queues
//! are stored inside the engine, so objects need no memory that a program's allocator could provide.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::abi::*;
use crate::context::Context;
use crate::errno::{Errno, Result, number, pointer};
use crate::object::{Parent, PdObject, TdObject};

/// Implements `ibv_alloc_td`.
///
/// # Safety
/// `context` is open, `attr` may be read.
pub(crate) unsafe extern "C" fn alloc_td(context: *mut ibv_context, attr: *mut ibv_td_init_attr) -> *mut ibv_td {
    // SAFETY: guaranteed by the caller.
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

/// Implements `ibv_dealloc_td`.
///
/// # Safety
/// `td` is a valid thread domain, and not used again if this succeeds.
pub(crate) unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    // SAFETY: guaranteed by the caller.
    let (context, object) = unsafe { (Context::of((*td).context), td.cast::<TdObject>()) };
    number(context.shared.enter().and_then(|_core| {
        // SAFETY: as above.
        if unsafe { (*object).users.load(Ordering::Relaxed) } > 0 {
            return Err(Errno::BUSY);
        }
        // SAFETY: `alloc_td` allocated it as a `Box`, and the caller gives up ownership.
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
    // SAFETY: programs pass contexts and domains that they have created.
    let (context_of_pd, handle) = unsafe { ((*attr.pd).context, (*attr.pd).handle) };
    // SAFETY: as above.
    let is_elsewhere = context_of_pd != context || (!attr.td.is_null() && unsafe { (*attr.td).context } != context);
    // SAFETY: as above.
    let core = unsafe { Context::of(context) }.shared.enter()?;
    if is_elsewhere || core.pds.get(handle as usize).is_none() {
        return Err(Errno::INVALID);
    }
    let parent = Parent::begin(attr.pd, attr.td);
    Ok(PdObject::make(context, handle, Some(parent)))
}

/// Implements `ibv_alloc_parent_domain`.
///
/// # Safety
/// `context` is open, `attr` may be read and refers to valid objects.
pub(crate) unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    // SAFETY: guaranteed by the caller.
    pointer(create(context, unsafe { &*attr }))
}
