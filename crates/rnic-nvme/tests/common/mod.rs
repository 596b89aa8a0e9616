//! An initiator and its targets over whole Falcon connections, and a network that carries bytes.
//!
//! The host has one NIC, each target one; what is sent waits for the link, then takes [`DELAY`]. Packets are lost,
//! doubled and overtake each other as [`World`] says; everything random comes from one seeded stream. RACK-TLP repairs,
//! Swift says how much may be under way, at once after each acknowledgement.

#![allow(dead_code, reason = "each test uses its part")]

use std::collections::BTreeMap;

use rnic_base::{BitRate, Duration, RandomStream, RandomStreams, Serial, Time};
use rnic_fae::{Erased, Filter, Form, ProcessorConfig};
use rnic_falcon::adaptive::{AdaptiveEngine, Location, Placement};
use rnic_falcon::connection::{Connection, ConnectionConfig};
use rnic_falcon::delivery::{Arrival, DeliveryConfig, Departure};
use rnic_falcon::resources::threshold::Isolation;
use rnic_falcon::resources::{Held, Part, ResourceConfig, Resources};
use rnic_falcon::transaction::ulp::PulledData;
use rnic_falcon::transaction::{
    Completion, Ordering, PullReply, PushReply, Request, Submission, SubmitError, TransactionConfig, UpperLayer,
};
use rnic_nvme::device::Service;
use rnic_nvme::layout::{Chunk, Geometry};
use rnic_nvme::{Attached, DeviceConfig, Drive, Extent, Fault, HostMemory, Initiator, InitiatorConfig};
use rnic_nvme::{Layout, Media, Moved, Reads, Span, Target, TargetConfig};
use rnic_policy::{Configured, Params};
use rnic_transports::{control, paths, recovery};
use rnic_wire::falcon::{Cid, FlowLabel, Packet, PacketType, Rsn, Ulp, UlpProtocol};

/// The initiator's end of a connection, and the target's.
pub const HOST: usize = 0;
pub const TARGET: usize = 1;

/// How it goes.
#[derive(Clone, Copy, Debug)]
pub struct World {
    pub connections: u32,
    pub initiator: InitiatorConfig,
    /// What targets agree to.
    pub target_units: u32,
    pub device: DeviceConfig,
    /// Lost, doubled, and up to 20 us late, in a thousand.
    pub lost: u64,
    pub doubled: u64,
    pub late: u64,
}

pub const NAMESPACE: u16 = 7;
pub const BLOCK_LOG2: u32 = 9;

pub const WORLD: World = World {
    connections: 1,
    initiator: InitiatorConfig {
        function: 0x01_0203,
        namespace: 1,
        commands: 16,
        units: 32,
        timeout: Duration::from_secs(30),
        reads: Reads::Push,
    },
    target_units: 32,
    device: DeviceConfig {
        read: Service { latency: Duration::from_us(8), bandwidth: BitRate::gbps(32) },
        write: Service { latency: Duration::from_us(4), bandwidth: BitRate::gbps(16) },
        queue_depth: 8,
        block_log2: BLOCK_LOG2,
    },
    lost: 0,
    doubled: 0,
    late: 0,
};

const TRANSACTIONS: TransactionConfig = TransactionConfig {
    ordering: Ordering::Unordered,
    protocol: UlpProtocol::Nvme,
    mtu: 4_352,
    outstanding: 128,
    timeout: Duration::from_ms(1_000_000),
    isolation: Isolation::None,
};

/// Bytes that leave, by the connection, whether they answer a Pull, and the transaction's number.
type Payloads = BTreeMap<(usize, bool, u32), Vec<u8>>;

/// The host's buffers, by cookie, and what is on its way.
#[derive(Debug, Default)]
pub struct Host {
    pub buffers: BTreeMap<u64, Vec<u8>>,
    /// The payload of the packet at hand.
    at_hand: Vec<u8>,
    leaving: Payloads,
    pub placed: Vec<Span>,
}

fn range(span: Span) -> core::ops::Range<usize> {
    span.offset as usize..(span.offset + span.length) as usize
}

impl HostMemory for Host {
    fn place(&mut self, _: usize, to: Span) -> Result<(), Fault> {
        let buffer = self.buffers.get_mut(&to.cookie).ok_or(Fault)?;
        buffer[range(to)].copy_from_slice(&self.at_hand);
        self.placed.push(to);
        Ok(())
    }

