//! Engines alone, as a backend: direct links from every host to every other, without switches or other components.
//!
//! This backend has fewer components than the fabric, so that more packets are processed per hour. It counts the
//! payload that Falcon keeps: all kept payload must be released exactly once.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use rnic_base::{BitRate, Duration, RandomStream, RandomStreams, Time};
use rnic_engine::{
    Access, Arrival, AsyncEvent, Completion, CqId, Departure, Dma, Engine, EngineConfig, EngineStats, FalconArrival,
    Key, LimitSource, MemoryFault, MemoryRegion, NamespaceConfig, NamespaceId, Observer, PdId, PeerId, PostError,
    QpAttributes, QpConnection, QpInfo, QpTiming, RateLimit, RecvRequest, RxMeta, Segment, SendRequest, SrqId,
    TransmitKind,
};
use rnic_wire::falcon::{self, FlowLabel, codec};
use rnic_wire::{Format, Packet, Qpn};

use super::{Backend, RegionId, check_shares};
use crate::scenario::{Faults, Scenario};

struct Region {
    bytes: Vec<u8>,
    key: Key,
}

struct Host {
    engine: Engine,
    pd: PdId,
    regions: Vec<Region>,
    /// Payload that arrived out of order and is kept until its turn.
    kept: BTreeMap<u64, Vec<u8>>,
    /// Time until which the link is busy.
    busy_until: Time,
    faults: Faults,
    in_burst: bool,
    random: RandomStream,
}

/// A packet of either protocol family.
#[derive(Clone)]
enum AnyPacket {
    Roce { format: Format, packet: Packet },
    Falcon { packet: falcon::Packet, label: FlowLabel },
}

struct PacketInFlight {
    from: usize,
    to: usize,
    packet: AnyPacket,
    payload: Vec<u8>,
}

enum Event {
    Arrive(Box<PacketInFlight>),
    Free(usize),
}

/// Hosts with links between them.
pub struct Engines {
    now: Time,
    hosts: Vec<Host>,
    events: BTreeMap<(Time, u64), Event>,
    count: u64,
    rate: BitRate,
    delay: Duration,
    is_faultless: bool,
    hash: DefaultHasher,
}

/// Address distance between the regions: the engine sees each region in its own range.
const REGION_STRIDE: u64 = 1 << 32;

impl Engines {
    /// Creates the hosts of `scenario`.
    ///
    /// # Panics
    /// Never: a new engine has space for a protection domain.
    pub fn new(scenario: &Scenario) -> Self {
        let streams = RandomStreams::new(scenario.seed);
        let rate = BitRate::gbps(scenario.network.rate_gbps);
        let hosts = scenario.faults.iter().enumerate().map(|(host, faults)| {
            let secret = scenario.seed.wrapping_mul(31).wrapping_add(host as u64);
            let mut engine = Engine::new(EngineConfig { line_rate: rate, secret, ..EngineConfig::default() });
            let pd = engine.objects_mut().create_pd().expect("a new engine has a free protection domain");
            Host {
                engine,
                pd,
                regions: Vec::new(),
                kept: BTreeMap::new(),
                busy_until: Time::ZERO,
                faults: *faults,
                in_burst: false,
                random: streams.stream(&format!("engines/host-{host}")),
            }
        });
        Self {
            now: Time::from_us(1),
            hosts: hosts.collect(),
            events: BTreeMap::new(),
            count: 0,
            rate,
            delay: scenario.network.delay,
            is_faultless: false,
            hash: DefaultHasher::new(),
        }
    }

    fn schedule(&mut self, at: Time, event: Event) {
        self.count += 1;
        self.events.insert((at, self.count), event);
    }

    /// Transmits packets of `from` while its link is free.
    fn transmit_all(&mut self, from: usize) {
        while self.hosts[from].busy_until <= self.now {
            let Some((to, kind, in_flight)) = self.hosts[from].next_packet(self.now, from) else { return };
            let bytes = in_flight.payload.len() as u64 + FRAME_OVERHEAD_BYTES;
            let host = &mut self.hosts[from];
            host.busy_until = self.now + self.rate.serialize(bytes);
            let (free, is_ack) = (host.busy_until, kind == TransmitKind::Ack);
            self.schedule(free, Event::Free(from));
            let delays = if self.is_faultless {
                [Some(Duration::ZERO), None]
            } else {
                self.hosts[from].copy_delays(free, is_ack)
            };
            for delay in delays.into_iter().flatten() {
                let PacketInFlight { ref packet, ref payload, .. } = in_flight;
                let copy = PacketInFlight { from, to, packet: packet.clone(), payload: payload.clone() };
                self.schedule(free + self.delay + delay, Event::Arrive(Box::new(copy)));
            }
        }
    }

