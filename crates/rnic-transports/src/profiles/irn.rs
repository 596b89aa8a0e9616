//! `irn`: selective recovery and a static cap, no PFC needed.
//!
//! Source: IRN (SIGCOMM'18). The cap is the bandwidth-delay product of the longest path in packets (section 3.2): about
//! 110 for the paper's network; other networks set `cap_packets`. Its variants are options:
//!
//! | variant (section 4.3, 7) | option |
//! |---|---|
//! | go-back-N | `recovery = "go-back-n"` |
//! | no SACK bitmap | `sack_bitmap = false` |
//! | no BDP-FC | `cap_packets = 0` |
//! | computed timeout | `dynamic_rto = true` |
//! | NACK threshold | `nack_threshold = n` |
//! | TCP's AIMD, DCTCP (section 4.4.4) | `control = "aimd"`, `control = "dctcp"` |
//!
//! Deviations: without BDP-FC the packets in flight are still bounded by the widest bitmap of the engine, 16384, a
//! bound that the paper's simulator did not need; it is far above the packets of any of its flows. Deviations of the
//! recovery are in [`crate::recovery::irn`].

use rnic_base::Duration;
use rnic_policy::{AckRule, ControlPolicy, PathPolicy, Profile, Protocol, RecoveryPolicy};
use rnic_policy::{SchedulePolicy, SequenceSpaces, Store};

use crate::control::line_rate::LineRate;
use crate::paths::ecmp::Ecmp;
use crate::recovery::irn::Irn;
use crate::schedule::round_robin::RoundRobin;

pub(super) fn profile() -> Profile {
    Profile {
        name: "irn",
        summary: "IRN: selective retransmission, a cap of one bandwidth-delay product, no PFC",
        protocol: Protocol::Irn,
        spaces: SequenceSpaces::Split,
        acks: AckRule::EveryPacket,
        ack_every_packets: 1,
        cap_packets: Some(110),
        window_bits: 128,
        store: Store::Rings,
        retransmit_fetch: Duration::ZERO,
        extra_header: 0,
        fence_overlaps: false,
        end_to_end_credits: false,
        pulls: None,
        flows: None,
        measured_timeouts: false,
        probes: false,
        recovery: RecoveryPolicy::configured::<Irn>(),
        control: ControlPolicy::configured::<LineRate>(),
        paths: PathPolicy::configured::<Ecmp>(),
        schedule: SchedulePolicy::configured::<RoundRobin>(),
    }
}
