//! Registered memory: translation of the engine's addresses.
//!
//! The engine uses *local* addresses. Here such an address is a slot number and an offset, and every use of one is
//! checked against the slot's length: a bug in the engine, or a peer that exploits one, ends in a panic and not in an
//! access to other memory.
//!
//! Memory that [`crate::Verbs::register`] creates belongs to the NIC; a program accesses it through the NIC, so the
//! borrow checker ensures that the program does not read it while packets are placed. Memory that is adopted in place
//! ([`crate::Verbs::register_raw`]) belongs to the program, which has promised what is mapped there; when it is
//! unmapped all the same, only the access to it fails ([`guard`]).

mod guard;
pub(crate) mod kept;
#[cfg(target_arch = "x86_64")]
mod signals;

use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::{self, NonNull};

use rnic_base::Time;
use rnic_base::limits::MESSAGE_BYTES_MAX;
use rnic_engine::{Dma, Key, MemoryFault, RemoteMemory, Segment, Sge};

use crate::grh::{self, Grh};

pub(crate) use guard::Foreign;

/// A registered buffer: addresses and key. The bytes are at [`crate::Nic::bytes`].
///
/// The buffer exists until it is deregistered or its NIC is dropped, not until this handle is.
#[derive(Debug)]
pub struct Region {
    pub(crate) slot: u32,
    pub(crate) key: Key,
    pub(crate) addr: u64,
    pub(crate) len: usize,
}

impl Region {
    /// Returns the virtual address of the first byte, as work requests and peers name it.
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// Returns the length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "no region is empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the key that grants access: lkey and rkey.
    pub fn key(&self) -> Key {
        self.key
    }

    /// Returns a scatter/gather entry of `len` bytes at `offset`. An entry out of range is reported in the completion,
    /// as in verbs.
    pub fn sge(&self, offset: usize, len: u32) -> Sge {
        Sge { addr: self.addr.wrapping_add(offset as u64), len, lkey: self.key.0 }
    }

    /// Returns the memory from `offset` on, as a peer names it.
    pub fn remote(&self, offset: usize) -> RemoteMemory {
        RemoteMemory { addr: self.addr.wrapping_add(offset as u64), rkey: self.key.0 }
    }
}

/// A range of registered bytes.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    len: usize,
    /// True when the bytes are unmapped with this value.
    owned: bool,
}

// SAFETY: the memory is accessed through `Memory` only, whose methods borrow it as a `Vec` would; adopted memory may be
// used from any thread, which is part of what its owner promises.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Allocates zeroed pages.
    fn allocate(len: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new anonymous mapping affects no existing memory.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len, owned: true })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: `allocate` created exactly this mapping, and there is no reference to it: references borrow from
            // `Memory`.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
        }
    }
}

/// All registered buffers, by slot.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    slots: Vec<Option<Mapping>>,
    free: Vec<u32>,
    /// First of the slots that cover all memory of the process; these slots are never released.
    everything: Option<u32>,
    /// Set once a buffer that belongs to the program has been adopted, which may be unmapped.
    has_adopted: bool,
    /// Offset of the NIC's clock, in the time of the signal handling.
    epoch_ps: u64,
}

impl Memory {
    /// Creates an empty table, for a NIC whose clock starts now.
    pub(crate) fn new() -> Self {
        Self { epoch_ps: started(), ..Self::default() }
    }

