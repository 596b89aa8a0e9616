//! Posting of send and receive requests.

use std::ffi::c_int;

use rnic_base::limits::SGE_MAX;
use rnic_engine::{Access, DatagramAddress, RecvRequest, RemoteMemory, SendOp, SendRequest};

use rnic_wire::Qpn;

use crate::abi::*;
use crate::context::Context;
use crate::core::{Ah, Core, Qp};
use crate::errno::{Errno, Result};
use crate::mw;
use crate::request::{List, Target, flags};

/// Returns the engine's operation for a work request.
#[inline]
fn operation(wr: &ibv_send_wr) -> Result<SendOp> {
    let immediate = u32::from_be(wr.imm_data);
    // SAFETY: every bit pattern is valid in the fields that are read, and the opcode determines which of them are used.
    let (rdma, atomic) = unsafe { (wr.wr.rdma, wr.wr.atomic) };
    let remote = RemoteMemory { addr: rdma.remote_addr, rkey: rdma.rkey };
    let word = RemoteMemory { addr: atomic.remote_addr, rkey: atomic.rkey };
    Ok(match wr.opcode {
        IBV_WR_RDMA_WRITE => SendOp::Write { remote, immediate: None },
        IBV_WR_RDMA_WRITE_WITH_IMM => SendOp::Write { remote, immediate: Some(immediate) },
        IBV_WR_SEND => SendOp::Send { immediate: None },
        IBV_WR_SEND_WITH_IMM => SendOp::Send { immediate: Some(immediate) },
        IBV_WR_SEND_WITH_INV => SendOp::SendInvalidate { rkey: wr.imm_data },
        IBV_WR_RDMA_READ => SendOp::Read { remote },
        IBV_WR_ATOMIC_CMP_AND_SWP => {
            SendOp::CompareSwap { remote: word, compare: atomic.compare_add, swap: atomic.swap }
        }
        IBV_WR_ATOMIC_FETCH_AND_ADD => SendOp::FetchAdd { remote: word, add: atomic.compare_add },
        IBV_WR_ATOMIC_WRITE => SendOp::AtomicWrite { remote, value: [0; 8] },
        IBV_WR_LOCAL_INV => SendOp::LocalInvalidate { rkey: wr.imm_data },
        // SAFETY: a bind request refers to a window and, unless it binds nothing, a region.
        IBV_WR_BIND_MW => unsafe { mw::bind_operation(wr.bind_mw.mw, wr.bind_mw.rkey, &wr.bind_mw.bind_info) }?,
        _ => return Err(Errno::INVALID),
    })
}

/// Returns the number of slots for inline data: one more than send queue entries, so that the next slot is unused even
/// when the queue is full.
fn inline_slots(qp: &Qp) -> u64 {
    u64::from(qp.cap.max_send_wr) + 1
}

/// Registers the region for a queue pair's inline data, unless it exists already or inline data is not enabled.
pub(crate) fn prepare_inline(core: &mut Core, handle: u32) -> Result<()> {
    let Core { nic, qps, .. } = core;
    let qp = qps.get_mut(handle as usize).ok_or(Errno::INVALID)?;
    let bytes = qp.cap.max_inline_data as usize * inline_slots(qp) as usize;
    if qp.inline.is_none() && bytes > 0 {
        qp.inline = Some(nic.verbs().register(qp.pd, bytes, Access::empty())?);
    }
    Ok(())
}

/// Returns an atomic write with its eight bytes of data, which are read now; the program may not change them before
/// completion anyway.
///
/// # Safety
/// The memory that the request refers to may be read.
unsafe fn atomic_write(core: &Core, wr: &ibv_send_wr) -> Result<SendOp> {
    if wr.num_sge != 1 {
        return Err(Errno::INVALID);
    }
    // SAFETY: guaranteed by the caller.
    let sge = unsafe { &*wr.sg_list };
    let contains_word = |mr: &crate::core::Mr| {
        let offset = sge.addr.wrapping_sub(mr.region.addr());
        mr.region.key().0 == sge.lkey && offset <= mr.region.len() as u64 && mr.region.len() as u64 - offset >= 8
    };
    let place = if wr.send_flags & IBV_SEND_INLINE != 0 {
        sge.addr as usize
    } else {
        let mr = core.mrs.iter().map(|(_, entry)| entry).find(|mr| contains_word(mr)).ok_or(Errno::INVALID)?;
        mr.start + (sge.addr - mr.region.addr()) as usize
    };
    if sge.length != 8 {
        return Err(Errno::INVALID);
    }
    // SAFETY: guaranteed by the caller: eight bytes can be read there, as inline data or as part of a registered
    // region.
    let value = unsafe { std::ptr::read_unaligned(place as *const [u8; 8]) };
    // SAFETY: every bit pattern is valid in the fields.
    let rdma = unsafe { wr.wr.rdma };
    Ok(SendOp::AtomicWrite { remote: RemoteMemory { addr: rdma.remote_addr, rkey: rdma.rkey }, value })
}

