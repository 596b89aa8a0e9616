//! Keys of the network: topology, links, switches, faults.

use rnic_base::{BitRate, Bytes, Duration, Probability};

use crate::plan::quantity::{Fraction, OrAuto, Unit};
use crate::plan::schema::{Absent, Doc, Key, Keyed, Named, Table, Typed, Word, default_of, table, words};

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
        /// Three tiers: pods of leaves and spines, which core switches join; ECMP on the hash of the flow.
        Clos = "clos",
        /// Groups of switches that are all linked to each other, with links between groups; minimal routes. With PFC,
        /// its buffers may wait for each other in a circle.
        Dragonfly = "dragonfly",
        /// Servers with several NICs: NIC `i` of each server at the switch of rail `i`, and spines that join the rails.
        /// NIC `i` of server `s` is host `s * nics + i`.
        RailOptimised = "rail-optimised",
        /// Any graph of hosts and switches from a file, with a rate and a delay for each link
        /// ([Own topologies](topologies.md)); ECMP over all shortest paths.
        File = "file",
    }
}

words! {
    /// The formats of a topology's file.
    TopologyFormat {
        /// By the first word of the file.
        Auto = "auto",
        /// Lines `host NAME`, `switch NAME` and `link A B RATE DELAY`.
        Graph = "graph",
        /// HPCC's `topology.txt`.
        Hpcc = "hpcc",
        /// htsim's `.topo`.
        Htsim = "htsim",
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
        /// Switches of the upper layer; of a `clos`: spines of each pod.
        spines: Option<u32> [LeafSpine Clos RailOptimised] => "needed by these kinds",
        /// Switches of the lower layer, each linked to every spine; of a `clos`: leaves of each pod.
        leaves: Option<u32> [LeafSpine Clos] => "needed by these kinds",
        /// Hosts of each leaf; at most 65536 in total.
        hosts_per_leaf: Option<u32> [LeafSpine Clos] => "needed by these kinds",
        /// Pods.
        pods: Option<u32> [Clos] => "needed by a clos",
        /// Core switches that each spine is linked to, each of them to one spine of every pod.
        cores: Option<u32> [Clos] => "needed by a clos",
        /// Rate of a leaf's hosts together, divided by that of its links to spines: sets the rate of these, in place of
        /// `links.fabric.rate`.
        oversubscription: Option<Unit<Fraction>> [Clos] => "follows from the rates",
        /// Groups; at most `switches_per_group * global_links + 1`.
        groups: Option<u32> [Dragonfly] => "needed by a dragonfly",
        /// Switches of each group.
        switches_per_group: Option<u32> [Dragonfly] => "needed by a dragonfly",
        /// Hosts of each switch.
        hosts_per_switch: Option<u32> [Dragonfly] => "needed by a dragonfly",
        /// Links of each switch to other groups.
        global_links: Option<u32> [Dragonfly] => "needed by a dragonfly",
        /// Servers.
        servers: Option<u32> [RailOptimised] => "needed by rail-optimised",
        /// NICs of each server, and rails.
        nics: Option<u32> [RailOptimised] => "needed by rail-optimised",
        /// File with the graph, relative to the plan; at most 16 MiB, 65536 hosts, 4096 switches and 262144 links.
        file: Option<String> [File] => "needed by a file",
        /// Format of the file.
        format: TopologyFormat [File] = "auto",
    }
}

table! {
    /// All links, or, in topologies with links between switches, those of hosts.
    Links {
        /// Rate of each direction; 1Mbps to 10Tbps.
        rate: Option<Unit<BitRate>> => "needed, except where a file gives it for every link",
        /// Propagation delay; 1 ns to 1 s.
        delay: Option<Unit<Duration>> => "needed, except where a file gives it for every link",
        /// Links between switches.
        fabric: Option<LinkClass> => "as other links",
        /// Links between spines and cores of a `clos`, and between groups of a `dragonfly`.
        core: Option<CoreClass> => "as other links between switches",
    }
}

table! {
    /// Links between pods or groups, where they differ from those inside.
    CoreClass {
        /// Rate of each direction.
        rate: Option<Unit<BitRate>> => "`links.fabric.rate`",
        /// Propagation delay.
        delay: Option<Unit<Duration>> => "`links.fabric.delay`",
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

table! {
    /// Priority classes of packets: in NICs and switches each class has queues of its own, and PFC pauses a class, not
    /// the link (802.1Qbb). Up to 8, which groups of traffic name. The buffers of switches are divided equally among
    /// the classes; `switch.pfc.threshold` and `headroom` refer to the part of one class. Not with `[nic]`, `[scr]`,
    /// `switch.trim`, `switch.csig` and transports that pull.
    Class {
        /// Classes of a higher priority are always served first; 0 to 7.
        priority: u32 = 0,
        /// Share of what is left, in bytes, among the classes of the same priority (deficit round robin); 1 to 1000.
        weight: u32 = 1,
        /// Class of the acknowledgements of this class. Only for transports that acknowledge every packet at once, such
        /// as `irn`: for those that acknowledge on request, and Falcon, it is always the same.
        acks: Option<String> => "this class",
        /// `false`: switches drop packets of the class when the buffer is full, although they have `switch.pfc`.
        pfc: Option<bool> => "`true` where switches have `switch.pfc`",
        /// Depth below which no packet of the class is marked.
        kmin: Option<Unit<Bytes>> => "`switch.ecn.kmin`",
        /// Depth above which every packet of the class is marked.
        kmax: Option<Unit<Bytes>> => "`switch.ecn.kmax`",
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
        /// Packets with data arrive with a congestion mark (ECN), as if a switch had marked them.
        Mark = "mark",
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
        probability: Option<Unit<Probability>> [Drop Burst Reorder Duplicate Corrupt Mark] => "needed",
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
