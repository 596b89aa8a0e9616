//! A plan: the complete description of a run except its seed.
//!
//! Plans are TOML. Quantities are written with their unit in quotes (`"100Gbps"`, `"2us"`, `"240KB"`, `"1%"`); unknown
//! keys, wrong units and impossible combinations are rejected with one line that contains the error and its position.
//! Only tables that the topology does not use (`[switch]` without switches, `links.fabric` without links between them)
//! are allowed nevertheless, so that another topology can be tried with `--set`.
//!
//! ```toml
//! name = "example"               # any text; in the report
//! mtu = 1024                     # payload bytes of a full packet (1024)
//! reads = 16                     # Reads and atomics in flight on a queue pair, as adapters offer (16)
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
//! `sizes` is the name of a built-in distribution (`irn-heavy-tail`, `web-search`, `data-mining`, `uniform`), one of
//! the forms `uniform:500KB-5MB` and `fixed:8KB`, or a file. A table `background = { load = "50%", sizes =
//! "irn-heavy-tail" }` adds Poisson traffic between all hosts to the requests of an incast, from the start of the run
//! until the last request's interval is over, or for its `duration`. The report lists the two separately: `rct_us`
//! contains the completion times of requests, `background` those of the other flows.
//!
//! Operations are `write`, `write-imm`, `send`, `read`, `fetch-add`, `compare-swap`; a closed loop also has
//! `read-write`: every other queue pair of a client reads, the others write. Both loops have `queue_pairs` (1) queue
//! pairs in total between `clients` (1) hosts, which are `from` (0) and the following ones, and `servers` (1) hosts,
//! which are `to` (1) and the following ones: queue pair `i` belongs to host `from + i % clients`, and its server is
//! `to + i / clients % servers`. In a closed loop all start together, or at random times within its `jitter`. In an
//! open loop messages arrive at random, independently of the completion of earlier ones, until `duration` is over;
//! `load` is the load that all queue pairs offer together, as a share of the rate of one host's link.
//!
//! A `collective` is an `all-reduce`, `all-gather` or `reduce-scatter` around a ring, or an `all-to-all`, of buffers of
//! `bytes` at each of the first `ranks` hosts, `count` of them one after the other: a rank sends the message of a step
//! when it has received those of the step before, divided among its `connections` to each peer. Neighbours in the ring
//! are neighbours in the topology, unless `shuffle` is set. `rct_us` contains the time of each collective, until the
//! last rank is done, except those that started in the warm-up. `op` is `write-imm`, or `send`. Flows are the
//! connections, from the first collective to the last: their slowdown is not meaningful.
//!
//! With `nvme`, hosts read or write a drive of host `to` over Falcon (packets of 4096 bytes or more), with `depth`
//! commands of `message` bytes in flight. `drive = { read_rate = "26Gbps", read_latency = "60us", write_rate =
//! "12Gbps", write_latency = "15us", queue_depth = 128 }` describes the drive; with `local = true` in it, the drive's
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
//! Directions have names such as `host-3>edge-1`, `edge-1>agg-0`, `host-0>switch-0`, `host-0>host-1`, `leaf-2>spine-0`.
//! `links = "leaf-*>spine-1, spine-1>leaf-*"` cuts off one of four spines; switches continue to choose it.

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

/// Returns the keys of a plan's `[workload]` that are valid for the workload `kind`, in addition to `kind` itself.
pub fn workload_keys(kind: &str) -> impl Iterator<Item = &'static str> {
    workloads::keys_of(kind)
}

/// Properties of one class of links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkPlan {
    /// Rate of each direction.
    pub rate: BitRate,
    /// Propagation delay.
    pub delay: Duration,
}

/// The network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TopologyPlan {
    /// Two hosts and one link.
    PointToPoint,
    /// Several hosts and one switch.
    Star {
        /// Number of hosts.
        hosts: u32,
    },
    /// The fat-tree of k-port switches.
    FatTree {
        /// Number of ports of each switch.
        k: u32,
    },
    /// Two layers of switches.
    LeafSpine {
        /// Number of switches of the upper layer.
        spines: u32,
        /// Number of switches of the lower layer, each connected to every spine.
        leaves: u32,
        /// Number of hosts of each leaf.
        hosts_per_leaf: u32,
    },
}

