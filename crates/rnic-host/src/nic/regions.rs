//! Registered memory: buffers that the NIC allocates, memory of its program, and parts of either under their own keys.

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
    /// When there is no memory, or the rights are invalid.
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
    /// As [`Verbs::register`].
    ///
    /// # Safety
    /// From here until the region is deregistered or the NIC dropped, `start` points to `len` bytes that may be read
    /// and written from the NIC's thread, as far as they are mapped. An access to memory that has been unmapped,
    /// shortened or protected meanwhile fails, and the program continues; an access to memory that has been mapped in
    /// its place, by any code, counts as an access to this region. For that, the process gets a handler of `SIGSEGV`
    /// and `SIGBUS`, which passes on faults that do not concern registered memory. Changing the bytes meanwhile from
    /// another thread has the same effect as with any RDMA NIC: bytes in flight may be the old ones, the new ones or
    /// some of each, and a request's buffer must not be changed until it completes.
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

    /// Replaces the memory, the protection domain or the rights of a region and keeps its key: `ibv_rereg_mr`. Requests
    /// in flight use the new settings. Memory that the NIC allocated for the region is freed.
    ///
    /// # Errors
    /// As [`Verbs::register`], and when the key has been invalidated; the region is then unchanged.
    ///
    /// # Safety
    /// As [`Verbs::register_raw`].
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

    /// Registers the bytes `range` of a region once more, under its own key and with its own rights. The registration
    /// lasts as long as the region; its key may be invalidated before.
    ///
    /// # Errors
    /// As [`Verbs::register`].
    ///
    /// # Panics
    /// When the region is another NIC's, or the range is not inside of it.
    pub fn register_part(
        &mut self,
        pd: PdId,
        region: &Region,
        range: Range<usize>,
        access: Access,
    ) -> Result<Key, NicError> {
        self.device.memory.check_owner(region);
        assert!(range.start <= range.end && range.end <= region.len(), "a part of {} bytes: {range:?}", region.len());
        let start = range.start as u64;
        let (addr, local) = (region.addr() + start, Memory::local(region.slot) + start);
        Ok(self.register_in_engine(MemoryRegion { pd, addr, len: range.len() as u64, local, access })?)
    }

    /// Invalidates the key of a part, if no peer has done so.
    pub fn deregister_part(&mut self, key: Key) {
        let _ = self.device.engine.objects_mut().deregister(key);
    }
}

/// Checks the size of a region.
fn check_region_len(len: usize) -> Result<(), NicError> {
    if len == 0 || len as u64 > REGION_BYTES_MAX {
        return Err(NicError::Memory { bytes: len, reason: "a region has 1 byte to 1 TiB".to_owned() });
    }
    Ok(())
}
