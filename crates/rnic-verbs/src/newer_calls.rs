//! Calls of releases after rdma-core 44: buffers allocated by the library, a single call for all types of
//! registration, and the speed of a port. Calls that only apply to hardware devices return `EOPNOTSUPP`: processor
//! cache hints (DMA handles), completion counters, and buffers that other devices access.

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::abi::*;
use crate::device::{PORT, SPEED};
use crate::errno::{Errno, Result, minus_one, number, pointer};
use crate::mr;

/// The library's structure for `struct ibv_buf`: a buffer allocated by `ibv_alloc_buf`.
struct Buf {
    pd: *mut ibv_pd,
    addr: *mut c_void,
    size: usize,
}

/// Implements `ibv_alloc_buf`: allocates page-aligned memory.
///
/// # Safety
/// `pd` is a valid protection domain, `into` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_alloc_buf(pd: *mut ibv_pd, size: usize, into: *mut *mut ibv_buf) -> *mut c_void {
    let mut addr = ptr::null_mut();
    // SAFETY: the result is stored in a local variable; the page size is a power of two.
    let failure = unsafe { libc::posix_memalign(&raw mut addr, mr::PAGE, size) };
    if failure != 0 {
        return pointer(Err(Errno(failure)));
    }
    // SAFETY: guaranteed by the caller.
    unsafe { *into = Box::into_raw(Box::new(Buf { pd, addr, size })).cast() };
    addr
}

/// Implements `ibv_free_buf`.
///
/// # Safety
/// `buf` is from `ibv_alloc_buf`, no region is registered in it, and it is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_free_buf(buf: *mut ibv_buf) {
    // SAFETY: `ibv_alloc_buf` allocated it as a `Box`, with memory of the C library, and the caller gives up ownership
    // of both.
    unsafe {
        let buf = Box::from_raw(buf.cast::<Buf>());
        libc::free(buf.addr);
    }
}

/// Implements `ibv_reg_buf_mr`.
///
/// # Safety
/// `pd` is a valid protection domain, `buf` from `ibv_alloc_buf`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_buf_mr(
    pd: *mut ibv_pd,
    buf: *mut ibv_buf,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: all fields are numbers and pointers, which may be zero.
    let mut attr: ibv_mr_init_attr = unsafe { std::mem::zeroed() };
    attr.comp_mask = IBV_REG_MR_MASK_BUF | IBV_REG_MR_MASK_ADDR;
    (attr.length, attr.access, attr.addr, attr.buf) = (length, access, addr, buf);
    // SAFETY: guaranteed by the caller.
    unsafe { ibv_reg_mr_ex(pd, &raw const attr) }
}

/// Implements `ibv_reg_mr_ex`.
///
/// # Safety
/// `pd` is a valid protection domain, `attr` may be read, and a buffer in it is from `ibv_alloc_buf`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr_ex(pd: *mut ibv_pd, attr: *const ibv_mr_init_attr) -> *mut ibv_mr {
    // SAFETY: guaranteed by the caller.
    match unsafe { memory_of(pd, &*attr) } {
        Ok((addr, length, iova, access)) => mr::ibv_reg_mr_iova2(pd, addr, length, iova, access),
        Err(errno) => pointer(Err(errno)),
    }
}

/// Returns the memory that `attr` describes: address, length, the address by which requests refer to it (IOVA), and
/// rights.
///
/// # Safety
/// A buffer in `attr` is from `ibv_alloc_buf`.
unsafe fn memory_of(pd: *mut ibv_pd, attr: &ibv_mr_init_attr) -> Result<(*mut c_void, usize, u64, u32)> {
    let has = |mask: u64| attr.comp_mask & mask != 0;
    let (file_mask, known) = (IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET, (IBV_REG_MR_MASK_BUF << 1) - 1);
    if attr.comp_mask & !known != 0 || has(IBV_REG_MR_MASK_DMAH) {
        return Err(Errno::UNSUPPORTED);
    }
    if has(IBV_REG_MR_MASK_FD) && !has(IBV_REG_MR_MASK_BUF) {
        let is_whole = has(IBV_REG_MR_MASK_FD_OFFSET) && has(IBV_REG_MR_MASK_IOVA) && !has(IBV_REG_MR_MASK_ADDR);
        // As in `ibv_reg_dmabuf_mr`: memory of other devices cannot be accessed.
        return Err(if is_whole { Errno::UNSUPPORTED } else { Errno::INVALID });
    }
    if !has(IBV_REG_MR_MASK_ADDR) || has(file_mask) {
        return Err(Errno::INVALID);
    }
    if has(IBV_REG_MR_MASK_BUF) {
        if attr.buf.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: guaranteed by the caller.
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

/// Implements `ibv_export_buf_dmabuf_fd`: no buffer has a DMA-BUF file, as with a device that does not support them.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_export_buf_dmabuf_fd(_buf: *mut ibv_buf) -> c_int {
    minus_one(Err(Errno(libc::ENODATA)))
}

/// Implements `ibv_query_port_speed`; the speed is in units of 100 Mbit/s.
///
/// # Safety
/// `speed` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_port_speed(_context: *mut ibv_context, port: u32, speed: *mut u64) -> c_int {
    if port != u32::from(PORT) {
        return number(Err(Errno::INVALID));
    }
    // SAFETY: guaranteed by the caller.
    unsafe { *speed = SPEED };
    0
}

/// Implements `ibv_dm_export_dmabuf_fd`: not supported, because there is no device memory.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_dm_export_dmabuf_fd(_memory: *mut c_void) -> c_int {
    minus_one(Err(Errno::UNSUPPORTED))
}

/// Implements `ibv_alloc_dmah`: not supported, because there is no bus that carries processor cache hints.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_alloc_dmah(_context: *mut ibv_context, _attr: *mut c_void) -> *mut c_void {
    pointer(Err(Errno::UNSUPPORTED))
}

/// Implements `ibv_dealloc_dmah`: not supported, like `ibv_alloc_dmah`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_dealloc_dmah(_handle: *mut c_void) -> c_int {
    number(Err(Errno::UNSUPPORTED))
}

/// Implements `_ibv_query_comp_cntr_caps`: not supported, because there are no completion counters; sets all of
/// `caps` to zero.
///
/// # Safety
/// `caps` points to `len` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ibv_query_comp_cntr_caps(_context: *mut ibv_context, caps: *mut c_void, len: usize) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { ptr::write_bytes(caps.cast::<u8>(), 0, len) };
    number(Err(Errno::UNSUPPORTED))
}

/// Implements `ibv_create_comp_cntr`: not supported, because there are no completion counters.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_create_comp_cntr(_context: *mut ibv_context, _attr: *mut c_void) -> *mut c_void {
    pointer(Err(Errno::UNSUPPORTED))
}

/// Declares the calls on completion counters, which are not supported.
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
