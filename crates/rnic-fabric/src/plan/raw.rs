//! The plan as deserialized by serde, and the documentation of its keys: `docs/plans.md` and `rnic list` are generated
//! from the declarations below. Only types and units are checked here; `resolve` checks the values together.

use core::fmt;
use std::collections::BTreeMap;

use rnic_base::{BitRate, Bytes, Duration, Probability};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::quantity::{Fraction, OrAuto, Unit};
use super::schema::{Absent, Doc, Key, Keyed, Named, Table, Typed, Word, default_of, table, typed, words};

/// A transport: a table with its name and its options, or its name alone.
#[derive(Clone, Debug)]
pub(super) struct Transport(pub(super) BTreeMap<String, toml::Value>);

impl<'de> Deserialize<'de> for Transport {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Transport;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a transport, or a table such as { name = \"irn\", rto_high = \"auto\" }")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Transport, E> {
                Ok(Transport([("name".to_owned(), toml::Value::from(name))].into()))
            }

            fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<Transport, A::Error> {
                BTreeMap::deserialize(MapAccessDeserializer::new(table)).map(Transport)
            }
        }

        deserializer.deserialize_any(Reader)
    }
}

/// All keys of a plan.
pub const SCHEMA: &Table = Raw::TABLE.expect("a table");

impl Typed for Transport {
    const NAME: &'static str = "table";
    const TABLE: Option<&'static Table> = Some(&Table {
        about: Doc(
            "The transport of all queue pairs: a table, or its name alone (`transport = \"irn\"`). Every further key \
             is an option of the transport; `rnic list` has them all, with their defaults.",
        ),
        keys: &[
            Self::key("name", "words", Absent::Required, "A name of `rnic list`."),
            Self::key(
                "recovery",
                "words",
                Self::TRANSPORT_DEFAULT,
                "Another policy for lost packets; `control`, `paths` and `schedule` replace the other policies.",
            ),
            Self::key(
                "cap_packets",
                "number, or `bdp`",
                Self::TRANSPORT_DEFAULT,
                "Packets of a queue pair in flight, for transports with such a cap; `bdp`: the number that fills the \
                 longest path of this topology.",
            ),
            Self::key(
                "rto_high",
                "duration, or `auto`",
                Self::TRANSPORT_DEFAULT,
                "IRN's timeout; `auto`: the longest path and one full buffer (IRN 4.1). The same holds for `rto` of \
                 other transports. When a plan gives no timeout, they fit the plan: none under PFC where no packet can \
                 be lost (IRN 4.1), `auto` where the transport's own are shorter than a round trip.",
            ),
        ],
    });
}

impl Transport {
    const TRANSPORT_DEFAULT: Absent = Absent::Depends("the transport's own");

    const fn key(name: &'static str, type_name: &'static str, absent: Absent, about: &'static str) -> Key {
        Key { name, type_name, about: Doc(about), absent, kinds: &[], words: &[], table: None }
    }
}

typed! {
    Unit<Duration>: "duration",
    Unit<BitRate>: "rate",
    Unit<Bytes>: "size",
    Unit<Probability>: "share",
    Unit<Fraction>: "fraction",
    OrAuto<Bytes>: "size, or `auto`",
}

table! {
    /// Keys outside of all tables; TOML requires them before all tables.
    Raw {
        /// Name of the run in the report.
        name: String = "",
        /// Payload bytes of a full packet: a multiple of 4, 256 to 8192.
        mtu: u32 = 1024,
        /// Reads and atomics of a queue pair in flight, as adapters offer.
        reads: u32 = 16,
        /// Content of packets.
        payload: Payload = "none",
        /// Representation of packets on links; the run is the same, including its trace hash.
        wire: Wire = "direct",
        /// The network: hosts, switches and links.
        topology: Topology,
        /// All links, or, in topologies with links between switches, those of hosts.
        links: Links,
        /// The switches.
        switch: Option<Switch> => "needed by topologies with switches",
        /// The transport.
        transport: Transport,
        /// The NICs' memory.
        nic: Option<Nic> => "none",
        /// Threads on which schedulers run.
        processors: Option<Processors> => "none: schedulers decide at once",
        /// Hosts with slow memory.
        slow_host: Option<SlowHost> => "none",
        /// Messages between NICs.
        scr: Option<Scr> => "none",
        /// The traffic.
        workload: Workload,
        /// The faults.
        fault: Vec<Fault> = [],
        /// Limits and measurements.
        run: Run = {},
        /// Time series of the run.
        record: Option<Record> => "none",
    }
}

