//! Polling of completions, and requests for completion notification.

use std::ffi::c_int;
use std::ptr;

use rnic_engine::{Completion, CqId};

use crate::abi::*;
use crate::context::{Context, NicGuard};
use crate::convert::work_completion;
use crate::device::time_stamp;
use crate::errno::{Errno, Result};
use crate::object::{self, CqObject};

/// Maximum number of completions that are polled in one batch and stored on the stack meanwhile.
const BATCH: usize = 32;

/// Takes the lock of a completion queue's context and returns the engine's identifier of the queue.
#[inline]
fn enter(cq: &CqObject) -> Result<(NicGuard<'_>, CqId)> {
    // SAFETY: the context of a completion queue stays open while the queue exists.
    let mut core = unsafe { Context::of(cq.c.cq.context) }.shared.enter()?;
    let id = core.cqs.get(cq.c.cq.handle as usize).ok_or(Errno::INVALID)?.id;
    core.flush_posts();
    Ok((core, id))
}

/// Implements `ibv_poll_cq`.
///
/// # Safety
/// `cq` is a valid completion queue, `into` points to space for `count` completions.
pub(crate) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, count: c_int, into: *mut ibv_wc) -> c_int {
    // SAFETY: guaranteed by the caller.
    let Ok((mut core, id)) = enter(unsafe { object::cq(cq) }) else { return -1 };
    let wanted = usize::try_from(count).unwrap_or(0);
    let mut written = 0;
    let mut has_progressed = false;
    while written < wanted {
        let mut batch = [Completion::BLANK; BATCH];
        let batch_len = (wanted - written).min(BATCH);
        let polled = core.nic.verbs().poll_cq(id, &mut batch[..batch_len]);
        for (index, completion) in batch[..polled].iter().enumerate() {
            // SAFETY: `taken + index` is below `count`.
            unsafe { ptr::write(into.add(written + index), work_completion(completion)) };
        }
        written += polled;
        if polled == 0 {
            // When the queue is empty, drive the NIC once for received packets and poll again.
            if written > 0 || has_progressed {
                break;
            }
            core.nic.progress();
            has_progressed = true;
        } else if polled < batch_len {
            break;
        }
    }
    if written == 0 && is_dead(&core, id) {
        return -1;
    }
    written as c_int
}

/// Returns whether the queue has overflowed; no further completions will be added to it.
fn is_dead(core: &NicGuard<'_>, id: CqId) -> bool {
    core.nic.cq_level(id).is_some_and(|(_, overrun)| overrun)
}

/// Implements `ibv_req_notify_cq`.
///
/// # Safety
/// `cq` is a valid completion queue.
pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: guaranteed by the caller.
    match enter(unsafe { object::cq(cq) }) {
        Ok((mut core, id)) => {
            core.nic.verbs().request_notify(id, solicited_only != 0);
            // A program that requests notification is about to sleep.
            core.hand_over();
            0
        }
        Err(errno) => errno.0,
    }
}

/// Polls the next completion for the `read_*` functions.
fn poll_one(object: &CqObject, may_look: bool) -> c_int {
    let Ok((mut core, id)) = enter(object) else { return libc::EIO };
    let mut completion = core.nic.verbs().poll_cq_one(id);
    if completion.is_none() && may_look {
        core.nic.progress();
        completion = core.nic.verbs().poll_cq_one(id);
    }
    let Some(completion) = completion else { return libc::ENOENT };
    drop(core);
    let wc = work_completion(&completion);
    // SAFETY: the interface of extended completion queues requires that only one thread polls at a time, which is this
    // one.
    unsafe {
        *object.current.get() = wc;
        let c = (&raw const object.c).cast_mut();
        (*c).wr_id = wc.wr_id;
        (*c).status = wc.status;
    }
    0
}

// SAFETY: C calls it through the pointer in the structure, with the arguments that the header specifies.
unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: C passes the arguments that the header specifies.
    if !attr.is_null() && unsafe { (*attr).comp_mask } != 0 {
        return libc::EINVAL;
    }
    // SAFETY: as above.
    poll_one(unsafe { object::cq_ex(cq) }, true)
}

// SAFETY: C calls it through the pointer in the structure, with the arguments that the header specifies.
unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: C passes the arguments that the header specifies.
    poll_one(unsafe { object::cq_ex(cq) }, false)
}

// SAFETY: C calls it through the pointer in the structure, with the arguments that the header specifies.
unsafe extern "C" fn end_poll(_cq: *mut ibv_cq_ex) {}

/// Defines functions that return one field of the current completion.
macro_rules! readers {
    ($($name:ident: $kind:ty = |$wc:ident| $value:expr;)*) => { $(
        // SAFETY: C calls it through the pointer in the structure, with the arguments that the header specifies.
        unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $kind {
            // SAFETY: C calls it between `start_poll` and `end_poll`, in the polling thread.
            let $wc = unsafe { &*object::cq_ex(cq).current.get() };
            $value
        }
    )* };
}

readers! {
    read_opcode: u32 = |wc| wc.opcode;
    read_vendor_err: u32 = |wc| wc.vendor_err;
    read_byte_len: u32 = |wc| wc.byte_len;
    read_imm_data: u32 = |wc| wc.imm_data;
    read_qp_num: u32 = |wc| wc.qp_num;
    read_src_qp: u32 = |wc| wc.src_qp;
    read_wc_flags: u32 = |wc| wc.wc_flags;
    read_slid: u32 = |wc| u32::from(wc.slid);
    read_sl: u8 = |wc| wc.sl;
    read_dlid_path_bits: u8 = |wc| wc.dlid_path_bits;
}

// SAFETY: C calls it through the pointer in the structure, with the arguments that the header specifies.
unsafe extern "C" fn read_completion_ts(_cq: *mut ibv_cq_ex) -> u64 {
    time_stamp()
}

// SAFETY: C calls it through the pointer in the structure, with the arguments that the header specifies.
unsafe extern "C" fn read_completion_wallclock_ns(_cq: *mut ibv_cq_ex) -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// Fields that the functions set by [`fill`] can return.
pub(crate) const SUPPORTED_WC_FLAGS: u64 = IBV_WC_EX_WITH_BYTE_LEN
    | IBV_WC_EX_WITH_IMM
    | IBV_WC_EX_WITH_QP_NUM
    | IBV_WC_EX_WITH_SRC_QP
    | IBV_WC_EX_WITH_SLID
    | IBV_WC_EX_WITH_SL
    | IBV_WC_EX_WITH_DLID_PATH_BITS
    | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
    | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

/// Sets the function pointers of an extended completion queue.
pub(crate) fn fill(c: &mut ibv_cq_ex) {
    c.start_poll = Some(start_poll);
    c.next_poll = Some(next_poll);
    c.end_poll = Some(end_poll);
    c.read_opcode = Some(read_opcode);
    c.read_vendor_err = Some(read_vendor_err);
    c.read_byte_len = Some(read_byte_len);
    c.read_imm_data = Some(read_imm_data);
    c.read_qp_num = Some(read_qp_num);
    c.read_src_qp = Some(read_src_qp);
    c.read_wc_flags = Some(read_wc_flags);
    c.read_slid = Some(read_slid);
    c.read_sl = Some(read_sl);
    c.read_dlid_path_bits = Some(read_dlid_path_bits);
    c.read_completion_ts = Some(read_completion_ts);
    c.read_completion_wallclock_ns = Some(read_completion_wallclock_ns);
}
