//! Memory regions: what a key grants.

use bitflags::bitflags;
use rnic_base::limits::MEMORY_REGIONS_MAX;

use crate::PdId;
use crate::error::MemoryError;

bitflags! {
    /// Rights on a memory region. Local reading is always granted.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
    pub struct Access: u8 {
        /// Receives and read responses may be written into it.
        const LOCAL_WRITE = 1;
        /// Peers may write.
        const REMOTE_WRITE = 2;
        /// Peers may read.
        const REMOTE_READ = 4;
        /// Peers may do atomics.
        const REMOTE_ATOMIC = 8;
        /// A peer's Send with invalidate may take the key back.
        const REMOTE_INVALIDATE = 16;
    }
}

/// A key: lkey and rkey at once, as most NICs have it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key(pub u32);

/// A range of virtual addresses, where it really lies, and who may touch it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryRegion {
    /// Protection domain: only queue pairs of the same one may use the region.
    pub pd: PdId,
    /// First virtual address, as work requests and peers name it.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
    /// The body's address of the first byte, as [`crate::Segment`]s name it.
    pub local: u64,
    /// Rights.
    pub access: Access,
}

/// Why an access is refused. Callers turn it into the status that fits their side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Refused;

/// The region behind each key.
///
/// A key is the region's slot and a generation, 24 and 8 bits, sent through a secret bijection: a lookup needs no
/// search, and one key tells nothing about the others.
#[derive(Debug)]
pub(crate) struct MrTable {
    slots: Vec<Slot>,
    free: Vec<u32>,
    veil: Veil,
    /// Regions that have changed or gone, so far.
    version: u64,
}

#[derive(Debug)]
struct Slot {
    key: u32,
    generation: u8,
    region: Option<MemoryRegion>,
}

impl MrTable {
    pub(crate) fn new(secret: u64) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), veil: Veil::new(secret), version: 0 }
    }

    /// Whether a region can be as it says.
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

    pub(crate) fn register(&mut self, region: MemoryRegion) -> Result<Key, MemoryError> {
        Self::check(&region)?;
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() as u64 == u64::from(MEMORY_REGIONS_MAX) => return Err(MemoryError::Exhausted),
            None => {
                // The generation starts anywhere, so that slots cannot be told apart by age.
                let generation = self.veil.cover(self.slots.len() as u32) as u8;
                self.slots.push(Slot { key: 0, generation, region: None });
                self.slots.len() as u32 - 1
            }
        };
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.key = self.veil.cover(index << 8 | u32::from(slot.generation));
        slot.region = Some(region);
        Ok(Key(slot.key))
    }

    /// Puts `region` behind `key`; answers what was there.
    pub(crate) fn reregister(&mut self, key: Key, region: MemoryRegion) -> Result<MemoryRegion, MemoryError> {
        Self::check(&region)?;
        let index = self.index_of(key.0);
        let slot = self.slots.get_mut(index as usize).filter(|slot| slot.key == key.0);
        let old = slot.and_then(|slot| slot.region.as_mut()).ok_or(MemoryError::Unknown(key.0))?;
        self.version += 1;
        Ok(std::mem::replace(old, region))
    }

    pub(crate) fn deregister(&mut self, key: Key) -> Result<MemoryRegion, MemoryError> {
        let index = self.index_of(key.0);
        let slot = self.slots.get_mut(index as usize).filter(|slot| slot.key == key.0);
        let region = slot.and_then(|slot| slot.region.take()).ok_or(MemoryError::Unknown(key.0))?;
        self.free.push(index);
        self.version += 1;
        Ok(region)
    }

    /// What has been granted since this was the same is still granted.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Whether the key may be taken back because a peer asks for it.
    pub(crate) fn check_invalidate(&self, pd: PdId, key: u32) -> Result<(), Refused> {
        let region = self.get(key).filter(|region| region.pd == pd).ok_or(Refused)?;
        if region.access.contains(Access::REMOTE_INVALIDATE) { Ok(()) } else { Err(Refused) }
    }

    /// Takes the key back because a peer asked for it.
    pub(crate) fn invalidate(&mut self, pd: PdId, key: u32) -> Result<(), Refused> {
        self.check_invalidate(pd, key)?;
        self.deregister(Key(key)).map(|_| ()).map_err(|_| Refused)
    }

    #[inline]
    pub(crate) fn get(&self, key: u32) -> Option<&MemoryRegion> {
        let slot = self.slots.get(self.index_of(key) as usize)?;
        slot.region.as_ref().filter(|_| slot.key == key)
    }

    /// The local address of `addr`, when `key` grants `access` to `len` bytes there within `pd`.
    #[inline]
    pub(crate) fn resolve(&self, pd: PdId, key: u32, addr: u64, len: u64, access: Access) -> Result<u64, Refused> {
        let region = self.get(key).ok_or(Refused)?;
        let offset = addr.wrapping_sub(region.addr);
        // `offset <= len of region` also refuses addresses below it, which wrap to something huge.
        let inside = offset <= region.len && len <= region.len - offset;
        if inside && region.pd == pd && region.access.contains(access) {
            Ok(region.local + offset)
        } else {
            Err(Refused)
        }
    }

    pub(crate) fn in_use(&self, pd: PdId) -> bool {
        self.slots.iter().any(|slot| slot.region.is_some_and(|region| region.pd == pd))
    }

    #[inline]
    fn index_of(&self, key: u32) -> u32 {
        self.veil.uncover(key) >> 8
    }
}