    /// Allocates a page-aligned buffer of zeros; returns its slot.
    pub(crate) fn allocate(&mut self, len: usize) -> io::Result<u32> {
        if len == 0 || len as u64 > REGION_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a region has 1 byte to 1 TiB"));
        }
        Ok(self.insert(Mapping::allocate(len)?))
    }

    /// Registers a buffer that belongs to the program; returns its slot.
    ///
    /// # Safety
    /// `start` leads to `len` bytes, at least 1 and less than 2^40, that until the slot is released are used only for
    /// this buffer or not at all: memory that is mapped there, if any, may be read and written.
    pub(crate) unsafe fn adopt(&mut self, start: NonNull<u8>, len: usize) -> u32 {
        self.has_adopted = true;
        look_after_once();
        self.insert(Mapping { start, len, owned: false })
    }

    fn insert(&mut self, mapping: Mapping) -> u32 {
        match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(mapping);
                slot
            }
            None => {
                self.slots.push(Some(mapping));
                self.slots.len() as u32 - 1
            }
        }
    }

    /// Returns the first of the consecutive slots that together are [`EVERYTHING`]. Each overlaps the next by the size
    /// of a message, so that an access that starts in one also ends in it.
    pub(crate) fn everything(&mut self) -> u32 {
        if let Some(first) = self.everything {
            return first;
        }
        self.has_adopted = true;
        look_after_once();
        let first = self.slots.len() as u32;
        for start in EVERYTHING.step_by(1 << OFFSET_BITS) {
            let start = NonNull::new(ptr::without_provenance_mut(start as usize)).expect("not the first page");
            self.slots.push(Some(Mapping {
                start,
                len: (1 << OFFSET_BITS) + MESSAGE_BYTES_MAX as usize,
                owned: false,
            }));
        }
        self.everything = Some(first);
        first
    }

    /// Removes a buffer; one that was allocated here is unmapped.
    pub(crate) fn release(&mut self, slot: u32) {
        if self.everything == Some(slot) {
            return;
        }
        if self.slots.get_mut(slot as usize).and_then(Option::take).is_some() {
            self.free.push(slot);
        }
    }

    /// Returns the local address of the first byte of `slot`.
    pub(crate) fn local(slot: u32) -> u64 {
        u64::from(slot) << OFFSET_BITS
    }

    /// Returns the real address of the first byte of `slot`.
    pub(crate) fn address(&self, slot: u32) -> u64 {
        self.mapping(slot).start.as_ptr() as u64
    }

    /// Checks that a region belongs to this memory.
    ///
    /// # Panics
    /// When it belongs to another NIC, or is deregistered.
    pub(crate) fn check_owner(&self, region: &Region) {
        let len = self.slots.get(region.slot as usize).and_then(|slot| slot.as_ref()).map(|mapping| mapping.len);
        assert_eq!(len, Some(region.len), "a region of another NIC, or one that is gone");
    }

    /// Returns the bytes of a region of this memory.
    ///
    /// # Panics
    /// When it belongs to another NIC, or is deregistered.
    pub(crate) fn region(&self, region: &Region) -> &[u8] {
        self.check_owner(region);
        self.bytes(region.slot)
    }

    /// Returns mutable access to the bytes of a region of this memory.
    ///
    /// # Panics
    /// When it belongs to another NIC, or is deregistered.
    pub(crate) fn region_mut(&mut self, region: &Region) -> &mut [u8] {
        self.check_owner(region);
        self.bytes_mut(region.slot)
    }

    pub(crate) fn bytes(&self, slot: u32) -> &[u8] {
        let mapping = self.mapping(slot);
        // SAFETY: the mapping is `len` readable bytes, borrowed from `self`: nothing writes to it meanwhile.
        unsafe { std::slice::from_raw_parts(mapping.start.as_ptr(), mapping.len) }
    }

    pub(crate) fn bytes_mut(&mut self, slot: u32) -> &mut [u8] {
        let mapping = self.mapping(slot);
        // SAFETY: the mapping is `len` readable and writable bytes, and is borrowed mutably through `self`.
        unsafe { std::slice::from_raw_parts_mut(mapping.start.as_ptr(), mapping.len) }
    }

    /// Returns the bytes of a segment that is to be sent.
    #[inline]
    pub(crate) fn gather(&self, segment: Segment) -> Foreign {
        let len = segment.len as usize;
        Foreign::new(self.start_of(segment.local, len), len)
    }

    /// Prepares the calling thread, which is about to access registered memory, for memory that is unmapped.
    #[inline]
    pub(crate) fn look_after(&self, now: Time) {
        if self.has_adopted {
            look_after(self.epoch_ps.wrapping_add(now.as_ps()));
        }
    }

    /// Copies bytes of a packet to their target.
    #[inline]
    fn place(&mut self, target: Segment, bytes: Arrived<'_>) -> Result<(), MemoryFault> {
        let start = self.start_of(target.local, bytes.len());
        // SAFETY: `start_of` has checked that this many bytes there belong to a mapping; neither a receive buffer nor a
        // ring is ever registered memory, so they do not overlap, and both stay.
        unsafe { guard::copy_into(start, bytes.start, bytes.len) }
    }

    /// Changes eight bytes and returns their previous value; atomic for other threads when the bytes are aligned.
    fn change_word(&mut self, local: u64, change: impl Fn(u64) -> Option<u64>) -> Result<u64, MemoryFault> {
        guard::change_word(self.start_of(local, size_of::<u64>()), change)
    }

    /// Returns the pointer to `len` bytes at a local address.
    ///
    /// # Panics
    /// When they are not all within one buffer: the engine has checked that they are.
    #[inline]
    fn start_of(&self, local: u64, len: usize) -> *mut u8 {
        let (slot, offset) = (local >> OFFSET_BITS, (local & OFFSET_MASK) as usize);
        let mapping = self.mapping(slot as u32);
        assert!(
            offset <= mapping.len && len <= mapping.len - offset,
            "{len} bytes at {local:#x} are not in their region"
        );
        // SAFETY: `offset` is at most the length of the mapping.
        unsafe { mapping.start.as_ptr().add(offset) }
    }

    #[inline]
    fn mapping(&self, slot: u32) -> &Mapping {
        self.slots[slot as usize].as_ref().expect("a region lives as long as its key")
    }
}

