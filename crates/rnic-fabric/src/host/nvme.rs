//! A host that does NVMe over Falcon: an initiator, or targets before a drive, over whole connections of their own.
//!
//! Sources: those of `rnic-nvme`, and Falcon (SIGCOMM'25) figure 2, where NVMe stands beside RDMA on the same two
//! layers. The engine of such a host has nothing to do: it maps verbs, and NVMe has none. A connection, what the
//! connections of a NIC share, and the link are driven here as the engine drives its own.
//!
//! Each client has one connection, with a target of its own; all targets share the drive, whose places they get by
//! turns, one unit each: a turn moves with a place, and not with a packet, of which reads and writes have different
//! numbers. After a packet has come, or timers have acted, the drive works, commands are posted and units handed on,
//! and a packet leaves.
//!
//! Deviations: payload is not carried (the bytes of a run are `rnic-nvme`'s tests'), and is zeros in captures; paced
//! connections are looked for among all ends instead of on a wheel, for a host has a few.

mod load;

use rnic_base::{BitRate, Duration, RandomStreams, Serial, Time};
use rnic_engine::{FalconStats, FalconTransmit, PeerId, TransmitKind};
use rnic_falcon::adaptive::AdaptiveEngine;
use rnic_falcon::connection::{Connection, ConnectionConfig};
use rnic_falcon::delivery::{Arrival, DeliveryConfig, Departure, Reception};
use rnic_falcon::resources::threshold::Isolation;
use rnic_falcon::resources::{ResourceConfig, Resources};
use rnic_falcon::transaction::{Completion, Ordering, PullReply, PushReply, Request, TransactionConfig, UpperLayer};
use rnic_nvme::device::{Full, Io};
use rnic_nvme::initiator::SubmitError;
use rnic_nvme::layout::{Chunk, Geometry};
use rnic_nvme::{
    Attached, Device, Extent, HostMemory, Initiator, InitiatorConfig, Layout, Media, Span, Target, TargetConfig, UNIT,
};
use rnic_policy::{FalconShape, Profile};
use rnic_wire::Qpn;
use rnic_wire::falcon::{Cid, FlowLabel, Packet, Rsn, Ulp, UlpProtocol};

use super::turn::Steps;
use super::{Host, Sessions};
use crate::agenda::NEVER;
use crate::check::Violations;
use crate::entry::{Entry, Flags};
use crate::falcon_counts::FalconCounts;
use crate::network::Network;
use crate::packets::FalconEnds;
use crate::topology::distance::Distances;
use crate::workload::nvme::{BLOCK_LOG2, NvmePlan};

use load::Load;

/// The NVMe part of a host: an initiator, or the targets in front of its drive.
#[derive(Debug)]
pub(crate) struct NvmeSide {
    role: Role,
    /// What this host posts, if it posts.
    load: Option<Load>,
    ends: Vec<End>,
    resources: Resources,
    adaptive: AdaptiveEngine,
    distances: Distances,
    flows: u8,
    /// Whose turn it is to send, and to have the NIC's room.
    turn: usize,
    /// Whose turn it is at the drive.
    place_turn: usize,
    /// When something is due.
    timer: Time,
    pub(crate) counts: NvmeCounts,
}

/// What a host has sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct NvmeCounts {
    pub(crate) falcon: FalconCounts,
    pub(crate) sent: u64,
    pub(crate) again: u64,
    pub(crate) acks: u64,
    /// Packets that were of no use.
    pub(crate) unused: u64,
}

/// An end of a connection.
#[derive(Debug)]
struct End {
    connection: Connection,
    peer: u32,
}

#[derive(Debug)]
enum Role {
    Initiator(Box<Initiator>),
    Drive { targets: Vec<Target>, device: Box<Device> },
}

/// Where the bytes would lie.
struct Nowhere;

impl HostMemory for Nowhere {
    fn place(&mut self, _: usize, _: Rsn, _: Span) {}

    fn gather(&mut self, _: usize, _: Rsn, _: Span) {}
}

impl Media for Nowhere {
    fn read(&mut self, _: Rsn, _: Extent) {}

    fn write(&mut self, _: Rsn, _: Extent) {}

    fn forget(&mut self, _: Rsn) {}
}

