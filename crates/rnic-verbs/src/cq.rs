//! Completion queues.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};

use rnic_base::limits::COMPLETIONS_MAX;

use crate::abi::*;
use crate::context::Context;
use crate::core::Cq;
use crate::device::COMPLETION_VECTORS;
use crate::errno::{Errno, Result, number, pointer};
use crate::event::Unacknowledged;
use crate::object::{ChannelObject, CqObject, Ptr};
use crate::poll;

/// Minimum number of entries of a completion queue.
const COMPLETIONS_MIN: u32 = 16;

/// Parameters of a completion queue to create.
struct CqParams {
    cqe: u32,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: u32,
}

fn create(context: *mut ibv_context, params: &CqParams) -> Result<*mut CqObject> {
    if params.cqe == 0 || params.cqe > COMPLETIONS_MAX || params.vector >= COMPLETION_VECTORS as u32 {
        return Err(Errno::INVALID);
    }
    // SAFETY: programs pass contexts that they have opened.
    let mut core = unsafe { Context::of(context) }.shared.enter()?;
    // Enforce a minimum size, as hardware adapters do: under loss a program may get two completions where it expects
    // one, and an overflow of the completion queue moves its queue pairs to the error state (ib_send_lat -e requests
    // one entry).
    let entries = params.cqe.max(COMPLETIONS_MIN);
    let id = core.nic.verbs().create_cq(entries)?;
    // SAFETY: null functions, zeros and empty locks of C are all valid.
    let mut c: ibv_cq_ex = unsafe { std::mem::zeroed() };
    c.cq.context = context;
    c.cq.channel = params.channel;
    c.cq.cq_context = params.cq_context;
    c.cq.cqe = entries as c_int;
    poll::fill(&mut c);
    let object = Box::into_raw(Box::new(CqObject {
        c,
        current: UnsafeCell::new(ibv_wc::default()),
        completions: Unacknowledged::default(),
        events: Unacknowledged::default(),
    }));
    let channel = (!params.channel.is_null()).then(|| Ptr(params.channel.cast::<ChannelObject>()));
    let handle = core.cqs.insert(Cq { id, object: Ptr(object), channel }) as u32;
    core.by_cq.insert(id, handle);
    // SAFETY: the object is new; the channel was created by the program, and its count changes only under the lock.
    unsafe {
        (*object).c.cq.handle = handle;
        if let Some(channel) = channel {
            (*channel.0).c.refcnt += 1;
        }
    }
    Ok(object)
}

/// Implements `ibv_create_cq`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    let params = CqParams {
        cqe: u32::try_from(cqe).unwrap_or(0),
        cq_context,
        channel,
        vector: u32::try_from(comp_vector).unwrap_or(u32::MAX),
    };
    pointer(create(context, &params).map(<*mut CqObject>::cast))
}

/// Implements `ibv_create_cq_ex`.
///
/// # Safety
/// `attr` may be read.
pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    // SAFETY: guaranteed by the caller.
    let attr = unsafe { &*attr };
    let known = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
    if attr.comp_mask & !known != 0 {
        return pointer(Err(Errno::INVALID));
    }
    // The flag for single-threaded polling has no effect, because the lock is taken in any case. The flag to ignore
    // an overrun is rejected, because it would lose completions silently.
    let flags = if attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS == 0 { 0 } else { attr.flags };
    // The parent domain's hints on memory and threads need no action.
    if attr.wc_flags & !poll::SUPPORTED_WC_FLAGS != 0 || flags & !IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0 {
        return pointer(Err(Errno::UNSUPPORTED));
    }
    let params =
        CqParams { cqe: attr.cqe, cq_context: attr.cq_context, channel: attr.channel, vector: attr.comp_vector };
    pointer(create(context, &params).map(<*mut CqObject>::cast))
}

/// Implements `ibv_modify_cq`: not supported, because there are no interrupts to moderate.
// SAFETY: C calls it through the pointer in the structure, with the arguments that the header specifies.
pub(crate) unsafe extern "C" fn modify_cq(_cq: *mut ibv_cq, _attr: *mut ibv_modify_cq_attr) -> c_int {
    libc::EOPNOTSUPP
}

/// Implements `ibv_resize_cq`.
///
/// # Safety
/// `cq` is a valid completion queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    // SAFETY: guaranteed by the caller.
    let (context, handle) = unsafe { (Context::of((*cq).context), (*cq).handle) };
    number(context.shared.enter().and_then(|mut core| {
        let id = core.cqs.get(handle as usize).ok_or(Errno::INVALID)?.id;
        core.nic.verbs().resize_cq(id, u32::try_from(cqe).unwrap_or(0))?;
        // SAFETY: a field that programs read, and that changes only under the lock.
        unsafe { (*cq).cqe = cqe };
        Ok(())
    }))
}

/// Implements `ibv_destroy_cq`: waits until all its events are acknowledged.
///
/// # Safety
/// `cq` is a valid completion queue, and not used again if this succeeds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: guaranteed by the caller.
    let (context, handle) = unsafe { (Context::of((*cq).context), (*cq).handle) };
    let object = cq.cast::<CqObject>();
    number(context.shared.enter().and_then(|mut core| {
        let known = core.cqs.get(handle as usize).ok_or(Errno::INVALID)?;
        let (id, channel) = (known.id, known.channel);
        core.nic.verbs().destroy_cq(id)?;
        core.cqs.try_remove(handle as usize);
        core.by_cq.remove(&id);
        if let Some(channel) = channel {
            // SAFETY: a channel outlives its completion queues; its count changes only under the lock, which is held
            // here.
            unsafe {
                (*channel.0).events.forget(|of| of.0 == object);
                (*channel.0).c.refcnt -= 1;
            }
        }
        drop(core);
        context.shared.events.forget(|waiting| waiting.element.pointer() == object.cast());
        // SAFETY: the only remaining references to the object are events that the program has fetched, whose
        // acknowledgement this call waits for; `create` allocated it as a `Box`, and the caller gives up ownership.
        unsafe {
            (*object).completions.wait();
            (*object).events.wait();
            drop(Box::from_raw(object));
        }
        Ok(())
    }))
}
