//! Topologies: conversion from the parsed to the checked plan.

use core::fmt;
use std::sync::{Arc, OnceLock};

use rnic_base::{BitRate, Duration};

use super::quantity::{Fraction, Unit};
use super::raw::{self, Raw, TopologyFormat, TopologyKind};
use super::schema::reject_unused_keys;
use super::{FileReader, LinkPlan, PlanError};
use crate::link::PORTS_MAX;
use crate::route::tables::SwitchGraph;
use crate::topology::file::{self, Defaults, FileFormat};
use crate::topology::{self, Clos, Dragonfly, LinkClass, Rails, Topology, buffer_cycle};

/// Topology of the simulated network.
#[derive(Clone, PartialEq, Eq, Debug)]
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
    /// Three tiers of switches.
    Clos(Clos),
    /// Any other graph, which has been built: a dragonfly, a rail-optimised network, or a graph from a file.
    Graph(GraphPlan),
}

impl TopologyPlan {
    /// Builds the network.
    pub fn build(&self) -> Arc<Topology> {
        Arc::new(match *self {
            Self::PointToPoint => topology::point_to_point(),
            Self::Star { hosts } => topology::star(hosts),
            Self::FatTree { k } => topology::fat_tree(k),
            Self::LeafSpine { spines, leaves, hosts_per_leaf } => topology::leaf_spine(spines, leaves, hosts_per_leaf),
            Self::Clos(shape) => topology::clos(shape),
            Self::Graph(ref graph) => return Arc::clone(&graph.topology),
        })
    }

    /// Returns the number of hosts.
    pub fn hosts(&self) -> u32 {
        match *self {
            Self::PointToPoint => 2,
            Self::Star { hosts } => hosts,
            Self::FatTree { k } => k * k * k / 4,
            Self::LeafSpine { leaves, hosts_per_leaf, .. } => leaves * hosts_per_leaf,
            Self::Clos(Clos { pods, leaves, hosts_per_leaf, .. }) => pods * leaves * hosts_per_leaf,
            Self::Graph(ref graph) => graph.topology.hosts,
        }
    }

    /// Returns rates and delays of the links, by the index of their class; empty when those of the plan apply.
    pub(crate) fn own_links(&self) -> &[LinkPlan] {
        match self {
            Self::Graph(graph) => &graph.topology.own_links,
            _ => &[],
        }
    }

    /// Returns the class of the link of `host`, when hosts may have different links.
    pub(crate) fn host_class(&self, host: u32) -> Option<LinkClass> {
        match self {
            Self::Graph(graph) => graph.topology.tables.as_ref().map(|tables| tables.host_class(host)),
            _ => None,
        }
    }

    /// Returns warnings about the content of a file.
    pub(super) fn notes(&self) -> &[String] {
        match self {
            Self::Graph(graph) => &graph.notes,
            _ => &[],
        }
    }

    /// Returns the names of links of which each waits for the buffer of the next one under PFC, and the last one for
    /// that of the first, if routes have such a circle. Routes of a folded Clos have none.
    pub(super) fn buffer_cycle(&self) -> Option<&str> {
        match self {
            Self::Graph(graph) => graph.buffer_cycle(),
            _ => None,
        }
    }
}

/// A graph with its routes.
#[derive(Clone)]
pub struct GraphPlan {
    topology: Arc<Topology>,
    /// Content of the file that the simulator does not use.
    notes: Vec<String>,
    /// The circle of buffers, if it has been searched.
    cycle: OnceLock<Option<String>>,
}

impl GraphPlan {
    fn new(topology: Topology, notes: Vec<String>) -> Self {
        Self { topology: Arc::new(topology), notes, cycle: OnceLock::new() }
    }

