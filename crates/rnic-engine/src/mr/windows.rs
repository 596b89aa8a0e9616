//! Memory windows: keys that grant access to a part of a region, bound and invalidated by work requests.
//!
//! Source: InfiniBand Architecture volume 1, sections 10.6.7 (windows), 10.6.7.2 (binding: o10-36, o10-37, C10-72 to
//! C10-75) and 11.2.10. Windows of type 1 are bound by a separate verb and serve every queue pair of their protection
//! domain; those of type 2 are bound by a work request, serve only the queue pair that has bound them (type 2B), and
//! can be invalidated by that queue pair or by its peer.
//!
//! A window's key consists of a 24-bit prefix, generated when the window is created, and 8 bits that change with
//! every binding: for type 2, the program chooses them. No region has a key with the prefix of a window, so windows
//! are only searched after a lookup among the regions has failed, and the cost of region lookups is the same as
//! without windows.

use std::collections::BTreeMap;

use rnic_wire::Qpn;

use super::{Access, MemoryRegion, Refused};
use crate::PdId;

/// Type of a memory window.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WindowKind {
    /// Type 1: bound by a call, for all queue pairs of its protection domain.
    One,
    /// Type 2: bound by a work request, for the queue pair to which the request was posted.
    Two,
}

/// Attributes of a binding, including the rights that the window then grants: the operand of [`crate::SendOp::Bind`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Binding {
    /// New key of the window: its prefix with new low 8 bits.
    pub key: u32,
    /// Key of the region that contains the window.
    pub region: u32,
    /// First virtual address within the region.
    pub addr: u64,
    /// Length in bytes; zero removes the grant, which is permitted only for windows of type 1.
    pub len: u64,
    /// Access rights of peers.
    pub access: Access,
    /// True when peers address the first byte as 0 instead of by its address.
    pub zero_based: bool,
}

/// A memory window.
#[derive(Debug)]
struct Window {
    kind: WindowKind,
    pd: PdId,
    /// Current key of the window; for an unbound window of type 2, its last key.
    key: u32,
    bound: Option<Bound>,
}

/// Current grant of a window.
#[derive(Debug)]
struct Bound {
    /// Key of the region to which the window is bound.
    region: u32,
    /// The queue pair that has bound the window; a window of type 2 serves only this one.
    qpn: Qpn,
    grant: MemoryRegion,
}

/// The windows of an engine, by the upper 24 bits of their keys.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    by_prefix: BTreeMap<u32, Window>,
}

const fn prefix(key: u32) -> u32 {
    key >> TAG_BITS
}

impl Windows {
    /// Returns `true` if the prefix of `key` belongs to a window.
    pub(crate) fn has(&self, key: u32) -> bool {
        self.by_prefix.contains_key(&prefix(key))
    }

    pub(crate) fn len(&self) -> usize {
        self.by_prefix.len()
    }

    /// Adds a window with `key`, whose prefix must be free.
    pub(crate) fn add(&mut self, key: u32, pd: PdId, kind: WindowKind) {
        self.by_prefix.insert(prefix(key), Window { kind, pd, key, bound: None });
    }

    /// Removes the window that has or had `key`.
    pub(crate) fn remove(&mut self, key: u32) -> Option<()> {
        self.by_prefix.remove(&prefix(key)).map(drop)
    }

    /// Returns the type of the window that has or had `key`.
    pub(crate) fn kind(&self, key: u32) -> Option<WindowKind> {
        self.by_prefix.get(&prefix(key)).map(|window| window.kind)
    }

    /// Binds a window to a part of `region`, on behalf of queue pair `qpn` of `pd`.
    pub(crate) fn bind(
        &mut self,
        pd: PdId,
        qpn: Qpn,
        binding: &Binding,
        region: Option<&MemoryRegion>,
    ) -> Result<(), Refused> {
        let window = self.by_prefix.get_mut(&prefix(binding.key)).filter(|window| window.pd == pd).ok_or(Refused)?;
        let is_type_2 = window.kind == WindowKind::Two;
        if (is_type_2 && (window.bound.is_some() || binding.len == 0)) || (!is_type_2 && binding.zero_based) {
            return Err(Refused);
        }
        if binding.len == 0 {
            (window.key, window.bound) = (binding.key, None);
            return Ok(());
        }
        let grant = granted(pd, binding, region.ok_or(Refused)?)?;
        (window.key, window.bound) = (binding.key, Some(Bound { region: binding.region, qpn, grant }));
        Ok(())
    }

    /// Returns the rights that a window with `key` grants to queue pair `qpn`; the caller checks the protection
    /// domain.
    #[cold]
    pub(crate) fn granted_to(&self, qpn: Qpn, key: u32) -> Result<&MemoryRegion, Refused> {
        let window = self.by_prefix.get(&prefix(key)).filter(|window| window.key == key).ok_or(Refused)?;
        let bound = window.bound.as_ref().filter(|bound| window.kind == WindowKind::One || bound.qpn == qpn);
        bound.map(|bound| &bound.grant).ok_or(Refused)
    }

