//! What a host does with its engine: the two ends of flows.
//!
//! A flow is one queue pair pair that carries messages of one kind, at most so many at a time. Most workloads make
//! flows of one message; message streams and closed loops make them of many. The sending end posts the next message
//! when one completes, the receiving end puts back each receive that is used: all of that is decided here, at once and
//! without the network's help. Queue pairs are made and ended from outside, see [`crate::Simulation`].

use rnic_base::Time;
use rnic_engine::{Completion, Engine, Key, RecvRequest, RemoteMemory, SendFlags, SendOp, SendRequest, Sge};
use rnic_wire::Qpn;

use std::collections::VecDeque;
use std::sync::Arc;

use super::memory::{Block, Memory};
use super::pace::Pace;
use super::rank::Rank;
use crate::check::{Ledger, Violations};
use crate::slots::Slots;
use crate::workload::{Arrivals, Operation, Traffic};

/// Memory that one end of a flow uses: a slot for every message that may be under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffers {
    /// Address in work requests.
    pub(crate) addr: u64,
    pub(crate) key: Key,
    /// Where it really is, when bytes matter.
    pub(crate) block: Option<Block>,
}

/// The sending end of a flow: the side that posts.
#[derive(Debug)]
pub(crate) struct Sender {
    /// Which flow, for the news.
    pub(crate) flow: u32,
    pub(crate) qpn: Qpn,
    pub(crate) traffic: Arc<Traffic>,
    /// Bytes of all messages.
    pub(crate) bytes: u64,
    pub(crate) buffers: Buffers,
    /// The slots at the far end.
    pub(crate) remote: RemoteMemory,
    /// What its patterns are called.
    pub(crate) seed: u64,
    /// Messages posted, and completed.
    pub(crate) posted: u32,
    pub(crate) completed: u32,
    /// Messages in all; fewer when the time is over before.
    pub(crate) messages: u32,
    /// Of these, so many may be posted: all, but in a collective.
    released: u32,
    /// When the messages under way were posted, or came, by slot, where latencies are wanted.
    posted_at: Box<[Time]>,
    /// Messages that come at their own times.
    backlog: Option<Box<Backlog>>,
    /// How fast it was in the time that counts.
    pace: Pace,
}

/// What comes to a sender whether it can post it or not.
#[derive(Debug)]
struct Backlog {
    arrivals: Arrivals,
    /// When those came that are not posted. No more than the load brings until the workload ends.
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
    /// Receives posted, and used.
    posted: u32,
    pub(crate) completed: u32,
    messages: u32,
}

/// Something that the flow's keeper must hear.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct News {
    pub(crate) at: Time,
    pub(crate) flow: u32,
    /// The last message has arrived and completed at the receiver; else at the sender.
    pub(crate) delivered: bool,
}

/// The flow ends of a host.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    senders: Slots<Sender>,
    receivers: Slots<Receiver>,
    sends: Ledger,
    receives: Ledger,
    pub(crate) news: Vec<News>,
    /// Post to completion of every message, where wanted.
    pub(crate) latencies: Vec<rnic_base::Duration>,
    pub(crate) messages: u64,
    /// Messages that complete from .. until count below.
    pub(crate) steady: Option<(Time, Time)>,
    /// Payload of those.
    pub(crate) steady_bytes: u64,
    /// How fast the senders were that have ended.
    paces: Vec<Pace>,
    /// Its part in a collective, where hosts do such.
    pub(crate) rank: Option<Box<Rank>>,
    /// Queue pairs with new work, one entry a request, where the NIC has to fetch it.
    pub(crate) doorbells: Option<Vec<Qpn>>,
}

/// Where in its memory a flow of `bytes` has message `index`.
pub(super) fn slot_offset(traffic: &Traffic, bytes: u64, index: u32) -> u64 {
    u64::from(index % traffic.depth) * traffic.slot_bytes(bytes)
}

impl Sender {
    /// A sender of `bytes` in messages as `traffic` has them.
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
            pace: Pace::default(),
        }
    }

    /// Its messages come at their own times, each by a call of [`Sessions::begin`].
    pub(crate) fn set_arrivals(&mut self, arrivals: Arrivals) {
        self.backlog = Some(Box::new(Backlog { arrivals, waiting: VecDeque::new() }));
    }

    /// Whether it has waited for the end of a message since `then`: one whose messages come at their own times may have
    /// nothing to wait for.
    pub(crate) fn waits_since(&self, then: Time) -> bool {
        let oldest = self.posted_at.get((self.completed % self.traffic.depth) as usize);
        self.backlog.is_none() || self.posted > self.completed && oldest.is_none_or(|at| *at <= then)
    }

    /// Whether a message waits to be posted.
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
        let len = self.traffic.message_len(self.bytes, index);
        Sge { addr: self.buffers.addr + slot, len, lkey: self.buffers.key.0 }
    }
}

