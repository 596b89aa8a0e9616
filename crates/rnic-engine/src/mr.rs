//! Memory regions: the rights that a key grants.

mod index;
pub(crate) mod windows;

use bitflags::bitflags;
use rnic_base::limits::{MEMORY_REGIONS_MAX, MEMORY_WINDOWS_MAX};
use rnic_base::prefetch_at;
use rnic_wire::Qpn;

use crate::PdId;
use crate::error::MemoryError;
use index::KeyIndex;
use windows::{Binding, WindowKind, Windows};

bitflags! {
    /// Rights on a memory region. Local reading is always granted.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
    pub struct Access: u8 {
        /// Receives and Read responses may be written to the region.
        const LOCAL_WRITE = 1;
        /// Peers may write to the region.
        const REMOTE_WRITE = 2;
        /// Peers may read the region.
        const REMOTE_READ = 4;
        /// Peers may execute atomics on the region.
        const REMOTE_ATOMIC = 8;
        /// A peer's Send with invalidate may invalidate the key.
        const REMOTE_INVALIDATE = 16;
        /// Memory windows may be bound to the region.
        const BIND = 32;
        /// Peers may request global visibility of the data that they have written.
        const FLUSH_GLOBAL = 64;
        /// Peers may request persistence of the data that they have written.
        const FLUSH_PERSISTENT = 128;
    }
}

/// A memory key: used as lkey and rkey, as in most NICs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key(pub u32);

/// A range of virtual addresses with its local location and its access rights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryRegion {
    /// Protection domain: only queue pairs of this domain may use the region.
    pub pd: PdId,
    /// First virtual address, as used in work requests and by peers.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// The driver's address of the first byte, as used in [`crate::Segment`]s.
    pub local: u64,
    /// Access rights that the region grants.
    pub access: Access,
}

impl MemoryRegion {
    /// Returns the local address of `addr`, if the `len` bytes from there are within the region, and `access` to them
    /// is granted within `pd`.
    #[inline(always)]
    pub(crate) fn resolve(&self, pd: PdId, addr: u64, len: u64, access: Access) -> Result<u64, Refused> {
        let offset = addr.wrapping_sub(self.addr);
        // `offset <= len of region` also rejects addresses before the region, for which the offset wraps to a very
        // large value.
        let inside = offset <= self.len && len <= self.len - offset;
        if inside && self.pd == pd && self.access.contains(access) { Ok(self.local + offset) } else { Err(Refused) }
    }
}

/// Error: an access is not permitted. Callers convert it into the status for the local or the remote end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Refused;

/// Table of memory regions by key.
///
/// Keys are either passed by the driver, which generates them at random ([`crate::Objects::register_as`]), or
/// generated here: the region's slot (24 bits) and a generation (8 bits), mapped by a bijection. Keys that are
/// generated here are for simulations only, because they can be guessed: eight of them suffice to compute the others.
#[derive(Debug)]
pub(crate) struct MrTable {
    slots: Vec<Slot>,
    index: KeyIndex,
    free: Vec<u32>,
    permutation: KeyPermutation,
    /// Number of changes and deregistrations of regions so far.
    version: u64,
    windows: Windows,
    /// Number of window key prefixes generated so far.
    prefixes: u32,
}

#[derive(Debug)]
struct Slot {
    key: u32,
    generation: u8,
    region: Option<MemoryRegion>,
}

impl MrTable {
    pub(crate) fn new(secret: u64) -> Self {
        Self {
            slots: Vec::new(),
            index: KeyIndex::new(),
            free: Vec::new(),
            permutation: KeyPermutation::new(secret),
            version: 0,
            windows: Windows::default(),
            prefixes: 0,
        }
    }

    /// Checks whether the attributes of a region are valid.
    fn check(region: &MemoryRegion) -> Result<(), MemoryError> {
        if region.addr.checked_add(region.len).is_none() || region.local.checked_add(region.len).is_none() {
            return Err(MemoryError::Wraps { addr: region.addr, len: region.len });
        }
        let needs_local = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        if region.access.intersects(needs_local) && !region.access.contains(Access::LOCAL_WRITE) {
            return Err(MemoryError::RemoteWithoutLocalWrite);
        }
        Ok(())
    }

