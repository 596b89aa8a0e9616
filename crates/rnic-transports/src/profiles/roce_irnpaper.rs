//! `roce-irnpaper`: the RoCE of IRN's simulations.
//!
//! Source: IRN (SIGCOMM'18) section 4.1. Go-back-N; no acknowledgements at all, "modelling the extreme case of all
//! Reads"; the packets in flight are not bounded; line rate from the first packet. With PFC the timeouts are disabled
//! (`rto = "0"`), without it they are RTO_high.
//!
//! Deviations:
//!
//! * there is one acknowledgement per message, because the sender must be informed that the message has arrived. A
//!   message is a flow in the paper's experiments, so that is one packet per flow;
//! * the timeout counts from the last packet sent (`rto_from_last_sent`): with a Read, the receiver of the data runs
//!   the timer while it waits for the next packet. Counted from the last acknowledgement, every message that takes
//!   longer than 320 us would be sent twice, which would be unfair;
//! * 4 million packets in flight at most: a quarter of the sequence number space;
//! * congestion control that depends on acknowledgements (Timely) needs some: set `ack_every_packets` (`roce-gbn` has
//!   64). DCQCN needs no acknowledgements, because marked packets cause CNPs.

use rnic_policy::Profile;

pub(super) fn profile() -> Profile {
    let mut profile = Profile {
        name: "roce-irnpaper",
        summary: "the RoCE of IRN's simulations: go-back-N, nothing acknowledged but the end of a message",
        ack_every_packets: ACK_INTERVAL_MAX,
        ..super::roce_gbn::profile()
    };
    profile.set("rto_from_last_sent", "true").expect("go-back-n has this parameter");
    profile
}

/// The largest interval that the option allows; the last packet of a message requests an acknowledgement in any case.
const ACK_INTERVAL_MAX: u32 = 1 << 16;