/// Fills `to` from memory of a program to which a request points, and which may not be mapped.
///
/// # Errors
/// When some of it is not mapped; `to` then contains some of the rest.
///
/// # Safety
/// Memory that is mapped there may be read, and does not overlap `to`.
pub unsafe fn copy_from_program(from: *const u8, to: &mut [u8]) -> Result<(), MemoryFault> {
    look_after_once();
    Foreign::new(from, to.len()).copy_to(to)
}

/// Destination of a packet that is written piece by piece: some pieces from the NIC, some from a program's memory.
pub(crate) trait Pieces {
    /// Appends bytes of the NIC's own memory.
    fn put(&mut self, bytes: &[u8]);

    /// Appends bytes of a program's memory.
    ///
    /// # Errors
    /// When they are unmapped.
    fn fetch(&mut self, bytes: Foreign) -> Result<(), MemoryFault>;
}

impl Pieces for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn fetch(&mut self, bytes: Foreign) -> Result<(), MemoryFault> {
        let at = self.len();
        self.resize(at + bytes.len(), 0);
        bytes.copy_to(&mut self[at..])
    }
}

/// Copies a received packet into memory.
pub(crate) struct Placement<'a> {
    pub(crate) memory: &'a mut Memory,
    /// Global route header of a datagram, which counts as the beginning of its payload.
    pub(crate) grh: Option<&'a Grh>,
    pub(crate) payload: Arrived<'a>,
    /// Storage for Falcon payload that has arrived out of order; the RoCE family needs none.
    pub(crate) kept: Option<&'a mut Kept>,
}

/// Received bytes. Those in memory to which another process can write may change at any time, so they are never
/// inspected, only copied; a change affects only the data of their sender.
#[derive(Clone, Copy)]
pub(crate) struct Arrived<'a> {
    start: *const u8,
    len: usize,
    of: PhantomData<&'a [u8]>,
}

impl<'a> Arrived<'a> {
    /// Creates a value for `len` bytes at `start`.
    ///
    /// # Safety
    /// This many bytes can be read there as long as `'a` lasts.
    pub(crate) unsafe fn shared(start: *const u8, len: usize) -> Self {
        Self { start, len, of: PhantomData }
    }

    /// Returns the bytes in `range`.
    ///
    /// # Panics
    /// When `range` is out of bounds.
    #[inline]
    pub(crate) fn slice(self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {} bytes that arrived", self.len);
        // SAFETY: `range` is within bounds.
        Self { start: unsafe { self.start.add(range.start) }, len: range.len(), of: PhantomData }
    }

    /// Returns the number of bytes.
    pub(crate) fn len(self) -> usize {
        self.len
    }

    /// Copies its front to `to`, as much as fits there.
    #[inline]
    pub(crate) fn copy_front(self, to: &mut [u8]) -> &[u8] {
        let len = self.len.min(to.len());
        // SAFETY: `to` has space for this many bytes, and its mutable borrow is exclusive.
        unsafe { self.slice(0..len).copy_to(to.as_mut_ptr()) };
        &to[..len]
    }

