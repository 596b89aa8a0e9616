//! Registered memory: translation of the engine's addresses.
//!
//! The engine uses *local* addresses. In this crate a local address consists of a slot number and an offset, and
//! every use of one is checked against the slot's length: a bug in the engine, or a peer that exploits one, causes a
//! panic and not an access to other memory.
//!
//! Memory that [`crate::Verbs::register`] creates belongs to the NIC; a program accesses it through the NIC, so the
//! borrow checker ensures that the program does not read it while payload is written to it. Memory that is adopted in
//! place ([`crate::Verbs::register_raw`]) belongs to the program, which has promised that it stays mapped; if the
//! program unmaps it nevertheless, only the access to it fails ([`guard`]).

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

pub(crate) use guard::ProgramBytes;

/// A registered buffer: its address, length and key. Its bytes are accessed with [`crate::Nic::bytes`].
///
/// The buffer exists until it is deregistered or its NIC is dropped; dropping this handle does not affect it.
#[derive(Debug)]
pub struct Region {
    pub(crate) slot: u32,
    pub(crate) key: Key,
    pub(crate) addr: u64,
    pub(crate) len: usize,
}

impl Region {
    /// Returns the virtual address of the first byte, as used in work requests and by peers.
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// Returns the length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "no region is empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the key that grants access to the buffer; it is both the lkey and the rkey.
    pub fn key(&self) -> Key {
        self.key
    }

    /// Returns a scatter/gather entry of `len` bytes at `offset`. If the entry is out of range, the completion
    /// reports an error, as in verbs.
    pub fn sge(&self, offset: usize, len: u32) -> Sge {
        Sge { addr: self.addr.wrapping_add(offset as u64), len, lkey: self.key.0 }
    }

    /// Returns the remote memory address of the byte at `offset`, as a peer specifies it.
    pub fn remote(&self, offset: usize) -> RemoteMemory {
        RemoteMemory { addr: self.addr.wrapping_add(offset as u64), rkey: self.key.0 }
    }
}

/// A range of registered bytes.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    len: usize,
    /// True when dropping this value unmaps the bytes.
    owned: bool,
}

