//! Regions that cover all memory of the process: implicit on-demand paging.

use rnic_engine::{Access, MemoryRegion, PdId};

use super::{Nic, NicError};
use crate::memory::{EVERYTHING, Memory, Region};

impl Nic {
    /// Registers all memory that the process has or will have, each byte under its own address.
    ///
    /// # Errors
    /// When the rights make no sense or there are too many regions.
    ///
    /// # Safety
    /// What [`Nic::register_raw`] demands is true of every range that a request or a peer names by this key.
    pub unsafe fn register_everything(&mut self, pd: PdId, access: Access) -> Result<Region, NicError> {
        let slot = self.memory.everything();
        let (addr, len) = (EVERYTHING.start, EVERYTHING.end - EVERYTHING.start);
        let key = self.engine.register(MemoryRegion { pd, addr, len, local: Memory::local(slot), access })?;
        Ok(Region { slot, key, addr, len: len as usize })
    }
}
