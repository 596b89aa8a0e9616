//! `roce-cx6cache`: go-back-N on an adapter whose contexts do not all fit.
//!
//! Source: FaSR (2025) sections II-A and V: a ConnectX-6 Dx with 2 MB of SRAM misses its cache above 256 queue pairs;
//! congestion control off. The transport is [`super::roce_gbn`]'s with a timeout; the cache is the plan's:
//! `nic.qpc_entries = 256`, since what else lies in those 2 MB is not published, and `nic.wqe_fetch = "ahead"`.
//!
//! Deviations: what the adapter does after a loss beyond go-back-N (how long it takes to notice and to turn around) is
//! not published; here it takes no time, which is kind to it. Its vendor's documents name a slow restart and timeouts
//! of its own (counters `roce_slow_restart`, `roce_adp_retrans`), but not how slow or how long.

use rnic_policy::Profile;

use super::roce_gbn;

pub(super) fn profile() -> Profile {
    Profile {
        name: "roce-cx6cache",
        summary: "RoCEv2 with go-back-N for NICs whose context cache is modelled: set nic.qpc_entries = 256",
        ..roce_gbn::profile()
    }
}
