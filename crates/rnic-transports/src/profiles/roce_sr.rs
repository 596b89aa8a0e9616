//! `roce-sr`: RoCE with ConnectX-7's selective repeat.
//!
//! Source: Falcon (SIGCOMM'25) sections 2 and 6.1.1. Writes and Read responses are recovered one gap at a time,
//! everything else by go-back-N ([`crate::recovery::cx7_selective`] describes the published facts and the choices).
//! Acknowledgements are sent when requested, as with `roce-gbn`.
//!
//! Deviations, where nothing is published or the engine has no other way:
//!
//! * the packets in flight are bounded only by the bitmap, the widest of the engine: the adapter's own bound is not
//!   known, and a guess would weaken it;
//! * Read responses have sequence numbers of their own and are acknowledged packet by packet, since their sender needs
//!   a window to retransmit them; in standard RoCE the requester requests them again. So acknowledgements of requests,
//!   and reports that one is lost, do not wait for the responses before them, as they must where one number covers
//!   both;
//! * headers are IRN's, 16 bytes more on middle packets of a Write: the mechanism with which the adapter places them
//!   individually is not published either.

use rnic_base::AnyRing;
use rnic_policy::{Configured, Params, Profile, Protocol, RecoveryPolicy, SequenceSpaces};

use crate::recovery::cx7_selective::Cx7Selective;

pub(super) fn profile() -> Profile {
    let recovery = RecoveryPolicy::of::<Cx7Selective>();
    Profile {
        name: "roce-sr",
        summary: "RoCE with selective repeat as ConnectX-7 does it: Writes and Read responses, one hole per NACK",
        protocol: Protocol::Irn,
        spaces: SequenceSpaces::Split,
        window_bits: AnyRing::LARGEST,
        recovery: Configured { policy: recovery, params: Params::defaults(recovery.params) },
        ..super::roce_gbn::profile()
    }
}
