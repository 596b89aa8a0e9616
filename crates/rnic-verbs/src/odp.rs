//! On-demand paging. Registered memory is reached by the processor, so every region is paged on demand by nature: what
//! is not there yet comes when it is touched. A region that says so may be registered before there is memory, may cover
//! all that a process has (*implicit*), and can be prefetched.

use std::ffi::{c_int, c_void};

use crate::abi::*;
use crate::context::Context;
use crate::core::{Core, Mr};
use crate::errno::{Errno, Result, number};

/// What can be paged on demand.
pub(crate) const CAPABILITIES: ibv_odp_caps = ibv_odp_caps {
    general_caps: (IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT) as u64,
    per_transport_caps: [RELIABLE | PLACEMENT, UNRELIABLE, DATAGRAM],
};

/// The same for extended reliable connections.
pub(crate) const SHARED: u32 = RELIABLE;

const DATAGRAM: u32 = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
const UNRELIABLE: u32 = DATAGRAM | IBV_ODP_SUPPORT_WRITE;
const RELIABLE: u32 = UNRELIABLE | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC;
const PLACEMENT: u32 = IBV_ODP_SUPPORT_FLUSH | IBV_ODP_SUPPORT_ATOMIC_WRITE;

/// Returns whether a registration asks for all memory of the process.
///
/// # Errors
/// When it does, without paging on demand.
pub(crate) fn is_implicit(start: usize, len: usize, flags: u32) -> Result<bool> {
    let everything = start == 0 && len == usize::MAX;
    if everything && flags & IBV_ACCESS_ON_DEMAND == 0 {
        return Err(Errno::INVALID);
    }
    Ok(everything)
}

/// A stretch of the process's memory that shall be there.
struct Range {
    start: usize,
    len: usize,
}

/// The memory that an entry names.
fn range_of(core: &Core, domain: u32, writes: bool, sge: &ibv_sge) -> Result<Range> {
    let is_named = |mr: &&Mr| mr.region.key().0 == sge.lkey;
    let mr = core.mrs.iter().find(is_named).ok_or(Errno(libc::ENOENT))?;
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

/// Brings a range near. Older kernels know no advice that waits for it; there it comes with its first use.
fn populate(range: &Range, advice: u32) -> Result<()> {
    const PAGE: usize = 4_096;
    let first = range.start & !(PAGE - 1);
    let len = range.start + range.len - first;
    // SAFETY: neither advice changes what stands in memory, nor where there is any.
    let advise = |advice: c_int| unsafe { libc::madvise(first as *mut c_void, len, advice) };
    let done = match advice {
        IBV_ADVISE_MR_ADVICE_PREFETCH => advise(libc::MADV_POPULATE_READ),
        IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE => advise(libc::MADV_POPULATE_WRITE),
        _ => 0,
    };
    if done != 0 && Errno::last() != Errno::INVALID {
        return Err(Errno(libc::EFAULT));
    }
    Ok(())
}

fn advise(pd: *mut ibv_pd, advice: u32, flags: u32, entries: &[ibv_sge]) -> Result<()> {
    let known =
        [IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT];
    if !known.contains(&advice) || flags & !IBV_ADVISE_MR_FLAG_FLUSH != 0 || entries.is_empty() {
        return Err(Errno::INVALID);
    }
    // SAFETY: a program hands over protection domains that it has made.
    let (context, domain) = unsafe { (Context::of((*pd).context), (*pd).handle) };
    let writes = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
    let core = context.shared.enter()?;
    let ranges: Vec<Range> = entries.iter().map(|sge| range_of(&core, domain, writes, sge)).collect::<Result<_>>()?;
    drop(core);
    for range in &ranges {
        let populated = populate(range, advice);
        // Who does not wait for the pages does not hear of those that cannot come.
        if flags & IBV_ADVISE_MR_FLAG_FLUSH != 0 {
            populated?;
        }
    }
    Ok(())
}

/// What `ibv_advise_mr` calls.
///
/// # Safety
/// `pd` is a living protection domain, `entries` leads to `count` entries.
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
    // SAFETY: the caller's promise.
    let entries = unsafe { std::slice::from_raw_parts(entries, count as usize) };
    number(advise(pd, advice, flags, entries))
}
