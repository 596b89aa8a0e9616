//! Queue pairs: creation, queries, destruction.

mod modify;
pub(crate) mod rate;
mod table;
mod target;

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

use rnic_base::limits::{SGE_MAX, WORK_REQUESTS_MAX};
use rnic_engine::{QpAttributes, QpState, Service};

use crate::abi::*;
use crate::context::Context;
use crate::core::{Core, Qp};
use crate::device::INLINE_MAX;
use crate::errno::{Errno, Result, number, pointer};
use crate::event::Unacknowledged;
use crate::mr::pd_id;
use crate::object::{self, Ptr, QpObject};
use crate::request::Builder;
use crate::wr;

/// Fields that an extended creation may set; the others belong to features that are not supported.
const CREATE_MASK: u32 =
    IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | IBV_QP_INIT_ATTR_XRCD;

/// Returns the transport service of a queue pair type.
fn service(qp_type: u32) -> Result<Service> {
    match qp_type {
        IBV_QPT_RC | IBV_QPT_XRC_SEND | IBV_QPT_XRC_RECV => Ok(Service::ReliableConnection),
        IBV_QPT_UC => Ok(Service::UnreliableConnection),
        IBV_QPT_UD => Ok(Service::UnreliableDatagram),
        _ => Err(Errno::UNSUPPORTED),
    }
}

/// Checks the requested capabilities of a queue pair, and returns the granted ones.
fn granted(init: &ibv_qp_init_attr_ex) -> Result<ibv_qp_cap> {
    service(init.qp_type)?;
    let mut cap = init.cap;
    if !init.srq.is_null() {
        // Receives are posted to the shared receive queue: the receive queue attributes are ignored (ibv_create_qp(3)).
        (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
    }
    let sges = SGE_MAX as u32;
    let exceeds_limits = cap.max_send_wr > WORK_REQUESTS_MAX
        || cap.max_recv_wr > WORK_REQUESTS_MAX
        || cap.max_send_sge > sges
        || cap.max_recv_sge > sges
        || cap.max_inline_data > INLINE_MAX;
    if exceeds_limits || init.send_cq.is_null() || init.recv_cq.is_null() {
        return Err(Errno::INVALID);
    }
    // Inline data needs a scatter/gather entry for its slot.
    if cap.max_inline_data > 0 {
        cap.max_send_sge = cap.max_send_sge.max(1);
    }
    Ok(cap)
}

fn create(pd: *mut ibv_pd, init: &mut ibv_qp_init_attr_ex) -> Result<*mut QpObject> {
    if pd.is_null() || init.qp_type == IBV_QPT_XRC_RECV {
        return Err(Errno::INVALID);
    }
    let is_initiator = init.qp_type == IBV_QPT_XRC_SEND;
    if is_initiator {
        // An XRC initiator receives no messages.
        (init.cap.max_recv_wr, init.cap.max_recv_sge, init.srq) = (0, 0, ptr::null_mut());
        if init.recv_cq.is_null() {
            init.recv_cq = init.send_cq;
        }
    }
    let cap = granted(init)?;
    // SAFETY: programs pass objects that they have created.
    let (context, pd_handle) = unsafe { ((*pd).context, (*pd).handle) };
    // SAFETY: as above.
    let mut core = unsafe { Context::of(context) }.shared.enter()?;
    let domain = pd_id(&core, pd_handle)?;
    // SAFETY: as above.
    let (send_cq, recv_cq, srq) = unsafe {
        let srq = (!init.srq.is_null()).then(|| (*init.srq).handle);
        ((*init.send_cq).handle, (*init.recv_cq).handle, srq)
    };
    let cq_id = |core: &Core, handle| core.cqs.get(handle as usize).map(|cq| cq.id).ok_or(Errno::INVALID);
    let (send_cq, recv_cq) = (cq_id(&core, send_cq)?, cq_id(&core, recv_cq)?);
    let srq = match srq {
        Some(handle) => Some(core.srqs.get(handle as usize).ok_or(Errno::INVALID)?.id),
        None => None,
    };
    let transport = Arc::clone(core.offers.preferred());
    if is_initiator && transport.falcon().is_some() {
        return Err(Errno::UNSUPPORTED);
    }
    let qpn = core.nic.verbs().create_qp(&QpAttributes {
        pd: domain,
        send_cq,
        recv_cq,
        srq,
        max_send_wr: cap.max_send_wr,
        max_recv_wr: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        signal_all: init.sq_sig_all != 0,
        service: service(init.qp_type)?,
        transport,
        number: None,
        nvme: None,
    })?;
    let object = Box::into_raw(Box::new(object_of(context, pd, init, qpn.get())));
    let handle = core.qps.insert(Qp {
        qpn,
        object: Ptr(object),
        pd: domain,
        cap,
        signal_all: init.sq_sig_all != 0,
        qp_type: init.qp_type,
        attr: ibv_qp_attr::default(),
        peer: None,
        target: None,
        inline: None,
        burst_bytes: 0,
        posted: 0,
    }) as u32;
    core.by_qpn.insert(qpn, handle);
    // SAFETY: the object is new.
    unsafe { (*object).c.qp_base.handle = handle };
    init.cap = cap;
    Ok(object)
}

fn object_of(context: *mut ibv_context, pd: *mut ibv_pd, init: &ibv_qp_init_attr_ex, qpn: u32) -> QpObject {
    // SAFETY: null functions, null pointers and zeros are all valid.
    let mut c: ibv_qp_ex = unsafe { std::mem::zeroed() };
    c.qp_base = ibv_qp {
        context,
        qp_context: init.qp_context,
        pd,
        send_cq: init.send_cq,
        recv_cq: init.recv_cq,
        srq: init.srq,
        handle: 0,
        qp_num: qpn,
        state: IBV_QPS_RESET,
        qp_type: init.qp_type,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        events_completed: 0,
    };
    let is_extended = init.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0;
    if is_extended {
        wr::fill(&mut c, init.send_ops_flags);
    }
    QpObject { c, is_extended, builder: Builder::new(init.cap.max_inline_data), events: Unacknowledged::default() }
}

/// Implements `ibv_create_qp`.
///
/// # Safety
/// `pd` is a valid protection domain; `init` may be read and written, and refers to valid objects.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_qp(pd: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    // SAFETY: guaranteed by the caller.
    let init = unsafe { &mut *init };
    // SAFETY: null pointers and zeros are all valid.
    let mut extended: ibv_qp_init_attr_ex = unsafe { std::mem::zeroed() };
    extended.qp_context = init.qp_context;
    (extended.send_cq, extended.recv_cq, extended.srq) = (init.send_cq, init.recv_cq, init.srq);
    (extended.cap, extended.qp_type, extended.sq_sig_all) = (init.cap, init.qp_type, init.sq_sig_all);
    let created = create(pd, &mut extended);
    if created.is_ok() {
        init.cap = extended.cap;
    }
    pointer(created.map(<*mut QpObject>::cast))
}

