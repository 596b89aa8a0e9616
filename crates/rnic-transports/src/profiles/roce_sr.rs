//! `roce-sr`: RoCE with ConnectX-7's selective repeat.
//!
//! Source: Falcon (SIGCOMM'25) sections 2 and 6.1.1. Writes and Read responses are repaired one hole at a
//! time, everything else goes back ([`crate::recovery::cx7_selective`] says what is known and what is chosen).
//! Acknowledgements come when asked for, as with `roce-gbn`.
//!
//! Deviations, where nothing is published or the engine has no other way:
//!
//! * nothing bounds the packets in flight but the bitmap, the widest we have: the adapter's own is not known, and a
//!   guess would weaken it;
//! * Read responses have numbers of their own and are acknowledged packet by packet, since whoever repairs them needs a
//!   window; with RoCE as written the requester asks for them again. So acknowledgements of requests, and the news that
//!   one is lost, do not wait for the responses before them, as they must where one number says both;
//! * headers are IRN's, 16 bytes more on middle packets of a Write: what lets the adapter place them alone is not
//!   published either.

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
