//! The functions that `ibv_wr_*` call: requests are built call by call and posted together.

use std::ffi::{c_int, c_void};

use rnic_engine::{RemoteMemory, SendOp, SendRequest};

use crate::abi::*;
use crate::context::Context;
use crate::core::Core;
use crate::errno::{Errno, Result};
use crate::mw;
use crate::object::{self, QpObject};
use crate::post;
use crate::request::{self, Batch, Data, List, Request, Target};

/// Starts a request.
///
/// # Safety
/// C calls it between `wr_start` and `wr_complete`.
unsafe fn begin(qp: *mut ibv_qp_ex, op: SendOp) {
    // SAFETY: guaranteed by the caller; the identifier and the flags are fields that the program sets before the call.
    let (object, wr_id, flags) = unsafe { (object::qp_ex(qp), (*qp).wr_id, (*qp).wr_flags) };
    // SAFETY: guaranteed by the caller.
    unsafe { object.builder.batch() }.begin(wr_id, op, request::flags(flags));
}

// SAFETY: C calls it through the pointer in the structure, with the arguments that the header specifies.
unsafe extern "C" fn wr_atomic_cmp_swp(qp: *mut ibv_qp_ex, rkey: u32, addr: u64, compare: u64, swap: u64) {
    // SAFETY: C calls it between `wr_start` and `wr_complete`.
    unsafe { begin(qp, SendOp::CompareSwap { remote: RemoteMemory { addr, rkey }, compare, swap }) };
}

// SAFETY: C calls it through the pointer in the structure, with the arguments that the header specifies.
unsafe extern "C" fn wr_atomic_fetch_add(qp: *mut ibv_qp_ex, rkey: u32, addr: u64, add: u64) {
    // SAFETY: as above.
    unsafe { begin(qp, SendOp::FetchAdd { remote: RemoteMemory { addr, rkey }, add }) };
}

// SAFETY: C calls it through the pointer in the structure, with the arguments that the header specifies.
unsafe extern "C" fn wr_local_inv(qp: *mut ibv_qp_ex, rkey: u32) {
    // SAFETY: as above.
    unsafe { begin(qp, SendOp::LocalInvalidate { rkey }) };
}

// SAFETY: C calls it through the pointer in the structure, with the arguments that the header specifies.
unsafe extern "C" fn wr_bind_mw(qp: *mut ibv_qp_ex, window: *mut ibv_mw, rkey: u32, info: *const ibv_mw_bind_info) {
    // SAFETY: C passes the arguments that the header specifies.
    match unsafe { mw::bind_operation(window, rkey, &*info) } {
        // SAFETY: as above.
        Ok(op) => unsafe { begin(qp, op) },
        // SAFETY: as above.
        Err(errno) => unsafe { object::qp_ex(qp).builder.batch() }.fail(errno),
    }
}

// SAFETY: C calls it through the pointer in the structure, with the arguments that the header specifies.
unsafe extern "C" fn wr_atomic_write(qp: *mut ibv_qp_ex, rkey: u32, addr: u64, value: *const c_void) {
    // SAFETY: C passes a pointer to eight bytes.
    let value = unsafe { std::ptr::read_unaligned(value.cast::<[u8; 8]>()) };
    // SAFETY: as above.
    unsafe { begin(qp, SendOp::AtomicWrite { remote: RemoteMemory { addr, rkey }, value }) };
}

// SAFETY: C calls it through the pointer in the structure, with the arguments that the header specifies.
unsafe extern "C" fn wr_flush(qp: *mut ibv_qp_ex, rkey: u32, addr: u64, len: usize, placement: u8, selectivity: u8) {
    match u32::try_from(len) {
        // SAFETY: as above.
        Ok(len) => unsafe {
            begin(qp, SendOp::Flush { remote: RemoteMemory { addr, rkey }, len, placement, selectivity });
        },
        // SAFETY: as above.
        Err(_) => unsafe { object::qp_ex(qp).builder.batch() }.fail(Errno::INVALID),
    }
}

