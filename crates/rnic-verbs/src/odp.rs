//! On-demand paging. Registered memory is accessed by the processor, so every region is inherently paged on demand:
//! missing pages are faulted in on access. A region registered with the on-demand flag may be registered before it is
//! mapped, may cover all memory of a process (*implicit*), and can be prefetched.

use std::ffi::{c_int, c_void};

use crate::abi::*;
use crate::context::Context;
use crate::core::{Core, Mr};
use crate::errno::{Errno, Result, number};

/// On-demand paging capabilities.
pub(crate) const CAPABILITIES: ibv_odp_caps = ibv_odp_caps {
    general_caps: (IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT) as u64,
    per_transport_caps: [RELIABLE | PLACEMENT, UNRELIABLE, DATAGRAM],
};

/// On-demand paging capabilities of extended reliable connections.
pub(crate) const SHARED: u32 = RELIABLE;

const DATAGRAM: u32 = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
const UNRELIABLE: u32 = DATAGRAM | IBV_ODP_SUPPORT_WRITE;
const RELIABLE: u32 = UNRELIABLE | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC;
const PLACEMENT: u32 = IBV_ODP_SUPPORT_FLUSH | IBV_ODP_SUPPORT_ATOMIC_WRITE;

/// Returns whether a registration requests all memory of the process.
///
/// # Errors
/// When it does so without the on-demand flag.
pub(crate) fn is_implicit(start: usize, len: usize, flags: u32) -> Result<bool> {
    let is_whole_memory = start == 0 && len == usize::MAX;
    if is_whole_memory && flags & IBV_ACCESS_ON_DEMAND == 0 {
        return Err(Errno::INVALID);
    }
    Ok(is_whole_memory)
}

/// A range of the process's memory that is to be populated.
struct Range {
    start: usize,
    len: usize,
}

/// Returns the memory that a scatter/gather entry refers to.
fn range_of(core: &Core, domain: u32, writes: bool, sge: &ibv_sge) -> Result<Range> {
    let is_named = |mr: &&Mr| mr.region.key().0 == sge.lkey;
    let mr = core.mrs.iter().map(|(_, known)| known).find(is_named).ok_or(Errno(libc::ENOENT))?;
    if mr.pd != domain || (writes && mr.access & IBV_ACCESS_LOCAL_WRITE == 0) {
        return Err(Errno(libc::EPERM));
    }
    if mr.access & IBV_ACCESS_ON_DEMAND == 0 {
        return Err(Errno::INVALID);
    }
    let offset = sge.addr.wrapping_sub(mr.region.addr()) as usize;
    if offset > mr.region.len() || sge.length as usize > mr.region.len() - offset {
        return Err(Errno(libc::EFAULT));
    }
    Ok(Range { start: mr.start + offset, len: sge.length as usize })
}

/// Populates a range. On older kernels, which have no populating advice, the pages are faulted in on first use.
fn populate(range: &Range, advice: u32) -> Result<()> {
    const PAGE: usize = 4_096;
    let aligned_start = range.start & !(PAGE - 1);
    let len = range.start + range.len - aligned_start;
    // SAFETY: these advice values change neither memory contents nor mappings.
    let advise = |advice: c_int| unsafe { libc::madvise(aligned_start as *mut c_void, len, advice) };
    let result = match advice {
        IBV_ADVISE_MR_ADVICE_PREFETCH => advise(libc::MADV_POPULATE_READ),
        IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE => advise(libc::MADV_POPULATE_WRITE),
        _ => 0,
    };
    if result != 0 && Errno::last() != Errno::INVALID {
        return Err(Errno(libc::EFAULT));
    }
    Ok(())
}

fn advise(pd: *mut ibv_pd, advice: u32, flags: u32, entries: &[ibv_sge]) -> Result<()> {
    let supported_advice =
        [IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT];
    if !supported_advice.contains(&advice) || flags & !IBV_ADVISE_MR_FLAG_FLUSH != 0 || entries.is_empty() {
        return Err(Errno::INVALID);
    }
    // SAFETY: programs pass protection domains that they have created.
    let (context, domain) = unsafe { (Context::of((*pd).context), (*pd).handle) };
    let writes = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
    let core = context.shared.enter()?;
    let ranges: Vec<Range> = entries.iter().map(|sge| range_of(&core, domain, writes, sge)).collect::<Result<_>>()?;
    drop(core);
    for range in &ranges {
        let populated = populate(range, advice);
        // Pages that cannot be populated are reported only with the flush flag, because without it the program does not
        // wait for the pages.
        if flags & IBV_ADVISE_MR_FLAG_FLUSH != 0 {
            populated?;
        }
    }
    Ok(())
}

/// Implements `ibv_advise_mr`.
///
/// # Safety
/// `pd` is a valid protection domain, `entries` points to `count` entries.
pub(crate) unsafe extern "C" fn advise_mr(
    pd: *mut ibv_pd,
    advice: u32,
    flags: u32,
    entries: *mut ibv_sge,
    count: u32,
) -> c_int {
    if entries.is_null() || count == 0 {
        return number(Err(Errno::INVALID));
    }
    // SAFETY: guaranteed by the caller.
    let entries = unsafe { std::slice::from_raw_parts(entries, count as usize) };
    number(advise(pd, advice, flags, entries))
}