words! {
    /// The content of packets.
    Payload {
        /// Headers only.
        None = "none",
        /// Real bytes, which are verified.
        Checked = "checked",
    }
}

words! {
    /// The representation of packets on links.
    Wire {
        /// The packet as a data structure, without encoding it to bytes.
        Direct = "direct",
        /// Bytes, encoded by the sender and decoded by the receiver.
        Encoded = "encoded",
    }
}

words! {
    /// The topologies.
    TopologyKind {
        /// Two hosts and a link.
        PointToPoint = "point-to-point",
        /// Hosts around one switch.
        Star = "star",
        /// k-port switches, k^3/4 hosts, ECMP on the hash of the flow.
        FatTree = "fat-tree",
        /// Every leaf linked to every spine, ECMP on the hash of the flow.
        LeafSpine = "leaf-spine",
    }
}

table! {
    /// The network: hosts, switches and links.
    Topology by TopologyKind {
        /// Type of topology; the types are listed below.
        kind: TopologyKind,
        /// Hosts around one switch.
        hosts: Option<u32> [Star] => "needed by a star",
        /// Ports of each switch, an even number up to 64: k^3/4 hosts.
        k: Option<u32> [FatTree] => "needed by a fat-tree",
        /// Switches of the upper layer.
        spines: Option<u32> [LeafSpine] => "needed by a leaf-spine",
        /// Switches of the lower layer, each linked to every spine.
        leaves: Option<u32> [LeafSpine] => "needed by a leaf-spine",
        /// Hosts of each leaf; at most 65536 in total.
        hosts_per_leaf: Option<u32> [LeafSpine] => "needed by a leaf-spine",
    }
}

words! {
    /// The distribution of flows over threads.
    Steering {
        /// Each flow has the thread with its number, modulo the number of threads.
        Software = "software",
        /// By a hash of the flow.
        Hardware = "hardware",
    }
}

words! {
    /// Merging of the records of a flow that wait for its thread.
    Coalesce {
        /// Not merged, up to 64 records.
        None = "none",
        /// As one, with the sum of the bytes, up to 64 KiB.
        Accumulate = "accumulate",
        /// As `accumulate`; in addition, the scheduler does not run while the flow's rate is stable.
        WhileStable = "while-stable",
    }
}

table! {
    /// Threads on each NIC, in simulated time, on which a scheduler that sets rates runs (SCR 4.3). The times are those
    /// of SCR's appendix A.11.
    Processors {
        /// Number of threads.
        threads: u32 = 64,
        /// Distribution of flows over threads.
        steering: Steering = "software",
        /// Merging of the records of a flow that wait for its thread.
        coalesce: Coalesce = "accumulate",
        /// Time from a record to the start of an idle thread.
        trigger: Unit<Duration> = "7us",
        /// Time in which the scheduler processes a record.
        work: Unit<Duration> = "4us",
        /// Time for a record for which the scheduler does not run, because the rate is stable.
        fold: Unit<Duration> = "2500ns",
        /// Time from a decision until the rate applies.
        install: Unit<Duration> = "6us",
    }
}

table! {
    /// All links, or, in topologies with links between switches, those of hosts.
    Links {
        /// Rate of each direction; 1Mbps to 10Tbps.
        rate: Unit<BitRate>,
        /// Propagation delay; 1 ns to 1 s.
        delay: Unit<Duration>,
        /// Links between switches.
        fabric: Option<LinkClass> => "as other links",
    }
}

