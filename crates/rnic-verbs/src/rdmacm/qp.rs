//! Queue pairs of an `rdma_cm_id`: their creation, together with a protection domain and completion queues if the
//! caller passed none, and their state transitions during the connection management handshake.

use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::ptr;

use rnic_wire::Qpn;

use super::abi::*;
use super::id::{ack_timeout, confirm, object};
use super::service::entry::{PATH_MTU, Stage};
use super::service::{Cm, Key};
use super::{address, calls};
use crate::abi::*;
use crate::context::Context;
use crate::errno::{Errno, Result, minus_one};

/// Creates the completion queues that the program has not provided, each with a channel.
///
/// # Safety
/// `c` is valid and assigned to a device.
unsafe fn make_cqs(c: &mut rdma_cm_id, attributes: &mut ibv_qp_init_attr_ex) -> Result<()> {
    let context: *mut c_void = ptr::from_mut(c).cast();
    // SAFETY: guaranteed by the caller.
    unsafe {
        if attributes.recv_cq.is_null() {
            (c.recv_cq_channel, c.recv_cq) = calls::create_cq(c.verbs, attributes.cap.max_recv_wr, context)?;
            attributes.recv_cq = c.recv_cq;
        }
        if attributes.send_cq.is_null() {
            (c.send_cq_channel, c.send_cq) = calls::create_cq(c.verbs, attributes.cap.max_send_wr, context)?;
            attributes.send_cq = c.send_cq;
        }
    }
    Ok(())
}

/// Destroys the completion queues that were created here.
fn drop_cqs(c: &mut rdma_cm_id) {
    // SAFETY: these fields contain what `make_cqs` has created, or null.
    unsafe {
        calls::destroy_cq(c.recv_cq_channel, c.recv_cq);
        calls::destroy_cq(c.send_cq_channel, c.send_cq);
    }
    (c.recv_cq_channel, c.recv_cq) = (ptr::null_mut(), ptr::null_mut());
    (c.send_cq_channel, c.send_cq) = (ptr::null_mut(), ptr::null_mut());
}

/// Creates the queue pair of an identifier, ready for posting receives; a datagram queue pair is also ready to send.
///
/// # Safety
/// `id` is valid; the attributes are as `ibv_create_qp_ex` requires them.
unsafe fn create_extended(id: *mut rdma_cm_id, attributes: &mut ibv_qp_init_attr_ex, is_plain: bool) -> Result<()> {
    // SAFETY: guaranteed by the caller.
    let c = unsafe { &mut object(id).c };
    if c.verbs.is_null() || !c.qp.is_null() {
        return Err(Errno::INVALID);
    }
    // The program's attributes are written only after success, so that after an error they do not refer to objects that
    // have been destroyed again.
    let (program_attributes, pd_before) = (attributes, c.pd);
    let mut attributes = *program_attributes;
    let attributes = &mut attributes;
    if attributes.comp_mask & IBV_QP_INIT_ATTR_PD == 0 || attributes.pd.is_null() {
        (attributes.comp_mask, attributes.pd) = (attributes.comp_mask | IBV_QP_INIT_ATTR_PD, c.pd);
    // SAFETY: programs pass protection domains that they have allocated.
    } else if unsafe { (*attributes.pd).context } != c.verbs {
        return Err(Errno::INVALID);
    }
    if attributes.srq.is_null() {
        attributes.srq = c.srq;
    }
    // Hardware adapters grant more inline data than requested, and programs send their first message inline without
    // having requested it.
    attributes.cap.max_inline_data = attributes.cap.max_inline_data.max(INLINE_MIN);
    // SAFETY: the identifier is assigned to a device.
    let created = unsafe { make_cqs(c, attributes) }.and_then(|()| {
        if !is_plain {
            // SAFETY: guaranteed by the caller.
            return unsafe { calls::create_qp_ex(c.verbs, attributes) };
        }
        let pd = attributes.pd;
        // SAFETY: the extended attributes start with the same fields as the plain ones.
        unsafe { calls::create_qp(pd, &mut *ptr::from_mut(attributes).cast::<ibv_qp_init_attr>()) }
    });
    let qp = created.inspect_err(|_| drop_cqs(c))?;
    (c.qp, c.pd) = (qp, attributes.pd);
    // SAFETY: guaranteed by the caller.
    let ready = unsafe {
        match attributes.qp_type {
            IBV_QPT_UD => make_ready(id, &[IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS]),
            _ => make_ready(id, &[IBV_QPS_INIT]),
        }
    };
    if ready.is_err() {
        // SAFETY: the queue pair has just been created.
        let _ = unsafe { calls::destroy_qp(qp) };
        (c.qp, c.pd) = (ptr::null_mut(), pd_before);
        drop_cqs(c);
        return ready;
    }
    *program_attributes = *attributes;
    Ok(())
}

