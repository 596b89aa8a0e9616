//! `tonic-*`: the six programs of Tonic as transports.
//!
//! Source: Tonic (NSDI'20) section 6.1.1 and appendix A. A program decides on recovery and congestion control; packets
//! and verbs are IRN's, so that only the sender's decisions differ: every packet is acknowledged, out-of-order packets
//! are placed and reported, and the responder sends the data of Reads by a window of its own, as appendix A requires.
//! `tonic-dcqcn` is RoCEv2 as it is: its receiver drops out-of-order packets, and responses share the requests'
//! sequence numbers. Option `flows`: messages that may be delivered in any order use several flows (appendix A).
//!
//! Deviations: the receivers of `tonic-reno` and `tonic-new-reno` report out-of-order packets, which those programs do
//! not use; windows are at most 128 packets, as those of the paper's prototype.

use rnic_policy::{Configured, PathPolicy, SchedulePolicy};
use rnic_policy::{ControlPolicy, Params, Profile, RecoveryPolicy};

use crate::control::line_rate::LineRate;
use crate::paths::ecmp::Ecmp;
use crate::programs;
use crate::schedule::round_robin::RoundRobin;

/// Width of the window, in packets.
const WINDOW: u32 = 128;

/// First window of NDP, in packets: a ring of the credit engine.
const PULL_WINDOW: u32 = 16;

/// Returns the transports of all programs.
pub(super) fn profiles() -> impl Iterator<Item = Profile> {
    programs::policies().iter().map(|policy| {
        let base = if policy.placement.keeps_out_of_order() {
            Profile { window_bits: WINDOW, ..super::irn::profile() }
        } else {
            super::roce_gbn::profile()
        };
        Profile {
            name: policy.name,
            summary: policy.summary,
            cap_packets: None,
            pulls: (policy.name == "tonic-ndp").then_some(PULL_WINDOW),
            flows: Some(1),
            recovery: configured(*policy),
            control: ControlPolicy::configured::<LineRate>(),
            paths: PathPolicy::configured::<Ecmp>(),
            schedule: SchedulePolicy::configured::<RoundRobin>(),
            ..base
        }
    })
}

fn configured(policy: RecoveryPolicy) -> Configured<RecoveryPolicy> {
    Configured { policy, params: Params::defaults(policy.params) }
}
