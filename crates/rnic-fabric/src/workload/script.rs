//! Scripts: tasks of hosts that start when other tasks of the same host have ended, and messages between them.
//!
//! A host decides about its own tasks alone: other hosts are known to it by the messages that arrive. The messages from
//! one host to another use one connection, in one order, which is fixed in advance: that in which they would be sent in
//! a network that takes no time. Every task that precedes a message there also precedes it here, so the order causes no
//! deadlock.

use core::ops::Range;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use rnic_base::Duration;

/// The work of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TaskKind {
    /// Nothing: it ends when it starts.
    Join,
    /// Takes time.
    Delay(Duration),
    /// Sends a message; ends when the message has completed at its sender.
    Send,
    /// Ends when a message has arrived.
    Receive,
    /// The host starts a collective, or has received everything of it.
    Collective {
        /// Number of the collective.
        number: u32,
        /// True when the host has received everything.
        is_end: bool,
    },
}

/// A task of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Task {
    pub(crate) kind: TaskKind,
    /// Number of tasks, and of arriving messages, that must have ended before.
    pub(crate) needs: u32,
    /// Connection and index of the message of a task that sends.
    message: (u32, u32),
    /// True when a node of the trace ends with the task.
    pub(crate) ends_node: bool,
    /// Place of the tasks after this one.
    next: (u32, u32),
}

/// The tasks of a host.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct HostScript {
    tasks: Vec<Task>,
    next: Vec<u32>,
    /// By connection: the task of each message that the host sends, and of each that it receives.
    pub(crate) sends: BTreeMap<u32, Vec<u32>>,
    pub(crate) receives: BTreeMap<u32, Vec<u32>>,
    /// Number of nodes of the trace.
    pub(crate) nodes: u32,
}

impl HostScript {
    pub(crate) fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    /// Returns the tasks that wait for `task`.
    pub(crate) fn after(&self, task: u32) -> &[u32] {
        let (from, until) = self.tasks[task as usize].next;
        &self.next[from as usize..until as usize]
    }

    /// Returns connection and index of the message that `task` sends.
    pub(crate) fn message(&self, task: u32) -> (u32, u32) {
        self.tasks[task as usize].message
    }
}

/// A connection from one host to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Connection {
    pub(crate) src: u32,
    pub(crate) dst: u32,
    /// Bytes of each message.
    pub(crate) lengths: Arc<[u32]>,
}

/// The tasks of all hosts, and their connections.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Script {
    pub(crate) hosts: Vec<HostScript>,
    pub(crate) connections: Vec<Connection>,
    /// By collective: the number of hosts that take part.
    pub(crate) collectives: Vec<u32>,
    shortest_time: Duration,
}

impl Script {
    /// Returns the time of the script in a network that takes no time.
    pub(crate) fn shortest_time(&self) -> Duration {
        self.shortest_time
    }
}

/// A task of a script that is being built.
#[derive(Clone, Copy, Debug)]
struct Draft {
    host: u32,
    kind: TaskKind,
    node: u64,
    ends_node: bool,
}

/// A message between two tasks.
#[derive(Clone, Copy, Debug)]
struct Message {
    send: u32,
    receive: u32,
    bytes: u32,
}

/// Builds a script.
#[derive(Debug, Default)]
pub(super) struct ScriptBuilder {
    drafts: Vec<Draft>,
    edges: Vec<(u32, u32)>,
    messages: Vec<Message>,
    collectives: Vec<u32>,
}

/// Two nodes that wait for each other, possibly through others: each has a host and a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cycle(pub(super) [(u32, u64); 2]);

impl ScriptBuilder {
    /// Adds a task of `host`, for a node of its trace; returns its number.
    pub(super) fn add(&mut self, host: u32, node: u64, kind: TaskKind) -> u32 {
        let kind = if kind == TaskKind::Delay(Duration::ZERO) { TaskKind::Join } else { kind };
        self.drafts.push(Draft { host, kind, node, ends_node: false });
        self.drafts.len() as u32 - 1
    }

    /// Returns the number of tasks.
    pub(super) fn task_count(&self) -> usize {
        self.drafts.len()
    }

    /// Makes `task` the last one of its node.
    pub(super) fn ends_node(&mut self, task: u32) {
        self.drafts[task as usize].ends_node = true;
    }

