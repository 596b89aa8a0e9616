//! `roce-ar`: RoCE in adaptive-routing mode, for networks that reorder packets and do not lose them.
//!
//! Source: Falcon (SIGCOMM'25) section 6.1.1, figure 12. Out-of-order packets are not reported, so a loss is detected
//! by timeout ([`crate::recovery::timeout_only`]). Packets may be sprayed over paths.
//!
//! Deviations: those of `roce-sr`, whose window, headers and acknowledgements it has, and those of the recovery. The
//! path of a packet is chosen by switches that route adaptively, which the simulated switches do not: `paths = "spray"`
//! stands in for them.

use rnic_policy::{Configured, Params, Profile, RecoveryPolicy};

use crate::recovery::timeout_only::TimeoutOnly;

pub(super) fn profile() -> Profile {
    let recovery = RecoveryPolicy::of::<TimeoutOnly>();
    Profile {
        name: "roce-ar",
        summary: "RoCE in adaptive-routing mode: order does not matter to Writes, a loss is found by timeout only",
        recovery: Configured { policy: recovery, params: Params::defaults(recovery.params) },
        ..super::roce_sr::profile()
    }
}
