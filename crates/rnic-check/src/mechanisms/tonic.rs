//! Tonic's mechanisms. Those of circuits alone have their tests with the circuits.

use super::{Mechanism, Paper};

/// Mechanisms that are not implemented.
const GAPS: &[usize] = &[];

pub(super) const PAPER: Paper = Paper { mark: "T", name: "Tonic (NSDI'20)", mechanisms: MECHANISMS, gaps: GAPS };

const fn tested(section: &'static str, what: &'static str) -> Mechanism {
    Mechanism { what, section, left_out: "" }
}

const MECHANISMS: &[Mechanism] = &[
    tested("2.1", "transport logic only: addresses of segments, no payload; ids of 24 bits in serial arithmetic"),
    tested("3", "two engines with separate state: data delivery (which segment) and credit (when)"),
    tested("3.1", "up to N addresses of a flow wait for credit in a ring"),
    tested("3.1", "active set: flows with a segment to generate, first in first out, one a cycle"),
    tested("3.1", "set of flows that are ready to transmit: the same, and no idle cycle while there is one"),
    tested("3.1", "flows become active again by acknowledgements, timeouts and departures from their ring"),
    tested("3.2.1", "segments of a flow have one size; the last of a burst may be shorter"),
    tested("3.2.2", "three maps over a window of at most 128 or 256 segments: acked, marked, times sent"),
    tested("table 2", "fixed state of a flow"),
    tested("3.2.3", "packets are processed in two stages: the fixed one updates the window, the program decides"),
    tested("3.2.3", "a visit of each flow in turn finds expired timers and runs the program's periodic function"),
    tested("3.2.3", "marked segments are sent before new ones, lowest first"),
    tested("3.2.3", "a departure from the ring lowers the count of outstanding addresses and makes the flow active"),
    tested("3.3.1", "three credit schemes: window, rate, tokens; each holds its bound over any interval"),
    tested("3.3.2", "rates: a timer for the credit that is missing, and exact credit when a segment leaves"),
    tested("3.3.2", "tokens: granted by the receiver, and for segments that a timeout marks"),
    tested("3.3.3", "parameters change by integer arithmetic within a cycle"),
    tested("3.4", "conflicts of events of one flow in a cycle are merged by fixed rules"),
    tested("3.5", "a program is a scheme and two functions without loops, whose meaning is the same in every form"),
    tested("4, B", "a rate is several integers, of which the most precise is used"),
    tested("C", "search for the first bit of a ring from a position"),
    tested("4", "memories with four ports in two groups of state"),
    tested("6.1", "one segment address a cycle of 10 ns"),
    tested("6.1", "1024 flows, 2048 at most"),
    tested("2.1", "receivers acknowledge cumulatively and selectively and grant tokens, at line rate"),
    tested("5, D", "sockets of bytes: segments, a rest that waits, flows beyond the template in software"),
    tested(
        "A",
        "RDMA: work requests are segments; Write, Send, Read at the source of data; messages in any order over flows",
    ),
    tested("6.1.1", "six programs: Reno, NewReno, SACK, NDP, RoCEv2 with DCQCN, IRN"),
    tested("6", "a model by cycles in a simulated network, with receivers that do not know it"),
];
