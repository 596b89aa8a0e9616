//! `roce-cx6cache`: go-back-N on an adapter whose cache does not hold all contexts.
//!
//! Source: FaSR (2025) sections II-A and V: a ConnectX-6 Dx with 2 MB of SRAM misses its cache above 256 queue pairs;
//! congestion control off. The transport is [`super::roce_gbn`] with a timeout; the cache is set by the plan:
//! `nic.qpc_entries = 256`, since the other contents of those 2 MB are not published, and `nic.wqe_fetch = "ahead"`.
//!
//! Deviations: the adapter's behaviour after a loss beyond go-back-N (the time to detect it and to restart) is not
//! published; here it takes no time, which is in the adapter's favour. The vendor's documents mention a slow restart
//! and special timeouts (counters `roce_slow_restart`, `roce_adp_retrans`), but give no values.

use rnic_policy::Profile;

use super::roce_gbn;

pub(super) fn profile() -> Profile {
    Profile {
        name: "roce-cx6cache",
        summary: "RoCEv2 with go-back-N for NICs whose context cache is modelled: set nic.qpc_entries = 256",
        ..roce_gbn::profile()
    }
}