    fn gather(&mut self, connection: usize, rsn: Rsn, from: Span) -> Result<(), Fault> {
        let bytes = self.buffers.get(&from.cookie).ok_or(Fault)?[range(from)].to_vec();
        self.leaving.insert((connection, true, rsn.value()), bytes);
        Ok(())
    }
}

/// A target's blocks, as far as they were written, and what is on its way.
#[derive(Debug, Default)]
pub struct Disk {
    pub blocks: BTreeMap<u64, Vec<u8>>,
    /// The payload of the packet at hand.
    at_hand: Vec<u8>,
    leaving: Payloads,
    pub writes: Vec<Extent>,
    /// Nothing can be written from this block on.
    pub ends: Option<u64>,
}

impl Media for Disk {
    fn read(&mut self, moved: Moved, from: Extent) {
        let blocks = from.first_block..from.first_block + u64::from(from.blocks);
        let zero = vec![0; 1 << BLOCK_LOG2];
        let bytes = blocks.flat_map(|block| self.blocks.get(&block).unwrap_or(&zero).clone()).collect();
        let (answers, rsn) = match moved {
            Moved::Push(rsn) => (false, rsn),
            Moved::Answer(rsn) => (true, rsn),
        };
        assert_eq!(self.leaving.insert((0, answers, rsn.value()), bytes), None);
    }

    fn write(&mut self, to: Extent) -> Result<(), Fault> {
        if self.ends.is_some_and(|ends| to.first_block + u64::from(to.blocks) > ends) {
            return Err(Fault);
        }
        for (nth, block) in self.at_hand.chunks(1 << BLOCK_LOG2).enumerate() {
            self.blocks.insert(to.first_block + nth as u64, block.to_vec());
        }
        assert_eq!(self.at_hand.len(), (to.blocks as usize) << BLOCK_LOG2);
        self.writes.push(to);
        Ok(())
    }
}

/// One way, without what the link takes.
pub const DELAY: Duration = Duration::from_us(2);

/// Every link's.
pub const LINK: BitRate = BitRate::gbps(200);

/// Bytes of a packet around its payload.
const HEADERS: u64 = 150;

/// What the connections of one machine share.
#[derive(Debug)]
struct Nic {
    resources: Resources,
    adaptive: AdaptiveEngine,
    /// When the link takes the next packet.
    free_at: Time,
}

#[derive(Debug)]
struct Flying {
    connection: usize,
    to: usize,
    packet: Packet,
    label: FlowLabel,
    bytes: Vec<u8>,
}

/// What stands on either end of a connection.
enum Above<'a> {
    Host(Attached<'a, Initiator, Host>),
    Target(Attached<'a, Target, Disk>),
}

impl UpperLayer for Above<'_> {
    fn push(&mut self, now: Time, request: &Request) -> PushReply {
        match self {
            Self::Host(end) => end.push(now, request),
            Self::Target(end) => end.push(now, request),
        }
    }

    fn pull(&mut self, now: Time, request: &Request) -> PullReply {
        match self {
            Self::Host(end) => end.pull(now, request),
            Self::Target(end) => end.pull(now, request),
        }
    }

    fn headers(&self, tag: u64) -> Ulp {
        match self {
            Self::Host(end) => end.headers(tag),
            Self::Target(end) => end.headers(tag),
        }
    }

    fn complete(&mut self, now: Time, completion: &Completion) {
        match self {
            Self::Host(end) => end.complete(now, completion),
            Self::Target(end) => end.complete(now, completion),
        }
    }

    fn pulled(&mut self, now: Time, tag: u64, data: &PulledData) {
        match self {
            Self::Host(end) => end.pulled(now, tag, data),
            Self::Target(end) => end.pulled(now, tag, data),
        }
    }
}

/// Everything.
#[derive(Debug)]
pub struct Net {
    pub world: World,
    pub now: Time,
    pub random: RandomStream,
    pub initiator: Initiator,
    pub host: Host,
    pub targets: Vec<Target>,
    pub disks: Vec<Disk>,
    pub devices: Vec<Drive>,
    /// Of the host, then of each target.
    nics: Vec<Nic>,
    /// By connection, then by side.
    ends: Vec<[Connection; 2]>,
    wire: BTreeMap<(Time, u64), Flying>,
    order: u64,
    /// Every packet of a transaction that left: connection, from which side.
    pub sent: Vec<(usize, usize, Packet)>,
    pub keeps_sent: bool,
}

