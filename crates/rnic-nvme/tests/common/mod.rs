//! An initiator and its targets over real transaction layers and a bad network that carries bytes.
//!
//! The delivery layer is the least that delivers: a packet is sent again until it is acknowledged. Packets and
//! acknowledgements are lost, doubled and overtake each other; everything random comes from one seeded stream.

#![allow(dead_code, reason = "each test uses its part")]

use std::collections::BTreeMap;

use rnic_base::{BitRate, Duration, Psn32, RandomStream, RandomStreams, Serial, Time};
use rnic_falcon::resources::threshold::Isolation;
use rnic_falcon::resources::{ResourceConfig, Resources};
use rnic_falcon::seam::{Context, Gates, Outgoing, Upper, Verdict, Window};
use rnic_falcon::transaction::{Layer, Ordering, Settled, SubmitError, TransactionConfig, Transactions};
use rnic_nvme::device::Service;
use rnic_nvme::layout::{Chunk, Geometry};
use rnic_nvme::{Attached, Device, DeviceConfig, Extent, HostMemory, Initiator, InitiatorConfig};
use rnic_nvme::{Layout, Media, Span, Target, TargetConfig};
use rnic_wire::falcon::{Body, Cid, NackCode, Packet, PacketType, Rsn, Timestamp, UlpProtocol, WindowBases};

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
    /// Lost, and doubled, in a thousand.
    pub lost: u64,
    pub doubled: u64,
}

pub const NAMESPACE: u16 = 7;
pub const BLOCK_LOG2: u32 = 9;

pub const WORLD: World = World {
    connections: 1,
    initiator: InitiatorConfig { function: 0x01_0203, namespace: 1, commands: 16, units: 32 },
    target_units: 32,
    device: DeviceConfig {
        read: Service { latency: Duration::from_us(8), bandwidth: BitRate::gbps(32) },
        write: Service { latency: Duration::from_us(4), bandwidth: BitRate::gbps(16) },
        queue_depth: 8,
        block_log2: BLOCK_LOG2,
    },
    lost: 0,
    doubled: 0,
};

const TRANSACTIONS: TransactionConfig = TransactionConfig {
    ordering: Ordering::Unordered,
    protocol: UlpProtocol::Nvme,
    mtu: 4_352,
    outstanding: 128,
    timeout: Duration::from_ms(1_000_000),
    isolation: Isolation::None,
};

/// Bytes by whose transaction they belong to: theirs (what a Pull brings) or ours (a Push, and what answers a Pull).
type Payloads = BTreeMap<(usize, bool, u32), Vec<u8>>;

/// The host's buffers, by cookie, and what is on its way.
#[derive(Debug, Default)]
pub struct Host {
    pub buffers: BTreeMap<u64, Vec<u8>>,
    arrived: Payloads,
    leaving: Payloads,
    pub placed: Vec<Span>,
}

fn range(span: Span) -> core::ops::Range<usize> {
    span.offset as usize..(span.offset + span.length) as usize
}

impl HostMemory for Host {
    fn place(&mut self, connection: usize, rsn: Rsn, to: Span) {
        let bytes = self.arrived.remove(&(connection, false, rsn.value())).expect("bytes that came with the Push");
        self.buffers.get_mut(&to.cookie).expect("a command under way")[range(to)].copy_from_slice(&bytes);
        self.placed.push(to);
    }

    fn gather(&mut self, connection: usize, rsn: Rsn, from: Span) {
        let bytes = self.buffers[&from.cookie][range(from)].to_vec();
        assert_eq!(self.leaving.insert((connection, true, rsn.value()), bytes), None, "asked for twice");
    }
}

/// A target's blocks, as far as they were written, and what is on its way.
#[derive(Debug, Default)]
pub struct Disk {
    pub blocks: BTreeMap<u64, Vec<u8>>,
    arrived: Payloads,
    leaving: Payloads,
    pub writes: Vec<Extent>,
}

impl Media for Disk {
    fn read(&mut self, rsn: Rsn, from: Extent) {
        let blocks = from.first_block..from.first_block + u64::from(from.blocks);
        let zero = vec![0; 1 << BLOCK_LOG2];
        let bytes = blocks.flat_map(|block| self.blocks.get(&block).unwrap_or(&zero).clone()).collect();
        assert_eq!(self.leaving.insert((0, false, rsn.value()), bytes), None);
    }

