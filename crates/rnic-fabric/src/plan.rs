//! A plan: everything about a run but its seed.
//!
//! Plans are TOML. Quantities are written with their unit in quotes (`"100Gbps"`, `"2us"`, `"240KB"`, `"1%"`); unknown
//! keys, wrong units and impossible combinations are refused with one line that says what and where. Only what a
//! network has no place for (`[switch]` without switches, `links.fabric` without links between them) may stand in a
//! plan all the same, so that another topology can be tried with `--set`.
//!
//! ```toml
//! name = "example"               # any text; in the report
//! mtu = 1024                     # payload bytes of a full packet (1024)
//! reads = 16                     # Reads and atomics of a queue pair under way at once, as adapters offer (16)
//! payload = "none"               # "none": headers only; "checked": real bytes, verified (none)
//! wire = "direct"                # "encoded": every packet becomes bytes and is decoded (direct)
//!
//! [topology]
//! kind = "fat-tree"              # point-to-point | star | fat-tree | leaf-spine
//! k = 6                          # fat-tree: ports of a switch; k^3/4 hosts. star: `hosts = 8`
//!                                # leaf-spine: `spines = 4`, `leaves = 32`, `hosts_per_leaf = 10`
//!
//! [links]
//! rate = "40Gbps"                # of every link, each direction
//! delay = "2us"                  # propagation; above zero
//! fabric = { rate = "100Gbps" }  # links between switches, where they differ: rate, delay; of a leaf-spine `spines`,
//!                                # such as ["100Gbps", "25Gbps"]: each spine's rate, at most `rate`
//!
//! [switch]                       # needed where there are switches
//! model = "input-queued"         # input-queued | shared-buffer
//! buffer = "240KB"               # input-queued: of each input port; shared-buffer: of the switch
//! multipath = "wcmp"             # among links up: ecmp, all alike (the default); wcmp, by their rates
//! alpha = "1/2"                  # shared-buffer: a queue may take this times the free buffer (1)
//!
//! [switch.pfc]                   # without this table, or with enabled = false: no pauses
//! enabled = true
//! threshold = "auto"             # input-queued: pause above; auto leaves room for what is under way
//! headroom = "auto"              # shared-buffer: set aside for each port; auto as above
//!
//! [switch.ecn]                   # without it: no marks
//! enabled = true
//! kmin = "5KB"                   # nothing is marked below
//! kmax = "200KB"                 # everything is marked above
//! pmax = "1%"                    # and in between up to this share
//! depth = "output"               # of what: output, all that waits for it (the default); virtual-queue, what came in
//!                                # at the same port of that (input-queued alone); input, what the port's buffer holds
//!
//! [switch.csig]                  # without it: no tags. With it, packets of falcon that wait say how long (CSIG)
//! enabled = true
//!
//! [transport]
//! name = "irn"                   # see `rnic list`; every other key is an option of the transport
//! cap_packets = "bdp"            # "bdp": what fills the longest path, for this topology
//! rto_high = "auto"              # "auto", for rto_high and rto: longest path plus one full buffer (IRN 4.1); timeouts
//!                                # that are not given fit the plan: none under PFC where nothing can be lost (IRN
//!                                # 4.1), "auto" where the transport's own are shorter than a round trip
//!
//! [nic]                          # without it, or with enabled = false: a NIC's memory costs nothing. With Falcon the
//!                                # cache, its second level, what is behind the bus (the NIC's own memory, there) and
//!                                # the two cycles count; the other keys are refused
//! enabled = true
//! qpc_cache = "1.4MB"            # for contexts of queue pairs; or qpc_entries = 256; without either: all fit
//! second_entries = 16_384        # contexts in a second level on the NIC, behind the first (none); and what it takes
//! second_latency = "60ns"        # to read one there
//! bus_latency = "1.2us"          # of a read; and rate each way (126.03Gbps), reads under way (256):
//! bus_rate = "126.03Gbps"
//! bus_reads = 256
//! wqe_fetch = "on-demand"        # on-demand: in batches of wqe_batch (8), when one is needed; or ahead (on-demand)
//! bitmap_latency = "1.4us"       # where bitmaps are in the host's memory (srnic): of a question (bus_latency)
//! cycle = "5.525ns"              # the pipeline takes a packet so often, sent and received ones together; with Falcon
//!                                # those that leave (0)
//! qp_cycle = "50ns"              # with Falcon: packets of one queue pair leave no more often (0)
//! receive_buffer = "600KB"       # waits for the pipeline at most; with PFC the NIC pauses its neighbour before
//!
//! [slow_host]                    # without it: memory takes what arrives at once, or as fast as nic.bus_rate
//! hosts = "host-1"               # which; * stands for anything ("*")
//! rate = "100Gbps"               # of received payload into memory. Falcon, or with [nic]
//! from = "1ms"                   # (0)
//! until = "2ms"                  # (the end)
//!
//! [workload]
//! kind = "poisson"               # see below
//! load = "70%"
//! sizes = "irn-heavy-tail"
//! duration = "5ms"
//!
//! [[fault]]                      # any number, in the order in which they act
//! kind = "drop"                  # see below
//! links = "host-*>*"             # directions, by name; * stands for anything ("*")
//! packets = "data"               # data | acks | all (all)
//! probability = "1%"
//!
//! [run]
//! limit = "10s"                  # simulated time after which the run is cut off (10s; of a workload that begins
//!                                # something later, 10s more)
//! stall_after = "50ms"           # without any useful packet for so long the run has failed (50ms, and three of the
//!                                # transport's timeouts at least)
//! warmup = "0us"                 # flows that start before are left out of the averages (0)
//! cooldown = "0us"               # of a workload with a duration: messages of its last so long are left out, too; of
//!                                # poisson, flows (0)
//! slice = "1ms"                  # the report has goodput and queues of each host, one row per slice (none)
//! ```
//!
//! | workload | keys (default) |
//! |---|---|
//! | `poisson` | `load`; `sizes`, or `size`; `duration` |
//! | `incast` | `senders`, `bytes` in all, `to` (0), `jitter` (5us), `repeats` (1), `interval`, `start`; `background` |
//! | `permutation` | `bytes` of each host, `connections` (1), `op` (write-imm), `message` (all in one), `depth` (1) |
//! | `closed-loop` | `op`, `message`, `depth` (1), `count` or `duration`, `jitter` (0), and which hosts, as below |
//! | `open-loop` | `op`, `message`, `depth` (1), `load`, `duration`, and which hosts, as below |
//! | `collective` | `collective`, `bytes`, `ranks` (all), `count` (1), `connections` (1), `shuffle` (no), `op` |
//! | `nvme` | `op`, `message`, `depth` (1), `duration`, `from` (0), `clients` (1), `to` (1), `drive` |
//! | `trace` | `file` of lines `start,src,dst,bytes` |
//! | `manual` | none: the caller posts work |
//!
//! `sizes` is the name of a distribution that comes along (`irn-heavy-tail`, `web-search`, `data-mining`, `uniform`),
//! one of the forms `uniform:500KB-5MB` and `fixed:8KB`, or a file. A table
//! `background = { load = "50%", sizes = "irn-heavy-tail" }` puts Poisson traffic between all hosts beside the requests
//! of an incast, from the beginning of the run until the last request's interval is over, or for its `duration`. The
//! report keeps the two apart: `rct_us` has the completion times of requests, `background` those of the other flows.
//!
//! Operations are `write`, `write-imm`, `send`, `read`, `fetch-add`, `compare-swap`; a closed loop also has
//! `read-write`: every other queue pair of a client reads, the others write. Both loops have so many `queue_pairs` (1)
//! between `clients` (1), hosts `from` (0) and after it, and `servers` (1), hosts `to` (1) and after it: queue pair `i`
//! is host `from + i % clients`'s, and its server `to + i / clients % servers`. In a closed loop all begin together, or
//! at chance times within its `jitter`. In an open loop messages come at random, whether those before them are done or
//! not, until `duration` is over; `load` is what all queue pairs offer together, of the rate of one host's link.
//!
//! A `collective` is an `all-reduce`, `all-gather` or `reduce-scatter` around a ring, or an `all-to-all`, of buffers of
//! `bytes` at each of the first `ranks` hosts, `count` of them one after the other: a rank sends the message of a step
//! when those of the step before have come, divided among its `connections` to each peer. Neighbours in the ring are
//! neighbours in the topology, unless they `shuffle`. `rct_us` has the time of each, until the last rank is done, but
//! not of those that began in the warm-up. `op` is `write-imm`, or `send`. Flows are the connections, from the first
//! collective to the last: their slowdown says little.
//!
//! With `nvme`, hosts read or write a drive of host `to` over Falcon (packets of 4096 bytes or more),
//! `depth` commands of `message` bytes under way at once. `drive = { read_rate = "26Gbps", read_latency = "60us",
//! write_rate = "12Gbps", write_latency = "15us", queue_depth = 128 }` is what it can; with `local = true` there, its
//! own host uses it instead, without a network.
//!
//! | fault | keys |
//! |---|---|
//! | `drop`, `duplicate`, `corrupt` | `probability` |
//! | `burst` | `probability` that one begins; `length` in packets, or `end`: a probability, `loss` inside (100%) |
//! | `reorder` | `probability`; `delay`, or `displacement` in full packets |
//! | `delay` | `delay` (0), `jitter` (0) |
//! | `down` | `from`, `until` |
//! | `slow` | `rate` that is left, `from` (0), `until` (the end) |
//!
//! Directions are called `host-3>edge-1`, `edge-1>agg-0`, `host-0>switch-0`, `host-0>host-1`, `leaf-2>spine-0`. One of
//! four spines is cut by `links = "leaf-*>spine-1, spine-1>leaf-*"`; switches go on to choose it.

