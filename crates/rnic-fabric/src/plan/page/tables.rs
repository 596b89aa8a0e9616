//! The content of `docs/plans.md`.

use super::Default::{For, Is, Needed, No};
use super::{Default, Key, Section};

/// The plan into which examples are inserted.
pub(super) const BASE: &str = r#"
topology = { kind = "star", hosts = 8 }
links = { rate = "40Gbps", delay = "2us" }
switch = { model = "input-queued", buffer = "240KB" }
transport = { name = "irn" }
workload = { kind = "poisson", load = "70%", size = "8KB", duration = "5ms" }
"#;

const POISSON: &str = r#"workload = { kind = "poisson", load = "70%", duration = "5ms" }"#;
const INCAST: &str = r#"workload = { kind = "incast", senders = 4, bytes = "1MB" }"#;
const CLOSED_LOOP: &str = r#"workload = { kind = "closed-loop", op = "write", message = "64KiB", count = 10 }"#;
const TO_FOUR: &str = "workload = { kind = \"closed-loop\", to = 4, op = \"write\", message = \"64KiB\", count = 10 \
            }";
const COLLECTIVE: &str = r#"workload = { kind = "collective", collective = "all-reduce", bytes = "1MB" }"#;
const LEAF_SPINE: &str = r#"topology = { kind = "leaf-spine", spines = 2, leaves = 2, hosts_per_leaf = 2 }"#;

const fn key(
    name: &'static str,
    kind: &'static str,
    default: Default,
    example: &'static str,
    meaning: &'static str,
) -> Key {
    Key { name, kind, default, example, meaning, with: "" }
}

impl Key {
    const fn with(self, with: &'static str) -> Self {
        Self { with, ..self }
    }
}

pub(super) const WORKLOADS: &[&str] =
    &["poisson", "incast", "permutation", "closed-loop", "open-loop", "collective", "nvme", "trace", "manual"];