/// A host that does NVMe.
pub(super) struct WithNvme;

impl Steps for WithNvme {
    fn due(host: &Host) -> Time {
        host.nvme.as_ref().map_or(NEVER, |side| side.timer)
    }

    fn act(host: &mut Host, now: Time, _: &mut Network) {
        host.nvme.as_mut().expect(ONLY).expire(now);
    }

    fn arrive(host: &mut Host, now: Time, entry: &Entry, network: &mut Network) {
        host.arrive_with_nvme(now, entry, network);
    }

    fn offer(host: &mut Host, now: Time, network: &mut Network) {
        let Host { nvme, sessions, violations, .. } = host;
        nvme.as_mut().expect(ONLY).work(now, sessions, violations);
        host.offer_nvme(now, network);
    }
}

const ONLY: &str = "only hosts with NVMe come here";

/// What stands on a connection.
enum Above<'a> {
    Initiator(Attached<'a, Initiator, Nowhere>),
    Target(Attached<'a, Target, Nowhere>),
}

impl UpperLayer for Above<'_> {
    fn push(&mut self, now: Time, request: &Request) -> PushReply {
        match self {
            Self::Initiator(end) => end.push(now, request),
            Self::Target(end) => end.push(now, request),
        }
    }

    fn pull(&mut self, now: Time, request: &Request) -> PullReply {
        match self {
            Self::Initiator(end) => end.pull(now, request),
            Self::Target(end) => end.pull(now, request),
        }
    }

    fn headers(&self, tag: u64) -> Ulp {
        match self {
            Self::Initiator(end) => end.headers(tag),
            Self::Target(end) => end.headers(tag),
        }
    }

    fn complete(&mut self, now: Time, completion: &Completion) {
        match self {
            Self::Initiator(end) => end.complete(now, completion),
            Self::Target(end) => end.complete(now, completion),
        }
    }
}

/// What the sides of a run are made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NvmeParts<'a> {
    pub(crate) plan: &'a NvmePlan,
    pub(crate) profile: &'a Profile,
    pub(crate) line_rate: BitRate,
    pub(crate) streams: &'a RandomStreams,
}

impl NvmeParts<'_> {
    /// What `host` does in the workload; `None` when it is neither client nor drive.
    pub(crate) fn side(&self, host: u32, distances: Distances) -> Option<NvmeSide> {
        let plan = self.plan;
        let shape = self.profile.protocol.falcon().expect("the plan was checked");
        let adaptive = AdaptiveEngine::of(self.profile, shape, self.line_rate, UNIT, None);
        let mut adaptive = adaptive.expect("the profile was checked");
        let resources = Resources::new(ResourceConfig::of(shape));
        let random = || self.streams.stream(&format!("workload/nvme/host-{host}"));
        let (role, load, peers) = if let Some(client) = plan.client(host) {
            (
                Role::Initiator(Box::new(initiator(plan, client))),
                Some(Load::new(*plan, random())),
                vec![(plan.to, client)],
            )
        } else if host == plan.to {
            let clients = if plan.local { 0 } else { plan.clients };
            let targets = (0..clients).map(target).collect();
            let role = Role::Drive { targets, device: Box::new(Device::new(plan.drive)) };
            let load = plan.local.then(|| Load::new(*plan, random()));
            (role, load, (0..clients).map(|client| (plan.from + client, 0)).collect())
        } else {
            return None;
        };
        let end = |(number, (peer, theirs)): (usize, (u32, u32))| {
            let config = self.connection(shape, &resources, host, theirs);
            let connection = Connection::new(&config, &mut adaptive, number as u32).expect("there are few");
            End { connection, peer }
        };
        let ends = peers.into_iter().enumerate().map(end).collect();
        let (flows, counts) = (shape.flows, NvmeCounts::default());
        let (turn, place_turn, timer) = (0, 0, NEVER);
        Some(NvmeSide { role, load, ends, resources, adaptive, distances, flows, turn, place_turn, timer, counts })
    }

    /// The end at `host` of a connection; the other side calls its own `theirs`.
    fn connection(&self, shape: &FalconShape, resources: &Resources, host: u32, theirs: u32) -> ConnectionConfig {
        let mtu = UNIT + HEADERS_MAX;
        let transactions = TransactionConfig {
            ordering: Ordering::Unordered,
            protocol: UlpProtocol::Nvme,
            mtu: mtu as u16,
            outstanding: shape.outstanding,
            timeout: TRANSACTION_TIMEOUT,
            isolation: Isolation::of(shape, mtu, resources.config()),
        };
        let mut labels = self.streams.stream(&format!("nvme/labels/{host}-{theirs}"));
        let delivery = DeliveryConfig {
            cid: Cid::new(FIRST_CID + theirs),
            ordered: false,
            flow_hash: labels.bits(),
            labels: core::array::from_fn(|_| FlowLabel::new((labels.bits() >> 44) as u32)),
            ..DeliveryConfig::of(self.profile, shape)
        };
        let first_rsn = [Serial::new(0); 2];
        ConnectionConfig { transactions, delivery, first_rsn }
    }
}