    /// Returns a copy of the bytes.
    pub(crate) fn to_vec(self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        self.copy_front(&mut bytes);
        bytes
    }

    /// Copies all bytes.
    ///
    /// # Safety
    /// This many bytes can be written at `to`, and they do not overlap these.
    #[inline]
    pub(crate) unsafe fn copy_to(self, to: *mut u8) {
        // SAFETY: the creator of this value has promised that the bytes can be read; the rest is the caller's promise.
        unsafe { ptr::copy_nonoverlapping(self.start, to, self.len) };
    }
}

impl<'a> From<&'a [u8]> for Arrived<'a> {
    #[inline]
    fn from(bytes: &'a [u8]) -> Self {
        Self { start: bytes.as_ptr(), len: bytes.len(), of: PhantomData }
    }
}

impl Dma for Placement<'_> {
    #[inline]
    fn place(&mut self, offset: u32, target: Segment) -> Result<(), MemoryFault> {
        let (from, len) = (offset as usize, target.len as usize);
        let Some(grh) = self.grh else {
            return self.memory.place(target, self.payload.slice(from..from + len));
        };
        let of_grh = grh.len().saturating_sub(from).min(len);
        if of_grh > 0 {
            self.memory.place(target, grh[from..from + of_grh].into())?;
        }
        if of_grh < len {
            let target = Segment { local: target.local + of_grh as u64, len: (len - of_grh) as u32 };
            let from = from + of_grh - grh.len();
            self.memory.place(target, self.payload.slice(from..from + len - of_grh))?;
        }
        Ok(())
    }

    fn has_ipv4_header(&self) -> bool {
        self.grh.is_some_and(grh::is_ipv4)
    }

    fn keep(&mut self, handle: u64) {
        self.kept.as_mut().expect(KEPT_BY_FALCON).keep(handle, self.payload);
    }

    fn place_kept(&mut self, handle: u64, offset: u32, target: Segment) -> Result<(), MemoryFault> {
        let bytes = self.kept.as_ref().expect(KEPT_BY_FALCON).get(handle);
        let from = offset as usize;
        self.memory.place(target, bytes[from..from + target.len as usize].into())
    }

    fn release(&mut self, handle: u64) {
        self.kept.as_mut().expect(KEPT_BY_FALCON).release(handle);
    }

    fn store(&mut self, local: u64, value: u64) -> Result<(), MemoryFault> {
        self.memory.change_word(local, |_| Some(value)).map(drop)
    }

    fn compare_swap(&mut self, local: u64, compare: u64, swap: u64) -> Result<u64, MemoryFault> {
        self.memory.change_word(local, |word| (word == compare).then_some(swap))
    }

    fn fetch_add(&mut self, local: u64, add: u64) -> Result<u64, MemoryFault> {
        self.memory.change_word(local, |word| Some(word.wrapping_add(add)))
    }
}

#[cfg(target_arch = "x86_64")]
use kept::Kept;
use signals::{look_after, look_after_once, started};

/// Faults are not intercepted on this processor: the kernel copies.
#[cfg(not(target_arch = "x86_64"))]
fn look_after(_: u64) {}

#[cfg(not(target_arch = "x86_64"))]
fn look_after_once() {}

#[cfg(not(target_arch = "x86_64"))]
fn started() -> u64 {
    0
}

const KEPT_BY_FALCON: &str = "payload is kept by Falcon's door alone";

/// All addresses at which a process can have memory, except the first page, which contains the null pointer.
pub(crate) const EVERYTHING: Range<u64> = 4_096..1 << 47;

/// A local address has a slot in the high bits and an offset below: 24 bits of slots match the engine's number of keys.
const OFFSET_BITS: u32 = 40;
const OFFSET_MASK: u64 = (1 << OFFSET_BITS) - 1;

/// Maximum bytes of a region: the range of an offset, less one so that the end can be addressed too.
pub(crate) const REGION_BYTES_MAX: u64 = OFFSET_MASK;

