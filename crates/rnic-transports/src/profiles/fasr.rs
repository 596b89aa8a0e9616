//! `fasr`: selective recovery from a small pool that all connections share.
//!
//! Source: FaSR (2025). The cap is the paper's bandwidth-delay product, 500 packets (section III-B: 100 Gbit/s, 40 us);
//! the pool the one of section III-D, 20 units and 70 blocks of 10 bits. Other values are options:
//!
//! | variant | options |
//! |---|---|
//! | test bed (section V-A): 1600 bytes, 16-bit blocks | `pool_block_bits = 16`, `pool_blocks`, `pool_units` |
//! | another network | `cap_packets`, `rto_low`, `rto_high` |
//!
//! Responses to Reads are Writes that the responder schedules, in its own sequence space. One consequence
//! differs from RoCE: the responses wait behind a Send for which their receiver has posted no receive.
//!
//! Deviations: congestion control is off, as in the paper's tests, and packets in flight are bounded by the cap (our
//! choice: the paper does not specify it). Those of the parts are in their own documentation: `recovery/fasr.rs` here,
//! the engine's `window/pool.rs`, `qp/fetch/scheduled.rs` and `qp/responder/counted.rs`, the wire's `header/fasr.rs`.

use rnic_base::Duration;
use rnic_policy::{AckRule, Configured, ControlPolicy, Params, PathPolicy, PoolShape, Profile, Protocol};
use rnic_policy::{RecoveryPolicy, SchedulePolicy, SequenceSpaces, Store};

use crate::control::line_rate::LineRate;
use crate::paths::ecmp::Ecmp;
use crate::recovery::fasr::Fasr;
use crate::schedule::round_robin::RoundRobin;

pub(super) fn profile() -> Profile {
    let recovery = RecoveryPolicy::of::<Fasr>();
    let control = ControlPolicy::of::<LineRate>();
    let paths = PathPolicy::of::<Ecmp>();
    let schedule = SchedulePolicy::of::<RoundRobin>();
    Profile {
        name: "fasr",
        summary: "FaSR: selective retransmission from a small pool shared by all connections, no PFC",
        protocol: Protocol::Fasr,
        spaces: SequenceSpaces::Scheduled,
        acks: AckRule::EveryPacket,
        ack_every_packets: 1,
        cap_packets: Some(500),
        window_bits: 512,
        store: Store::Pool(PoolShape::FASR),
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