const FIRST: Serial<32> = Serial::new(u32::MAX - 40);

fn delivery(connection: u32) -> DeliveryConfig {
    let recovery = recovery::find("rack-tlp").expect("it is registered");
    let paths = paths::find("ecmp").expect("it is registered");
    let recovery = Configured { policy: recovery, params: Params::defaults(recovery.params) };
    let paths = Configured { policy: paths, params: Params::defaults(paths.params) };
    DeliveryConfig { cid: Cid::new(connection), ordered: false, ..DeliveryConfig::new(recovery, paths) }
}

impl Nic {
    fn new() -> Self {
        let swift = control::find("swift").expect("it is registered");
        let program = Erased(Configured { policy: swift, params: Params::defaults(swift.params) });
        let config =
            ProcessorConfig { form: Form::Table, connections: 0, line_rate: LINK, mtu: TRANSACTIONS.mtu.into() };
        let placement = Placement { location: Location::Inline, queue: 1, filter: Filter::open(1) };
        let adaptive = AdaptiveEngine::new(program, &config, &placement).expect("it can run");
        Self { resources: Resources::new(ResourceConfig::GBPS_200), adaptive, free_at: Time::ZERO }
    }
}

impl Net {
    pub fn new(world: World, seed: u64) -> Self {
        let geometry = Geometry { chunk: 0, stripe: 0, group: world.connections.ilog2(), block: BLOCK_LOG2 };
        let chunk = |connection| Chunk { connection, namespace: NAMESPACE, first_block: 64 };
        let chunks: Vec<Chunk> = (0..world.connections).map(chunk).collect();
        let target = |owner| TargetConfig {
            owner,
            namespace: NAMESPACE,
            blocks: 64 + (1 << 21),
            block_log2: BLOCK_LOG2,
            units: world.target_units,
        };
        let mut nics: Vec<Nic> = (0..=world.connections).map(|_| Nic::new()).collect();
        let mut end = |connection: u32, nic: u32| {
            let first_rsn = [FIRST; 2];
            let config = ConnectionConfig { transactions: TRANSACTIONS, delivery: delivery(connection), first_rsn };
            Connection::new(&config, &mut nics[nic as usize].adaptive, connection).expect("room for it")
        };
        let ends = (0..world.connections).map(|number| [end(number, 0), end(number, 1 + number)]).collect();
        Self {
            world,
            now: Time::from_us(100),
            random: RandomStreams::new(seed).stream("network"),
            initiator: Initiator::new(world.initiator, Layout::new(geometry, &chunks).expect("it makes sense")),
            host: Host::default(),
            targets: (0..world.connections).map(|owner| Target::new(target(owner))).collect(),
            disks: (0..world.connections).map(|_| Disk::default()).collect(),
            devices: (0..world.connections).map(|_| Drive::new(world.device)).collect(),
            nics,
            ends,
            wire: BTreeMap::new(),
            order: 0,
            sent: Vec::new(),
            keeps_sent: true,
        }
    }

    fn nic(connection: usize, side: usize) -> usize {
        if side == HOST { 0 } else { 1 + connection }
    }

    /// Both ends of a connection do what they can.
    pub fn advance(&mut self, connection: usize) {
        let now = self.now;
        let resources = &mut self.nics[0].resources;
        let (initiator, host) = (&mut self.initiator, &mut self.host);
        let [near, far] = &mut self.ends[connection];
        let result = near.work(now, |transactions| initiator.advance(connection, transactions, resources, host));
        result.expect("it is alive");
        let (target, device, disk) =
            (&mut self.targets[connection], &mut self.devices[connection], &mut self.disks[connection]);
        while let Some(io) = target.take_io() {
            device.submit(now, io);
        }
        while let Some(io) = device.done(now) {
            target.served(&io);
        }
        let resources = &mut self.nics[1 + connection].resources;
        let result = far.work(now, |transactions| target.advance(transactions, resources, disk));
        result.expect("it is alive");
    }

