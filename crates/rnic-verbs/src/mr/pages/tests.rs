//! Tests of the results and error numbers of page checks: each type of page, for reading and for writing.

use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// Maps `pages` pages with these rights and flags, from `file` if there is one, and never unmaps them. The test
/// chooses addresses far below those that the kernel chooses, and uses each once: a hole among the kernel's addresses
/// may soon be filled by a mapping of another thread.
fn map(pages: usize, rights: c_int, flags: c_int, file: c_int) -> usize {
    static NEXT_ADDRESS: AtomicUsize = AtomicUsize::new(0x2000_0000_0000);
    let wanted = ptr::without_provenance_mut(NEXT_ADDRESS.fetch_add(pages * PAGE, Ordering::Relaxed));
    // SAFETY: a new mapping that replaces no other does not affect existing memory.
    let start = unsafe { libc::mmap(wanted, pages * PAGE, rights, flags | libc::MAP_FIXED_NOREPLACE, file, 0) };
    assert_eq!(start, wanted, "{}", io::Error::last_os_error());
    start as usize
}

const READ: c_int = libc::PROT_READ;
const BOTH: c_int = libc::PROT_READ | libc::PROT_WRITE;
const PRIVATE_ANONYMOUS: c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

/// Returns the result of a check: 0, or the error number.
fn check_result(start: usize, len: usize, writes: bool) -> c_int {
    check(start, len, writes).err().map_or(0, |errno| errno.0)
}

#[test]
fn pages_that_the_kernel_could_not_pin_are_refused() {
    if !can_populate() {
        println!("skipped: the kernel is older than 5.14, and shows rights only where memory is used");
        return;
    }
    let file = tempfile::tempfile().expect("a temporary file");
    file.set_len(PAGE as u64 + 100).expect("space for two pages");
    let (fd, shared) = (file.as_raw_fd(), libc::MAP_SHARED);
    let hole = map(3, BOTH, PRIVATE_ANONYMOUS, -1);
    let mixed = map(2, BOTH, PRIVATE_ANONYMOUS, -1);
    // SAFETY: the second page belongs to the test and is not in use.
    assert_eq!(unsafe { libc::mprotect((mixed + PAGE) as *mut c_void, PAGE, READ) }, 0);
    static CONSTANT: [u8; 64] = [7; 64];
    let fault = libc::EFAULT;
    let rows = [
        ("own memory", map(2, BOTH, PRIVATE_ANONYMOUS, -1), 2 * PAGE, 0, 0),
        ("own memory, odd ends", map(2, BOTH, PRIVATE_ANONYMOUS, -1) + 5, PAGE, 0, 0),
        ("read-only", map(1, READ, PRIVATE_ANONYMOUS, -1), PAGE, 0, fault),
        ("no rights at all", map(1, libc::PROT_NONE, PRIVATE_ANONYMOUS, -1), PAGE, fault, fault),
        ("the second page read-only", mixed, 2 * PAGE, 0, fault),
        ("and only the first asked for", mixed, PAGE, 0, 0),
        ("a constant of the program", (&raw const CONSTANT) as usize, CONSTANT.len(), 0, fault),
        ("a hole in the middle", hole, 3 * PAGE, fault, fault),
        ("up to the hole", hole, PAGE, 0, 0),
        ("a shared file", map(2, BOTH, shared, fd), PAGE + 100, 0, 0),
        ("a shared file, read-only", map(2, READ, shared, fd), PAGE, 0, fault),
        ("a file of one's own, read-only", map(2, READ, libc::MAP_PRIVATE, fd), PAGE, 0, fault),
        ("a file of one's own", map(2, BOTH, libc::MAP_PRIVATE, fd), PAGE, 0, 0),
        ("beyond the end of a file", map(4, BOTH, shared, fd), 3 * PAGE, fault, fault),
        ("nothing", 0, PAGE, fault, fault),
        ("the kernel's own", 1 << 63, PAGE, fault, fault),
        ("around the end", usize::MAX - PAGE, 2 * PAGE, libc::EINVAL, libc::EINVAL),
        ("into the last page", usize::MAX - PAGE, PAGE, libc::EINVAL, libc::EINVAL),
    ];
    // SAFETY: the page in the middle belongs to the test and is not in use.
    assert_eq!(unsafe { libc::munmap((hole + PAGE) as *mut c_void, PAGE) }, 0);
    for (what, start, len, read, written) in rows {
        assert_eq!((check_result(start, len, false), check_result(start, len, true)), (read, written), "{what}");
    }
}

#[test]
fn unmapped_pages_are_detected_on_older_kernels() {
    let start = map(3, BOTH, PRIVATE_ANONYMOUS, -1);
    assert!(check_mapped(start, start + 3 * PAGE).is_ok());
    // SAFETY: the page in the middle belongs to the test and is not in use.
    assert_eq!(unsafe { libc::munmap((start + PAGE) as *mut c_void, PAGE) }, 0);
    assert!(check_mapped(start, start + 3 * PAGE).is_err_and(|errno| errno.0 == libc::EFAULT));
}