    /// Returns the memory range and access rights of the memory window with R_Key `key`, without checking which queue
    /// pair it is bound to; `None` if it is not bound.
    pub(crate) fn grant(&self, key: u32) -> Option<&MemoryRegion> {
        let window = self.by_prefix.get(&prefix(key)).filter(|window| window.key == key)?;
        window.bound.as_ref().map(|bound| &bound.grant)
    }

    /// Checks whether queue pair `qpn` of `pd`, or its peer, may invalidate `key`.
    pub(crate) fn check_invalidate(&self, pd: PdId, qpn: Qpn, key: u32) -> Result<(), Refused> {
        let window = self.by_prefix.get(&prefix(key)).filter(|window| window.key == key && window.pd == pd);
        let window = window.filter(|window| window.kind == WindowKind::Two).ok_or(Refused)?;
        if window.bound.as_ref().is_some_and(|bound| bound.qpn == qpn) { Ok(()) } else { Err(Refused) }
    }

    /// Invalidates the memory window with key `key`.
    pub(crate) fn invalidate(&mut self, pd: PdId, qpn: Qpn, key: u32) -> Result<(), Refused> {
        self.check_invalidate(pd, qpn, key)?;
        self.by_prefix.get_mut(&prefix(key)).ok_or(Refused)?.bound = None;
        Ok(())
    }

    /// Returns `true` if a window is bound to the region with `key`.
    pub(crate) fn has_window(&self, key: u32) -> bool {
        self.by_prefix.values().any(|window| window.bound.as_ref().is_some_and(|bound| bound.region == key))
    }

    /// Invalidates the windows bound to the region with `key`, which is about to be destroyed.
    pub(crate) fn invalidate_bound_to(&mut self, key: u32) {
        self.unbind(|_, bound| bound.region == key);
    }

    /// Invalidates the windows of type 2 bound by queue pair `qpn`, which is about to be destroyed: its number may be
    /// reused.
    pub(crate) fn invalidate_bound_by(&mut self, qpn: Qpn) {
        self.unbind(|window, bound| window.kind == WindowKind::Two && bound.qpn == qpn);
    }

    fn unbind(&mut self, mut is_affected: impl FnMut(&Window, &Bound) -> bool) {
        for window in self.by_prefix.values_mut() {
            if window.bound.as_ref().is_some_and(|bound| is_affected(window, bound)) {
                window.bound = None;
            }
        }
    }

    /// Returns `true` if a window belongs to `pd`.
    pub(crate) fn use_domain(&self, pd: PdId) -> bool {
        self.by_prefix.values().any(|window| window.pd == pd)
    }
}

/// Returns the grant of a window that is bound to a part of `region`.
fn granted(pd: PdId, binding: &Binding, region: &MemoryRegion) -> Result<MemoryRegion, Refused> {
    let write_rights = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let lacks_local_write = binding.access.intersects(write_rights) && !region.access.contains(Access::LOCAL_WRITE);
    if region.pd != pd || !region.access.contains(Access::BIND) || lacks_local_write {
        return Err(Refused);
    }
    let offset = binding.addr.wrapping_sub(region.addr);
    if offset > region.len || binding.len > region.len - offset {
        return Err(Refused);
    }
    let remote = write_rights | Access::REMOTE_READ | Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT;
    Ok(MemoryRegion {
        pd,
        addr: if binding.zero_based { 0 } else { binding.addr },
        len: binding.len,
        local: region.local + offset,
        access: binding.access & remote,
    })
}

