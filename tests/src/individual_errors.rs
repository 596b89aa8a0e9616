//! A second test driver, for behaviour beyond verbs: queue pairs whose requests fail alone, in every ordering mode of
//! Falcon.
//!
//! The first test driver expects a failed request to end its queue pair, and completions in order. Here no failure ends
//! a queue pair. Each end has slots of its own in the other's memory, and uses a slot again when its request is
//! complete:
//!
//! * every request completes once, with the expected status; in order, in the modes that have an order;
//! * the data of a completed Write or Read are in the right location, and a refused request has changed nothing;
//! * every message is received once, completely; the receive of one that was too long fails;
//! * atomics form a sequence;
//! * in the end everything completes, and no resources are held.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use rnic_base::{Duration, Psn, RandomStream, RandomStreams};
use rnic_engine::{
    Access, Completion, CqId, Key, PeerId, PostError, QpAttributes, QpConnection, QpState, QpTiming, RecvRequest,
    RemoteMemory, RnrTimer, SendFlags, SendOp, SendRequest, Service, Sge, Transport, WcOpcode, WcStatus,
};
use rnic_wire::Qpn;

use crate::backend::{Backend, RegionId};
use crate::body::{Tally, packets_of};
use crate::scenario::{Place, Scenario, one_in, pick};

/// Bytes of a slot.
const SLOT_BYTES: u32 = 1 << 13;
/// Maximum requests of an end in flight, and the number of slots of each type that it has.
const REQUESTS_MAX: u64 = 24;
/// Maximum number of posted receives of an end.
const RECEIVES_MAX: u64 = 16;
const MTU: u32 = 1_024;

/// Type of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operation {
    Write {
        immediate: bool,
    },
    Send,
    /// A Send longer than any receive.
    LongSend,
    Read,
    Add,
    /// A request that no memory grants, and the status with which it is refused.
    Refused(WcStatus),
}

