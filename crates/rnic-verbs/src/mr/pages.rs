//! Checks whether the kernel would be able to pin the pages of a region.
//!
//! A kernel driver pins every page for reading, or for writing when any party may write (`ib_umem_get`), and rejects
//! the registration when it cannot: with `EFAULT` for unmapped addresses, for mappings without the access right,
//! beyond the end of a mapped file, and for pages of a device. `MADV_POPULATE_READ` and `MADV_POPULATE_WRITE` of
//! madvise(2) access the pages in the same way, without pinning them. Like the kernel driver, this faults in every
//! page: the memory of a region is allocated when it is registered.

use std::ffi::{c_int, c_void};
use std::io;
use std::sync::OnceLock;

use crate::errno::{Errno, Result};

/// Checks `len` bytes from `start` on, for write access if `writes` is `true` and for read access otherwise.
///
/// # Errors
/// `EINVAL` when the address range is not valid, `EFAULT` when some of its pages do not permit this access, `ENOMEM`
/// when there is no memory for them.
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
            // Either some pages of the range are not mapped, or there is not enough memory.
            libc::ENOMEM => return check_mapped(start, end).and(Err(Errno::NO_MEMORY)),
            libc::EHWPOISON => return Err(Errno(libc::EHWPOISON)),
            _ => return Err(Errno(libc::EFAULT)),
        }
    }
}

/// Returns `true` if the kernel supports populating pages with madvise(2), as Linux 5.14 and later do.
fn can_populate() -> bool {
    static POPULATE_SUPPORTED: OnceLock<bool> = OnceLock::new();
    *POPULATE_SUPPORTED.get_or_init(|| {
        let stack_byte = 0u8;
        advise(&raw const stack_byte as usize & !(PAGE - 1), PAGE, libc::MADV_POPULATE_READ) == 0
    })
}

/// Calls madvise(2); returns 0 or the error number.
fn advise(start: usize, len: usize, advice: c_int) -> c_int {
    // SAFETY: these advice values do not change the content of memory.
    if unsafe { libc::madvise(start as *mut c_void, len, advice) } == 0 {
        return 0;
    }
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EFAULT)
}

/// Checks that all pages from `start` to `end` are mapped; their access rights are only checked when they are used.
fn check_mapped(start: usize, end: usize) -> Result<()> {
    const PAGES_AT_ONCE: usize = 4_096;
    let mut present = [0u8; PAGES_AT_ONCE];
    let mut from = start;
    while from < end {
        let bytes = (end - from).min(PAGES_AT_ONCE * PAGE);
        // SAFETY: queries a range without accessing it; the output buffer has a byte for each of its pages.
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