table! {
    /// Links between switches, where they differ from those of hosts.
    LinkClass {
        /// Rate of each direction.
        rate: Option<Unit<BitRate>> => "`links.rate`",
        /// Propagation delay.
        delay: Option<Unit<Duration>> => "`links.delay`",
        /// For a leaf-spine: the rate of the links of each spine, 1Mbps to `rate`. Loads, timeouts and ideal times are
        /// computed from `rate`. Empty: `rate` for all.
        spines: Vec<Unit<BitRate>> = [],
    }
}

words! {
    /// The distribution of flows over the links that are up.
    Multipath {
        /// Over all links equally.
        Ecmp = "ecmp",
        /// In proportion to their rates.
        Wcmp = "wcmp",
    }
}

words! {
    /// The switch models.
    SwitchModel {
        /// Each input port has a buffer.
        InputQueued = "input-queued",
        /// All ports share one buffer.
        SharedBuffer = "shared-buffer",
    }
}

table! {
    /// Every switch; needed in topologies with switches.
    Switch {
        /// Buffers of the switch.
        model: SwitchModel,
        /// Buffer of each input port, or of the switch when it is shared.
        buffer: Unit<Bytes>,
        /// For a shared buffer (dynamic threshold): a queue may occupy at most `alpha` times the free buffer.
        alpha: Unit<Fraction> = "1",
        /// Distribution of flows over the links that are up.
        multipath: Multipath = "ecmp",
        /// Pauses.
        pfc: Option<Pfc> => "none",
        /// Marks.
        ecn: Option<Ecn> => "none",
        /// Tags.
        csig: Option<Csig> => "none",
        /// Packets without payload instead of losses.
        trim: Option<Trim> => "none",
    }
}

table! {
    /// Trimming (NDP, SIGCOMM'17): a switch without space for a packet cuts its payload and forwards the headers, in a
    /// queue of higher priority, which acknowledgements and pulls use too. Packets of IRN's format only; receivers of
    /// transports without pulls do not use what is left. Without this table, packets are dropped.
    Trim {
        /// `false` disables trimming although the plan contains the table.
        enabled: bool = true,
        /// Data packets that may wait for an output.
        queue: u32 = 8,
        /// Bytes of headers, acknowledgements and pulls that may wait for an output: as many as NDP's queue of eight
        /// packets holds.
        headers: Unit<Bytes> = "72KB",
    }
}

table! {
    /// Tags that switches write into waiting packets: how long the most congested hop of the path delays them (CSIG,
    /// draft-ravi-ippm-csig), in 4 bytes of every frame of `falcon`. Without this table there are no tags, and a
    /// controller that needs them (`bottleneck`) is refused.
    Csig {
        /// `false` disables tags although the plan contains the table.
        enabled: bool = true,
    }
}

table! {
    /// Pauses. Without this table there are none.
    Pfc {
        /// `false` disables pauses although the plan contains the table.
        enabled: bool = true,
        /// For input-queued switches: a longer queue pauses the sender; `auto` leaves space for bytes in flight.
        threshold: OrAuto<Bytes> = "auto",
        /// For a shared buffer: bytes reserved for each port, for bytes in flight when it pauses; `auto`: as many as
        /// are needed.
        headroom: OrAuto<Bytes> = "auto",
    }
}

words! {
    /// The queue depth that is measured before a packet is marked.
    EcnDepth {
        /// All packets that wait for the output port.
        Output = "output",
        /// Bytes that wait for the output and arrived at the same input port (input-queued switches only).
        VirtualQueue = "virtual-queue",
        /// The content of the input port's buffer.
        Input = "input",
    }
}

words! {
    /// The random numbers that decide about marks between `kmin` and `kmax`.
    EcnDraw {
        /// From one stream, in the order in which packets arrive.
        Sequence = "sequence",
        /// A function of the packet and the seed: two simulations mark the same packets at the same depth.
        Packet = "packet",
    }
}

