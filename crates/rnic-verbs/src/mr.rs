//! Protection domains and memory regions.

mod pages;

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use rnic_engine::{Access, PdId};

use crate::abi::*;
use crate::context::Context;
use crate::core::{Core, Mr, Pd};
use crate::errno::{Errno, Result, number, pointer};
use crate::object::{MrObject, PdObject};
use crate::odp;

pub(crate) use pages::PAGE;

/// Implements `ibv_alloc_pd`.
///
/// # Safety
/// `context` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    // SAFETY: guaranteed by the caller.
    let guard = unsafe { Context::of(context) }.shared.enter();
    pointer(guard.and_then(|mut core| {
        let id = core.nic.verbs().create_pd()?;
        let handle = core.pds.insert(Pd { id, address_handles: 0 }) as u32;
        Ok(PdObject::make(context, handle, None))
    }))
}

/// Implements `ibv_dealloc_pd`.
///
/// # Safety
/// `pd` is from `ibv_alloc_pd`, and not used again if this succeeds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: guaranteed by the caller.
    let (context, handle) = unsafe { (Context::of((*pd).context), (*pd).handle) };
    let object = pd.cast::<PdObject>();
    number(context.shared.enter().and_then(|mut core| {
        // SAFETY: guaranteed by the caller.
        let (parents, is_parent) = unsafe { ((*object).parents.load(Ordering::Relaxed), (*object).parent.is_some()) };
        if parents > 0 {
            return Err(Errno::BUSY);
        }
        if !is_parent {
            let known = core.pds.get(handle as usize).ok_or(Errno::INVALID)?;
            let (id, address_handles) = (known.id, known.address_handles);
            if address_handles > 0 {
                return Err(Errno::BUSY);
            }
            core.nic.verbs().destroy_pd(id)?;
            core.pds.try_remove(handle as usize);
        }
        // SAFETY: `PdObject::make` allocated it as a `Box`, and the caller gives up ownership.
        let object = unsafe { Box::from_raw(object) };
        if let Some(parent) = object.parent {
            parent.end();
        }
        Ok(())
    }))
}

/// Returns the engine's identifier of a protection domain.
pub(crate) fn pd_id(core: &Core, handle: u32) -> Result<PdId> {
    core.pds.get(handle as usize).map(|pd| pd.id).ok_or(Errno::INVALID)
}

/// Returns the access rights that `flags` grant.
///
/// # Errors
/// When the flags contradict each other, or request rights that are not supported.
pub(crate) fn access(flags: u32) -> Result<Access> {
    if flags & IBV_ACCESS_FLUSH_PERSISTENT != 0 {
        // Not supported, because this library cannot guarantee persistence for any memory.
        return Err(Errno::UNSUPPORTED);
    }
    if flags & !ACCESS_FLAGS != 0 {
        return Err(Errno::INVALID);
    }
    let mut access = remote_rights(flags);
    if flags & IBV_ACCESS_LOCAL_WRITE != 0 {
        access |= Access::LOCAL_WRITE;
    }
    if flags & IBV_ACCESS_FLUSH_GLOBAL != 0 {
        access |= Access::FLUSH_GLOBAL;
    }
    if flags & IBV_ACCESS_MW_BIND != 0 {
        access |= Access::BIND;
    }
    Ok(access)
}

/// Flags with which the kernel pins pages for writing (`ib_access_writable` of `include/rdma/ib_verbs.h`).
const WRITING_FLAGS: u32 =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;

/// Access flags that are defined.
pub(crate) const ACCESS_FLAGS: u32 = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_MW_BIND
    | IBV_ACCESS_ZERO_BASED
    | IBV_ACCESS_ON_DEMAND
    | IBV_ACCESS_HUGETLB
    | IBV_ACCESS_FLUSH_GLOBAL
    // These flags are hints, which may be ignored.
    | IBV_ACCESS_OPTIONAL_RANGE;