    /// Does with one end what `work` says: its connection, its NIC, and what stands above.
    fn with<R>(
        &mut self,
        connection: usize,
        side: usize,
        work: impl FnOnce(&mut Connection, &mut Nic, &mut Above<'_>) -> R,
    ) -> R {
        let nic = &mut self.nics[Self::nic(connection, side)];
        let end = &mut self.ends[connection][side];
        if side == HOST {
            let above = Attached { end: &mut self.initiator, connection, memory: &mut self.host };
            work(end, nic, &mut Above::Host(above))
        } else {
            let (target, memory) = (&mut self.targets[connection], &mut self.disks[connection]);
            work(end, nic, &mut Above::Target(Attached { end: target, connection, memory }))
        }
    }

    /// Sends what leaves next, if the link is free; whether anything did.
    pub fn send(&mut self, connection: usize, side: usize) -> bool {
        let now = self.now;
        if self.nics[Self::nic(connection, side)].free_at > now {
            return false;
        }
        let departure = self.with(connection, side, |end, nic, ulp| end.transmit(now, &mut nic.resources, ulp));
        let Some(Departure { packet, label, context, .. }) = departure else { return false };
        let mut bytes = Vec::new();
        if context.is_some() {
            if self.keeps_sent {
                self.sent.push((connection, side, packet));
            }
            if packet.payload_len > 0 {
                let answers = packet.body.packet_type() == PacketType::PullData;
                let rsn = packet.body.rsn().expect("it has data").value();
                let leaving = match side {
                    HOST => &self.host.leaving[&(connection, answers, rsn)],
                    _ => &self.disks[connection].leaving[&(0, answers, rsn)],
                };
                bytes.clone_from(leaving);
            }
            assert_eq!(bytes.len(), packet.payload_len as usize);
        }
        let nic = &mut self.nics[Self::nic(connection, side)];
        nic.free_at = now + LINK.serialize(HEADERS + u64::from(packet.payload_len));
        let leaves = nic.free_at;
        let mut copies = 1;
        copies -= usize::from(self.random.below(1_000) < self.world.lost);
        copies += usize::from(self.random.below(1_000) < self.world.doubled);
        for _ in 0..copies {
            let late = if self.random.below(1_000) < self.world.late { self.random.below(20_000) } else { 0 };
            self.order += 1;
            let flying = Flying { connection, to: 1 - side, packet, label, bytes: bytes.clone() };
            self.wire.insert((leaves + DELAY + Duration::from_ns(late), self.order), flying);
        }
        true
    }

    fn receive(&mut self, flying: Flying) {
        let Flying { connection, to, packet, label, bytes } = flying;
        let at_hand = if to == HOST { &mut self.host.at_hand } else { &mut self.disks[connection].at_hand };
        *at_hand = bytes;
        let now = self.now;
        self.with(connection, to, |end, nic, ulp| {
            let arrival = Arrival { packet: &packet, label, marked: false, hops: 1, csig: None };
            end.receive(now, &arrival, &mut nic.resources, ulp);
        });
        self.report_to_fae(connection, to);
    }

    fn report_to_fae(&mut self, connection: usize, side: usize) {
        let now = self.now;
        self.with(connection, side, |end, nic, _| end.report_to_fae(now, &nic.resources, &mut nic.adaptive));
    }

    /// Everything leaves that may.
    fn pump(&mut self) {
        for connection in 0..self.ends.len() {
            self.advance(connection);
        }
        let mut any = true;
        while any {
            any = false;
            for connection in 0..self.ends.len() {
                any |= self.send(connection, HOST) | self.send(connection, TARGET);
            }
        }
    }

    /// The next thing happens, if anything does by `until`.
    fn step(&mut self, until: Time) -> bool {
        self.pump();
        let packet = self.wire.first_key_value().map(|((at, _), _)| *at);
        let wakes = |connection: usize, side: usize| {
            let end = &self.ends[connection][side];
            // What is due may be an acknowledgement, which waits for the link.
            let link = self.nics[Self::nic(connection, side)].free_at;
            [end.timeout(), end.departure()].map(|at| at.map(|at| at.max(link)))
        };
        let ends = (0..self.ends.len()).flat_map(|connection| [HOST, TARGET].map(|side| wakes(connection, side)));
        let ends = ends.flatten().flatten();
        let links = self.nics.iter().map(|nic| nic.free_at).filter(|at| *at > self.now);
        let devices = self.devices.iter().filter_map(Drive::next_done);
        let next = ends.chain(links).chain(devices).chain(packet).min().map(|at| at.max(self.now));
        let Some(next) = next.filter(|at| *at <= until) else { return false };
        self.now = next;
        if packet == Some(next) {
            let (_, flying) = self.wire.pop_first().expect("just seen");
            self.receive(flying);
            return true;
        }
        for connection in 0..self.ends.len() {
            for side in [HOST, TARGET] {
                if self.ends[connection][side].timeout().is_some_and(|at| at <= next) {
                    self.with(connection, side, |end, nic, ulp| end.expire(next, &mut nic.resources, ulp));
                    self.report_to_fae(connection, side);
                }
            }
        }
        true
    }

    /// Goes on for so long.
    pub fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        let mut steps_now = (self.now, 0);
        while self.step(until) {
            steps_now = (self.now, if steps_now.0 == self.now { steps_now.1 + 1 } else { 0 });
            assert!(steps_now.1 < 100_000, "it happens again and again at {}", self.now);
        }
        self.now = until;
    }