mod collective;
mod derived;
mod error;
mod faults;
mod fitted;
mod nic;
mod nvme;
#[cfg(test)]
mod page;
mod raw;
mod resolve;
mod slow_host;
mod traffic;
mod warnings;
mod workloads;

use rnic_base::{BitRate, Duration, Time};
use rnic_policy::Profile;
use rnic_transports::SelectError;

use crate::fault::FaultPlan;
use crate::switch::SwitchPlan;
use crate::topology::{self, Topology};
use crate::workload::WorkloadPlan;

pub use error::PlanError;
pub use nic::{BusPlan, NicPlan, WorkFetch};
pub use slow_host::SlowHostPlan;

/// Keys of a plan's `[workload]` that mean something for the workload `kind`, beside `kind` itself.
pub fn workload_keys(kind: &str) -> impl Iterator<Item = &'static str> {
    workloads::keys_of(kind)
}

/// What one kind of link is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkPlan {
    /// Bits per second, each direction.
    pub rate: BitRate,
    /// Propagation delay.
    pub delay: Duration,
}

/// Which network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TopologyPlan {
    /// Two hosts and a wire.
    PointToPoint,
    /// So many hosts and a switch.
    Star {
        /// Hosts.
        hosts: u32,
    },
    /// The fat-tree of k-port switches.
    FatTree {
        /// Ports of each switch.
        k: u32,
    },
    /// Two layers of switches.
    LeafSpine {
        /// Switches of the upper layer.
        spines: u32,
        /// Switches of the lower one, each connected to every spine.
        leaves: u32,
        /// Hosts of each leaf.
        hosts_per_leaf: u32,
    },
}

