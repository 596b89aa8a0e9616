//! FaSR's mechanisms.

use super::{Mechanism, Paper};

pub(super) const PAPER: Paper = Paper { mark: "R", name: "FaSR (2025)", mechanisms: MECHANISMS, gaps: &[] };

const fn tested(section: &'static str, what: &'static str) -> Mechanism {
    Mechanism { what, section, left_out: "" }
}

const MECHANISMS: &[Mechanism] = &[
    tested("III-B", "the receiver counts in three bits how many packets are missing"),
    tested("III-B1", "fast path: with one missing, the highest number here says all, without a bitmap"),
    tested("III-B1", "slow path: with more missing, a bitmap tells what comes after a repair, and the AACK says it"),
    tested("III-B1", "back to the fast path, and the bitmap to the pool, when one is missing again"),
    tested("III-B", "SACKs carry the receiver's count; the sender compares and never counts itself"),
    tested("III-B2", "the first SACK sends all before it again; later ones a gap, if the count has grown too"),
    tested(
        "III-B2",
        "what is acknowledged follows the acknowledgement alone; the bitmap is brought up to date beside it",
    ),
    tested("III-B2", "a timeout sends what is known to be missing: the window, one packet, or the zeros of the bitmap"),
    tested("III-C1", "a pool of units of recovery state, one for each queue pair in recovery, none for the others"),
    tested("III-C2", "a pool of blocks of bitmaps in linked lists, given back when recovery ends"),
    tested("III-D", "head and tail of a list are stored: no list is walked"),
    tested("III-D", "20 units and 70 blocks of 10 bits are 0.92 KB for all connections"),
    tested("III-D", "a run of packets behind the first gap is one number; blocks begin behind it"),
    tested("III-D", "without crate in the pool: go-back-N until the recovery is over, keeping what is recorded"),
    tested("III-D", "FNACK: a repair out of order means that one was lost; acted on once until there is progress"),
    tested("III-D, IV-D", "more than seven missing: the count stands still and says so until the recovery is over"),
    Mechanism {
        what: "seven modules around the memory of contexts",
        section: "IV-B",
        left_out: "the hierarchy of circuits and the order of the update queue wait for RTL; checked is that recovery \
                   and congestion control are parts that do not know each other",
    },
    Mechanism {
        what: "separate queues for Read requests, acknowledgements, repairs and new requests",
        section: "IV-C",
        left_out: "the queues as circuits wait for RTL; checked is that none of them holds another up",
    },
    Mechanism {
        what: "the memory of contexts in three groups, so that four modules reach it in every cycle",
        section: "IV-B",
        left_out: "groups and ports of the memory wait for RTL; checked is that a packet asks for one context, once",
    },
    tested("IV-D", "Sends carry message number and offset, Writes and answers their address; answers are own packets"),
    tested("IV-B", "a Read request that times out is submitted again; others are retransmitted by recovery"),
    tested("IV-A, V-D1", "work requests stay in the host's memory and are fetched eight at a time"),
    tested("V-A", "bytes of a queue pair on the board: 257, where IRN+ has 588.5, SRNIC 268"),
    Mechanism {
        what: "a SACK or an early packet takes two cycles of 5 ns",
        section: "V-D2",
        left_out: "cycles wait for RTL; checked is that the work on the pool for one packet has a bound",
    },
    Mechanism {
        what: "line rate at 100 Gbit/s and above, 181 million packets a second",
        section: "I, V-D2",
        left_out: "the pipeline's rate as a circuit waits for RTL; checked is the model of it in the fabric",
    },
    Mechanism {
        what: "early data goes to the host's memory by DMA and is delivered when the holes are filled",
        section: "III-A",
        left_out: "a reorder buffer in the host: ours goes to its place at once, as IRN's does",
    },
    tested("IV-A", "unmodified applications, through queue pairs and completion queues"),
];