table! {
    /// Marks for congestion control. Without this table there are none.
    Ecn {
        /// `false` disables marks although the plan contains the table.
        enabled: bool = true,
        /// Queue depth below which no packet is marked.
        kmin: Unit<Bytes>,
        /// Queue depth above which every packet is marked; more than `kmin`.
        kmax: Unit<Bytes>,
        /// Share of packets that is marked just below `kmax`; between the two it grows linearly.
        pmax: Unit<Probability>,
        /// Measured queue depth.
        depth: EcnDepth = "output",
        /// Random numbers of marks.
        draw: EcnDraw = "sequence",
    }
}

words! {
    /// The policies for fetching work requests.
    WqeFetch {
        /// In batches, when a queue pair needs one.
        OnDemand = "on-demand",
        /// Before they are needed.
        Ahead = "ahead",
    }
}

table! {
    /// Costs of the NICs' memory and bus. Without this table they cost no time. With Falcon, the caches, the bus (to
    /// the NIC's own memory) and the two cycles are modelled; `wqe_*` and `receive_buffer` are refused.
    Nic {
        /// `false` disables the model although the plan contains the table.
        enabled: bool = true,
        /// Bytes for contexts of queue pairs; or `qpc_entries`.
        qpc_cache: Option<Unit<Bytes>> => "all contexts fit",
        /// The same, as a number of contexts.
        qpc_entries: Option<u32> => "all contexts fit",
        /// Contexts in a second level on the NIC, behind the first; more than in the first.
        second_entries: Option<u32> => "none; needed with `second_latency`",
        /// Time of a read from the second level, at most `bus_latency`.
        second_latency: Option<Unit<Duration>> => "needed with `second_entries`",
        /// Time of a read over the bus to the host; at most 1 ms (default: FaSR sections II-A and V-A).
        bus_latency: Unit<Duration> = "1.2us",
        /// Rate of the bus, each direction, at least 1Mbps (default: PCI Express 3.0, 16 lanes, FaSR section IV: 16
        /// times 8 GT/s, of which 128 bits in 130 are data).
        bus_rate: Unit<BitRate> = "126030769230bps",
        /// Reads over the bus in flight, 1 to 1024, the tags of PCI Express 4.0 (default: the tags of PCI Express 3.0,
        /// extended to eight bits).
        bus_reads: u32 = 256,
        /// Time at which work requests are fetched from the host's memory.
        wqe_fetch: WqeFetch = "on-demand",
        /// Work requests of a batch, with `on-demand` (default: FaSR section V-D1).
        wqe_batch: u32 = 8,
        /// Time of a query of a bitmap in the host's memory (`srnic`); at most 1 ms.
        bitmap_latency: Option<Unit<Duration>> => "`bus_latency`",
        /// Time between two packets in the pipeline, sent and received ones together; with Falcon, between two sent
        /// packets; at most 1 ms (default: FaSR section V-D2: a packet takes one or two cycles of 5 ns, 181 million per
        /// second in one pipeline).
        cycle: Option<Unit<Duration>> => "5.525 ns; with Falcon 0, since that of its pipeline is not published",
        /// For Falcon: minimum time between two sent packets of a queue pair; at most 1 ms.
        qp_cycle: Unit<Duration> = 0,
        /// Bytes that may wait for the pipeline; with PFC the NIC pauses its neighbour before (default: FaSR section
        /// V-A).
        receive_buffer: Unit<Bytes> = "600KB",
    }
}

table! {
    /// Hosts whose memory accepts received payload at a lower rate. Needs Falcon or `[nic]`. Without this table no host
    /// is slow.
    SlowHost {
        /// Names of hosts; `*` matches any text.
        hosts: String = "*",
        /// Rate of received payload into memory; at least 1Mbps.
        rate: Unit<BitRate>,
        /// Time at which the hosts become slow.
        from: Unit<Duration> = 0,
        /// Time at which they stop being slow.
        until: Option<Unit<Duration>> => "the end; needed with `every`",
        /// Time after which they become slow again, for as long; more than from `from` to `until`.
        every: Option<Unit<Duration>> => "they are slow once",
    }
}