    fn arrive(&mut self, in_flight: &PacketInFlight) {
        let PacketInFlight { from, to, packet, payload } = in_flight;
        let Host { engine, regions, kept, .. } = &mut self.hosts[*to];
        let mut memory = HostMemory { regions, payload, kept };
        let peer = PeerId(*from as u32);
        match packet {
            AnyPacket::Roce { format, packet } => {
                (self.now, to, packet.psn, packet.dest_qpn).hash(&mut self.hash);
                let meta = RxMeta { peer, congested: false };
                engine.receive(self.now, Arrival::Roce(*format, packet, meta), &mut memory);
            }
            AnyPacket::Falcon { packet, label } => {
                (self.now, to, packet).hash(&mut self.hash);
                let arrival = FalconArrival { packet, peer, label: *label, congested: false, hops: 1, csig: None };
                engine.receive(self.now, Arrival::Falcon(arrival), &mut memory);
            }
        }
    }

    /// Processes the next event if it occurs by `until`; returns whether there was one.
    fn step(&mut self, until: Time) -> bool {
        let event = self.events.first_key_value().map(|((at, _), _)| *at);
        let timers = self.hosts.iter().map(|host| host.engine.next_timeout().map(|at| at.max(self.now)));
        let timer = timers.enumerate().filter_map(|(host, at)| at.map(|at| (at, host))).min();
        let next = [event, timer.map(|(at, _)| at)].into_iter().flatten().min();
        let Some(next) = next.filter(|next| *next <= until) else { return false };
        self.now = next;
        if event == Some(next) {
            let Some((_, event)) = self.events.pop_first() else { return false };
            match event {
                Event::Free(host) => self.transmit_all(host),
                Event::Arrive(in_flight) => {
                    self.arrive(&in_flight);
                    self.transmit_all(in_flight.to);
                }
            }
        } else if let Some((_, host)) = timer {
            self.hosts[host].engine.tick(next);
            self.transmit_all(host);
        }
        true
    }

    fn with_engine<T>(&mut self, host: usize, operation: impl FnOnce(&mut Engine, Time) -> T) -> T {
        let now = self.now;
        let result = operation(&mut self.hosts[host].engine, now);
        self.transmit_all(host);
        result
    }
}

impl Host {
    /// Returns the next packet, its destination and its type.
    fn next_packet(&mut self, now: Time, from: usize) -> Option<(usize, TransmitKind, PacketInFlight)> {
        let (to, kind, packet) = match self.engine.transmit(now)? {
            Departure::Roce(transmit) => {
                let packet = AnyPacket::Roce { format: transmit.format, packet: transmit.packet };
                (transmit.peer, transmit.kind, packet)
            }
            Departure::Falcon(transmit) => {
                let packet = AnyPacket::Falcon { packet: transmit.packet, label: transmit.label };
                (transmit.peer, transmit.kind, packet)
            }
            Departure::Message(_) => unreachable!("engines send messages only if their configuration says so"),
        };
        let mut payload = Vec::new();
        for segment in self.engine.segments() {
            let (region, range) = locate(segment);
            payload.extend_from_slice(&self.regions[region].bytes[range]);
        }
        let packet = match packet {
            AnyPacket::Falcon { packet, label } => {
                AnyPacket::Falcon { packet: encode_and_decode(&packet, &payload), label }
            }
            roce @ AnyPacket::Roce { .. } => roce,
        };
        let to = to.0 as usize;
        Some((to, kind, PacketInFlight { from, to, packet, payload }))
    }

