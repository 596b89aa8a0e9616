//! Two NICs with transaction layers over a faulty network, without the delivery layer: a minimal model of delivery.
//!
//! A window is a bound on packets not yet acknowledged. Packets, acknowledgements and refusals may be lost, duplicated
//! and reordered. All random numbers come from one seeded stream, and the next step is chosen from it, so a run is a
//! random schedule.

use std::collections::BTreeMap;

use rnic_base::{Duration, Psn32, RandomStream, RandomStreams, Time};
use rnic_wire::falcon::{Body, Cid, NackCode, Packet, Ulp};

use super::ulp::{Announced, RSN_FIRST, Receives, Recorder, UpperLayerBehaviour};
use crate::interface::{Context, Gates, Outgoing, Received, Upper, Verdict, Window, number};
use crate::resources::threshold::{Alpha, Isolation};
use crate::resources::{ResourceConfig, Resources};
use crate::transaction::{
    Kind, Layer, PacketDecision, PullResponse, RespondError, Submission, SubmitError, TransactionConfig, Transactions,
};

/// Behaviour of the network and of the model that replaces the delivery layer.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Resources of each NIC.
    pub resources: ResourceConfig,
    /// Configuration of each connection.
    pub transactions: TransactionConfig,
    /// Behaviour of the upper layers.
    pub manners: UpperLayerBehaviour,
    /// Pushes per thousand transactions.
    pub pushes: u64,
    /// Maximum number of Pulls that an end has in flight; 0 for no limit but the resources.
    pub pulls_out: usize,
    /// Maximum number of Pushes of a message, at least 1.
    pub message: u32,
    /// Receives that the connections of a NIC share, one for each message in flight; 0 for as many as needed.
    pub receives: u32,
    /// Number of connections, all between the same two NICs.
    pub connections: usize,
    /// Maximum number of packets of a window not yet acknowledged.
    pub window: usize,
    /// True for one sequence space for both windows (which F-4 forbids).
    pub shared_space: bool,
    /// Probability that an upper layer performs pending work when it is scheduled, in thousandths.
    pub work_probability: u64,
    /// Probability of loss, in thousandths.
    pub lost: u64,
    /// Probability of duplication, in thousandths.
    pub doubled: u64,
}

/// A message in flight.
#[derive(Clone, Copy, Debug)]
pub enum Message {
    /// A packet of a transaction.
    Packet(Packet),
    /// The acknowledgement of a packet.
    Acked(Received),
    /// The refusal of a packet.
    Nacked(Received, NackCode),
}

/// One end of a connection.
#[derive(Debug)]
pub struct End {
    /// Transaction layer of this end.
    pub transactions: Transactions,
    /// Upper layer of this end.
    pub ulp: Recorder,
    /// Packets sent and not acknowledged, by window and number.
    pub outstanding: BTreeMap<(Window, u32), Context>,
    next_psn: [u32; 2],
    /// Packets that have arrived; true when acknowledged.
    arrived: BTreeMap<(Window, u32), bool>,
    /// The tag of the next transaction, equal to the number submitted so far.
    pub next_tag: u64,
    /// Tags of Pulls.
    pulls: Vec<u64>,
    /// Pushes of the message started last that are still to be submitted.
    pushes_left: u32,
}

/// Two NICs and the network between them.
#[derive(Debug)]
pub struct Net {
    /// Behaviour of network, connections and upper layers.
    pub scenario: Scenario,
    /// Current simulated time.
    pub now: Time,
    /// Random stream from which the next step is chosen.
    pub random: RandomStream,
    /// Free resources of each NIC.
    pub nics: [Resources; 2],
    /// Ends, by NIC and then by connection.
    pub ends: [Vec<End>; 2],
    /// Messages in flight: destination NIC, connection and message.
    pub air: Vec<(usize, usize, Message)>,
}

