//! FaSR's mechanisms.

use super::{Mechanism, Paper};

pub(super) const PAPER: Paper = Paper { mark: "R", name: "FaSR (2025)", mechanisms: MECHANISMS, gaps: &[] };

const fn tested(section: &'static str, what: &'static str) -> Mechanism {
    Mechanism { what, section, left_out: "" }
}

const MECHANISMS: &[Mechanism] = &[
    tested("III-B", "the receiver counts the missing packets in three bits"),
    tested(
        "III-B1",
        "fast path: with one packet missing, the highest PSN received describes the state, without a bitmap",
    ),
    tested(
        "III-B1",
        "slow path: with more missing, a bitmap gives the next gap when a retransmission arrives; the AACK carries it",
    ),
    tested("III-B1", "with one packet missing again, the fast path is used and the bitmap returns to the pool"),
    tested("III-B", "SACKs carry the receiver's count; the sender compares counts and keeps none of its own"),
    tested("III-B2", "the first SACK retransmits all packets before it; a later one a gap, if the count has grown too"),
    tested(
        "III-B2",
        "the acknowledgement alone determines the acknowledged packets; the bitmap is updated in parallel",
    ),
    tested(
        "III-B2",
        "a timeout retransmits the packets known to be missing: the window, one packet, or the zeros of the bitmap",
    ),
    tested("III-C1", "a pool of units of recovery state: one for each queue pair in recovery, none for the others"),
    tested("III-C2", "a pool of blocks of bitmaps in linked lists, released when recovery ends"),
    tested("III-D", "head and tail of a list are stored, so no list is traversed"),
    tested("III-D", "20 units and 70 blocks of 10 bits are 0.92 KB for all connections"),
    tested("III-D", "consecutive packets after the first gap are stored as one number; blocks start after them"),
    tested("III-D", "without space in the pool: go-back-N until recovery ends; the recorded state is kept"),
    tested(
        "III-D",
        "FNACK: a retransmission that arrives out of order shows that another was lost; processed once until progress",
    ),
    tested(
        "III-D, IV-D",
        "more than seven missing: the count stays at seven, with an overflow flag, until recovery ends",
    ),
    tested("IV-B", "seven modules around the memory of contexts"),
    tested("IV-C", "separate queues for Read requests, acknowledgements, retransmissions and new requests"),
    tested("IV-B", "the memory of contexts is in three groups, so that four modules can access it in every cycle"),
    tested(
        "IV-D",
        "Sends carry message number and offset, Writes and responses an address; responses have the responder's PSNs",
    ),
    tested("IV-B", "a Read request that times out is submitted again; others are retransmitted by recovery"),
    tested("IV-A, V-D1", "work requests stay in the host's memory and are fetched eight at a time"),
    tested("V-A", "bytes per queue pair in on-board memory: 257, where IRN+ has 588.5, SRNIC 268"),
    Mechanism {
        what: "a SACK or an out-of-order packet takes two cycles of 5 ns",
        section: "V-D2",
        left_out: "the length of a cycle: the circuit takes two cycles, but its longest path has 62.5 logic levels, \
                   too many for 5 ns (docs/rtl.md)",
    },
    Mechanism {
        what: "line rate at 100 Gbit/s and above, 181 million packets a second",
        section: "I, V-D2",
        left_out: "the length of a cycle, as above; the tests check the packets of the circuit in a cycle, and the \
                   fabric's model",
    },
    Mechanism {
        what: "out-of-order data is written to the host's memory by DMA and delivered when the gaps are filled",
        section: "III-A",
        left_out: "a reorder buffer in the host: here data is written directly to its place, as in IRN",
    },
    tested("IV-A", "unmodified applications, through queue pairs and completion queues"),
];