    fn buffer_cycle(&self) -> Option<&str> {
        let topology = &self.topology;
        let cycle = self.cycle.get_or_init(|| {
            let graph = SwitchGraph::new(topology.hosts, topology.switches.len(), &topology.links);
            let links = buffer_cycle(&graph)?;
            let name = |switch: u16| &topology.switches[usize::from(switch)].name;
            let names: Vec<_> = links.iter().map(|(from, to)| format!("{}>{}", name(*from), name(*to))).collect();
            Some(match names.len() {
                0..=CYCLE_SHOWN_MAX => names.join(", "),
                more => format!("{} and {} more", names[..CYCLE_SHOWN_MAX].join(", "), more - CYCLE_SHOWN_MAX),
            })
        });
        cycle.as_deref()
    }
}

impl PartialEq for GraphPlan {
    fn eq(&self, other: &Self) -> bool {
        self.topology == other.topology
    }
}

impl Eq for GraphPlan {}

impl fmt::Debug for GraphPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Topology { hosts, switches, links, host_names, own_links, .. } = &*self.topology;
        let mut graph = f.debug_struct("GraphPlan");
        graph.field("hosts", hosts).field("host_names", host_names).field("own_links", own_links);
        graph.field("switches", switches).field("links", links).field("notes", &self.notes).finish()
    }
}

/// Number of links of a circle that a warning names.
const CYCLE_SHOWN_MAX: usize = 8;

/// Returns the topology of a plan.
pub(super) fn resolve(raw: &Raw, files: &mut FileReader<'_>) -> Result<TopologyPlan, PlanError> {
    let topology = &raw.topology;
    reject_unused_keys(topology, topology.kind, "topology", "topology")?;
    match topology.kind {
        TopologyKind::PointToPoint => Ok(TopologyPlan::PointToPoint),
        TopologyKind::Star => match topology.hosts {
            Some(hosts) if (2..=PORTS_MAX as u32).contains(&hosts) => Ok(TopologyPlan::Star { hosts }),
            _ => Err(PlanError::value("topology.hosts", format!("must be 2 to {PORTS_MAX} for a star"))),
        },
        TopologyKind::FatTree => match topology.k {
            Some(k) if (2..=K_MAX).contains(&k) && k.is_multiple_of(2) => Ok(TopologyPlan::FatTree { k }),
            _ => {
                let what = format!("must be an even number from 2 to {K_MAX} for a fat-tree");
                Err(PlanError::value("topology.k", what))
            }
        },
        TopologyKind::LeafSpine => leaf_spine(topology),
        TopologyKind::Clos => clos(topology),
        TopologyKind::Dragonfly => {
            let shape = Dragonfly {
                groups: number("topology.groups", topology.groups, "a dragonfly")?,
                switches: number("topology.switches_per_group", topology.switches_per_group, "a dragonfly")?,
                hosts_per_switch: number("topology.hosts_per_switch", topology.hosts_per_switch, "a dragonfly")?,
                global_links: number("topology.global_links", topology.global_links, "a dragonfly")?,
            };
            graph("topology.groups", topology::dragonfly(shape))
        }
        TopologyKind::RailOptimised => {
            let shape = Rails {
                servers: number("topology.servers", topology.servers, "rail-optimised")?,
                nics: number("topology.nics", topology.nics, "rail-optimised")?,
                spines: number("topology.spines", topology.spines, "rail-optimised")?,
            };
            graph("topology.servers", topology::rails(shape))
        }
        TopologyKind::File => from_file(raw, files),
    }
}

/// Returns a number of links or switches that ports of one switch allow.
fn number(key: &'static str, given: Option<u32>, kind: &str) -> Result<u32, PlanError> {
    match given {
        Some(number) if (1..=PORTS_MAX as u32 / 2).contains(&number) => Ok(number),
        _ => Err(PlanError::value(key, format!("must be 1 to {} for {kind}", PORTS_MAX / 2))),
    }
}

fn graph(key: &'static str, built: Result<Topology, String>) -> Result<TopologyPlan, PlanError> {
    let topology = built.map_err(|what| PlanError::value(key, format!("results in an invalid network: {what}")))?;
    Ok(TopologyPlan::Graph(GraphPlan::new(topology, Vec::new())))
}

