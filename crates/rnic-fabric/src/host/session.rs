//! The two ends of flows: the work that a host posts to its engine, and the handling of completions.
//!
//! A flow is a pair of queue pairs that carries messages of one type, with a limit on the messages in flight. Most
//! workloads create flows of one message; message streams and closed loops create flows of many. The sending end
//! posts the next message when one completes, and the receiving end replaces each receive that is used. This module
//! does both, immediately and locally at each host; [`crate::Simulation`] creates and destroys the queue pairs.

use rnic_base::{Duration, Time};
use rnic_engine::{Completion, Engine, Key, RecvRequest, RemoteMemory, SendFlags, SendOp, SendRequest, Sge};
use rnic_wire::Qpn;
use slab::Slab;

use std::collections::VecDeque;
use std::sync::Arc;

use super::memory::{Block, Memory};
use super::rank::Rank;
use super::rate::CompletionRate;
use super::script::ScriptRun;
use super::tally::TenantTally;
use crate::check::{Ledger, Violations};
use crate::workload::{Arrivals, Operation, Traffic};

/// Memory that one end of a flow uses: one slot per message that may be in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffers {
    /// Address of the memory, as used in work requests.
    pub(crate) addr: u64,
    pub(crate) key: Key,
    /// Block of the memory in the host's address space, when payload bytes are checked.
    pub(crate) block: Option<Block>,
}

/// The sending end of a flow: the side that posts requests.
#[derive(Debug)]
pub(crate) struct Sender {
    /// Number of the flow, for [`FlowEvent`].
    pub(crate) flow: u32,
    pub(crate) qpn: Qpn,
    pub(crate) traffic: Arc<Traffic>,
    /// Total bytes of all messages.
    pub(crate) bytes: u64,
    pub(crate) buffers: Buffers,
    /// Memory slots at the remote end of the flow.
    pub(crate) remote: RemoteMemory,
    /// Base of the seeds from which the payload of the flow's messages is generated.
    pub(crate) seed: u64,
    /// Numbers of messages posted and of messages completed.
    pub(crate) posted: u32,
    pub(crate) completed: u32,
    /// Total number of messages; reduced when the workload's duration ends before all are posted.
    pub(crate) messages: u32,
    /// Number of messages that may be posted now: all messages of the flow, except in a collective.
    released: u32,
    /// By slot: time at which the message in flight was posted, or arrived at the sender; empty when latencies are not
    /// measured.
    posted_at: Box<[Time]>,
    /// Messages that arrive independently of completions (open loop).
    backlog: Option<Box<Backlog>>,
    /// Number of messages that are posted when the time to think after an earlier one is over.
    thinking: u32,
    /// Rate of the sender in the measured time.
    rate: CompletionRate,
    /// Index of the tenant that the sender belongs to, in the workload `tenants`.
    pub(crate) tenant: Option<u32>,
    /// Index of the group of traffic that the sender belongs to, when there are several.
    pub(crate) group: Option<u32>,
    /// True when the sender belongs to the host's rank in a collective, if the host has one.
    pub(crate) is_ranked: bool,
    /// Bytes of each message, when the messages have different sizes: those of a script.
    pub(crate) lengths: Option<Arc<[u32]>>,
}

/// Messages that arrive at a sender from the application, whether or not the sender can post them.
#[derive(Debug)]
struct Backlog {
    arrivals: Arrivals,
    /// Arrival times of the messages that are not yet posted. Their number is bounded by the arrivals until the
    /// workload ends.
    waiting: VecDeque<Time>,
}

/// The receiving end of a flow, when its messages use receives.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) flow: u32,
    pub(crate) qpn: Qpn,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) bytes: u64,
    pub(crate) buffers: Buffers,
    pub(crate) seed: u64,
    /// Numbers of receives posted and of receives used.
    posted: u32,
    pub(crate) completed: u32,
    messages: u32,
    /// As [`Sender::is_ranked`].
    pub(crate) is_ranked: bool,
    /// As [`Sender::lengths`].
    pub(crate) lengths: Option<Arc<[u32]>>,
}