fn initiator(plan: &NvmePlan, client: u32) -> Initiator {
    let geometry = Geometry { chunk: 0, stripe: 0, group: 0, block: BLOCK_LOG2 };
    let first_block = u64::from(client) << (30 - BLOCK_LOG2);
    let layout = Layout::new(geometry, &[Chunk { connection: 0, namespace: NAMESPACE, first_block }]);
    let config =
        InitiatorConfig { function: client + 1, namespace: 1, commands: plan.depth, units: UNITS, timeout: TIMEOUT };
    Initiator::new(config, layout.expect("one chunk of a gigabyte"))
}

fn target(client: u32) -> Target {
    let blocks = (u64::from(client) + 2) << (30 - BLOCK_LOG2);
    Target::new(TargetConfig { owner: client, namespace: NAMESPACE, blocks, block_log2: BLOCK_LOG2, units: UNITS })
}

impl NvmeSide {
    /// What it has sent, and what its connections and its NIC have counted.
    pub(crate) fn falcon_counts(&self) -> FalconCounts {
        let fullest = self.resources.fullest();
        let mut stats = FalconStats { fullest, events: self.adaptive.counts(), ..FalconStats::default() };
        self.ends.iter().for_each(|end| stats.add(end.connection.delivery()));
        let mut counts = self.counts.falcon.clone();
        counts.note(&stats);
        counts
    }

