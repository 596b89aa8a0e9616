//! `roce-sr`: RoCE with ConnectX-7's selective repeat.
//!
//! Source: Falcon (SIGCOMM'25) sections 2 and 6.1.1. Writes and Read responses are recovered one gap at a time,
//! everything else by go-back-N ([`crate::recovery::cx7_selective`] describes the published facts and the choices).
//! Acknowledgements are sent when requested, as with `roce-gbn`.
//!
//! Deviations, where nothing is published or the engine has no alternative:
//!
//! * the packets in flight are bounded only by the bitmap, the widest of the engine: the adapter's own bound is not
//!   known, and a guessed bound would put it at a disadvantage;
//! * Read responses have sequence numbers of their own and are acknowledged packet by packet, since their sender
//!   needs a window to retransmit them; in standard RoCE the requester requests them again. Acknowledgements and loss
//!   reports of requests therefore need not wait for earlier responses, as they must where requests and responses
//!   share one sequence number space;
//! * headers are IRN's, 16 bytes more on middle packets of a Write: the mechanism with which the adapter places these
//!   packets individually is not published either.

use rnic_base::AnyRing;
use rnic_policy::{Profile, Protocol, RecoveryPolicy, SequenceSpaces};

use crate::recovery::cx7_selective::Cx7Selective;

pub(super) fn profile() -> Profile {
    Profile {
        name: "roce-sr",
        summary: "RoCE with selective repeat as ConnectX-7 does it: Writes and Read responses, one gap per NACK",
        protocol: Protocol::Irn,
        spaces: SequenceSpaces::Split,
        window_bits: AnyRing::BITS_MAX,
        recovery: RecoveryPolicy::configured::<Cx7Selective>(),
        ..super::roce_gbn::profile()
    }
}