    /// Makes `task` wait for `first`, a task of the same host.
    pub(super) fn after(&mut self, task: u32, first: u32) {
        self.edges.push((first, task));
    }

    /// Makes `send` a message of `bytes` that `receive` waits for.
    pub(super) fn message(&mut self, send: u32, receive: u32, bytes: u32) {
        self.messages.push(Message { send, receive, bytes });
    }

    /// Returns the number of a new collective among `ranks` hosts.
    pub(super) fn collective(&mut self, ranks: u32) -> u32 {
        self.collectives.push(ranks);
        self.collectives.len() as u32 - 1
    }

    /// Returns the script of `hosts` hosts.
    ///
    /// # Errors
    /// Two nodes that wait for each other.
    pub(super) fn build(self, hosts: u32) -> Result<Script, Cycle> {
        let all: Vec<(u32, u32)> = self
            .edges
            .iter()
            .copied()
            .chain(self.messages.iter().map(|message| (message.send, message.receive)))
            .collect();
        let graph = Graph::new(self.drafts.len(), &all);
        let (order, shortest_time) = self.in_order(&graph)?;
        let mut script = Script { collectives: self.collectives, shortest_time, ..Script::default() };
        script.hosts.resize_with(hosts as usize, HostScript::default);
        // Numbers of tasks within their hosts.
        let mut local = Vec::with_capacity(self.drafts.len());
        for draft in &self.drafts {
            let host = &mut script.hosts[draft.host as usize];
            local.push(host.tasks.len() as u32);
            let Draft { kind, ends_node, .. } = *draft;
            host.nodes += u32::from(ends_node);
            host.tasks.push(Task { kind, needs: 0, message: (0, 0), ends_node, next: (0, 0) });
        }
        let own = Graph::new(self.drafts.len(), &self.edges);
        for (task, draft) in (0u32..).zip(&self.drafts) {
            let host = &mut script.hosts[draft.host as usize];
            let from = host.next.len() as u32;
            for &after in own.after(task) {
                host.next.push(local[after as usize]);
                host.tasks[local[after as usize] as usize].needs += 1;
            }
            host.tasks[local[task as usize] as usize].next = (from, host.next.len() as u32);
        }
        let mut connections: BTreeMap<(u32, u32), (u32, Vec<u32>)> = BTreeMap::new();
        for Message { send, receive, bytes } in order {
            let ends = [send, receive].map(|task| self.drafts[task as usize].host);
            let new = connections.len() as u32;
            let (number, lengths) = connections.entry((ends[0], ends[1])).or_insert_with(|| (new, Vec::new()));
            lengths.push(bytes);
            let [src, dst] = ends.map(|host| host as usize);
            let [send, receive] = [send, receive].map(|task| local[task as usize]);
            script.hosts[src].sends.entry(*number).or_default().push(send);
            script.hosts[src].tasks[send as usize].message = (*number, lengths.len() as u32 - 1);
            script.hosts[dst].receives.entry(*number).or_default().push(receive);
            script.hosts[dst].tasks[receive as usize].needs += 1;
        }
        let mut connections: Vec<_> = connections.into_iter().collect();
        connections.sort_by_key(|(_, (number, _))| *number);
        let connection = |((src, dst), (_, lengths)): ((u32, u32), (u32, Vec<u32>))| Connection {
            src,
            dst,
            lengths: lengths.into(),
        };
        script.connections = connections.into_iter().map(connection).collect();
        Ok(script)
    }

    /// Returns the messages in the order in which they are sent when the network takes no time, and the time of all
    /// tasks then.
    fn in_order(&self, graph: &Graph) -> Result<(Vec<Message>, Duration), Cycle> {
        let mut needs = graph.needs.clone();
        let mut starts = vec![Duration::ZERO; self.drafts.len()];
        let of_send: BTreeMap<u32, Message> = self.messages.iter().map(|message| (message.send, *message)).collect();
        let first = (0u32..).zip(&needs).filter(|(_, needs)| **needs == 0);
        let mut ready: BinaryHeap<_> = first.map(|(task, _)| Reverse((Duration::ZERO, task))).collect();
        let (mut order, mut done, mut end) = (Vec::with_capacity(self.messages.len()), 0, Duration::ZERO);
        while let Some(Reverse((start, task))) = ready.pop() {
            let stop = match self.drafts[task as usize].kind {
                TaskKind::Delay(duration) => Duration::from_ps(start.as_ps().saturating_add(duration.as_ps())),
                _ => start,
            };
            order.extend(of_send.get(&task));
            (done, end) = (done + 1, end.max(stop));
            for &after in graph.after(task) {
                starts[after as usize] = starts[after as usize].max(stop);
                needs[after as usize] -= 1;
                if needs[after as usize] == 0 {
                    ready.push(Reverse((starts[after as usize], after)));
                }
            }
        }
        if done == self.drafts.len() { Ok((order, end)) } else { Err(self.cycle(graph, &needs)) }
    }