/// Event of a flow, reported to the simulation, which owns the flow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct FlowEvent {
    pub(crate) at: Time,
    pub(crate) flow: u32,
    /// True when the last message has arrived and completed at the receiver; false when it completed at the sender.
    pub(crate) delivered: bool,
}

/// The senders and receivers of a host.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    senders: Slab<Sender>,
    receivers: Slab<Receiver>,
    sends: Ledger,
    receives: Ledger,
    pub(crate) flow_events: Vec<FlowEvent>,
    /// Duration from post to completion of every message, if latencies are measured; without the messages of tenants
    /// and of groups of traffic.
    pub(crate) latencies: Vec<Duration>,
    pub(crate) messages: u64,
    /// Start and end of the interval in which completed messages are counted in `steady_bytes`.
    pub(crate) steady: Option<(Time, Time)>,
    /// Payload bytes of the messages that completed in that interval.
    pub(crate) steady_bytes: u64,
    /// Measured rates of the removed senders.
    rates: Vec<CompletionRate>,
    /// Messages of tenants, by tenant, or of groups of traffic, by group.
    pub(crate) tallies: Vec<TenantTally>,
    /// The host's rank in a collective, when the workload has collectives.
    pub(crate) rank: Option<Box<Rank>>,
    /// The host's part of a script, when the workload has one.
    pub(crate) script: Option<Box<ScriptRun>>,
    /// Queue pairs with new work, one entry per request, when the NIC has to fetch work requests.
    pub(crate) doorbells: Option<Vec<Qpn>>,
    /// Senders that think, in the order in which they have begun: when each posts its next message.
    thinking: VecDeque<(Time, u32)>,
}

/// Returns the number of bytes of message `index`: that in `lengths`, if there are any.
#[inline]
fn len_of(lengths: Option<&[u32]>, traffic: &Traffic, bytes: u64, index: u32) -> u32 {
    match lengths {
        Some(lengths) => lengths[index as usize],
        None => traffic.message_len(bytes, index),
    }
}

/// Returns the offset of message `index` in the memory of a flow of `bytes`.
pub(super) fn slot_offset(traffic: &Traffic, bytes: u64, index: u32) -> u64 {
    u64::from(index % traffic.depth) * traffic.slot_bytes(bytes)
}

impl Sender {
    /// Creates a sender of `bytes`, divided into messages as given by `traffic`.
    pub(crate) fn new(
        flow: u32,
        qpn: Qpn,
        traffic: Arc<Traffic>,
        bytes: u64,
        buffers: Buffers,
        remote: RemoteMemory,
    ) -> Self {
        let depth = if traffic.latencies { traffic.depth } else { 0 };
        let messages = traffic.messages(bytes);
        Self {
            flow,
            qpn,
            traffic,
            bytes,
            buffers,
            remote,
            seed: u64::from(flow) << 32,
            posted: 0,
            completed: 0,
            messages,
            released: u32::MAX,
            posted_at: vec![Time::ZERO; depth as usize].into_boxed_slice(),
            backlog: None,
            thinking: 0,
            rate: CompletionRate::default(),
            tenant: None,
            group: None,
            is_ranked: true,
            lengths: None,
        }
    }

    /// Returns the number of bytes of message `index`.
    fn len_of(&self, index: u32) -> u32 {
        len_of(self.lengths.as_deref(), &self.traffic, self.bytes, index)
    }

    /// Drops the messages of a tenant that are not posted when it stops: it ends its requests then.
    fn stop(&mut self) {
        if let Some(backlog) = &mut self.backlog {
            backlog.waiting.clear();
        }
        self.messages = self.messages.min(self.posted + self.thinking);
    }

    /// Returns the time at which the message after the one that completes at `now` is posted, when the sender thinks
    /// before; there is none if the workload ends by then.
    fn think(&mut self, now: Time) -> Option<Time> {
        let at = now + self.traffic.think;
        if self.traffic.until.is_some_and(|until| at >= until) {
            self.stop();
        }
        let is_left = self.posted + self.thinking < self.messages;
        self.thinking += u32::from(is_left);
        is_left.then_some(at)
    }

