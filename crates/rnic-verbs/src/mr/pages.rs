//! Whether the kernel would pin the pages of a region.
//!
//! A driver of the kernel pins every page for reading, or for writing where anybody may write (`ib_umem_get`), and
//! refuses the registration when it cannot: `EFAULT` where nothing is mapped, where a mapping lacks the right, where a
//! file that is mapped has ended, where pages are a device's. The same walk over the pages, without the pinning, is
//! `MADV_POPULATE_READ` and `MADV_POPULATE_WRITE` of madvise(2). Like the kernel's it brings every page in: a region
//! takes its memory when it is registered.

use std::ffi::{c_int, c_void};
use std::io;
use std::sync::OnceLock;

use crate::errno::{Errno, Result};

/// Checks `len` bytes from `start` on, which somebody `writes` to or only reads.
///
/// # Errors
/// `EINVAL` when there is no such range, `EFAULT` when some of its pages cannot be accessed so, `ENOMEM` when there is
/// no memory for them.
pub(super) fn check(start: usize, len: usize, writes: bool) -> Result<()> {
    let end = start.checked_add(len).and_then(|end| end.checked_next_multiple_of(PAGE)).ok_or(Errno::INVALID)?;
    let start = start & !(PAGE - 1);
    if !can_populate() {
        return check_mapped(start, end);
    }
    let advice = if writes { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    loop {
        match advise(start, end - start, advice) {
            0 => return Ok(()),
            libc::EINTR | libc::EAGAIN => {}
            // Nothing is mapped, or there is no memory.
            libc::ENOMEM => return check_mapped(start, end).and(Err(Errno::NO_MEMORY)),
            libc::EHWPOISON => return Err(Errno(libc::EHWPOISON)),
            _ => return Err(Errno(libc::EFAULT)),
        }
    }
}

/// Returns whether the kernel can bring pages in: Linux 5.14 can.
fn can_populate() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| {
        let own = 0u8;
        advise(&raw const own as usize & !(PAGE - 1), PAGE, libc::MADV_POPULATE_READ) == 0
    })
}

/// Calls madvise(2); answers 0 or the error number.
fn advise(start: usize, len: usize, advice: c_int) -> c_int {
    // SAFETY: these advices read and change no byte.
    if unsafe { libc::madvise(start as *mut c_void, len, advice) } == 0 {
        return 0;
    }
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EFAULT)
}

/// Whether something is mapped everywhere from `start` to `end`, whole pages; with which rights, shows when it is used.
fn check_mapped(start: usize, end: usize) -> Result<()> {
    const PAGES_AT_ONCE: usize = 4_096;
    let mut present = [0u8; PAGES_AT_ONCE];
    let mut from = start;
    while from < end {
        let bytes = (end - from).min(PAGES_AT_ONCE * PAGE);
        // SAFETY: asks about a range without touching it; the answer has a byte for each of its pages.
        if unsafe { libc::mincore(from as *mut c_void, bytes, present.as_mut_ptr()) } != 0 {
            return Err(Errno(libc::EFAULT));
        }
        from += bytes;
    }
    Ok(())
}

pub(crate) const PAGE: usize = 4_096;

#[cfg(test)]
#[path = "pages/tests.rs"]
mod tests;