/// Access flags that a queue pair accepts: it may permit rights that no region grants.
pub(crate) const QP_ACCESS_FLAGS: u32 = ACCESS_FLAGS | IBV_ACCESS_FLUSH_PERSISTENT;

/// Returns the rights that `flags` grant to peers.
pub(crate) fn remote_rights(flags: u32) -> Access {
    let mut access = Access::empty();
    for (flag, right) in [
        (IBV_ACCESS_REMOTE_WRITE, Access::REMOTE_WRITE),
        (IBV_ACCESS_REMOTE_READ, Access::REMOTE_READ),
        (IBV_ACCESS_REMOTE_ATOMIC, Access::REMOTE_ATOMIC),
    ] {
        if flags & flag != 0 {
            access |= right;
        }
    }
    // A peer that knows a key may invalidate it by a Send with Invalidate.
    if access.intersects(Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC) {
        access |= Access::REMOTE_INVALIDATE;
    }
    access
}

/// Parameters of a memory registration.
#[derive(Clone, Copy)]
struct RegistrationParams {
    start: usize,
    len: usize,
    iova: u64,
    flags: u32,
}

impl RegistrationParams {
    /// Checks the parameters; returns the memory, the address by which requests refer to it (IOVA), and the rights.
    fn check(&self) -> Result<(NonNull<u8>, u64, Access)> {
        let access = access(self.flags)?;
        let remote_changes = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        if access.intersects(remote_changes) && !access.contains(Access::LOCAL_WRITE) {
            return Err(Errno::INVALID);
        }
        let iova = if self.flags & IBV_ACCESS_ZERO_BASED != 0 { 0 } else { self.iova };
        let start = NonNull::new(self.start as *mut u8).ok_or(Errno(libc::EFAULT))?;
        if self.len == 0 {
            return Err(Errno::INVALID);
        }
        // With on-demand paging, the memory may be mapped later, so it is not checked.
        if self.flags & IBV_ACCESS_ON_DEMAND == 0 {
            pages::check(self.start, self.len, self.flags & WRITING_FLAGS != 0)?;
        }
        Ok((start, iova, access))
    }
}

fn register(core: &mut Core, pd: u32, params: &RegistrationParams) -> Result<Mr> {
    let id = pd_id(core, pd)?;
    if odp::is_implicit(params.start, params.len, params.flags)? {
        // SAFETY: a program that registers its complete address space gives the guarantees of a registration for all
        // of it.
        let region = unsafe { core.nic.verbs().register_everything(id, access(params.flags)?) }?;
        let start = region.addr() as usize;
        return Ok(Mr { region, pd, start, access: params.flags });
    }
    let (start, iova, access) = params.check()?;
    // SAFETY: the memory has just been checked to be mapped; the program keeps it mapped until deregistration, as
    // verbs require, or has no data at these addresses that an access could damage or disclose.
    let region = unsafe { core.nic.verbs().register_raw(id, start, params.len, iova, access) }?;
    Ok(Mr { region, pd, start: params.start, access: params.flags })
}

fn reg_mr(pd: *mut ibv_pd, params: RegistrationParams) -> Result<*mut ibv_mr> {
    // SAFETY: programs pass protection domains that they have created.
    let (context, pd_handle) = unsafe { ((*pd).context, (*pd).handle) };
    // SAFETY: as above.
    let mut core = unsafe { Context::of(context) }.shared.enter()?;
    let mr = register(&mut core, pd_handle, &params)?;
    let key = mr.region.key().0;
    let handle = core.mrs.insert(mr) as u32;
    let c = ibv_mr { context, pd, addr: params.start as *mut c_void, length: params.len, handle, lkey: key, rkey: key };
    Ok(Box::into_raw(Box::new(MrObject { c })).cast())
}

/// Implements `ibv_reg_mr`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr {
    ibv_reg_mr_iova2(pd, addr, length, addr as u64, access as u32)
}

/// Implements `ibv_reg_mr_iova`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    ibv_reg_mr_iova2(pd, addr, length, iova, access as u32)
}

