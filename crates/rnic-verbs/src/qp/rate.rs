//! Limits of a queue pair's rate that the program sets: `ibv_modify_qp_rate_limit`, the attribute `IBV_QP_RATE_LIMIT`,
//! and the static rate of the address vector of a connection. The lowest of them is in force (SCR, mechanism S-1).
//!
//! Source: manual page ibv_modify_qp_rate_limit(3); InfiniBand Architecture volume 1, section 9.11 (static rate
//! control). A rate of zero stands for no limit. The static rate of an address handle of datagrams is stored and has no
//! effect, because limits belong to queue pairs.

use std::ffi::c_int;

use rnic_base::BitRate;
use rnic_engine::{LimitSource, RateLimit};

use super::state_of;
use crate::abi::*;
use crate::context::Context;
use crate::core::Core;
use crate::errno::{Errno, Result, number};
use crate::strings::ibv_rate_to_mbps;

/// Returns the limits that the device supports, for `ibv_query_device_ex`.
pub(crate) fn capabilities(range: [BitRate; 2]) -> ibv_packet_pacing_caps {
    let [qp_rate_limit_min, qp_rate_limit_max] = range.map(kbps);
    let types = [IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND];
    let supported_qpts = types.iter().fold(0, |mask, qp_type| mask | 1 << qp_type);
    ibv_packet_pacing_caps { qp_rate_limit_min, qp_rate_limit_max, supported_qpts }
}

/// Returns whether `rate_limit`, in kbit/s, is zero or a rate that the device supports.
pub(super) fn is_valid(core: &mut Core, rate_limit: u32) -> bool {
    let [min, max] = core.nic.verbs().rate_limit_range().map(kbps);
    rate_limit == 0 || (min..=max).contains(&rate_limit)
}

/// Puts the limits in the attributes of queue pair `handle` into force.
pub(super) fn apply(core: &mut Core, handle: u32) -> Result<()> {
    let qp = core.qps.get(handle as usize).ok_or(Errno::INVALID)?;
    let (qpn, burst) = (qp.qpn, qp.burst_bytes);
    let static_mbps = u64::try_from(ibv_rate_to_mbps(c_int::from(qp.attr.ah_attr.static_rate))).unwrap_or(0);
    let set = [u64::from(qp.attr.rate_limit) * 1_000, static_mbps * 1_000_000].map(BitRate::bps);
    let [_, max] = core.nic.verbs().rate_limit_range();
    // A static rate above that of the link limits nothing.
    let lowest = set.into_iter().filter(|rate| *rate > BitRate::ZERO && *rate <= max).min();
    let limit = lowest.map(|rate| RateLimit { rate, burst_bytes: (burst > 0).then_some(burst) });
    Ok(core.nic.verbs().set_rate_limit(qpn, LimitSource::Program, limit)?)
}

/// Implements the function that the inline `ibv_modify_qp_rate_limit` calls. The typical packet size has no effect.
///
/// # Safety
/// `qp` is from `ibv_create_qp`, `attr` may be read.
pub(crate) unsafe extern "C" fn modify_qp_rate_limit(qp: *mut ibv_qp, attr: *mut ibv_qp_rate_limit_attr) -> c_int {
    // SAFETY: guaranteed by the caller.
    let (context, handle, attr) = unsafe { (Context::of((*qp).context), (*qp).handle, *attr) };
    number(context.shared.enter().and_then(|mut core| {
        let core = &mut *core;
        if attr.comp_mask != 0 || !is_valid(core, attr.rate_limit) {
            return Err(Errno::INVALID);
        }
        let known = core.qps.get(handle as usize).ok_or(Errno::INVALID)?;
        if state_of(core, known) == IBV_QPS_RESET {
            return Err(Errno::INVALID);
        }
        let qp = core.qps.get_mut(handle as usize).ok_or(Errno::INVALID)?;
        qp.attr.rate_limit = attr.rate_limit;
        qp.burst_bytes = if attr.rate_limit == 0 { 0 } else { attr.max_burst_sz };
        apply(core, handle)
    }))
}

/// Returns a rate in kbit/s.
fn kbps(rate: BitRate) -> u32 {
    u32::try_from(rate.as_bps() / 1_000).unwrap_or(u32::MAX)
}
