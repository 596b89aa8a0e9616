//! An initiator and its targets over complete Falcon connections, and a network that carries bytes.
//!
//! The host has one NIC, and so has each target; a packet waits for the link, then takes [`DELAY`]. Packets are lost,
//! duplicated and reordered as [`World`] says; all randomness comes from one seeded stream. RACK-TLP retransmits, and
//! Swift sets the windows, immediately after each acknowledgement.

#![allow(dead_code, reason = "each test uses its part")]

#[path = "../../../rnic-falcon/tests/two_ends/driver.rs"]
mod driver;

use std::collections::BTreeMap;

use driver::{Nic, Timeline, control, engine};
use rnic_base::{BitRate, Duration, RandomStream, RandomStreams, Serial, Time};
use rnic_fae::StateLocation;
use rnic_falcon::adaptive::Location;
use rnic_falcon::connection::{Connection, ConnectionConfig};
use rnic_falcon::delivery::{Arrival, DeliveryConfig, Departure};
use rnic_falcon::resources::{Held, ResourcePart};
use rnic_falcon::transaction::ulp::PulledData;
use rnic_falcon::transaction::{
    Completion, Ordering, PullReply, PushReply, Request, Submission, SubmitError, TransactionConfig, UpperLayer,
};
use rnic_nvme::device::Service;
use rnic_nvme::layout::{Chunk, Geometry};
use rnic_nvme::{Attached, DeviceConfig, Drive, Extent, Fault, HostMemory, Initiator, InitiatorConfig};
use rnic_nvme::{Layout, Media, Reads, Span, Target, TargetConfig, UnitTransaction};
use rnic_policy::{Configured, Params};
use rnic_transports::{paths, recovery};
use rnic_wire::falcon::{Cid, FlowLabel, Packet, PacketType, Rsn, Ulp, UlpProtocol};

/// The sides of a connection: the initiator's and the target's.
pub const HOST: usize = 0;
pub const TARGET: usize = 1;

/// Parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct World {
    pub connections: u32,
    pub initiator: InitiatorConfig,
    /// Number of units that a target accepts.
    pub target_units: u32,
    pub device: DeviceConfig,
    /// Packets per thousand that are lost, duplicated, and delayed by up to 20 us.
    pub lost: u64,
    pub duplicated: u64,
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
    duplicated: 0,
    late: 0,
};

const TRANSACTIONS: TransactionConfig = TransactionConfig {
    ordering: Ordering::Unordered,
    protocol: UlpProtocol::Nvme,
    mtu: 4_352,
    outstanding: 128,
    timeout: Duration::from_ms(1_000_000),
    ..driver::TRANSACTIONS
};

/// Payloads to be sent, by connection, `true` for the response to a Pull, and RSN.
type Payloads = BTreeMap<(usize, bool, u32), Vec<u8>>;

/// The host's buffers, by cookie, and its payloads in transit.
#[derive(Debug, Default)]
pub struct Host {
    pub buffers: BTreeMap<u64, Vec<u8>>,
    /// Payload of the packet being received.
    current_payload: Vec<u8>,
    to_send: Payloads,
    pub placed: Vec<Span>,
}

fn range(span: Span) -> core::ops::Range<usize> {
    span.offset as usize..(span.offset + span.length) as usize
}

impl HostMemory for Host {
    fn place(&mut self, _: usize, to: Span) -> Result<(), Fault> {
        let buffer = self.buffers.get_mut(&to.cookie).ok_or(Fault)?;
        buffer[range(to)].copy_from_slice(&self.current_payload);
        self.placed.push(to);
        Ok(())
    }

    fn gather(&mut self, connection: usize, rsn: Rsn, from: Span) -> Result<(), Fault> {
        let bytes = self.buffers.get(&from.cookie).ok_or(Fault)?[range(from)].to_vec();
        self.to_send.insert((connection, true, rsn.value()), bytes);
        Ok(())
    }
}

/// A target's blocks, as far as they were written, and its payloads in transit.
#[derive(Debug, Default)]
pub struct Disk {
    pub blocks: BTreeMap<u64, Vec<u8>>,
    /// Payload of the packet being received.
    current_payload: Vec<u8>,
    to_send: Payloads,
    pub writes: Vec<Extent>,
    /// Nothing can be written from this block on.
    pub writable_blocks: Option<u64>,
}