impl Operation {
    fn draw(random: &mut RandomStream) -> Self {
        match random.below(16) {
            0..=4 => Self::Write { immediate: false },
            5 => Self::Write { immediate: true },
            6..=8 => Self::Send,
            9 => Self::LongSend,
            10..=11 => Self::Read,
            12..=13 => Self::Add,
            14 => Self::Refused(WcStatus::RemoteAccess),
            _ => Self::Refused(WcStatus::RemoteInvalidRequest),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Request {
    operation: Operation,
    len: u32,
    slot: u64,
    /// Separate keys of its memory, at its own host and at the other, if there are any: deregistered when the request
    /// is complete.
    keys: [Option<Key>; 2],
}

/// One end of a connection.
struct End {
    host: usize,
    qpn: Qpn,
    cq: CqId,
    /// Regions: source of sends and destination of Reads; destination of the peer's Writes; receive buffers; the peer's
    /// counter.
    own: RegionId,
    inbox: RegionId,
    buffers: RegionId,
    counter: RegionId,
    posted: u64,
    in_flight: BTreeMap<u64, Request>,
    free: Vec<u64>,
    last_completed: Option<u64>,
    /// Messages to this end that have not been received, by number.
    expected_messages: BTreeMap<u32, u32>,
    /// Number of messages to this end that are too long.
    too_long: u64,
    receives: VecDeque<u64>,
    next_receive: u64,
    found: BTreeSet<u64>,
    random: RandomStream,
}

/// Returns byte `at` of message `number` of an end.
fn pattern_byte(end: usize, number: u64, at: usize) -> u8 {
    (number.wrapping_mul(31) as usize + at * 7 + at / 251 + end * 101) as u8
}

/// A run in progress.
struct LooseRun<'b, B> {
    backend: &'b mut B,
    ends: Vec<End>,
    unordered: bool,
    /// Set when receives are posted late, so that senders receive RNR NAKs.
    posts_receives_late: bool,
    tally: Tally,
    requests: u64,
    random: RandomStream,
    /// Random stream that selects the requests with separate keys.
    separate_keys: RandomStream,
    separate_key_percent: u64,
}

/// Returns the scenario of `seed`: at most two hosts and their faults, requests that fail alone, and any ordering mode.
pub fn draw(place: Place, seed: u64, packets: u64) -> Scenario {
    let mut scenario = Scenario::draw(place, "falcon", seed, packets);
    scenario.network.hosts = 2;
    scenario.faults.truncate(2);
    let mut random = RandomStreams::new(seed).stream("loose/ordering");
    let ordering = pick(&mut random, &["ordered", "weak", "unordered", "unordered"]);
    scenario.packets = packets;
    scenario.alone_with("errors", "complete-in-error").alone_with("ordering", ordering)
}

/// Runs `scenario` on `backend`.
///
/// # Errors
/// The first violation found.
pub fn run<B: Backend>(backend: &mut B, scenario: &Scenario) -> Result<Tally, String> {
    let streams = RandomStreams::new(scenario.seed);
    let mut random = streams.stream("loose");
    let transport = Arc::new(Transport::new(scenario.profile(0)).map_err(|error| error.to_string())?);
    let connections = pick(&mut random, &[1, 2, 4]);
    let mut run = LooseRun {
        backend,
        ends: Vec::new(),
        unordered: scenario.transport.ordering() == Some("unordered"),
        tally: Tally::default(),
        requests: pick(&mut random, &[100, 1_000, 4_000]),
        posts_receives_late: one_in(&mut random, 2),
        random,
        separate_keys: streams.stream("loose/passing"),
        separate_key_percent: scenario.separate_key_percent,
    };
    for connection in 0..connections {
        run.connect(&transport, &streams, connection);
    }
    match run.work(scenario.packets) {
        Ok(()) => Ok(run.tally),
        Err(what) => Err(format!("{what}\nat {}\n{}", run.backend.now(), run.describe())),
    }
}

impl<B: Backend> LooseRun<'_, B> {
    fn connect(&mut self, transport: &Arc<Transport>, streams: &RandomStreams, connection: usize) {
        for host in [0, 1] {
            let backend = &mut *self.backend;
            let cq = backend.create_cq(host, 4_096);
            let attributes = QpAttributes {
                pd: backend.domain(host),
                send_cq: cq,
                recv_cq: cq,
                srq: None,
                max_send_wr: 64,
                max_recv_wr: 64,
                max_send_sge: 1,
                max_recv_sge: 1,
                signal_all: true,
                service: Service::ReliableConnection,
                transport: Arc::clone(transport),
                number: None,
                nvme: None,
            };
            let qpn = backend.create_qp(host, &attributes);
            let slots = [REQUESTS_MAX, REQUESTS_MAX, RECEIVES_MAX, 1];
            let [own, inbox, buffers, counter] =
                slots.map(|count| backend.register(host, (count * u64::from(SLOT_BYTES)) as usize, Access::all()));
            backend.bytes(host, counter).fill(0);
            let random = streams.stream(&format!("loose/{connection}/{host}"));
            self.ends.push(End {
                host,
                qpn,
                cq,
                own,
                inbox,
                buffers,
                counter,
                posted: 0,
                in_flight: BTreeMap::new(),
                free: (0..REQUESTS_MAX).collect(),
                last_completed: None,
                expected_messages: BTreeMap::new(),
                too_long: 0,
                receives: VecDeque::new(),
                next_receive: 0,
                found: BTreeSet::new(),
                random,
            });
        }
        let first = self.ends.len() - 2;
        for (end, other) in [(first, first + 1), (first + 1, first)] {
            let (host, qpn, dest_qpn) = (self.ends[end].host, self.ends[end].qpn, self.ends[other].qpn);
            let connection = QpConnection {
                peer: PeerId(0),
                dest_qpn,
                rq_psn: Psn::new(0xff_ff80 + other as u32),
                mtu: MTU,
                min_rnr_timer: RnrTimer::from_code(1),
                max_dest_rd_atomic: 8,
            };
            let sq_psn = Psn::new(0xff_ff80 + end as u32);
            let timing = QpTiming { sq_psn, retry_count: 50_000, rnr_retry: None, max_rd_atomic: 8 };
            self.backend.connect_qp(host, qpn, 1 - host, &connection, &timing);
        }
    }

    fn work(&mut self, packets: u64) -> Result<(), String> {
        let mut quiet_since = self.backend.now();
        loop {
            let is_calm = self.tally.posted >= self.requests || self.packets() >= packets;
            if is_calm {
                self.backend.end_faults();
            }
            for end in 0..self.ends.len() {
                while !is_calm && self.ends[end].random.below(3) > 0 && self.post(end) {}
                while self.wants_receive(end, is_calm) && self.post_receive(end) {}
            }
            let step = self.random.between(100, 20_000);
            self.backend.advance(Duration::from_ns(if is_calm { step * 10 } else { step }));
            let mut moved = 0;
            for end in 0..self.ends.len() {
                let (host, cq) = (self.ends[end].host, self.ends[end].cq);
                while let Some(completion) = self.backend.poll(host, cq) {
                    moved += 1;
                    self.complete(end, &completion)?;
                }
            }
            let left: usize = self.ends.iter().map(|end| end.in_flight.len() + end.expected_messages.len()).sum();
            if is_calm && left == 0 {
                return self.finish();
            }
            if moved > 0 {
                quiet_since = self.backend.now();
            } else if self.backend.now().since(quiet_since) > self.backend.no_progress_time_max() {
                return Err(format!("nothing has moved for long, and {left} things are to be done"));
            }
        }
    }

    /// Describes the state of every queue pair.
    fn describe(&self) -> String {
        let of = |(index, end): (usize, &End)| {
            let info = self.backend.query(end.host, end.qpn);
            let oldest: Vec<_> = end.in_flight.iter().take(3).collect();
            let expected_messages: Vec<_> = end.expected_messages.iter().take(3).collect();
            let receives = end.receives.len();
            format!("  end {index}: {oldest:?}, to come {expected_messages:?}, {receives} receives, {info:?}\n")
        };
        self.ends.iter().enumerate().map(of).collect()
    }

    fn packets(&self) -> u64 {
        (0..2).map(|host| packets_of(&self.backend.stats(host))).sum()
    }

    fn finish(&mut self) -> Result<(), String> {
        for (index, end) in self.ends.iter().enumerate() {
            let state = self.backend.query(end.host, end.qpn).map(|info| info.state);
            if state != Some(QpState::ReadyToSend) {
                return Err(format!("end {index} is in state {state:?}"));
            }
            if end.too_long > 0 {
                return Err(format!("end {index}: {} receives have not failed", end.too_long));
            }
        }
        self.tally.trace_hash = self.backend.finish()?;
        for end in 0..self.ends.len() {
            let (host, counter, found) = (self.ends[end].host, self.ends[end].counter, &self.ends[end ^ 1].found);
            let word: [u8; 8] = self.backend.bytes(host, counter)[..8].try_into().expect("eight bytes");
            let (count, adds) = (u64::from_ne_bytes(word), found.len() as u64);
            if count != adds || !found.iter().copied().eq(0..adds) {
                return Err(format!("end {end}: the counter is {count} after {adds} additions"));
            }
        }
        (0..2).for_each(|host| self.tally.count(&self.backend.stats(host)));
        Ok(())
    }

    fn post(&mut self, end: usize) -> bool {
        let this = &mut self.ends[end];
        let Some(slot) = this.free.pop() else { return false };
        let (number, random) = (this.posted, &mut this.random);
        let operation = Operation::draw(random);
        let uses_receive =
            matches!(operation, Operation::Send | Operation::LongSend | Operation::Write { immediate: true });
        let len_max = if self.unordered && uses_receive { MTU } else { 5 * MTU };
        let kind = random.below(3);
        let len = match operation {
            Operation::Add | Operation::Refused(WcStatus::RemoteInvalidRequest) => 8,
            Operation::LongSend => len_max.min(MTU + 1 + random.below(u64::from(4 * MTU)) as u32).max(MTU),
            Operation::Send => random.between(0, u64::from(len_max.min(RECEIVE_BYTES))) as u32,
            _ => random.between(0, u64::from(len_max)) as u32,
        };
        // No access right is checked for zero bytes.
        let len = if operation == Operation::Refused(WcStatus::RemoteAccess) { len.max(1) } else { len };
        let at = u64::from(SLOT_BYTES) * slot;
        let keys = self.register_keys(end, operation, at as usize);
        let request = Request { operation, len, slot, keys };
        let word = number as u32;
        let (host, peer) = (self.ends[end].host, &self.ends[end ^ 1]);
        let far = |shared: u32| keys[1].map_or(shared, |key| key.0);
        let (inbox, inbox_key) = self.backend.region(1 - host, peer.inbox);
        let (counter, counter_key) = self.backend.region(1 - host, peer.counter);
        let (source, source_key) = self.backend.region(1 - host, peer.own);
        let remote = RemoteMemory { addr: inbox + at, rkey: far(inbox_key) };
        let op = match operation {
            Operation::Write { immediate } => SendOp::Write { remote, immediate: immediate.then_some(word) },
            Operation::Send | Operation::LongSend => SendOp::Send { immediate: Some(word) },
            Operation::Read => SendOp::Read { remote: RemoteMemory { addr: source + at, rkey: far(source_key) } },
            Operation::Add => SendOp::FetchAdd { remote: RemoteMemory { addr: counter, rkey: counter_key }, add: 1 },
            Operation::Refused(WcStatus::RemoteAccess) => {
                let invalid = RemoteMemory { addr: inbox + at, rkey: inbox_key ^ 0x5a5a };
                if kind == 0 {
                    SendOp::Read { remote: invalid }
                } else {
                    SendOp::Write { remote: invalid, immediate: None }
                }
            }
            Operation::Refused(_) => {
                SendOp::FetchAdd { remote: RemoteMemory { addr: counter + 4, rkey: counter_key }, add: 1 }
            }
        };
        self.prepare(end, number, &request);
        let (addr, lkey) = self.backend.region(host, self.ends[end].own);
        let sge = Sge { addr: addr + at, len, lkey: keys[0].map_or(lkey, |key| key.0) };
        let fence = self.ends[end].random.below(8) == 0;
        let flags = if fence { SendFlags::FENCE } else { SendFlags::empty() };
        let posted = SendRequest { wr_id: number, op, sges: &[sge], flags };
        let qpn = self.ends[end].qpn;
        if self.backend.post_send(host, qpn, &posted) == Err(PostError::QueueFull) {
            // Entries leave the queue in order, even when the requests complete out of order.
            self.deregister_keys(end, keys);
            self.ends[end].free.push(slot);
            return false;
        }
        let receives_at_peer = matches!(operation, Operation::Send | Operation::Write { immediate: true });
        let peer = &mut self.ends[end ^ 1];
        if receives_at_peer {
            peer.expected_messages.insert(word, len);
        }
        peer.too_long += u64::from(operation == Operation::LongSend);
        self.ends[end].in_flight.insert(number, request);
        self.ends[end].posted += 1;
        self.tally.posted += 1;
        true
    }

    /// Registers the memory of a request separately in some cases.
    fn register_keys(&mut self, end: usize, operation: Operation, at: usize) -> [Option<Key>; 2] {
        if self.separate_keys.below(100) >= self.separate_key_percent {
            return [None; 2];
        }
        let (host, own, peer) = (self.ends[end].host, self.ends[end].own, &self.ends[end ^ 1]);
        let far = match operation {
            Operation::Write { .. } => Some(peer.inbox),
            Operation::Read => Some(peer.own),
            _ => None,
        };
        let len = SLOT_BYTES as usize;
        let near = self.backend.register_part(host, own, at, len, Access::LOCAL_WRITE);
        [Some(near), far.map(|region| self.backend.register_part(1 - host, region, at, len, Access::all()))]
    }

    /// Deregisters the keys of a complete request: no operation may fail because they are missing.
    fn deregister_keys(&mut self, end: usize, keys: [Option<Key>; 2]) {
        let host = self.ends[end].host;
        for (host, key) in [host, 1 - host].into_iter().zip(keys) {
            if let Some(key) = key {
                self.backend.deregister_part(host, key);
            }
        }
    }

    /// Paints the bytes to be sent, or the destination of a Read.
    fn prepare(&mut self, end: usize, number: u64, request: &Request) {
        let range = request.slot as usize * SLOT_BYTES as usize..(request.slot as usize + 1) * SLOT_BYTES as usize;
        let (host, own) = (self.ends[end].host, self.ends[end].own);
        if request.operation == Operation::Read {
            self.backend.bytes(host, own)[range].fill(0xee);
            return;
        }
        let len = request.len as usize;
        let bytes = &mut self.backend.bytes(host, own)[range][..len];
        bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = pattern_byte(end, number, at));
    }