    /// Returns two nodes of a cycle of tasks that have not ended.
    fn cycle(&self, graph: &Graph, needs: &[u32]) -> Cycle {
        // Every task that is left has one before it that is left, too.
        let mut before = vec![None; self.drafts.len()];
        let left = |task: &u32| needs[*task as usize] > 0;
        for task in (0..self.drafts.len() as u32).filter(left) {
            for &after in graph.after(task) {
                before[after as usize] = Some(task);
            }
        }
        let mut task = (0..self.drafts.len() as u32).find(left).unwrap_or(0);
        // After as many steps as there are tasks, the walk is on the cycle.
        for _ in 0..self.drafts.len() {
            task = before[task as usize].unwrap_or(task);
        }
        let name = |task: u32| (self.drafts[task as usize].host, self.drafts[task as usize].node);
        let (mut other, start) = (task, task);
        while name(other) == name(start) {
            other = before[other as usize].unwrap_or(start);
            if other == start {
                break;
            }
        }
        Cycle([name(other), name(start)])
    }
}

/// For each task, the tasks after it, and the number of those before it.
struct Graph {
    starts: Vec<u32>,
    after: Vec<u32>,
    needs: Vec<u32>,
}

impl Graph {
    fn new(tasks: usize, edges: &[(u32, u32)]) -> Self {
        let (mut starts, mut needs) = (vec![0u32; tasks + 1], vec![0u32; tasks]);
        for (from, to) in edges {
            starts[*from as usize + 1] += 1;
            needs[*to as usize] += 1;
        }
        for task in 0..tasks {
            starts[task + 1] += starts[task];
        }
        let (mut places, mut after) = (starts.clone(), vec![0; edges.len()]);
        for (from, to) in edges {
            after[places[*from as usize] as usize] = *to;
            places[*from as usize] += 1;
        }
        Self { starts, after, needs }
    }

    fn after(&self, task: u32) -> &[u32] {
        let range: Range<usize> = self.starts[task as usize] as usize..self.starts[task as usize + 1] as usize;
        &self.after[range]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages are ordered by the time at which they would be sent, and a cycle through messages is found.
    #[test]
    fn messages_have_an_order_and_cycles_are_found() {
        let mut builder = ScriptBuilder::default();
        let wait = builder.add(0, 1, TaskKind::Delay(Duration::from_us(5)));
        let [late, early] = [builder.add(0, 2, TaskKind::Send), builder.add(0, 3, TaskKind::Send)];
        builder.after(late, wait);
        for (send, node, bytes) in [(late, 2, 20), (early, 3, 30)] {
            let receive = builder.add(1, node, TaskKind::Receive);
            builder.message(send, receive, bytes);
        }
        let script = builder.build(2).expect("there is no cycle");
        assert_eq!(script.connections.len(), 1);
        assert_eq!(*script.connections[0].lengths, [30, 20]);
        assert_eq!(script.shortest_time(), Duration::from_us(5));
        assert_eq!(script.hosts[0].sends[&0], [2, 1]);
        assert_eq!(script.hosts[1].tasks().iter().map(|task| task.needs).collect::<Vec<_>>(), [1, 1]);

        let mut builder = ScriptBuilder::default();
        let tasks: Vec<u32> = (0..2)
            .flat_map(|host| [(host, TaskKind::Receive), (host, TaskKind::Send)])
            .map(|(host, kind)| builder.add(host, 7 + u64::from(host), kind))
            .collect();
        builder.after(tasks[1], tasks[0]);
        builder.after(tasks[3], tasks[2]);
        builder.message(tasks[1], tasks[2], 1);
        builder.message(tasks[3], tasks[0], 1);
        let mut cycle = builder.build(2).expect_err("each waits for the other").0;
        cycle.sort_unstable();
        assert_eq!(cycle, [(0, 7), (1, 8)]);
    }
}