    fn write(&mut self, rsn: Rsn, to: Extent) {
        let bytes = self.arrived.remove(&(0, true, rsn.value())).expect("bytes that the Pull brought");
        for (nth, block) in bytes.chunks(1 << BLOCK_LOG2).enumerate() {
            self.blocks.insert(to.first_block + nth as u64, block.to_vec());
        }
        assert_eq!(bytes.len(), (to.blocks as usize) << BLOCK_LOG2);
        self.writes.push(to);
    }

    fn forget(&mut self, rsn: Rsn) {
        self.arrived.remove(&(0, true, rsn.value()));
    }
}

#[derive(Clone, Debug)]
enum Message {
    Packet(Packet, Vec<u8>),
    Acked((Window, u32)),
    Nacked((Window, u32), NackCode),
}

/// One end of a connection.
#[derive(Debug)]
pub struct End {
    pub transactions: Transactions,
    outstanding: BTreeMap<(Window, u32), Context>,
    next_psn: [u32; 2],
    arrived: BTreeMap<(Window, u32), bool>,
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
    pub devices: Vec<Device>,
    /// Of the host, then of each target.
    pub nics: Vec<Resources>,
    /// By connection, then by side.
    pub ends: Vec<[End; 2]>,
    air: Vec<(usize, usize, Message)>,
    /// Every packet that left: connection, from which side.
    pub sent: Vec<(usize, usize, Packet)>,
}

const FIRST: Serial<32> = Serial::new(u32::MAX - 40);

impl Net {
    pub fn new(world: World, seed: u64) -> Self {
        let geometry = Geometry { chunk: 0, stripe: 0, group: world.connections.ilog2(), block: BLOCK_LOG2 };
        let chunk = |connection| Chunk { connection, namespace: NAMESPACE, first_block: 64 };
        let chunks: Vec<Chunk> = (0..world.connections).map(chunk).collect();
        let end = |_| End {
            transactions: Transactions::new(TRANSACTIONS, FIRST),
            outstanding: BTreeMap::new(),
            next_psn: [0; 2],
            arrived: BTreeMap::new(),
        };
        let target = |owner| TargetConfig {
            owner,
            namespace: NAMESPACE,
            blocks: 64 + (1 << 21),
            block_log2: BLOCK_LOG2,
            units: world.target_units,
        };
        Self {
            world,
            now: Time::ZERO,
            random: RandomStreams::new(seed).stream("network"),
            initiator: Initiator::new(world.initiator, Layout::new(geometry, &chunks).expect("it makes sense")),
            host: Host::default(),
            targets: (0..world.connections).map(|owner| Target::new(target(owner))).collect(),
            disks: (0..world.connections).map(|_| Disk::default()).collect(),
            devices: (0..world.connections).map(|_| Device::new(world.device)).collect(),
            nics: (0..=world.connections).map(|_| Resources::new(ResourceConfig::GBPS_200)).collect(),
            ends: (0..world.connections).map(|_| [0, 1].map(end)).collect(),
            air: Vec::new(),
            sent: Vec::new(),
        }
    }

    /// Does with the layer of one end what `work` says.
    fn with<R>(&mut self, connection: usize, side: usize, work: impl FnOnce(&mut dyn Upper) -> R) -> R {
        let transactions = &mut self.ends[connection][side].transactions;
        if side == HOST {
            let ulp = &mut Attached { end: &mut self.initiator, connection, memory: &mut self.host };
            work(&mut Layer { transactions, resources: &mut self.nics[0], ulp })
        } else {
            let (end, memory) = (&mut self.targets[connection], &mut self.disks[connection]);
            let ulp = &mut Attached { end, connection, memory };
            work(&mut Layer { transactions, resources: &mut self.nics[1 + connection], ulp })
        }
    }

    /// Both ends do what they can.
    pub fn advance(&mut self, connection: usize) {
        let transactions = &mut self.ends[connection][HOST].transactions;
        self.initiator.advance(connection, transactions, &mut self.nics[0], &mut self.host).expect("it is alive");
        let (target, device) = (&mut self.targets[connection], &mut self.devices[connection]);
        let disk = &mut self.disks[connection];
        while let Some(io) = device.done(self.now) {
            target.served(&io, disk);
        }
        let transactions = &mut self.ends[connection][TARGET].transactions;
        target.advance(self.now, device, transactions, &mut self.nics[1 + connection], disk).expect("it is alive");
    }

