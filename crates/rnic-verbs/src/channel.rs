//! Completion channels and asynchronous events.

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::abi::*;
use crate::context::Context;
use crate::core::PendingEvent;
use crate::errno::{Errno, Result, minus_one, number, pointer};
use crate::event::EventQueue;
use crate::object::{self, ChannelObject, CqObject, Element, Ptr, QpObject, SrqObject};

fn create_channel(context: *mut ibv_context) -> Result<*mut ibv_comp_channel> {
    // SAFETY: programs pass contexts that they have opened.
    drop(unsafe { Context::of(context) }.shared.enter()?);
    let events = EventQueue::new()?;
    let c = ibv_comp_channel { context, fd: events.fd(), refcnt: 0 };
    Ok(Box::into_raw(Box::new(ChannelObject { c, events })).cast())
}

/// Implements `ibv_create_comp_channel`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    pointer(create_channel(context))
}

/// Implements `ibv_destroy_comp_channel`.
///
/// # Safety
/// `channel` is from `ibv_create_comp_channel`, and not used again if this succeeds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: guaranteed by the caller.
    let context = unsafe { Context::of((*channel).context) };
    number(context.shared.enter().and_then(|_guard| {
        // SAFETY: the count changes only under the lock, which is held here.
        if unsafe { (*channel).refcnt } > 0 {
            return Err(Errno::BUSY);
        }
        // SAFETY: `ibv_create_comp_channel` allocated it as a `Box`, no completion queue refers to it, and the caller
        // gives up ownership.
        drop(unsafe { Box::from_raw(channel.cast::<ChannelObject>()) });
        Ok(())
    }))
}

/// Implements `ibv_get_cq_event`.
///
/// # Safety
/// `channel` is a valid channel; `cq` and `cq_context` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    let (events, context) = unsafe { (&object::channel(channel).events, Context::of((*channel).context)) };
    context.shared.hand_over();
    // SAFETY: before a completion queue is destroyed, it removes its events from the channel, which waits until this
    // event has been counted; it then waits for the acknowledgement of the event.
    let fetched = |cq_object: &Ptr<CqObject>| unsafe { (*cq_object.0).completions.fetched() };
    minus_one(events.pop(fetched).map(|cq_object| {
        // SAFETY: as above, and the caller guarantees that both may be written.
        unsafe {
            *cq = cq_object.0.cast();
            *cq_context = (*cq_object.0).c.cq.cq_context;
        }
    }))
}

/// Implements `ibv_ack_cq_events`.
///
/// # Safety
/// `cq` is a valid completion queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, count: u32) {
    // SAFETY: guaranteed by the caller.
    unsafe { object::cq(cq) }.completions.acknowledge(count);
}

/// Implements `ibv_get_async_event`.
///
/// # Safety
/// `context` is open, `event` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int {
    // SAFETY: guaranteed by the caller.
    let events = &unsafe { Context::of(context) }.shared.events;
    // SAFETY: before an object is destroyed, it removes its events from the queue, which waits until this event has
    // been counted; it then waits for the acknowledgement of the event.
    let fetched = |waiting: &PendingEvent| unsafe {
        match waiting.element {
            Element::Qp(qp) => (*qp.0).events.fetched(),
            Element::Cq(cq) => (*cq.0).events.fetched(),
            Element::Srq(srq) => (*srq.0).events.fetched(),
        }
    };
    minus_one(events.pop(fetched).map(|waiting| {
        let c_event = ibv_async_event { element: waiting.element.pointer(), event_type: waiting.event_type };
        // SAFETY: the caller guarantees that `event` may be written.
        unsafe { ptr::write(event, c_event) };
    }))
}

/// Implements `ibv_ack_async_event`.
///
/// # Safety
/// `event` is one that `ibv_get_async_event` has written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    // SAFETY: guaranteed by the caller; an object waits for the acknowledgement of its events before it is destroyed.
    unsafe {
        let element = (*event).element;
        match (*event).event_type {
            IBV_EVENT_CQ_ERR => (*element.cast::<CqObject>()).events.acknowledge(1),
            IBV_EVENT_QP_FATAL
            | IBV_EVENT_QP_REQ_ERR
            | IBV_EVENT_QP_ACCESS_ERR
            | IBV_EVENT_COMM_EST
            | IBV_EVENT_SQ_DRAINED
            | IBV_EVENT_PATH_MIG
            | IBV_EVENT_PATH_MIG_ERR
            | IBV_EVENT_QP_LAST_WQE_REACHED => {
                (*element.cast::<QpObject>()).events.acknowledge(1);
            }
            IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => {
                (*element.cast::<SrqObject>()).events.acknowledge(1);
            }
            _ => {}
        }
    }
}