impl Media for Disk {
    fn read(&mut self, moved: UnitTransaction, from: Extent) {
        let blocks = from.first_block..from.first_block + u64::from(from.blocks);
        let zero = vec![0; 1 << BLOCK_LOG2];
        let bytes = blocks.flat_map(|block| self.blocks.get(&block).unwrap_or(&zero).clone()).collect();
        let (is_response, rsn) = match moved {
            UnitTransaction::Push(rsn) => (false, rsn),
            UnitTransaction::Response(rsn) => (true, rsn),
        };
        assert_eq!(self.to_send.insert((0, is_response, rsn.value()), bytes), None);
    }

    fn write(&mut self, to: Extent) -> Result<(), Fault> {
        if self.writable_blocks.is_some_and(|blocks| to.first_block + u64::from(to.blocks) > blocks) {
            return Err(Fault);
        }
        for (nth, block) in self.current_payload.chunks(1 << BLOCK_LOG2).enumerate() {
            self.blocks.insert(to.first_block + nth as u64, block.to_vec());
        }
        assert_eq!(self.current_payload.len(), (to.blocks as usize) << BLOCK_LOG2);
        self.writes.push(to);
        Ok(())
    }
}

/// One-way delay, without the transmission time on the link.
pub const DELAY: Duration = Duration::from_us(2);

/// Rate of every link.
pub const LINK: BitRate = BitRate::gbps(200);

/// Bytes of a packet around its payload.
const HEADERS: u64 = 150;

#[derive(Debug)]
struct InFlight {
    connection: usize,
    to: usize,
    packet: Packet,
    label: FlowLabel,
    bytes: Vec<u8>,
}

/// The upper layer at either end of a connection.
enum UpperEnd<'a> {
    Host(Attached<'a, Initiator, Host>),
    Target(Attached<'a, Target, Disk>),
}

impl UpperLayer for UpperEnd<'_> {
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

/// The simulated network with all hosts.
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
    /// NIC of the host, then that of each target.
    nics: Vec<Nic>,
    /// Ends by connection, then by side.
    ends: Vec<[Connection; 2]>,
    wire: Timeline<InFlight>,
    /// Every packet of a transaction that was sent, with its connection and its sending side.
    pub sent: Vec<(usize, usize, Packet)>,
    pub keeps_sent: bool,
}

const FIRST_RSN: Serial<32> = Serial::new(u32::MAX - 40);

fn nic() -> Nic {
    Nic::new(engine(control("swift", &[]), StateLocation::Table, Location::Inline, 1))
}

