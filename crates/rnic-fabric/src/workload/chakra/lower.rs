//! Nodes of traces into tasks and messages of hosts.

use std::collections::BTreeMap;

use rnic_base::limits::MESSAGE_BYTES_MAX;

use super::{ChakraError, Node, Work};
use crate::workload::collective::CollectiveKind;
use crate::workload::script::{Script, ScriptBuilder, TaskKind};

/// A node: rank, and index in its trace.
type Place = (u32, usize);

/// The messages of a pair of ranks and a tag: the nodes that send and those that receive.
type Pair = [Vec<Place>; 2];

struct Lowering<'n> {
    ranks: &'n [Vec<Node>],
    builder: ScriptBuilder,
    /// By rank and node: its first and its last task.
    ends: Vec<Vec<(u32, u32)>>,
}

/// Returns the script of the traces of all ranks.
pub(super) fn script(ranks: &[Vec<Node>]) -> Result<Script, ChakraError> {
    let ends = ranks.iter().map(|nodes| vec![(0, 0); nodes.len()]).collect();
    let mut lowering = Lowering { ranks, builder: ScriptBuilder::default(), ends };
    let mut groups: BTreeMap<&str, BTreeMap<u32, Vec<usize>>> = BTreeMap::new();
    let mut pairs: BTreeMap<(u32, u32, u32), Pair> = BTreeMap::new();
    for (rank, nodes) in (0..).zip(ranks) {
        for (index, node) in nodes.iter().enumerate() {
            match &node.work {
                Work::Compute(duration) => lowering.single((rank, index), TaskKind::Delay(*duration)),
                Work::Send { dst, tag, .. } => {
                    lowering.check_peer((rank, index), *dst)?;
                    lowering.single((rank, index), TaskKind::Send);
                    pairs.entry((rank, *dst, *tag)).or_default()[0].push((rank, index));
                }
                Work::Receive { src, tag, .. } => {
                    lowering.check_peer((rank, index), *src)?;
                    lowering.single((rank, index), TaskKind::Receive);
                    pairs.entry((*src, rank, *tag)).or_default()[1].push((rank, index));
                }
                Work::Collective { group, .. } => {
                    groups.entry(group).or_default().entry(rank).or_default().push(index);
                }
            }
        }
    }
    for ((src, dst, tag), [sends, receives]) in &pairs {
        lowering.pair((*src, *dst, *tag), sends, receives)?;
    }
    for (name, members) in &groups {
        lowering.group(name, members)?;
    }
    lowering.dependencies()?;
    let hosts = ranks.len() as u32;
    lowering.builder.build(hosts).map_err(|cycle| {
        let [(rank, node), (other_rank, other)] = cycle.0;
        let what = if cycle.0[0] == cycle.0[1] {
            format!("node {node} of rank {rank} waits for itself")
        } else {
            format!("node {node} of rank {rank} and node {other} of rank {other_rank} wait for each other")
        };
        ChakraError { rank: None, byte: None, what }
    })
}

