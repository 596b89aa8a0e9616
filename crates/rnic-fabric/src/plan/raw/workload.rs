//! Keys of the traffic.

use std::collections::BTreeMap;

use rnic_base::{BitRate, Bytes, Duration, Probability};

use crate::plan::quantity::Unit;
use crate::plan::schema::{Absent, Doc, Key, Keyed, Named, Table, Typed, Word, default_of, table, words};

words! {
    /// The workloads.
    WorkloadKind {
        /// Flows arrive at random, to random hosts; sizes or size.
        Poisson = "poisson",
        /// Many hosts send to one at the same time, in addition to background traffic if the plan has any.
        ///
        /// The report lists requests and background separately: `rct_us` has the completion times of requests,
        /// `background` those of the other flows.
        Incast = "incast",
        /// Every host sends to one other, and receives from one other, on each of its connections.
        Permutation = "permutation",
        /// Messages between hosts, or clients and servers, a fixed number in flight; count or duration.
        ///
        /// The queue pairs start together, or at random times within `jitter`.
        ClosedLoop = "closed-loop",
        /// The same, but messages arrive at random, independently of the completion of earlier ones.
        OpenLoop = "open-loop",
        /// All-reduce, all-gather, reduce-scatter or all-to-all: steps that wait for each other.
        ///
        /// A rank sends the message of a step when it has received those of the step before, divided among its
        /// `connections` to each peer. `rct_us` has the time of each collective, until the last rank has finished,
        /// except those that started in the warm-up. Flows are the connections, from the first collective to the last:
        /// their slowdown is not meaningful.
        Collective = "collective",
        /// Groups of queue pairs, each with its own sizes of messages and its own depth, share the NICs of their hosts.
        ///
        /// Results of each tenant are in `tenants`, and the fairness between queue pairs and between tenants in
        /// `fairness`. They are measured from the end of the warm-up, or from when a queue pair joins, until it stops.
        Tenants = "tenants",
        /// Hosts use a drive of another host, over Falcon.
        Nvme = "nvme",
        /// Flows as listed in a file: lines start,src,dst,bytes, CSV with a header, or a file of HPCC or htsim.
        Trace = "trace",
        /// Execution traces of a training job (MLCommons Chakra), one file for each rank; rank i is host i.
        ///
        /// A node starts when the nodes that it depends on have ended. Collectives and messages between ranks use the
        /// network, a computation is a delay. `rct_us` has the time of each collective, from when the first rank starts
        /// it until the last rank has received everything; `execution` has the results of the traces.
        Chakra = "chakra",
        /// No traffic: the caller of the simulator posts work.
        Manual = "manual",
    }
}

words! {
    /// The formats of files of flows.
    FlowFileFormat {
        /// Lines start,src,dst,bytes.
        List = "list",
        /// A header with names of columns, then one flow per line.
        Csv = "csv",
        /// `flow.txt` of HPCC's simulator.
        Hpcc = "hpcc",
        /// Connection matrices (`.cm`) of htsim.
        Htsim = "htsim",
    }
}

words! {
    /// The meanings of the shares in a file of sizes.
    Shares {
        /// The share of flows that are no larger.
        Cumulative = "cumulative",
        /// The share of flows of exactly this size; no other size occurs.
        Each = "each",
    }
}