impl Receiver {
    /// A receiver of `bytes` in messages as `traffic` has them.
    pub(crate) fn new(flow: u32, qpn: Qpn, traffic: Arc<Traffic>, bytes: u64, buffers: Buffers) -> Self {
        let messages = traffic.messages(bytes);
        Self { flow, qpn, traffic, bytes, buffers, seed: u64::from(flow) << 32, posted: 0, completed: 0, messages }
    }

    /// Receives posted that no message may ever use: of a closed loop that ends by the clock.
    fn spare(&self) -> u32 {
        self.posted - self.completed
    }
}

/// The name of the pattern of message `index`.
pub(super) fn message_seed(seed: u64, index: u32) -> u64 {
    seed | u64::from(index)
}

impl Sessions {
    /// Takes a sender; answers the number for [`Sessions::begin`].
    pub(crate) fn add_sender(&mut self, sender: Sender) -> u32 {
        let slot = self.senders.insert(sender);
        self.sends.open(slot);
        if let Some(rank) = &mut self.rank {
            rank.senders.push(slot);
            self.senders.get_mut(slot).released = rank.released();
        }
        slot
    }

    /// Takes a receiver and posts its first receives.
    pub(crate) fn add_receiver(&mut self, receiver: Receiver, engine: &mut Engine) -> u32 {
        let first = receiver.messages.min(receiver.traffic.depth);
        let slot = self.receivers.insert(receiver);
        self.receives.open(slot);
        (0..first).for_each(|_| self.post_receive(slot, engine));
        slot
    }

    /// Ends a sender, for good; what it left undone goes to `violations`.
    pub(crate) fn remove_sender(&mut self, at: Time, slot: u32, violations: &mut Violations) -> Sender {
        self.sends.close(slot, 0).unwrap_or_else(|what| violations.add(at, what));
        let sender = self.senders.remove(slot);
        self.paces.extend(sender.pace.is_known().then_some(sender.pace));
        sender
    }

    /// Ends a receiver, for good.
    pub(crate) fn remove_receiver(&mut self, at: Time, slot: u32, violations: &mut Violations) -> Receiver {
        let receiver = self.receivers.remove(slot);
        self.receives.close(slot, receiver.spare()).unwrap_or_else(|what| violations.add(at, what));
        receiver
    }

    /// How fast each sender was whose pace is known.
    pub(crate) fn paces(&self) -> impl Iterator<Item = Pace> {
        let running = self.senders.iter().map(|sender| sender.pace).filter(Pace::is_known);
        self.paces.iter().copied().chain(running)
    }

    pub(crate) fn sender(&self, slot: u32) -> &Sender {
        self.senders.get(slot)
    }

    /// Ends of flows that are still there.
    pub(crate) fn open_count(&self) -> usize {
        self.sends.open_count() + self.receives.open_count()
    }

    /// Posts the first messages of a sender; or the one that has come, where they come at their own times. Answers when
    /// the next one comes.
    pub(crate) fn begin(
        &mut self,
        now: Time,
        slot: u32,
        engine: &mut Engine,
        mut memory: Option<&mut Memory>,
    ) -> Option<Time> {
        let sender = self.senders.get_mut(slot);
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
        for _ in 0..sender.messages.min(sender.traffic.depth).min(sender.released) {
            self.post_send(now, slot, engine, memory.as_deref_mut());
        }
        None
    }

    fn post_send(&mut self, now: Time, slot: u32, engine: &mut Engine, memory: Option<&mut Memory>) {
        let sender = self.senders.get_mut(slot);
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
        engine.post_send(sender.qpn, &request).expect("the queue was made for as many as are posted");
        let came = sender.backlog.as_mut().and_then(|backlog| backlog.waiting.pop_front());
        if let Some(at) = sender.posted_at.get_mut((index % sender.traffic.depth) as usize) {
            *at = came.unwrap_or(now);
        }
        sender.posted += 1;
        if let Some(doorbells) = &mut self.doorbells {
            doorbells.push(sender.qpn);
        }
        self.sends.posted(slot);
    }