/// Number of bits of a window's key that change with each binding.
const TAG_BITS: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    const PD: PdId = PdId(1);
    const QPN: Qpn = Qpn::new(7);
    const KEY: u32 = 0xabcd_ef00;
    const REGION: MemoryRegion =
        MemoryRegion { pd: PD, addr: 0x1000, len: 100, local: 0x9000, access: Access::LOCAL_WRITE.union(Access::BIND) };
    const BINDING: Binding =
        Binding { key: KEY + 1, region: 5, addr: 0x1010, len: 16, access: Access::REMOTE_WRITE, zero_based: false };

    fn windows(kind: WindowKind) -> Windows {
        let mut windows = Windows::default();
        windows.add(KEY, PD, kind);
        windows
    }

    #[test]
    fn a_window_grants_access_to_its_range_only() {
        let mut windows = windows(WindowKind::Two);
        assert_eq!(windows.bind(PD, QPN, &BINDING, Some(&REGION)), Ok(()));
        let resolve = |(pd, qpn), key, addr, len, access| windows.granted_to(qpn, key)?.resolve(pd, addr, len, access);
        let write = Access::REMOTE_WRITE;
        assert_eq!(resolve((PD, QPN), KEY + 1, 0x1010, 16, write), Ok(0x9010));
        assert_eq!(resolve((PD, QPN), KEY + 1, 0x101f, 1, write), Ok(0x901f));
        for refused in [
            resolve((PD, QPN), KEY + 1, 0x100f, 2, write),
            resolve((PD, QPN), KEY + 1, 0x1010, 17, write),
            resolve((PD, QPN), KEY + 1, 0x1010, 1, Access::REMOTE_READ),
            resolve((PD, QPN), KEY, 0x1010, 1, write),
            resolve((PD, QPN), KEY + 2, 0x1010, 1, write),
            resolve((PD, Qpn::new(8)), KEY + 1, 0x1010, 1, write),
            resolve((PdId(2), QPN), KEY + 1, 0x1010, 1, write),
        ] {
            assert_eq!(refused, Err(Refused));
        }
    }

    #[test]
    fn binding_follows_the_rules_of_each_type() {
        let mut type_2 = windows(WindowKind::Two);
        let mut type_1 = windows(WindowKind::One);
        let region = Some(&REGION);
        let refused = [
            Binding { len: 85, ..BINDING },
            Binding { addr: 0xfff, ..BINDING },
            Binding { key: KEY + 0x100, ..BINDING },
        ];
        for binding in refused {
            assert_eq!(type_2.bind(PD, QPN, &binding, region), Err(Refused), "{binding:?}");
            assert_eq!(type_1.bind(PD, QPN, &binding, region), Err(Refused), "{binding:?}");
        }
        assert_eq!(type_2.bind(PD, QPN, &Binding { len: 0, ..BINDING }, region), Err(Refused));
        assert_eq!(type_2.bind(PD, QPN, &BINDING, None), Err(Refused));
        assert_eq!(type_2.bind(PdId(2), QPN, &BINDING, region), Err(Refused));
        for access in [Access::LOCAL_WRITE, Access::BIND] {
            let insufficient = MemoryRegion { access, ..REGION };
            assert_eq!(type_2.bind(PD, QPN, &BINDING, Some(&insufficient)), Err(Refused), "{access:?}");
        }
        assert_eq!(type_1.bind(PD, QPN, &Binding { zero_based: true, ..BINDING }, region), Err(Refused));
        assert_eq!(type_2.bind(PD, QPN, &Binding { zero_based: true, ..BINDING }, region), Ok(()));
        let resolve = |windows: &Windows, qpn, key, addr, len| {
            windows.granted_to(qpn, key)?.resolve(PD, addr, len, Access::REMOTE_WRITE)
        };
        assert_eq!(resolve(&type_2, QPN, KEY + 1, 3, 13), Ok(0x9013));
        assert_eq!(type_2.bind(PD, QPN, &BINDING, region), Err(Refused), "a bound window is bound again");
        assert_eq!(type_1.bind(PD, QPN, &BINDING, region), Ok(()));
        let rebinding = Binding { key: KEY + 2, ..BINDING };
        assert_eq!(type_1.bind(PD, QPN, &rebinding, region), Ok(()), "a window of type 1 cannot be bound again");
        let other = Qpn::new(99);
        assert_eq!(resolve(&type_1, other, KEY + 1, 0x1010, 1), Err(Refused), "the old key is still valid");
        assert_eq!(
            resolve(&type_1, other, KEY + 2, 0x1010, 1),
            Ok(0x9010),
            "another queue pair was denied access through a type 1 window"
        );
        assert_eq!(type_1.bind(PD, QPN, &Binding { len: 0, key: KEY + 3, ..BINDING }, None), Ok(()));
        assert_eq!(resolve(&type_1, other, KEY + 3, 0x1010, 1), Err(Refused), "the unbound window is still valid");
    }

    #[test]
    fn only_type_2_windows_can_be_invalidated_and_only_by_the_queue_pair_that_bound_them() {
        let (mut type_1, mut type_2) = (windows(WindowKind::One), windows(WindowKind::Two));
        for windows in [&mut type_1, &mut type_2] {
            assert_eq!(windows.bind(PD, QPN, &BINDING, Some(&REGION)), Ok(()));
            assert!(windows.has_window(5) && !windows.has_window(6));
        }
        assert_eq!(type_1.invalidate(PD, QPN, KEY + 1), Err(Refused));
        assert_eq!(type_2.invalidate(PD, Qpn::new(8), KEY + 1), Err(Refused));
        assert_eq!(type_2.invalidate(PdId(2), QPN, KEY + 1), Err(Refused));
        assert_eq!(type_2.invalidate(PD, QPN, KEY), Err(Refused));
        assert_eq!(type_2.invalidate(PD, QPN, KEY + 1), Ok(()));
        assert_eq!(type_2.invalidate(PD, QPN, KEY + 1), Err(Refused), "the window is invalidated twice");
        assert_eq!(type_2.bind(PD, QPN, &Binding { key: KEY + 9, ..BINDING }, Some(&REGION)), Ok(()));
        type_2.invalidate_bound_by(QPN);
        type_1.invalidate_bound_by(QPN);
        assert!(!type_2.has_window(5) && type_1.has_window(5), "the windows of both types are wrong");
        type_1.invalidate_bound_to(5);
        assert!(!type_1.has_window(5));
    }
}