/// Creates the queue pair of an identifier from plain attributes.
///
/// # Safety
/// As for `rdma_create_qp`.
pub(super) unsafe fn create(id: *mut rdma_cm_id, pd: *mut ibv_pd, attributes: &mut ibv_qp_init_attr) -> Result<()> {
    // SAFETY: all zeros are valid extended attributes.
    let mut extended: ibv_qp_init_attr_ex = unsafe { std::mem::zeroed() };
    let common = offset_of!(ibv_qp_init_attr_ex, comp_mask);
    // SAFETY: the extended attributes start with the same fields as the plain ones, up to `comp_mask`; both are used
    // only by this call meanwhile.
    unsafe {
        ptr::copy_nonoverlapping(ptr::from_ref(attributes).cast::<u8>(), (&raw mut extended).cast(), common);
    }
    if !pd.is_null() {
        (extended.comp_mask, extended.pd) = (IBV_QP_INIT_ATTR_PD, pd);
    }
    // SAFETY: guaranteed by the caller.
    unsafe { create_extended(id, &mut extended, true)? };
    // Return the granted capabilities and objects to the program.
    attributes.cap = extended.cap;
    (attributes.send_cq, attributes.recv_cq, attributes.srq) = (extended.send_cq, extended.recv_cq, extended.srq);
    Ok(())
}

/// Moves the queue pair of an identifier through `states`.
///
/// # Safety
/// `id` is valid and has a queue pair.
unsafe fn make_ready(id: *mut rdma_cm_id, states: &[u32]) -> Result<()> {
    for state in states {
        let mut attributes = ibv_qp_attr { qp_state: *state, ..ibv_qp_attr::default() };
        // SAFETY: guaranteed by the caller.
        unsafe {
            let mask = attributes_for(id, &mut attributes)?;
            calls::modify_qp((*id).qp, &mut attributes, mask)?;
        }
    }
    Ok(())
}

