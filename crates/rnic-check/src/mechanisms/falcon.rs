//! Falcon's mechanisms, and the test cases that its specification suggests for implementations.

use super::{Mechanism, Paper};

pub(super) const PAPER: Paper = Paper { mark: "F", name: "Falcon (SIGCOMM'25)", mechanisms: MECHANISMS, gaps: &[] };

/// Cases that the specification (Rev 0.9) covers but the paper does not, or on which the specification contradicts
/// itself.
pub(super) const PROBES: Paper =
    Paper { mark: "probe", name: "Falcon: probes of error-prone parts", mechanisms: PROBES_LIST, gaps: &[] };

const fn tested(section: &'static str, what: &'static str) -> Mechanism {
    Mechanism { what, section, left_out: "" }
}

const MECHANISMS: &[Mechanism] = &[
    tested("3.1", "four layers: mapping, transactions, packet delivery, and an exchangeable adaptive engine"),
    Mechanism {
        section: "4.4",
        what: "two types of transaction: a Push carries data to the peer, a Pull fetches data from it; all operations \
               map to them",
        left_out: "NVMe Reads as Pulls on sockets: there a Read is a Push to the target and a Push back, as in the \
                   specification; simulations have both",
    },
    tested("4.4", "a transaction is one MTU at most; a longer message becomes several and completes once"),
    tested("4.4, A.1", "requests and data have separate sequence spaces, so blocked requests stop no response"),
    tested("4.4, A.2", "RSNs order delivery at the target and completion at the initiator across both spaces"),
    tested("4.4", "ordered, unordered and weakly ordered connections"),
    tested("4.4", "a receiver that is not ready states when to retry; neither upper layer gets an error"),
    tested("4.4", "Complete in Error and Continue: one transaction ends in error, later ones succeed"),
    tested("4.1", "the receiver records packets in a bitmap of 128 bits, which acknowledgements carry"),
    Mechanism {
        section: "4.1",
        what: "packets are accepted out of order, also beyond the window, while there is space for them",
        left_out: "more than 512 packets beyond the base: such packets are refused even if there is space",
    },
    tested(
        "4.1",
        "RACK: a packet is judged lost if it was sent before the newest packet that arrived, and long enough ago",
    ),
    tested("4.1", "TLP: after a silence the lowest unacknowledged packet is retransmitted as a probe"),
    tested("6.1.1", "OOO-distance, the rule of the first generation: a gap with enough packets above it is lost"),
    tested("5.2", "a timeout for each packet, in the datapath, for losses that no other rule detects"),
    tested("4.1", "RTO and the times of RACK and TLP are computed from measurements of the network"),
    tested("4.2", "two congestion windows, for the fabric and for the NIC; the smaller one limits sending"),
    tested("4.2", "the fabric delay is computed from four timestamps of two clocks that need not be synchronized"),
    tested("4.2", "the NIC's window follows the fill level of the receiver's buffers"),
    tested("4.4", "the NIC's window does not hold back Pull responses: space for them is reserved"),
    Mechanism {
        section: "3.2, 4.2",
        what: "a timing wheel spaces packets when a window is below one packet",
        left_out: "sockets with their defaults: no window is below 16 packets there, unless `window_min` sets one",
    },
    tested("4.3", "a bit requests an acknowledgement; without it acknowledgements are coalesced, per flow"),
    Mechanism {
        section: "4.1 to 4.6",
        what: "the measurements that the adaptive engine receives",
        left_out: "CSIG's signals except the longest delay of a hop; over sockets hops, ECN marks and CSIG, which are \
                   not read there: the first two count as none, and a controller that needs the third is refused",
    },
    Mechanism {
        section: "4.1 to 4.6",
        what: "the values that the adaptive engine determines",
        left_out: "the target delay as a response: Swift itself scales it by the window, and its field of the record \
                   (base delay) is zero",
    },
    tested("4.3", "several flows per connection, each with a label of its own that contains the flow's index"),
    Mechanism {
        section: "4.3",
        what: "each flow has a window; their sum is enforced, a single window only guides the choice of the flow",
        left_out: "one sum over both sequence spaces: by the specification, and here, each space may fill the sum, so \
                   that twice as much may be in flight; separate windows for flows 5 to 8, each of which shares the \
                   state of the flow four below it",
    },
    tested("4.3", "a packet takes the flow with the most open window"),
    tested("4.3", "acknowledgements are kept and coalesced per flow, and echo the timestamps of their own flow"),
    tested("4.3", "an acknowledgement may cover packets of several flows; the sender knows the flow of each packet"),
    tested("4.3", "recovery state is per flow in one sequence space: different path delays cause no retransmission"),
    tested("3.2, 4.3", "a flow whose path is congested (PLB) or has failed (PRR) gets another label"),
    tested("4.5", "resources are contexts and buffers"),
    tested(
        "4.5",
        "pools are divided by direction and kind; the last part of a pool is reserved for the head of the line",
    ),
    tested(
        "4.5",
        "resources are reserved before use at both ends of a transaction and freed at its end; nothing leaks",
    ),
    tested("4.5", "without free resources the upper layer is paused and packets from the network are refused by NACK"),
    tested("4.6", "a connection is paused when it exceeds its share of the free resources, before the pool is empty"),
    tested("4.6", "shares shrink with a connection's own windows, not with the congestion of others"),
    Mechanism {
        section: "5.2",
        what: "the packet buffer holds a bandwidth-delay product; more data slows connections down and stops none",
        left_out: "a size by rate and round trip on sockets, where `resources` is in percent of the simulator's NIC of \
                   200 Gbit/s; completions that wait for a read from DRAM",
    },
    Mechanism {
        section: "5.2",
        what: "connection state is in a cache; permanent misses cause no sudden drop of performance",
        left_out: "a chip: the tests check a model with two levels; the table in software, which a benchmark measures \
                   (`rnic-engine`)",
    },
    tested("5.2", "errors are handled in the datapath: a connection with errors slows down no other"),
    Mechanism {
        section: "5.3",
        what: "the adaptive engine in three forms (stateless, stateful, prefetching), with the same decisions",
        left_out: "event rates, which `rnic reproduce falcon/fae` measures; the stateless form with several flows, \
                   where gap, timeout and shares follow the flow of the latest response",
    },
    tested("4.4", "the scheduler keeps packets of one type in order and serves the types in turn"),
    tested("3.1, 5.1", "inline encryption by PSP or IPsec's ESP; timestamps are in the initialization vector"),
    tested("3.1, 6.1", "applications use verbs, or NVMe; a queue pair is a connection"),
];

