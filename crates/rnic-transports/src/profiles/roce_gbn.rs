//! `roce-gbn`: RoCEv2 as shipped, with go-back-N.
//!
//! Source: IRN (SIGCOMM'18) section 4.1; Falcon (SIGCOMM'25) section 6.1: out-of-order packets are dropped and reported
//! once per gap, the packets in flight are not bounded, responses share the sequence space of requests,
//! acknowledgements are sent at the end of messages (and every 64 packets, so that the sender's timer does not expire
//! during a long message).
//!
//! Deviations: IRN's simulated baseline sends no acknowledgements at all ("the extreme case of all Reads"); this
//! profile sends a few, as hardware does. `roce-irnpaper` is that baseline.
//!
//! Configurations that have names in the papers:
//!
//! | name | options |
//! |---|---|
//! | RoCE with PFC | `rto = "0"`, PFC on in the switches |
//! | RoCE without PFC | PFC off, `rto` is RTO_high |
//! | Resilient RoCE (IRN section 4.5) | `control = "dcqcn"`, PFC off, ECN on |
//! | go-back-N with back-off (IRN section 4.3) | `control = "dcqcn"` or `"timely"`, `cut_on_loss = true` |

use rnic_policy::{AckRule, Profile, Protocol, RecoveryPolicy, SequenceSpaces};

use crate::recovery::go_back_n::GoBackN;

pub(super) fn profile() -> Profile {
    Profile {
        name: "roce-gbn",
        summary: "RoCEv2 with go-back-N: out-of-order packets are dropped, a loss retransmits everything from it on",
        protocol: Protocol::Roce,
        spaces: SequenceSpaces::Shared,
        acks: AckRule::OnRequest,
        ack_every_packets: 64,
        cap_packets: None,
        window_bits: 64,
        recovery: RecoveryPolicy::configured::<GoBackN>(),
        ..super::irn::profile()
    }
}