impl TopologyPlan {
    /// The network.
    pub fn build(&self) -> Topology {
        match *self {
            Self::PointToPoint => topology::point_to_point(),
            Self::Star { hosts } => topology::star(hosts),
            Self::FatTree { k } => topology::fat_tree(k),
            Self::LeafSpine { spines, leaves, hosts_per_leaf } => topology::leaf_spine(spines, leaves, hosts_per_leaf),
        }
    }

    /// How many hosts it has.
    pub fn hosts(&self) -> u32 {
        match *self {
            Self::PointToPoint => 2,
            Self::Star { hosts } => hosts,
            Self::FatTree { k } => k * k * k / 4,
            Self::LeafSpine { leaves, hosts_per_leaf, .. } => leaves * hosts_per_leaf,
        }
    }
}

/// How long a run may take, and what is measured of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunPlan {
    /// The run is cut off then.
    pub limit: Time,
    /// The run has failed when nothing useful happens for so long.
    pub stall_after: Duration,
    /// Flows that start before do not count in averages.
    pub warmup: Duration,
    /// Of a workload that ends by the clock: what is posted in the last so long of its duration does not count in
    /// latencies, and the steady goodput ends there. Others have stopped when such messages end, which makes them fast.
    pub cooldown: Duration,
    /// What hosts get is reported by slices of this length.
    pub slice: Option<Duration>,
}