fn leaf_spine(raw: &raw::Topology) -> Result<TopologyPlan, PlanError> {
    let spines = number("topology.spines", raw.spines, "leaf-spine")?;
    let leaves = number("topology.leaves", raw.leaves, "leaf-spine")?;
    let hosts_per_leaf = number("topology.hosts_per_leaf", raw.hosts_per_leaf, "leaf-spine")?;
    let hosts = leaves * hosts_per_leaf;
    if !(2..=CLOS_HOSTS_MAX).contains(&hosts) {
        let what = format!(
            "is out of range: {leaves} leaves with {hosts_per_leaf} hosts each must have 2 to {CLOS_HOSTS_MAX} \
             hosts in total"
        );
        return Err(PlanError::value("topology.hosts_per_leaf", what));
    }
    Ok(TopologyPlan::LeafSpine { spines, leaves, hosts_per_leaf })
}

fn clos(raw: &raw::Topology) -> Result<TopologyPlan, PlanError> {
    let shape = Clos {
        pods: number("topology.pods", raw.pods, "a clos")?,
        leaves: number("topology.leaves", raw.leaves, "a clos")?,
        spines: number("topology.spines", raw.spines, "a clos")?,
        cores: number("topology.cores", raw.cores, "a clos")?,
        hosts_per_leaf: number("topology.hosts_per_leaf", raw.hosts_per_leaf, "a clos")?,
    };
    let hosts = [shape.pods, shape.leaves, shape.hosts_per_leaf].into_iter().map(u64::from).product::<u64>();
    // The multiplication that replaces a division must be exact for a core switch, with all hosts of a pod at a port.
    let is_exact = hosts * (hosts / u64::from(shape.pods)) < 1 << 32;
    if !(2..=u64::from(CLOS_HOSTS_MAX)).contains(&hosts) || !is_exact {
        let what = format!("is out of range: the network has {hosts} hosts; it must have 2 to {CLOS_HOSTS_MAX}");
        return Err(PlanError::value("topology.hosts_per_leaf", what));
    }
    let switches = u64::from(shape.pods) * u64::from(shape.leaves + shape.spines)
        + u64::from(shape.spines) * u64::from(shape.cores);
    if switches > u64::from(CLOS_HOSTS_MAX) {
        let what = format!("is out of range: the network has {switches} switches; it must have {CLOS_HOSTS_MAX}");
        return Err(PlanError::value("topology.spines", what));
    }
    Ok(TopologyPlan::Clos(shape))
}

fn from_file(raw: &Raw, files: &mut FileReader<'_>) -> Result<TopologyPlan, PlanError> {
    let topology = &raw.topology;
    let name = topology.file.as_ref().ok_or_else(|| PlanError::value("topology.file", "is missing; name a file"))?;
    let wrong = |what: String| PlanError::File { key: "topology.file", name: name.clone(), what };
    let text = files(name).map_err(wrong)?;
    let format = match topology.format() {
        TopologyFormat::Auto => None,
        TopologyFormat::Graph => Some(FileFormat::Graph),
        TopologyFormat::Hpcc => Some(FileFormat::Hpcc),
        TopologyFormat::Htsim => Some(FileFormat::Htsim),
    };
    let host = values(raw.links.as_ref().map(|links| (links.rate, links.delay)));
    let fabric = raw.links.as_ref().and_then(|links| links.fabric.as_ref());
    let (rate, delay) = values(fabric.map(|fabric| (fabric.rate, fabric.delay)));
    let defaults = Defaults { host, fabric: (rate.or(host.0), delay.or(host.1)) };
    let file::Read { topology, notes } =
        file::read(&text, format, &defaults).map_err(|error| wrong(error.to_string()))?;
    Ok(TopologyPlan::Graph(GraphPlan::new(topology, notes)))
}

/// Keys of a table of links.
type Keys = (Option<Unit<BitRate>>, Option<Unit<Duration>>);

