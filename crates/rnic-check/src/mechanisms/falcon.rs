//! Falcon's mechanisms, and the probes of an implementation that its specification suggests.

use super::{Mechanism, Paper};

pub(super) const PAPER: Paper = Paper { mark: "F", name: "Falcon (SIGCOMM'25)", mechanisms: MECHANISMS, gaps: &[] };

/// Cases that the paper does not cover and the specification (Rev 0.9) does, or on which the specification contradicts
/// itself.
pub(super) const PROBES: Paper = Paper {
    mark: "probe",
    name: "Falcon: probes of the places where implementations go wrong",
    mechanisms: PROBES_LIST,
    gaps: &[],
};

const fn tested(section: &'static str, what: &'static str) -> Mechanism {
    Mechanism { what, section, left_out: "" }
}

const MECHANISMS: &[Mechanism] = &[
    tested("3.1", "four layers: mapping, transactions, packet delivery, and an adaptive engine that can be exchanged"),
    Mechanism {
        section: "4.4",
        what: "two types of transaction: Push takes data there, Pull brings it back; all operations map to them",
        left_out: "NVMe's Read as the paper's Pull: by the specification, and here, it is a Push there and one back",
    },
    tested("4.4", "a transaction is one MTU at most; what is longer becomes several and completes once"),
    tested("4.4, A.1", "requests and data have sequence spaces of their own, so stuck requests stop no response"),
    tested("4.4, A.2", "RSNs order delivery at the target and completion at the initiator across both spaces"),
    tested("4.4", "ordered, unordered and weakly ordered connections"),
    tested("4.4", "a receiver that is not ready says when to try again; neither upper layer hears of an error"),
    tested("4.4", "Complete in Error and Continue: one transaction ends in error, later ones succeed"),
    tested("4.1", "the receiver tracks packets in a bitmap of 128 bits that rides on acknowledgements"),
    Mechanism {
        section: "4.1",
        what: "packets are accepted out of order, beyond the window too, while there is crate for them",
        left_out: "more than 512 packets beyond the base: what comes there is refused, crate or not",
    },
    tested("4.1", "RACK: judged lost is what left before the newest packet that arrived, and long enough ago"),
    tested("4.1", "TLP: after silence the lowest unacknowledged packet goes again as a probe"),
    tested("6.1.1", "OOO-distance, the first generation's rule: a hole with enough packets above it is lost"),
    tested("5.2", "a timeout for each packet as backstop, in the datapath"),
    tested("4.1", "RTO, RACK's and TLP's times are computed from what the network does"),
    tested("4.2", "two windows, of the fabric and of the NIC; the smaller one gates"),
    tested("4.2", "the delay of the fabric from four timestamps of two clocks that need not agree"),
    tested("4.2", "the NIC's window follows how full the receiver's buffers are"),
    tested("4.4", "Pull responses are not held back by the NIC's window: their place is reserved"),
    Mechanism {
        section: "3.2, 4.2",
        what: "a timing wheel spaces packets when a window is below one packet",
        left_out: "sockets by their defaults: no window is below 16 packets there, unless `window_min` says so",
    },
    tested("4.3", "a bit asks for an acknowledgement; without it they are coalesced, per flow"),
    Mechanism {
        section: "4.1 to 4.6",
        what: "what the adaptive engine is told",
        left_out: "of CSIG's signals all but the longest delay of a hop; over sockets hops, ECN marks and CSIG, which \
                   nothing reads there: the first two count as none, and who needs the third is refused",
    },
    Mechanism {
        section: "4.1 to 4.6",
        what: "what the adaptive engine decides",
        left_out: "the target delay as an answer: Swift scales it by the window for itself, and its place in the \
                   record (base delay) is zero",
    },
    tested("4.3", "several flows a connection, each with a label of its own that has the flow's index in it"),
    Mechanism {
        section: "4.3",
        what: "each flow has a window; the sum is enforced, a single one only steers",
        left_out: "one sum over both sequence spaces: by the specification, and here, each of them may fill it, so \
                   that twice as much may be in flight; windows of their own for flows 5 to 8, which \
                   share the state of those four below",
    },
    tested("4.3", "a packet takes the flow whose window is open furthest"),
    tested("4.3", "acknowledgements are kept and coalesced per flow, and echo their own flow's timestamps"),
    tested("4.3", "an acknowledgement may cover packets of several flows; the sender knows which took which"),
    tested("4.3", "recovery state is per flow in one sequence space: skew between paths repeats nothing"),
    tested("3.2, 4.3", "a flow whose path is congested (PLB) or dead (PRR) gets another label"),
    tested("4.5", "resources are contexts and buffers"),
    tested("4.5", "pools carved by direction and kind; the last of the crate is for the head of the line"),
    tested("4.5", "reserved before use at both ends of a transaction, freed in the end, nothing leaks"),
    tested("4.5", "out of resources the upper layer is paused and the network is told"),
    tested("4.6", "a connection is paused by a share of what is free, before the pool is empty"),
    tested("4.6", "shares shrink with a connection's own windows, not with the congestion of others"),
    Mechanism {
        section: "5.2",
        what: "the packet buffer holds a bandwidth-delay product; beyond it things get slower, not worse",
        left_out: "a size by rate and round trip: `resources` is in percent of the simulator's NIC of 200 Gbit/s; \
                   overflow into memory of the NIC: ours refuses and repairs",
    },
    Mechanism {
        section: "5.2",
        what: "connection state in a cache; with misses all the time there is no cliff",
        left_out: "a chip; checked is a model with two levels; the real table: a benchmark (`rnic-engine`)",
    },
    tested("5.2", "errors are handled in the datapath: a connection in trouble slows no other"),
    Mechanism {
        section: "5.3",
        what: "the adaptive engine in three forms (stateless, stateful, prefetching), with the same decisions",
        left_out: "rates of events: measured, `rnic reproduce falcon/fae`; the stateless form with several flows, \
                   whose gap, timeout and shares go by the flow that was answered last",
    },
    tested("4.4", "the scheduler keeps a type's packets in order and lets types take turns"),
    tested("3.1, 5.1", "encryption in line, by PSP or IPsec's ESP; timestamps travel in the vector"),
    tested("3.1, 6.1", "applications use verbs, or NVMe; a queue pair is a connection"),
];

const PROBES_LIST: &[Mechanism] = &[
    tested("7, tables", "wire: every format byte for byte; reserved types are refused"),
    tested("9.1, 9.2", "windows: base - 1, base, the last inside, the first outside, and around 2^32"),
    tested(
        "9.2.2 to 9.2.4",
        "a Push is acknowledged after its upper layer; lost acknowledgements and NACKs are repaired",
    ),
    tested("9.1.6, 9.2.3", "a stale acknowledgement is dropped whole; a piggyback ends the timer if it tells all"),
    tested("8.2.1, 6.6.3", "RSN order across both windows; unordered at once; not ready holds back all behind"),
    tested("8.2", "a full network pool still takes the head of the line; Xoff never stops Read responses"),
    tested("10.3", "Swift: one decrease a round trip, times that wrap, windows below one, whole NIC windows"),
    tested("9.2.3", "RACK: later packets are not judged, slight reordering resends nothing, one probe recovers a tail"),
    tested(
        "paper 4.3",
        "flows: the widest window, packets counted for the flow that they took, the longest round trip",
    ),
    tested("10.6.1", "events: what the queue refuses stays counted; one event for each key"),
];