    /// Makes the messages arrive at the times of `arrivals`, each by a call of [`Sessions::begin`].
    pub(crate) fn set_arrivals(&mut self, arrivals: Arrivals) {
        self.backlog = Some(Box::new(Backlog { arrivals, waiting: VecDeque::new() }));
    }

    /// Returns whether the sender has waited for a completion without interruption since `since`. In an open loop, in
    /// a script and while the sender thinks there may be no message in flight.
    pub(crate) fn waits_since(&self, since: Time) -> bool {
        let oldest = self.posted_at.get((self.completed % self.traffic.depth) as usize);
        let always_waits = self.backlog.is_none() && self.lengths.is_none() && self.traffic.think == Duration::ZERO;
        always_waits || self.posted > self.completed && oldest.is_none_or(|at| *at <= since)
    }

    /// Returns whether a message has arrived at the sender and is not posted yet.
    fn has_more(&self) -> bool {
        self.backlog
            .as_ref()
            .map_or(self.posted < self.messages.min(self.released), |backlog| !backlog.waiting.is_empty())
    }

    fn request_op(&self, index: u32) -> SendOp {
        let slot = slot_offset(&self.traffic, self.bytes, index);
        let remote = RemoteMemory { addr: self.remote.addr + slot, rkey: self.remote.rkey };
        match self.traffic.op {
            Operation::Write => SendOp::Write { remote, immediate: None },
            Operation::WriteImmediate => SendOp::Write { remote, immediate: Some(index) },
            Operation::Send => SendOp::Send { immediate: Some(index) },
            Operation::Read => SendOp::Read { remote },
            Operation::FetchAdd => SendOp::FetchAdd { remote: self.remote, add: 1 },
            Operation::CompareSwap => {
                let (compare, swap) = (u64::from(index), u64::from(index) + 1);
                SendOp::CompareSwap { remote: self.remote, compare, swap }
            }
        }
    }

    fn sge(&self, index: u32) -> Sge {
        let slot = slot_offset(&self.traffic, self.bytes, index);
        let len = self.len_of(index);
        Sge { addr: self.buffers.addr + slot, len, lkey: self.buffers.key.0 }
    }
}

impl Receiver {
    /// Creates a receiver of `bytes`, divided into messages as given by `traffic`.
    pub(crate) fn new(flow: u32, qpn: Qpn, traffic: Arc<Traffic>, bytes: u64, buffers: Buffers) -> Self {
        let messages = traffic.messages(bytes);
        Self {
            flow,
            qpn,
            traffic,
            bytes,
            buffers,
            seed: u64::from(flow) << 32,
            posted: 0,
            completed: 0,
            messages,
            is_ranked: true,
            lengths: None,
        }
    }

    /// Returns the number of receives that are posted and not used; in a closed loop that ends at a given time they
    /// are never used.
    fn spare(&self) -> u32 {
        self.posted - self.completed
    }
}

/// Returns the pattern seed of message `index`.
pub(super) fn message_seed(seed: u64, index: u32) -> u64 {
    seed | u64::from(index)
}

impl Sessions {
    /// Adds a sender; returns its slot, for [`Sessions::begin`].
    pub(crate) fn add_sender(&mut self, sender: Sender) -> u32 {
        let is_ranked = sender.is_ranked;
        let slot = self.senders.insert(sender) as u32;
        self.sends.open(slot);
        if let Some(rank) = self.rank.as_mut().filter(|_| is_ranked) {
            rank.senders.push(slot);
            self.senders[slot as usize].released = rank.released();
        }
        if let Some(script) = &mut self.script {
            let sender = &mut self.senders[slot as usize];
            script.add_sender(sender.flow, slot);
            sender.released = 0;
        }
        slot
    }

    /// Adds a receiver, posts its first receives, and returns its slot.
    pub(crate) fn add_receiver(&mut self, receiver: Receiver, engine: &mut Engine) -> u32 {
        let first = receiver.messages.min(receiver.traffic.depth);
        let slot = self.receivers.insert(receiver) as u32;
        self.receives.open(slot);
        (0..first).for_each(|_| self.post_receive(slot, engine));
        slot
    }

