//! `roce-rttcc`: RoCE with ConnectX-7's selective repeat and an RTTCC-like control: Falcon's baseline.
//!
//! Source: Falcon (SIGCOMM'25) section 6: 400 Gbit/s ConnectX-7 adapters with RTTCC ("sluggish", by probes out of band,
//! section 2.1). [`super::roce_sr`] says what is known of their recovery, [`crate::control::rttcc`] of their control.
//! The paper does not say with which recovery it runs incasts: this is the better one. With go-back-N:
//! `{ name = "roce-gbn", control = "rttcc" }`.
//!
//! Deviations: every packet asks for an acknowledgement, since it is acknowledgements that answer probes here: adapters
//! ask for a probe when the last is answered, and it leaves with the next packet. With an acknowledgement each 16
//! packets, a flow at its lowest rate would wait 100 ms for the 16th and never recover.

use rnic_policy::{Configured, ControlPolicy, Params, Profile};

use crate::control::rttcc::Rttcc;

pub(super) fn profile() -> Profile {
    let control = ControlPolicy::of::<Rttcc>();
    Profile {
        name: "roce-rttcc",
        summary: "RoCE as Falcon's paper runs it: ConnectX-7's selective repeat, rates by round trips of probes",
        ack_every_packets: 1,
        control: Configured { policy: control, params: Params::defaults(control.params) },
        ..super::roce_sr::profile()
    }
}
