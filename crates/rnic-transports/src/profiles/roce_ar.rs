//! `roce-ar`: RoCE in adaptive-routing mode, for networks that reorder and do not lose.
//!
//! Source: Falcon (SIGCOMM'25) section 6.1.1, figure 12. Packets out of order are nothing to
//! report, so a loss is found by timeout ([`crate::recovery::timeout_only`]). It may be sprayed over paths.
//!
//! Deviations: those of `roce-sr`, whose window, headers and acknowledgements it has, and those of the recovery. Which
//! path a packet takes is the business of switches that route adaptively, which ours do not: `paths = "spray"` stands
//! for them.

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
