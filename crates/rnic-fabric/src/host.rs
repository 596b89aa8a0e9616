//! A host: an engine, its link, and its workload.
//!
//! The link pulls packets: when the port is free and not paused, the engine is polled for a packet, including
//! acknowledgements. So no packet is queued between engine and port, and a pause stops all packets.
//!
//! There are five types of hosts ([`event_loop`]): RoCE family or Falcon, each with or without a modelled NIC
//! ([`nic`]: contexts, a PCIe bus), and one for queue pairs with classes or of both families ([`classed`]).
//! Apart from them, the link of a host may serve an endpoint that is no engine ([`attached`]), such as [`tcp`].
//!
//! At the same instant a host first receives, then does the work of its type (of its modelled NIC or of a slow host),
//! then starts flows, then processes timers, then sends.

pub(crate) mod attached;
mod classed;
mod codec;
mod event_loop;
mod falcon;
pub mod memory;
mod messages;
mod meter;
pub mod nic;
mod nvme;
mod prefetch;
mod rank;
mod rate;
mod recoveries;
mod script;
mod session;
pub(crate) mod slow;
mod tally;
mod target;
pub mod tcp;
mod traced;

use std::collections::VecDeque;

use rnic_base::{Time, TraceHash};
use rnic_engine::messages::stats::RoundTrip;
use rnic_engine::{
    Arrival, Completion, CqId, Departure, Engine, Key, NoDma, PdId, PeerId, RxMeta, RxOutcome, Transmit,
};
use rnic_wire::{Headers, Packet, Qpn};

use crate::calendar::NEVER;
use crate::check::Violations;
use crate::endpoint::Endpoint;
use crate::entry::{Entry, Flags};
use crate::network::Network;
use crate::packets::Endpoints;
use crate::port::{Port, PortStats};
use crate::topology::Node;

pub(crate) use classed::{HostClasses, set_classes};
pub(crate) use codec::{Captured, PacketCodec};
pub(crate) use falcon::FalconState;
pub(crate) use meter::{Meter, QueuePairCounter};
pub(crate) use nvme::{Load, NvmeUser, fill_drive, first_wrong_block};
pub(crate) use prefetch::STEPS;
pub(crate) use rank::Rank;
pub(crate) use rate::CompletionRate;
pub use recoveries::Recoveries;
pub(crate) use script::{CollectiveTime, ScriptRun};
pub(crate) use session::{Buffers, FlowEvent, Receiver, Sender, Sessions};
pub(crate) use tally::TenantTally;
pub(crate) use traced::{HostLog, start_log, take_log};

use event_loop::Plain;
use memory::Memory;
use nvme::{NVME_START, NVME_WORK};

/// Counters of a host, in addition to those of its engine and its port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct HostStats {
    pub(crate) events: u64,
    /// Received packets that were damaged.
    pub(crate) corrupt: u64,
    /// Number of useful packets: received packets that the engine accepted, in order or out of order. They indicate
    /// progress, as opposed to traffic.
    pub(crate) useful: u64,
    /// Packets that filled a gap in front of packets received out of order.
    pub(crate) holes_filled: u64,
}

/// An end station of the network.
#[derive(Debug)]
pub struct Host {
    node: Node,
    ring: u32,
    pub(crate) engine: Engine,
    pub(crate) pd: PdId,
    pub(crate) cq: CqId,
    pub(crate) port: Port,
    /// Time at which the engine is to be polled for the next packet.
    wake: Time,
    /// Time at which the engine's timers are due.
    timer: Time,
    /// Flows to start and messages to post, ordered by time: the time and the slot of the sender.
    starts: VecDeque<(Time, u32)>,
    /// Memory of the host, when payload bytes are checked.
    pub(crate) memory: Option<Memory>,
    /// Key of the entire memory, when payload bytes are not checked.
    pub(crate) whole_memory: Option<Key>,
    /// Bytes of memory that the caller has allocated.
    pub(crate) caller_memory_bytes: u64,
    codec: PacketCodec,
    pub(crate) sessions: Sessions,
    /// Completions of work that the caller posted itself, with their times.
    pub(crate) manual_completions: VecDeque<(Time, Completion)>,
    pub(crate) violations: Violations,
    pub(crate) trace: TraceHash,
    /// Trace hash of all completions, in order.
    pub(crate) completions: TraceHash,
    pub(crate) stats: HostStats,
    /// Round trips that probes have measured, in order of time.
    pub(crate) round_trips: Vec<RoundTrip>,
    pub(crate) recoveries: Box<recoveries::RecoveryTracker>,
    /// True while `recoveries` has recoveries in progress. A copy of that state, stored near the fields that are used
    /// for every packet.
    repairing: bool,
    /// Model of the NIC's memory and bus, when the plan has one.
    pub(crate) nic: Option<Box<nic::NicModel>>,
    /// State for the Falcon transport; `None` on hosts of the RoCE family.
    falcon: Option<Box<FalconState>>,
    /// NVMe commands of the host, when it uses a drive.
    pub(crate) nvme: Option<Box<NvmeUser>>,
    /// User of the link in place of the engine, when the caller has attached one.
    attached: Option<Box<dyn Endpoint>>,
    /// Events for a trace, while the run is traced.
    log: Option<Box<HostLog>>,
    /// Counts of classes, when queue pairs have classes or several families of transports.
    pub(crate) classes: Option<Box<HostClasses>>,
    /// Counts received payload, when the plan sets a slice or has tenants.
    pub(crate) meter: Option<Box<Meter>>,
    /// True when `nic`, `falcon`, `classes`, `log` or `attached` is set, so that the host has a separate event loop. A
    /// copy of that state, so that only one test per scheduling turn is needed. Functions that set them also set this.
    has_model: bool,
}