    /// Returns the extra delay of each copy of a packet that is sent at `at`: none when it is lost, two when it is
    /// duplicated.
    fn copy_delays(&mut self, at: Time, is_ack: bool) -> [Option<Duration>; 2] {
        let Self { faults, random, in_burst, .. } = self;
        *in_burst = if *in_burst { random.below(8) > 0 } else { random.chance(faults.burst) };
        let is_down = faults.down.is_some_and(|down| down.from <= at && at < down.until);
        let mut is_lost = *in_burst || is_down || random.chance(faults.loss) || random.chance(faults.corrupt);
        is_lost |= is_ack && (random.chance(faults.ack_loss) || random.chance(faults.ack_corrupt));
        let twice = random.chance(faults.duplicate);
        [!is_lost, !is_lost && twice].map(|arrives| {
            arrives.then(|| {
                let jitter = faults.jitter.as_ps();
                let held = if random.chance(faults.reorder) { faults.hold } else { Duration::ZERO };
                faults.delay + held + Duration::from_ps(if jitter > 0 { random.below(jitter) } else { 0 })
            })
        })
    }
}

/// Encodes the packet to bytes and returns the result of decoding them.
fn encode_and_decode(packet: &falcon::Packet, payload: &[u8]) -> falcon::Packet {
    let mut headers = [0; falcon::HEADERS_MAX];
    let len = codec::encode_headers(packet, &mut headers).expect("the engine's packets can be encoded");
    let mut message = headers[..len].to_vec();
    message.extend_from_slice(payload);
    message.resize(message.len() + packet.pad_len() as usize, 0);
    let decoded = codec::decode(&message, packet.timestamp).expect("the engine's packets can be decoded");
    assert_eq!(decoded.packet, *packet, "the packet has changed");
    decoded.packet
}

fn locate(segment: &Segment) -> (usize, core::ops::Range<usize>) {
    let start = (segment.local % REGION_STRIDE) as usize;
    ((segment.local / REGION_STRIDE) as usize, start..start + segment.len as usize)
}

/// Memory access of a received packet.
struct HostMemory<'a> {
    regions: &'a mut [Region],
    payload: &'a [u8],
    kept: &'a mut BTreeMap<u64, Vec<u8>>,
}

impl HostMemory<'_> {
    fn word(&mut self, local: u64) -> &mut [u8; 8] {
        let (region, range) = locate(&Segment { local, len: 8 });
        (&mut self.regions[region].bytes[range]).try_into().expect("eight bytes")
    }
}

impl Dma for HostMemory<'_> {
    fn place(&mut self, offset: u32, target: Segment) -> Result<(), MemoryFault> {
        let ((region, range), from) = (locate(&target), offset as usize);
        self.regions[region].bytes[range].copy_from_slice(&self.payload[from..from + target.len as usize]);
        Ok(())
    }

    fn store(&mut self, local: u64, value: u64) -> Result<(), MemoryFault> {
        *self.word(local) = value.to_ne_bytes();
        Ok(())
    }

    fn compare_swap(&mut self, local: u64, compare: u64, swap: u64) -> Result<u64, MemoryFault> {
        let word = self.word(local);
        let original = u64::from_ne_bytes(*word);
        if original == compare {
            *word = swap.to_ne_bytes();
        }
        Ok(original)
    }

    fn fetch_add(&mut self, local: u64, add: u64) -> Result<u64, MemoryFault> {
        let word = self.word(local);
        let original = u64::from_ne_bytes(*word);
        *word = original.wrapping_add(add).to_ne_bytes();
        Ok(original)
    }

    fn keep(&mut self, handle: u64) {
        let before = self.kept.insert(handle, self.payload.to_vec());
        assert!(before.is_none(), "{handle:#x} is stored twice");
    }

    fn place_kept(&mut self, handle: u64, offset: u32, target: Segment) -> Result<(), MemoryFault> {
        let ((region, range), from) = (locate(&target), offset as usize);
        let payload = self.kept.get(&handle).expect("the payload is stored");
        self.regions[region].bytes[range].copy_from_slice(&payload[from..from + target.len as usize]);
        Ok(())
    }

    fn release(&mut self, handle: u64) {
        assert!(self.kept.remove(&handle).is_some(), "{handle:#x} is not stored");
    }
}

impl Backend for Engines {
    fn observe(&mut self, host: usize, observer: Box<dyn Observer>) {
        self.with_engine(host, |engine, _| {
            engine.watch();
            rnic_engine::observe(engine, Some(observer));
        });
    }

    fn now(&self) -> Time {
        self.now
    }