table! {
    /// The traffic.
    Workload by WorkloadKind {
        /// Type of workload; the types are listed below.
        kind: WorkloadKind,
        /// Poisson: load of the hosts' links. Open-loop: load that all queue pairs offer together, as a share of the
        /// first client's link. Above 0.
        load: Option<Unit<Probability>> [Poisson OpenLoop] => "needed",
        /// Sizes of flows: `irn-heavy-tail`, `web-search`, `data-mining` or `uniform`; a form, `uniform:500KB-5MB` or
        /// `fixed:8KB`; or a file of lines SIZE SHARE.
        sizes: Option<String> [Poisson] => "needed, or `size`",
        /// Meaning of the shares in a file of sizes.
        shares: Option<Shares> [Poisson] => "that of the file, or `cumulative`",
        /// Unit of the sizes in a file of sizes; ns-2's files often count packets.
        size_unit: Option<Unit<Bytes>> [Poisson] => "that of the file, or a byte",
        /// Size of every flow.
        size: Option<Unit<Bytes>> [Poisson] => "needed, or `sizes`",
        /// Flows and messages are posted until this time (closed-loop: or `count` of them).
        duration: Option<Unit<Duration>> [Poisson ClosedLoop OpenLoop Tenants Nvme] => "needed",
        /// Hosts that send to one.
        senders: Option<u32> [Incast] => "needed",
        /// Incast: bytes of a request, from all senders together. Permutation: bytes of each host. Collective: bytes of
        /// each rank's buffer.
        bytes: Option<Unit<Bytes>> [Incast Permutation Collective] => "needed",
        /// First host that posts.
        from: u32 [ClosedLoop OpenLoop Nvme] = 0,
        /// Incast: the receiver. Others: first host at the other end.
        to: Option<u32> [Incast ClosedLoop OpenLoop Nvme] => "incast: 0; others: 1",
        /// Flows start at random times within this duration.
        jitter: Option<Unit<Duration>> [Incast ClosedLoop] => "incast: 5 us; closed-loop: 0",
        /// Requests, one after the other.
        repeats: u32 [Incast] = 1,
        /// Time from the start of a request to that of the next.
        interval: Unit<Duration> [Incast] = 0,
        /// Time of the first request.
        start: Unit<Duration> [Incast] = 0,
        /// Background traffic.
        background: Option<Background> [Incast] => "none",
        /// `write`, `write-imm`, `send`, `read`, `fetch-add`, `compare-swap`. Closed-loop: also `read-write`: every
        /// other queue pair of a client reads, the others write. Poisson, incast: `write-imm`, `write`, `send`.
        /// Collective, chakra: `write-imm`, `send`. NVMe: `read`, `write`.
        op: Option<String> [Poisson Incast Permutation ClosedLoop OpenLoop Collective Nvme Chakra]
            => "`write-imm`; closed-loop, open-loop, NVMe: needed",
        /// Bytes of a message, or of a command.
        message: Option<Unit<Bytes>> [Permutation ClosedLoop OpenLoop Nvme]
            => "needed; permutation: all in one; atomics: 8",
        /// Messages of a queue pair, or commands of a host, in flight.
        depth: u32 [Permutation ClosedLoop OpenLoop Nvme] = 1,
        /// Time from the completion of a message to the post of the next one, as for a program that uses a result
        /// before it asks for the next.
        think: Unit<Duration> [ClosedLoop] = 0,
        /// Queue pairs in total: number i belongs to host `from + i % clients`, its server is `to + i / clients %
        /// servers`.
        queue_pairs: u32 [ClosedLoop OpenLoop] = 1,
        /// Connections among which a host's bytes are divided.
        connections: u32 [Permutation Collective] = 1,
        /// Hosts that post: `from` and the following ones.
        clients: u32 [ClosedLoop OpenLoop Nvme] = 1,
        /// Hosts at the other end: `to` and the following ones.
        servers: u32 [ClosedLoop OpenLoop] = 1,
        /// Closed-loop: messages of each queue pair. Collective: collectives, one after the other, up to 10000.
        count: Option<u32> [ClosedLoop Collective] => "needed by a closed loop without `duration`; collective: 1",
        /// `all-reduce`, `all-gather` or `reduce-scatter` around a ring, or `all-to-all`.
        collective: Option<String> [Collective] => "needed",
        /// Hosts that take part, from host 0; at least 2.
        ranks: Option<u32> [Collective] => "all hosts",
        /// `true`: neighbours in the ring are not neighbours in the topology.
        shuffle: bool [Collective] = false,
        /// Trace: a file of flows. Chakra: a folder with the traces, or their path without `.0.et`. Paths are relative
        /// to the plan.
        file: Option<String> [Trace Chakra] => "needed",
        /// Format of the file.
        format: Option<FlowFileFormat> [Trace] => "that which its first line shows",
        /// The tenants, by name.
        tenant: Option<BTreeMap<String, Tenant>> [Tenants] => "needed",
        /// The drive.
        drive: Option<Drive> [Nvme] => "needed",
    }
}