/// Copies inline data into its slot; returns a scatter/gather list of the slot.
///
/// # Safety
/// The entries refer to readable memory of the given lengths.
pub(crate) unsafe fn copy_inline(core: &mut Core, handle: u32, buffers: &[(u64, usize)]) -> Result<List> {
    let qp = core.qps.get(handle as usize).ok_or(Errno::INVALID)?;
    let mut list = List::EMPTY;
    let total = buffers.iter().fold(0usize, |sum, (_, len)| sum.saturating_add(*len));
    if total > qp.cap.max_inline_data as usize {
        return Err(Errno::INVALID);
    }
    if total == 0 {
        return Ok(list);
    }
    if qp.inline.is_none() {
        prepare_inline(core, handle)?;
    }
    let Core { nic, qps, .. } = core;
    let qp = qps.get(handle as usize).ok_or(Errno::INVALID)?;
    let Some(region) = &qp.inline else { return Err(Errno::NO_MEMORY) };
    let slot_bytes = qp.cap.max_inline_data as usize;
    let first = (qp.posted % inline_slots(qp)) as usize * slot_bytes;
    let place = &mut nic.bytes_mut(region)[first..first + total];
    let mut at = 0;
    for (addr, len) in buffers.iter().filter(|(_, len)| *len > 0) {
        // SAFETY: guaranteed by the caller; the destination is in a region that this library owns.
        let copied = unsafe { rnic_host::copy_from_program(*addr as *const u8, &mut place[at..at + *len]) };
        copied.map_err(|_| Errno(libc::EFAULT))?;
        at += len;
    }
    let sge = region.sge(first, total as u32);
    list.push(&ibv_sge { addr: sge.addr, length: sge.len, lkey: sge.lkey })?;
    Ok(list)
}

/// Queues one request.
///
/// # Safety
/// The memory that the request refers to may be read.
#[inline]
unsafe fn send_one(core: &mut Core, handle: u32, wr: &ibv_send_wr) -> Result<()> {
    let qp = core.qps.get(handle as usize).ok_or(Errno::INVALID)?;
    let (limit, is_datagram) = (qp.cap.max_send_sge, qp.qp_type == IBV_QPT_UD);
    let mut op = operation(wr)?;
    if wr.opcode == IBV_WR_ATOMIC_WRITE {
        // SAFETY: guaranteed by the caller.
        let op = unsafe { atomic_write(core, wr) }?;
        let request = SendRequest { wr_id: wr.wr_id, op, sges: &[], flags: flags(wr.send_flags) };
        return core.post_send(handle, &request, 0);
    }
    if is_datagram {
        // SAFETY: every bit pattern is valid in the fields; a datagram request refers to an address handle.
        let to = unsafe {
            let ud = wr.wr.ud;
            (!ud.ah.is_null()).then(|| Target { handle: (*ud.ah).handle, qpn: ud.remote_qpn, qkey: ud.remote_qkey })
        };
        op = with_destination(core, handle, op, to)?;
    }
    let list = if wr.send_flags & IBV_SEND_INLINE != 0 {
        check_inline(core, handle, &op)?;
        let count = usize::try_from(wr.num_sge).map_err(|_| Errno::INVALID)?;
        let mut buffers = [(0, 0); SGE_MAX];
        let buffers = buffers.get_mut(..count).ok_or(Errno::INVALID)?;
        for (index, buffer) in buffers.iter_mut().enumerate() {
            // SAFETY: guaranteed by the caller.
            let sge = unsafe { &*wr.sg_list.add(index) };
            *buffer = (sge.addr, sge.length as usize);
        }
        // SAFETY: guaranteed by the caller.
        unsafe { copy_inline(core, handle, buffers) }?
    } else {
        // SAFETY: guaranteed by the caller.
        unsafe { List::of(wr.sg_list, wr.num_sge, limit) }?
    };
    let request = SendRequest { wr_id: wr.wr_id, op, sges: list.as_slice(), flags: flags(wr.send_flags) };
    core.post_send(handle, &request, wr.remote_srqn)
}

/// Returns the operation adapted to the type of the queue pair, because a Send differs between connected and datagram
/// queue pairs.
pub(crate) fn with_destination(core: &Core, handle: u32, op: SendOp, to: Option<Target>) -> Result<SendOp> {
    let qp = core.qps.get(handle as usize).ok_or(Errno::INVALID)?;
    if qp.qp_type != IBV_QPT_UD {
        return Ok(op);
    }
    let SendOp::Send { immediate } = op else { return Err(Errno::INVALID) };
    let to = to.ok_or(Errno::INVALID)?;
    let Ah { peer, ip_fields, .. } = *core.ahs.get(to.handle as usize).ok_or(Errno::INVALID)?;
    let mark = ip_fields.bits();
    let to = DatagramAddress { peer, qpn: Qpn::new(to.qpn & 0xff_ffff), qkey: to.qkey, mark };
    Ok(SendOp::Datagram { to, immediate })
}