    fn advance(&mut self, span: Duration) {
        let until = self.now + span;
        for host in 0..self.hosts.len() {
            self.transmit_all(host);
        }
        let mut steps_now = (self.now, 0);
        while self.step(until) {
            steps_now = if steps_now.0 == self.now { (self.now, steps_now.1 + 1) } else { (self.now, 0) };
            assert!(steps_now.1 < EVENTS_PER_INSTANT_MAX, "too many events at {}", self.now);
        }
        self.now = until;
    }

    fn peer(&self, _: usize, to: usize) -> PeerId {
        PeerId(to as u32)
    }

    fn end_faults(&mut self) {
        self.is_faultless = true;
    }

    fn no_progress_time_max(&self) -> Duration {
        NO_PROGRESS_TIME_MAX
    }

    fn domain(&self, host: usize) -> PdId {
        self.hosts[host].pd
    }

    fn register(&mut self, host: usize, len: usize, access: Access) -> RegionId {
        let Host { engine, pd, regions, .. } = &mut self.hosts[host];
        let number = regions.len();
        let local = number as u64 * REGION_STRIDE;
        let region = MemoryRegion { pd: *pd, addr: BASE_ADDRESS + local, len: len as u64, local, access };
        let key = engine.objects_mut().register(region).expect("the region is valid");
        regions.push(Region { bytes: vec![0; len], key });
        RegionId(number)
    }

    fn region(&self, host: usize, region: RegionId) -> (u64, u32) {
        (BASE_ADDRESS + region.0 as u64 * REGION_STRIDE, self.hosts[host].regions[region.0].key.0)
    }

    fn bytes(&mut self, host: usize, region: RegionId) -> &mut [u8] {
        &mut self.hosts[host].regions[region.0].bytes
    }

    fn deregister(&mut self, host: usize, region: RegionId) {
        let key = self.hosts[host].regions[region.0].key;
        // A peer may have invalidated it already.
        let _ = self.with_engine(host, |engine, _| engine.objects_mut().deregister(key));
    }

    fn register_part(&mut self, host: usize, region: RegionId, offset: usize, len: usize, access: Access) -> Key {
        let local = region.0 as u64 * REGION_STRIDE + offset as u64;
        let pd = self.domain(host);
        let part = MemoryRegion { pd, addr: BASE_ADDRESS + local, len: len as u64, local, access };
        self.with_engine(host, |engine, _| engine.objects_mut().register(part)).expect("the region is valid")
    }

    fn deregister_part(&mut self, host: usize, key: Key) {
        let _ = self.with_engine(host, |engine, _| engine.objects_mut().deregister(key));
    }

    fn create_cq(&mut self, host: usize, capacity: u32) -> CqId {
        self.with_engine(host, |engine, _| engine.objects_mut().create_cq(capacity)).expect("the size is valid")
    }

    fn create_srq(&mut self, host: usize, entries: u32, sges: u32) -> SrqId {
        let pd = self.domain(host);
        self.with_engine(host, |engine, _| engine.objects_mut().create_srq(pd, entries, sges)).expect("valid sizes")
    }

    fn create_namespace(&mut self, host: usize, config: &NamespaceConfig) -> NamespaceId {
        self.with_engine(host, |engine, _| engine.nvme().create_namespace(config)).expect("the namespace is valid")
    }

    fn create_qp(&mut self, host: usize, attributes: &QpAttributes) -> Qpn {
        self.with_engine(host, |engine, _| engine.create_qp(attributes)).expect("the attributes are valid")
    }

    fn connect_qp(&mut self, host: usize, qpn: Qpn, to: usize, connection: &QpConnection, timing: &QpTiming) {
        let connection = QpConnection { peer: PeerId(to as u32), ..*connection };
        self.with_engine(host, |engine, now| {
            engine.modify_to_init(qpn).expect("the queue pair is reset");
            engine.modify_to_rtr(qpn, &connection).expect("the attributes are valid");
            engine.modify_to_rts(now, qpn, timing).expect("the attributes are valid");
        });
    }

    fn fail_qp(&mut self, host: usize, qpn: Qpn) {
        self.with_engine(host, |engine, _| engine.modify_to_error(qpn)).expect("the queue pair exists");
    }

    fn reset_qp(&mut self, host: usize, qpn: Qpn) {
        self.with_engine(host, |engine, _| engine.modify_to_reset(qpn)).expect("the queue pair exists");
    }