    /// A few microseconds.
    pub fn round(&mut self) {
        self.run_for(Duration::from_us(5));
    }

    /// Takes all room for Pull Data of one side's NIC.
    pub fn fill(&mut self, side: usize) -> Held {
        let resources = &mut self.nics[Self::nic(0, side)].resources;
        let free = resources.free(Part::DataTx);
        resources.hold(Part::DataTx, free).expect("it is free")
    }

    /// Gives that back.
    pub fn empty(&mut self, side: usize, held: Held) {
        self.nics[Self::nic(0, side)].resources.release(held);
    }

    /// A transaction of one side that is not NVMe's.
    pub fn submit(&mut self, connection: usize, side: usize, what: &Submission) -> Result<(), SubmitError> {
        let now = self.now;
        self.with(connection, side, |end, nic, _| {
            end.work(now, |transactions| transactions.submit(&mut nic.resources, what)).map(drop)
        })
    }

    /// Until nothing is under way; whether it came to that.
    pub fn run(&mut self) -> bool {
        for _ in 0..20_000 {
            self.run_for(Duration::from_us(50));
            let idle = self.ends.iter().flatten().all(|end| end.transactions().is_idle());
            let done = self.targets.iter().all(Target::is_idle) && self.initiator.units_under_way() == 0;
            if idle && done && self.nics.iter().all(|nic| nic.resources.is_idle()) {
                return true;
            }
        }
        false
    }

    /// The connection fails for good, at both ends.
    pub fn die(&mut self, connection: usize) {
        let now = self.now;
        for side in [HOST, TARGET] {
            self.with(connection, side, |end, nic, ulp| end.die(now, &mut nic.resources, ulp));
        }
        let [near, far] = &mut self.ends[connection];
        let (initiator, host) = (&mut self.initiator, &mut self.host);
        let resources = &mut self.nics[0].resources;
        let dead = near.work(now, |transactions| initiator.advance(connection, transactions, resources, host));
        assert_eq!(dead, Err(SubmitError::Dead));
        let (target, disk) = (&mut self.targets[connection], &mut self.disks[connection]);
        let resources = &mut self.nics[1 + connection].resources;
        let dead = far.work(now, |transactions| target.advance(transactions, resources, disk));
        self.devices[connection].forget(now, connection as u32);
        assert_eq!(dead, Err(SubmitError::Dead));
    }

    pub fn types(&self, from: usize) -> Vec<PacketType> {
        self.sent.iter().filter(|(_, side, _)| *side == from).map(|(.., packet)| packet.body.packet_type()).collect()
    }

    /// Payload bytes of reads and writes that have come where they belong.
    pub fn moved(&self) -> u64 {
        let placed: u64 = self.host.placed.iter().map(|span| u64::from(span.length)).sum();
        let written: u64 =
            self.disks.iter().flat_map(|disk| &disk.writes).map(|extent| u64::from(extent.blocks) << BLOCK_LOG2).sum();
        placed + written
    }
}