/// Bit set in the identifiers of work requests that were posted by the caller, not by flows.
pub const MANUAL_WORK: u64 = 1 << 63;

/// Capacity of the completion queue: more than the flows of a host have in flight, and much less than would fit into
/// memory.
const CQ_CAPACITY: u32 = 1 << 16;

impl Host {
    pub(crate) fn new(
        node: Node,
        ring: u32,
        mut engine: Engine,
        port: Port,
        codec: PacketCodec,
        check_payload: bool,
    ) -> Self {
        let pd = engine.objects_mut().create_pd().expect("a new engine has a free protection domain");
        let cq = engine.objects_mut().create_cq(CQ_CAPACITY).expect("the capacity is legal");
        Self {
            node,
            ring,
            engine,
            pd,
            cq,
            port,
            wake: NEVER,
            timer: NEVER,
            starts: VecDeque::new(),
            memory: check_payload.then(Memory::new),
            whole_memory: None,
            caller_memory_bytes: 0,
            codec,
            sessions: Sessions::default(),
            manual_completions: VecDeque::new(),
            violations: Violations::default(),
            trace: TraceHash::new(),
            completions: TraceHash::new(),
            stats: HostStats::default(),
            round_trips: Vec::new(),
            recoveries: Box::default(),
            repairing: false,
            nic: None,
            falcon: None,
            nvme: None,
            attached: None,
            log: None,
            classes: None,
            meter: None,
            has_model: false,
        }
    }

    /// Processes all events before `horizon`.
    #[inline(always)]
    pub(crate) fn run(&mut self, horizon: Time, network: &mut Network) {
        if self.has_model {
            return self.run_model(horizon, network);
        }
        self.turn::<Plain>(horizon, network);
    }

    #[cold]
    #[inline(never)]
    fn run_model(&mut self, horizon: Time, network: &mut Network) {
        if self.attached.is_some() {
            return self.turn::<attached::WithEndpoint>(horizon, network);
        }
        if self.log.is_some() {
            return traced::run(self, horizon, network);
        }
        if self.classes.is_some() {
            return self.turn::<classed::Classed>(horizon, network);
        }
        match self.falcon {
            Some(_) if self.nic.is_some() => self.turn::<nic::WithFalconAndNic>(horizon, network),
            Some(_) => self.turn::<falcon::WithFalcon>(horizon, network),
            None => self.turn::<nic::WithNic>(horizon, network),
        }
    }

    /// Installs `nic` as the model of the NIC's memory and bus.
    pub(crate) fn set_nic(&mut self, nic: nic::NicModel) {
        self.sessions.doorbells = Some(Vec::new());
        self.nic = Some(Box::new(nic));
        self.has_model = true;
    }

    /// Makes Falcon the transport of this host.
    pub(crate) fn set_falcon(&mut self, falcon: FalconState) {
        self.falcon = Some(Box::new(falcon));
        self.has_model = true;
    }

    /// Removes all state of a queue pair that has been destroyed.
    pub(crate) fn forget(&mut self, qpn: Qpn) {
        self.recoveries.forget(qpn);
        if let Some(log) = &mut self.log {
            log.forget(qpn);
        }
        if let Some(meter) = &mut self.meter {
            meter.close(qpn);
        }
        self.repairing = !self.recoveries.is_idle();
        if let Some(nic) = &mut self.nic {
            nic.forget(qpn);
        }
    }

    /// Schedules the start or continuation of sender `slot` at `at`.
    pub(crate) fn start_at(&mut self, at: Time, slot: u32) {
        // Flows are added in order of time; only messages with separate arrival times have to be inserted between
        // them.
        if self.starts.back().is_none_or(|(last, _)| *last <= at) {
            return self.starts.push_back((at, slot));
        }
        let place = self.starts.partition_point(|(other, _)| *other <= at);
        self.starts.insert(place, (at, slot));
    }

