//! Tests of accesses that fault: every way in which memory can become inaccessible, and every kind of access.

use std::ptr::null_mut;
use std::sync::atomic::AtomicUsize;

use super::*;
use crate::memory::{ensure_handler, ensure_handler_once, started};

const PAGE: usize = 4_096;

/// Two pages, of which the second one is inaccessible.
struct HalfMapped {
    start: *mut u8,
}

/// Name of a change of the second page, and the function that makes it.
type Kind = (&'static str, fn(*mut u8));

/// The ways in which the second page becomes inaccessible.
const KINDS: [Kind; 4] = [
    ("unmapped", |page| {
        // SAFETY: the page belongs to this test, and there is no reference to it.
        assert_eq!(unsafe { libc::munmap(page.cast(), PAGE) }, 0);
    }),
    ("protected", |page| {
        // SAFETY: as above.
        assert_eq!(unsafe { libc::mprotect(page.cast(), PAGE, libc::PROT_NONE) }, 0);
    }),
    ("replaced", |page| {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: as above.
        let replaced = unsafe { libc::mmap(page.cast(), PAGE, libc::PROT_NONE, flags, -1, 0) };
        assert_eq!(replaced, page.cast());
    }),
    ("shortened", |page| {
        // SAFETY: as above; the file that is mapped to the new page ends before the page, so accessing it is a bus
        // error.
        unsafe {
            let file = libc::memfd_create(c"rnic-test".as_ptr(), 0);
            assert_eq!(libc::ftruncate(file, PAGE as i64), 0);
            let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
            assert_eq!(libc::mmap(page.cast(), PAGE, rights, flags, file, 0), page.cast());
            assert_eq!((libc::ftruncate(file, 0), libc::close(file)), (0, 0));
        }
    }),
];

impl HalfMapped {
    /// The test chooses addresses far below those that the kernel chooses, and uses each once: otherwise, the
    /// addresses that `munmap` releases could soon be used for a mapping of another thread, which the copy would read
    /// and [`Drop`] would remove. The address and thread sanitizers leave this range to programs.
    fn new(make_inaccessible: fn(*mut u8)) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0x5500_4000_0000);
        let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let wanted = ptr::without_provenance_mut(NEXT.fetch_add(2 * PAGE, Ordering::Relaxed));
        // SAFETY: a new mapping that replaces nothing touches nothing that exists.
        let start = unsafe { libc::mmap(wanted, 2 * PAGE, rights, flags | libc::MAP_FIXED_NOREPLACE, -1, 0) };
        assert_eq!(start, wanted);
        let pages = Self { start: start.cast() };
        // SAFETY: both pages are mapped at this point.
        unsafe { pages.start.write_bytes(7, 2 * PAGE) };
        make_inaccessible(pages.at(PAGE));
        pages
    }

    fn at(&self, offset: usize) -> *mut u8 {
        self.start.wrapping_add(offset)
    }

    fn program_bytes(&self, offset: usize, len: usize) -> ProgramBytes {
        ProgramBytes::new(self.at(offset), len)
    }
}

impl Drop for HalfMapped {
    fn drop(&mut self) {
        // SAFETY: the rest of the mapping belongs to this test.
        unsafe { libc::munmap(self.start.cast(), 2 * PAGE) };
    }
}

#[test]
fn accesses_to_unmapped_memory_fail_and_others_succeed() {
    ensure_handler_once();
    for (kind, make_inaccessible) in KINDS {
        let pages = HalfMapped::new(make_inaccessible);
        let mut to = vec![0; 2 * PAGE];
        for (offset, len, is_there) in [
            (0, PAGE, true),
            (PAGE - 3, 3, true),
            (PAGE - 3, 4, false),
            (0, 2 * PAGE, false),
            (PAGE, 1, false),
            (PAGE, 0, true),
            (PAGE + 70, 700, false),
        ] {
            let expected = if is_there { Ok(()) } else { Err(MemoryFault) };
            let case = format!("{kind}, {len} at {offset}");
            assert_eq!(pages.program_bytes(offset, len).copy_to(&mut to), expected, "read: {case}");
            assert!(!is_there || to[..len].iter().all(|byte| *byte == 7), "{case}");
            // SAFETY: the source has enough bytes.
            assert_eq!(unsafe { copy_into(pages.at(offset), [7; 2 * PAGE].as_ptr(), len) }, expected, "write: {case}");
            // SAFETY: the copy may stop at a fault.
            let carried =
                unsafe { pages.program_bytes(offset, len).carry(&mut to, |from, to| to.copy_from_slice(from)) };
            assert_eq!(carried, expected, "carry: {case}");
        }
        assert_eq!(update_word(pages.at(PAGE - 8), |word| Some(word + 1)), Ok(0x0707_0707_0707_0707), "{kind}");
        assert_eq!(update_word(pages.at(PAGE - 8), |_| None), Ok(0x0707_0707_0707_0708), "{kind}");
        for at in [PAGE, PAGE - 4, PAGE + 24] {
            assert_eq!(update_word(pages.at(at), |word| Some(word + 1)), Err(MemoryFault), "{kind}, word at {at}");
        }
    }
}

/// The kernel does the copying, as on other processors.
#[test]
fn copies_by_the_kernel_give_the_same_results() {
    for (kind, make_inaccessible) in KINDS {
        let pages = HalfMapped::new(make_inaccessible);
        let mut own = [0; PAGE];
        for (offset, len, is_there) in [(10, 1_000, true), (PAGE - 3, 4, false), (PAGE, 1, false)] {
            // SAFETY: `own` is long enough.
            let (read, written) = unsafe {
                (
                    copy_by_kernel(pages.at(offset), own.as_mut_ptr(), len, false),
                    copy_by_kernel(own.as_ptr(), pages.at(offset), len, true),
                )
            };
            let expected = if is_there { Ok(()) } else { Err(MemoryFault) };
            assert_eq!((read, written), (expected, expected), "{kind}, {len} at {offset}");
        }
    }
}

#[test]
fn threads_with_blocked_signals_are_guarded_too() {
    let threads: Vec<_> = (0..8)
        .map(|_| {
            std::thread::spawn(|| {
                // SAFETY: a set of plain bits, filled in before it is read.
                unsafe {
                    let mut all = std::mem::zeroed();
                    libc::sigfillset(&raw mut all);
                    libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, null_mut());
                }
                ensure_handler(started());
                for (_, make_inaccessible) in KINDS.iter().cycle().take(200) {
                    let pages = HalfMapped::new(*make_inaccessible);
                    assert_eq!(pages.program_bytes(1, 2 * PAGE - 1).copy_to(&mut [0; 2 * PAGE]), Err(MemoryFault));
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("it survives"));
}

/// Each thread has its own slot. For a thread without a free slot the kernel does the copying; the slots of other
/// threads are not affected.
#[test]
fn each_thread_has_its_own_slot() {
    let slot = slot_of_thread(true).expect("there is room");
    assert!(std::ptr::eq(slot, slot_of_thread(false).expect("the thread has a slot")));
    let other = std::thread::spawn(|| slot_of_thread(true).map(ptr::from_ref).map(|slot| slot as usize));
    let other = other.join().expect("it ends");
    assert!(!IS_GUARDED || other.is_some_and(|other| other != ptr::from_ref(slot) as usize));
}
