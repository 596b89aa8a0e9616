//! `irn-plus`: IRN in the form that FaSR uses for comparison.
//!
//! Source: FaSR (2025) section V-A: IRN's recovery with SRNIC's method of fetching work requests (in the plan:
//! `nic.wqe_fetch = "on-demand"`), so that only the memory for contexts limits it. A context consists of 256 bytes,
//! 20 bytes of recovery state and five bitmaps of the bandwidth-delay product, 500 packets at 100 Gbit/s and 40 us:
//! 588.5 bytes.
//!
//! Deviations: the window here holds two bitmaps at each end only while packets are missing; the size of a context
//! includes the paper's five bitmaps, because the NIC in the paper reserves memory for them.

use rnic_policy::Profile;

use super::irn;

pub(super) fn profile() -> Profile {
    Profile {
        name: "irn-plus",
        summary: "IRN+: IRN with bitmaps for 500 packets and work requests in the host's memory, as FaSR compares",
        cap_packets: Some(BDP_PACKETS),
        window_bits: BDP_PACKETS,
        ..irn::profile()
    }
}

/// Packets that fill a path of 100 Gbit/s and 40 us (FaSR section II-A).
pub(super) const BDP_PACKETS: u32 = 500;