impl Net {
    /// Creates the initial state, before any step.
    pub fn new(scenario: Scenario, seed: u64) -> Self {
        let streams = RandomStreams::new(seed);
        let receives = [0, 1].map(|_| (scenario.receives > 0).then(|| Receives::new(scenario.receives)));
        let end = |nic: usize, connection: usize| End {
            transactions: Transactions::new(scenario.transactions, RSN_FIRST),
            ulp: Recorder::new(
                scenario.manners,
                streams.stream(&format!("ulp/{nic}/{connection}")),
                receives[nic].clone(),
            ),
            outstanding: BTreeMap::new(),
            next_psn: [0; 2],
            arrived: BTreeMap::new(),
            next_tag: 0,
            pulls: Vec::new(),
            pushes_left: 0,
        };
        Self {
            scenario,
            now: Time::ZERO,
            random: streams.stream("network"),
            nics: [Resources::new(scenario.resources), Resources::new(scenario.resources)],
            ends: [0, 1].map(|nic| (0..scenario.connections).map(|connection| end(nic, connection)).collect()),
            air: Vec::new(),
        }
    }

    /// Submits a transaction; a Push is a complete message.
    ///
    /// # Errors
    /// When it is not accepted.
    pub fn submit(&mut self, nic: usize, connection: usize, kind: Kind, length: u16) -> Result<(), SubmitError> {
        let announced = if kind == Kind::Push { Announced::Begins(1) } else { Announced::Pull };
        self.pass_to_engine(nic, connection, announced, length)
    }

    fn pass_to_engine(
        &mut self,
        nic: usize,
        connection: usize,
        announced: Announced,
        length: u16,
    ) -> Result<(), SubmitError> {
        let kind = if announced == Announced::Pull { Kind::Pull } else { Kind::Push };
        let continues = announced == Announced::GoesOn;
        let end = &mut self.ends[nic][connection];
        let payload_len = if kind == Kind::Push { u32::from(length) } else { 0 };
        let submission = Submission { kind, length, payload_len, ulp: None, tag: end.next_tag, continues };
        end.transactions.submit(&mut self.nics[nic], &submission)?;
        if kind == Kind::Pull {
            end.pulls.push(end.next_tag);
        }
        end.next_tag += 1;
        self.ends[1 - nic][connection].ulp.announce(announced);
        Ok(())
    }

    /// Starts a message of `pushes`, with a first Push of `length` bytes.
    fn begin_message(&mut self, nic: usize, connection: usize, pushes: u32, length: u16) {
        if self.pass_to_engine(nic, connection, Announced::Begins(pushes), length).is_ok() {
            self.ends[nic][connection].pushes_left = pushes - 1;
        }
    }

    /// Submits the next Push of the message started last; returns whether there was one and it was accepted.
    fn continue_message(&mut self, nic: usize, connection: usize, length: u16) -> bool {
        if self.ends[nic][connection].pushes_left == 0
            || self.pass_to_engine(nic, connection, Announced::GoesOn, length).is_err()
        {
            return false;
        }
        self.ends[nic][connection].pushes_left -= 1;
        true
    }

    /// Returns the number of outstanding Pulls of a connection at a NIC.
    fn pulls_out(&self, nic: usize, connection: usize) -> usize {
        let end = &self.ends[nic][connection];
        let is_complete = |tag: &&u64| end.ulp.completions.iter().any(|completion| completion.tag == **tag);
        end.pulls.len() - end.pulls.iter().filter(is_complete).count()
    }

