//! `roce-rttcc`: RoCE with ConnectX-7's selective repeat and an RTTCC-like control: the baseline of the Falcon paper.
//!
//! Source: Falcon (SIGCOMM'25) section 6: 400 Gbit/s ConnectX-7 adapters with RTTCC ("sluggish", by probes out of
//! band, section 2.1). [`super::roce_sr`] describes the published facts on their recovery, [`crate::control::rttcc`]
//! those on their control. The paper does not state which recovery its incasts use; this profile has the better one.
//! With go-back-N: `{ name = "roce-gbn", control = "rttcc" }`.
//!
//! Deviations: every packet requests an acknowledgement, because acknowledgements serve as probe responses here:
//! adapters request a probe when the response to the last one arrives, and send it with the next packet. With an
//! acknowledgement every 16 packets, a flow at its lowest rate would wait 100 ms for the 16th and never recover.

use rnic_policy::{ControlPolicy, Profile};

use crate::control::rttcc::Rttcc;

pub(super) fn profile() -> Profile {
    Profile {
        name: "roce-rttcc",
        summary: "RoCE as Falcon's paper runs it: ConnectX-7's selective repeat, rates by round trips of probes",
        ack_every_packets: 1,
        control: ControlPolicy::configured::<Rttcc>(),
        ..super::roce_sr::profile()
    }
}