const PROBES_LIST: &[Mechanism] = &[
    tested("7, tables", "wire: every format byte for byte; reserved types are refused"),
    tested("9.1, 9.2", "windows: PSNs base - 1, base, the last inside, the first outside, and around 2^32"),
    tested(
        "9.2.2 to 9.2.4",
        "a Push is acknowledged when its upper layer has accepted it; lost acknowledgements and NACKs are recovered",
    ),
    tested(
        "9.1.6, 9.2.3",
        "a stale acknowledgement is ignored completely; a piggybacked one stops the timer if it covers everything",
    ),
    tested(
        "8.2.1, 6.6.3",
        "RSN order across both windows; unordered requests immediately; one not ready holds back all behind it",
    ),
    tested("8.2", "a full network pool still accepts the head of the line; Xoff never stops Read responses"),
    tested(
        "10.3",
        "Swift: one decrease per round trip, timestamps that wrap, windows below one packet, whole-packet NIC windows",
    ),
    tested(
        "9.2.3",
        "RACK: later packets are not judged, slight reordering retransmits nothing, one probe recovers a lost tail",
    ),
    tested(
        "paper 4.3",
        "flows: the widest window is chosen, packets count for the flow that they took, the longest round trip applies",
    ),
    tested("10.6.1", "events: an event that the queue refuses stays counted; one queued event for each key"),
];
