//! `tcp`: a full TCP, which represents iWARP.
//!
//! Source: IRN (SIGCOMM'18) section 4.6, where INET's TCP has this role. For a fair comparison, this profile uses
//! NewReno with SACK, a first window of ten, and timeouts of at least 320 us so that tail latencies are comparable.
//! [`crate::recovery::tcp_sack`] and [`crate::control::new_reno`] list which RFC is implemented where.
//!
//! Deviations: packets, headers and verbs are IRN's, so that only the transport's decisions differ: every packet is
//! acknowledged (TCP acknowledges every second one), out-of-order packets are placed (as iWARP's DDP does), Reads and
//! responses have windows of their own and one congestion window for both. No handshake: queue pairs are connected
//! before the first message. The receive window is 1024 packets, far above the number that slow start allows a flow of
//! the paper's network to have in flight.

use rnic_policy::{ControlPolicy, Profile, RecoveryPolicy};

use crate::control::new_reno::NewReno;
use crate::recovery::tcp_sack::TcpSack;

pub(super) fn profile() -> Profile {
    Profile {
        name: "tcp",
        summary: "TCP (NewReno, SACK, slow start from ten packets): the transport under iWARP",
        cap_packets: None,
        window_bits: RECEIVE_WINDOW,
        recovery: RecoveryPolicy::configured::<TcpSack>(),
        control: ControlPolicy::configured::<NewReno>(),
        ..super::irn::profile()
    }
}

/// Number of packets in the receiver's bitmap: 1 MiB of payload at 1 KiB a packet, as in a TCP with window scaling.
const RECEIVE_WINDOW: u32 = 1_024;
