//! The page: memory that the NICs of one user in one network namespace map, with a line for each of them.
//!
//! ```text
//!   page 0     magic | time until which the link is paid | number of lines ever used       each on its own cache line
//!   page 1..   4096 lines: owner | alive at | weight, hungry | rate | link rate | allowed | wire | payload
//! ```
//!
//! Each line is written by its owner only, all are read by all. Every word is an atomic, and none is trusted: each is
//! read once and limited to its range, so that another process can do no more harm than it could by sending more. The
//! memory is a sealed `memfd`, whose size no process can change (memfd_create(2), fcntl(2)).

use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use rnic_base::BitRate;

use super::WEIGHT_MAX;
use crate::sys::unix;

/// A page that is mapped in this process.
#[derive(Debug)]
pub(crate) struct Page {
    words: NonNull<[AtomicU64; WORDS]>,
    file: OwnedFd,
}

// SAFETY: this value is the only owner of the mapping, whose contents are accessed only through atomics.
unsafe impl Send for Page {}
// SAFETY: as above; atomics may be accessed by several threads.
unsafe impl Sync for Page {}

/// Identity of the owner of a line: a process ID in the upper half, for display, and a random number that
/// distinguishes NICs and processes with reused IDs. Never zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner(u64);

impl Owner {
    /// Returns the identity of a NIC of the process `pid` that has drawn the number `random`.
    pub(crate) fn new(pid: u32, random: u64) -> Self {
        Self(u64::from(pid) << 32 | random & u64::from(u32::MAX) | 1)
    }

    /// Returns the process ID, as the owner has reported it.
    pub(crate) fn pid(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Contents of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Line {
    pub(crate) owner: Owner,
    /// Weight, from 1 to 1000.
    pub(crate) weight: u32,
    /// True when the NIC had data that waited for the link or for its share.
    pub(crate) is_hungry: bool,
    /// Measured rate of the NIC, counting Ethernet framing.
    pub(crate) rate: BitRate,
    /// Rate of the link that the NIC draws from; none when it draws from none.
    pub(crate) link_rate: Option<BitRate>,
    /// Share that the NIC has computed for itself.
    pub(crate) allowed: Option<BitRate>,
    /// Bytes sent, counting Ethernet framing.
    pub(crate) wire_bytes: u64,
    /// Bytes of messages sent.
    pub(crate) payload_bytes: u64,
}

impl Page {
    /// Creates an empty page.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn create() -> io::Result<Self> {
        let page = Self::map(unix::sealed_memory(c"rnic-share", BYTES)?)?;
        page.word(MAGIC_AT).store(MAGIC, Ordering::Release);
        Ok(page)
    }

    /// Maps the page in `file`, which another process has sent.
    ///
    /// # Errors
    /// `InvalidData` when it is not a page, otherwise the kernel's error.
    pub(crate) fn attach(file: OwnedFd) -> io::Result<Self> {
        if !unix::is_sealed_memory(file.as_fd(), BYTES) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let page = Self::map(file)?;
        if page.word(MAGIC_AT).load(Ordering::Acquire) != MAGIC {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(page)
    }

    fn map(file: OwnedFd) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping affects no existing memory.
        let start = unsafe { libc::mmap(ptr::null_mut(), BYTES, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let words = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { words, file })
    }

    /// Returns the memory's file descriptor, with which other processes attach the page.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Returns whether `other` is another mapping of the same memory.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let identity = |page: &Self| {
            let file = File::from(page.file().try_clone_to_owned().ok()?).metadata().ok()?;
            Some((file.dev(), file.ino()))
        };
        identity(self).is_some_and(|own| identity(other) == Some(own))
    }

    #[inline]
    fn word(&self, index: usize) -> &AtomicU64 {
        // SAFETY: the mapping has exactly this size, is aligned to a page, and lives as long as `self`; other processes
        // change it, which atomics permit.
        let words = unsafe { self.words.as_ref() };
        &words[index]
    }

    fn line_word(&self, line: usize, word: usize) -> &AtomicU64 {
        self.word(LINES_AT + line * LINE_WORDS + word)
    }

    /// Returns the word that holds the time until which the link is paid, in nanoseconds of the monotonic clock.
    #[inline]
    pub(super) fn paid_until_ns(&self) -> &AtomicU64 {
        self.word(PAID_AT)
    }

    /// Returns the number of lines that have ever been used: those behind them are empty.
    pub(crate) fn lines_used(&self) -> usize {
        usize::try_from(self.word(USED_AT).load(Ordering::Acquire)).unwrap_or(LINES).min(LINES)
    }

