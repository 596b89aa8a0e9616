//! Paths of a graph whose links differ: the fastest ones, for ideal times, and the longest one, for timeouts.
//!
//! ECMP counts links, not their rates, so that the paths between two hosts may differ in rate and delay. The ideal time
//! of a flow is the shorter one of two paths: that with the fastest slowest link, which is best for long flows, and
//! that with the least delay, which is best for short ones.

use std::collections::BTreeMap;

use rnic_base::{BitRate, Duration};

use super::{LinkClass, Topology};
use crate::link_spec::LinkPlan;
use crate::route::tables::{Hop, SwitchGraph};

/// Finds the fastest paths between hosts of a graph.
#[derive(Debug)]
pub(crate) struct BestPaths {
    graph: SwitchGraph,
    /// By switch with hosts: the next link from every switch, on the widest path and on the one with the least delay.
    /// They are computed when they are needed first.
    next: BTreeMap<u16, [Vec<Option<Hop>>; 2]>,
}

/// Slowest rate and delay of a path.
type Measure = (BitRate, Duration);

impl BestPaths {
    pub(crate) fn new(topology: &Topology) -> Self {
        let graph = SwitchGraph::new(topology.hosts, topology.switches.len(), &topology.links);
        Self { graph, next: BTreeMap::new() }
    }

    /// Writes the classes of the links of two paths, which may be the same, from `src` to `dst` into `paths`; `link`
    /// returns rate and delay of a class, and `delay` the time of a packet on a link.
    pub(crate) fn find(
        &mut self,
        (src, dst): (u32, u32),
        link: impl Fn(LinkClass) -> LinkPlan,
        delay: impl Fn(LinkClass) -> Duration,
        paths: &mut [Vec<LinkClass>; 2],
    ) {
        let [(start, _, first), (end, _, last)] = [src, dst].map(|host| self.graph.hosts[host as usize]);
        let graph = &self.graph;
        if self.next.len() * graph.hops.len() > KNOWN_MAX {
            self.next.clear();
        }
        let next = self.next.entry(end).or_insert_with(|| {
            let is_wider = |new: &Measure, old: &Measure| (new.0, old.1) > (old.0, new.1);
            let is_shorter = |new: &Measure, old: &Measure| (new.1, old.0) < (old.1, new.0);
            [best(graph, end, &link, &delay, is_wider), best(graph, end, &link, &delay, is_shorter)]
        });
        for (next, path) in next.iter().zip(paths) {
            path.clear();
            path.push(first);
            let mut switch = start;
            while let Some(hop) = next[usize::from(switch)] {
                path.push(hop.class);
                switch = hop.to;
            }
            path.push(last);
        }
    }
}

/// Number of links that are kept, 16 bytes each: paths of larger networks are computed again.
const KNOWN_MAX: usize = 1 << 22;

/// Returns the next link from every switch on the best path to switch `end`.
fn best(
    graph: &SwitchGraph,
    end: u16,
    link: impl Fn(LinkClass) -> LinkPlan,
    delay: impl Fn(LinkClass) -> Duration,
    is_better: impl Fn(&Measure, &Measure) -> bool,
) -> Vec<Option<Hop>> {
    let distances = graph.distances(end);
    let mut measures: Vec<Measure> = vec![(BitRate::bps(u64::MAX), Duration::ZERO); graph.hops.len()];
    let mut next = vec![None; graph.hops.len()];
    for switch in SwitchGraph::by_distance(&distances) {
        let mut found: Option<(Measure, Hop)> = None;
        for hop in graph.shortest(switch, &distances) {
            let (rate, rest) = measures[usize::from(hop.to)];
            let measure = (rate.min(link(hop.class).rate), rest + delay(hop.class));
            if found.as_ref().is_none_or(|(best, _)| is_better(&measure, best)) {
                found = Some((measure, *hop));
            }
        }
        if let Some((measure, hop)) = found {
            measures[usize::from(switch)] = measure;
            next[usize::from(switch)] = Some(hop);
        }
    }
    next
}