impl Lowering<'_> {
    fn node(&self, (rank, index): Place) -> &Node {
        &self.ranks[rank as usize][index]
    }

    fn error(&self, place: Place, what: &str) -> ChakraError {
        ChakraError::of(place.0, format!("node {}: {what}", self.node(place).id))
    }

    fn check_peer(&self, place: Place, peer: u32) -> Result<(), ChakraError> {
        let count = self.ranks.len();
        if peer as usize >= count {
            return Err(self.error(place, &format!("there is no rank {peer}: there are traces of {count} ranks")));
        }
        if peer == place.0 {
            return Err(self.error(place, "a rank that sends to itself is not supported"));
        }
        Ok(())
    }

    /// Adds the only task of a node.
    fn single(&mut self, place: Place, kind: TaskKind) {
        let task = self.builder.add(place.0, self.node(place).id, kind);
        self.set_ends(place, task, task);
    }

    fn set_ends(&mut self, place: Place, first: u32, last: u32) {
        self.builder.ends_node(last);
        self.ends[place.0 as usize][place.1] = (first, last);
    }

    /// Joins the sends and receives of a pair of ranks and a tag.
    fn pair(&mut self, of: (u32, u32, u32), sends: &[Place], receives: &[Place]) -> Result<(), ChakraError> {
        let (src, dst, tag) = of;
        let shorter = sends.len().min(receives.len());
        if let Some(place) = sends.get(shorter).or_else(|| receives.get(shorter)) {
            let what = format!(
                "rank {src} sends {} messages with tag {tag} to rank {dst}, which receives {}; this one has no partner",
                sends.len(),
                receives.len()
            );
            return Err(self.error(*place, &what));
        }
        for (send, receive) in sends.iter().zip(receives) {
            let Work::Send { bytes, .. } = self.node(*send).work else { continue };
            if let Work::Receive { bytes: Some(expected), .. } = self.node(*receive).work
                && expected != bytes
            {
                let what = format!("it receives {expected} bytes, but rank {src} sends {bytes}");
                return Err(self.error(*receive, &what));
            }
            let bytes = self.message_bytes(*send, bytes)?;
            let [send, receive] = [send, receive].map(|place| self.ends[place.0 as usize][place.1].0);
            self.builder.message(send, receive, bytes);
        }
        Ok(())
    }

    fn message_bytes(&self, place: Place, bytes: u64) -> Result<u32, ChakraError> {
        let legal = Some(bytes).filter(|bytes| *bytes <= MESSAGE_BYTES_MAX).and_then(|bytes| u32::try_from(bytes).ok());
        legal.ok_or_else(|| {
            self.error(place, &format!("its messages have {bytes} bytes; the maximum is {MESSAGE_BYTES_MAX}"))
        })
    }

    /// Adds the collectives of a process group: the k-th node of each member is the same collective.
    fn group(&mut self, name: &str, members: &BTreeMap<u32, Vec<usize>>) -> Result<(), ChakraError> {
        let named = if name.is_empty() { "without `pg_name`".to_owned() } else { format!("of process group `{name}`") };
        if name.is_empty()
            && let Some(rank) = (0..self.ranks.len() as u32).find(|rank| !members.contains_key(rank))
        {
            return Err(ChakraError::of(rank, format!("it has no collectives {named}, but other ranks have some")));
        }
        let Some((first, nodes)) = members.first_key_value() else { return Ok(()) };
        if let Some((rank, other)) = members.iter().find(|(_, other)| other.len() != nodes.len()) {
            let (count, expected) = (other.len(), nodes.len());
            let what = format!("it has {count} collectives {named}, but rank {first} has {expected}");
            return Err(ChakraError::of(*rank, what));
        }
        for step in 0..nodes.len() {
            let places: Vec<Place> = members.iter().map(|(rank, nodes)| (*rank, nodes[step])).collect();
            self.collective(&places)?;
        }
        Ok(())
    }

    /// Checks that there may be a collective among `ranks` ranks, each of which sends `sends` messages.
    fn check_tasks(&self, ranks: usize, sends: usize) -> Result<(), ChakraError> {
        let count = self.builder.task_count().saturating_add(ranks.saturating_mul(2 + 2 * sends));
        if count > TASKS_MAX {
            let what = format!("the traces have {count} steps and messages so far; the maximum is {TASKS_MAX}");
            return Err(ChakraError { rank: None, byte: None, what });
        }
        Ok(())
    }

    /// Adds a collective: one node of each rank.
    fn collective(&mut self, places: &[Place]) -> Result<(), ChakraError> {
        let (first, count) = (places[0], places.len());
        let Work::Collective { kind, bytes, .. } = self.node(first).work else { return Ok(()) };
        for place in places {
            let Work::Collective { kind: other, bytes: size, .. } = self.node(*place).work else { continue };
            if (other, size) != (kind, bytes) {
                let node = self.node(first).id;
                let what = format!(
                    "its type or size differs from that of the same collective at rank {}, node {node}",
                    first.0
                );
                return Err(self.error(*place, &what));
            }
        }
        let ranks = count as u32;
        let part = if kind == CollectiveKind::AllGather { bytes } else { bytes.div_ceil(u64::from(ranks)) };
        let part = self.message_bytes(first, part)?;
        let sends = if kind == CollectiveKind::AllToAll { count - 1 } else { kind.steps(ranks) as usize };
        self.check_tasks(count, sends)?;
        let number = self.builder.collective(ranks);
        let mut joins = Vec::with_capacity(count);
        for place in places {
            let id = self.node(*place).id;
            let [start, end] =
                [false, true].map(|is_end| self.builder.add(place.0, id, TaskKind::Collective { number, is_end }));
            self.builder.after(end, start);
            self.set_ends(*place, start, end);
            joins.push((start, end));
        }
        if ranks == 1 {
            return Ok(());
        }
        if kind == CollectiveKind::AllToAll {
            for distance in 1..count {
                for from in 0..count {
                    let ends = [from, (from + distance) % count];
                    self.exchange(places, &joins, ends, part);
                }
            }
            return Ok(());
        }
        // By rank: the receive of the step before.
        let mut received = vec![None; count];
        for _ in 0..kind.steps(ranks) {
            let before = received.clone();
            for from in 0..count {
                let to = (from + 1) % count;
                let (send, receive) = self.exchange(places, &joins, [from, to], part);
                if let Some(before) = before[from] {
                    self.builder.after(send, before);
                }
                received[to] = Some(receive);
            }
        }
        Ok(())
    }

    /// Adds a message of a collective between two of its ranks; returns the tasks that send and receive it.
    fn exchange(&mut self, places: &[Place], joins: &[(u32, u32)], [from, to]: [usize; 2], bytes: u32) -> (u32, u32) {
        let ids = [from, to].map(|rank| self.node(places[rank]).id);
        let send = self.builder.add(places[from].0, ids[0], TaskKind::Send);
        let receive = self.builder.add(places[to].0, ids[1], TaskKind::Receive);
        self.builder.after(send, joins[from].0);
        self.builder.after(receive, joins[to].0);
        self.builder.after(joins[to].1, receive);
        self.builder.message(send, receive, bytes);
        (send, receive)
    }

    /// Makes each node wait for those that it depends on.
    fn dependencies(&mut self) -> Result<(), ChakraError> {
        for (rank, nodes) in (0..).zip(self.ranks) {
            let mut places = BTreeMap::new();
            for (index, node) in nodes.iter().enumerate() {
                if places.insert(node.id, index).is_some() {
                    return Err(ChakraError::of(rank, format!("two nodes have the number {}", node.id)));
                }
            }
            for (index, node) in nodes.iter().enumerate() {
                for before in &node.data_deps {
                    let Some(before_index) = places.get(before) else {
                        let what = format!("it depends on node {before}, which the trace does not have");
                        return Err(self.error((rank, index), &what));
                    };
                    let ends = &self.ends[rank as usize];
                    self.builder.after(ends[index].0, ends[*before_index].1);
                }
            }
        }
        Ok(())
    }
}

/// Maximum number of tasks: messages and steps of all ranks.
const TASKS_MAX: usize = 1 << 22;