/// A keyed bijection on 32 bits: multiply, fold, multiply.
#[derive(Clone, Copy, Debug)]
struct Veil {
    whitener: u32,
    factors: [u32; 2],
    inverses: [u32; 2],
}

impl Veil {
    fn new(secret: u64) -> Self {
        let mixed = secret.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (secret >> 31);
        let odd = |word: u64| word as u32 | 1;
        let factors = [odd(mixed), odd(mixed >> 32 ^ 0x85eb_ca6b)];
        Self { whitener: (secret >> 16) as u32 ^ 0x5851_f42d, factors, inverses: factors.map(inverse_of_odd) }
    }

    #[inline]
    fn cover(&self, plain: u32) -> u32 {
        let first = (plain ^ self.whitener).wrapping_mul(self.factors[0]);
        (first ^ first >> 16).wrapping_mul(self.factors[1])
    }

    #[inline]
    fn uncover(&self, covered: u32) -> u32 {
        let folded = covered.wrapping_mul(self.inverses[1]);
        (folded ^ folded >> 16).wrapping_mul(self.inverses[0]) ^ self.whitener
    }
}

/// The inverse modulo 2^32, by Newton's iteration: each round doubles the number of right bits.
fn inverse_of_odd(odd: u32) -> u32 {
    (0..5).fold(odd, |inverse, _| inverse.wrapping_mul(2u32.wrapping_sub(odd.wrapping_mul(inverse))))
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
        let key = table.register(region(0x4000, 100, Access::LOCAL_WRITE | Access::REMOTE_READ)).expect("legal").0;
        let read = Access::REMOTE_READ;
        assert_eq!(table.resolve(PD, key, 0x4000, 100, read), Ok(0x5000));
        assert_eq!(table.resolve(PD, key, 0x4063, 1, read), Ok(0x5063));
        assert_eq!(table.resolve(PD, key, 0x4064, 0, read), Ok(0x5064), "nothing, just past the end");
        assert_eq!(table.resolve(PD, key, 0x4063, 2, read), Err(Refused));
        assert_eq!(table.resolve(PD, key, 0x3fff, 1, read), Err(Refused));
        assert_eq!(table.resolve(PD, key, u64::MAX, 2, read), Err(Refused));
        assert_eq!(table.resolve(PD, key, 0x4000, u64::MAX, read), Err(Refused));
        assert_eq!(table.resolve(PD, key, 0x4000, 1, Access::REMOTE_WRITE), Err(Refused));
        assert_eq!(table.resolve(PdId(2), key, 0x4000, 1, read), Err(Refused));
        assert_eq!(table.resolve(PD, key ^ 1, 0x4000, 1, read), Err(Refused));
    }

    #[test]
    fn a_key_dies_with_its_registration() {
        let mut table = MrTable::new(7);
        let first = table.register(region(0, 10, Access::empty())).expect("legal");
        assert!(table.deregister(first).is_ok());
        let second = table.register(region(0, 10, Access::empty())).expect("legal");
        assert_ne!(first, second, "the slot is used again, the key is not");
        assert_eq!(table.deregister(first), Err(MemoryError::Unknown(first.0)));
        assert!(table.get(second.0).is_some());
    }

    #[test]
    fn invalidate_needs_its_right() {
        let mut table = MrTable::new(7);
        let plain = table.register(region(0, 10, Access::LOCAL_WRITE)).expect("legal");
        let open = table.register(region(0, 10, Access::REMOTE_INVALIDATE)).expect("legal");
        assert_eq!(table.invalidate(PD, plain.0), Err(Refused));
        assert_eq!(table.invalidate(PdId(9), open.0), Err(Refused));
        assert_eq!(table.invalidate(PD, open.0), Ok(()));
        assert_eq!(table.invalidate(PD, open.0), Err(Refused), "only once");
    }

    #[test]
    fn register_refuses_what_verbs_refuses() {
        let mut table = MrTable::new(0);
        assert!(matches!(
            table.register(region(u64::MAX - 0x2000, 0x4000, Access::empty())),
            Err(MemoryError::Wraps { .. })
        ));
        assert_eq!(table.register(region(0, 1, Access::REMOTE_WRITE)), Err(MemoryError::RemoteWithoutLocalWrite));
    }

    #[test]
    fn veil_is_a_bijection_that_scatters() {
        let veil = Veil::new(0x1234_5678_9abc_def0);
        for plain in (0..100_000).chain([u32::MAX, 1 << 31]) {
            assert_eq!(veil.uncover(veil.cover(plain)), plain);
        }
        let steps: std::collections::BTreeSet<u32> =
            (0..1_000u32).map(|i| veil.cover((i + 1) << 8).wrapping_sub(veil.cover(i << 8))).collect();
        assert!(steps.len() > 400, "consecutive keys differ by {} distances only", steps.len());
    }
}