// SAFETY: C calls it through the pointer in the structure, with the arguments that the header specifies.
unsafe extern "C" fn wr_set_xrc_srqn(qp: *mut ibv_qp_ex, srqn: u32) {
    // SAFETY: as above.
    unsafe { object::qp_ex(qp).builder.batch() }.set_srqn(srqn);
}

// SAFETY: C calls it through the pointer in the structure, with the arguments that the header specifies.
unsafe extern "C" fn wr_rdma_read(qp: *mut ibv_qp_ex, rkey: u32, addr: u64) {
    // SAFETY: as above.
    unsafe { begin(qp, SendOp::Read { remote: RemoteMemory { addr, rkey } }) };
}

// SAFETY: C calls it through the pointer in the structure, with the arguments that the header specifies.
unsafe extern "C" fn wr_rdma_write(qp: *mut ibv_qp_ex, rkey: u32, addr: u64) {
    // SAFETY: as above.
    unsafe { begin(qp, SendOp::Write { remote: RemoteMemory { addr, rkey }, immediate: None }) };
}

// SAFETY: C calls it through the pointer in the structure, with the arguments that the header specifies.
unsafe extern "C" fn wr_rdma_write_imm(qp: *mut ibv_qp_ex, rkey: u32, addr: u64, immediate: u32) {
    let immediate = Some(u32::from_be(immediate));
    // SAFETY: as above.
    unsafe { begin(qp, SendOp::Write { remote: RemoteMemory { addr, rkey }, immediate }) };
}

// SAFETY: C calls it through the pointer in the structure, with the arguments that the header specifies.
unsafe extern "C" fn wr_send(qp: *mut ibv_qp_ex) {
    // SAFETY: as above.
    unsafe { begin(qp, SendOp::Send { immediate: None }) };
}

// SAFETY: C calls it through the pointer in the structure, with the arguments that the header specifies.
unsafe extern "C" fn wr_send_imm(qp: *mut ibv_qp_ex, immediate: u32) {
    // SAFETY: as above.
    unsafe { begin(qp, SendOp::Send { immediate: Some(u32::from_be(immediate)) }) };
}

// SAFETY: C calls it through the pointer in the structure, with the arguments that the header specifies.
unsafe extern "C" fn wr_send_inv(qp: *mut ibv_qp_ex, rkey: u32) {
    // SAFETY: as above.
    unsafe { begin(qp, SendOp::SendInvalidate { rkey }) };
}

// SAFETY: C calls it through the pointer in the structure, with the arguments that the header specifies.
unsafe extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    // SAFETY: as above.
    unsafe { wr_set_sge_list(qp, 1, &ibv_sge { addr, length, lkey }) };
}

// SAFETY: C calls it through the pointer in the structure, with the arguments that the header specifies.
unsafe extern "C" fn wr_set_sge_list(qp: *mut ibv_qp_ex, count: usize, first: *const ibv_sge) {
    let mut list = List::EMPTY;
    let mut pushed = Ok(());
    for index in 0..count {
        // SAFETY: C passes an array with this number of entries.
        pushed = pushed.and_then(|()| list.push(unsafe { &*first.add(index) }));
    }
    // SAFETY: C calls it between `wr_start` and `wr_complete`.
    unsafe { object::qp_ex(qp).builder.batch() }.set_data(pushed.map(|()| Data::List(Box::new(list))));
}

// SAFETY: C calls it through the pointer in the structure, with the arguments that the header specifies.
unsafe extern "C" fn wr_set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    // SAFETY: as above.
    unsafe { wr_set_inline_data_list(qp, 1, &ibv_data_buf { addr, length }) };
}