    /// Sends what leaves next; whether anything did.
    pub fn send(&mut self, connection: usize, side: usize) -> bool {
        let (now, open) = (self.now, Gates { pull_request: true, push_data: true, pull_data: true });
        let Some(outgoing) = self.with(connection, side, |layer| layer.next(now, open)) else { return false };
        let end = &mut self.ends[connection][side];
        let window = outgoing.body.window().expect("not an acknowledgement");
        let number = end.next_psn[window as usize];
        end.next_psn[window as usize] += 1;
        end.outstanding.insert((window, number), outgoing.context);
        self.put(connection, side, number, outgoing);
        true
    }

    fn put(&mut self, connection: usize, side: usize, number: u32, outgoing: Outgoing) {
        let psn = Psn32::new(number);
        let body = match outgoing.body {
            Body::PullRequest { rsn, length, ulp, .. } => Body::PullRequest { psn, rsn, length, ulp },
            Body::PullData { rsn, ulp, .. } => Body::PullData { psn, rsn, ulp },
            Body::PushData { rsn, length, ulp, .. } => Body::PushData { psn, rsn, length, ulp },
            Body::Resync { rsn, code, of, vendor, .. } => Body::Resync { psn, rsn, code, of, vendor },
            other => other,
        };
        let (bases, timestamp) = (WindowBases::default(), Timestamp::default());
        let (cid, protocol, payload_len) = (Cid::new(connection as u32), outgoing.protocol, outgoing.payload_len);
        let packet = Packet { cid, function: 0, protocol, ack_request: false, bases, timestamp, payload_len, body };
        let answers = packet.body.packet_type() == PacketType::PullData;
        let rsn = body.rsn().expect("not an acknowledgement").value();
        let bytes = match side {
            HOST => self.host.leaving.get(&(connection, answers, rsn)),
            _ => self.disks[connection].leaving.get(&(0, answers, rsn)),
        };
        let bytes = if payload_len == 0 { Vec::new() } else { bytes.expect("bytes for what has some").clone() };
        assert_eq!(bytes.len(), payload_len as usize);
        self.sent.push((connection, side, packet));
        self.fly(connection, 1 - side, Message::Packet(packet, bytes));
    }

    fn fly(&mut self, connection: usize, to: usize, message: Message) {
        let mut copies = 1;
        copies -= usize::from(self.random.below(1_000) < self.world.lost);
        copies += usize::from(self.random.below(1_000) < self.world.doubled);
        (0..copies).for_each(|_| self.air.push((connection, to, message.clone())));
    }

    /// Delivers something that is under way, anything.
    pub fn deliver(&mut self) -> bool {
        if self.air.is_empty() {
            return false;
        }
        let index = self.random.below(self.air.len() as u64) as usize;
        let (connection, side, message) = self.air.swap_remove(index);
        match message {
            Message::Packet(packet, bytes) => self.receive(connection, side, &packet, bytes),
            Message::Acked(key) => {
                if let Some(context) = self.ends[connection][side].outstanding.remove(&key) {
                    let now = self.now;
                    self.with(connection, side, |layer| layer.acked(now, context));
                }
            }
            Message::Nacked(key, code) => {
                if let Some(&context) = self.ends[connection][side].outstanding.get(&key)
                    && !matches!(code, NackCode::Resource | NackCode::NotReady { .. })
                {
                    let now = self.now;
                    self.with(connection, side, |layer| layer.nacked(now, context, code));
                    self.repeat(connection, side, key);
                }
            }
        }
        self.settle(connection, side);
        true
    }

