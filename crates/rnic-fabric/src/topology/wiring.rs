//! Graphs: nodes and links as a file or a builder lists them, and their checks.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{LinkClass, LinkPoint, LinkSpec, Node, SwitchSpec, Topology};
use crate::link::PORTS_MAX;
use crate::link_spec::LinkPlan;
use crate::route::SwitchRoute;
use crate::route::tables::{RouteTables, SwitchGraph, TooLong, UNREACHABLE};

/// Maximum number of hosts of a graph: that of the largest fat-tree.
pub(crate) const HOSTS_MAX: usize = 1 << 16;
/// Maximum number of switches of a graph: their routing tables take 32 MB.
pub(crate) const SWITCHES_MAX: usize = 1 << 12;
/// Maximum number of links of a graph: 64 for each switch, on average.
pub(crate) const LINKS_MAX: usize = 1 << 18;

/// An end of a link, before nodes have their final numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum End {
    /// A host, by its number.
    Host(u32),
    /// A switch, by its index.
    Switch(u32),
}

/// Hosts, switches and links of a graph. Ports are numbered in the order of links.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wiring {
    /// Names of the hosts; empty, with `hosts`: `host-0` and so on.
    pub(crate) host_names: Vec<String>,
    hosts: Vec<Option<(u32, LinkClass)>>,
    switches: Vec<(String, u32)>,
    links: Vec<(End, End, [u32; 2], LinkClass)>,
    own_links: Vec<LinkPlan>,
    own_classes: BTreeMap<LinkPlan, u32>,
}

impl Wiring {
    /// Adds a host; its name is `host-` and its number, unless all hosts have a name in `host_names`.
    pub(crate) fn add_host(&mut self) -> Result<End, String> {
        if self.hosts.len() == HOSTS_MAX {
            return Err(format!("more than {HOSTS_MAX} hosts; a network may have that many"));
        }
        self.hosts.push(None);
        Ok(End::Host(self.hosts.len() as u32 - 1))
    }

    /// Adds a switch.
    pub(crate) fn add_switch(&mut self, name: String) -> Result<End, String> {
        if self.switches.len() == SWITCHES_MAX {
            return Err(format!("more than {SWITCHES_MAX} switches; a network of this kind may have that many"));
        }
        self.switches.push((name, 0));
        Ok(End::Switch(self.switches.len() as u32 - 1))
    }

    /// Adds a link with its own rate and delay.
    pub(crate) fn add_own_link(&mut self, a: End, b: End, link: LinkPlan) -> Result<(), String> {
        let next = self.own_links.len() as u32;
        let class = *self.own_classes.entry(link).or_insert(next);
        if class == next {
            self.own_links.push(link);
        }
        self.add_link(a, b, LinkClass::Own(class))
    }

    /// Adds a link.
    pub(crate) fn add_link(&mut self, a: End, b: End, class: LinkClass) -> Result<(), String> {
        if self.links.len() == LINKS_MAX {
            return Err(format!("more than {LINKS_MAX} links; a network may have that many"));
        }
        if a == b {
            return Err(format!("`{}` is linked to itself; name two different nodes", self.name(a)));
        }
        if let (End::Host(_), End::Host(_)) = (a, b) {
            let (a, b) = (self.name(a), self.name(b));
            return Err(format!(
                "links the hosts `{a}` and `{b}`; link each to a switch, or use the topology point-to-point"
            ));
        }
        let ports = [self.port(a, class)?, self.port(b, class)?];
        self.links.push((a, b, ports, class));
        Ok(())
    }

    /// Returns the next free port of a node.
    fn port(&mut self, end: End, class: LinkClass) -> Result<u32, String> {
        match end {
            End::Host(host) => match self.hosts[host as usize].replace((0, class)) {
                None => Ok(0),
                Some(_) => Err(format!(
                    "the host `{}` has two links; a host has one (give each of its NICs a host of its own)",
                    self.name(end)
                )),
            },
            End::Switch(switch) => {
                let (name, ports) = &mut self.switches[switch as usize];
                if *ports as usize == PORTS_MAX {
                    return Err(format!("the switch `{name}` has more than {PORTS_MAX} links; it may have that many"));
                }
                *ports += 1;
                Ok(*ports - 1)
            }
        }
    }

    /// Returns the name of a node.
    pub(crate) fn name(&self, end: End) -> String {
        match end {
            End::Host(host) => self.host_names.get(host as usize).map_or_else(|| format!("host-{host}"), Clone::clone),
            End::Switch(switch) => self.switches[switch as usize].0.clone(),
        }
    }

    /// Returns the number of hosts.
    pub(crate) fn host_count(&self) -> u32 {
        self.hosts.len() as u32
    }

    /// Checks the graph and computes its routes.
    ///
    /// # Errors
    /// Describes the first fault of the graph, with the names of its nodes.
    pub(crate) fn build(self) -> Result<Topology, String> {
        let hosts = self.host_count();
        if hosts < 2 {
            return Err(format!("has {hosts} hosts; a network needs two"));
        }
        if let Some(host) = self.hosts.iter().position(Option::is_none) {
            let name = self.name(End::Host(host as u32));
            return Err(format!("the host `{name}` has no link; link it to a switch"));
        }
        let node = |end| match end {
            End::Host(host) => host,
            End::Switch(switch) => hosts + switch,
        };
        let point = |end, port| LinkPoint { node: node(end), port };
        let link = |&(a, b, [a_port, b_port], class): &(End, End, [u32; 2], LinkClass)| LinkSpec {
            a: point(a, a_port),
            b: point(b, b_port),
            class,
        };
        let links: Vec<LinkSpec> = self.links.iter().map(link).collect();
        let graph = SwitchGraph::new(hosts, self.switches.len(), &links);
        self.check_paths(&graph)?;
        let tables = RouteTables::new(&graph).map_err(|TooLong(from, to)| {
            let [from, to] = [from, to].map(|switch| self.name(End::Switch(u32::from(switch))));
            format!("the path from `{from}` to `{to}` has more than 63 switches; packets may cross that many")
        })?;
        let switch = |(name, ports): (String, u32)| SwitchSpec { name, route: SwitchRoute::Table { ports } };
        Ok(Topology {
            hosts,
            switches: self.switches.into_iter().map(switch).collect(),
            links,
            host_names: self.host_names,
            own_links: self.own_links,
            tables: Some(Arc::new(tables)),
        })
    }

    /// Checks that there is a path from the first host to every other host and every switch.
    fn check_paths(&self, graph: &SwitchGraph) -> Result<(), String> {
        let (first, ..) = graph.hosts[0];
        let distances = graph.distances(first);
        let is_reached = |switch: u16| distances[usize::from(switch)] != UNREACHABLE;
        if let Some(host) = graph.hosts.iter().position(|(switch, ..)| !is_reached(*switch)) {
            let [a, b] = [0, host as Node].map(|host| self.name(End::Host(host)));
            return Err(format!("there is no path between the hosts `{a}` and `{b}`; link the switches between them"));
        }
        if let Some(switch) = (0..graph.hops.len() as u16).find(|switch| !is_reached(*switch)) {
            let (switch, host) = (self.name(End::Switch(u32::from(switch))), self.name(End::Host(0)));
            return Err(format!("there is no path from the switch `{switch}` to the host `{host}`; link or remove it"));
        }
        Ok(())
    }
}