impl TopologyPlan {
    /// Builds the network.
    pub fn build(&self) -> Topology {
        match *self {
            Self::PointToPoint => topology::point_to_point(),
            Self::Star { hosts } => topology::star(hosts),
            Self::FatTree { k } => topology::fat_tree(k),
            Self::LeafSpine { spines, leaves, hosts_per_leaf } => topology::leaf_spine(spines, leaves, hosts_per_leaf),
        }
    }

    /// Returns the number of hosts.
    pub fn hosts(&self) -> u32 {
        match *self {
            Self::PointToPoint => 2,
            Self::Star { hosts } => hosts,
            Self::FatTree { k } => k * k * k / 4,
            Self::LeafSpine { leaves, hosts_per_leaf, .. } => leaves * hosts_per_leaf,
        }
    }
}

/// Time limits of a run, and what is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunPlan {
    /// Simulated time at which the run is cut off.
    pub limit: Time,
    /// The run has failed when no useful packet arrives for this duration.
    pub stall_after: Duration,
    /// Flows that start before this time are excluded from averages.
    pub warmup: Duration,
    /// For workloads that end at a given time: messages posted in the last part of this length are excluded from
    /// latencies, and the steady goodput ends at its start. When such messages complete, other senders have already
    /// stopped, so that they complete faster than in the steady state.
    pub cooldown: Duration,
    /// Length of the time slices for which the report lists the goodput of hosts.
    pub slice: Option<Duration>,
}

/// A plan that has been checked.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Name of the plan, any text, for the report.
    pub name: String,
    /// Payload bytes of a full packet.
    pub mtu: u32,
    /// Largest number of Reads and atomics of a queue pair in flight.
    pub reads: u32,
    /// True when packets carry real bytes, which are verified.
    pub checked_payload: bool,
    /// True when packets are encoded to bytes and decoded at the receiver.
    pub encoded: bool,
    /// The network.
    pub topology: TopologyPlan,
    /// Links of hosts.
    pub host_links: LinkPlan,
    /// Links between switches.
    pub fabric_links: LinkPlan,
    /// For a leaf-spine: the rate of the links of each spine, when they differ; at most that of [`Self::fabric_links`],
    /// from which expected values are computed.
    pub spine_rates: Vec<BitRate>,
    /// The switches, all alike.
    pub switch: Option<SwitchPlan>,
    /// The transport of every queue pair.
    pub transport: Profile,
    /// The NIC memory model, when there is one.
    pub nic: Option<NicPlan>,
    /// Hosts with slow memory, if any.
    pub slow_host: Option<SlowHostPlan>,
    /// The flows.
    pub workload: WorkloadPlan,
    /// The fault rules, in order.
    pub faults: Vec<FaultPlan>,
    /// Limits of the run and measurements.
    pub run: RunPlan,
}

/// Returns the text of a file that a plan names, or the reason why it cannot be read.
pub type FileReader<'f> = dyn FnMut(&str) -> Result<String, String> + 'f;

impl Plan {
    /// Reads a plan that names no files.
    ///
    /// # Errors
    /// A description of the error, in one line.
    pub fn from_toml(text: &str) -> Result<Self, PlanError> {
        Self::from_toml_with(text, &[], &mut |_| Err("this plan was given without its files".to_owned()))
    }

    /// Reads a plan, with some of its keys replaced first: `("transport.name", "roce-gbn")`. Values are parsed as TOML,
    /// or taken as text when they are not valid TOML; a table replaces a table. `files` returns the content of the
    /// files that the plan names.
    ///
    /// # Errors
    /// A description of the error, in one line.
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

    /// Extends the error about a transport option: overriding only the transport's name keeps the options of the plan's
    /// transport, which the new one may not have.
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

    /// Rejects a plan that cannot be run. Plans from [`Plan::from_toml`] have been checked; plans that were changed
    /// afterwards are checked again when a simulation is created.
    ///
    /// # Errors
    /// The first error found.
    pub fn check(&self) -> Result<(), PlanError> {
        resolve::check(self)
    }
}

#[cfg(test)]
#[path = "plan/tests.rs"]
mod tests;
