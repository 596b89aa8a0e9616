//! Registered memory: buffers that the NIC allocates, memory of the program, and parts of either that have their own
//! keys.

use std::ops::Range;
use std::ptr::NonNull;

use rnic_engine::{Access, Key, MemoryRegion, PdId};

use super::verbs::Verbs;
use crate::error::NicError;
use crate::memory::{Memory, REGION_BYTES_MAX, Region};

impl Verbs<'_> {
    /// Allocates a page-aligned, zeroed buffer and registers it.
    ///
    /// # Errors
    /// When no memory is available, or the access rights are invalid.
    pub fn register(&mut self, pd: PdId, len: usize, access: Access) -> Result<Region, NicError> {
        let slot = self
            .device
            .memory
            .allocate(len)
            .map_err(|error| NicError::Memory { bytes: len, reason: error.to_string() })?;
        let addr = self.device.memory.address(slot);
        self.register_slot(pd, slot, addr, len, access)
    }

    /// Registers memory that the NIC does not own, under the virtual address `addr`.
    ///
    /// # Errors
    /// The same as [`Verbs::register`].
    ///
    /// # Safety
    /// Until the region is deregistered or the NIC is dropped, `start` points to `len` bytes, and those that are
    /// mapped may be read and written from the NIC's thread. An access to memory that has been unmapped, shortened or
    /// protected meanwhile fails, and the program continues; an access to memory that any code has mapped at the same
    /// address counts as an access to this region. To implement this, a handler of `SIGSEGV` and `SIGBUS` is
    /// installed in the process; it passes on faults that were not caused by accesses to registered memory. Changing
    /// the bytes meanwhile from another thread has the same effect as with any RDMA NIC: bytes in flight may be the
    /// old ones, the new ones or some of each, and a request's buffer must not be changed until it completes.
    pub unsafe fn register_raw(
        &mut self,
        pd: PdId,
        start: NonNull<u8>,
        len: usize,
        addr: u64,
        access: Access,
    ) -> Result<Region, NicError> {
        check_region_len(len)?;
        // SAFETY: the caller's promise, and the length has been checked.
        let slot = unsafe { self.device.memory.adopt(start, len) };
        self.register_slot(pd, slot, addr, len, access)
    }

    /// Replaces the memory, the protection domain or the access rights of a region without changing its key, like
    /// `ibv_rereg_mr`. Requests in flight use the new settings. Memory that the NIC allocated for the region is
    /// freed.
    ///
    /// # Errors
    /// The same as [`Verbs::register`], and when the key has been invalidated; the region is then unchanged.
    ///
    /// # Safety
    /// The same as [`Verbs::register_raw`].
    pub unsafe fn reregister_raw(
        &mut self,
        region: &mut Region,
        pd: PdId,
        (start, len): (NonNull<u8>, usize),
        addr: u64,
        access: Access,
    ) -> Result<(), NicError> {
        check_region_len(len)?;
        // SAFETY: the caller's promise, and the length has been checked.
        let slot = unsafe { self.device.memory.adopt(start, len) };
        let wanted = MemoryRegion { pd, addr, len: len as u64, local: Memory::local(slot), access };
        if let Err(error) = self.device.engine.objects_mut().reregister(region.key, wanted) {
            self.device.memory.release(slot);
            return Err(error.into());
        }
        self.device.memory.release(region.slot);
        (region.slot, region.addr, region.len) = (slot, addr, len);
        Ok(())
    }

    fn register_slot(
        &mut self,
        pd: PdId,
        slot: u32,
        addr: u64,
        len: usize,
        access: Access,
    ) -> Result<Region, NicError> {
        let region = MemoryRegion { pd, addr, len: len as u64, local: Memory::local(slot), access };
        match self.register_in_engine(region) {
            Ok(key) => Ok(Region { slot, key, addr, len }),
            Err(error) => {
                self.device.memory.release(slot);
                Err(error.into())
            }
        }
    }

    /// Removes a registration, and frees the memory if the NIC allocated it. Requests that use it fail.
    pub fn deregister(&mut self, region: Region) {
        // The key may have been invalidated already, by a peer with the right to do so.
        let _ = self.device.engine.objects_mut().deregister(region.key);
        self.device.memory.release(region.slot);
    }

    /// Registers the bytes `range` of a region in addition, with a separate key and separate access rights. This
    /// registration ends with that of the region; its key may be invalidated earlier.
    ///
    /// # Errors
    /// The same as [`Verbs::register`].
    ///
    /// # Panics
    /// When the region belongs to another NIC, or the range is not within it.
    pub fn register_part(
        &mut self,
        pd: PdId,
        region: &Region,
        range: Range<usize>,
        access: Access,
    ) -> Result<Key, NicError> {
        self.device.memory.check_owner(region);
        assert!(
            range.start <= range.end && range.end <= region.len(),
            "the range {range:?} is invalid for a memory region of {} bytes",
            region.len()
        );
        let start = range.start as u64;
        let (addr, local) = (region.addr() + start, Memory::local(region.slot) + start);
        Ok(self.register_in_engine(MemoryRegion { pd, addr, len: range.len() as u64, local, access })?)
    }

    /// Invalidates the key of a part of a region, if no peer has done so.
    pub fn deregister_part(&mut self, key: Key) {
        let _ = self.device.engine.objects_mut().deregister(key);
    }
}

/// Checks the size of a region.
fn check_region_len(len: usize) -> Result<(), NicError> {
    if len == 0 || len as u64 > REGION_BYTES_MAX {
        return Err(NicError::Memory { bytes: len, reason: "a memory region must have 1 byte to 1 TiB".to_owned() });
    }
    Ok(())
}