    /// Ensures that the engine is polled after the caller has posted work; returns the time of the poll.
    pub(crate) fn schedule_wake(&mut self, now: Time) -> Time {
        self.wake = self.wake.min(now.max(self.port.free_at));
        self.wake
    }

    /// Returns whether completions of work posted by the caller wait to be read.
    pub(crate) fn has_manual_completions(&self) -> bool {
        !self.manual_completions.is_empty()
    }

    /// Starts recording sent packets for the capture.
    pub(crate) fn start_capture(&mut self) {
        self.codec.captured = Some(Vec::new());
    }

    /// Returns the packets sent since the last call.
    pub(crate) fn take_captured(&mut self) -> impl Iterator<Item = Captured> {
        self.codec.captured.as_mut().map(core::mem::take).unwrap_or_default().into_iter()
    }

    /// Returns the statistics of the port until `now`.
    pub(crate) fn port_stats(&self, now: Time) -> PortStats {
        self.port.stats_at(now)
    }

    /// Returns the number of bytes of memory that flows use: all except memory allocated by the caller.
    pub(crate) fn memory_of_flows(&self) -> u64 {
        self.memory.as_ref().map_or(0, |memory| memory.used() - self.caller_memory_bytes)
    }

    /// Returns, for each collective that this host takes part in, the time at which it had received all of its data.
    pub(crate) fn finished(&self) -> Option<&[Time]> {
        self.sessions.rank.as_deref().map(Rank::finished)
    }

    fn start_next(&mut self, now: Time) {
        let Some((_, slot)) = self.starts.pop_front() else { return };
        if slot == NVME_START {
            return self.use_drive(now, None);
        }
        if slot == SCRIPT_START {
            self.sessions.wake_script(now, &mut self.engine, self.memory.as_mut());
            return schedule_delays(self);
        }
        if let Some(next) = self.sessions.begin(now, slot, &mut self.engine, self.memory.as_mut()) {
            self.start_at(next, slot);
        }
    }

    /// Polls the engine for a packet when one can be sent, and records when to poll again.
    #[inline]
    fn offer(&mut self, now: Time, network: &mut Network) {
        if !can_send(self, now) {
            return;
        }
        let Some((entry, _)) = self.next_packet(now, network) else { return };
        self.port.send(now, entry, network);
        self.wake = self.port.free_at;
    }

    /// Returns the engine's next packet, as an entry for the network and, unless it is a message, as the engine
    /// produced it.
    #[inline(always)]
    fn next_packet(&mut self, now: Time, network: &mut Network) -> Option<(Entry, Option<Transmit>)> {
        let transmit = match self.engine.transmit(now)? {
            Departure::Roce(transmit) => transmit,
            Departure::Message(transmit) => {
                let transmit = *transmit;
                return Some((self.store_message(now, &transmit, network), None));
            }
            Departure::Falcon(_) => return None,
        };
        let entry = self.codec.store_packet(transmit, &mut network.packets);
        let transmit = *transmit;
        self.load_bytes(now, &transmit, &entry, network);
        Some((entry, Some(transmit)))
    }

    /// Creates the bytes of a packet that is sent, when they are needed.
    #[inline(always)]
    fn load_bytes(&mut self, now: Time, transmit: &Transmit, entry: &Entry, network: &mut Network) {
        if self.codec.wants_bytes() {
            let memory = self.memory.as_ref().map(|memory| (memory, self.engine.segments()));
            self.codec.load_bytes(now, transmit, memory, entry.packet, &mut network.packets);
        }
    }

    #[inline(always)]
    fn arrive(&mut self, now: Time, entry: &Entry, network: &mut Network) {
        if entry.is_for_nic() {
            return self.arrive_for_nic(now, entry, network);
        }
        let outcome = self.receive(now, entry, network);
        network.packets.remove(entry.packet);
        if matches!(outcome, Some(RxOutcome::Accepted | RxOutcome::OutOfOrder)) {
            self.stats.useful += 1;
        }
        self.take_completions(now);
    }