/// Implements `ibv_create_qp_ex`.
///
/// # Safety
/// `init` may be read and written, and refers to valid objects.
pub(crate) unsafe extern "C" fn create_qp_ex(context: *mut ibv_context, init: *mut ibv_qp_init_attr_ex) -> *mut ibv_qp {
    // SAFETY: guaranteed by the caller.
    let init = unsafe { &mut *init };
    let has = |mask: u32| init.comp_mask & mask != 0;
    if init.qp_type == IBV_QPT_XRC_RECV && has(IBV_QP_INIT_ATTR_XRCD) {
        // SAFETY: guaranteed by the caller.
        return pointer(unsafe { target::create(context, init) }.map(<*mut QpObject>::cast));
    }
    if !has(IBV_QP_INIT_ATTR_PD) || init.qp_type == IBV_QPT_XRC_RECV {
        return pointer(Err(Errno::INVALID));
    }
    let has_flags = has(IBV_QP_INIT_ATTR_CREATE_FLAGS) && init.create_flags != 0;
    let unsupported_ops = has(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) && !wr::supports(init.qp_type, init.send_ops_flags);
    if init.comp_mask & !CREATE_MASK != 0 || has_flags || unsupported_ops {
        return pointer(Err(Errno::UNSUPPORTED));
    }
    pointer(create(init.pd, init).map(<*mut QpObject>::cast))
}

/// Implements `ibv_qp_to_qp_ex`: returns null for a queue pair that was created without the `wr_*` functions.
///
/// # Safety
/// `qp` is a valid queue pair.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    // SAFETY: guaranteed by the caller.
    if unsafe { object::qp(qp) }.is_extended { qp.cast() } else { ptr::null_mut() }
}

/// Converts the engine's state of a queue pair to the number that programs use.
pub(crate) fn state_number(state: QpState) -> u32 {
    match state {
        QpState::Reset => IBV_QPS_RESET,
        QpState::Init => IBV_QPS_INIT,
        QpState::ReadyToReceive => IBV_QPS_RTR,
        QpState::ReadyToSend => IBV_QPS_RTS,
        QpState::SendQueueDrained => IBV_QPS_SQD,
        QpState::SendQueueError => IBV_QPS_SQE,
        QpState::Error => IBV_QPS_ERR,
    }
}

/// Returns the engine's state of a queue pair.
pub(crate) fn state_of(core: &Core, qp: &Qp) -> u32 {
    core.nic.query_qp(qp.qpn).map_or(IBV_QPS_ERR, |info| state_number(info.state))
}

