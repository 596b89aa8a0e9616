//! `srnic`: selective retransmission whose bitmaps are in host memory.
//!
//! Source: SRNIC (NSDI'23) as FaSR (2025) sections II-A and V-A model it, on the same protocol stack as the other
//! transports: which packets are retransmitted, and when, is IRN's; a queue pair has 12 bytes of state on the NIC
//! instead of bitmaps; an access to a bitmap takes a bus round trip (1.2 us, 1.4 us with the software), during which
//! the pipeline waits.
//!
//! Deviations: the algorithm reads its bitmaps as if they were local; the cost is computed by the simulator's NIC model
//! (`[nic]` in a plan), which uses [`Store::Host`] to recognise that they are not. On sockets, where the bitmaps are in
//! host memory in any case, this is IRN. The cap is FaSR's 500 packets (100 Gbit/s, 40 us).

use rnic_policy::{Profile, Store};

use super::irn;

pub(super) fn profile() -> Profile {
    Profile {
        name: "srnic",
        summary: "SRNIC: IRN's recovery with bitmaps in the host's memory, behind the bus",
        cap_packets: Some(super::irn_plus::BDP_PACKETS),
        window_bits: super::irn_plus::BDP_PACKETS,
        store: Store::Host,
        ..irn::profile()
    }
}
