//! The page: memory that the NICs of one user in one network namespace map, with a line for each of them.
//!
//! ```text
//!   page 0     magic, time namespace | time until which the link is paid | number of lines ever used
//!   page 1..   4096 lines: owner | alive at | contents of | weight, hungry | rate | link rate | namespace of processes
//! ```
//!
//! Each line is written by its owner only, all are read by all. Every word is an atomic, and none is trusted: each is
//! read once and limited to its range, so that another process can do no more harm than it could by sending more. The
//! memory is a sealed `memfd`, whose size no process can change (memfd_create(2), fcntl(2)).
//!
//! A line that has another owner still holds what the previous one has written, until the new one has published its
//! own. So a line says whose contents it holds, and counts only if these are its owner's.

use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rnic_base::BitRate;

use super::WEIGHT_MAX;
use super::processes::{Process, time_namespace};
use crate::sys::unix;

/// A page that is mapped into this process.
#[derive(Debug)]
pub(crate) struct Page {
    words: NonNull<[AtomicU64; WORDS]>,
    file: OwnedFd,
    /// Numbers of the memory's file system and of its file.
    identity: (u64, u64),
}

// SAFETY: this value is the only owner of the mapping, whose contents are accessed only through atomics.
unsafe impl Send for Page {}
// SAFETY: as above; atomics may be accessed by several threads.
unsafe impl Sync for Page {}

/// Identity of the NIC to which a line of the shared page belongs: a process ID in the upper half, and a random number
/// that distinguishes NICs and processes with reused IDs. Never zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner(u64);

impl Owner {
    /// Returns the identity of a NIC of the process `pid`; `random` distinguishes it from other NICs of that process.
    pub(crate) fn new(pid: u32, random: u64) -> Self {
        Self(u64::from(pid) << 32 | random & u64::from(u32::MAX) | 1)
    }

    /// Returns the process ID, as the owner has reported it.
    pub(crate) fn pid(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// One NIC's entry (line) in the memory page that the NICs of a host share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Line {
    pub(crate) owner: Owner,
    /// Namespace of the owner's process ID; zero if unknown.
    pub(crate) namespace: u64,
    /// Weight, from 1 to 1000.
    pub(crate) weight: u16,
    /// True when the NIC had data that waited for the link or for its share.
    pub(crate) is_hungry: bool,
    /// Measured rate of the NIC, counting Ethernet framing.
    pub(crate) rate: BitRate,
    /// Rate of the link that the NIC uses; `None` if it does not use a shared link.
    pub(crate) link_rate: Option<BitRate>,
}

impl Line {
    /// Returns the process of the owner.
    pub(crate) fn process(&self) -> Process {
        Process { pid: self.owner.pid(), namespace: self.namespace }
    }
}

impl Page {
    /// Creates an empty page.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn create() -> io::Result<Self> {
        let page = Self::map(unix::sealed_memory(c"rnic-share", BYTES)?)?;
        page.word(TIME_NAMESPACE_AT).store(time_namespace(), Ordering::Release);
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
        let status = File::from(file.try_clone()?).metadata()?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping affects no existing memory.
        let start = unsafe { libc::mmap(ptr::null_mut(), BYTES, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let words = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { words, file, identity: (status.dev(), status.ino()) })
    }

    /// Returns the memory's file descriptor, with which other processes attach the page.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Returns whether `other` is a mapping of the same memory.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.identity == other.identity
    }

    /// Returns a number that no other page of this machine has at the same time.
    pub(crate) fn number(&self) -> u64 {
        self.identity.1
    }

