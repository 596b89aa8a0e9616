//! `roce-rttcc`: RoCE with ConnectX-7's selective repeat and an RTTCC-like control: Falcon's baseline.
//!
//! Source: Falcon (SIGCOMM'25) section 6: 400 Gbit/s ConnectX-7 adapters with RTTCC ("sluggish", by probes out of band,
//! section 2.1). [`super::roce_sr`] says what is known of their recovery, [`crate::control::rttcc`] of their control.
//! The paper does not say with which recovery it runs incasts: this is the better one. With go-back-N:
//! `{ name = "roce-gbn", control = "rttcc" }`.
//!
//! Deviations: an acknowledgement is asked for every 16 packets instead of every 64, since it is acknowledgements that
//! answer probes here.

use rnic_policy::{Configured, ControlPolicy, Params, Profile};

use crate::control::rttcc::Rttcc;

pub(super) fn profile() -> Profile {
    let control = ControlPolicy::of::<Rttcc>();
    Profile {
        name: "roce-rttcc",
        summary: "RoCE as Falcon's paper runs it: ConnectX-7's selective repeat, rates by round trips of probes",
        ack_every_packets: 16,
        control: Configured { policy: control, params: Params::defaults(control.params) },
        ..super::roce_sr::profile()
    }
}
