//! SCR's mechanisms.

use super::{Mechanism, Paper};

pub(super) const PAPER: Paper = Paper { mark: "S", name: "SCR (NSDI'25)", mechanisms: MECHANISMS, gaps: &[] };

const fn tested(section: &'static str, what: &'static str) -> Mechanism {
    Mechanism { what, section, left_out: "" }
}

const MECHANISMS: &[Mechanism] = &[
    tested("4.2", "one knob: the dequeue rate of a queue pair bounds what is read from memory, sent and received"),
    tested("4.2", "the scheduler chooses work requests by metadata and rate; its input and output are separable"),
    tested("4.3", "collectors, queues and processors run beside the data path, which is the same with SCR off"),
    tested("4.3.1", "twelve signals: TX, RX, CNP, ACK, NACK, RTT; hints, bus, NIC; credits, bus and NIC of the peer"),
    tested("4.3.1", "the RX signal comes from the host's counters"),
    tested("4.3.1", "messages between NICs: unreliable datagrams of 128 bytes that look like RoCEv2"),
    Mechanism {
        what: "messages are sent periodically, after a number of bytes, or when a utilisation changes",
        section: "4.3.1",
        left_out: "on sockets, programs cannot choose: a report each 4 ms to those from which data arrive",
    },
    Mechanism {
        what: "a probe measures the round trip of a chosen path",
        section: "4.3.1",
        left_out: "on sockets, the answer returns on the default path",
    },
    tested("4.3.1", "hints of applications through shared memory, without a system call; host signals are per node"),
    tested("4.3.2", "one queue per flow and type of event, with one producer and one consumer"),
    tested("4.3.2", "coalescing: accumulate, keep the latest, keep the oldest, or wait while the rate is stable"),
    tested("4.3.2", "threads start with their pool; one writer sets rates"),
    tested("4.3.3", "handlers run to completion; events of one flow and type always go to the same thread"),
    tested("4.3.3", "pools of threads for fabric, peer and host signals; one thread per flow until a pool is full"),
    tested("4.3.3", "the bytes per event do not grow with the number of flows beyond the number of threads"),
    tested("4.3.3", "compact state: Bloom filter, hash map, HyperLogLog, Count-Min"),
    tested("4.3.3", "fixed-point arithmetic with 16 fractional bits; multiplication, division and square root by bits"),
    tested("5.1", "a meter of a flow's bandwidth: bytes by time since the last event, smoothed"),
    tested("5.1", "schedulers: greedy, static shares, and water filling"),
    tested("5.1", "a flow that arrives scales the others; the rate of one that ends is given to others"),
    tested("6.2", "no flow gets less than 1 Gbit/s"),
    tested("A.5", "a Read is scheduled at its responder, which sends the data"),
    tested(
        "A.6",
        "Swift as a program: fabric delay from probes, host delay from the latency of the bus or of the process",
    ),
    tested("A.7", "paths are UDP source ports; the one with the lowest probed round trip is used, a failed one left"),
    tested("A.8", "a receiver grants credits from its unused bandwidth; a sender keeps its rate until the next grant"),
    tested("A.8", "back-pressure: a notification of the receiver halves the rate, which then grows again"),
    tested("A.9", "the same program works over NVMe and GPU memory, without a change of the initiator"),
    tested("A.11", "the control loop has latencies: trigger, handler, installation of a rate, messages"),
];