const _: () = assert!(rnic_base::limits::MEMORY_REGIONS_MAX as u64 <= 1 << (64 - OFFSET_BITS));

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(len: usize) -> (Memory, u64) {
        let mut memory = Memory::default();
        let slot = memory.allocate(len).expect("a few bytes");
        (memory, Memory::local(slot))
    }

    #[test]
    fn buffers_begin_on_a_page_and_are_zero() {
        let mut memory = Memory::default();
        let (first, second) = (memory.allocate(10).expect("10 bytes"), memory.allocate(5_000).expect("5000 bytes"));
        for (slot, len) in [(first, 10), (second, 5_000)] {
            assert_eq!(memory.address(slot) % 4_096, 0);
            assert_eq!(memory.bytes(slot), vec![0; len]);
        }
        memory.release(first);
        assert_eq!(memory.allocate(7).expect("7 bytes"), first, "slots are used again");
        assert!(memory.allocate(0).is_err());
        assert!(memory.allocate(usize::MAX).is_err());
    }

    #[test]
    fn what_is_placed_is_gathered() {
        let (mut memory, local) = memory(100);
        let mut placement = Placement { memory: &mut memory, grh: None, payload: b"abcdefgh"[..].into(), kept: None };
        placement.place(2, Segment { local: local + 97, len: 3 }).expect("our own memory");
        placement.store(local + 8, 0x1122_3344_5566_7788).expect("our own memory");
        let mut gathered = [0xee; 4];
        memory.gather(Segment { local: local + 96, len: 4 }).copy_to(&mut gathered).expect("our own memory");
        assert_eq!(&gathered, b"\0cde");
        assert_eq!(memory.bytes(0)[8..16], 0x1122_3344_5566_7788_u64.to_ne_bytes());
    }

    #[test]
    fn a_route_header_counts_as_the_beginning_of_the_payload() {
        let grh: Grh = std::array::from_fn(|at| at as u8);
        for (offset, len) in [(0, 48), (0, 40), (0, 8), (36, 8), (40, 8), (44, 4)] {
            let (mut memory, local) = memory(100);
            let mut placement =
                Placement { memory: &mut memory, grh: Some(&grh), payload: b"abcdefgh"[..].into(), kept: None };
            placement.place(offset, Segment { local, len }).expect("our own memory");
            let all: Vec<u8> = grh.iter().chain(b"abcdefgh").copied().collect();
            let (from, len) = (offset as usize, len as usize);
            assert_eq!(memory.bytes(0)[..len], all[from..from + len], "{len} bytes from {offset}");
            assert_eq!(memory.bytes(0)[len..], vec![0; 100 - len]);
        }
    }

    #[test]
    fn atomics_change_words_aligned_or_not() {
        for at in [8, 13] {
            let (mut memory, local) = memory(64);
            let mut placement = Placement { memory: &mut memory, grh: None, payload: [][..].into(), kept: None };
            assert_eq!(placement.fetch_add(local + at, 5), Ok(0));
            assert_eq!(placement.fetch_add(local + at, u64::MAX), Ok(5), "wraps");
            assert_eq!(placement.compare_swap(local + at, 3, 9), Ok(4), "differs: stays");
            assert_eq!(placement.compare_swap(local + at, 4, 9), Ok(4));
            assert_eq!(placement.fetch_add(local + at, 0), Ok(9));
        }
    }

    #[test]
    #[should_panic(expected = "not in their region")]
    fn an_address_beyond_the_region_is_our_bug() {
        let (memory, local) = memory(100);
        memory.gather(Segment { local: local + 98, len: 3 });
    }

    #[test]
    #[should_panic(expected = "lives as long as its key")]
    fn a_region_that_is_gone_is_our_bug() {
        let (mut memory, local) = memory(100);
        memory.release(0);
        memory.gather(Segment { local, len: 1 });
    }

    #[test]
    fn adopted_memory_is_used_in_place() {
        let mut own = vec![7u8; 16];
        let mut memory = Memory::default();
        let start = NonNull::new(own.as_mut_ptr()).expect("a vector's pointer");
        // SAFETY: `own` outlives `memory` and is not touched meanwhile.
        let slot = unsafe { memory.adopt(start, own.len()) };
        let target = Segment { local: Memory::local(slot) + 1, len: 2 };
        memory.place(target, [1, 2][..].into()).expect("it is there");
        memory.release(slot);
        drop(memory);
        assert_eq!(own[..4], [7, 1, 2, 7]);
    }
}