    /// Removes a sender; requests that did not complete are reported in `violations`.
    pub(crate) fn remove_sender(&mut self, at: Time, slot: u32, violations: &mut Violations) -> Sender {
        self.sends.close(slot, 0).unwrap_or_else(|what| violations.add(at, what));
        let sender = self.senders.remove(slot as usize);
        self.rates.extend(sender.rate.is_known().then_some(sender.rate));
        sender
    }

    /// Removes a receiver; receives that did not complete are reported in `violations`.
    pub(crate) fn remove_receiver(&mut self, at: Time, slot: u32, violations: &mut Violations) -> Receiver {
        let receiver = self.receivers.remove(slot as usize);
        self.receives.close(slot, receiver.spare()).unwrap_or_else(|what| violations.add(at, what));
        receiver
    }

    /// Returns the rate of each sender for which it is known.
    pub(crate) fn rates(&self) -> impl Iterator<Item = CompletionRate> {
        let running = self.senders.iter().map(|(_, sender)| sender.rate).filter(CompletionRate::is_known);
        self.rates.iter().copied().chain(running)
    }

    pub(crate) fn sender(&self, slot: u32) -> &Sender {
        &self.senders[slot as usize]
    }

    /// Returns the number of senders and receivers that still exist.
    pub(crate) fn open_count(&self) -> usize {
        self.sends.open_count() + self.receives.open_count()
    }

    /// Posts the first messages of a sender, or the one that it has thought about, or, when messages arrive
    /// independently of completions, handles the one that arrives now. Returns the arrival time of the next one.
    pub(crate) fn begin(
        &mut self,
        now: Time,
        slot: u32,
        engine: &mut Engine,
        mut memory: Option<&mut Memory>,
    ) -> Option<Time> {
        let sender = &mut self.senders[slot as usize];
        if let Some(backlog) = &mut sender.backlog {
            backlog.waiting.push_back(now);
            let next = backlog.arrivals.after(now);
            if next.is_none() {
                sender.messages = sender.posted + backlog.waiting.len() as u32;
            }
            if sender.posted - sender.completed < sender.traffic.depth {
                self.post_send(now, slot, engine, memory);
            }
            return next;
        }
        if sender.lengths.is_some() {
            // The tasks of the script post.
            return None;
        }
        if sender.thinking > 0 {
            sender.thinking -= 1;
            self.post_send(now, slot, engine, memory);
            return None;
        }
        for _ in 0..sender.messages.min(sender.traffic.depth).min(sender.released) {
            self.post_send(now, slot, engine, memory.as_deref_mut());
        }
        None
    }

    fn post_send(&mut self, now: Time, slot: u32, engine: &mut Engine, memory: Option<&mut Memory>) {
        let sender = &mut self.senders[slot as usize];
        let index = sender.posted;
        let sge = sender.sge(index);
        if let (Some(memory), Some(block)) = (memory, sender.buffers.block)
            && sender.traffic.op.carries_data()
        {
            let local = block.local + (sge.addr - sender.buffers.addr);
            memory.fill(local, u64::from(sge.len), message_seed(sender.seed, index));
        }
        let sges = [sge];
        let request = SendRequest {
            wr_id: u64::from(slot) << 32 | u64::from(index),
            op: sender.request_op(index),
            sges: if sge.len > 0 { &sges } else { &[] },
            flags: SendFlags::SIGNALED,
        };
        engine.post_send(sender.qpn, &request).expect("the queue has a free entry");
        let arrived_at = sender.backlog.as_mut().and_then(|backlog| backlog.waiting.pop_front());
        if let Some(at) = sender.posted_at.get_mut((index % sender.traffic.depth) as usize) {
            *at = arrived_at.unwrap_or(now);
        }
        sender.posted += 1;
        if let Some(doorbells) = &mut self.doorbells {
            doorbells.push(sender.qpn);
        }
        self.sends.posted(slot);
    }

