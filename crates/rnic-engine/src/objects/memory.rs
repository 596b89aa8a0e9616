//! Memory regions and memory windows.

use crate::PdId;
use crate::error::MemoryError;
use crate::mr::windows::WindowKind;
use crate::mr::{Key, MemoryRegion};
use crate::objects::Objects;

impl Objects {
    /// Registers memory with the rights in `region`. The key is generated from the engine's secret.
    ///
    /// # Errors
    /// When the range or the rights are invalid.
    pub fn register(&mut self, region: MemoryRegion) -> Result<Key, MemoryError> {
        self.mrs.register(region, None)
    }

    /// Registers memory under a key chosen by the caller. A driver on a real network uses an unpredictable random
    /// generator for it, because the keys of [`Objects::register`] can be computed from eight others.
    ///
    /// # Errors
    /// As [`Objects::register`], and when the key is 0 or taken: then another one must be generated.
    pub fn register_as(&mut self, key: Key, region: MemoryRegion) -> Result<Key, MemoryError> {
        self.mrs.register(region, Some(key))
    }

    /// Deregisters memory. Requests that use it fail.
    ///
    /// # Errors
    /// When no region has this key.
    pub fn deregister(&mut self, key: Key) -> Result<MemoryRegion, MemoryError> {
        self.mrs.deregister(key)
    }

    /// Changes the memory of a key and the rights that it grants: `ibv_rereg_mr`. The key remains the same, and the
    /// change applies to requests in flight.
    ///
    /// # Errors
    /// When no region has this key, or the range or the rights are invalid. Nothing has changed then.
    pub fn reregister(&mut self, key: Key, region: MemoryRegion) -> Result<MemoryRegion, MemoryError> {
        self.mrs.reregister(key, region)
    }

    /// Creates a memory window of `pd`, which grants nothing until it is bound ([`crate::SendOp::Bind`]); returns its
    /// first key.
    ///
    /// # Errors
    /// When the protection domain does not exist or there are too many.
    pub fn allocate_window(&mut self, pd: PdId, kind: WindowKind) -> Result<Key, MemoryError> {
        self.check_pd(pd).map_err(|_| MemoryError::UnknownDomain)?;
        self.mrs.allocate_window(pd, kind, None)
    }

    /// Creates a memory window whose keys start with the upper 24 bits of `key`, for drivers on a real network, as
    /// [`Objects::register_as`] does for memory regions.
    ///
    /// # Errors
    /// As [`Objects::allocate_window`], and when those bits are 0 or taken: then others must be generated.
    pub fn allocate_window_as(&mut self, key: Key, pd: PdId, kind: WindowKind) -> Result<Key, MemoryError> {
        self.check_pd(pd).map_err(|_| MemoryError::UnknownDomain)?;
        self.mrs.allocate_window(pd, kind, Some(key))
    }

    /// Destroys a memory window, bound or not; it may be identified by its current key or a former one.
    ///
    /// # Errors
    /// When no memory window has or had `key`.
    pub fn free_window(&mut self, key: Key) -> Result<(), MemoryError> {
        self.mrs.free_window(key)
    }

    /// Returns the type of the memory window that has or had `key`.
    pub fn window_kind(&self, key: Key) -> Option<WindowKind> {
        self.mrs.windows().kind(key.0)
    }

    /// Returns whether memory windows are bound to the region with `key`.
    pub fn has_windows(&self, key: Key) -> bool {
        self.mrs.windows().has_window(key.0)
    }
}