// SAFETY: the memory is accessed through `Memory` only, whose methods borrow it as a `Vec` would; adopted memory may be
// used from any thread, which is part of what its owner promises.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Allocates pages filled with zeros.
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
    /// First of the slots that cover the complete address space of the process; these slots are never released.
    whole_process_slots: Option<u32>,
    /// True once memory that belongs to the program, and may therefore be unmapped, has been registered.
    has_adopted: bool,
    /// Difference between the NIC's clock and the time used by the signal handling.
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
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a memory region must have 1 byte to 1 TiB"));
        }
        Ok(self.insert(Mapping::allocate(len)?))
    }

    /// Registers a buffer that belongs to the program; returns its slot.
    ///
    /// # Safety
    /// `start` is the address of `len` bytes, at least 1 and less than 2^40. Until the slot is released, these
    /// addresses are used only for this buffer, or are unused: memory that is mapped there, if any, may be read and
    /// written.
    pub(crate) unsafe fn adopt(&mut self, start: NonNull<u8>, len: usize) -> u32 {
        self.has_adopted = true;
        ensure_handler_once();
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

    /// Returns the first of the consecutive slots that together cover [`ALL_ADDRESSES`]. Each overlaps the next by the
    /// maximum size of a message, so that an access that starts in one slot also ends in it.
    pub(crate) fn whole_process_slots(&mut self) -> u32 {
        if let Some(first) = self.whole_process_slots {
            return first;
        }
        self.has_adopted = true;
        ensure_handler_once();
        let first = self.slots.len() as u32;
        for start in ALL_ADDRESSES.step_by(1 << OFFSET_BITS) {
            let start = NonNull::new(ptr::without_provenance_mut(start as usize)).expect("not the first page");
            self.slots.push(Some(Mapping {
                start,
                len: (1 << OFFSET_BITS) + MESSAGE_BYTES_MAX as usize,
                owned: false,
            }));
        }
        self.whole_process_slots = Some(first);
        first
    }

    /// Removes a buffer, and unmaps it if it was allocated here.
    pub(crate) fn release(&mut self, slot: u32) {
        if self.whole_process_slots == Some(slot) {
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

    /// Returns the virtual address of the first byte of `slot`.
    pub(crate) fn address(&self, slot: u32) -> u64 {
        self.mapping(slot).start.as_ptr() as u64
    }

    /// Checks that a region belongs to this memory.
    ///
    /// # Panics
    /// When it belongs to another NIC, or is deregistered.
    pub(crate) fn check_owner(&self, region: &Region) {
        let len = self.slots.get(region.slot as usize).and_then(|slot| slot.as_ref()).map(|mapping| mapping.len);
        assert_eq!(len, Some(region.len), "the region is of another NIC or was removed");
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

    /// Returns the bytes of a segment, which is to be sent.
    #[inline]
    pub(crate) fn gather(&self, segment: Segment) -> ProgramBytes {
        let len = segment.len as usize;
        ProgramBytes::new(self.start_of(segment.local, len), len)
    }

    /// Prepares the calling thread, which is about to access registered memory, for faults on unmapped memory.
    #[inline]
    pub(crate) fn ensure_handler(&self, now: Time) {
        if self.has_adopted {
            ensure_handler(self.epoch_ps.wrapping_add(now.as_ps()));
        }
    }

    /// Copies payload bytes of a packet to their destination in registered memory.
    #[inline]
    fn place(&mut self, target: Segment, bytes: Arrived<'_>) -> Result<(), MemoryFault> {
        let start = self.start_of(target.local, bytes.len());
        // SAFETY: `start_of` has checked that this many bytes there belong to a mapping; neither a receive buffer nor a
        // ring is ever registered memory, so they do not overlap, and both stay.
        unsafe { guard::copy_into(start, bytes.start, bytes.len) }
    }

    /// Changes eight bytes and returns their previous value. If the bytes are aligned, the change is atomic with
    /// respect to other threads.
    fn update_word(&mut self, local: u64, change: impl Fn(u64) -> Option<u64>) -> Result<u64, MemoryFault> {
        guard::update_word(self.start_of(local, size_of::<u64>()), change)
    }

    /// Returns the pointer to `len` bytes at a local address.
    ///
    /// # Panics
    /// When the bytes are not all within one buffer; the engine has checked that they are.
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

/// Fills `to` from memory of a program that a request refers to and that may be unmapped.
///
/// # Errors
/// When some of the memory is unmapped; `to` then contains some of the bytes that are mapped.
///
/// # Safety
/// The memory that is mapped there may be read, and does not overlap `to`.
pub unsafe fn copy_from_program(from: *const u8, to: &mut [u8]) -> Result<(), MemoryFault> {
    ensure_handler_once();
    ProgramBytes::new(from, to.len()).copy_to(to)
}

/// Destination of a packet that is written in pieces, from memory of the NIC and memory of a program.
pub(crate) trait Pieces {
    /// Appends bytes of the NIC's own memory.
    fn put(&mut self, bytes: &[u8]);

    /// Appends bytes of a program's memory.
    ///
    /// # Errors
    /// When they are unmapped.
    fn fetch(&mut self, bytes: ProgramBytes) -> Result<(), MemoryFault>;
}

impl Pieces for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn fetch(&mut self, bytes: ProgramBytes) -> Result<(), MemoryFault> {
        let at = self.len();
        self.resize(at + bytes.len(), 0);
        bytes.copy_to(&mut self[at..])
    }
}

/// Copies the payload of a received packet into registered memory.
pub(crate) struct Placement<'a> {
    pub(crate) memory: &'a mut Memory,
    /// Global route header of a datagram; it is stored before the payload, as part of it.
    pub(crate) grh: Option<&'a Grh>,
    pub(crate) payload: Arrived<'a>,
    /// Storage for Falcon payload that has arrived out of order; the RoCE family does not need it.
    pub(crate) kept: Option<&'a mut KeptPayloads>,
}

/// Received bytes. They may be in memory that another process can change at any time, so they are only copied and
/// never inspected in place; a change affects only the data of the packet's sender.
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
    /// This many bytes can be read there for the lifetime `'a`.
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

    /// Copies the first bytes to `to`, as many as fit into it.
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
        self.memory.update_word(local, |_| Some(value)).map(drop)
    }

    fn compare_swap(&mut self, local: u64, compare: u64, swap: u64) -> Result<u64, MemoryFault> {
        self.memory.update_word(local, |word| (word == compare).then_some(swap))
    }

    fn fetch_add(&mut self, local: u64, add: u64) -> Result<u64, MemoryFault> {
        self.memory.update_word(local, |word| Some(word.wrapping_add(add)))
    }
}