// SAFETY: C calls it through the pointer in the structure, with the arguments that the header specifies.
unsafe extern "C" fn wr_set_inline_data_list(qp: *mut ibv_qp_ex, count: usize, first: *const ibv_data_buf) {
    // SAFETY: C passes a valid queue pair.
    let max_bytes = unsafe { object::qp_ex(qp) }.builder.inline_max();
    let mut bytes = Vec::new();
    let mut data = Ok(());
    for index in 0..count {
        // SAFETY: C passes an array with this number of entries.
        let buffer = unsafe { &*first.add(index) };
        // Checked before any data is read, because the address of a refused buffer may be invalid.
        if buffer.length > max_bytes - bytes.len() {
            data = Err(Errno::INVALID);
            break;
        }
        if buffer.length > 0 {
            // SAFETY: the entry refers to readable memory of its length.
            bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(buffer.addr.cast(), buffer.length) });
        }
    }
    // SAFETY: C calls it between `wr_start` and `wr_complete`.
    unsafe { object::qp_ex(qp).builder.batch() }.set_data(data.map(|()| Data::Inline(bytes)));
}

// SAFETY: C calls it through the pointer in the structure, with the arguments that the header specifies.
unsafe extern "C" fn wr_set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, remote_qpn: u32, remote_qkey: u32) {
    // SAFETY: as above; the address handle was created by the program.
    let (batch, handle) = unsafe {
        let handle = (!ah.is_null()).then(|| (*ah).handle);
        (object::qp_ex(qp).builder.batch(), handle)
    };
    batch.set_target(handle.map(|handle| Target { handle, qpn: remote_qpn, qkey: remote_qkey }));
}

// SAFETY: C calls it through the pointer in the structure, with the arguments that the header specifies.
unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    // SAFETY: C passes a valid queue pair.
    let builder = unsafe { &object::qp_ex(qp).builder };
    builder.acquire();
    // SAFETY: this thread holds the lock.
    unsafe { builder.batch() }.clear();
}

// SAFETY: C calls it through the pointer in the structure, with the arguments that the header specifies.
unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    // SAFETY: C passes a valid queue pair.
    unsafe { object::qp_ex(qp) }.builder.release();
}

// SAFETY: C calls it through the pointer in the structure, with the arguments that the header specifies.
unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: C passes a valid queue pair.
    let object = unsafe { object::qp_ex(qp) };
    // SAFETY: C calls it after `wr_start`, which took the lock.
    let posted = post_all(object, unsafe { object.builder.batch() });
    object.builder.release();
    posted.err().map_or(0, |errno| errno.0)
}

/// Posts all requests or none: everything that can fail is checked before any request is queued.
fn post_all(object: &QpObject, batch: &Batch) -> Result<()> {
    let requests = batch.requests()?;
    // SAFETY: the context of a queue pair stays open while the queue pair exists.
    let mut core = unsafe { Context::of(object.c.qp_base.context) }.shared.enter()?;
    let handle = object.c.qp_base.handle;
    let qp = core.qps.get(handle as usize).ok_or(Errno::INVALID)?;
    let free_entries = core.nic.send_queue_space(qp.qpn).ok_or(Errno::INVALID)?;
    if requests.len() > free_entries as usize {
        return Err(Errno::NO_MEMORY);
    }
    if requests.iter().any(|request| matches!(&request.data, Data::Inline(bytes) if !bytes.is_empty())) {
        post::prepare_inline(&mut core, handle)?;
    }
    requests.iter().try_for_each(|request| check_one(&core, handle, request))?;
    let posted = requests.iter().try_for_each(|request| post_one(&mut core, handle, request));
    core.ring_doorbell();
    posted
}

/// Checks that [`post_one`] will be able to post `request`, apart from the queue space that earlier requests of the
/// batch occupy. Changes no state.
fn check_one(core: &Core, handle: u32, request: &Request) -> Result<()> {
    let qp = core.qps.get(handle as usize).ok_or(Errno::INVALID)?;
    let inline_list;
    let list = match &request.data {
        Data::List(list) => list,
        Data::Inline(bytes) => {
            post::check_inline(core, handle, &request.op)?;
            let mut list = List::EMPTY;
            // The address of the inline data does not matter to the check.
            list.push(&ibv_sge { addr: 0, length: bytes.len() as u32, lkey: 0 })?;
            inline_list = list;
            &inline_list
        }
    };
    let Request { wr_id, op, flags, .. } = *request;
    let op = post::with_destination(core, handle, op, request.to)?;
    Ok(core.nic.check_send(qp.qpn, &SendRequest { wr_id, op, sges: list.as_slice(), flags })?)
}

