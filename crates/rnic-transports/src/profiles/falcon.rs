//! `falcon`: transactions on a packet delivery layer of its own, with Swift in an adaptive engine.
//!
//! Source: Falcon (SIGCOMM'25); OCP Falcon Transport Protocol and RDMA over Falcon Transport, both Rev 0.9. The
//! defaults are those of one path; the variants in the paper are options:
//!
//! | variant | options |
//! |---|---|
//! | several paths (section 4.3) | `flows = 4` |
//! | hardware of 200 Gbit/s (section 6.1.1) | `recovery = ooo-distance`; `ooo_threshold = 12` for four flows |
//! | the specification's receiver for packets beyond the window | `out_of_window = drop` |
//! | also: the sender pauses in that case until its oldest packet is acknowledged | `after_out_of_window = pause` |
//! | weak order (RDMA over Falcon, 6.2) | `ordering = weak` |
//! | no order | `ordering = unordered`, `errors = complete-in-error` |
//! | isolation (section 4.6) | `isolation = none`, `isolation = static` |
//! | another program in the adaptive engine | `control = fixed-window`, or any controller |
//! | the adaptive engine's forms of state (section 5.3) | `fae_form = stateless`, `fae_form = prefetching` |
//! | the adaptive engine on a core of its own (section 5.3; only with sockets) | `fae_place = thread` |
//!
//! Deviations: those of the policies are in their own documentation (`control/swift.rs` and `recovery/rack_tlp.rs`
//! here, the files of `rnic-falcon`, and the engine's `falcon.rs`). The adaptive engine responds immediately unless
//! `fae_interface` and `fae_work` set its latency.

use rnic_policy::{ControlPolicy, FalconShape, PathPolicy, Profile, Protocol, RecoveryPolicy};

use crate::control::swift::Swift;
use crate::paths::largest_window::LargestWindow;
use crate::recovery::rack_tlp::RackTlp;

pub(super) fn profile() -> Profile {
    Profile {
        name: "falcon",
        summary: "Falcon: transactions, RACK-TLP, Swift in an adaptive engine, several paths, no PFC",
        protocol: Protocol::Falcon(FalconShape::DEFAULT),
        cap_packets: None,
        window_bits: FalconShape::DEFAULT.data_window,
        recovery: RecoveryPolicy::configured::<RackTlp>(),
        control: ControlPolicy::configured::<Swift>(),
        paths: PathPolicy::configured::<LargestWindow>(),
        ..super::irn::profile()
    }
}