/// A plan that has been checked.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Any text.
    pub name: String,
    /// Payload bytes of a full packet.
    pub mtu: u32,
    /// Reads and atomics of a queue pair under way at once.
    pub reads: u32,
    /// Packets carry real bytes, which are verified.
    pub checked_payload: bool,
    /// Packets travel as encoded bytes.
    pub encoded: bool,
    /// The network.
    pub topology: TopologyPlan,
    /// Links of hosts.
    pub host_links: LinkPlan,
    /// Links between switches.
    pub fabric_links: LinkPlan,
    /// Of a leaf-spine: the rate of the links of each spine, where they differ; at most that of [`Self::fabric_links`],
    /// by which what is expected of the network goes.
    pub spine_rates: Vec<BitRate>,
    /// Every switch.
    pub switch: Option<SwitchPlan>,
    /// The transport of every queue pair.
    pub transport: Profile,
    /// The memory of NICs, where it is modelled.
    pub nic: Option<NicPlan>,
    /// Hosts with slow memory, if any.
    pub slow_host: Option<SlowHostPlan>,
    /// The flows.
    pub workload: WorkloadPlan,
    /// What goes wrong, in order.
    pub faults: Vec<FaultPlan>,
    /// Bounds.
    pub run: RunPlan,
}

/// Gives the text of a file that a plan names, or says why it cannot.
pub type FileReader<'f> = dyn FnMut(&str) -> Result<String, String> + 'f;

impl Plan {
    /// Reads a plan that names no files.
    ///
    /// # Errors
    /// What is wrong with it, in one line.
    pub fn from_toml(text: &str) -> Result<Self, PlanError> {
        Self::from_toml_with(text, &[], &mut |_| Err("this plan was given without its files".to_owned()))
    }

    /// Reads a plan, with some of its keys replaced first: `("transport.name", "roce-gbn")`. Values are TOML, or plain
    /// text where that makes no TOML; a table replaces a table. `files` brings the files that it names.
    ///
    /// # Errors
    /// What is wrong with it, in one line.
    pub fn from_toml_with(
        text: &str,
        overrides: &[(&str, &str)],
        files: &mut FileReader<'_>,
    ) -> Result<Self, PlanError> {
        let raw = resolve::read(text, overrides)?;
        let plan = resolve::resolve(raw, files).map_err(|error| Self::explain(error, overrides))?;
        plan.check()?;
        Ok(plan)
    }

    /// Whoever replaces the name of a transport alone keeps the options of the one before it.
    fn explain(error: PlanError, overrides: &[(&str, &str)]) -> PlanError {
        let mut of_transport = overrides.iter().filter(|(key, _)| key.starts_with("transport.")).map(|(key, _)| *key);
        let is_name_alone = of_transport.next() == Some("transport.name") && of_transport.next().is_none();
        match error {
            PlanError::Transport(source @ SelectError::Option { .. }) if is_name_alone => {
                let what = format!("{source}; transport=NAME replaces the plan's options of `transport` as well");
                PlanError::Value { key: "transport.name", what }
            }
            error => error,
        }
    }

    /// Refuses what cannot be run. Plans that come from [`Plan::from_toml`] have been checked; those that were changed
    /// since are checked again when a simulation is made.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), PlanError> {
        resolve::check(self)
    }
}

#[cfg(test)]
#[path = "plan/tests.rs"]
mod tests;
