//! A ring of packets in memory that two processes share: one writes, the other reads.
//!
//! ```text
//!   page 0     state | head (bytes ever written) | tail (bytes ever read) | sleeping       each on its own cache line
//!   page 1..   records, each on cache lines of its own: length, kind and marking (8 bytes), then the packet
//! ```
//!
//! A record is never split: one that does not fit before the end of the ring is written at the front, behind a record
//! that marks the skip.
//!
//! No value that the other process writes is trusted: positions and lengths are read once and checked before they are
//! used; packets are copied out before they are parsed, and payload is copied without being inspected. The memory is a
//! sealed `memfd`, so that the other process cannot shrink it while it is in use (memfd_create(2), fcntl(2)). Any
//! invalid value ends the ring, and packets take another path.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use rnic_engine::MemoryFault;
use rnic_wire::falcon::psp;

use crate::marking::{self, Marking};
use crate::memory::{Arrived, Foreign, Pieces};
use crate::sys::unix;

/// Error: the other process has written invalid values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Broken;

/// State of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum State {
    /// The reader has not attached yet.
    Offered = 0,
    /// The reader is attached.
    Attached = 1,
    /// One end has closed the ring.
    Closed = 2,
}

/// The mapped shared memory.
#[derive(Debug)]
struct Shared(NonNull<u8>);

// SAFETY: the mapping is owned by this value alone, and its contents are accessed through atomics and copies.
unsafe impl Send for Shared {}

impl Shared {
    fn map(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping affects no existing memory.
        let start = unsafe { libc::mmap(ptr::null_mut(), FILE_BYTES, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(start.cast()).map(Self).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    #[inline]
    fn word32(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(CACHE_LINE) && at < FILE_BYTES);
        // SAFETY: an aligned word within the mapping, which lives as long as `self`, and which is accessed only by
        // atomic operations.
        unsafe { AtomicU32::from_ptr(self.0.as_ptr().add(at).cast()) }
    }

    #[inline]
    fn word64(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(CACHE_LINE) && at < FILE_BYTES);
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(self.0.as_ptr().add(at).cast()) }
    }

    /// Returns the offset in the mapping of the record at `position`.
    #[inline]
    fn offset(position: u64) -> usize {
        DATA_AT + (position % DATA_BYTES as u64) as usize
    }

    fn state(&self) -> State {
        match self.word32(STATE_AT).load(Ordering::Acquire) {
            0 => State::Offered,
            1 => State::Attached,
            _ => State::Closed,
        }
    }

    fn set_state(&self, state: State) {
        self.word32(STATE_AT).store(state as u32, Ordering::Release);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: `map` created exactly this mapping, and references into it borrow from `self`.
        unsafe { libc::munmap(self.0.as_ptr().cast(), FILE_BYTES) };
    }
}

/// The writing end of a ring.
#[derive(Debug)]
pub(crate) struct Producer {
    shared: Shared,
    file: OwnedFd,
    /// Total bytes written, and how many of them have been published to the reader.
    head: u64,
    published: u64,
    /// Total bytes read, as last seen from the reader.
    tail: u64,
}

impl Producer {
    /// Creates a ring that has no reader yet.
    pub(crate) fn create() -> io::Result<Self> {
        let file = unix::sealed_memory(c"rnic-wire", FILE_BYTES)?;
        let shared = Shared::map(file.as_fd())?;
        Ok(Self { shared, file, head: 0, published: 0, tail: 0 })
    }

    /// Returns the memory's file descriptor, which the reader needs to attach.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    #[inline]
    pub(crate) fn state(&self) -> State {
        self.shared.state()
    }

    /// Returns the total bytes read, as reported by the reader.
    pub(crate) fn read_so_far(&self) -> u64 {
        self.shared.word64(TAIL_AT).load(Ordering::Acquire)
    }

    /// Returns whether everything has been read.
    pub(crate) fn is_drained(&self) -> bool {
        self.read_so_far() == self.head
    }