fn post_one(core: &mut Core, handle: u32, request: &Request) -> Result<()> {
    let inline_list;
    let list = match &request.data {
        Data::List(list) => list,
        Data::Inline(bytes) => {
            post::check_inline(core, handle, &request.op)?;
            // SAFETY: the bytes are in a vector owned by this library.
            inline_list = unsafe { post::copy_inline(core, handle, &[(bytes.as_ptr() as u64, bytes.len())]) }?;
            &inline_list
        }
    };
    let Request { wr_id, op, flags, srqn, .. } = *request;
    let op = post::with_destination(core, handle, op, request.to)?;
    core.post_send(handle, &SendRequest { wr_id, op, sges: list.as_slice(), flags }, srqn)
}

const DATAGRAM: u64 = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
const UNRELIABLE: u64 = DATAGRAM
    | IBV_QP_EX_WITH_RDMA_WRITE
    | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | IBV_QP_EX_WITH_SEND_WITH_INV
    | IBV_QP_EX_WITH_BIND_MW
    | IBV_QP_EX_WITH_LOCAL_INV;
const RELIABLE: u64 =
    UNRELIABLE | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

/// Returns whether a queue pair of this type supports all of `operations`.
pub(crate) fn supports(qp_type: u32, operations: u64) -> bool {
    let supported = match qp_type {
        IBV_QPT_RC => RELIABLE | IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_FLUSH,
        IBV_QPT_XRC_SEND => RELIABLE,
        IBV_QPT_UC => UNRELIABLE,
        IBV_QPT_UD => DATAGRAM,
        _ => 0,
    };
    operations & !supported == 0
}

/// Sets the function pointers for the requested operations.
pub(crate) fn fill(c: &mut ibv_qp_ex, operations: u64) {
    let has = |operation: u64| operations & operation != 0;
    c.wr_rdma_write = has(IBV_QP_EX_WITH_RDMA_WRITE).then_some(wr_rdma_write as _);
    c.wr_rdma_write_imm = has(IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM).then_some(wr_rdma_write_imm as _);
    c.wr_send = has(IBV_QP_EX_WITH_SEND).then_some(wr_send as _);
    c.wr_send_imm = has(IBV_QP_EX_WITH_SEND_WITH_IMM).then_some(wr_send_imm as _);
    c.wr_send_inv = has(IBV_QP_EX_WITH_SEND_WITH_INV).then_some(wr_send_inv as _);
    c.wr_rdma_read = has(IBV_QP_EX_WITH_RDMA_READ).then_some(wr_rdma_read as _);
    c.wr_atomic_cmp_swp = has(IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP).then_some(wr_atomic_cmp_swp as _);
    c.wr_atomic_fetch_add = has(IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD).then_some(wr_atomic_fetch_add as _);
    c.wr_atomic_write = has(IBV_QP_EX_WITH_ATOMIC_WRITE).then_some(wr_atomic_write as _);
    c.wr_flush = has(IBV_QP_EX_WITH_FLUSH).then_some(wr_flush as _);
    c.wr_set_xrc_srqn = Some(wr_set_xrc_srqn);
    c.wr_bind_mw = has(IBV_QP_EX_WITH_BIND_MW).then_some(wr_bind_mw as _);
    c.wr_local_inv = has(IBV_QP_EX_WITH_LOCAL_INV).then_some(wr_local_inv as _);
    c.wr_set_ud_addr = Some(wr_set_ud_addr);
    c.wr_set_inline_data = Some(wr_set_inline_data);
    c.wr_set_inline_data_list = Some(wr_set_inline_data_list);
    c.wr_set_sge = Some(wr_set_sge);
    c.wr_set_sge_list = Some(wr_set_sge_list);
    c.wr_start = Some(wr_start);
    c.wr_complete = Some(wr_complete);
    c.wr_abort = Some(wr_abort);
}