    fn drain_qp(&mut self, host: usize, qpn: Qpn) {
        self.with_engine(host, |engine, _| engine.modify_to_sqd(qpn)).expect("the queue pair is ready to send");
    }

    fn resume_qp(&mut self, host: usize, qpn: Qpn, timing: &QpTiming) {
        self.with_engine(host, |engine, now| engine.modify_to_rts(now, qpn, timing)).expect("the queue is drained");
    }

    fn destroy_qp(&mut self, host: usize, qpn: Qpn) {
        self.with_engine(host, |engine, _| engine.destroy_qp(qpn)).expect("the queue pair exists");
    }

    fn set_peer_limit(&mut self, host: usize, to: usize, packets: Option<u64>) {
        self.with_engine(host, |engine, _| engine.set_peer_limit(PeerId(to as u32), packets));
    }

    fn set_rate_limit(&mut self, host: usize, qpn: Qpn, rate: Option<BitRate>) {
        let limit = rate.map(|rate| RateLimit { rate, burst_bytes: None });
        let set = self.with_engine(host, |engine, now| engine.set_rate_limit(now, qpn, LimitSource::Program, limit));
        set.expect("the queue pair exists, and the rate is in range");
    }

    fn set_weight(&mut self, host: usize, qpn: Qpn, weight: u16) {
        let set = self.with_engine(host, |engine, now| engine.sharing().set_weight(now, qpn, weight));
        set.expect("the queue pair exists, and the weight is in range");
    }

    fn set_capacity(&mut self, host: usize, capacity: Option<BitRate>) {
        self.with_engine(host, |engine, _| engine.sharing().set_capacity(capacity));
    }

    fn post_send(&mut self, host: usize, qpn: Qpn, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.with_engine(host, |engine, _| engine.post_send(qpn, request))
    }

    fn post_recv(&mut self, host: usize, qpn: Qpn, request: &RecvRequest<'_>) -> Result<(), PostError> {
        self.with_engine(host, |engine, _| engine.post_recv(qpn, request))
    }

    fn post_srq_recv(&mut self, host: usize, srq: SrqId, request: &RecvRequest<'_>) -> Result<(), PostError> {
        self.with_engine(host, |engine, _| engine.objects_mut().post_srq_recv(srq, request))
    }

    fn poll(&mut self, host: usize, cq: CqId) -> Option<Completion> {
        self.with_engine(host, |engine, _| engine.objects_mut().poll_cq_one(cq))
    }

    fn event(&mut self, host: usize) -> Option<AsyncEvent> {
        self.with_engine(host, |engine, _| engine.objects_mut().poll_event())
    }

    fn query(&self, host: usize, qpn: Qpn) -> Option<QpInfo> {
        self.hosts[host].engine.query_qp(qpn)
    }

    fn stats(&self, host: usize) -> EngineStats {
        *self.hosts[host].engine.stats()
    }

    fn finish(&mut self) -> Result<Option<String>, String> {
        let until = self.now + DRAIN_TIME;
        self.advance(until.since(self.now));
        if !self.events.is_empty() {
            return Err(format!("packets are still in flight after {DRAIN_TIME}"));
        }
        for (number, host) in self.hosts.iter().enumerate() {
            if !host.engine.falcon_stats().is_none_or(|stats| stats.is_idle) {
                return Err(format!("host {number} is quiet, and holds resources: {:?}", host.engine.falcon_stats()));
            }
            check_shares(number, &host.engine)?;
        }
        Ok(Some(format!("{:016x}", self.hash.finish())))
    }
}

/// First address of the first region.
const BASE_ADDRESS: u64 = 0x1000_0000;

/// Approximate bytes of headers and framing around a payload.
const FRAME_OVERHEAD_BYTES: u64 = 100;

/// Maximum number of events at one instant.
const EVENTS_PER_INSTANT_MAX: u32 = 1_000_000;

/// Time without progress after which a run is considered stuck: dozens of the longest interval that Swift leaves
/// between two packets where delays are a hundred times its target (a round trip of 400 us divided by a window of
/// 1/1024).
const NO_PROGRESS_TIME_MAX: Duration = Duration::from_secs(20);

/// Final waiting time: longer than any delay that scenarios generate.
const DRAIN_TIME: Duration = Duration::from_secs(2);
