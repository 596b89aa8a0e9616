//! Accesses that fault, one by one: every kind of memory that is gone, every way to touch it.

use std::ptr::null_mut;
use std::sync::atomic::AtomicUsize;

use super::*;
use crate::memory::{look_after, look_after_once, started};

const PAGE: usize = 4_096;

/// Two pages, the second of which is gone.
struct Torn {
    start: *mut u8,
}

/// A change of a page, and its name.
type Kind = (&'static str, fn(*mut u8));

/// Ways in which the second page goes.
const KINDS: [Kind; 4] = [
    ("unmapped", |page| {
        // SAFETY: the page is the test's own, and nobody has a reference to it.
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
        // SAFETY: as above; the file behind the new page ends before it, so touching it is a bus error.
        unsafe {
            let file = libc::memfd_create(c"rnic-test".as_ptr(), 0);
            assert_eq!(libc::ftruncate(file, PAGE as i64), 0);
            let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
            assert_eq!(libc::mmap(page.cast(), PAGE, rights, flags, file, 0), page.cast());
            assert_eq!((libc::ftruncate(file, 0), libc::close(file)), (0, 0));
        }
    }),
];

impl Torn {
    /// Addresses are the test's choice, far below those that the kernel chooses, and each is used once: a hole that
    /// `munmap` leaves among the kernel's is soon filled by a mapping of another thread, which the copy would read and
    /// [`Drop`] would remove. The sanitizers of addresses and of threads both leave these to programs.
    fn new(tear: fn(*mut u8)) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0x5500_4000_0000);
        let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let wanted = ptr::without_provenance_mut(NEXT.fetch_add(2 * PAGE, Ordering::Relaxed));
        // SAFETY: a new mapping that replaces nothing touches nothing that exists.
        let start = unsafe { libc::mmap(wanted, 2 * PAGE, rights, flags | libc::MAP_FIXED_NOREPLACE, -1, 0) };
        assert_eq!(start, wanted);
        let torn = Self { start: start.cast() };
        // SAFETY: both pages are there by now.
        unsafe { torn.start.write_bytes(7, 2 * PAGE) };
        tear(torn.at(PAGE));
        torn
    }

    fn at(&self, offset: usize) -> *mut u8 {
        self.start.wrapping_add(offset)
    }

    fn foreign(&self, offset: usize, len: usize) -> Foreign {
        Foreign::new(self.at(offset), len)
    }
}

impl Drop for Torn {
    fn drop(&mut self) {
        // SAFETY: whatever is left of it is the test's own.
        unsafe { libc::munmap(self.start.cast(), 2 * PAGE) };
    }
}

#[test]
fn whatever_is_gone_is_an_error_and_what_is_there_is_not() {
    look_after_once();
    for (kind, tear) in KINDS {
        let torn = Torn::new(tear);
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
            let what = format!("{kind}, {len} at {offset}");
            assert_eq!(torn.foreign(offset, len).copy_to(&mut to), expected, "read: {what}");
            assert!(!is_there || to[..len].iter().all(|byte| *byte == 7), "{what}");
            // SAFETY: there is enough to read.
            assert_eq!(unsafe { copy_into(torn.at(offset), [7; 2 * PAGE].as_ptr(), len) }, expected, "write: {what}");
            // SAFETY: a copy may be left in the middle.
            let carried = unsafe { torn.foreign(offset, len).carry(&mut to, |from, to| to.copy_from_slice(from)) };
            assert_eq!(carried, expected, "carry: {what}");
        }
        assert_eq!(change_word(torn.at(PAGE - 8), |word| Some(word + 1)), Ok(0x0707_0707_0707_0707), "{kind}");
        assert_eq!(change_word(torn.at(PAGE - 8), |_| None), Ok(0x0707_0707_0707_0708), "{kind}");
        for at in [PAGE, PAGE - 4, PAGE + 24] {
            assert_eq!(change_word(torn.at(at), |word| Some(word + 1)), Err(MemoryFault), "{kind}, word at {at}");
        }
    }
}

/// By the kernel, as on other processors.
#[test]
fn the_kernel_copies_the_same() {
    for (kind, tear) in KINDS {
        let torn = Torn::new(tear);
        let mut own = [0; PAGE];
        for (offset, len, is_there) in [(10, 1_000, true), (PAGE - 3, 4, false), (PAGE, 1, false)] {
            // SAFETY: `own` is long enough.
            let (read, written) = unsafe {
                (
                    copy_by_kernel(torn.at(offset), own.as_mut_ptr(), len, false),
                    copy_by_kernel(own.as_ptr(), torn.at(offset), len, true),
                )
            };
            let expected = if is_there { Ok(()) } else { Err(MemoryFault) };
            assert_eq!((read, written), (expected, expected), "{kind}, {len} at {offset}");
        }
    }
}

#[test]
fn threads_that_block_their_signals_are_safe_too() {
    let threads: Vec<_> = (0..8)
        .map(|_| {
            std::thread::spawn(|| {
                // SAFETY: a set of plain bits, filled in before it is read.
                unsafe {
                    let mut all = std::mem::zeroed();
                    libc::sigfillset(&raw mut all);
                    libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, null_mut());
                }
                look_after(started());
                for (_, tear) in KINDS.iter().cycle().take(200) {
                    let torn = Torn::new(*tear);
                    assert_eq!(torn.foreign(1, 2 * PAGE - 1).copy_to(&mut [0; 2 * PAGE]), Err(MemoryFault));
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("it survives"));
}

/// A thread that found no slot has the kernel copy; there is always room for the others.
#[test]
fn a_slot_is_its_threads_alone() {
    let mine = slot_of_thread(true).expect("there is room");
    assert!(std::ptr::eq(mine, slot_of_thread(false).expect("it has one")));
    let other = std::thread::spawn(|| slot_of_thread(true).map(ptr::from_ref).map(|slot| slot as usize));
    let other = other.join().expect("it ends");
    assert!(!IS_GUARDED || other.is_some_and(|other| other != ptr::from_ref(mine) as usize));
}
