//! `tcp`: a full TCP, iWARP's stand-in.
//!
//! Source: IRN (SIGCOMM'18) section 4.6, where INET's TCP plays the part. Ours, to be fair to it: NewReno with SACK, a
//! first window of ten, timeouts of 320 us and more for a fair tail. [`crate::recovery::tcp_sack`] and
//! [`crate::control::new_reno`] say which RFC is where.
//!
//! Deviations: packets, headers and verbs are IRN's, so that only the transport's decisions differ: every packet is
//! acknowledged (TCP acknowledges every second one), early packets are placed (iWARP's DDP does so, too), Reads and
//! responses have windows of their own and one congestion window for both. No handshake: queue pairs are connected
//! before the first message. The receive window is 1024 packets, far above what slow start lets a flow of the paper's
//! network have under way.

use rnic_policy::{Configured, ControlPolicy, Params, Profile, RecoveryPolicy};

use crate::control::new_reno::NewReno;
use crate::recovery::tcp_sack::TcpSack;

pub(super) fn profile() -> Profile {
    let recovery = RecoveryPolicy::of::<TcpSack>();
    let control = ControlPolicy::of::<NewReno>();
    Profile {
        name: "tcp",
        summary: "TCP (NewReno, SACK, slow start from ten packets): what iWARP runs on",
        cap_packets: None,
        window_bits: RECEIVE_WINDOW,
        recovery: Configured { policy: recovery, params: Params::defaults(recovery.params) },
        control: Configured { policy: control, params: Params::defaults(control.params) },
        ..super::irn::profile()
    }
}

/// Packets that the receiver keeps bits for. A MiB of payload at 1 KiB a packet, as a TCP with window scaling has.
const RECEIVE_WINDOW: u32 = 1_024;
