//! `fasr`: selective recovery from a small pool that all connections share.
//!
//! Source: FaSR (2025). The cap is the paper's bandwidth-delay product, 500 packets (section III-B: 100 Gbit/s, 40
//! us); the pool is that of section III-D, 20 units and 70 blocks of 10 bits. Other values are options:
//!
//! | variant | options |
//! |---|---|
//! | test bed (section V-A): 1600 bytes, 16-bit blocks | `pool_block_bits = 16`, `pool_blocks`, `pool_units` |
//! | another network | `cap_packets`, `rto_low`, `rto_high` |
//!
//! Responses to Reads are Writes that the responder schedules, in its own sequence space (FaSR mechanisms ).
//! As a consequence, unlike in RoCE, responses wait when a Send before them has no posted receive at their receiver.
//!
//! Deviations: congestion control is off, as in the paper's tests, and packets in flight are bounded by the cap (our
//! choice: the paper does not specify it). The deviations of the policies and of the engine are in their own
//! documentation: `recovery/fasr.rs` here, the engine's `window/pool.rs`, `qp/fetch/scheduled.rs` and
//! `qp/responder/counted.rs`, the wire's `header/fasr.rs`.

use rnic_policy::{PoolShape, Profile, Protocol, RecoveryPolicy, SequenceSpaces, Store};

use crate::recovery::fasr::Fasr;

pub(super) fn profile() -> Profile {
    Profile {
        name: "fasr",
        summary: "FaSR: selective retransmission from a small pool shared by all connections, no PFC",
        protocol: Protocol::Fasr,
        spaces: SequenceSpaces::Scheduled,
        cap_packets: Some(500),
        window_bits: 512,
        store: Store::Pool(PoolShape::FASR),
        recovery: RecoveryPolicy::configured::<Fasr>(),
        ..super::irn::profile()
    }
}