    /// Begins a record of `len` bytes; returns `None` when there is no space.
    #[inline]
    pub(crate) fn begin(&mut self, len: usize, kind: Kind) -> Result<Option<Writer<'_>>, Broken> {
        assert!(len <= PACKET_BYTES_MAX, "no packet has {len} bytes");
        let bytes = record_bytes(len);
        let to_end = DATA_BYTES - (self.head % DATA_BYTES as u64) as usize;
        let skipped = if bytes > to_end { to_end } else { 0 };
        if !self.has_room(bytes + skipped)? {
            return Ok(None);
        }
        if skipped > 0 {
            let place = self.shared.word64(Shared::offset(self.head));
            place.store(SKIP, Ordering::Relaxed);
            self.head += skipped as u64;
        }
        let at = Shared::offset(self.head);
        self.shared.word64(at).store(kind.bits() | len as u64, Ordering::Relaxed);
        self.head += bytes as u64;
        Ok(Some(Writer { shared: &self.shared, at: at + RECORD_HEADER_BYTES, left: len }))
    }

    /// Returns the current write position, to go back to with [`Self::take_back`].
    #[inline]
    pub(crate) fn mark(&self) -> u64 {
        self.head
    }

    /// Discards the records begun since `mark`, none of which is published.
    #[cold]
    pub(crate) fn take_back(&mut self, mark: u64) {
        assert!(mark >= self.published, "the reader may have seen it");
        self.head = mark;
    }

    #[inline]
    fn has_room(&mut self, bytes: usize) -> Result<bool, Broken> {
        let limit = DATA_BYTES as u64;
        if self.head - self.tail + bytes as u64 <= limit {
            return Ok(true);
        }
        let tail = self.read_so_far();
        // A correct reader never moves backwards, and reads nothing that has not been published.
        if tail < self.tail || tail > self.published || !tail.is_multiple_of(CACHE_LINE as u64) {
            return Err(Broken);
        }
        self.tail = tail;
        Ok(self.head - self.tail + bytes as u64 <= limit)
    }

    /// Writes an invalid record header at the next position and publishes it.
    #[cfg(test)]
    pub(crate) fn corrupt(&mut self, nonsense: u64) {
        self.shared.word64(Shared::offset(self.head)).store(nonsense | 1 << 22, Ordering::Relaxed);
        self.shared.word64(HEAD_AT).store(self.head + CACHE_LINE as u64, Ordering::Release);
    }

    /// Returns the number of written bytes that have not been published to the reader yet.
    #[inline]
    pub(crate) fn unpublished(&self) -> u64 {
        self.head - self.published
    }

    /// Publishes everything written to the reader.
    #[inline]
    pub(crate) fn publish(&mut self) {
        if self.published != self.head {
            self.published = self.head;
            self.shared.word64(HEAD_AT).store(self.head, Ordering::Release);
        }
    }

    /// Returns whether the reader sleeps and must be woken; returns true only once for each time that the reader goes
    /// to sleep.
    #[inline]
    pub(crate) fn must_wake(&self) -> bool {
        // Either a reader that goes to sleep now sees the published records, or its sleeping flag is seen here.
        fence(Ordering::SeqCst);
        let sleeping = self.shared.word32(SLEEPING_AT);
        sleeping.load(Ordering::Relaxed) != 0 && sleeping.swap(0, Ordering::AcqRel) != 0
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.shared.set_state(State::Closed);
    }
}

/// A record that is being written.
pub(crate) struct Writer<'a> {
    shared: &'a Shared,
    at: usize,
    left: usize,
}

impl Pieces for Writer<'_> {
    /// Appends `bytes`.
    ///
    /// # Panics
    /// When the record has no space for them.
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.left, "a record was begun too short");
        // SAFETY: the record lies within the mapping, `put` stays within the record, and the mapping is never borrowed
        // as a slice. The reader does not access a record until it is published.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.shared.0.as_ptr().add(self.at), bytes.len()) };
        self.at += bytes.len();
        self.left -= bytes.len();
    }

    /// Appends `bytes`, whose memory may have been unmapped.
    ///
    /// # Errors
    /// When the memory is unmapped; the record must not be published then.
    ///
    /// # Panics
    /// As [`Self::put`].
    #[inline]
    fn fetch(&mut self, bytes: Foreign) -> Result<(), MemoryFault> {
        let len = bytes.len();
        assert!(len <= self.left, "a record was begun too short");
        // SAFETY: as in `put`, and the copy checks whether the source bytes are mapped.
        unsafe { bytes.copy_to_pointer(self.shared.0.as_ptr().add(self.at))? };
        self.at += len;
        self.left -= len;
        Ok(())
    }
}

/// The reading end of a ring.
#[derive(Debug)]
pub(crate) struct Consumer {
    shared: Shared,
    /// Total bytes read, and how many of them have been released to the writer.
    tail: u64,
    released: u64,
    /// Total bytes written, as last seen from the writer.
    head: u64,
}

/// A packet in the ring.
#[derive(Clone, Copy)]
pub(crate) struct Record<'a> {
    /// Bytes of the packet, which the other process may change at any time.
    pub(crate) bytes: Arrived<'a>,
    pub(crate) kind: Kind,
}

/// Header of a record: properties of its packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Kind {
    /// True when the packet ends with its check value, as a datagram does: an ICRC, or Falcon's check value.
    pub(crate) is_sealed: bool,
    /// IP header fields that the packet would have.
    pub(crate) marking: Marking,
}

impl Kind {
    pub(crate) const SEALED: Self = Self { is_sealed: true, marking: Marking::NONE };

    #[inline]
    fn bits(self) -> u64 {
        self.marking.bits() << MARKING_AT | if self.is_sealed { SEALED } else { 0 }
    }

    #[inline]
    fn of(header: u64) -> Self {
        let marking = Marking::of_bits(header >> MARKING_AT).unwrap_or_default();
        Self { is_sealed: header & SEALED != 0, marking }
    }
}

