//! IRN's mechanisms.

use super::{Mechanism, Paper};

pub(super) const PAPER: Paper = Paper { mark: "I", name: "IRN (SIGCOMM'18)", mechanisms: MECHANISMS, gaps: &[] };

const fn tested(section: &'static str, what: &'static str) -> Mechanism {
    Mechanism { what, section, left_out: "" }
}

const MECHANISMS: &[Mechanism] = &[
    tested("3.1", "the receiver keeps out-of-order packets; each causes a NACK with the expected PSN and its own PSN"),
    tested("5.2", "one acknowledgement, positive or negative, for every packet"),
    tested("3.1", "the sender records selectively acknowledged packets in a bitmap"),
    tested(
        "3.1",
        "a NACK or a timeout starts recovery: the oldest packet is retransmitted, then only gaps below a SACK",
    ),
    tested("3.1", "lost packets are retransmitted before new ones are sent; new ones follow within the cap"),
    tested("3.1", "recovery ends when all packets sent before the first retransmission have been acknowledged"),
    tested("3.1, 4.1", "two static timeouts: 100 us with fewer than three packets in flight, else 320 us"),
    tested(
        "4.1",
        "the long timeout is the propagation delay of the longest path plus the full buffers of one congested link",
    ),
    tested("3.2", "BDP-FC: never more packets in flight than one bandwidth-delay product, 110"),
    tested(
        "3, 4.4.4",
        "sending starts at line rate, and a loss does not reduce the rate; congestion control can be added",
    ),
    tested("5.2", "every response to a Read is acknowledged; the side that sends the data runs the timeout"),
    tested("5.2", "atomics are handled as Reads of one packet"),
    tested("5.3", "out-of-order data is written directly to its place in memory; the NIC stores only bitmaps"),
    tested("5.3.1", "every packet of a Write carries its address"),
    tested("5.3.2", "Sends, and the end of a Write with immediate, carry the number of the receive they use"),
    tested("5.3.2", "out-of-order Reads and atomics wait in their slot until all earlier packets have arrived"),
    tested(
        "5.3.3",
        "a second bitmap: messages are counted, and receives completed, when all earlier packets have arrived",
    ),
    tested("5.3.3", "the completion of a message whose last packet arrives out of order is held back until its turn"),
    tested("5.4", "requests and responses have separate sequence numbers"),
    tested("5.4", "works with shared receive queues, Send with invalidate, end-to-end credits"),
    tested(
        "6.1",
        "per queue pair 160 bits of state and five bitmaps of 128 bits, 3 bytes per work request, 10 bytes shared",
    ),
    tested("6.2.1", "four modules, each a function from metadata and context to outputs and new context"),
    Mechanism {
        what: "bitmaps are rings with three operations: find the first zero, count ones, shift",
        section: "6.2.1",
        left_out: "chunks of 32 bits: the circuits search groups of 16 bits in parallel, and count groups of 6",
    },
    tested("6.2.1", "the timer has the short timeout; if it expires with many packets in flight, it is only extended"),
    tested("6.2.1", "the search in the bitmap returns one lost packet per call, the lowest first"),
    tested("6.3", "a packet is fetched before it is retransmitted, which takes up to 2 us"),
    tested("7", "both transports are offered at connection set-up; a peer that supports only RoCE gets RoCE"),
    tested("7", "recovery may wait for a number of NACKs, so that reordering does not count as loss"),
];
