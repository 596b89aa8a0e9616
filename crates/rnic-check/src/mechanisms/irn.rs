//! IRN's mechanisms.

use super::{Mechanism, Paper};

pub(super) const PAPER: Paper = Paper { mark: "I", name: "IRN (SIGCOMM'18)", mechanisms: MECHANISMS, gaps: &[] };

const fn tested(section: &'static str, what: &'static str) -> Mechanism {
    Mechanism { what, section, left_out: "" }
}

const MECHANISMS: &[Mechanism] = &[
    tested("3.1", "the receiver keeps early packets; each draws a NACK with the expected number and its own"),
    tested("5.2", "one acknowledgement, positive or negative, for every packet"),
    tested("3.1", "the sender remembers in a bitmap what was selectively acknowledged"),
    tested("3.1", "a NACK or a timeout begins recovery: first the oldest packet, then only holes below a SACK"),
    tested("3.1", "lost packets go before new ones; new ones follow as far as the cap allows"),
    tested("3.1", "recovery ends when what was sent before the first repair has been acknowledged"),
    tested("3.1, 4.1", "two static timeouts: 100 us with fewer than three packets in flight, else 320 us"),
    tested("4.1", "the long timeout is the longest path's propagation and one congested link's full buffers"),
    tested("3.2", "BDP-FC: never more in flight than a bandwidth-delay product, 110 packets"),
    tested("3, 4.4.4", "line rate from the first packet, loss does not slow down; congestion control can be added"),
    tested("5.2", "every response to a Read is acknowledged; the side that has the data runs the timeout"),
    tested("5.2", "atomics are Reads of one packet"),
    tested("5.3", "early data goes straight to its place in memory; the NIC keeps bits only"),
    tested("5.3.1", "every packet of a Write says where it belongs"),
    tested("5.3.2", "Sends, and the end of a Write with immediate, carry the number of the receive they use"),
    tested("5.3.2", "early Reads and atomics wait in their slot until all before them has arrived"),
    tested("5.3.3", "a second bitmap: counting messages and completing receives waits for everything before"),
    tested("5.3.3", "the completion of an early last packet is parked until its turn"),
    tested("5.4", "requests and responses are numbered apart"),
    tested("5.4", "works with shared receive queues, Send with invalidate, end-to-end credits"),
    tested("6.1", "160 bits of state a queue pair, five bitmaps of 128 bits, 3 bytes a work request, 10 bytes shared"),
    Mechanism {
        what: "four modules, each from metadata and context to outputs and context",
        section: "6.2.1",
        left_out: "the modules as circuits wait for RTL; checked is that decisions have no other input",
    },
    Mechanism {
        what: "bitmaps are rings that find the first zero, count ones and shift",
        section: "6.2.1",
        left_out: "chunks of 32 bits in parallel wait for RTL",
    },
    tested("6.2.1", "the timer runs with the short timeout; expiring with many in flight only extends it"),
    tested("6.2.1", "looking ahead in the bitmap gives one lost packet a call, lowest first"),
    tested("6.3", "a packet is fetched before it is retransmitted, which takes up to 2 us"),
    tested("7", "both transports are offered at connection set-up; who speaks RoCE only gets RoCE"),
    tested("7", "recovery may wait for a number of NACKs, so that reordering is not taken for loss"),
];