    fn post_receive(&mut self, slot: u32, engine: &mut Engine) {
        let receiver = self.receivers.get_mut(slot);
        let index = receiver.posted;
        let offset = slot_offset(&receiver.traffic, receiver.bytes, index);
        let len = receiver.traffic.slot_bytes(receiver.bytes) as u32;
        let sges = [Sge { addr: receiver.buffers.addr + offset, len, lkey: receiver.buffers.key.0 }];
        let uses_memory = receiver.traffic.op == Operation::Send;
        let wr_id = RECEIVE | u64::from(slot) << 32 | u64::from(index);
        let request = RecvRequest { wr_id, sges: if uses_memory { &sges } else { &[] } };
        engine.post_recv(receiver.qpn, &request).expect("the queue was made for as many as are posted");
        receiver.posted += 1;
        self.receives.posted(slot);
    }

    /// A completion came in.
    pub(crate) fn complete(
        &mut self,
        now: Time,
        completion: &Completion,
        engine: &mut Engine,
        memory: Option<&mut Memory>,
        violations: &mut Violations,
    ) {
        let (slot, index) = ((completion.wr_id & !RECEIVE) >> 32, completion.wr_id as u32);
        let is_receive = completion.wr_id & RECEIVE != 0;
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
        let sender = self.senders.get_mut(slot);
        let verdict = memory.as_deref().map_or(Ok(()), |memory| check_answer(sender, index, memory));
        if let Some(at) = sender.posted_at.get((index % sender.traffic.depth) as usize) {
            // As with flows: what began in the warm-up does not count, nor in the cooldown.
            if self.steady.is_none_or(|(from, until)| (from..until).contains(at)) {
                self.latencies.push(now.since(*at));
            }
        }
        sender.completed += 1;
        self.messages += 1;
        if self.steady.is_some_and(|(from, until)| (from..=until).contains(&now)) {
            let bytes = u64::from(sender.traffic.message_len(sender.bytes, index));
            self.steady_bytes += bytes;
            sender.pace.completed(now, bytes);
        }
        if sender.backlog.is_none() && sender.traffic.until.is_some_and(|until| now >= until) {
            sender.messages = sender.messages.min(sender.posted);
        }
        let (done, more) = (sender.completed == sender.messages, sender.has_more());
        if done {
            self.news.push(News { at: now, flow: sender.flow, delivered: false });
        } else if more {
            self.post_send(now, slot, engine, memory);
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
        let receiver = self.receivers.get_mut(slot);
        let index = receiver.completed;
        let verdict = check_received(receiver, index, completion, memory.as_deref());
        receiver.completed += 1;
        if receiver.completed == receiver.messages {
            self.news.push(News { at: now, flow: receiver.flow, delivered: true });
        } else if receiver.posted < receiver.messages {
            self.post_receive(slot, engine);
        }
        if self.rank.as_mut().is_some_and(|rank| rank.arrive(now, index)) {
            self.send_released(now, engine, memory);
        }
        verdict
    }

    /// The next step of a collective has begun at this rank.
    fn send_released(&mut self, now: Time, engine: &mut Engine, mut memory: Option<&mut Memory>) {
        let Some(mut rank) = self.rank.take() else { return };
        for &slot in &rank.senders {
            let sender = self.senders.get_mut(slot);
            sender.released = rank.released();
            if sender.has_more() && sender.posted - sender.completed < sender.traffic.depth {
                self.post_send(now, slot, engine, memory.as_deref_mut());
            }
        }
        if rank.is_at_last_step() {
            // Each ends by itself now.
            rank.senders.clear();
        }
        self.rank = Some(rank);
    }
}

/// Whether what a read or an atomic has brought back is right.
fn check_answer(sender: &Sender, index: u32, memory: &Memory) -> Result<(), String> {
    let Some(block) = sender.buffers.block else { return Ok(()) };
    let local = block.local + slot_offset(&sender.traffic, sender.bytes, index);
    match sender.traffic.op {
        Operation::Read => {
            let len = u64::from(sender.traffic.message_len(sender.bytes, index));
            let seed = message_seed(sender.seed, index % sender.traffic.depth);
            compare(memory, local, len, seed, sender.flow, index)
        }
        Operation::FetchAdd | Operation::CompareSwap => {
            let found = u64::from_ne_bytes(*memory.bytes(local, 8).first_chunk().expect("eight bytes"));
            if found == u64::from(index) {
                return Ok(());
            }
            Err(format!("flow {}: atomic {index} found {found}", sender.flow))
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
    let (flow, len) = (receiver.flow, receiver.traffic.message_len(receiver.bytes, index));
    if completion.byte_len != len || completion.word != index {
        let (found, word) = (completion.byte_len, completion.word);
        return Err(format!("flow {flow}: message {index} of {len} bytes came as message {word} of {found} bytes"));
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
        Some(at) => Err(format!("flow {flow}: message {index} is wrong from byte {at} of {len} on")),
    }
}

/// Marks the work request numbers of receives.
const RECEIVE: u64 = 1 << 62;