    /// Returns whether the times in the page are those of another monotonic clock than this process reads: that of
    /// another time namespace (time_namespaces(7)).
    pub(crate) fn has_other_clock(&self) -> bool {
        let (own, theirs) = (time_namespace(), self.word(TIME_NAMESPACE_AT).load(Ordering::Acquire));
        own != 0 && theirs != 0 && own != theirs
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

    /// Returns the word that holds the time until which the link is reserved, in nanoseconds of the monotonic clock.
    #[inline]
    pub(super) fn paid_until_ns(&self) -> &AtomicU64 {
        self.word(PAID_AT)
    }

    /// Returns the number of lines that have ever been used: all later lines are empty.
    pub(crate) fn lines_used(&self) -> usize {
        usize::try_from(self.word(USED_AT).load(Ordering::Acquire)).unwrap_or(LINES).min(LINES)
    }

    /// Takes a line that is free, or whose owner has not refreshed it for a second; returns `None` if there is none. It
    /// is not counted before [`Self::publish`].
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
            word.compare_exchange(present, owner.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })
    }

    /// Writes the contents of a line; returns false if the line belongs to another NIC by now, which happens to NICs
    /// that did not refresh it.
    ///
    /// Of two NICs that call this and then read the page, at least one sees the line of the other. Stores with
    /// `Release` and loads with `Acquire` alone do not ensure that: a processor may execute its loads while its earlier
    /// stores are still in its store buffer, so both NICs could read the lines as they were before, and each open with
    /// another rate of the link. The order of the two fences decides: what is stored before the first of them is seen
    /// by loads after the second. This holds too where a NIC takes a line that another gives up (`claim`, `release`),
    /// because these change only the owner, which both NICs read after their fences: a NIC that still finds the
    /// previous owner, or contents that are not the new owner's, was first, and the new owner sees its line.
    #[must_use]
    pub(crate) fn publish(&self, index: usize, line: &Line, now_ns: u64) -> bool {
        let owns = || self.line_word(index, OWNER).load(Ordering::Acquire) == line.owner.0;
        if !owns() {
            return false;
        }
        for (word, value) in [
            (WEIGHT, u64::from(line.weight) | u64::from(line.is_hungry) << HUNGRY_BIT),
            (RATE, line.rate.as_bps()),
            (LINK_RATE, line.link_rate.map_or(0, BitRate::as_bps)),
            (NAMESPACE, line.namespace),
            (CONTENTS_OF, line.owner.0),
            (ALIVE, now_ns),
        ] {
            self.line_word(index, word).store(value, Ordering::Release);
        }
        if self.lines_used() <= index {
            self.word(USED_AT).fetch_max(index as u64 + 1, Ordering::AcqRel);
        }
        fence(Ordering::SeqCst);
        // If another NIC has taken the line meanwhile, its contents count again when it has published them again.
        owns()
    }

    /// Frees a line (entry of a NIC) of the page, unless another NIC has it by now.
    pub(crate) fn release(&self, index: usize, owner: Owner) {
        let _ = self.line_word(index, OWNER).compare_exchange(owner.0, 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Frees the lines of NICs with a rate whose processes have ended, as far as the process `own` can know. Only lines
    /// that a running NIC would have refreshed since are examined, because that takes a system call or two for each,
    /// and only some of them at a time: the examination continues at `next`.
    pub(crate) fn release_ended(&self, own: Process, now_ns: u64, next: &mut usize) {
        let lines = self.lines_used();
        let first = if *next < lines { *next } else { 0 };
        let mut examined = 0;
        for index in (first..lines).chain(0..first) {
            let Some(line) = self.read(index, now_ns) else { continue };
            let is_late = now_ns.saturating_sub(self.line_word(index, ALIVE).load(Ordering::Acquire)) > LATE_NS;
            let counts = line.is_hungry || line.rate > BitRate::ZERO;
            if !is_late || !counts {
                continue;
            }
            if own.knows_ended(line.process()) {
                self.release(index, line.owner);
            }
            examined += 1;
            *next = index + 1;
            if examined == EXAMINED_MAX {
                return;
            }
        }
    }

    /// Returns the lines that have been refreshed within the last second.
    pub(crate) fn live(&self, now_ns: u64) -> impl Iterator<Item = Line> {
        (0..self.lines_used()).filter_map(move |index| self.read(index, now_ns))
    }

    fn read(&self, index: usize, now_ns: u64) -> Option<Line> {
        let get = |word| self.line_word(index, word).load(Ordering::Acquire);
        let owner = get(OWNER);
        let is_of_owner = || get(OWNER) == owner && get(CONTENTS_OF) == owner;
        if owner == 0 || !is_of_owner() || !self.is_alive(index, now_ns) {
            return None;
        }
        let weight = get(WEIGHT);
        let rate = |word| BitRate::bps(get(word).min(RATE_MAX_BPS));
        let line = Line {
            owner: Owner(owner),
            namespace: get(NAMESPACE),
            weight: (weight as u16).clamp(1, WEIGHT_MAX),
            is_hungry: weight >> HUNGRY_BIT & 1 != 0,
            rate: rate(RATE),
            link_rate: Some(rate(LINK_RATE)).filter(|rate| *rate > BitRate::ZERO),
        };
        // Another NIC may have taken the line, and written to it, since.
        is_of_owner().then_some(line)
    }

    /// Returns whether a line was refreshed within the last second. A time far in the future is ignored.
    fn is_alive(&self, index: usize, now_ns: u64) -> bool {
        now_ns.abs_diff(self.line_word(index, ALIVE).load(Ordering::Acquire)) <= ALIVE_NS
    }

    /// Writes any value to a word of a line, as a hostile process could.
    #[cfg(test)]
    pub(crate) fn forge(&self, index: usize, word: usize, value: u64) {
        self.line_word(index, word).store(value, Ordering::Release);
        self.word(USED_AT).fetch_max(index as u64 + 1, Ordering::AcqRel);
    }

    /// Writes any value to the time namespace.
    #[cfg(test)]
    pub(crate) fn forge_time_namespace(&self, value: u64) {
        self.word(TIME_NAMESPACE_AT).store(value, Ordering::Release);
    }

    /// Writes any value to the number of lines that have ever been used.
    #[cfg(test)]
    pub(crate) fn forge_lines_used(&self, value: u64) {
        self.word(USED_AT).store(value, Ordering::Release);
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

/// A line that has not been refreshed for this time, in nanoseconds, is not counted and may be claimed.
pub(super) const ALIVE_NS: u64 = 1_000_000_000;

/// Size of the page in bytes: a header of one page of memory, and the lines.
pub(super) const BYTES: usize = WORDS * size_of::<AtomicU64>();
const WORDS: usize = LINES_AT + LINES * LINE_WORDS;

/// A line that is counted and has not been refreshed for this time, in nanoseconds, may be that of a process that has
/// ended: others are refreshed several times as often, except on a busy machine.
const LATE_NS: u64 = 20_000_000;

/// Maximum number of late lines that are examined at a time.
const EXAMINED_MAX: usize = 4;

/// Identifies a page, and the version of its layout.
const MAGIC: u64 = u64::from_be_bytes(*b"rnicshr2");
const MAGIC_AT: usize = 0;
const TIME_NAMESPACE_AT: usize = 1;
const PAID_AT: usize = LINE_WORDS;
const USED_AT: usize = 2 * LINE_WORDS;
const LINES_AT: usize = 4_096 / size_of::<AtomicU64>();

/// Number of words of a line: one cache line.
const LINE_WORDS: usize = 8;
const OWNER: usize = 0;
const ALIVE: usize = 1;
/// Identity of the NIC that has written the following words.
const CONTENTS_OF: usize = 2;
const WEIGHT: usize = 3;
const RATE: usize = 4;
const LINK_RATE: usize = 5;
const NAMESPACE: usize = 6;
const HUNGRY_BIT: u32 = 32;

/// Largest rate that a line may report, in bit/s: ten times the rate of the fastest adapters.
const RATE_MAX_BPS: u64 = 10_000_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const NOW: u64 = 100 * SECOND;

    fn line(owner: Owner) -> Line {
        let link_rate = Some(BitRate::gbps(2));
        Line { owner, namespace: 0, weight: 3, is_hungry: true, rate: BitRate::gbps(1), link_rate }
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
        let (third, now) = (Owner::new(3, 5), NOW + SECOND + 1);
        assert_eq!(page.claim(third, now), Some(index), "an old line was not reused");
        assert!(!page.publish(index, &line(first), now), "a lost line was written");
        page.release(index, first);
        assert!(page.publish(index, &line(third), now));
        assert_eq!(page.live(now).collect::<Vec<_>>(), [line(third)]);
        page.release(index, first);
        assert_eq!(page.live(now).count(), 1, "a line of another NIC was released");
    }

    /// Otherwise a NIC could be rejected because of the rate of one that no longer exists.
    #[test]
    fn a_line_that_was_taken_does_not_count_with_the_contents_of_its_former_owner() {
        let page = Page::create().expect("memory");
        let [left, ended, taker] = [1, 2, 3].map(|pid| Owner::new(pid, 1));
        let lines = [left, ended].map(|owner| page.claim(owner, NOW).expect("a free line"));
        for (index, owner) in lines.into_iter().zip([left, ended]) {
            assert!(page.publish(index, &line(owner), NOW));
        }
        page.release(lines[0], left);
        assert_eq!(page.claim(taker, NOW), Some(lines[0]));
        assert_eq!(page.live(NOW).collect::<Vec<_>>(), [line(ended)], "the contents of the leaver count");
        let (now, takers) = (NOW + SECOND + 1, [4, 5].map(|pid| Owner::new(pid, 1)));
        assert_eq!(takers.map(|owner| page.claim(owner, now)), lines.map(Some));
        assert_eq!(page.live(now).count(), 0, "the contents of a NIC that has ended count");
        for (index, owner) in lines.into_iter().zip(takers) {
            assert!(page.publish(index, &line(owner), now));
        }
        assert_eq!(page.live(now).count(), 2);
        // A former owner was off its core while it wrote.
        page.forge(lines[0], CONTENTS_OF, left.0);
        assert_eq!(page.live(now).collect::<Vec<_>>(), [line(takers[1])]);
    }

    /// Without the fence a processor may read the other's line before its own line is visible.
    #[test]
    fn of_two_nics_that_publish_at_once_at_least_one_sees_the_other() {
        let page = Page::create().expect("memory");
        let owners = [Owner::new(1, 1), Owner::new(2, 1)];
        let indices = owners.map(|owner| page.claim(owner, NOW).expect("a free line"));
        let arrived = AtomicU64::new(0);
        let round = |own: usize, number: u64| {
            // Lines of the rounds before are too old.
            let now = NOW + number * 3 * SECOND;
            arrived.fetch_add(1, Ordering::AcqRel);
            let mut spins = 0;
            while arrived.load(Ordering::Acquire) < 2 * number {
                spins += 1;
                if spins % 1_000 == 0 {
                    std::thread::yield_now();
                }
            }
            // One of them notices the other's arrival later, by a time that differs between machines.
            let delay = if own == 0 { number % 64 } else { number / 64 % 64 };
            for turn in 0..delay {
                std::hint::black_box(turn);
            }
            assert!(page.publish(indices[own], &line(owners[own]), now));
            page.live(now).any(|line| line.owner == owners[1 - own])
        };
        let run = |own: usize| -> Vec<bool> { (1..=ROUNDS).map(|number| round(own, number)).collect() };
        let (first, second) = std::thread::scope(|scope| {
            let second = scope.spawn(|| run(1));
            (run(0), second.join().expect("no panic"))
        });
        let missed = first.iter().zip(&second).filter(|(first, second)| !**first && !**second).count();
        assert_eq!(missed, 0, "both NICs missed the other in {missed} of {ROUNDS} rounds");
    }

    /// Without the fence, one round in a thousand fails on a machine with two processors, in most runs.
    const ROUNDS: u64 = 200_000;

    #[test]
    fn lines_of_processes_that_have_ended_are_freed_if_they_count() {
        let page = Page::create().expect("memory");
        let own = Process::own();
        let mut child = std::process::Command::new("true").spawn().expect("a child");
        child.wait().expect("it was a child");
        let of = |pid, number, line: Line| {
            let owner = Owner::new(pid, number);
            let index = page.claim(owner, NOW).expect("a free line");
            assert!(page.publish(index, &Line { owner, ..line }, NOW));
        };
        let sends = Line { namespace: own.namespace, ..line(Owner::new(1, 1)) };
        of(child.id(), 1, sends);
        of(own.pid, 3, sends);
        of(child.id(), 5, Line { namespace: own.namespace + 1, ..sends });
        of(child.id(), 7, Line { is_hungry: false, rate: BitRate::ZERO, ..sends });
        let count = |now: u64| page.live(now).count();
        page.release_ended(own, NOW + LATE_NS, &mut 0);
        assert_eq!(count(NOW), 4, "a line that is not late was examined");
        page.release_ended(own, NOW + LATE_NS + 1, &mut 0);
        assert_eq!(count(NOW), 3);
        assert!(page.live(NOW).all(|line| line.process() != Process { pid: child.id(), ..own } || !line.is_hungry));
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
        assert_eq!((read.weight, read.rate, read.link_rate), (1_000, max, Some(max)));
        page.forge(3, WEIGHT, 0);
        assert_eq!(page.live(NOW).next().map(|line| (line.weight, line.is_hungry)), Some((1, false)));
        page.forge_lines_used(u64::MAX);
        assert_eq!(page.lines_used(), LINES);
        assert_eq!(page.live(NOW).count(), 1);
        let owner = Owner::new(1, 1);
        let index = page.claim(owner, NOW).expect("a free line");
        page.forge_lines_used(0);
        assert!(page.publish(index, &line(owner), NOW));
        assert_eq!(page.live(NOW).count(), 1, "a NIC stays hidden");
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
