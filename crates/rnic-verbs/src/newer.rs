//! Calls of releases after rdma-core 44: buffers from the library, one call for every registration, the speed
//! of a port. What belongs to devices of hardware is refused with `EOPNOTSUPP`: hints for a processor's cache (DMA
//! handles), counters of completions, buffers that other devices reach.

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::abi::*;
use crate::device::{PORT, SPEED};
use crate::errno::{Errno, Result, minus_one, number, pointer};
use crate::mr;

/// What `struct ibv_buf` leads to: a buffer of `ibv_alloc_buf`.
struct Buf {
    pd: *mut ibv_pd,
    addr: *mut c_void,
    size: usize,
}

/// `ibv_alloc_buf`: memory that begins on a page.
///
/// # Safety
/// `pd` is a living protection domain, `into` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_alloc_buf(pd: *mut ibv_pd, size: usize, into: *mut *mut ibv_buf) -> *mut c_void {
    let mut addr = ptr::null_mut();
    // SAFETY: the answer is put into a variable; a page is a power of two.
    let failure = unsafe { libc::posix_memalign(&raw mut addr, mr::PAGE, size) };
    if failure != 0 {
        return pointer(Err(Errno(failure)));
    }
    // SAFETY: the caller's promise.
    unsafe { *into = Box::into_raw(Box::new(Buf { pd, addr, size })).cast() };
    addr
}

/// `ibv_free_buf`.
///
/// # Safety
/// `buf` is from `ibv_alloc_buf`, no region lies in it, and it is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_free_buf(buf: *mut ibv_buf) {
    // SAFETY: `ibv_alloc_buf` made a box of it, with memory of the C library, and the caller gives both up.
    unsafe {
        let buf = Box::from_raw(buf.cast::<Buf>());
        libc::free(buf.addr);
    }
}

/// `ibv_reg_buf_mr`.
///
/// # Safety
/// `pd` is a living protection domain, `buf` from `ibv_alloc_buf`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_buf_mr(
    pd: *mut ibv_pd,
    buf: *mut ibv_buf,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: numbers and null pointers, all of which may be zero.
    let mut attr: ibv_mr_init_attr = unsafe { std::mem::zeroed() };
    attr.comp_mask = IBV_REG_MR_MASK_BUF | IBV_REG_MR_MASK_ADDR;
    (attr.length, attr.access, attr.addr, attr.buf) = (length, access, addr, buf);
    // SAFETY: the caller's promise.
    unsafe { ibv_reg_mr_ex(pd, &raw const attr) }
}

/// `ibv_reg_mr_ex`.
///
/// # Safety
/// `pd` is a living protection domain, `attr` may be read, and a buffer that it names is from `ibv_alloc_buf`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr_ex(pd: *mut ibv_pd, attr: *const ibv_mr_init_attr) -> *mut ibv_mr {
    // SAFETY: the caller's promise.
    match unsafe { memory_of(pd, &*attr) } {
        Ok((addr, length, iova, access)) => mr::ibv_reg_mr_iova2(pd, addr, length, iova, access),
        Err(errno) => pointer(Err(errno)),
    }
}