/// Returns the classes of the links of the path between two hosts that takes longest, of all equal-cost paths over
/// links for which `time` returns a time; `None` when there is no such path.
pub(crate) fn longest_path(
    topology: &Topology,
    time: impl Fn(LinkClass) -> Option<Duration>,
) -> Option<Vec<LinkClass>> {
    let graph = SwitchGraph::new(topology.hosts, topology.switches.len(), &topology.links);
    let (first, second) = slowest_hosts(&graph, &time);
    let mut longest: Option<(Duration, Vec<LinkClass>)> = None;
    for end in graph.edges() {
        let Some((last_time, last)) = first[usize::from(end)] else { continue };
        let distances = graph.distances(end);
        let mut known: Vec<Option<(Duration, Option<Hop>)>> = vec![None; graph.hops.len()];
        known[usize::from(end)] = Some((Duration::ZERO, None));
        for switch in SwitchGraph::by_distance(&distances) {
            for hop in graph.shortest(switch, &distances) {
                let Some((own, (rest, _))) = time(hop.class).zip(known[usize::from(hop.to)]) else { continue };
                if known[usize::from(switch)].is_none_or(|(before, _)| own + rest > before) {
                    known[usize::from(switch)] = Some((own + rest, Some(*hop)));
                }
            }
            // Both hosts may be at the same switch.
            let from = if switch == end { second[usize::from(end)] } else { first[usize::from(switch)] };
            let Some(((inner, _), (first_time, class))) = known[usize::from(switch)].zip(from) else { continue };
            let total = first_time + inner + last_time;
            if longest.as_ref().is_some_and(|(before, _)| total <= *before) {
                continue;
            }
            let mut path = vec![class];
            let mut here = switch;
            while let Some((_, Some(hop))) = known[usize::from(here)] {
                path.push(hop.class);
                here = hop.to;
            }
            path.push(last);
            longest = Some((total, path));
        }
    }
    longest.map(|(_, path)| path)
}

/// Time and class of a host's link.
type HostLink = Option<(Duration, LinkClass)>;

/// Returns, for each switch, the slowest and the second slowest of its hosts' links.
fn slowest_hosts(graph: &SwitchGraph, time: impl Fn(LinkClass) -> Option<Duration>) -> (Vec<HostLink>, Vec<HostLink>) {
    let mut first: Vec<HostLink> = vec![None; graph.hops.len()];
    let mut second = first.clone();
    for (switch, _, class) in &graph.hosts {
        let Some(time) = time(*class) else { continue };
        let (first, second) = (&mut first[usize::from(*switch)], &mut second[usize::from(*switch)]);
        let link = Some((time, *class));
        if first.is_none_or(|(slowest, _)| time > slowest) {
            *second = core::mem::replace(first, link);
        } else if second.is_none_or(|(slowest, _)| time > slowest) {
            *second = link;
        }
    }
    (first, second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::file;

    /// Three paths of equal length: one is wide but far, one near but narrow, one neither.
    const PATHS: &str = "\
        host a b\nswitch s t wide near bad\nlink a s 400Gbps 1us\nlink b t 400Gbps 1us\n\
        link s wide 400Gbps 10us\nlink wide t 200Gbps 10us\nlink s near 10Gbps 1us\nlink near t 10Gbps 1us\n\
        link s bad 1Gbps 50us\nlink bad t 1Gbps 50us\n";

    #[test]
    fn the_fastest_and_the_longest_path_are_found() {
        let graph = file::read(PATHS, None, &file::Defaults::default()).expect("the text is valid").topology;
        let plan = |class| match class {
            LinkClass::Own(index) => graph.own_links[index as usize],
            class => unreachable!("{class:?}"),
        };
        let time = |class| plan(class).delay + plan(class).rate.serialize(1_000);
        let gbps =
            |path: &[LinkClass]| -> Vec<f64> { path.iter().map(|class| plan(*class).rate.as_gbps_f64()).collect() };
        let mut both = <[Vec<LinkClass>; 2]>::default();
        BestPaths::new(&graph).find((0, 1), plan, time, &mut both);
        assert_eq!(gbps(&both[0]), [400.0, 400.0, 200.0, 400.0]);
        assert_eq!(gbps(&both[1]), [400.0, 10.0, 10.0, 400.0]);
        let longest = |least: u64| {
            let usable = |class| Some(time(class)).filter(|_| plan(class).rate >= BitRate::gbps(least));
            longest_path(&graph, usable).map(|path| gbps(&path))
        };
        assert_eq!(longest(0), Some(vec![400.0, 1.0, 1.0, 400.0]));
        assert_eq!(longest(2), Some(vec![400.0, 200.0, 400.0, 400.0]), "from b to a");
        assert_eq!(longest(300), None);
    }

    #[test]
    fn hosts_at_one_switch_have_a_longest_path() {
        let text = "host a b c\nswitch s\nlink a s 1Gbps 1us\nlink b s 1Gbps 3us\nlink c s 1Gbps 2us\n";
        let graph = file::read(text, None, &file::Defaults::default()).expect("the text is valid").topology;
        let time = |class| match class {
            LinkClass::Own(index) => Some(graph.own_links[index as usize].delay),
            _ => None,
        };
        let path = longest_path(&graph, time).expect("a path");
        assert_eq!(path.iter().filter_map(|class| time(*class)).map(Duration::as_ps).sum::<u64>(), 5_000_000);
    }
}
