//! `roce-irnpaper`: the RoCE of IRN's simulations.
//!
//! Source: IRN (SIGCOMM'18) section 4.1. Go-back-N; no acknowledgements at all, "modelling the
//! extreme case of all Reads"; nothing bounds the packets in flight; line rate from the first packet. With PFC the
//! timeouts are disabled (`rto = "0"`), without it they are RTO_high.
//!
//! Deviations:
//!
//! * one acknowledgement a message: somebody must tell the sender that it has arrived. A message is a flow in the
//!   paper's experiments, so that is one packet a flow;
//! * the timeout counts from the last packet sent (`rto_from_last_sent`): with a Read it is the receiver of the data
//!   who waits, and for the next packet. Counted from the last acknowledgement, every message that takes longer than
//!   320 us would be sent twice, which would be unfair;
//! * 4 million packets in flight at most: a quarter of the circle of sequence numbers;
//! * congestion control that lives by acknowledgements (Timely) needs some: set `ack_every_packets` (64 is what
//!   `roce-gbn` has). DCQCN needs none: marked packets draw CNPs.

use rnic_policy::Profile;

pub(super) fn profile() -> Profile {
    let mut profile = Profile {
        name: "roce-irnpaper",
        summary: "the RoCE of IRN's simulations: go-back-N, nothing acknowledged but the end of a message",
        ack_every_packets: NEVER,
        ..super::roce_gbn::profile()
    };
    profile.set("rto_from_last_sent", "true").expect("go-back-n has this parameter");
    profile
}

/// As rarely as the option allows; the last packet of a message asks in any case.
const NEVER: u32 = 1 << 16;