/// Implements `ibv_reg_mr_iova2`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: u32,
) -> *mut ibv_mr {
    pointer(reg_mr(pd, RegistrationParams { start: addr as usize, len: length, iova, flags: access }))
}

/// Implements `ibv_reg_dmabuf_mr`: not supported, because there is no device that could access such a buffer.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_reg_dmabuf_mr(
    _pd: *mut ibv_pd,
    _offset: u64,
    _length: usize,
    _iova: u64,
    _fd: c_int,
    _access: c_int,
) -> *mut ibv_mr {
    pointer(Err(Errno::UNSUPPORTED))
}

/// Implements `ibv_rereg_mr`: returns 0, or a negative value of the enumeration for this call, with `errno` set.
///
/// # Safety
/// `mr` is a valid region, `pd` a valid protection domain if `flags` request a change of the protection domain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    let flags = flags as u32;
    let changes = |flag: u32| flags & flag != 0;
    let known = IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
    let is_incomplete = (changes(IBV_REREG_MR_CHANGE_TRANSLATION) && (addr.is_null() || length == 0))
        || (changes(IBV_REREG_MR_CHANGE_PD) && pd.is_null());
    if flags & !known != 0 || flags == 0 || is_incomplete {
        Errno::INVALID.set();
        return IBV_REREG_MR_ERR_INPUT;
    }
    // SAFETY: guaranteed by the caller.
    let (mr, context) = unsafe { (&mut *mr, Context::of((*mr).context)) };
    let changed = context.shared.enter().and_then(|mut core| {
        let old = core.mrs.get(mr.handle as usize).ok_or(Errno::INVALID)?;
        // SAFETY: guaranteed by the caller.
        let domain = if changes(IBV_REREG_MR_CHANGE_PD) { unsafe { (*pd).handle } } else { old.pd };
        let id = pd_id(&core, domain)?;
        let mut params =
            RegistrationParams { start: old.start, len: old.region.len(), iova: old.region.addr(), flags: old.access };
        if changes(IBV_REREG_MR_CHANGE_TRANSLATION) {
            params = RegistrationParams { start: addr as usize, len: length, iova: addr as u64, ..params };
        }
        if changes(IBV_REREG_MR_CHANGE_ACCESS) {
            params.flags = access as u32;
        }
        let (start, iova, access) = params.check()?;
        let Core { nic, mrs, .. } = &mut *core;
        let known = mrs.get_mut(mr.handle as usize).ok_or(Errno::INVALID)?;
        // SAFETY: the same guarantees as for the first registration apply.
        unsafe { nic.verbs().reregister_raw(&mut known.region, id, (start, params.len), iova, access) }?;
        (known.pd, known.start, known.access) = (domain, params.start, params.flags);
        if changes(IBV_REREG_MR_CHANGE_PD) {
            mr.pd = pd;
        }
        (mr.addr, mr.length) = (params.start as *mut c_void, params.len);
        Ok(())
    });
    match changed {
        Ok(()) => 0,
        Err(errno) => {
            errno.set();
            IBV_REREG_MR_ERR_CMD
        }
    }
}

/// Implements `ibv_dereg_mr`.
///
/// # Safety
/// `mr` is a valid region, and not used again if this succeeds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: guaranteed by the caller.
    let (context, handle) = unsafe { (Context::of((*mr).context), (*mr).handle) };
    number(context.shared.enter().and_then(|mut core| {
        if core.mrs.get(handle as usize).is_some_and(|known| core.nic.has_windows(&known.region)) {
            return Err(Errno::BUSY);
        }
        let known = core.mrs.try_remove(handle as usize).ok_or(Errno::INVALID)?;
        core.nic.verbs().deregister(known.region);
        // SAFETY: the registration allocated it as a `Box`, and the caller gives up ownership.
        drop(unsafe { Box::from_raw(mr.cast::<MrObject>()) });
        Ok(())
    }))
}
