//! `falcon`: transactions on a packet delivery layer of its own, with Swift in an adaptive engine.
//!
//! Source: Falcon (SIGCOMM'25); OCP Falcon Transport Protocol and RDMA over Falcon Transport, both Rev 0.9. The
//! defaults are those of one path; the variants of the paper are options:
//!
//! | variant | options |
//! |---|---|
//! | several paths (section 4.3) | `flows = 4` |
//! | hardware of 200 Gbit/s (section 6.1.1) | `recovery = ooo-distance`; `ooo_threshold = 12` for four flows |
//! | the specification's receiver for packets beyond the window | `out_of_window = drop` |
//! | and a sender that pauses there until its oldest packet is acknowledged | `after_out_of_window = pause` |
//! | weak order (RDMA over Falcon, 6.2) | `ordering = weak` |
//! | no order | `ordering = unordered`, `errors = complete-in-error` |
//! | isolation (section 4.6) | `isolation = none`, `isolation = static` |
//! | another program in the adaptive engine | `control = fixed-window`, or any controller |
//! | the adaptive engine's forms of state (section 5.3) | `fae_form = stateless`, `fae_form = prefetching` |
//! | the engine on a core of its own (section 5.3; only with sockets) | `fae_place = thread` |
//!
//! Deviations: those of the parts are in their own documentation (`control/swift.rs` and `recovery/rack_tlp.rs` here,
//! the files of `rnic-falcon`, and the engine's `falcon.rs`). The adaptive engine responds immediately unless
//! `fae_interface` and `fae_work` set its latency.

use rnic_base::Duration;
use rnic_policy::{AckRule, Configured, ControlPolicy, FalconShape, Params, PathPolicy, Profile, Protocol};
use rnic_policy::{RecoveryPolicy, SchedulePolicy, SequenceSpaces, Store};

use crate::control::swift::Swift;
use crate::paths::largest_window::LargestWindow;
use crate::recovery::rack_tlp::RackTlp;
use crate::schedule::round_robin::RoundRobin;

pub(super) fn profile() -> Profile {
    let recovery = RecoveryPolicy::of::<RackTlp>();
    let control = ControlPolicy::of::<Swift>();
    let paths = PathPolicy::of::<LargestWindow>();
    let schedule = SchedulePolicy::of::<RoundRobin>();
    Profile {
        name: "falcon",
        summary: "Falcon: transactions, RACK-TLP, Swift in an adaptive engine, several paths, no PFC",
        protocol: Protocol::Falcon(FalconShape::DEFAULT),
        spaces: SequenceSpaces::Split,
        acks: AckRule::EveryPacket,
        ack_every_packets: 1,
        cap_packets: None,
        window_bits: FalconShape::DEFAULT.data_window,
        store: Store::Rings,
        retransmit_fetch: Duration::ZERO,
        extra_header: 0,
        fence_overlaps: false,
        end_to_end_credits: false,
        measured_timeouts: false,
        recovery: Configured { policy: recovery, params: Params::defaults(recovery.params) },
        control: Configured { policy: control, params: Params::defaults(control.params) },
        paths: Configured { policy: paths, params: Params::defaults(paths.params) },
        schedule: Configured { policy: schedule, params: Params::defaults(schedule.params) },
    }
}
