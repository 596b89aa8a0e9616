//! `roce-ar`: RoCE in adaptive-routing mode, for networks that reorder packets and do not lose them.
//!
//! Source: Falcon (SIGCOMM'25) section 6.1.1, figure 12. Out-of-order packets are not reported, so a loss is detected
//! by timeout ([`crate::recovery::timeout_only`]). Packets may be sprayed over paths.
//!
//! Deviations: those of `roce-sr`, whose window, headers and acknowledgements are used, and those of the recovery.
//! The path of a packet is chosen by switches that route adaptively, which the simulated switches do not: `paths =
//! "spray"` is used instead.

use rnic_policy::{Profile, RecoveryPolicy};

use crate::recovery::timeout_only::TimeoutOnly;

pub(super) fn profile() -> Profile {
    Profile {
        name: "roce-ar",
        summary: "RoCE in adaptive-routing mode: Writes may arrive in any order, a loss is detected by timeout only",
        recovery: RecoveryPolicy::configured::<TimeoutOnly>(),
        ..super::roce_sr::profile()
    }
}