#[cfg(target_arch = "x86_64")]
use kept::KeptPayloads;
use signals::{ensure_handler, ensure_handler_once, started};

/// Faults are not intercepted on this processor, so the kernel copies the data.
#[cfg(not(target_arch = "x86_64"))]
fn ensure_handler(_: u64) {}

#[cfg(not(target_arch = "x86_64"))]
fn ensure_handler_once() {}

#[cfg(not(target_arch = "x86_64"))]
fn started() -> u64 {
    0
}

const KEPT_BY_FALCON: &str = "payload is kept by Falcon's door alone";

/// All addresses at which a process can have memory, except the first page, to which the null pointer points.
pub(crate) const ALL_ADDRESSES: Range<u64> = 4_096..1 << 47;

/// Number of offset bits of a local address: the slot number is in the bits above. 24 bits for the slot number match
/// the maximum number of keys in the engine.
const OFFSET_BITS: u32 = 40;
const OFFSET_MASK: u64 = (1 << OFFSET_BITS) - 1;

/// Maximum length of a region in bytes: one less than the range of an offset, so that the end of the region can be
/// addressed too.
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
    fn buffers_are_page_aligned_and_zeroed() {
        let mut memory = Memory::default();
        let (first, second) = (memory.allocate(10).expect("10 bytes"), memory.allocate(5_000).expect("5000 bytes"));
        for (slot, len) in [(first, 10), (second, 5_000)] {
            assert_eq!(memory.address(slot) % 4_096, 0);
            assert_eq!(memory.bytes(slot), vec![0; len]);
        }
        memory.release(first);
        assert_eq!(memory.allocate(7).expect("7 bytes"), first, "the slot was not reused");
        assert!(memory.allocate(0).is_err());
        assert!(memory.allocate(usize::MAX).is_err());
    }

    #[test]
    fn placed_bytes_are_gathered_again() {
        let (mut memory, local) = memory(100);
        let mut placement = Placement { memory: &mut memory, grh: None, payload: b"abcdefgh"[..].into(), kept: None };
        placement.place(2, Segment { local: local + 97, len: 3 }).expect("NIC memory is mapped");
        placement.store(local + 8, 0x1122_3344_5566_7788).expect("NIC memory is mapped");
        let mut gathered = [0xee; 4];
        memory.gather(Segment { local: local + 96, len: 4 }).copy_to(&mut gathered).expect("NIC memory is mapped");
        assert_eq!(&gathered, b"\0cde");
        assert_eq!(memory.bytes(0)[8..16], 0x1122_3344_5566_7788_u64.to_ne_bytes());
    }

    #[test]
    fn the_grh_is_placed_before_the_payload() {
        let grh: Grh = std::array::from_fn(|at| at as u8);
        for (offset, len) in [(0, 48), (0, 40), (0, 8), (36, 8), (40, 8), (44, 4)] {
            let (mut memory, local) = memory(100);
            let mut placement =
                Placement { memory: &mut memory, grh: Some(&grh), payload: b"abcdefgh"[..].into(), kept: None };
            placement.place(offset, Segment { local, len }).expect("NIC memory is mapped");
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
            assert_eq!(placement.fetch_add(local + at, u64::MAX), Ok(5), "the sum did not wrap");
            assert_eq!(placement.compare_swap(local + at, 3, 9), Ok(4), "the compare-and-swap succeeded");
            assert_eq!(placement.compare_swap(local + at, 4, 9), Ok(4));
            assert_eq!(placement.fetch_add(local + at, 0), Ok(9));
        }
    }

    #[test]
    #[should_panic(expected = "not in their region")]
    fn an_address_beyond_the_region_panics() {
        let (memory, local) = memory(100);
        memory.gather(Segment { local: local + 98, len: 3 });
    }

    #[test]
    #[should_panic(expected = "lives as long as its key")]
    fn an_access_to_a_removed_region_panics() {
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
        memory.place(target, [1, 2][..].into()).expect("the memory is mapped");
        memory.release(slot);
        drop(memory);
        assert_eq!(own[..4], [7, 1, 2, 7]);
    }
}