    /// Registers a region under `key`, or under a generated key.
    pub(crate) fn register(&mut self, region: MemoryRegion, key: Option<Key>) -> Result<Key, MemoryError> {
        Self::check(&region)?;
        if let Some(Key(key)) = key
            && (key == 0 || self.is_taken(key))
        {
            return Err(MemoryError::KeyInUse(key));
        }
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() as u64 == u64::from(MEMORY_REGIONS_MAX) => return Err(MemoryError::Exhausted),
            None => {
                // The generation starts at an arbitrary value, so that a key does not reveal how often its slot has
                // been used.
                let generation = self.permutation.permute(self.slots.len() as u32) as u8;
                self.slots.push(Slot { key: 0, generation, region: None });
                self.slots.len() as u32 - 1
            }
        };
        let key = key.unwrap_or_else(|| self.make_key(index));
        let slot = &mut self.slots[index as usize];
        (slot.key, slot.region) = (key.0, Some(region));
        let slots = &self.slots;
        self.index.insert(index, |slot| slots[slot as usize].key);
        Ok(key)
    }

    /// Returns the next free key of a slot: a key passed by the driver may already use a generated value.
    fn make_key(&mut self, index: u32) -> Key {
        loop {
            let slot = &mut self.slots[index as usize];
            slot.generation = slot.generation.wrapping_add(1);
            let key = self.permutation.permute(index << 8 | u32::from(slot.generation));
            if !self.is_taken(key) {
                return Key(key);
            }
        }
    }

    /// Returns `true` if a region has the key, or if it is one of a window's 256 keys.
    fn is_taken(&self, key: u32) -> bool {
        self.slot_of(key).is_some() || self.windows.has(key)
    }

    /// Replaces the region of `key` by `region`; returns the old region.
    pub(crate) fn reregister(&mut self, key: Key, region: MemoryRegion) -> Result<MemoryRegion, MemoryError> {
        Self::check(&region)?;
        let index = self.slot_of(key.0).ok_or(MemoryError::Unknown(key.0))?;
        let old = self.slots[index as usize].region.as_mut().ok_or(MemoryError::Unknown(key.0))?;
        if self.windows.has_window(key.0) {
            return Err(MemoryError::Bound);
        }
        self.version += 1;
        Ok(std::mem::replace(old, region))
    }

    pub(crate) fn deregister(&mut self, key: Key) -> Result<MemoryRegion, MemoryError> {
        let index = self.slot_of(key.0).ok_or(MemoryError::Unknown(key.0))?;
        let region = self.slots[index as usize].region.take().ok_or(MemoryError::Unknown(key.0))?;
        let slots = &self.slots;
        self.index.remove(key.0, |slot| slots[slot as usize].key);
        self.free.push(index);
        self.windows.invalidate_bound_to(key.0);
        self.version += 1;
        Ok(region)
    }

    /// Returns the version of the table: a right that was granted with this version is still granted as long as the
    /// version is the same.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Checks whether the key may be invalidated at the request of the peer of queue pair `qpn`.
    pub(crate) fn check_invalidate(&self, pd: PdId, qpn: Qpn, key: u32) -> Result<(), Refused> {
        let Some(region) = self.get(key) else { return self.windows.check_invalidate(pd, qpn, key) };
        if region.pd == pd && region.access.contains(Access::REMOTE_INVALIDATE) { Ok(()) } else { Err(Refused) }
    }

    /// Invalidates the key at the request of the peer of queue pair `qpn`.
    pub(crate) fn invalidate(&mut self, pd: PdId, qpn: Qpn, key: u32) -> Result<(), Refused> {
        self.check_invalidate(pd, qpn, key)?;
        if self.windows.has(key) {
            return self.windows.invalidate(pd, qpn, key);
        }
        self.deregister(Key(key)).map(|_| ()).map_err(|_| Refused)
    }

    /// Prefetches the first regions, and where their keys are found.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch_at(&self.slots, 0);
        self.index.prefetch();
    }

    #[inline(always)]
    pub(crate) fn get(&self, key: u32) -> Option<&MemoryRegion> {
        self.slots[self.slot_of(key)? as usize].region.as_ref()
    }

    /// Returns the local address of `addr`, if `key` grants `access` to the `len` bytes from there within `pd`.
    #[inline]
    pub(crate) fn resolve(&self, pd: PdId, key: u32, addr: u64, len: u64, access: Access) -> Result<u64, Refused> {
        self.get(key).ok_or(Refused)?.resolve(pd, addr, len, access)
    }

    /// As [`MrTable::resolve`], for keys used by the peer of queue pair `qpn`: `key` may also be the key of a window.
    #[inline]
    pub(crate) fn resolve_remote(
        &self,
        (pd, qpn): (PdId, Qpn),
        key: u32,
        addr: u64,
        len: u64,
        access: Access,
    ) -> Result<u64, Refused> {
        match self.resolve(pd, key, addr, len, access) {
            Err(Refused) => self.windows.granted_to(qpn, key)?.resolve(pd, addr, len, access),
            granted => granted,
        }
    }

    /// Returns the protection domain of the region or window with `key`.
    pub(crate) fn domain_of(&self, key: u32) -> Option<PdId> {
        self.get(key).or_else(|| self.windows.grant(key)).map(|region| region.pd)
    }

    /// Returns the first address and the length in bytes of the region or window with `key`.
    pub(crate) fn extent(&self, key: u32) -> Option<(u64, u64)> {
        self.get(key).or_else(|| self.windows.grant(key)).map(|region| (region.addr, region.len))
    }

    /// Creates a window of `pd`, which does not grant any access yet; returns its first key. The upper 24 bits of the
    /// key are those of `key`, or are generated here.
    pub(crate) fn allocate_window(&mut self, pd: PdId, kind: WindowKind, key: Option<Key>) -> Result<Key, MemoryError> {
        if self.windows.len() >= MEMORY_WINDOWS_MAX as usize {
            return Err(MemoryError::WindowsExhausted);
        }
        let key = match key {
            Some(Key(key)) if key & !0xff == 0 || !self.is_free_prefix(key & !0xff) => {
                return Err(MemoryError::KeyInUse(key));
            }
            Some(Key(key)) => key & !0xff,
            None => self.make_prefix(),
        };
        self.windows.add(key, pd, kind);
        Ok(Key(key))
    }

    fn make_prefix(&mut self) -> u32 {
        loop {
            self.prefixes = self.prefixes.wrapping_add(1);
            let key = self.permutation.permute(!self.prefixes) & !0xff;
            if self.is_free_prefix(key) {
                return key;
            }
        }
    }

    /// Returns `true` if no key with the prefix of `key` is in use.
    fn is_free_prefix(&self, key: u32) -> bool {
        !self.windows.has(key) && (0..=0xff).all(|tag| self.get(key | tag).is_none())
    }

    /// Destroys a window, bound or not.
    pub(crate) fn free_window(&mut self, key: Key) -> Result<(), MemoryError> {
        self.windows.remove(key.0).ok_or(MemoryError::Unknown(key.0))
    }

    /// Returns the memory windows.
    pub(crate) fn windows(&self) -> &Windows {
        &self.windows
    }

    /// Binds a window on behalf of queue pair `qpn` of `pd`.
    pub(crate) fn bind(&mut self, pd: PdId, qpn: Qpn, binding: &Binding) -> Result<(), Refused> {
        let region = self.get(binding.region).copied();
        self.windows.bind(pd, qpn, binding, region.as_ref())
    }

    /// Invalidates a window at the request of queue pair `qpn` itself.
    pub(crate) fn invalidate_own(&mut self, pd: PdId, qpn: Qpn, key: u32) -> Result<(), Refused> {
        self.windows.invalidate(pd, qpn, key)
    }

    /// Invalidates the windows of type 2 bound by queue pair `qpn`, which is being destroyed.
    pub(crate) fn invalidate_bound_by(&mut self, qpn: Qpn) {
        self.windows.invalidate_bound_by(qpn);
    }

    pub(crate) fn in_use(&self, pd: PdId) -> bool {
        let is_used = self.slots.iter().any(|slot| slot.region.is_some_and(|region| region.pd == pd));
        is_used || self.windows.use_domain(pd)
    }

    /// Returns the slot of the region that has this key.
    #[inline]
    fn slot_of(&self, key: u32) -> Option<u32> {
        self.index.find(key, |slot| self.slots[slot as usize].key)
    }
}

