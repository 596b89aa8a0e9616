//! A ring of packets in memory that two processes share: one writes, the other reads.
//!
//! ```text
//!   page 0     state | head (bytes ever written) | tail (bytes ever read) | sleeping | stamp | stamped position
//!              each on its own cache line
//!   page 1..   records, each on its own cache lines: length, kind and IP fields (8 bytes), then the packet
//! ```
//!
//! A record is never split: if it does not fit before the end of the ring, it is written at the front, and a record
//! that marks the skip is written before the end.
//!
//! On request the writer stamps records with the time of their publication, one at a time: the stamp is that of the
//! record at the stamped position, and 0 when the reader has taken it and the next record is to be stamped.
//!
//! No value that the other process writes is trusted: positions and lengths are read once and checked before they are
//! used; packets are copied out before they are parsed, and payload is copied without being inspected. The memory is
//! a sealed `memfd`, so that the other process cannot shrink it while it is in use (memfd_create(2), fcntl(2)). After
//! any invalid value the ring is no longer used, and packets are sent in another way.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use rnic_engine::MemoryFault;
use rnic_wire::falcon::psp;

use crate::ip_fields::{self, PackedIpFields};
use crate::memory::{Arrived, Pieces, ProgramBytes};
use crate::sys::{self, unix};

/// Error: the other process has written invalid values into the ring.
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

// SAFETY: this value is the only owner of the mapping, whose contents are accessed only through atomics and copies.
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
        // SAFETY: this is an aligned word within the mapping, which lives as long as `self`, and the word is accessed
        // only by atomic operations.
        unsafe { AtomicU32::from_ptr(self.0.as_ptr().add(at).cast()) }
    }

    #[inline]
    fn word64(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(CACHE_LINE) && at < FILE_BYTES);
        // SAFETY: this is an aligned word within the mapping, which lives as long as `self`, and the word is accessed
        // only by atomic operations.
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
    /// Total number of bytes written to the ring, and the number of bytes published to the reader.
    head: u64,
    published: u64,
    /// Total number of bytes read, as last loaded from the shared memory.
    tail: u64,
    /// True to stamp records.
    stamps: bool,
}

impl Producer {
    /// Creates a ring that has no reader yet.
    pub(crate) fn create() -> io::Result<Self> {
        let file = unix::sealed_memory(c"rnic-wire", FILE_BYTES)?;
        let shared = Shared::map(file.as_fd())?;
        Ok(Self { shared, file, head: 0, published: 0, tail: 0, stamps: false })
    }

    /// Starts writing the time of publication into records, one at a time.
    pub(crate) fn stamp_records(&mut self) {
        self.stamps = true;
    }

    /// Returns the memory's file descriptor, which the reader needs to attach the ring.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    #[inline]
    pub(crate) fn state(&self) -> State {
        self.shared.state()
    }