impl Consumer {
    /// Attaches to the ring in `file`, which another process has sent.
    pub(crate) fn attach(file: BorrowedFd<'_>) -> io::Result<Self> {
        if !unix::is_sealed_memory(file, FILE_BYTES) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let shared = Shared::map(file)?;
        shared.set_state(State::Attached);
        Ok(Self { shared, tail: 0, released: 0, head: 0 })
    }

    /// Returns whether the writer or this end has closed the ring.
    pub(crate) fn is_closed(&self) -> bool {
        self.shared.state() == State::Closed
    }

    /// Returns whether there is nothing to read.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.tail == self.head && self.shared.word64(HEAD_AT).load(Ordering::Acquire) == self.head
    }

    /// Returns whether everything has been read that was present when the write position was last loaded.
    #[inline]
    pub(crate) fn has_read_what_it_knows(&self) -> bool {
        self.tail == self.head
    }

    /// Returns the next packet. The previously returned packet counts as read, although the writer learns of it only
    /// through [`Consumer::release`].
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<Record<'_>>, Broken> {
        if self.tail == self.head {
            self.head = self.shared.word64(HEAD_AT).load(Ordering::Acquire);
        }
        // A skip record is followed by one that is not a skip.
        for _ in 0..2 {
            let there = self.head.wrapping_sub(self.tail);
            if there == 0 {
                return Ok(None);
            }
            if there > DATA_BYTES as u64 || !there.is_multiple_of(CACHE_LINE as u64) {
                return Err(Broken);
            }
            let at = Shared::offset(self.tail);
            let to_end = FILE_BYTES - at;
            let header = self.shared.word64(at).load(Ordering::Relaxed);
            if header == SKIP {
                if to_end as u64 > there {
                    return Err(Broken);
                }
                self.tail += to_end as u64;
                continue;
            }
            let len = (header & LEN_MASK) as usize;
            // A packet that is not sealed gets a check value when it is captured, and must still fit a datagram.
            // Falcon's check value is the longest.
            let kind = Kind::of(header);
            let longest = PACKET_BYTES_MAX - if kind.is_sealed { 0 } else { psp::ICV_LEN };
            let bytes = record_bytes(len.min(longest));
            if header != kind.bits() | len as u64 || len > longest || bytes > to_end || bytes as u64 > there {
                return Err(Broken);
            }
            self.tail += bytes as u64;
            // SAFETY: the record has been checked to lie within the mapping, which lives as long as `self`.
            let bytes = unsafe { Arrived::shared(self.shared.0.as_ptr().add(at + RECORD_HEADER_BYTES), len) };
            return Ok(Some(Record { bytes, kind }));
        }
        Err(Broken)
    }

    /// Returns the number of bytes read but not yet released to the writer.
    #[inline]
    pub(crate) fn unreleased(&self) -> u64 {
        self.tail - self.released
    }

    /// Releases the space of read records to the writer.
    #[inline]
    pub(crate) fn release(&mut self) {
        if self.released != self.tail {
            self.released = self.tail;
            self.shared.word64(TAIL_AT).store(self.tail, Ordering::Release);
        }
    }

    /// Sets whether this end must be woken when packets arrive.
    pub(crate) fn set_sleeping(&self, sleeping: bool) {
        self.shared.word32(SLEEPING_AT).store(sleeping.into(), Ordering::SeqCst);
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.shared.set_state(State::Closed);
    }
}

/// Returns the number of bytes that a packet of `len` bytes occupies in a ring.
pub(crate) const fn record_bytes(len: usize) -> usize {
    (RECORD_HEADER_BYTES + len).next_multiple_of(CACHE_LINE)
}

const CACHE_LINE: usize = 64;
const STATE_AT: usize = 0;
const HEAD_AT: usize = CACHE_LINE;
const TAIL_AT: usize = 2 * CACHE_LINE;
const SLEEPING_AT: usize = 3 * CACHE_LINE;
/// Offset of the records: they start on their own page.
const DATA_AT: usize = 4_096;

/// Capacity of a ring for packets, in bytes: enough to keep both ends busy, small enough to stay in a second-level
/// cache.
pub(crate) const DATA_BYTES: usize = 1 << 20;
const FILE_BYTES: usize = DATA_AT + DATA_BYTES;

/// Longest packet, in bytes: that of a datagram.
pub(crate) const PACKET_BYTES_MAX: usize = rnic_wire::net::UDP_PAYLOAD_MAX as usize;

/// Bytes of a record's header: the length in the low bits, then kind and marking.
const RECORD_HEADER_BYTES: usize = 8;
const LEN_MASK: u64 = (1 << 20) - 1;
const SEALED: u64 = 1 << 20;
/// Header of a skip record, which is not a packet: the next record is at the front of the ring.
const SKIP: u64 = 1 << 21;
const MARKING_AT: u32 = u64::BITS - marking::BITS;

const _: () = assert!(SKIP < 1 << MARKING_AT && PACKET_BYTES_MAX as u64 <= LEN_MASK);

#[cfg(test)]
#[path = "ring/tests.rs"]
mod tests;