    fn post_receive(&mut self, slot: u32, engine: &mut Engine) {
        let receiver = &mut self.receivers[slot as usize];
        let index = receiver.posted;
        let offset = slot_offset(&receiver.traffic, receiver.bytes, index);
        let len = receiver.traffic.slot_bytes(receiver.bytes) as u32;
        let sges = [Sge { addr: receiver.buffers.addr + offset, len, lkey: receiver.buffers.key.0 }];
        let uses_memory = receiver.traffic.op == Operation::Send;
        let wr_id = RECEIVE_WORK | u64::from(slot) << 32 | u64::from(index);
        let request = RecvRequest { wr_id, sges: if uses_memory { &sges } else { &[] } };
        engine.post_recv(receiver.qpn, &request).expect("the queue has a free entry");
        receiver.posted += 1;
        self.receives.posted(slot);
    }

    /// Handles a completion.
    pub(crate) fn complete(
        &mut self,
        now: Time,
        completion: &Completion,
        engine: &mut Engine,
        memory: Option<&mut Memory>,
        violations: &mut Violations,
    ) {
        let (slot, index) = ((completion.wr_id & !RECEIVE_WORK) >> 32, completion.wr_id as u32);
        let is_receive = completion.wr_id & RECEIVE_WORK != 0;
        let ledger = if is_receive { &mut self.receives } else { &mut self.sends };
        if let Err(what) = ledger.completed(slot as u32, index, completion.status) {
            return violations.add(now, what);
        }
        let verdict = if is_receive {
            self.complete_receive(now, slot as u32, completion, engine, memory)
        } else {
            self.complete_send(now, slot as u32, index, engine, memory)
        };
        if let Err(what) = verdict {
            violations.add(now, what);
        }
    }

    fn complete_send(
        &mut self,
        now: Time,
        slot: u32,
        index: u32,
        engine: &mut Engine,
        memory: Option<&mut Memory>,
    ) -> Result<(), String> {
        let sender = &mut self.senders[slot as usize];
        let verdict = memory.as_deref().map_or(Ok(()), |memory| check_response_data(sender, index, memory));
        if let Some(at) = sender.posted_at.get((index % sender.traffic.depth) as usize) {
            // Messages that started in the warm-up or in the cooldown are not counted, as with flows.
            if let Some(tally) = sender.tenant.or(sender.group) {
                self.tallies[tally as usize].completed(*at, now);
            } else if self.steady.is_none_or(|(from, until)| (from..until).contains(at)) {
                self.latencies.push(now.since(*at));
            }
        }
        sender.completed += 1;
        self.messages += 1;
        if self.steady.is_some_and(|(from, until)| (from..=until).contains(&now)) {
            let bytes = u64::from(sender.len_of(index));
            self.steady_bytes += bytes;
            sender.rate.completed(now, bytes);
        }
        let can_stop = sender.backlog.is_none() || sender.tenant.is_some();
        if can_stop && sender.traffic.until.is_some_and(|until| now >= until) {
            sender.stop();
        }
        let thinks = sender.traffic.think > Duration::ZERO;
        if thinks && let Some(at) = sender.think(now) {
            self.thinking.push_back((at, slot));
        }
        let (flow, done, more) = (sender.flow, sender.completed == sender.messages, !thinks && sender.has_more());
        let mut memory = memory;
        if done {
            self.flow_events.push(FlowEvent { at: now, flow, delivered: false });
        } else if more {
            self.post_send(now, slot, engine, memory.as_deref_mut());
        }
        if let Some(script) = &mut self.script {
            script.sent(now, flow, index);
            self.send_of_script(now, engine, memory);
        }
        verdict
    }

    fn complete_receive(
        &mut self,
        now: Time,
        slot: u32,
        completion: &Completion,
        engine: &mut Engine,
        memory: Option<&mut Memory>,
    ) -> Result<(), String> {
        let receiver = &mut self.receivers[slot as usize];
        let index = receiver.completed;
        let verdict = check_received(receiver, index, completion, memory.as_deref());
        receiver.completed += 1;
        let (flow, is_ranked) = (receiver.flow, receiver.is_ranked);
        if receiver.completed == receiver.messages {
            self.flow_events.push(FlowEvent { at: now, flow, delivered: true });
        } else if receiver.posted < receiver.messages {
            self.post_receive(slot, engine);
        }
        if self.rank.as_mut().is_some_and(|rank| is_ranked && rank.arrive(now, index)) {
            self.send_released(now, engine, memory);
        } else if let Some(script) = &mut self.script {
            script.arrived(now, flow, index);
            self.send_of_script(now, engine, memory);
        }
        verdict
    }