/// Returns the attributes that were set for a queue pair, updated with its current state and current sequence numbers.
fn attributes_now(core: &Core, qp: &Qp) -> ibv_qp_attr {
    let Some(info) = core.nic.query_qp(qp.qpn) else {
        return ibv_qp_attr { qp_state: IBV_QPS_ERR, cur_qp_state: IBV_QPS_ERR, cap: qp.cap, ..qp.attr };
    };
    let state = state_number(info.state);
    let is_draining = info.state == QpState::SendQueueDrained && info.requests_in_progress > 0;
    let mut attr = ibv_qp_attr {
        qp_state: state,
        cur_qp_state: state,
        cap: qp.cap,
        sq_draining: u8::from(is_draining),
        ..qp.attr
    };
    if info.service == Service::ReliableConnection {
        if matches!(info.state, QpState::ReadyToReceive | QpState::ReadyToSend | QpState::SendQueueDrained) {
            attr.rq_psn = info.expected.wire::<24>().value();
        }
        if matches!(info.state, QpState::ReadyToSend | QpState::SendQueueDrained) {
            attr.sq_psn = info.next.wire::<24>().value();
        }
    }
    attr
}

/// Implements `ibv_query_qp`.
///
/// # Safety
/// `qp` is a valid queue pair; `attr` and `init` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    let (context, handle) = unsafe { (Context::of((*qp).context), (*qp).handle) };
    number(context.shared.enter().and_then(|core| {
        let entry = core.qps.get(handle as usize).ok_or(Errno::INVALID)?;
        let now = attributes_now(&core, entry);
        // SAFETY: guaranteed by the caller; programs read the state field, which changes only under the lock.
        unsafe {
            (*qp).state = now.qp_state;
            *attr = now;
            *init = ibv_qp_init_attr {
                qp_context: (*qp).qp_context,
                send_cq: (*qp).send_cq,
                recv_cq: (*qp).recv_cq,
                srq: (*qp).srq,
                cap: entry.cap,
                qp_type: entry.qp_type,
                sq_sig_all: c_int::from(entry.signal_all),
            };
        }
        Ok(())
    }))
}

/// Implements `ibv_modify_qp`.
///
/// # Safety
/// `qp` is a valid queue pair, `attr` may be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
    // SAFETY: guaranteed by the caller.
    let (context, handle, attr) = unsafe { (Context::of((*qp).context), (*qp).handle, &*attr) };
    number(context.shared.enter().and_then(|mut core| {
        let changed = modify::modify(&mut core, handle, attr, mask as u32);
        if let Some(entry) = core.qps.get(handle as usize) {
            // SAFETY: a field that programs read, and that changes only under the lock.
            unsafe { (*qp).state = state_of(&core, entry) };
        }
        // Flushed requests must be reported immediately.
        core.nic.progress();
        changed
    }))
}

/// Implements `ibv_destroy_qp`: waits until all its events are acknowledged.
///
/// # Safety
/// `qp` is a valid queue pair, and not used again if this succeeds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: guaranteed by the caller.
    let (context, handle) = unsafe { (Context::of((*qp).context), (*qp).handle) };
    let object = qp.cast::<QpObject>();
    number(context.shared.enter().and_then(|mut core| {
        let entry = core.qps.try_remove(handle as usize).ok_or(Errno::INVALID)?;
        core.nic.verbs().destroy_qp(entry.qpn)?;
        core.nic.verbs().forget_completions(entry.qpn);
        core.by_qpn.remove(&entry.qpn);
        if let Some(peer) = entry.peer {
            core.nic.release_peer(peer);
        }
        if let Some(inline) = entry.inline {
            core.nic.verbs().deregister(inline);
        }
        if let Some(parts) = entry.target {
            target::release(&mut core, &parts);
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

/// Implements `ibv_query_qp_data_in_order`: returns 0 (no guarantee), because packets may be placed in memory in
/// order of arrival.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_query_qp_data_in_order(_qp: *mut ibv_qp, _op: u32, _flags: u32) -> c_int {
    0
}

/// Implements `ibv_attach_mcast`: not supported, because there are no multicast groups.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_attach_mcast(_qp: *mut ibv_qp, _gid: *const ibv_gid, _lid: u16) -> c_int {
    number(Err(Errno::UNSUPPORTED))
}

/// Implements `ibv_detach_mcast`: not supported, as `ibv_attach_mcast`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_detach_mcast(_qp: *mut ibv_qp, _gid: *const ibv_gid, _lid: u16) -> c_int {
    number(Err(Errno::UNSUPPORTED))
}

/// Implements `ibv_set_ece`: not supported, because there are no enhanced connection options to negotiate.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_set_ece(_qp: *mut ibv_qp, _ece: *mut ibv_ece) -> c_int {
    number(Err(Errno::UNSUPPORTED))
}

/// Implements `ibv_query_ece`: not supported, as `ibv_set_ece`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_query_ece(_qp: *mut ibv_qp, _ece: *mut ibv_ece) -> c_int {
    number(Err(Errno::UNSUPPORTED))
}
