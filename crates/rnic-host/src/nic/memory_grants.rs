//! Regions that cover all memory of the process (implicit on-demand paging), memory windows, and calls for extended
//! reliable connections.

use rnic_engine::{
    Access, CqId, Key, MemoryError, MemoryRegion, ModifyError, PdId, PostError, ResourceError, SendRequest, SrqId,
    WindowKind,
};
use rnic_wire::Qpn;

use super::verbs::Verbs;
use crate::error::NicError;
use crate::memory::{ALL_ADDRESSES, Memory, Region};

impl Verbs<'_> {
    /// Registers all memory that the process has or will have, with the virtual address of each byte as its address
    /// in the region.
    ///
    /// # Errors
    /// When the access rights are invalid or there are too many regions.
    ///
    /// # Safety
    /// The requirements of [`Verbs::register_raw`] must hold for every range that a request or a peer accesses with
    /// this key.
    pub unsafe fn register_everything(&mut self, pd: PdId, access: Access) -> Result<Region, NicError> {
        let slot = self.device.memory.whole_process_slots();
        let (addr, len) = (ALL_ADDRESSES.start, ALL_ADDRESSES.end - ALL_ADDRESSES.start);
        let key = self.register_in_engine(MemoryRegion { pd, addr, len, local: Memory::local(slot), access })?;
        Ok(Region { slot, key, addr, len: len as usize })
    }

    /// Registers a region of the engine under an unpredictable key.
    pub(super) fn register_in_engine(&mut self, region: MemoryRegion) -> Result<Key, MemoryError> {
        loop {
            // A key that is already in use is generated again: with a million regions, this happens for one key in
            // 4096.
            let key = Key(self.device.secret.keys.bits() as u32);
            match self.device.engine.objects_mut().register_as(key, region) {
                Err(MemoryError::KeyInUse(_)) => {}
                made => return made,
            }
        }
    }

    /// See [`rnic_engine::Objects::allocate_window`]. The first 24 bits of the key are unpredictable.
    ///
    /// # Errors
    /// When the protection domain does not exist or there are too many windows.
    pub fn allocate_window(&mut self, pd: PdId, kind: WindowKind) -> Result<Key, MemoryError> {
        loop {
            let key = Key(self.device.secret.keys.bits() as u32);
            match self.device.engine.objects_mut().allocate_window_as(key, pd, kind) {
                Err(MemoryError::KeyInUse(_)) => {}
                made => return made,
            }
        }
    }

    /// See [`rnic_engine::Objects::free_window`].
    ///
    /// # Errors
    /// When the window does not exist.
    pub fn free_window(&mut self, key: Key) -> Result<(), MemoryError> {
        self.device.engine.objects_mut().free_window(key)
    }

    /// See [`rnic_engine::Objects::create_shared_srq`].
    ///
    /// # Errors
    /// When a size is out of range, or an object that the attributes refer to does not exist.
    pub fn create_shared_srq(
        &mut self,
        pd: PdId,
        in_domain: (u32, CqId),
        max_wr: u32,
        max_sge: u32,
    ) -> Result<SrqId, ResourceError> {
        self.device.engine.objects_mut().create_shared_srq(pd, in_domain, max_wr, max_sge)
    }

    /// See [`rnic_engine::Engine::make_target`].
    ///
    /// # Errors
    /// When the queue pair cannot become a target.
    pub fn make_target(&mut self, qpn: Qpn, domain: u32) -> Result<(), ModifyError> {
        self.device.engine.make_target(qpn, domain)
    }

    /// See [`rnic_engine::Engine::post_send_shared`].
    ///
    /// # Errors
    /// As [`Verbs::post_send`].
    pub fn post_send_shared(&mut self, qpn: Qpn, request: &SendRequest<'_>, srqn: u32) -> Result<(), PostError> {
        self.device.note_post();
        self.device.engine.post_send_shared(qpn, request, srqn)
    }
}