    /// Takes a line that is free, or whose owner has not refreshed it for a second; returns `None` if there is none.
    pub(crate) fn claim(&self, owner: Owner, now_ns: u64) -> Option<usize> {
        (0..LINES).find(|line| {
            let word = self.line_word(*line, OWNER);
            let present = word.load(Ordering::Acquire);
            if present != 0 && self.is_alive(*line, now_ns) {
                return false;
            }
            // The time is stored first: a new owner must not appear to be an absent one. If another NIC takes the line
            // at the same moment, this refreshes its line.
            self.line_word(*line, ALIVE).store(now_ns, Ordering::Release);
            let is_taken = word.compare_exchange(present, owner.0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
            if is_taken {
                self.word(USED_AT).fetch_max(*line as u64 + 1, Ordering::AcqRel);
            }
            is_taken
        })
    }

    /// Writes the contents of a line; returns false if the line belongs to another NIC by now, which happens to NICs
    /// that did not refresh it.
    #[must_use]
    pub(crate) fn publish(&self, index: usize, line: &Line, now_ns: u64) -> bool {
        if self.line_word(index, OWNER).load(Ordering::Acquire) != line.owner.0 {
            return false;
        }
        let bits = |rate: Option<BitRate>| rate.map_or(0, BitRate::as_bps);
        for (word, value) in [
            (ALIVE, now_ns),
            (WEIGHT, u64::from(line.weight) | u64::from(line.is_hungry) << HUNGRY_BIT),
            (RATE, line.rate.as_bps()),
            (LINK_RATE, bits(line.link_rate)),
            (ALLOWED, bits(line.allowed)),
            (WIRE_BYTES, line.wire_bytes),
            (PAYLOAD_BYTES, line.payload_bytes),
        ] {
            self.line_word(index, word).store(value, Ordering::Release);
        }
        true
    }

    /// Frees a line, unless it belongs to another NIC by now.
    pub(crate) fn release(&self, index: usize, owner: Owner) {
        let _ = self.line_word(index, OWNER).compare_exchange(owner.0, 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Returns the lines that have been refreshed within the last second.
    pub(crate) fn live(&self, now_ns: u64) -> impl Iterator<Item = Line> {
        (0..self.lines_used()).filter_map(move |index| self.read(index, now_ns))
    }

    fn read(&self, index: usize, now_ns: u64) -> Option<Line> {
        let get = |word| self.line_word(index, word).load(Ordering::Acquire);
        let owner = get(OWNER);
        if owner == 0 || !self.is_alive(index, now_ns) {
            return None;
        }
        let weight = get(WEIGHT);
        let rate = |word| BitRate::bps(get(word).min(RATE_MAX_BPS));
        let some = |rate: BitRate| (rate > BitRate::ZERO).then_some(rate);
        Some(Line {
            owner: Owner(owner),
            weight: (weight as u32).clamp(1, WEIGHT_MAX),
            is_hungry: weight >> HUNGRY_BIT & 1 != 0,
            rate: rate(RATE),
            link_rate: some(rate(LINK_RATE)),
            allowed: some(rate(ALLOWED)),
            wire_bytes: get(WIRE_BYTES),
            payload_bytes: get(PAYLOAD_BYTES),
        })
    }

    /// Returns whether a line was refreshed within the last second. A time that lies far ahead is not believed.
    fn is_alive(&self, index: usize, now_ns: u64) -> bool {
        now_ns.abs_diff(self.line_word(index, ALIVE).load(Ordering::Acquire)) <= ALIVE_NS
    }

    /// Writes any value to a word of a line, as a hostile process could.
    #[cfg(test)]
    pub(crate) fn forge(&self, index: usize, word: usize, value: u64) {
        self.line_word(index, word).store(value, Ordering::Release);
        self.word(USED_AT).fetch_max(index as u64 + 1, Ordering::AcqRel);
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: `map` created exactly this mapping, and references into it borrow from `self`.
        unsafe { libc::munmap(self.words.as_ptr().cast(), BYTES) };
    }
}

/// Number of lines: far more NICs than a user has on one machine.
pub(crate) const LINES: usize = 4_096;

/// A line that has not been refreshed for this time, in nanoseconds, does not count and may be taken.
pub(super) const ALIVE_NS: u64 = 1_000_000_000;

/// Size of the page in bytes: a header of one page of memory, and the lines.
pub(super) const BYTES: usize = WORDS * size_of::<AtomicU64>();
const WORDS: usize = LINES_AT + LINES * LINE_WORDS;

/// Identifies a page, and the version of its layout.
const MAGIC: u64 = u64::from_be_bytes(*b"rnicshr1");
const MAGIC_AT: usize = 0;
const PAID_AT: usize = LINE_WORDS;
const USED_AT: usize = 2 * LINE_WORDS;
const LINES_AT: usize = 4_096 / size_of::<AtomicU64>();

/// Number of words of a line: one cache line.
const LINE_WORDS: usize = 8;
const OWNER: usize = 0;
const ALIVE: usize = 1;
const WEIGHT: usize = 2;
const RATE: usize = 3;
const LINK_RATE: usize = 4;
const ALLOWED: usize = 5;
const WIRE_BYTES: usize = 6;
const PAYLOAD_BYTES: usize = 7;
const HUNGRY_BIT: u32 = 32;

/// Largest rate that a line may report, in bit/s: ten times the rate of the fastest adapters.
const RATE_MAX_BPS: u64 = 10_000_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const NOW: u64 = 100 * SECOND;

    fn line(owner: Owner) -> Line {
        Line {
            owner,
            weight: 3,
            is_hungry: true,
            rate: BitRate::gbps(1),
            link_rate: Some(BitRate::gbps(2)),
            allowed: None,
            wire_bytes: 5,
            payload_bytes: 4,
        }
    }

    fn again(page: &Page) -> Page {
        Page::attach(page.file().try_clone_to_owned().expect("a descriptor")).expect("a valid page")
    }

    #[test]
    fn a_line_is_seen_by_every_mapping_until_it_is_released_or_too_old() {
        let page = Page::create().expect("memory");
        let (other, owner) = (again(&page), Owner::new(7, 9));
        assert!(page.is_same(&other) && !page.is_same(&Page::create().expect("memory")));
        let index = page.claim(owner, NOW).expect("a free line");
        assert!(page.publish(index, &line(owner), NOW));
        assert_eq!(other.live(NOW + SECOND).collect::<Vec<_>>(), [line(owner)]);
        assert_eq!(owner.pid(), 7);
        assert_eq!(other.live(NOW + SECOND + 1).count(), 0, "a line that was not refreshed counts");
        assert_eq!(other.live(NOW - SECOND - 1).count(), 0, "a line from the future counts");
        page.release(index, owner);
        assert_eq!(other.live(NOW).count(), 0);
    }

    #[test]
    fn an_old_line_is_reused_and_its_former_owner_notices() {
        let page = Page::create().expect("memory");
        let [first, second] = [Owner::new(1, 1), Owner::new(2, 3)];
        let index = page.claim(first, NOW).expect("a free line");
        assert_ne!(page.claim(second, NOW), Some(index), "a live line was taken");
        assert_eq!(page.claim(Owner::new(3, 5), NOW + SECOND + 1), Some(index), "an old line was not reused");
        assert!(!page.publish(index, &line(first), NOW + SECOND + 1), "a lost line was written");
        page.release(index, first);
        assert_eq!(page.live(NOW + SECOND + 1).count(), 1, "a line of another NIC was released");
    }

    #[test]
    fn a_full_page_has_no_line_until_one_is_too_old() {
        let page = Page::create().expect("memory");
        for number in 0..LINES {
            let owner = Owner::new(1, 2 * number as u64);
            assert_eq!(page.claim(owner, NOW), Some(number));
        }
        assert_eq!(page.claim(Owner::new(2, 1), NOW), None);
        assert_eq!(page.claim(Owner::new(2, 1), NOW + SECOND + 1), Some(0));
    }

    #[test]
    fn absurd_values_are_limited_to_their_ranges() {
        let page = Page::create().expect("memory");
        for word in 0..LINE_WORDS {
            page.forge(3, word, u64::MAX);
        }
        assert_eq!(page.live(NOW).count(), 0, "a time far ahead was believed");
        page.forge(3, ALIVE, NOW);
        let read = page.live(NOW).next().expect("a line");
        let max = BitRate::bps(RATE_MAX_BPS);
        assert_eq!((read.weight, read.rate, read.link_rate, read.allowed), (1_000, max, Some(max), Some(max)));
        page.forge(3, WEIGHT, 0);
        assert_eq!(page.live(NOW).next().map(|line| (line.weight, line.is_hungry)), Some((1, false)));
        page.word(USED_AT).store(u64::MAX, Ordering::Release);
        assert_eq!(page.lines_used(), LINES);
        assert_eq!(page.live(NOW).count(), 1);
    }

    #[test]
    fn only_sealed_memory_of_the_right_size_and_kind_is_a_page() {
        let is_page = |file: OwnedFd| Page::attach(file).is_ok();
        assert!(!is_page(unix::sealed_memory(c"rnic-test", BYTES).expect("memory")), "no magic");
        assert!(!is_page(unix::sealed_memory(c"rnic-test", BYTES - 4_096).expect("memory")), "too small");
        assert!(!is_page(unix::sealed_memory(c"rnic-test", BYTES + 4_096).expect("memory")), "too large");
        let unsealed = rustix::fs::memfd_create("rnic-test", rustix::fs::MemfdFlags::CLOEXEC).expect("memory");
        rustix::fs::ftruncate(&unsealed, BYTES as u64).expect("space");
        assert!(!is_page(unsealed), "another process could shrink it");
        let file = tempfile::tempfile().expect("a file");
        file.set_len(BYTES as u64).expect("space");
        assert!(!is_page(file.into()), "a file");
        let (reader, _writer) = std::io::pipe().expect("a pipe");
        assert!(!is_page(reader.into()), "a pipe");
    }
}
