//! The plan as deserialized by serde, and the documentation of its keys: `docs/plans.md` and `rnic list` are generated
//! from the declarations here, in `raw/network.rs` and in `raw/workload.rs`. Only types and units are checked here;
//! `resolve` checks the values together.

mod network;
mod traffic;
mod workload;

use core::fmt;
use std::collections::BTreeMap;

use rnic_base::{BitRate, Bytes, Duration, Probability};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::quantity::{Fraction, OrAuto, Unit};
use super::schema::{Absent, Doc, Key, Keyed, Named, Table, Typed, Word, default_of, table, typed, words};
pub(super) use network::{
    Class, Csig, EcnDepth, EcnDraw, Fault, FaultKind, Links, Multipath, Pfc, Switch, SwitchModel, Target, Topology,
    TopologyFormat, TopologyKind,
};
pub(super) use traffic::Traffic;
pub(super) use workload::{Background, FlowFileFormat, Hint, Shares, Tenant, Workload, WorkloadKind};

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
        links: Option<Links> => "needed, except where a file gives rates and delays",
        /// The switches.
        switch: Option<Switch> => "needed by topologies with switches",
        /// The classes, by name.
        classes: Option<BTreeMap<String, Class>> => "one class",
        /// The transport.
        transport: Option<Transport> => "needed, unless every group of `traffic` has one",
        /// The NICs' memory.
        nic: Option<Nic> => "none",
        /// Threads on which schedulers run.
        processors: Option<Processors> => "none: schedulers decide at once",
        /// Hosts with slow memory.
        slow_host: Option<SlowHost> => "none",
        /// Messages between NICs.
        scr: Option<Scr> => "none",
        /// The traffic.
        workload: Option<Workload> => "needed, or `traffic`",
        /// Several groups of traffic, by name.
        traffic: Option<BTreeMap<String, Traffic>> => "needed, or `workload`",
        /// The faults.
        fault: Vec<Fault> = [],
        /// Limits and measurements.
        run: Run = {},
        /// Time series of the run.
        record: Option<Record> => "none",
        /// Selection of the events that `rnic sim --trace` writes.
        trace: Trace = {},
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
    /// Costs of the NICs' memory and bus. Without this table they cost no time. With Falcon, the cache of
    /// contexts, the bus (to the NIC's own memory), the two cycles and packet buffers are modelled; the other keys are
    /// refused.
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
        /// Translations of addresses on the chip, each of a page. Not for Falcon, in whose NIC payload costs nothing.
        translation_entries: Option<u32> => "all translations fit",
        /// Bytes of a page, a power of two.
        page: Unit<Bytes> = "4KiB",
        /// Bytes of the memory through which the packets of a queue pair go, at each end; at most 256 pages.
        region: Option<Unit<Bytes>> => "one page",
        /// Contexts of completion queues on the chip. Not for Falcon, in whose NIC completions cost nothing.
        cq_entries: Option<u32> => "all contexts fit",
        /// Completion queues of each host, which its queue pairs share in turn.
        cqs: Option<u32> => "one for each queue pair",
        /// For Falcon: bytes on the chip for requests that arrive out of order. `auto`: The rate of a host's link times
        /// the longest round trip (Falcon section 5.2). The number of such requests remains that of the option
        /// `resources`.
        packet_buffer: Option<OrAuto<Bytes>> => "as the option `resources` says, without a model of the memory",
        /// Bytes of DRAM on the NIC for requests that do not fit into `packet_buffer`. Without it, they are refused.
        dram_buffer: Option<Unit<Bytes>> => "none; needed with `dram_rate`",
        /// Rate of this DRAM, for writes and reads together; at least that of a host's link.
        dram_rate: Option<Unit<BitRate>> => "needed with `dram_buffer`",
        /// Time of a read from it; at most 1 ms (default: ours, since none is published).
        dram_latency: Unit<Duration> = "100ns",
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
        /// `true` adds the parts of the latency of each operation to the report: admission, window, wire, remote NIC,
        /// acknowledgement.
        latency_parts: bool = false,
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

table! {
    /// Selection of the events that `rnic sim --trace FILE` writes. Without a trace these keys have no effect.
    Trace {
        /// Events that begin earlier are left out.
        from: Unit<Duration> = 0,
        /// Events that begin at this time or later are left out.
        until: Option<Unit<Duration>> => "the end",
        /// Names of the hosts and switches whose links are traced; `*` matches any text.
        nodes: String = "*",
        /// Both ends of the queue pairs that are traced, `host-0>host-3`; `*` matches any text.
        queue_pairs: String = "*",
        /// Most events of a trace: with more, it ends, and the run goes on. A packet on a link is two, and an event
        /// takes some 50 bytes.
        events_max: u32 = 5000000,
    }
}