    /// Returns a sender that has begun to think, and when it is to begin again.
    pub(crate) fn take_thinking(&mut self) -> Option<(Time, u32)> {
        self.thinking.pop_front()
    }

    /// Starts the tasks of a script that may start at `now`.
    pub(super) fn wake_script(&mut self, now: Time, engine: &mut Engine, memory: Option<&mut Memory>) {
        if let Some(script) = &mut self.script {
            script.wake(now);
            self.send_of_script(now, engine, memory);
        }
    }

    /// Posts the messages whose tasks have started.
    fn send_of_script(&mut self, now: Time, engine: &mut Engine, mut memory: Option<&mut Memory>) {
        while let Some((slot, released)) = self.script.as_mut().and_then(|script| script.take_released()) {
            self.senders[slot as usize].released = released;
            loop {
                let sender = &self.senders[slot as usize];
                if !sender.has_more() || sender.posted - sender.completed >= sender.traffic.depth {
                    break;
                }
                self.post_send(now, slot, engine, memory.as_deref_mut());
            }
        }
    }

    /// Posts the messages of the next step of a collective, which has started at this rank.
    fn send_released(&mut self, now: Time, engine: &mut Engine, mut memory: Option<&mut Memory>) {
        let Some(mut rank) = self.rank.take() else { return };
        for &slot in &rank.senders {
            let sender = &mut self.senders[slot as usize];
            sender.released = rank.released();
            if sender.has_more() && sender.posted - sender.completed < sender.traffic.depth {
                self.post_send(now, slot, engine, memory.as_deref_mut());
            }
        }
        if rank.is_at_last_step() {
            // The last step has started: all messages may be sent, so each sender finishes independently.
            rank.senders.clear();
        }
        self.rank = Some(rank);
    }
}

/// Checks the data that a Read or an atomic returned.
fn check_response_data(sender: &Sender, index: u32, memory: &Memory) -> Result<(), String> {
    let Some(block) = sender.buffers.block else { return Ok(()) };
    let local = block.local + slot_offset(&sender.traffic, sender.bytes, index);
    match sender.traffic.op {
        Operation::Read => {
            let len = u64::from(sender.traffic.message_len(sender.bytes, index));
            let seed = message_seed(sender.seed, index % sender.traffic.depth);
            compare(memory, local, len, seed, sender.flow, index)
        }
        Operation::FetchAdd | Operation::CompareSwap => {
            let found = u64::from_ne_bytes(*memory.bytes(local, 8).first_chunk().expect("the block has eight bytes"));
            if found == u64::from(index) {
                return Ok(());
            }
            Err(format!("flow {}: atomic operation {index} returned {found} instead of its own index", sender.flow))
        }
        Operation::Write | Operation::WriteImmediate | Operation::Send => Ok(()),
    }
}

fn check_received(
    receiver: &Receiver,
    index: u32,
    completion: &Completion,
    memory: Option<&Memory>,
) -> Result<(), String> {
    let len = len_of(receiver.lengths.as_deref(), &receiver.traffic, receiver.bytes, index);
    let flow = receiver.flow;
    if completion.byte_len != len || completion.word != index {
        let (found, word) = (completion.byte_len, completion.word);
        return Err(format!(
            "flow {flow}: message {index} of {len} bytes was received as message {word} of {found} bytes"
        ));
    }
    match (memory, receiver.buffers.block) {
        (Some(memory), Some(block)) => {
            let local = block.local + slot_offset(&receiver.traffic, receiver.bytes, index);
            compare(memory, local, u64::from(len), message_seed(receiver.seed, index), flow, index)
        }
        _ => Ok(()),
    }
}

fn compare(memory: &Memory, local: u64, len: u64, seed: u64, flow: u32, index: u32) -> Result<(), String> {
    match memory.first_difference(local, len, seed) {
        None => Ok(()),
        Some(at) => Err(format!("flow {flow}: the data of message {index} is wrong from byte {at} of {len} on")),
    }
}

/// Bit in a work request number that identifies a receive.
const RECEIVE_WORK: u64 = 1 << 62;