    /// Returns the transaction layer of one end, with the resources and the upper layer that it uses.
    pub fn layer(&mut self, nic: usize, connection: usize) -> Layer<'_, Recorder> {
        let end = &mut self.ends[nic][connection];
        Layer { transactions: &mut end.transactions, resources: &mut self.nics[nic], ulp: &mut end.ulp }
    }

    fn gates(&self, nic: usize, connection: usize) -> Gates {
        let end = &self.ends[nic][connection];
        // From the oldest unacknowledged packet to the last one sent, as a delivery layer counts.
        let span = |window| {
            let oldest = end.outstanding.range((window, 0)..=(window, u32::MAX)).next();
            oldest.map_or(0, |((_, number), _)| (end.next_psn[window as usize] - number) as usize)
        };
        let (requests, data) = (span(Window::Request), span(Window::Data));
        let (requests, data) =
            if self.scenario.shared_space { (requests + data, requests + data) } else { (requests, data) };
        let (request, data) = (requests < self.scenario.window, data < self.scenario.window);
        Gates { pull_request: request, push_data: data, pull_data: data }
    }

    /// Sends the next packet; returns whether one was sent.
    ///
    /// # Panics
    /// When a transaction layer attempts to send a packet that only delivery layers send.
    pub fn send(&mut self, nic: usize, connection: usize) -> bool {
        let (now, open) = (self.now, self.gates(nic, connection));
        let Some(outgoing) = self.layer(nic, connection).next(now, open) else { return false };
        let window = outgoing.body.window().expect("the packet has a window");
        let end = &mut self.ends[nic][connection];
        let next = &mut end.next_psn[window as usize];
        let psn = *next;
        *next += 1;
        end.outstanding.insert((window, psn), outgoing.context);
        self.put(nic, connection, psn, outgoing);
        true
    }

    fn put(&mut self, nic: usize, connection: usize, psn: u32, outgoing: Outgoing) {
        let mut packet = Packet { cid: Cid::new(connection as u32), ..Packet::BLANK };
        outgoing.put(&mut packet);
        number(&mut packet.body, Psn32::new(psn));
        self.send_copies(1 - nic, connection, Message::Packet(packet));
    }

    fn send_copies(&mut self, to: usize, connection: usize, message: Message) {
        let mut copies = 1;
        copies -= usize::from(self.random.below(1_000) < self.scenario.lost);
        copies += usize::from(self.random.below(1_000) < self.scenario.doubled);
        (0..copies).for_each(|_| self.air.push((to, connection, message)));
    }

    /// Retransmits the `nth` outstanding packet.
    pub fn repeat(&mut self, nic: usize, connection: usize, nth: usize) {
        let Some((&(_, psn), &context)) = self.ends[nic][connection].outstanding.iter().nth(nth) else { return };
        let now = self.now;
        let outgoing = self.layer(nic, connection).retransmission(now, context);
        self.put(nic, connection, psn, outgoing);
    }

    /// Returns the number of packets sent and not acknowledged.
    pub fn outstanding(&self, nic: usize, connection: usize) -> usize {
        self.ends[nic][connection].outstanding.len()
    }

    /// Delivers a random packet that is in flight.
    pub fn deliver(&mut self) -> bool {
        if self.air.is_empty() {
            return false;
        }
        let index = self.random.below(self.air.len() as u64) as usize;
        self.arrive(index);
        true
    }

    /// Delivers the message with that index in [`Self::air`].
    ///
    /// # Panics
    /// When there is none, or when a transaction layer drops it.
    pub fn arrive(&mut self, index: usize) {
        let (nic, connection, message) = self.air.swap_remove(index);
        match message {
            Message::Packet(packet) => self.receive(nic, connection, &packet),
            Message::Acked(received) => self.acked(nic, connection, received),
            Message::Nacked(received, code) => self.nacked(nic, connection, received, code),
        }
        self.drain(nic, connection);
    }

    fn receive(&mut self, nic: usize, connection: usize, packet: &Packet) {
        let (window, psn) = (packet.body.window().expect("it has a window"), packet.body.psn().expect("it has a PSN"));
        let received = Received { window, psn };
        let key = (received.window, received.psn.value());
        let now = self.now;
        let is_resync = matches!(packet.body, Body::Resync { .. });
        match self.ends[nic][connection].arrived.get(&key).copied() {
            Some(true) => self.send_copies(1 - nic, connection, Message::Acked(received)),
            Some(false) if !is_resync => {
                if let Some(code) = self.layer(nic, connection).duplicate(now, packet) {
                    self.send_copies(1 - nic, connection, Message::Nacked(received, code));
                }
            }
            _ => {
                let verdict = self.layer(nic, connection).offer(now, packet);
                let arrived = &mut self.ends[nic][connection].arrived;
                match verdict {
                    Verdict::Accepted { acknowledged } => {
                        arrived.insert(key, acknowledged);
                        if acknowledged {
                            self.send_copies(1 - nic, connection, Message::Acked(received));
                        }
                    }
                    Verdict::Refused(code) => {
                        arrived.insert(key, false);
                        self.send_copies(1 - nic, connection, Message::Nacked(received, code));
                    }
                    Verdict::NoResources => {
                        self.send_copies(1 - nic, connection, Message::Nacked(received, NackCode::Resource));
                    }
                    Verdict::Dropped => panic!("dropped {packet:?}"),
                }
            }
        }
    }

    fn acked(&mut self, nic: usize, connection: usize, received: Received) {
        let key = (received.window, received.psn.value());
        let Some(context) = self.ends[nic][connection].outstanding.remove(&key) else { return };
        let now = self.now;
        self.layer(nic, connection).acked(now, context);
    }

    fn nacked(&mut self, nic: usize, connection: usize, received: Received, code: NackCode) {
        let key = (received.window, received.psn.value());
        let Some(&context) = self.ends[nic][connection].outstanding.get(&key) else { return };
        if matches!(code, NackCode::Resource | NackCode::NotReady { .. }) {
            return;
        }
        let now = self.now;
        self.layer(nic, connection).nacked(now, context, code);
        let outgoing = self.layer(nic, connection).retransmission(now, context);
        self.put(nic, connection, key.1, outgoing);
    }

    /// Sends acknowledgements and refusals for the requests that the upper layer has settled.
    fn drain(&mut self, nic: usize, connection: usize) {
        while let Some(settled) = self.ends[nic][connection].transactions.settled() {
            match settled {
                PacketDecision::Acknowledged(received) => {
                    let key = (received.window, received.psn.value());
                    self.ends[nic][connection].arrived.insert(key, true);
                    self.send_copies(1 - nic, connection, Message::Acked(received));
                }
                PacketDecision::Refused(received, code) => {
                    self.send_copies(1 - nic, connection, Message::Nacked(received, code));
                }
            }
        }
    }

    /// Lets the upper layer perform one item of pending work; returns whether it could.
    pub fn work(&mut self, nic: usize, connection: usize) -> bool {
        let end = &mut self.ends[nic][connection];
        let pull_first = end.ulp.random.below(2) == 0;
        let mut done = false;
        if !pull_first && let Some(rsn) = end.ulp.pushes.pop_front() {
            // Fails for a request that a Resync has skipped in the meantime: it is no longer known to the connection.
            if end.transactions.acknowledge(rsn).is_ok() {
                end.ulp.acknowledged(rsn);
            }
            done = true;
        } else if let Some(&(rsn, length)) = end.ulp.pulls.front() {
            let answer = PullResponse { payload_len: u32::from(length), length: u32::from(length), ulp: Ulp::None };
            match end.transactions.respond(&mut self.nics[nic], rsn, &answer) {
                Err(RespondError::Paused) => {}
                Ok(()) | Err(_) => {
                    end.ulp.pulls.pop_front();
                    done = true;
                }
            }
        }
        if done {
            let now = self.now;
            self.layer(nic, connection).resume(now);
        }
        self.drain(nic, connection);
        done
    }

    /// Advances the simulated time.
    pub fn pass_time(&mut self, by: Duration) {
        self.now += by;
        let now = self.now;
        for nic in 0..2 {
            for connection in 0..self.scenario.connections {
                self.layer(nic, connection).tick(now);
                self.drain(nic, connection);
            }
        }
    }

    /// Performs one random step; a submitted transaction is at most `length_max` bytes long.
    pub fn step(&mut self, length_max: u16) {
        let nic = self.random.below(2) as usize;
        let connection = self.random.below(self.scenario.connections as u64) as usize;
        match self.random.below(8) {
            0 | 1 => self.submit_random(nic, connection, length_max),
            2 | 3 => drop(self.send(nic, connection)),
            4 | 5 => drop(self.deliver()),
            6 if self.random.below(1_000) < self.scenario.work_probability => drop(self.work(nic, connection)),
            6 => {}
            _ => {
                let outstanding = self.outstanding(nic, connection);
                if outstanding > 0 {
                    let nth = self.random.below(outstanding as u64) as usize;
                    self.repeat(nic, connection, nth);
                }
                self.set_random_shares(nic, connection);
                self.pass_time(Duration::from_us(3));
            }
        }
    }

    /// Sets the connection's shares to random values, where it has shares.
    fn set_random_shares(&mut self, nic: usize, connection: usize) {
        if self.scenario.transactions.isolation == Isolation::Dynamic {
            let shares = u64::from(Alpha::SHIFT_MAX) + 1;
            let [request, data] = [0, 1].map(|_| Alpha::from_shift(self.random.below(shares) as u8));
            self.ends[nic][connection].transactions.set_alphas(request, data);
        }
    }

    /// Submits a transaction of an upper layer. All Pushes of a message are submitted before any other transaction of
    /// its connection.
    fn submit_random(&mut self, nic: usize, connection: usize, length_max: u16) {
        let is_push = self.random.below(1_000) < self.scenario.pushes;
        let length = self.random.between(1, u64::from(length_max)) as u16;
        if self.ends[nic][connection].pushes_left > 0 {
            self.continue_message(nic, connection, length);
        } else if is_push {
            let longest = self.scenario.message;
            let pushes = if longest > 1 { self.random.between(1, longest.into()) as u32 } else { 1 };
            self.begin_message(nic, connection, pushes, length);
        } else {
            let limit = self.scenario.pulls_out;
            if limit == 0 || self.pulls_out(nic, connection) < limit {
                let _ = self.submit(nic, connection, Kind::Pull, length);
            }
        }
    }

    fn progress(&self) -> u64 {
        self.ends
            .iter()
            .flatten()
            .map(|end| {
                let stats = end.transactions.stats();
                stats.completed
                    + stats.delivered
                    + end.next_psn.iter().map(|psn| u64::from(*psn)).sum::<u64>()
                    + end.ulp.refused.len() as u64
            })
            .sum()
    }

    /// Stops losses and new requests, except the rest of messages that have started, and runs the remaining steps;
    /// returns whether all pending work completes.
    pub fn settle(&mut self) -> bool {
        let length = self.scenario.transactions.mtu;
        (self.scenario.lost, self.scenario.doubled) = (0, 0);
        let mut quiet_rounds = 0;
        while quiet_rounds < 40 {
            let before = self.progress();
            for nic in 0..2 {
                for connection in 0..self.scenario.connections {
                    while self.continue_message(nic, connection, length) {}
                    while self.send(nic, connection) {}
                    (0..self.outstanding(nic, connection)).for_each(|nth| self.repeat(nic, connection, nth));
                    while self.deliver() {}
                    while self.work(nic, connection) {}
                }
            }
            self.pass_time(Duration::from_us(20));
            if self.is_idle() {
                return true;
            }
            quiet_rounds = if self.progress() == before { quiet_rounds + 1 } else { 0 };
        }
        false
    }

    /// Returns whether nothing is in flight and no resources are held.
    pub fn is_idle(&self) -> bool {
        self.air.is_empty()
            && self.nics.iter().all(Resources::is_idle)
            && self.ends.iter().flatten().all(|end| {
                end.transactions.is_idle()
                    && end.outstanding.is_empty()
                    && end.pushes_left == 0
                    && end.ulp.completions.len() as u64 == end.next_tag
            })
    }
}