words! {
    /// The reasons to report the load to a peer.
    Mode {
        /// When a period has ended.
        Periodic = "periodic",
        /// `sampling` bytes have been sent to the peer.
        Sampling = "sampling",
        /// A utilisation has changed by more than 10 points.
        Anomaly = "anomaly",
    }
}

table! {
    /// Messages between the NICs of hosts (SCR, NSDI'25): probes, grants of receivers, back-pressure. Without this
    /// table there are none. Not for Falcon.
    Scr {
        /// `false` disables the messages although the plan contains the table.
        enabled: bool = true,
        /// Period of reports and grants; 1 us to 10 s.
        period: Option<Unit<Duration>> => "the round trip of the longest path, at least 20 us",
        /// Reasons to report the load to each peer; several may be given, and the first one that occurs counts.
        mode: Vec<Mode> = [],
        /// Bytes to a peer, with mode `sampling`.
        sampling: Unit<Bytes> = "256KB",
        /// Names of hosts to whose queue pairs receivers grant rates; `*` matches any text.
        credits: Option<String> => "none",
        /// Bytes that may wait for the host, with `[nic]`, before its senders halve their rates.
        back_pressure: Option<Unit<Bytes>> => "none is sent",
        /// Interval at which the path of each queue pair that sends is probed; at least 1 us.
        probes: Option<Unit<Duration>> => "only policies probe",
        /// Time after which these probes count as lost (SCR A.7).
        probe_timeout: Unit<Duration> = "100us",
        /// Lowest rate that is granted, and to which a peer can limit a queue pair.
        floor: Option<Unit<BitRate>> => "1 % of the link, divided by the queue pairs to the peer",
        /// Growth of a rate in each round trip after back-pressure.
        step: Unit<BitRate> = "400Mbps",
    }
}

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
        /// Flows as listed in a file of lines start,src,dst,bytes.
        Trace = "trace",
        /// No traffic: the caller of the simulator posts work.
        Manual = "manual",
    }
}