    /// Lets `work` use an end, with what stands on it.
    fn with<R>(&mut self, end: usize, work: impl FnOnce(&mut Connection, &mut Resources, &mut Above<'_>) -> R) -> R {
        let memory = &mut Nowhere;
        let mut above = match &mut self.role {
            Role::Initiator(initiator) => Above::Initiator(Attached { end: initiator, connection: end, memory }),
            Role::Drive { targets, .. } => Above::Target(Attached { end: &mut targets[end], connection: 0, memory }),
        };
        work(&mut self.ends[end].connection, &mut self.resources, &mut above)
    }

    fn consult(&mut self, now: Time, end: usize) {
        self.ends[end].connection.consult(now, &self.resources, &mut self.adaptive);
    }

    /// Takes in a packet from host `src`.
    fn receive(&mut self, now: Time, ends: FalconEnds, packet: &Packet, marked: bool) -> Reception {
        let FalconEnds { src, label } = ends;
        let end = packet.cid.get().wrapping_sub(FIRST_CID) as usize;
        if self.ends.get(end).is_none_or(|end| end.peer != src) {
            return Reception::Dropped;
        }
        let hops = self.distances.switches(src);
        let arrival = Arrival { packet, label, marked, hops };
        let reception =
            self.with(end, |connection, resources, above| connection.receive(now, &arrival, resources, above));
        self.consult(now, end);
        reception
    }

    /// Does what is due.
    fn expire(&mut self, now: Time) {
        while let Some((end, response)) = self.adaptive.poll(now) {
            self.ends[end as usize].connection.obey(&response);
        }
        if let Role::Initiator(initiator) = &mut self.role {
            initiator.expire(now);
        }
        for end in 0..self.ends.len() {
            if self.ends[end].connection.timeout().is_some_and(|at| at <= now) {
                self.with(end, |connection, resources, above| connection.expire(now, resources, above));
                self.consult(now, end);
            }
        }
    }

    /// The drive, commands and units do what they can.
    fn work(&mut self, now: Time, sessions: &mut Sessions, violations: &mut Violations) {
        if let Role::Drive { targets, device } = &mut self.role {
            while let Some(io) = device.done(now) {
                match (targets.get_mut(io.owner as usize), &mut self.load) {
                    (Some(target), _) => target.served(&io, &mut Nowhere),
                    (None, Some(load)) => load.done(now, io.tag.into(), sessions),
                    (None, None) => {}
                }
            }
        }
        self.post(now, violations);
        self.advance(now);
        if let (Role::Initiator(initiator), Some(load)) = (&mut self.role, &mut self.load) {
            let mut any = false;
            while let Some(completion) = initiator.poll() {
                any = true;
                match completion.result {
                    Ok(()) => load.done(now, completion.cookie, sessions),
                    Err(failure) => {
                        violations.add(now, format!("an NVMe command failed: {failure}"));
                        load.failed(completion.cookie);
                    }
                }
            }
            if any {
                self.post(now, violations);
                self.advance(now);
            }
        }
    }

    /// Posts what there is to post.
    fn post(&mut self, now: Time, violations: &mut Violations) {
        let Some(load) = &mut self.load else { return };
        while let Some(command) = load.next(now) {
            let result = match &mut self.role {
                Role::Initiator(initiator) => initiator.submit(now, &command),
                Role::Drive { device, .. } => {
                    let extent = Extent { first_block: command.first_block, blocks: command.blocks };
                    let (direction, tag) = (command.direction, command.cookie as u32);
                    let taken = device.submit(now, Io { owner: LOCAL, tag, direction, extent });
                    taken.map(drop).map_err(|Full| SubmitError::Full)
                }
            };
            let Err(error) = result else { continue };
            load.take_back(command.cookie);
            if error != SubmitError::Full {
                // Nor will it be taken later.
                load.end();
                violations.add(now, format!("an NVMe command cannot be posted: {error}"));
            }
            return;
        }
    }

    /// Every end hands on what it can; the first in turn has the first choice of the NIC's room.
    fn advance(&mut self, now: Time) {
        if let Role::Drive { targets, device } = &mut self.role {
            Target::share_places(now, targets, device, &mut self.place_turn);
        }
        let count = self.ends.len();
        for end in (0..count).map(|place| (self.turn + place) % count) {
            let (resources, memory) = (&mut self.resources, &mut Nowhere);
            let connection = &mut self.ends[end].connection;
            // A connection that is dead fails its commands, which is noted where they complete.
            let _ = match &mut self.role {
                Role::Initiator(initiator) => {
                    connection.work(now, |transactions| initiator.advance(end, transactions, resources, memory))
                }
                Role::Drive { targets, device } => connection
                    .work(now, |transactions| targets[end].advance(now, device, transactions, resources, memory)),
            };
        }
    }

    /// The next packet that leaves, and whom it is for.
    fn transmit(&mut self, now: Time) -> Option<FalconTransmit> {
        let (count, turn) = (self.ends.len(), self.turn);
        for end in (0..count).map(|place| (turn + place) % count) {
            let departure = self.with(end, |connection, resources, above| connection.transmit(now, resources, above));
            let Some(Departure { packet, label, context, again }) = departure else { continue };
            self.turn = (end + 1) % count;
            let kind = TransmitKind::of_falcon(packet.body.packet_type(), again);
            let place = match (context.is_some(), again) {
                (false, _) => &mut self.counts.acks,
                (true, false) => &mut self.counts.sent,
                (true, true) => &mut self.counts.again,
            };
            *place += 1;
            let from = Qpn::new(end as u32);
            return Some(FalconTransmit { packet, peer: PeerId(self.ends[end].peer), label, from, kind });
        }
        None
    }

    /// When a packet may leave for which it is too early now.
    fn departure(&self, now: Time) -> Time {
        let departures = self.ends.iter().filter_map(|end| end.connection.departure());
        departures.filter(|at| *at > now).min().unwrap_or(NEVER)
    }

    /// When something is due, at connections what `timeout` says: not before `free_at`, when the link takes the next
    /// packet, which an acknowledgement waits for.
    fn next_timer(&self, now: Time, timeout: fn(&Connection) -> Option<Time>, free_at: Time) -> Time {
        let timeouts = self.ends.iter().filter_map(|end| timeout(&end.connection)).map(|at| at.max(free_at));
        let above = match &self.role {
            Role::Drive { device, .. } => device.next_done(),
            Role::Initiator(initiator) => initiator.next_timeout(),
        };
        let next = timeouts.chain(above).chain(self.adaptive.next_at()).min();
        next.map_or(NEVER, |at| at.max(now + STEP))
    }

    /// Commands that are not done.
    pub(crate) fn under_way(&self) -> u64 {
        self.load.as_ref().map_or(0, |load| load.under_way() as u64)
    }

    /// When each command was posted that this host has done, and how long it took.
    pub(crate) fn all_done(&self) -> &[(Time, Duration)] {
        self.load.as_ref().map_or(&[], Load::all_done)
    }

    /// What the other ends did wrong.
    pub(crate) fn peer_errors(&self) -> u64 {
        match &self.role {
            Role::Initiator(initiator) => initiator.peer_errors().total(),
            Role::Drive { targets, .. } => targets.iter().map(|target| target.peer_errors().total()).sum(),
        }
    }
}

impl Host {
    /// From now on it does NVMe; the engine has nothing to do. The first commands leave at the beginning.
    pub(crate) fn set_nvme(&mut self, side: NvmeSide) {
        self.nvme = Some(Box::new(side));
        self.is_special = true;
        self.wake = Time::ZERO;
    }