/// Fills in the attributes that the queue pair of an identifier needs for the state in `attributes`; returns the mask
/// of these attributes.
///
/// # Safety
/// `id` is valid.
unsafe fn attributes_for(id: *mut rdma_cm_id, attributes: &mut ibv_qp_attr) -> Result<u32> {
    // SAFETY: guaranteed by the caller.
    let this = unsafe { object(id) };
    let (is_datagram, is_reliable) = (this.c.qp_type == IBV_QPT_UD, this.c.qp_type == IBV_QPT_RC);
    let (remote, psn, options, responder_resources) = {
        let mut cm = Cm::lock()?;
        let entry = cm.entry(this.key)?;
        (entry.remote, entry.psn, entry.options, entry.responder_resources)
    };
    match attributes.qp_state {
        IBV_QPS_INIT => {
            attributes.port_num = 1;
            let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
            if is_datagram {
                attributes.qkey = RDMA_UDP_QKEY;
                return Ok(mask | IBV_QP_QKEY);
            }
            attributes.qp_access_flags = match remote {
                None => 0,
                Some(_) if responder_resources == 0 || !is_reliable => IBV_ACCESS_REMOTE_WRITE,
                Some(_) => IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
            };
            Ok(mask | IBV_QP_ACCESS_FLAGS)
        }
        IBV_QPS_RTR | IBV_QPS_RTS if is_datagram => {
            if attributes.qp_state == IBV_QPS_RTR {
                return Ok(IBV_QP_STATE);
            }
            attributes.sq_psn = psn;
            Ok(IBV_QP_STATE | IBV_QP_SQ_PSN)
        }
        IBV_QPS_RTR => {
            let remote = remote.ok_or(Errno::INVALID)?;
            // SAFETY: guaranteed by the caller.
            attributes.ah_attr = unsafe { address::to_peer(id)? };
            attributes.path_mtu = remote.path_mtu.clamp(IBV_MTU_256, PATH_MTU);
            (attributes.dest_qp_num, attributes.rq_psn) = (remote.qp_num, psn);
            let mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
            if !is_reliable {
                return Ok(mask);
            }
            attributes.max_dest_rd_atomic = remote.max_dest_rd_atomic;
            attributes.min_rnr_timer = rnr_timer(remote.rnr_retry_count);
            Ok(mask | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
        }
        IBV_QPS_RTS => {
            let remote = remote.ok_or(Errno::INVALID)?;
            attributes.sq_psn = remote.psn;
            let mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
            if !is_reliable {
                return Ok(mask);
            }
            attributes.timeout = ack_timeout(options.ack_timeout);
            (attributes.retry_cnt, attributes.rnr_retry) = (remote.retry_count, remote.rnr_retry_count);
            attributes.max_rd_atomic = remote.max_rd_atomic;
            Ok(mask | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)
        }
        IBV_QPS_ERR => Ok(IBV_QP_STATE),
        _ => Err(Errno::INVALID),
    }
}

/// Completes a connection that the remote end has accepted: makes the queue pair ready to send and confirms the
/// connection to the remote end. When that fails, the connection is closed, which notifies the remote end.
///
/// # Safety
/// `id` is valid and has a queue pair.
pub(super) unsafe fn on_reply(id: *mut rdma_cm_id) -> Result<()> {
    limit_reads(id)?;
    // SAFETY: guaranteed by the caller.
    let ready = unsafe { make_ready(id, &[IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS]) };
    // SAFETY: guaranteed by the caller.
    let this = unsafe { object(id) };
    match ready {
        Ok(()) => confirm(this),
        Err(errno) => {
            let mut cm = Cm::lock()?;
            if let Ok(entry) = cm.entry(this.key) {
                entry.stage = Stage::Closed;
                let route_key = entry.port.zip(entry.connection.take());
                if let Some((port, connection)) = route_key {
                    cm.close_connection(port, connection);
                }
            }
            drop(cm);
            // SAFETY: guaranteed by the caller.
            unsafe { fail(id) };
            Err(errno)
        }
    }
}

/// Sets the transport that both ends support on the queue pair of an identifier; returns its index in the list of
/// offered transports.
pub(super) fn apply_common_transport(key: Key) -> Result<usize> {
    let (transport, qp_num) = {
        let mut cm = Cm::lock()?;
        let entry = cm.entry(key)?;
        (entry.remote.map_or(0, |remote| remote.transport), entry.qp_num)
    };
    if transport > 0 {
        let (context, _) = super::devices::open()?;
        // SAFETY: the context stays open until the process exits.
        unsafe { Context::of(context) }.shared.enter()?.select_transport(Qpn::new(qp_num), transport)?;
    }
    Ok(transport)
}

/// Limits the number of concurrent Reads in each direction to what the program has set and the device supports.
fn limit_reads(id: *mut rdma_cm_id) -> Result<()> {
    let (reads_served, reads_issued) = super::devices::read_limits()?;
    // SAFETY: the caller has a valid identifier.
    let key = unsafe { object(id) }.key;
    let mut cm = Cm::lock()?;
    let entry = cm.entry(key)?;
    if let Some(remote) = &mut entry.remote {
        remote.max_dest_rd_atomic = remote.max_dest_rd_atomic.min(entry.responder_resources).min(reads_served);
        remote.max_rd_atomic = remote.max_rd_atomic.min(entry.initiator_depth).min(reads_issued);
    }
    Ok(())
}

/// Makes the queue pair ready to send and receive, when the local program accepts.
///
/// # Safety
/// `id` is valid and has a queue pair.
pub(super) unsafe fn accept(id: *mut rdma_cm_id) -> Result<()> {
    // SAFETY: guaranteed by the caller.
    let key = unsafe { object(id) }.key;
    {
        let mut cm = Cm::lock()?;
        let entry = cm.entry(key)?;
        let (reads_served, reads_issued) = (entry.responder_resources, entry.initiator_depth);
        if let Some(remote) = &mut entry.remote {
            (remote.max_dest_rd_atomic, remote.max_rd_atomic) = (reads_served, reads_issued);
        }
    }
    // SAFETY: guaranteed by the caller.
    unsafe { make_ready(id, &[IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS]) }
}

/// Moves the queue pair to the error state after the end of the connection, so that posted requests are flushed.
///
/// # Safety
/// `id` is valid.
pub(super) unsafe fn fail(id: *mut rdma_cm_id) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if !(*id).qp.is_null() && (*id).qp_type != IBV_QPT_UD {
            // The result is ignored, because a queue pair that is already in the error state stays there.
            let _ = make_ready(id, &[IBV_QPS_ERR]);
        }
    }
}

/// Implements `rdma_create_qp`.
///
/// # Safety
/// `id` is valid, `pd` is null or valid, `attributes` may be read and written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attributes: *mut ibv_qp_init_attr,
) -> c_int {
    if attributes.is_null() {
        return minus_one(Err(Errno::INVALID));
    }
    // SAFETY: guaranteed by the caller.
    minus_one(unsafe { create(id, pd, &mut *attributes) })
}

/// Implements `rdma_create_qp_ex`.
///
/// # Safety
/// `id` is valid, `attributes` may be read and written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_qp_ex(id: *mut rdma_cm_id, attributes: *mut ibv_qp_init_attr_ex) -> c_int {
    if attributes.is_null() {
        return minus_one(Err(Errno::INVALID));
    }
    // SAFETY: guaranteed by the caller.
    minus_one(unsafe { create_extended(id, &mut *attributes, false) })
}