/// Values of a table of links.
type Values = (Option<BitRate>, Option<Duration>);

fn values(given: Option<Keys>) -> Values {
    let (rate, delay) = given.unwrap_or_default();
    (rate.map(|rate| rate.0), delay.map(|delay| delay.0))
}

/// Returns the links of hosts, those between switches, and those between pods or groups. For a graph from a file, they
/// stand for all of its links: the highest rate and the longest delay.
pub(super) fn links(raw: &Raw, topology: &TopologyPlan) -> Result<[LinkPlan; 3], PlanError> {
    if let TopologyPlan::Graph(graph) = topology
        && !graph.topology.own_links.is_empty()
    {
        return Ok(file_links(&graph.topology));
    }
    let links = raw.links.as_ref();
    let (rate, delay) = values(links.map(|links| (links.rate, links.delay)));
    let missing = |key| PlanError::value(key, "is missing; only the file of a topology can replace it");
    let host = LinkPlan {
        rate: rate.ok_or_else(|| missing("links.rate"))?,
        delay: delay.ok_or_else(|| missing("links.delay"))?,
    };
    let or = |(rate, delay): Values, default: LinkPlan| LinkPlan {
        rate: rate.unwrap_or(default.rate),
        delay: delay.unwrap_or(default.delay),
    };
    let (mut fabric, core) = links.map_or_else(Default::default, |links| {
        let fabric = links.fabric.as_ref().map(|fabric| (fabric.rate, fabric.delay));
        (values(fabric), values(links.core.as_ref().map(|core| (core.rate, core.delay))))
    });
    if let (Some(Unit(ratio)), TopologyPlan::Clos(shape)) = (raw.topology.oversubscription, topology) {
        if fabric.0.is_some() {
            let what = "sets the rate of links between leaves and spines, and so does links.fabric.rate; remove one";
            return Err(PlanError::value("topology.oversubscription", what));
        }
        fabric.0 = Some(oversubscribed(host.rate, *shape, ratio));
    }
    let fabric = or(fabric, host);
    let has_core = matches!(raw.topology.kind, TopologyKind::Clos | TopologyKind::Dragonfly);
    Ok([host, fabric, if has_core { or(core, fabric) } else { fabric }])
}

/// Returns the rate of the links up of a leaf, whose hosts together have `ratio` times the rate of all of them.
fn oversubscribed(host_rate: BitRate, shape: Clos, ratio: Fraction) -> BitRate {
    let down = u128::from(host_rate.as_bps()) * u128::from(shape.hosts_per_leaf) * u128::from(ratio.denominator);
    let rate = down / (u128::from(shape.spines) * u128::from(ratio.numerator));
    BitRate::bps(u64::try_from(rate).unwrap_or(u64::MAX))
}

fn file_links(topology: &Topology) -> [LinkPlan; 3] {
    let is_of_host = |link: &&topology::LinkSpec| link.a.node < topology.hosts || link.b.node < topology.hosts;
    let (of_hosts, others): (Vec<_>, Vec<_>) = topology.links.iter().partition(is_of_host);
    let largest = |links: Vec<&topology::LinkSpec>| {
        let plans = links.into_iter().filter_map(|link| match link.class {
            LinkClass::Own(index) => Some(topology.own_links[index as usize]),
            _ => None,
        });
        plans.reduce(|one, other| LinkPlan { rate: one.rate.max(other.rate), delay: one.delay.max(other.delay) })
    };
    let host = largest(of_hosts).expect("every host has a link");
    let fabric = largest(others).unwrap_or(host);
    [host, fabric, fabric]
}

/// Maximum number of ports of a fat-tree's switches: 64 ports give 65536 hosts.
const K_MAX: u32 = 64;
/// Maximum number of hosts of a leaf-spine or Clos: that of the largest fat-tree; the multiplication that replaces a
/// division in [`crate::route`] is exact up to this number.
const CLOS_HOSTS_MAX: u32 = 1 << 16;