    /// Returns the total number of bytes that the reader has released.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.shared.word64(TAIL_AT).load(Ordering::Acquire)
    }

    /// Returns `true` if the reader has read and released all records.
    pub(crate) fn is_drained(&self) -> bool {
        self.bytes_read() == self.head
    }

    /// Begins a record of `len` bytes; returns `None` if there is no space.
    #[inline]
    pub(crate) fn begin(&mut self, len: usize, kind: RecordKind) -> Result<Option<Writer<'_>>, Broken> {
        assert!(len <= PACKET_BYTES_MAX, "no packet has {len} bytes");
        let bytes = record_bytes(len);
        let to_end = DATA_BYTES - (self.head % DATA_BYTES as u64) as usize;
        let skipped = if bytes > to_end { to_end } else { 0 };
        if !self.has_room(bytes + skipped)? {
            return Ok(None);
        }
        if skipped > 0 {
            let header = self.shared.word64(Shared::offset(self.head));
            header.store(SKIP, Ordering::Relaxed);
            self.head += skipped as u64;
        }
        let at = Shared::offset(self.head);
        self.shared.word64(at).store(kind.bits() | len as u64, Ordering::Relaxed);
        self.head += bytes as u64;
        Ok(Some(Writer { shared: &self.shared, at: at + RECORD_HEADER_BYTES, left: len }))
    }

    /// Returns the current write position, to which [`Self::rewind`] can return.
    #[inline]
    pub(crate) fn mark(&self) -> u64 {
        self.head
    }

    /// Discards the records begun since `mark`, none of which may have been published.
    #[cold]
    pub(crate) fn rewind(&mut self, mark: u64) {
        assert!(mark >= self.published, "the record has been published");
        self.head = mark;
    }

    #[inline]
    fn has_room(&mut self, bytes: usize) -> Result<bool, Broken> {
        let limit = DATA_BYTES as u64;
        if self.head - self.tail + bytes as u64 <= limit {
            return Ok(true);
        }
        let tail = self.bytes_read();
        // A correct reader never moves backwards, and never beyond the published records.
        if tail < self.tail || tail > self.published || !tail.is_multiple_of(CACHE_LINE as u64) {
            return Err(Broken);
        }
        self.tail = tail;
        Ok(self.head - self.tail + bytes as u64 <= limit)
    }

    /// Writes an invalid record header at the next position and publishes it.
    #[cfg(test)]
    pub(crate) fn corrupt(&mut self, bits: u64) {
        self.shared.word64(Shared::offset(self.head)).store(bits | 1 << 22, Ordering::Relaxed);
        self.shared.word64(HEAD_AT).store(self.head + CACHE_LINE as u64, Ordering::Release);
    }

    /// Returns the number of written bytes that have not been published to the reader yet.
    #[inline]
    pub(crate) fn unpublished(&self) -> u64 {
        self.head - self.published
    }

    /// Publishes all written records to the reader.
    #[inline]
    pub(crate) fn publish(&mut self) {
        if self.published != self.head {
            if self.stamps {
                self.stamp();
            }
            self.published = self.head;
            self.shared.word64(HEAD_AT).store(self.head, Ordering::Release);
        }
    }

    /// Writes the time into the record that is published next, unless the reader has not read the previous one.
    #[cold]
    fn stamp(&self) {
        let stamp = self.shared.word64(STAMP_AT);
        if stamp.load(Ordering::Relaxed) == 0 {
            self.shared.word64(STAMPED_AT).store(self.published, Ordering::Relaxed);
            stamp.store(sys::monotonic_ns().max(1), Ordering::Release);
        }
    }

    /// Returns `true` if the reader sleeps and must be woken; `true` is returned only once each time the reader goes
    /// to sleep.
    #[inline]
    pub(crate) fn must_wake(&self) -> bool {
        // A reader that is going to sleep either sees the published records, or its sleeping flag is seen here.
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
    /// If the record has no space for them.
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.left, "the record is too short");
        // SAFETY: the record lies within the mapping, `put` stays within the record, and the mapping is never borrowed
        // as a slice. The reader does not access a record until it is published.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.shared.0.as_ptr().add(self.at), bytes.len()) };
        self.at += bytes.len();
        self.left -= bytes.len();
    }

    /// Appends `bytes`, whose memory may have been unmapped.
    ///
    /// # Errors
    /// Returns an error if the memory is unmapped; the record must not be published then.
    ///
    /// # Panics
    /// See [`Self::put`].
    #[inline]
    fn fetch(&mut self, bytes: ProgramBytes) -> Result<(), MemoryFault> {
        let len = bytes.len();
        assert!(len <= self.left, "the record is too short");
        // SAFETY: as in `put`; in addition, the copy checks whether the source bytes are mapped.
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
    /// Total number of bytes read from the ring, and the number of bytes released to the writer.
    tail: u64,
    released: u64,
    /// Total number of bytes written, as last loaded from the shared memory.
    head: u64,
}

/// A packet in the ring.
#[derive(Clone, Copy)]
pub(crate) struct Record<'a> {
    /// The packet's bytes, which the other process may change at any time.
    pub(crate) bytes: Arrived<'a>,
    pub(crate) kind: RecordKind,
}

/// Header of a record: properties of its packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RecordKind {
    /// True if the packet ends with its check value, as it would in a datagram: an ICRC, or Falcon's check value.
    pub(crate) is_sealed: bool,
    /// Fields that the packet's IP header would have.
    pub(crate) ip_fields: PackedIpFields,
}

impl RecordKind {
    pub(crate) const SEALED: Self = Self { is_sealed: true, ip_fields: PackedIpFields::NONE };

    #[inline]
    fn bits(self) -> u64 {
        self.ip_fields.bits() << IP_FIELDS_AT | if self.is_sealed { SEALED } else { 0 }
    }

    #[inline]
    fn of(header: u64) -> Self {
        let ip_fields = PackedIpFields::of_bits(header >> IP_FIELDS_AT).unwrap_or_default();
        Self { is_sealed: header & SEALED != 0, ip_fields }
    }
}

impl Consumer {
    /// Attaches to the ring in the memory `file`, which another process has sent.
    pub(crate) fn attach(file: BorrowedFd<'_>) -> io::Result<Self> {
        if !unix::is_sealed_memory(file, FILE_BYTES) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let shared = Shared::map(file)?;
        shared.set_state(State::Attached);
        Ok(Self { shared, tail: 0, released: 0, head: 0 })
    }

    /// Returns `true` if the writer or this end has closed the ring.
    pub(crate) fn is_closed(&self) -> bool {
        self.shared.state() == State::Closed
    }