/// Implements `rdma_destroy_qp`.
///
/// # Safety
/// `id` is valid; its queue pair is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let c = &mut object(id).c;
        if !c.qp.is_null() {
            let _ = calls::destroy_qp(c.qp);
            c.qp = ptr::null_mut();
        }
        drop_cqs(c);
    }
}

/// # Safety
/// As for `rdma_create_srq`.
unsafe fn create_srq(id: *mut rdma_cm_id, pd: *mut ibv_pd, attributes: &mut ibv_srq_init_attr) -> Result<()> {
    // SAFETY: guaranteed by the caller.
    let c = unsafe { &mut object(id).c };
    let pd = if pd.is_null() { c.pd } else { pd };
    if c.verbs.is_null() || pd.is_null() || !c.srq.is_null() {
        return Err(Errno::INVALID);
    }
    // SAFETY: guaranteed by the caller.
    c.srq = unsafe { calls::create_srq(pd, attributes)? };
    c.pd = pd;
    Ok(())
}

/// Implements `rdma_create_srq`.
///
/// # Safety
/// `id` is valid, `pd` is null or valid, `attributes` may be read and written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attributes: *mut ibv_srq_init_attr,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    minus_one(unsafe { create_srq(id, pd, &mut *attributes) })
}

/// Implements `rdma_create_srq_ex`, for basic shared receive queues only.
///
/// # Safety
/// `id` is valid, `attributes` may be read and written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_srq_ex(id: *mut rdma_cm_id, attributes: *mut ibv_srq_init_attr_ex) -> c_int {
    // SAFETY: guaranteed by the caller.
    let extended = unsafe { &mut *attributes };
    let has = |bit| extended.comp_mask & bit != 0;
    if has(IBV_SRQ_INIT_ATTR_TYPE) && extended.srq_type != IBV_SRQT_BASIC {
        return minus_one(Err(Errno::UNSUPPORTED));
    }
    let pd = if has(IBV_SRQ_INIT_ATTR_PD) { extended.pd } else { ptr::null_mut() };
    let mut plain = ibv_srq_init_attr { srq_context: extended.srq_context, attr: extended.attr };
    // SAFETY: guaranteed by the caller.
    let created = unsafe { create_srq(id, pd, &mut plain) };
    extended.attr = plain.attr;
    minus_one(created)
}

/// Implements `rdma_destroy_srq`.
///
/// # Safety
/// `id` is valid; its queue is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_srq(id: *mut rdma_cm_id) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let c = &mut object(id).c;
        if !c.srq.is_null() && calls::destroy_srq(c.srq).is_ok() {
            c.srq = ptr::null_mut();
        }
    }
}

/// Implements `rdma_init_qp_attr`, for programs that manage their queue pairs themselves.
///
/// # Safety
/// `id` is valid; `attributes` may be read and written, `mask` written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_init_qp_attr(
    id: *mut rdma_cm_id,
    attributes: *mut ibv_qp_attr,
    mask: *mut c_int,
) -> c_int {
    if attributes.is_null() || mask.is_null() {
        return minus_one(Err(Errno::INVALID));
    }
    // SAFETY: guaranteed by the caller.
    let qp_state = unsafe { (*attributes).qp_state };
    // The entire structure is written, as librdmacm does: the program sets only the requested state, and the other
    // fields may be uninitialized.
    let mut needed_attributes = ibv_qp_attr { qp_state, cur_qp_state: qp_state, ..ibv_qp_attr::default() };
    // SAFETY: guaranteed by the caller.
    minus_one(limit_reads(id).and_then(|()| unsafe {
        let needed = attributes_for(id, &mut needed_attributes)?;
        (*attributes, *mask) = (needed_attributes, needed.cast_signed());
        Ok(())
    }))
}

/// Minimum size of inline data granted to a queue pair, in bytes.
const INLINE_MIN: u32 = 64;

/// Returns the RNR timer, in InfiniBand's encoding: the time for which a sender waits when no receive was posted. For a
/// sender with unlimited retries it is short. For a sender with limited retries, the total of all waits is no shorter
/// than the wait of Linux's connection manager, 655 ms, because a program may be slow to post. Both ends are assumed to
/// have requested the same retry count.
fn rnr_timer(retries: u8) -> u8 {
    const RNR_TIMER_0_64_MS: u8 = 12;
    const RNR_TIMER_655_MS: u8 = 0;
    const RNR_TIMER_328_MS: u8 = 30;
    const RNR_TIMER_164_MS: u8 = 28;
    match retries {
        0 | 1 => RNR_TIMER_655_MS,
        2 | 3 => RNR_TIMER_328_MS,
        4..=6 => RNR_TIMER_164_MS,
        _ => RNR_TIMER_0_64_MS,
    }
}