fn delivery(connection: u32) -> DeliveryConfig {
    let recovery = recovery::find("rack-tlp").expect("the policy is registered");
    let paths = paths::find("ecmp").expect("the policy is registered");
    let recovery = Configured { policy: recovery, params: Params::defaults(recovery.params) };
    let paths = Configured { policy: paths, params: Params::defaults(paths.params) };
    DeliveryConfig { cid: Cid::new(connection), ordered: false, ..DeliveryConfig::new(recovery, paths) }
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
        let mut nics: Vec<Nic> = (0..=world.connections).map(|_| nic()).collect();
        let mut end = |connection: u32, nic: u32| {
            let first_rsn = [FIRST_RSN; 2];
            let config = ConnectionConfig { transactions: TRANSACTIONS, delivery: delivery(connection), first_rsn };
            Connection::new(&config, &mut nics[nic as usize].adaptive, connection).expect("the NIC has space")
        };
        let ends = (0..world.connections).map(|number| [end(number, 0), end(number, 1 + number)]).collect();
        Self {
            world,
            now: Time::from_us(100),
            random: RandomStreams::new(seed).stream("network"),
            initiator: Initiator::new(world.initiator, Layout::new(geometry, &chunks).expect("the layout is valid")),
            host: Host::default(),
            targets: (0..world.connections).map(|owner| Target::new(target(owner))).collect(),
            disks: (0..world.connections).map(|_| Disk::default()).collect(),
            devices: (0..world.connections).map(|_| Drive::new(world.device)).collect(),
            nics,
            ends,
            wire: Timeline::new(),
            sent: Vec::new(),
            keeps_sent: true,
        }
    }

    fn nic(connection: usize, side: usize) -> usize {
        if side == HOST { 0 } else { 1 + connection }
    }

    /// Lets both ends of a connection do the work that they can do now.
    pub fn advance(&mut self, connection: usize) {
        let now = self.now;
        let resources = &mut self.nics[0].resources;
        let (initiator, host) = (&mut self.initiator, &mut self.host);
        let [near, far] = &mut self.ends[connection];
        let result = near.work(now, |transactions| initiator.advance(connection, transactions, resources, host));
        result.expect("the connection is alive");
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
        result.expect("the connection is alive");
    }

    /// Calls `work` for one end with its connection, its NIC, and its upper layer.
    fn with<R>(
        &mut self,
        connection: usize,
        side: usize,
        work: impl FnOnce(&mut Connection, &mut Nic, &mut UpperEnd<'_>) -> R,
    ) -> R {
        let nic = &mut self.nics[Self::nic(connection, side)];
        let end = &mut self.ends[connection][side];
        if side == HOST {
            let attached = Attached { end: &mut self.initiator, connection, memory: &mut self.host };
            work(end, nic, &mut UpperEnd::Host(attached))
        } else {
            let (target, memory) = (&mut self.targets[connection], &mut self.disks[connection]);
            work(end, nic, &mut UpperEnd::Target(Attached { end: target, connection, memory }))
        }
    }

    /// Sends the next packet if the link is free; returns `true` if a packet was sent.
    pub fn send(&mut self, connection: usize, side: usize) -> bool {
        let now = self.now;
        if self.nics[Self::nic(connection, side)].free_at > now {
            return false;
        }
        let departure = self.with(connection, side, |end, nic, ulp| nic.transmit(now, end, ulp));
        let Some(Departure { packet, label, context, .. }) = departure else { return false };
        let mut bytes = Vec::new();
        if context.is_some() {
            if self.keeps_sent {
                self.sent.push((connection, side, packet));
            }
            if packet.payload_len > 0 {
                let is_response = packet.body.packet_type() == PacketType::PullData;
                let rsn = packet.body.rsn().expect("a packet with payload has an RSN").value();
                let to_send = match side {
                    HOST => &self.host.to_send[&(connection, is_response, rsn)],
                    _ => &self.disks[connection].to_send[&(0, is_response, rsn)],
                };
                bytes.clone_from(to_send);
            }
            assert_eq!(bytes.len(), packet.payload_len as usize);
        }
        let nic = &mut self.nics[Self::nic(connection, side)];
        nic.free_at = now + LINK.serialize(HEADERS + u64::from(packet.payload_len));
        let departure_time = nic.free_at;
        let mut copies = 1;
        copies -= usize::from(self.random.below(1_000) < self.world.lost);
        copies += usize::from(self.random.below(1_000) < self.world.duplicated);
        for _ in 0..copies {
            let extra_delay_ns = if self.random.below(1_000) < self.world.late { self.random.below(20_000) } else { 0 };
            let in_flight = InFlight { connection, to: 1 - side, packet, label, bytes: bytes.clone() };
            self.wire.schedule(departure_time + DELAY + Duration::from_ns(extra_delay_ns), in_flight);
        }
        true
    }

    fn receive(&mut self, in_flight: InFlight) {
        let InFlight { connection, to, packet, label, bytes } = in_flight;
        let current_payload =
            if to == HOST { &mut self.host.current_payload } else { &mut self.disks[connection].current_payload };
        *current_payload = bytes;
        let now = self.now;
        self.with(connection, to, |end, nic, ulp| {
            let arrival = Arrival { packet: &packet, label, marked: false, hops: 1, csig: None };
            nic.receive(now, end, ulp, &arrival);
        });
    }

    /// Sends every packet that may be sent.
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

    /// Processes the next event before or at `until`; returns `false` if there is none.
    fn step(&mut self, until: Time) -> bool {
        self.pump();
        let packet = self.wire.next_at();
        let wakes =
            |connection: usize, side: usize| self.nics[Self::nic(connection, side)].wake(&self.ends[connection][side]);
        let ends = (0..self.ends.len()).flat_map(|connection| [HOST, TARGET].map(|side| wakes(connection, side)));
        let ends = ends.flatten();
        let links = self.nics.iter().map(|nic| nic.free_at).filter(|at| *at > self.now);
        let devices = self.devices.iter().filter_map(Drive::next_done);
        let next = ends.chain(links).chain(devices).chain(packet).min().map(|at| at.max(self.now));
        let Some(next) = next.filter(|at| *at <= until) else { return false };
        self.now = next;
        if packet == Some(next) {
            let in_flight = self.wire.pop().expect("a packet is on the wire");
            self.receive(in_flight);
            return true;
        }
        for connection in 0..self.ends.len() {
            for side in [HOST, TARGET] {
                if self.ends[connection][side].timeout().is_some_and(|at| at <= next) {
                    self.with(connection, side, |end, nic, ulp| nic.expire(next, end, ulp));
                }
            }
        }
        true
    }

    /// Runs for this long.
    pub fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        let mut steps_now = (self.now, 0);
        while self.step(until) {
            steps_now = (self.now, if steps_now.0 == self.now { steps_now.1 + 1 } else { 0 });
            assert!(steps_now.1 < 100_000, "events repeat without progress at {}", self.now);
        }
        self.now = until;
    }

    /// Runs for a few microseconds.
    pub fn run_5_us(&mut self) {
        self.run_for(Duration::from_us(5));
    }

    /// Occupies all resources for Pull Data of one side's NIC.
    pub fn fill(&mut self, side: usize) -> Held {
        let resources = &mut self.nics[Self::nic(0, side)].resources;
        let free = resources.free(ResourcePart::DataTx);
        resources.hold(ResourcePart::DataTx, free).expect("the resources are free")
    }

    /// Releases the resources occupied by `fill`.
    pub fn empty(&mut self, side: usize, held: Held) {
        self.nics[Self::nic(0, side)].resources.release(held);
    }

    /// Submits a transaction of one side that does not belong to NVMe.
    pub fn submit(&mut self, connection: usize, side: usize, submission: &Submission) -> Result<(), SubmitError> {
        let now = self.now;
        self.with(connection, side, |end, nic, _| {
            end.work(now, |transactions| transactions.submit(&mut nic.resources, submission)).map(drop)
        })
    }

    /// Runs until nothing is in flight; returns `false` if that does not happen.
    pub fn run(&mut self) -> bool {
        for _ in 0..20_000 {
            self.run_for(Duration::from_us(50));
            let idle = self.ends.iter().flatten().all(|end| end.transactions().is_idle());
            let done = self.targets.iter().all(Target::is_idle) && self.initiator.units_in_flight() == 0;
            if idle && done && self.nics.iter().all(|nic| nic.resources.is_idle()) {
                return true;
            }
        }
        false
    }

    /// Fails the connection permanently at both ends.
    pub fn terminate(&mut self, connection: usize) {
        let now = self.now;
        for side in [HOST, TARGET] {
            self.with(connection, side, |end, nic, ulp| end.terminate(now, &mut nic.resources, ulp));
        }
        let [near, far] = &mut self.ends[connection];
        let (initiator, host) = (&mut self.initiator, &mut self.host);
        let resources = &mut self.nics[0].resources;
        let dead = near.work(now, |transactions| initiator.advance(connection, transactions, resources, host));
        assert_eq!(dead, Err(SubmitError::Terminated));
        let (target, disk) = (&mut self.targets[connection], &mut self.disks[connection]);
        let resources = &mut self.nics[1 + connection].resources;
        let dead = far.work(now, |transactions| target.advance(transactions, resources, disk));
        self.devices[connection].forget(now, connection as u32);
        assert_eq!(dead, Err(SubmitError::Terminated));
    }

    pub fn types(&self, from: usize) -> Vec<PacketType> {
        self.sent.iter().filter(|(_, side, _)| *side == from).map(|(.., packet)| packet.body.packet_type()).collect()
    }

    /// Payload bytes of Reads and Writes that have arrived in memory or on a disk.
    pub fn moved(&self) -> u64 {
        let placed: u64 = self.host.placed.iter().map(|span| u64::from(span.length)).sum();
        let written: u64 =
            self.disks.iter().flat_map(|disk| &disk.writes).map(|extent| u64::from(extent.blocks) << BLOCK_LOG2).sum();
        placed + written
    }
}