/// The memory that `attr` means: address, length, the address that it is named by, rights.
///
/// # Safety
/// A buffer that it names is from `ibv_alloc_buf`.
unsafe fn memory_of(pd: *mut ibv_pd, attr: &ibv_mr_init_attr) -> Result<(*mut c_void, usize, u64, u32)> {
    let has = |mask: u64| attr.comp_mask & mask != 0;
    let (of_file, known) = (IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET, (IBV_REG_MR_MASK_BUF << 1) - 1);
    if attr.comp_mask & !known != 0 || has(IBV_REG_MR_MASK_DMAH) {
        return Err(Errno::UNSUPPORTED);
    }
    if has(IBV_REG_MR_MASK_FD) && !has(IBV_REG_MR_MASK_BUF) {
        let is_whole = has(IBV_REG_MR_MASK_FD_OFFSET) && has(IBV_REG_MR_MASK_IOVA) && !has(IBV_REG_MR_MASK_ADDR);
        // As `ibv_reg_dmabuf_mr`: no other device's memory can be reached.
        return Err(if is_whole { Errno::UNSUPPORTED } else { Errno::INVALID });
    }
    if !has(IBV_REG_MR_MASK_ADDR) || has(of_file) {
        return Err(Errno::INVALID);
    }
    if has(IBV_REG_MR_MASK_BUF) {
        if attr.buf.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: the caller's promise.
        let buf = unsafe { &*attr.buf.cast::<Buf>() };
        let offset = (attr.addr as usize).checked_sub(buf.addr as usize);
        let end = offset.and_then(|offset| offset.checked_add(attr.length));
        if buf.pd != pd || end.is_none_or(|end| end > buf.size) {
            return Err(Errno::INVALID);
        }
    }
    let iova = if has(IBV_REG_MR_MASK_IOVA) { attr.iova } else { attr.addr as u64 };
    Ok((attr.addr, attr.length, iova, attr.access as u32))
}

/// `ibv_export_buf_dmabuf_fd`: no buffer has such a file, as with a device that makes none.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_export_buf_dmabuf_fd(_buf: *mut ibv_buf) -> c_int {
    minus_one(Err(Errno(libc::ENODATA)))
}

/// `ibv_query_port_speed`: in units of 100 Mbit/s.
///
/// # Safety
/// `speed` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_port_speed(_context: *mut ibv_context, port: u32, speed: *mut u64) -> c_int {
    if port != u32::from(PORT) {
        return number(Err(Errno::INVALID));
    }
    // SAFETY: the caller's promise.
    unsafe { *speed = SPEED };
    0
}

/// `ibv_dm_export_dmabuf_fd`: there is no device memory.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_dm_export_dmabuf_fd(_memory: *mut c_void) -> c_int {
    minus_one(Err(Errno::UNSUPPORTED))
}

/// `ibv_alloc_dmah`: no bus carries hints for a processor's cache here.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_alloc_dmah(_context: *mut ibv_context, _attr: *mut c_void) -> *mut c_void {
    pointer(Err(Errno::UNSUPPORTED))
}

/// `ibv_dealloc_dmah`: as `ibv_alloc_dmah`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_dealloc_dmah(_handle: *mut c_void) -> c_int {
    number(Err(Errno::UNSUPPORTED))
}

/// `_ibv_query_comp_cntr_caps`: there are no completion counters.
///
/// # Safety
/// `caps` leads to `len` bytes that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ibv_query_comp_cntr_caps(_context: *mut ibv_context, caps: *mut c_void, len: usize) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { ptr::write_bytes(caps.cast::<u8>(), 0, len) };
    number(Err(Errno::UNSUPPORTED))
}

/// `ibv_create_comp_cntr`: as `_ibv_query_comp_cntr_caps`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_create_comp_cntr(_context: *mut ibv_context, _attr: *mut c_void) -> *mut c_void {
    pointer(Err(Errno::UNSUPPORTED))
}

/// Calls on completion counters, none of which can be had.
macro_rules! counters {
    ($($name:ident($($argument:ty),*);)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "`: there are no completion counters.")]
            #[unsafe(no_mangle)]
            pub extern "C" fn $name($(_: $argument),*) -> c_int {
                number(Err(Errno::UNSUPPORTED))
            }
        )*
    };
}

counters! {
    ibv_destroy_comp_cntr(*mut c_void);
    ibv_set_comp_cntr(*mut c_void, u64);
    ibv_set_err_comp_cntr(*mut c_void, u64);
    ibv_inc_comp_cntr(*mut c_void, u64);
    ibv_inc_err_comp_cntr(*mut c_void, u64);
    ibv_read_comp_cntr(*mut c_void, *mut u64);
    ibv_read_err_comp_cntr(*mut c_void, *mut u64);
    ibv_qp_attach_comp_cntr(*mut ibv_qp, *mut c_void, *mut c_void);
}