type OfKinds = (&'static str, &'static [(&'static str, &'static [&'static str])]);

/// The keys of each kind, for tables whose keys per kind are not listed in the code.
pub(super) const OF_KINDS: &[OfKinds] = &[
    (
        "topology",
        &[
            ("point-to-point", &[]),
            ("star", &["hosts"]),
            ("fat-tree", &["k"]),
            ("leaf-spine", &["spines", "leaves", "hosts_per_leaf"]),
        ],
    ),
    (
        "fault",
        &[
            ("drop", &["probability"]),
            ("duplicate", &["probability"]),
            ("corrupt", &["probability"]),
            ("burst", &["probability", "length", "end", "loss"]),
            ("reorder", &["probability", "delay", "displacement"]),
            ("delay", &["delay", "jitter"]),
            ("down", &["from", "until"]),
            ("slow", &["rate", "from", "until"]),
        ],
    ),
];

pub(super) const TABLES: &[Section] = &[
    TOP, TOPOLOGY, LINKS, FABRIC, SWITCH, PFC, ECN, CSIG, TRANSPORT, NIC, SLOW_HOST, WORKLOAD, BACKGROUND, DRIVE,
    FAULT, RUN,
];

const TOP: Section = Section {
    path: "",
    head: "Keys that stand in no table; TOML wants them first.",
    with: "",
    keys: &[
        key("name", "text", Is(r#""""#), r#""my run""#, "stands in the report"),
        key("mtu", "number", Is("1024"), "4096", "payload bytes of a full packet: a multiple of 4, 256 to 8192"),
        key("reads", "number", Is("16"), "64", "Reads and atomics in flight on a queue pair, as adapters offer"),
        key(
            "payload",
            "words",
            Is(r#""none""#),
            r#""checked""#,
            "`none`: headers only; `checked`: real bytes, verified",
        ),
        key(
            "wire",
            "words",
            Is(r#""direct""#),
            r#""encoded""#,
            "`encoded`: every packet becomes bytes and is decoded; the run stays the same, to its trace \
            hash",
        ),
    ],
};

const TOPOLOGY: Section = Section {
    path: "topology",
    head: "The network: hosts, switches, and what is linked with what.",
    with: "",
    keys: &[
        key("kind", "words", Needed, r#""star""#, "`point-to-point`, `star`, `fat-tree`, `leaf-spine`"),
        key("hosts", "number", For("needed by a star"), "8", "hosts around one switch"),
        key("k", "number", For("needed by a fat-tree"), "6", "ports of each switch, an even number: k^3/4 hosts")
            .with(r#"topology = { kind = "fat-tree", k = 4 }"#),
        key("spines", "number", For("needed by a leaf-spine"), "4", "switches of the upper layer").with(LEAF_SPINE),
        key(
            "leaves",
            "number",
            For("needed by a leaf-spine"),
            "4",
            "switches of the lower layer, each linked to every spine",
        )
        .with(LEAF_SPINE),
        key("hosts_per_leaf", "number", For("needed by a leaf-spine"), "10", "hosts of each leaf").with(LEAF_SPINE),
    ],
};

const LINKS: Section = Section {
    path: "links",
    head: "All links, or, where switches are linked with switches, those of hosts.",
    with: "",
    keys: &[
        key("rate", "rate", Needed, r#""100Gbps""#, "of each direction; 1Mbps to 10Tbps"),
        key("delay", "duration", Needed, r#""1us""#, "propagation; 1 ns to 1 s"),
    ],
};

const FABRIC: Section = Section {
    path: "links.fabric",
    head: "Links between switches, where they differ.",
    with: LEAF_SPINE,
    keys: &[
        key("rate", "rate", No("`links.rate`"), r#""400Gbps""#, "of each direction"),
        key("delay", "duration", No("`links.delay`"), r#""5us""#, "propagation"),
        key(
            "spines",
            "list of rates",
            No("all the same"),
            r#"["40Gbps", "10Gbps"]"#,
            "leaf-spine: of the links of each spine, at most `rate`, by which loads, timeouts and ideal times go",
        ),
    ],
};

const SWITCH: Section = Section {
    path: "switch",
    head: "Every switch; needed where there are any.",
    with: "",
    keys: &[
        key(
            "model",
            "words",
            Needed,
            r#""shared-buffer""#,
            "`input-queued`: each input port has a buffer; `shared-buffer`: all ports have one together",
        ),
        key("buffer", "size", Needed, r#""8MB""#, "of each input port, or of the switch when it is shared"),
        key(
            "multipath",
            "words",
            Is(r#""ecmp""#),
            r#""wcmp""#,
            "how flows are spread over links up: `ecmp`, over all alike; `wcmp`, in proportion to their rates",
        ),
        key("alpha", "fraction", Is(r#""1""#), r#""1/2""#, "shared buffer: a queue may take this times what is free")
            .with(r#"switch = { model = "shared-buffer", buffer = "8MB" }"#),
    ],
};

const PFC: Section = Section {
    path: "switch.pfc",
    head: "Pauses. Without this table there are none.",
    with: "",
    keys: &[
        key("enabled", "true or false", Is("true"), "false", "turns pauses off without taking the table out")
            .with(r#"switch = { model = "input-queued", buffer = "240KB", pfc = { threshold = "200KB" } }"#),
        key(
            "threshold",
            "size, or `auto`",
            Is(r#""auto""#),
            r#""200KB""#,
            "input-queued: pause above; `auto` leaves space for what is in flight then",
        )
        .with(r#"switch = { model = "input-queued", buffer = "240KB", pfc = {} }"#),
        key(
            "headroom",
            "size, or `auto`",
            Is(r#""auto""#),
            r#""60KB""#,
            "shared buffer: reserved for each port, for what is in flight when it pauses",
        )
        .with(r#"switch = { model = "shared-buffer", buffer = "8MB", pfc = {} }"#),
    ],
};

const ECN: Section = Section {
    path: "switch.ecn",
    head: "Marks for congestion control. Without this table there are none.",
    with: r#"
[switch]
model = "input-queued"
buffer = "240KB"
ecn = { kmin = "5KB", kmax = "200KB", pmax = "1%" }
"#,
    keys: &[
        key("enabled", "true or false", Is("true"), "false", "turns marks off without taking the table out"),
        key("kmin", "size", Needed, r#""5KB""#, "nothing is marked below"),
        key("kmax", "size", Needed, r#""200KB""#, "everything is marked above"),
        key("pmax", "share", Needed, r#""1%""#, "and in between up to this share"),
        key(
            "depth",
            "words",
            Is(r#""output""#),
            r#""virtual-queue""#,
            "of what: `output`, all that waits for it; `virtual-queue`, what came in at the same port of \
            that (input-queued alone); `input`, what the port's buffer holds",
        ),
    ],
};

const CSIG: Section = Section {
    path: "switch.csig",
    head: "What switches write into packets that wait: how long the most congested hop of the path delays them (CSIG, \
            draft-ravi-ippm-csig), in a tag of 4 bytes in every frame of `falcon`. Without this table there are no \
            tags, and a controller that goes by them (`bottleneck`) is refused.",
    with: r#"
[switch]
model = "shared-buffer"
buffer = "8MB"
csig = {}
"#,
    keys: &[key("enabled", "true or false", Is("true"), "false", "turns them off without taking the table out")],
};

const TRANSPORT: Section = Section {
    path: "transport",
    head: "What queue pairs speak: a table, or the name alone (`transport = \"irn\"`). Every further \
            key is an option of the transport; `rnic list` has them all, with their defaults.",
    with: "",
    keys: &[
        key("name", "words", Needed, r#""falcon""#, "one of those of `rnic list`"),
        key(
            "recovery",
            "words",
            No("the transport's own"),
            r#""go-back-n""#,
            "another policy for lost packets; likewise `control`, `paths`, `schedule`",
        ),
        key(
            "cap_packets",
            "number, or `bdp`",
            No("the transport's own"),
            r#""bdp""#,
            "packets of a queue pair in flight, where the transport has such a cap; `bdp`: what fills the \
            longest path of this topology",
        ),
        key(
            "rto_high",
            "duration, or `auto`",
            No("the transport's own"),
            r#""auto""#,
            "IRN's timeout; `auto`: the longest path and one full buffer (IRN 4.1); likewise `rto` of \
            others",
        ),
    ],
};

const NIC: Section = Section {
    path: "nic",
    head: "What the memory of NICs and their bus cost. Without this table, nothing. With Falcon the \
            keys for caches, bus and cycles count; `wqe_*` and `receive_buffer` are refused.",
    with: "nic = {}",
    keys: &[
        key("enabled", "true or false", Is("true"), "false", "turns the model off without taking the table out"),
        key("qpc_cache", "size", No("all contexts fit"), r#""1.4MB""#, "for contexts of queue pairs; or `qpc_entries`"),
        key("qpc_entries", "number", No("all contexts fit"), "256", "the same, as a number of contexts"),
        key(
            "second_entries",
            "number",
            For("none; needed with `second_latency`"),
            "16384",
            "contexts in a second level on the NIC, behind the first",
        )
        .with(r#"nic = { qpc_entries = 256, second_latency = "60ns" }"#),
        key("second_latency", "duration", For("needed with `second_entries`"), r#""60ns""#, "of a read there")
            .with("nic = { qpc_entries = 256, second_entries = 16384 }"),
        key("bus_latency", "duration", Is(r#""1.2us""#), r#""600ns""#, "of a read over the bus to the host"),
        key("bus_rate", "rate", Is(r#""126030769230bps""#), r#""252Gbps""#, "of the bus, each way"),
        key("bus_reads", "number", Is("256"), "64", "reads over the bus in flight"),
        key(
            "wqe_fetch",
            "words",
            Is(r#""on-demand""#),
            r#""ahead""#,
            "`on-demand`: work requests come in batches when one is needed; `ahead`: they are there",
        ),
        key("wqe_batch", "number", Is("8"), "16", "work requests of a batch"),
        key(
            "bitmap_latency",
            "duration",
            No("`bus_latency`"),
            r#""1.4us""#,
            "of a question where bitmaps are in the host's memory (`srnic`)",
        )
        .with(r#"transport = { name = "srnic" }"#),
        key(
            "cycle",
            "duration",
            No("5.525 ns; with Falcon 0"),
            r#""5.525ns""#,
            "the pipeline takes a packet so often, sent and received ones together; with Falcon those \
            that leave",
        ),
        key("qp_cycle", "duration", No("0"), r#""50ns""#, "Falcon: packets of one queue pair leave no more often")
            .with(r#"transport = { name = "falcon" }"#),
        key(
            "receive_buffer",
            "size",
            Is(r#""600KB""#),
            r#""300KB""#,
            "waits for the pipeline at most; with PFC the NIC pauses its neighbour before",
        ),
    ],
};

const SLOW_HOST: Section = Section {
    path: "slow_host",
    head: "Hosts whose memory takes what arrives at a lower rate. Needs Falcon or `[nic]`. Without this \
            table no host is slow.",
    with: r#"transport = { name = "falcon" }
slow_host = { rate = "10Gbps" }"#,
    keys: &[
        key("hosts", "pattern", Is(r#""*""#), r#""host-1""#, "which; `*` stands for anything"),
        key("rate", "rate", Needed, r#""10Gbps""#, "of received payload into memory"),
        key("from", "duration", Is("0"), r#""1ms""#, "slow from then on"),
        key("until", "duration", No("the end"), r#""2ms""#, "and until then"),
    ],
};

const WORKLOAD: Section = Section {
    path: "workload",
    head: "Who sends what to whom.",
    with: "",
    keys: &[
        key("kind", "words", Needed, r#""poisson""#, "one of those below"),
        key(
            "load",
            "share",
            Needed,
            r#""70%""#,
            "poisson: of the links of hosts; open-loop: what all queue pairs offer together, of one \
            host's link",
        ),
        key(
            "sizes",
            "text",
            For("needed, or `size`"),
            r#""web-search""#,
            "of flows: `irn-heavy-tail`, `web-search`, `data-mining`, `uniform`; a form, \
            `uniform:500KB-5MB` or `fixed:8KB`; or a file of lines SIZE SHARE",
        )
        .with(POISSON),
        key("size", "size", For("needed, or `sizes`"), r#""8KB""#, "of every flow"),
        key(
            "duration",
            "duration",
            Needed,
            r#""5ms""#,
            "flows and messages are posted until then (closed-loop: or `count` of them)",
        ),
        key("senders", "number", Needed, "4", "hosts that send to one").with(INCAST),
        key(
            "bytes",
            "size",
            Needed,
            r#""1MB""#,
            "incast: of a request, all senders together; permutation: of each host; collective: of each \
            rank's buffer",
        )
        .with(INCAST),
        key("from", "number", Is("0"), "2", "the first host that posts").with(CLOSED_LOOP),
        key(
            "to",
            "number",
            No("incast: 0; others: 1"),
            "3",
            "incast: the receiver; others: the first host at the other end",
        )
        .with(CLOSED_LOOP),
        key(
            "jitter",
            "duration",
            No("incast: 5 us; closed-loop: 0"),
            r#""10us""#,
            "flows begin at chance times within it",
        )
        .with(INCAST),
        key("repeats", "number", Is("1"), "10", "requests, one after the other").with(INCAST),
        key("interval", "duration", Is("0"), r#""1ms""#, "from the start of a request to the next").with(INCAST),
        key("start", "duration", Is("0"), r#""100us""#, "of the first request").with(INCAST),
        key(
            "op",
            "words",
            For("needed; permutation, collective: `write-imm`"),
            r#""read""#,
            "`write`, `write-imm`, `send`, `read`, `fetch-add`, `compare-swap`; closed-loop also \
            `read-write`: every other queue pair of a client reads, the others write; nvme: `read`, \
            `write`",
        )
        .with(CLOSED_LOOP),
        key(
            "message",
            "size",
            For("needed; permutation: all in one; atomics: 8"),
            r#""64KiB""#,
            "bytes of a message, or of a command",
        )
        .with(CLOSED_LOOP),
        key("depth", "number", Is("1"), "16", "messages of a queue pair, or commands of a host, in flight")
            .with(CLOSED_LOOP),
        key(
            "queue_pairs",
            "number",
            Is("1"),
            "4",
            "of all clients: number i is host `from + i % clients`'s, and its server `to + i / clients % \
            servers`",
        )
        .with(CLOSED_LOOP),
        key("connections", "number", Is("1"), "4", "that a host's bytes are divided among")
            .with(r#"workload = { kind = "permutation", bytes = "1MB" }"#),
        key("clients", "number", Is("1"), "2", "hosts that post, from `from` on").with(TO_FOUR),
        key("servers", "number", Is("1"), "2", "hosts at the other end, from `to` on").with(CLOSED_LOOP),
        key(
            "count",
            "number",
            For("needed by a closed loop without `duration`; collective: 1"),
            "10",
            "messages of each queue pair; collectives, one after the other",
        )
        .with(CLOSED_LOOP),
        key(
            "collective",
            "words",
            Needed,
            r#""all-to-all""#,
            "`all-reduce`, `all-gather`, `reduce-scatter` around a ring, or `all-to-all`",
        )
        .with(COLLECTIVE),
        key("ranks", "number", No("all hosts"), "4", "hosts that take part, from host 0 on").with(COLLECTIVE),
        key(
            "shuffle",
            "true or false",
            Is("false"),
            "true",
            "neighbours in the ring are not neighbours in the topology",
        )
        .with(COLLECTIVE),
        key("file", "text", Needed, r#""flows.csv""#, "of lines start,src,dst,bytes; a path from where the plan lies")
            .with(r#"workload = { kind = "trace" }"#),
    ],
};

const BACKGROUND: Section = Section {
    path: "workload.background",
    head: "Poisson traffic between all hosts beside the requests of an incast.",
    with: r#"
[workload]
kind = "incast"
senders = 4
bytes = "1MB"
background = { load = "50%", sizes = "irn-heavy-tail", duration = "5ms" }
"#,
    keys: &[
        key("load", "share", Needed, r#""50%""#, "of the links of hosts"),
        key("sizes", "text", Needed, r#""irn-heavy-tail""#, "as `workload.sizes`"),
        key(
            "duration",
            "duration",
            For("until the last request's interval is over; needed where there is no interval"),
            r#""5ms""#,
            "from the beginning of the run",
        ),
    ],
};

const DRIVE: Section = Section {
    path: "workload.drive",
    head: r#"The drive that hosts use, and needed, with `kind = "nvme"`."#,
    with: r#"
mtu = 4096
transport = { name = "falcon", ordering = "unordered" }
[workload]
kind = "nvme"
op = "read"
message = "16KiB"
duration = "1ms"
[workload.drive]
read_rate = "26Gbps"
read_latency = "60us"
write_rate = "12Gbps"
write_latency = "15us"
queue_depth = 128
"#,
    keys: &[
        key("read_rate", "rate", Needed, r#""26Gbps""#, "of reads"),
        key("read_latency", "duration", Needed, r#""60us""#, "of each"),
        key("write_rate", "rate", Needed, r#""12Gbps""#, "of writes"),
        key("write_latency", "duration", Needed, r#""15us""#, "of each"),
        key("queue_depth", "number", Needed, "128", "units of 4096 bytes, or less, that it serves at once"),
        key(
            "local",
            "true or false",
            Is("false"),
            "true",
            "its own host uses it, by the same units, without a network",
        ),
        key(
            "reads",
            "words",
            Is(r#""push""#),
            r#""pull""#,
            "what a Read is: `push`, a Push there and a Push back (the specification), or `pull`, a Pull (the paper)",
        ),
    ],
};

const FAULT: Section = Section {
    path: "fault",
    head: "What goes wrong, any number of them, in the order in which they act. Directions of links are \
            called `host-3>edge-1`, `edge-1>agg-0`, `host-0>switch-0`, `host-0>host-1`, \
            `leaf-2>spine-0`.",
    with: r#"fault = [{ kind = "drop", probability = "1%" }]"#,
    keys: &[
        key("kind", "words", Needed, r#""drop""#, "one of those below"),
        key(
            "links",
            "pattern",
            Is(r#""*""#),
            r#""host-*>*""#,
            "which directions of links; several with commas between, `*` stands for anything",
        ),
        key("packets", "words", Is(r#""all""#), r#""data""#, "`data`, `acks`, `all`"),
        key("probability", "share", Needed, r#""1%""#, "of each packet; burst: that one begins"),
        key("length", "number", For("burst: needed, or `end`"), "10", "packets of a burst")
            .with(r#"fault = [{ kind = "burst", probability = "1%" }]"#),
        key("end", "share", For("burst: needed, or `length`"), r#""10%""#, "that a burst ends, at each packet")
            .with(r#"fault = [{ kind = "burst", probability = "1%" }]"#),
        key("loss", "share", Is(r#""100%""#), r#""50%""#, "inside a burst, with `end`")
            .with(r#"fault = [{ kind = "burst", probability = "1%", end = "10%" }]"#),
        key(
            "delay",
            "duration",
            For("reorder: needed, or `displacement`; delay: 0"),
            r#""20us""#,
            "by which packets are late",
        )
        .with(r#"fault = [{ kind = "reorder", probability = "1%" }]"#),
        key("displacement", "number", For("reorder: needed, or `delay`"), "3", "the same, in full packets")
            .with(r#"fault = [{ kind = "reorder", probability = "1%" }]"#),
        key("jitter", "duration", No("0"), r#""5us""#, "by chance, up to so much more")
            .with(r#"fault = [{ kind = "delay", delay = "1us" }]"#),
        key("rate", "rate", Needed, r#""1Gbps""#, "that is left").with(r#"fault = [{ kind = "slow" }]"#),
        key("from", "duration", Is("0"), r#""1ms""#, "it begins then")
            .with(r#"fault = [{ kind = "down", until = "2ms" }]"#),
        key("until", "duration", For("down: needed; slow: the end"), r#""2ms""#, "and ends then")
            .with(r#"fault = [{ kind = "down" }]"#),
    ],
};

const RUN: Section = Section {
    path: "run",
    head: "How long a run may take, and what is measured of it.",
    with: "",
    keys: &[
        key("limit", "duration", Is(r#""10s""#), r#""1s""#, "simulated time after which it is cut off"),
        key(
            "stall_after",
            "duration",
            Is(r#""50ms""#),
            r#""1s""#,
            "a run without any useful packet for this time has failed",
        ),
        key("warmup", "duration", Is("0"), r#""1ms""#, "flows that start before are left out of averages"),
        key(
            "cooldown",
            "duration",
            Is("0"),
            r#""1ms""#,
            "of a workload with a `duration`: messages (of `poisson`: flows) of this last part are left out, too",
        )
        .with(
            "workload = { kind = \"closed-loop\", op = \"write\", message = \"64KiB\", duration = \"5ms\" \
            }",
        ),
        key(
            "slice",
            "duration",
            No("none"),
            r#""1ms""#,
            "the report has the payload that arrived at each host and its queue, one row a slice",
        ),
    ],
};