/// Checks that inline data is only used with operations that send data.
pub(crate) fn check_inline(core: &Core, handle: u32, op: &SendOp) -> Result<()> {
    let carries_data = matches!(
        op,
        SendOp::Write { .. } | SendOp::Send { .. } | SendOp::SendInvalidate { .. } | SendOp::Datagram { .. }
    );
    let qp = core.qps.get(handle as usize).ok_or(Errno::INVALID)?;
    if !carries_data || qp.cap.max_send_wr == 0 {
        return Err(Errno::INVALID);
    }
    Ok(())
}

/// Implements `ibv_post_send`.
///
/// # Safety
/// `qp` is a valid queue pair, `wr` a list of requests, `bad` may be written.
pub(crate) unsafe extern "C" fn post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: guaranteed by the caller.
    let (context, handle) = unsafe { (Context::of((*qp).context), (*qp).handle) };
    let mut next = wr;
    let posted = context.shared.enter().and_then(|mut core| {
        let mut posted = Ok(());
        while posted.is_ok() && !next.is_null() {
            // SAFETY: guaranteed by the caller.
            let wr = unsafe { &*next };
            // SAFETY: as above.
            posted = unsafe { send_one(&mut core, handle, wr) };
            if posted.is_ok() {
                next = wr.next;
            }
        }
        core.ring_doorbell();
        posted
    });
    report(posted, next, bad)
}

/// Stores the address of the request that could not be posted in `bad`, and returns the error number.
#[inline]
fn report<T>(posted: Result<()>, at: *mut T, bad: *mut *mut T) -> c_int {
    match posted {
        Ok(()) => 0,
        Err(errno) => {
            if !bad.is_null() {
                // SAFETY: the program guarantees that `bad` may be written.
                unsafe { *bad = at };
            }
            errno.0
        }
    }
}

/// Posts a list of receives with `post`, entry by entry.
///
/// # Safety
/// `wr` points to a list of requests.
#[inline]
unsafe fn receive_all(
    wr: *mut ibv_recv_wr,
    limit: u32,
    mut post: impl FnMut(&RecvRequest<'_>) -> Result<()>,
) -> (Result<()>, *mut ibv_recv_wr) {
    let mut next = wr;
    while !next.is_null() {
        // SAFETY: guaranteed by the caller.
        let wr = unsafe { &*next };
        // SAFETY: as above.
        let list = unsafe { List::of(wr.sg_list, wr.num_sge, limit) };
        let posted = list.and_then(|list| post(&RecvRequest { wr_id: wr.wr_id, sges: list.as_slice() }));
        if posted.is_err() {
            return (posted, next);
        }
        next = wr.next;
    }
    (Ok(()), next)
}

/// Implements `ibv_post_recv`.
///
/// # Safety
/// `qp` is a valid queue pair, `wr` a list of requests, `bad` may be written.
pub(crate) unsafe extern "C" fn post_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
    // SAFETY: guaranteed by the caller.
    let (context, handle) = unsafe { (Context::of((*qp).context), (*qp).handle) };
    let mut at = wr;
    let posted = context.shared.enter().and_then(|mut core| {
        let entry = core.qps.get(handle as usize).ok_or(Errno::INVALID)?;
        if entry.target.is_some() {
            // An XRC target receives only through shared receive queues.
            return Err(Errno::INVALID);
        }
        let (qpn, limit) = (entry.qpn, entry.cap.max_recv_sge);
        // SAFETY: guaranteed by the caller.
        let (posted, stopped) =
            unsafe { receive_all(wr, limit, |request| Ok(core.nic.verbs().post_recv(qpn, request)?)) };
        at = stopped;
        posted
    });
    report(posted, at, bad)
}

/// Implements `ibv_post_srq_recv`.
///
/// # Safety
/// `srq` is a valid shared receive queue, `wr` a list of requests, `bad` may be written.
pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    let (context, handle) = unsafe { (Context::of((*srq).context), (*srq).handle) };
    let mut at = wr;
    let posted = context.shared.enter().and_then(|mut core| {
        let entry = core.srqs.get(handle as usize).ok_or(Errno::INVALID)?;
        let (id, limit) = (entry.id, entry.max_sge);
        // SAFETY: guaranteed by the caller.
        let (posted, stopped) =
            unsafe { receive_all(wr, limit, |request| Ok(core.nic.verbs().post_srq_recv(id, request)?)) };
        at = stopped;
        posted
    });
    report(posted, at, bad)
}