table! {
    /// A tenant of the workload `tenants`: queue pairs that share the NICs of their hosts with those of the others.
    /// Reports use its name, which has letters, digits, `-` and `_`.
    Tenant {
        /// Number of queue pairs.
        queue_pairs: u32 = 1,
        /// `write`, `write-imm`, `send`, `read`.
        op: String = "write",
        /// Bytes of each message.
        message: Option<Unit<Bytes>> => "needed, or `messages`, or `sizes`",
        /// Bytes of a message, by queue pair: the list is repeated.
        messages: Option<Vec<Unit<Bytes>>> => "needed, or `message`, or `sizes`",
        /// Bytes of a message as in `workload.sizes`, drawn once for each queue pair.
        sizes: Option<String> => "needed, or `message`, or `messages`",
        /// Messages of a queue pair in flight.
        depth: u32 = 1,
        /// Payload that the tenant offers, divided among its queue pairs: messages arrive at random, independently of
        /// the completion of earlier ones, and `depth` is the largest number in flight.
        rate: Option<Unit<BitRate>> => "a message is posted when one completes",
        /// Time at which the first queue pair joins.
        start: Unit<Duration> = 0,
        /// Time from which no message is posted; at most `workload.duration`.
        stop: Option<Unit<Duration>> => "`workload.duration`",
        /// Time from the join of a queue pair to that of the next.
        stagger: Unit<Duration> = 0,
        /// Queue pairs join later by a random time, up to this one.
        jitter: Unit<Duration> = 0,
        /// First host that posts.
        from: u32 = 0,
        /// Hosts that post: `from` and the following ones; queue pair i belongs to host `from + i % clients`.
        clients: u32 = 1,
        /// Host at the other end.
        to: u32 = 1,
        /// Weight of each queue pair for the scheduler, and in the fairness of the report; 1 to 1000.
        weight: u32 = 1,
        /// Limit of each queue pair's rate, with headers, at the NIC that sends the payload: 1Mbps to `links.rate`.
        rate_limit: Option<Unit<BitRate>> => "none",
        /// Hints that the application gives during the run, as through shared memory (SCR mechanism S-9).
        hints: Vec<Hint> = [],
    }
}

table! {
    /// A hint of a tenant's application, for all of its queue pairs.
    Hint {
        /// Time at which it is given.
        at: Unit<Duration>,
        /// Weight of each queue pair from then on, for the scheduler; 1 to 1000.
        weight: Option<u32> => "that of the tenant",
        /// Limit of each queue pair's rate from then on, with headers: 1Mbps to `links.rate`. The tenant's limit
        /// remains.
        cap: Option<Unit<BitRate>> => "none",
    }
}

table! {
    /// Poisson traffic between all hosts in addition to the requests of an incast.
    Background {
        /// Load of the hosts' links; above 0.
        load: Unit<Probability>,
        /// As `workload.sizes`.
        sizes: String,
        /// Time of the traffic, from the start of the run.
        duration: Option<Unit<Duration>>
            => "until the last request's interval is over; needed where there is no interval",
    }
}

table! {
    /// The drive that hosts use with `kind = "nvme"`, over Falcon with packets of 4096 bytes or more.
    Drive {
        /// Rate of reads; at least 1Mbps.
        read_rate: Unit<BitRate>,
        /// Time of each read.
        read_latency: Unit<Duration>,
        /// Rate of writes; at least 1Mbps.
        write_rate: Unit<BitRate>,
        /// Time of each write.
        write_latency: Unit<Duration>,
        /// Maximum number of units of up to 4096 bytes that the drive serves at the same time.
        queue_depth: u32,
        /// Messages of a Read: `push`, a Push to the drive and a Push back (the specification), or `pull`, a Pull (the
        /// paper).
        reads: String = "push",
        /// `true`: the drive's own host posts the commands, divided into the same units, without a network.
        local: bool = false,
    }
}