    fn wants_receive(&mut self, end: usize, is_calm: bool) -> bool {
        let random = &mut self.ends[end].random;
        is_calm || if self.posts_receives_late { one_in(random, 16) } else { random.below(3) > 0 }
    }

    fn post_receive(&mut self, end: usize) -> bool {
        let this = &mut self.ends[end];
        if this.receives.len() as u64 >= RECEIVES_MAX {
            return false;
        }
        let number = this.next_receive;
        this.next_receive += 1;
        this.receives.push_back(number);
        let (host, qpn, buffers) = (this.host, this.qpn, this.buffers);
        let (addr, lkey) = self.backend.region(host, buffers);
        let at = number % RECEIVES_MAX * u64::from(SLOT_BYTES);
        // Shorter than a full packet, so that messages of a single packet can be too long.
        let sge = Sge { addr: addr + at, len: RECEIVE_BYTES, lkey };
        self.backend.post_recv(host, qpn, &RecvRequest { wr_id: number, sges: &[sge] }).expect("an entry is free");
        true
    }

    fn complete(&mut self, end: usize, completion: &Completion) -> Result<(), String> {
        if matches!(completion.opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm) {
            return self.receive(end, completion);
        }
        let number = completion.wr_id;
        let violation = |what: &str| Err(format!("end {end}: {what}: {completion:?}"));
        let Some(request) = self.ends[end].in_flight.remove(&number) else { return violation("completes twice") };
        if !self.unordered && self.ends[end].last_completed.is_some_and(|before| before > number) {
            return violation("out of order");
        }
        self.ends[end].last_completed = Some(number);
        let expected = match request.operation {
            Operation::Refused(status) => status,
            Operation::LongSend => WcStatus::RemoteInvalidRequest,
            _ => WcStatus::Success,
        };
        if completion.status != expected {
            return violation(&format!("{request:?} should end with {expected:?}"));
        }
        self.deregister_keys(end, request.keys);
        self.ends[end].free.push(request.slot);
        if expected != WcStatus::Success {
            self.tally.failed += 1;
            return Ok(());
        }
        self.tally.succeeded += 1;
        let start = request.slot as usize * SLOT_BYTES as usize;
        let range = start..start + request.len as usize;
        let (host, own, inbox) = (self.ends[end].host, self.ends[end].own, self.ends[end ^ 1].inbox);
        match request.operation {
            Operation::Write { .. } => {
                let bytes = &self.backend.bytes(1 - host, inbox)[range];
                if let Some(at) = (0..bytes.len()).find(|at| bytes[*at] != pattern_byte(end, number, *at)) {
                    return violation(&format!("byte {at} of {request:?} is wrong"));
                }
            }
            Operation::Add => {
                let word: [u8; 8] = self.backend.bytes(host, own)[range].try_into().expect("eight bytes");
                if !self.ends[end].found.insert(u64::from_ne_bytes(word)) {
                    return violation("two additions found the same value");
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn receive(&mut self, end: usize, completion: &Completion) -> Result<(), String> {
        let violation = |what: &str| Err(format!("end {end} receives: {what}: {completion:?}"));
        if self.ends[end].receives.pop_front() != Some(completion.wr_id) {
            return violation("receives are used in order");
        }
        if completion.status == WcStatus::LocalLength && self.ends[end].too_long > 0 {
            self.ends[end].too_long -= 1;
            return Ok(());
        }
        let Some(len) = self.ends[end].expected_messages.remove(&completion.word) else {
            return violation("it was not sent");
        };
        if completion.status != WcStatus::Success || completion.byte_len != len {
            return violation(&format!("{len} bytes were sent"));
        }
        self.tally.received += 1;
        if completion.opcode == WcOpcode::Recv {
            let start = (completion.wr_id % RECEIVES_MAX) as usize * SLOT_BYTES as usize;
            let (host, buffers) = (self.ends[end].host, self.ends[end].buffers);
            let bytes = &self.backend.bytes(host, buffers)[start..start + len as usize];
            let number = u64::from(completion.word);
            if let Some(at) = (0..bytes.len()).find(|at| bytes[*at] != pattern_byte(end ^ 1, number, *at)) {
                return violation(&format!("byte {at} is wrong"));
            }
        }
        Ok(())
    }
}

/// Bytes of a receive: less than a packet, so that messages of one packet can be too long.
const RECEIVE_BYTES: u32 = MTU - 24;
