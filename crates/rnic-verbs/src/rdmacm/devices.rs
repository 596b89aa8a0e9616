//! The device context that the connection manager uses.

use std::ffi::c_int;
use std::ptr;
use std::sync::{Mutex, OnceLock};

use rnic_host::Settings;

use super::calls;
use super::service::Cm;
use crate::abi::*;
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::event::lock;
use crate::fork::Process;

/// The open context and protection domain, and the process that opened them.
struct Opened {
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    process: Process,
}

// SAFETY: contexts and protection domains may be used by all threads.
unsafe impl Send for Opened {}

static OPENED: Mutex<Option<Opened>> = Mutex::new(None);

/// Returns the device's context and a protection domain for programs that provide none. They stay open until the
/// process exits, because identifiers of many threads share them.
pub(super) fn open() -> Result<(*mut ibv_context, *mut ibv_pd)> {
    crate::fork::watch();
    let mut opened = lock(&OPENED);
    if let Some(known) = opened.as_ref().filter(|known| known.process.is_current()) {
        return Ok((known.context, known.pd));
    }
    let context = calls::open_device()?;
    let pd = calls::alloc_pd(context)?;
    *opened = Some(Opened { context, pd, process: Process::current() });
    Ok((context, pd))
}

/// Prepares the connection manager for the expected type of peers: with real RoCEv2 peers, its messages are sent
/// through the device, which is opened for that.
pub(super) fn prepare_peers() -> Result<()> {
    if !has_real_roce_peers() {
        return Ok(());
    }
    let (context, _) = open()?;
    // SAFETY: the context stays open until the process exits.
    let shared = &unsafe { Context::of(context) }.shared;
    let gsi = shared.inspect(|core| core.nic.gsi_port().cloned()).ok_or(Errno(libc::ENODEV))?;
    Cm::lock()?.manage(&gsi)
}

/// Returns whether peers are adapters of other vendors.
pub(super) fn has_real_roce_peers() -> bool {
    static HAS_REAL_PEERS: OnceLock<bool> = OnceLock::new();
    let are_in_environment = || Settings::from_environment().is_ok_and(|settings| settings.real_roce_peers);
    *HAS_REAL_PEERS
        .get_or_init(|| crate::device::settings().map_or_else(are_in_environment, |settings| settings.real_roce_peers))
}

/// Implements `rdma_get_devices`.
///
/// # Safety
/// `count` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_devices(count: *mut c_int) -> *mut *mut ibv_context {
    let opened = open();
    if !count.is_null() {
        // SAFETY: guaranteed by the caller.
        unsafe { *count = c_int::from(opened.is_ok()) };
    }
    match opened {
        Ok((context, _)) => crate::device::list_of(context),
        Err(errno) => {
            errno.set();
            ptr::null_mut()
        }
    }
}

/// Implements `rdma_free_devices`.
///
/// # Safety
/// `list` is null or from `rdma_get_devices`, and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    // SAFETY: the pointer was allocated by the C library's allocator, or is null.
    unsafe { libc::free(list.cast()) };
}

/// Returns the maximum numbers of outstanding Reads and atomics of a queue pair: as responder (`max_qp_rd_atom`) and as
/// initiator (`max_qp_init_rd_atom`).
pub(super) fn read_limits() -> Result<(u8, u8)> {
    let (context, _) = open()?;
    let attributes = calls::query_device(context)?;
    let limit = |value: c_int| u8::try_from(value.clamp(0, c_int::from(u8::MAX - 1))).unwrap_or(1);
    Ok((limit(attributes.max_qp_rd_atom), limit(attributes.max_qp_init_rd_atom)))
}

/// Returns the index of an address in the port's GID table.
pub(super) fn index_of(gid: ibv_gid) -> Result<u8> {
    let (context, _) = open()?;
    let len = calls::query_port(context)?.gid_tbl_len;
    let has_gid = |index: &c_int| calls::query_gid(context, *index).is_ok_and(|known| known == gid);
    let index = (0..len).find(has_gid).ok_or(Errno(libc::ENODEV))?;
    u8::try_from(index).map_err(|_| Errno(libc::ENODEV))
}