    /// Returns `true` if there is no packet to read.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.tail == self.head && self.shared.word64(HEAD_AT).load(Ordering::Acquire) == self.head
    }

    /// Returns `true` if all packets have been read that were present when the write position was last loaded.
    #[inline]
    pub(crate) fn has_read_all_published(&self) -> bool {
        self.tail == self.head
    }

    /// Returns the next packet. The previously returned packet counts as read, but its space is released to the
    /// writer only by [`Consumer::release`].
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<Record<'_>>, Broken> {
        if self.tail == self.head {
            self.head = self.shared.word64(HEAD_AT).load(Ordering::Acquire);
        }
        // A skip record is never followed by another skip record.
        for _ in 0..2 {
            let available = self.head.wrapping_sub(self.tail);
            if available == 0 {
                return Ok(None);
            }
            if available > DATA_BYTES as u64 || !available.is_multiple_of(CACHE_LINE as u64) {
                return Err(Broken);
            }
            let at = Shared::offset(self.tail);
            let to_end = FILE_BYTES - at;
            let header = self.shared.word64(at).load(Ordering::Relaxed);
            if header == SKIP {
                if to_end as u64 > available {
                    return Err(Broken);
                }
                self.tail += to_end as u64;
                continue;
            }
            let len = (header & LEN_MASK) as usize;
            // A check value is appended to an unsealed packet when it is captured, and the result must still fit into
            // a datagram. Falcon's is the longest check value.
            let kind = RecordKind::of(header);
            let longest = PACKET_BYTES_MAX - if kind.is_sealed { 0 } else { psp::ICV_LEN };
            let bytes = record_bytes(len.min(longest));
            if header != kind.bits() | len as u64 || len > longest || bytes > to_end || bytes as u64 > available {
                return Err(Broken);
            }
            self.tail += bytes as u64;
            // SAFETY: the record has been checked to lie within the mapping, which lives as long as `self`.
            let bytes = unsafe { Arrived::shared(self.shared.0.as_ptr().add(at + RECORD_HEADER_BYTES), len) };
            return Ok(Some(Record { bytes, kind }));
        }
        Err(Broken)
    }

    /// Returns the time of publication, in nanoseconds of the monotonic clock, of a record that has been read, or, if
    /// `or_is_next`, that will be read next; the writer then writes the time into another record. Each time is returned
    /// once.
    pub(crate) fn take_stamp(&self, or_is_next: bool) -> Option<u64> {
        let word = self.shared.word64(STAMP_AT);
        let stamp = word.load(Ordering::Acquire);
        if stamp == 0 {
            return None;
        }
        let position = self.shared.word64(STAMPED_AT).load(Ordering::Relaxed);
        let is_reached = position < self.tail || or_is_next && position == self.tail;
        if is_reached {
            word.store(0, Ordering::Release);
        }
        is_reached.then_some(stamp)
    }

    /// Returns the number of bytes read but not yet released to the writer.
    #[inline]
    pub(crate) fn unreleased(&self) -> u64 {
        self.tail - self.released
    }

    /// Releases the space of the records read so far to the writer.
    #[inline]
    pub(crate) fn release(&mut self) {
        if self.released != self.tail {
            self.released = self.tail;
            self.shared.word64(TAIL_AT).store(self.tail, Ordering::Release);
        }
    }

    /// Sets whether the writer must wake this end when packets arrive.
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
const STAMP_AT: usize = 4 * CACHE_LINE;
const STAMPED_AT: usize = 5 * CACHE_LINE;
/// Offset of the records, which start on a separate page.
const DATA_AT: usize = 4_096;

/// Capacity of a ring for packets, in bytes: large enough to keep both ends busy, small enough to remain in a
/// second-level cache.
pub(crate) const DATA_BYTES: usize = 1 << 20;
const FILE_BYTES: usize = DATA_AT + DATA_BYTES;

/// Maximum length of a packet in bytes: that of a datagram.
pub(crate) const PACKET_BYTES_MAX: usize = rnic_wire::net::UDP_PAYLOAD_MAX as usize;

/// Length in bytes of a record's header, which contains the packet length in the low bits, then kind and IP fields.
const RECORD_HEADER_BYTES: usize = 8;
const LEN_MASK: u64 = (1 << 20) - 1;
const SEALED: u64 = 1 << 20;
/// Header of a skip record, which contains no packet: the next record is at the front of the ring.
const SKIP: u64 = 1 << 21;
const IP_FIELDS_AT: u32 = u64::BITS - ip_fields::BITS;

const _: () = assert!(SKIP < 1 << IP_FIELDS_AT && PACKET_BYTES_MAX as u64 <= LEN_MASK);

#[cfg(test)]
#[path = "ring/tests.rs"]
mod tests;