    fn arrive_with_nvme(&mut self, now: Time, entry: &Entry, network: &mut Network) {
        if entry.is_pause_frame() {
            return self.heed_pause_frame(now, entry);
        }
        let is_ours = entry.has(Flags::FALCON);
        if entry.has(Flags::CORRUPT) || !is_ours {
            self.stats.corrupt += u64::from(is_ours);
        } else if let Some(side) = &mut self.nvme {
            let packets = &network.falcon_packets;
            let (ends, marked) = (packets.ends(entry.packet), entry.has(Flags::MARKED));
            match side.receive(now, ends, packets.headers(entry.packet), marked) {
                Reception::Kept => self.stats.useful += 1,
                Reception::Answer => {}
                _ => side.counts.unused += 1,
            }
        }
        network.remove(entry);
    }

    /// Sends what can leave, and remembers when to look again.
    fn offer_nvme(&mut self, now: Time, network: &mut Network) {
        let side = self.nvme.as_mut().expect(ONLY);
        (self.wake, side.timer) = (NEVER, NEVER);
        if self.port.is_paused() {
            // Nothing could leave, and who unpauses wakes. The drive works on, and what takes too long does.
            side.timer = side.next_timer(now, Connection::expiry, Time::ZERO);
            return;
        }
        if self.port.free_at <= now
            && let Some(transmit) = side.transmit(now)
        {
            side.counts.falcon.count(&transmit, side.flows);
            let packets = &mut network.falcon_packets;
            let entry = self.carriage.load_falcon(&transmit, packets);
            if self.carriage.wants_bytes() {
                self.carriage.load_falcon_bytes(now, &transmit, None, entry.packet, packets);
            }
            self.port.send(now, entry, network);
        }
        let free_at = self.port.free_at;
        self.wake = if free_at > now { free_at } else { side.departure(now) };
        side.timer = side.next_timer(now, Connection::timeout, free_at);
    }
}

/// Connections are numbered from here on.
const FIRST_CID: u32 = 1;
const NAMESPACE: u16 = 1;
/// Marks what the drive does for its own host.
const LOCAL: u32 = u32::MAX;
/// Units of a connection under way, at most: those of 128 commands of 16 KB, which fill a drive's queue four times.
const UNITS: u32 = 512;
/// Bytes of a transaction beyond its unit, at most.
const HEADERS_MAX: u32 = 256;
/// Of a command: what hosts of NVMe have unless they are told otherwise.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Packets end attempts; a transaction by itself never does.
const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(1_000_000);
/// What is due already waits for something else that happens: time goes on all the same.
const STEP: Duration = Duration::from_ns(1);