/// A bijection on 32 bits: multiply, fold, multiply. It scatters keys but provides no secrecy.
#[derive(Clone, Copy, Debug)]
struct KeyPermutation {
    xor_mask: u32,
    factors: [u32; 2],
}

impl KeyPermutation {
    fn new(secret: u64) -> Self {
        let mixed = secret.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (secret >> 31);
        let make_odd = |word: u64| word as u32 | 1;
        let factors = [make_odd(mixed), make_odd(mixed >> 32 ^ 0x85eb_ca6b)];
        Self { xor_mask: (secret >> 16) as u32 ^ 0x5851_f42d, factors }
    }

    #[inline]
    fn permute(&self, value: u32) -> u32 {
        let first = (value ^ self.xor_mask).wrapping_mul(self.factors[0]);
        (first ^ first >> 16).wrapping_mul(self.factors[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PD: PdId = PdId(1);

    fn region(addr: u64, len: u64, access: Access) -> MemoryRegion {
        MemoryRegion { pd: PD, addr, len, local: addr + 0x1000, access }
    }

    #[test]
    fn resolve_checks_key_range_rights_and_domain() {
        let mut table = MrTable::new(42);
        let key =
            table.register(region(0x4000, 100, Access::LOCAL_WRITE | Access::REMOTE_READ), None).expect("legal").0;
        let read = Access::REMOTE_READ;
        assert_eq!(table.resolve(PD, key, 0x4000, 100, read), Ok(0x5000));
        assert_eq!(table.resolve(PD, key, 0x4063, 1, read), Ok(0x5063));
        assert_eq!(table.resolve(PD, key, 0x4064, 0, read), Ok(0x5064), "zero bytes just past the end are refused");
        assert_eq!(table.resolve(PD, key, 0x4063, 2, read), Err(Refused));
        assert_eq!(table.resolve(PD, key, 0x3fff, 1, read), Err(Refused));
        assert_eq!(table.resolve(PD, key, u64::MAX, 2, read), Err(Refused));
        assert_eq!(table.resolve(PD, key, 0x4000, u64::MAX, read), Err(Refused));
        assert_eq!(table.resolve(PD, key, 0x4000, 1, Access::REMOTE_WRITE), Err(Refused));
        assert_eq!(table.resolve(PdId(2), key, 0x4000, 1, read), Err(Refused));
        assert_eq!(table.resolve(PD, key ^ 1, 0x4000, 1, read), Err(Refused));
    }

    #[test]
    fn a_key_is_invalid_after_deregistration() {
        let mut table = MrTable::new(7);
        let first = table.register(region(0, 10, Access::empty()), None).expect("legal");
        assert!(table.deregister(first).is_ok());
        let second = table.register(region(0, 10, Access::empty()), None).expect("legal");
        assert_ne!(first, second, "the key is reused with the slot");
        assert_eq!(table.deregister(first), Err(MemoryError::Unknown(first.0)));
        assert!(table.get(second.0).is_some());
    }

    #[test]
    fn invalidate_needs_the_remote_invalidate_right() {
        let mut table = MrTable::new(7);
        let without_right = table.register(region(0, 10, Access::LOCAL_WRITE), None).expect("legal");
        let with_right = table.register(region(0, 10, Access::REMOTE_INVALIDATE), None).expect("legal");
        let qpn = Qpn::new(7);
        assert_eq!(table.invalidate(PD, qpn, without_right.0), Err(Refused));
        assert_eq!(table.invalidate(PdId(9), qpn, with_right.0), Err(Refused));
        assert_eq!(table.invalidate(PD, qpn, with_right.0), Ok(()));
        assert_eq!(table.invalidate(PD, qpn, with_right.0), Err(Refused), "the key is invalidated twice");
    }

    #[test]
    fn windows_and_regions_never_share_a_key() {
        let mut table = MrTable::new(0x1357_9bdf);
        let mut prefixes = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let window = table.allocate_window(PD, WindowKind::Two, None).expect("the limit is not reached").0;
            assert!(window & 0xff == 0 && prefixes.insert(window >> 8));
        }
        for _ in 0..2_000 {
            let key = table.register(region(0, 10, Access::empty()), None).expect("legal").0;
            assert!(!prefixes.contains(&(key >> 8)));
        }
        assert!(table.in_use(PD));
        let first = prefixes.first().expect("not empty") << 8;
        assert_eq!(table.free_window(Key(first | 3)), Ok(()), "a key of the window does not identify it");
        assert_eq!(table.free_window(Key(first)), Err(MemoryError::Unknown(first)));
    }

    #[test]
    fn deregistration_disables_bound_windows_and_reregistration_with_bound_windows_fails() {
        let mut table = MrTable::new(5);
        let (qpn, access) = (Qpn::new(7), Access::LOCAL_WRITE | Access::BIND);
        let key = table.register(region(0x4000, 100, access), None).expect("legal");
        let window = table.allocate_window(PD, WindowKind::One, None).expect("the limit is not reached").0 + 1;
        let (write, len) = (Access::REMOTE_WRITE, 10);
        let binding = Binding { key: window, region: key.0, addr: 0x4010, len, access: write, zero_based: false };
        assert_eq!(table.bind(PD, qpn, &binding), Ok(()));
        assert_eq!(table.resolve_remote((PD, qpn), window, 0x4010, 10, write), Ok(0x5010));
        assert_eq!(table.resolve(PD, window, 0x4010, 10, write), Err(Refused), "valid as a local key");
        assert_eq!(
            table.resolve_remote((PD, qpn), key.0, 0x4010, 10, write),
            Err(Refused),
            "the region's key grants access"
        );
        assert_eq!(table.reregister(key, region(0x4000, 50, access)), Err(MemoryError::Bound));
        assert!(table.deregister(key).is_ok());
        assert_eq!(table.resolve_remote((PD, qpn), window, 0x4010, 10, write), Err(Refused));
    }

    #[test]
    fn register_rejects_invalid_ranges_and_rights() {
        let mut table = MrTable::new(0);
        assert!(matches!(
            table.register(region(u64::MAX - 0x2000, 0x4000, Access::empty()), None),
            Err(MemoryError::Wraps { .. })
        ));
        assert_eq!(table.register(region(0, 1, Access::REMOTE_WRITE), None), Err(MemoryError::RemoteWithoutLocalWrite));
    }

    #[test]
    fn a_key_chosen_by_the_caller_is_used_and_can_be_in_use_only_once() {
        let mut table = MrTable::new(7);
        let other = region(0x4000, 10, Access::REMOTE_READ);
        assert_eq!(table.register(other, Some(Key(5))), Ok(Key(5)));
        assert_eq!(table.register(other, Some(Key(5))), Err(MemoryError::KeyInUse(5)));
        assert_eq!(table.register(other, Some(Key(0))), Err(MemoryError::KeyInUse(0)));
        assert_eq!(table.resolve(PD, 5, 0x4000, 10, Access::REMOTE_READ), Ok(0x5000));
        assert!(table.deregister(Key(5)).is_ok());
        assert_eq!(table.register(other, Some(Key(5))), Ok(Key(5)), "the key is still in use");
    }

    #[test]
    fn generated_keys_differ_from_keys_chosen_by_the_caller() {
        let generated = MrTable::new(7).register(region(0, 10, Access::empty()), None).expect("legal");
        let mut table = MrTable::new(7);
        table.register(region(0, 10, Access::empty()), Some(generated)).expect("legal");
        // The second slot has other keys; the first slot's first key is the caller's when the slot is reused.
        let second = table.register(region(0, 10, Access::empty()), None).expect("legal");
        assert_ne!(second, generated);
        table.deregister(generated).expect("it exists");
        table.register(region(0, 10, Access::empty()), None).expect("legal");
        assert!(table.get(second.0).is_some());
    }

    #[test]
    fn the_key_permutation_is_a_bijection_that_scatters_consecutive_keys() {
        let permutation = KeyPermutation::new(0x1234_5678_9abc_def0);
        let images: std::collections::BTreeSet<u32> =
            (0..100_000).chain([u32::MAX, 1 << 31]).map(|value| permutation.permute(value)).collect();
        assert_eq!(images.len(), 100_002);
        let distances: std::collections::BTreeSet<u32> = (0..1_000u32)
            .map(|i| permutation.permute((i + 1) << 8).wrapping_sub(permutation.permute(i << 8)))
            .collect();
        assert!(distances.len() > 400, "consecutive keys differ by {} distances only", distances.len());
    }
}