    /// Passes a packet to the engine; returns `None` when the packet is damaged.
    #[inline(always)]
    fn receive(&mut self, now: Time, entry: &Entry, network: &mut Network) -> Option<RxOutcome> {
        let congested = entry.has(Flags::MARKED);
        let packets = &mut network.packets;
        if self.codec.is_plain() {
            if entry.has(Flags::CORRUPT) {
                self.stats.corrupt += 1;
                return None;
            }
            let Endpoints { src, format, .. } = packets.ends(entry.packet);
            let meta = RxMeta { peer: PeerId(src), congested };
            let packet = packets.headers(entry.packet);
            let outcome = self.engine.receive(now, Arrival::Roce(format, packet, meta), &mut NoDma);
            if let Some(meter) = &mut self.meter
                && matches!(outcome, RxOutcome::Accepted | RxOutcome::OutOfOrder)
            {
                meter.note(now, entry.frame_len.into(), packet.payload_len.into(), packet.dest_qpn);
            }
            if outcome == RxOutcome::OutOfOrder || self.repairing {
                self.note_recovery(packet, outcome);
            }
            return Some(outcome);
        }
        let decoded = self.codec.decode(entry, packets);
        let Some((format, packet, payload)) = decoded else {
            self.stats.corrupt += 1;
            return None;
        };
        let meta = RxMeta { peer: PeerId(packets.ends(entry.packet).src), congested };
        let payload = &packets.bytes(entry.packet)[payload];
        let arrival = Arrival::Roce(format, &packet, meta);
        let outcome = match &mut self.memory {
            Some(memory) => self.engine.receive(now, arrival, &mut memory.writer_of(payload)),
            None => self.engine.receive(now, arrival, &mut NoDma),
        };
        if let Some(meter) = &mut self.meter
            && matches!(outcome, RxOutcome::Accepted | RxOutcome::OutOfOrder)
        {
            meter.note(now, entry.frame_len.into(), packet.payload_len.into(), packet.dest_qpn);
        }
        if outcome == RxOutcome::OutOfOrder || self.repairing {
            self.note_recovery(&packet, outcome);
        }
        Some(outcome)
    }

    /// Tracks the recoveries in progress.
    #[cold]
    fn note_recovery(&mut self, packet: &Packet, outcome: RxOutcome) {
        let engine = &self.engine;
        // FaSR's responses have sequence numbers of the request space.
        let is_response = matches!(
            packet.headers,
            Headers::ReadResponse { sink: None, .. } | Headers::AtomicResponse { sink: None, .. }
        );
        let filled = self.recoveries.note(packet, outcome, || {
            let info = engine.query_qp(packet.dest_qpn).expect("the engine has accepted a packet for this queue pair");
            if is_response { info.response_expected.wire() } else { info.expected.wire() }
        });
        self.stats.holes_filled += u64::from(filled);
        self.repairing = !self.recoveries.is_idle();
    }

    #[cold]
    fn on_pause_frame(&mut self, now: Time, frame: &Entry) {
        if self.classes.is_some() {
            return classed::on_pause_frame(self, now, frame);
        }
        if frame.has(Flags::PAUSE) {
            self.port.pause(now);
            self.wake = NEVER;
        } else {
            self.port.resume(now);
        }
    }

    #[inline]
    fn take_completions(&mut self, now: Time) {
        while let Some(completion) = self.engine.objects_mut().poll_cq_one(self.cq) {
            note_completion(&mut self.completions, now, &completion);
            if completion.wr_id & (MANUAL_WORK | NVME_WORK) != 0 {
                if completion.wr_id & MANUAL_WORK != 0 {
                    self.manual_completions.push_back((now, completion));
                } else {
                    self.use_drive(now, Some(&completion));
                }
                continue;
            }
            let Self { sessions, engine, memory, violations, .. } = self;
            sessions.complete(now, &completion, engine, memory.as_mut(), violations);
        }
        while let Some((at, slot)) = self.sessions.take_thinking() {
            self.start_at(at, slot);
        }
        if self.sessions.script.is_some() {
            schedule_delays(self);
        }
    }
}

/// Schedules the ends of the delays of a script that have started.
#[cold]
fn schedule_delays(host: &mut Host) {
    while let Some(at) = host.sessions.script.as_mut().and_then(|script| script.take_timer()) {
        host.start_at(at, SCRIPT_START);
    }
}

/// Number, in the list of starts, of the tasks of a script.
pub(crate) const SCRIPT_START: u32 = u32::MAX - 1;

#[inline]
fn note_completion(hash: &mut TraceHash, now: Time, completion: &Completion) {
    let Completion { wr_id, qpn, status, opcode, byte_len, word, flags, source } = *completion;
    hash.add_word(now.as_ps() ^ wr_id.rotate_left(32));
    hash.add_word((u64::from(qpn.get()) << 32 | u64::from(byte_len)) ^ u64::from(source.get()).rotate_left(56));
    hash.add_word((status as u64) << 48 | (opcode as u64) << 40 | u64::from(flags.bits()) << 32 | u64::from(word));
}

/// Returns whether the port of `host` can send a packet now; records when to poll next if none is sent.
#[inline(always)]
fn can_send(host: &mut Host, now: Time) -> bool {
    if host.port.is_paused() {
        return false;
    }
    let is_free = host.port.free_at <= now;
    host.wake = if is_free { NEVER } else { host.port.free_at };
    is_free
}
