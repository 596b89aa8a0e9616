//! The part of a script that a host carries out: which of its tasks have ended, and what may start because of it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use rnic_base::Time;

use crate::workload::script::{HostScript, Script, TaskKind};

/// Start of a collective at a host, or the time at which the host had received everything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CollectiveTime {
    pub(crate) number: u32,
    pub(crate) is_end: bool,
    pub(crate) at: Time,
}

/// Messages of a connection that may be sent.
#[derive(Debug)]
struct Outgoing {
    /// Slot, in the host's table of sessions, of the sender.
    slot: Option<u32>,
    /// By message: whether its task has started.
    is_ready: Vec<bool>,
    /// Number of messages before the first one whose task has not started.
    released: u32,
}

/// The state of a host's script.
#[derive(Debug)]
pub(crate) struct ScriptRun {
    script: Arc<Script>,
    host: usize,
    /// By task: number of tasks and messages that it still waits for.
    needs: Vec<u32>,
    outgoing: BTreeMap<u32, Outgoing>,
    /// Delays that have started: their end and their task.
    delays: BinaryHeap<Reverse<(Time, u32)>>,
    /// Ends of delays of which the host does not know yet.
    new_timers: Vec<Time>,
    /// Connections on which more messages may be sent.
    released: Vec<u32>,
    /// Tasks that have ended, and whose followers are not yet processed.
    ended: Vec<u32>,
    collectives: Vec<CollectiveTime>,
    nodes_done: u32,
    last_end: Time,
}

impl ScriptRun {
    /// Creates the script of `host`, which has one.
    pub(crate) fn new(script: &Arc<Script>, host: usize) -> Self {
        let own = &script.hosts[host];
        let outgoing = |tasks: &Vec<u32>| Outgoing { slot: None, is_ready: vec![false; tasks.len()], released: 0 };
        Self {
            script: Arc::clone(script),
            host,
            needs: own.tasks().iter().map(|task| task.needs).collect(),
            outgoing: own.sends.iter().map(|(connection, tasks)| (*connection, outgoing(tasks))).collect(),
            delays: BinaryHeap::new(),
            new_timers: Vec::new(),
            released: Vec::new(),
            ended: Vec::new(),
            collectives: Vec::new(),
            nodes_done: 0,
            last_end: Time::ZERO,
        }
    }

    fn own(&self) -> &HostScript {
        &self.script.hosts[self.host]
    }

    /// Records the sender of a connection.
    pub(super) fn add_sender(&mut self, connection: u32, slot: u32) {
        if let Some(outgoing) = self.outgoing.get_mut(&connection) {
            outgoing.slot = Some(slot);
        }
    }

    /// Starts the tasks that wait for nothing, the first time; then ends the delays that are over.
    pub(super) fn wake(&mut self, now: Time) {
        if now == Time::ZERO && self.nodes_done == 0 {
            let tasks = (0u32..).zip(self.own().tasks());
            let first: Vec<u32> = tasks.filter(|(_, task)| task.needs == 0).map(|(number, _)| number).collect();
            first.into_iter().for_each(|task| self.start(now, task));
        }
        while self.delays.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            self.ended.extend(self.delays.pop().map(|Reverse((_, task))| task));
        }
        self.process(now);
    }

    /// Records that a message has completed at this host, its sender.
    pub(super) fn sent(&mut self, now: Time, connection: u32, index: u32) {
        if let Some(task) = self.own().sends.get(&connection).and_then(|tasks| tasks.get(index as usize)) {
            self.ended.push(*task);
            self.process(now);
        }
    }

    /// Records that a message has arrived at this host.
    pub(super) fn arrived(&mut self, now: Time, connection: u32, index: u32) {
        if let Some(&task) = self.own().receives.get(&connection).and_then(|tasks| tasks.get(index as usize)) {
            self.satisfy(now, task);
            self.process(now);
        }
    }

    fn satisfy(&mut self, now: Time, task: u32) {
        let needs = &mut self.needs[task as usize];
        *needs -= 1;
        if *needs == 0 {
            self.start(now, task);
        }
    }

    fn start(&mut self, now: Time, task: u32) {
        match self.own().tasks()[task as usize].kind {
            TaskKind::Join | TaskKind::Receive => self.ended.push(task),
            TaskKind::Collective { number, is_end } => {
                self.collectives.push(CollectiveTime { number, is_end, at: now });
                self.ended.push(task);
            }
            TaskKind::Delay(duration) => {
                let at = now + duration;
                self.delays.push(Reverse((at, task)));
                self.new_timers.push(at);
            }
            TaskKind::Send => {
                let (connection, index) = self.own().message(task);
                let Some(outgoing) = self.outgoing.get_mut(&connection) else { return };
                outgoing.is_ready[index as usize] = true;
                let before = outgoing.released;
                while outgoing.is_ready.get(outgoing.released as usize) == Some(&true) {
                    outgoing.released += 1;
                }
                if outgoing.released > before {
                    self.released.push(connection);
                }
            }
        }
    }

    fn process(&mut self, now: Time) {
        while let Some(task) = self.ended.pop() {
            let script = Arc::clone(&self.script);
            let own = &script.hosts[self.host];
            if own.tasks()[task as usize].ends_node {
                self.nodes_done += 1;
                self.last_end = now;
            }
            own.after(task).iter().for_each(|after| self.satisfy(now, *after));
        }
    }

    /// Returns a sender that may send more messages, and how many it may have sent in total, until there is none.
    pub(super) fn take_released(&mut self) -> Option<(u32, u32)> {
        let outgoing = &self.outgoing[&self.released.pop()?];
        outgoing.slot.map(|slot| (slot, outgoing.released))
    }

    /// Returns the time at which a delay ends of which the host does not know, until there is none.
    pub(super) fn take_timer(&mut self) -> Option<Time> {
        self.new_timers.pop()
    }

    /// Returns whether a delay has started and has not ended.
    pub(crate) fn is_delayed(&self) -> bool {
        !self.delays.is_empty()
    }

    /// Returns starts and ends of collectives.
    pub(crate) fn collectives(&self) -> &[CollectiveTime] {
        &self.collectives
    }

    /// Returns the number of nodes that have ended, and the time of the last end.
    pub(crate) fn progress(&self) -> (u32, Time) {
        (self.nodes_done, self.last_end)
    }
}