table! {
    /// The traffic.
    Workload by WorkloadKind {
        /// Type of workload; the types are listed below.
        kind: WorkloadKind,
        /// Poisson: load of the hosts' links. Open-loop: load that all queue pairs offer together, as a share of one
        /// host's link. Above 0.
        load: Option<Unit<Probability>> [Poisson OpenLoop] => "needed",
        /// Sizes of flows: `irn-heavy-tail`, `web-search`, `data-mining` or `uniform`; a form, `uniform:500KB-5MB` or
        /// `fixed:8KB`; or a file of lines SIZE SHARE.
        sizes: Option<String> [Poisson] => "needed, or `size`",
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
        /// other queue pair of a client reads, the others write. Collective: `write-imm`, `send`. NVMe: `read`,
        /// `write`.
        op: Option<String> [Permutation ClosedLoop OpenLoop Collective Nvme]
            => "needed; permutation, collective: `write-imm`",
        /// Bytes of a message, or of a command.
        message: Option<Unit<Bytes>> [Permutation ClosedLoop OpenLoop Nvme]
            => "needed; permutation: all in one; atomics: 8",
        /// Messages of a queue pair, or commands of a host, in flight.
        depth: u32 [Permutation ClosedLoop OpenLoop Nvme] = 1,
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
        /// File of lines start,src,dst,bytes; its path is relative to the plan.
        file: Option<String> [Trace] => "needed",
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

words! {
    /// The faults.
    FaultKind {
        /// Packets are lost, each independently.
        Drop = "drop",
        /// Packets are lost in bursts; length or end.
        Burst = "burst",
        /// Packets are overtaken by later ones; set either `delay` or `displacement`.
        Reorder = "reorder",
        /// Packets arrive twice.
        Duplicate = "duplicate",
        /// Packets arrive with a wrong bit; the ICRC finds them.
        Corrupt = "corrupt",
        /// Packets arrive later.
        Delay = "delay",
        /// A link carries no packets for a time.
        Down = "down",
        /// A link has a lower rate for a time, or until the end.
        Slow = "slow",
    }
}

words! {
    /// The packets that a fault affects.
    Target {
        /// All but acknowledgements.
        Data = "data",
        /// Acknowledgements.
        Acks = "acks",
        /// All packets.
        All = "all",
    }
}

table! {
    /// Faults, any number of them, in the order in which they act. Names of the directions of links are such as
    /// `host-3>edge-1`, `edge-1>agg-0`, `host-0>switch-0`, `host-0>host-1`, `leaf-2>spine-0`.
    ///
    /// `links = "leaf-*>spine-1, spine-1>leaf-*"` disconnects one of four spines; switches continue to choose it.
    Fault by FaultKind {
        /// Type of fault; the types are listed below.
        kind: FaultKind,
        /// Names of directions of links, separated by commas; `*` matches any text.
        links: String = "*",
        /// Affected packets.
        packets: Target = "all",
        /// Probability for each packet. Burst: that one begins.
        probability: Option<Unit<Probability>> [Drop Burst Reorder Duplicate Corrupt] => "needed",
        /// Packets of a burst.
        length: Option<u32> [Burst] => "burst: needed, or `end`",
        /// Probability that a burst ends, at each packet; above 0.
        end: Option<Unit<Probability>> [Burst] => "burst: needed, or `length`",
        /// Probability of loss inside a burst, with `end`.
        loss: Unit<Probability> [Burst] = "100%",
        /// Time by which packets are late; at most 1 s.
        delay: Option<Unit<Duration>> [Reorder Delay] => "reorder: needed, or `displacement`; delay: 0",
        /// Delay of reordered packets in transmission times of full packets.
        displacement: Option<u32> [Reorder] => "reorder: needed, or `delay`",
        /// Largest additional time, at random.
        jitter: Unit<Duration> [Delay] = 0,
        /// Remaining rate; at least 1Mbps.
        rate: Option<Unit<BitRate>> [Slow] => "needed",
        /// Time at which the fault begins.
        from: Unit<Duration> [Down Slow] = 0,
        /// Time at which the fault ends; after `from`.
        until: Option<Unit<Duration>> [Down Slow] => "down: needed; slow: the end",
    }
}

table! {
    /// Limits of a run, and measurements.
    Run {
        /// Simulated time after which the run is cut off.
        limit: Option<Unit<Duration>> => "10 s; 10 s more for a workload that begins something later",
        /// A run without any useful packet for this time has failed.
        stall_after: Option<Unit<Duration>> => "50 ms, or three of the transport's timeouts if that is longer",
        /// Flows that start before this time are excluded from averages.
        warmup: Unit<Duration> = 0,
        /// For a workload with a `duration`: messages (of `poisson`: flows) of its last part of this length are
        /// excluded, too.
        cooldown: Unit<Duration> = 0,
        /// Length of a time slice: the report has the payload that arrived at each host and its queue, one row per
        /// slice; at most 100000 until `limit`.
        slice: Option<Unit<Duration>> => "none",
    }
}

words! {
    /// The kinds of objects that can be recorded.
    RecordKind {
        /// Each direction of each link: its use, pauses, losses, and the queue of the switch that sends on it.
        Links = "links",
        /// Each switch: buffered bytes, drops, marks, cut packets, pause frames.
        Switches = "switches",
        /// Each host: arriving payload, retransmissions, marks, timeouts.
        Hosts = "hosts",
        /// Each flow while it is in progress: arriving payload, window, packets in flight, rate, round trip,
        /// retransmissions.
        Flows = "flows",
        /// All flows together, requests apart from background flows.
        Traffic = "traffic",
    }
}

table! {
    /// A recording of time series, which `rnic sim --out DIR` writes to `DIR/series.parquet` and draws in
    /// `DIR/report.html`. It does not change the run. Pauses, marks, cut packets and losses to faults are recorded when
    /// the plan has PFC, ECN, trimming or faults.
    Record {
        /// Time between two samples. A sample is taken when every node has reached its time, so it is late by at most
        /// the shortest delay of a link; its row has the exact time.
        interval: Unit<Duration>,
        /// Kinds of objects that are recorded; an empty list: all.
        what: Vec<RecordKind> = [],
    }
}