    pub fn receive(&mut self, connection: usize, side: usize, packet: &Packet, bytes: Vec<u8>) {
        let key = (packet.body.window().expect("data"), packet.body.psn().expect("data").value());
        let (now, resync) = (self.now, matches!(packet.body, Body::Resync { .. }));
        let known = self.ends[connection][side].arrived.get(&key).copied();
        if known == Some(true) {
            return self.fly(connection, 1 - side, Message::Acked(key));
        }
        if known == Some(false) && !resync {
            if let Some(code) = self.with(connection, side, |layer| layer.duplicate(now, packet)) {
                self.fly(connection, 1 - side, Message::Nacked(key, code));
            }
            return;
        }
        let answers = packet.body.packet_type() == PacketType::PullData;
        let rsn = packet.body.rsn().expect("data").value();
        match side {
            HOST => self.host.arrived.insert((connection, answers, rsn), bytes),
            _ => self.disks[connection].arrived.insert((0, answers, rsn), bytes),
        };
        let verdict = self.with(connection, side, |layer| layer.offer(now, packet));
        let arrived = &mut self.ends[connection][side].arrived;
        match verdict {
            Verdict::Accepted { acknowledged } => {
                arrived.insert(key, acknowledged);
                if acknowledged {
                    self.fly(connection, 1 - side, Message::Acked(key));
                }
            }
            Verdict::Refused(code) => {
                arrived.insert(key, false);
                self.fly(connection, 1 - side, Message::Nacked(key, code));
            }
            Verdict::NoResources => self.fly(connection, 1 - side, Message::Nacked(key, NackCode::Resource)),
            Verdict::Dropped => panic!("dropped {packet:?}"),
        }
    }

    fn repeat(&mut self, connection: usize, side: usize, key: (Window, u32)) {
        let Some(&context) = self.ends[connection][side].outstanding.get(&key) else { return };
        let now = self.now;
        let outgoing = self.with(connection, side, |layer| layer.again(now, context));
        self.put(connection, side, key.1, outgoing);
    }

    fn settle(&mut self, connection: usize, side: usize) {
        while let Some(settled) = self.ends[connection][side].transactions.settled() {
            let (received, message) = match settled {
                Settled::Acknowledged(received) => (received, None),
                Settled::Refused(received, code) => (received, Some(code)),
            };
            let key = (received.window, received.psn.value());
            let message = match message {
                None => {
                    self.ends[connection][side].arrived.insert(key, true);
                    Message::Acked(key)
                }
                Some(code) => Message::Nacked(key, code),
            };
            self.fly(connection, 1 - side, message);
        }
    }

    /// Everything happens that can, a few microseconds pass, and what was lost is sent again.
    pub fn round(&mut self) {
        for connection in 0..self.ends.len() {
            self.advance(connection);
            for side in [HOST, TARGET] {
                while self.send(connection, side) {}
            }
        }
        while self.deliver() {}
        for connection in 0..self.ends.len() {
            for side in [HOST, TARGET] {
                let keys: Vec<_> = self.ends[connection][side].outstanding.keys().copied().collect();
                keys.into_iter().for_each(|key| self.repeat(connection, side, key));
            }
        }
        self.now += Duration::from_us(5);
    }

    /// Until nothing is under way; whether it came to that.
    pub fn run(&mut self) -> bool {
        let idle = |net: &Self| {
            net.targets.iter().all(Target::is_idle)
                && net.ends.iter().flatten().all(|end| end.transactions.is_idle() && end.outstanding.is_empty())
        };
        for _ in 0..5_000 {
            self.round();
            if self.air.is_empty() && idle(self) && self.initiator.units_under_way() == 0 {
                return true;
            }
        }
        false
    }

    /// The connection fails for good, at both ends.
    pub fn die(&mut self, connection: usize) {
        let (now, ends) = (self.now, &mut self.ends[connection]);
        let ulp = &mut Attached { end: &mut self.initiator, connection, memory: &mut self.host };
        Layer { transactions: &mut ends[HOST].transactions, resources: &mut self.nics[0], ulp }.die(now);
        let (end, memory) = (&mut self.targets[connection], &mut self.disks[connection]);
        let ulp = &mut Attached { end, connection, memory };
        let resources = &mut self.nics[1 + connection];
        Layer { transactions: &mut ends[TARGET].transactions, resources, ulp }.die(now);
        let transactions = &mut self.ends[connection][HOST].transactions;
        let dead = self.initiator.advance(connection, transactions, &mut self.nics[0], &mut self.host);
        assert_eq!(dead, Err(SubmitError::Dead));
        let transactions = &mut self.ends[connection][TARGET].transactions;
        let (device, disk) = (&mut self.devices[connection], &mut self.disks[connection]);
        let resources = &mut self.nics[1 + connection];
        let dead = self.targets[connection].advance(now, device, transactions, resources, disk);
        assert_eq!(dead, Err(SubmitError::Dead));
    }

    pub fn types(&self, from: usize) -> Vec<PacketType> {
        self.sent.iter().filter(|(_, side, _)| *side == from).map(|(.., packet)| packet.body.packet_type()).collect()
    }
}
