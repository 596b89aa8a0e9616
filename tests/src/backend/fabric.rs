//! The fabric as a backend: simulated links and switches, simulated time; every packet travels as bytes.

use core::ops::ControlFlow;

use rnic_base::{BitRate, Duration, Time};
use rnic_engine::{
    Access, AsyncEvent, Completion, CqId, Engine, EngineStats, Key, LimitSource, MemoryRegion, NamespaceConfig,
    NamespaceId, Observer, PdId, PeerId, PostError, QpAttributes, QpConnection, QpInfo, QpTiming, RateLimit,
    RecvRequest, SendRequest, SrqId,
};
use rnic_fabric::host::memory::Block;
use rnic_fabric::{Plan, PlanError, Simulation};
use rnic_wire::Qpn;

use super::{Backend, RegionId, check_shares};

struct Region {
    block: Block,
    addr: u64,
    key: Key,
}

/// Hosts in a simulated network.
pub struct Fabric {
    simulation: Simulation,
    /// Host n of the test driver is host n times this number of the fabric.
    stride: usize,
    regions: Vec<Vec<Region>>,
    speaks_falcon: bool,
}

impl Fabric {
    /// Creates the network of `plan`, whose workload must be `manual` and whose payload must be checked. The test
    /// driver uses every `stride`-th host. With odd seeds the network is simulated in two parts, which must make no
    /// difference.
    ///
    /// # Errors
    /// When the plan cannot be run.
    pub fn new(plan: &Plan, seed: u64, stride: usize) -> Result<Self, PlanError> {
        let hosts = plan.topology.hosts() as usize;
        let regions = (0..hosts).map(|_| Vec::new()).collect();
        let speaks_falcon = plan.transport.protocol.falcon().is_some();
        let simulation = Simulation::in_parts(plan, seed, 1 + (seed % 2) as usize)?;
        Ok(Self { simulation, stride, regions, speaks_falcon })
    }

    /// Returns mutable access to the simulation, for a packet capture.
    pub fn simulation(&mut self) -> &mut Simulation {
        &mut self.simulation
    }

    /// Returns the number of a host in the fabric.
    fn fabric_host(&self, host: usize) -> u32 {
        (host * self.stride) as u32
    }

    /// Calls `operation` with the engine of a host and the time.
    pub(crate) fn with_engine<T>(&mut self, host: usize, operation: impl FnOnce(&mut Engine, Time) -> T) -> T {
        let at = self.fabric_host(host);
        self.simulation.with_engine(at, operation)
    }

    fn region_at(&self, host: usize, region: RegionId) -> &Region {
        &self.regions[host][region.0]
    }
}

impl Backend for Fabric {
    fn observe(&mut self, host: usize, observer: Box<dyn Observer>) {
        self.with_engine(host, |engine, _| {
            engine.watch();
            rnic_engine::observe(engine, Some(observer));
        });
    }

    fn now(&self) -> Time {
        self.simulation.now()
    }

    fn advance(&mut self, span: Duration) {
        let until = self.simulation.now() + span;
        self.simulation.advance(until);
    }

    fn peer(&self, _: usize, to: usize) -> PeerId {
        PeerId(self.fabric_host(to))
    }

    fn end_faults(&mut self) {
        self.simulation.end_faults();
    }

    fn no_progress_time_max(&self) -> Duration {
        if self.speaks_falcon { NO_PROGRESS_TIME_MAX_FALCON } else { NO_PROGRESS_TIME_MAX }
    }

    fn domain(&self, host: usize) -> PdId {
        self.simulation.protection_domain(self.fabric_host(host))
    }

    fn register(&mut self, host: usize, len: usize, access: Access) -> RegionId {
        let pd = self.domain(host);
        let at = self.fabric_host(host);
        let (block, addr, whole_key) = self.simulation.allocate(at, len as u64);
        let key = self.with_engine(host, |engine, _| {
            engine.objects_mut().deregister(Key(whole_key)).expect("the region is registered");
            let region = MemoryRegion { pd, addr, len: block.len, local: block.local, access };
            engine.objects_mut().register(region).expect("the region is valid")
        });
        self.regions[host].push(Region { block, addr, key });
        RegionId(self.regions[host].len() - 1)
    }

    fn region(&self, host: usize, region: RegionId) -> (u64, u32) {
        let Region { addr, key, .. } = self.region_at(host, region);
        (*addr, key.0)
    }

    fn bytes(&mut self, host: usize, region: RegionId) -> &mut [u8] {
        let Block { local, len } = self.region_at(host, region).block;
        let at = self.fabric_host(host);
        self.simulation.memory(at).bytes_mut(local, len)
    }

    fn deregister(&mut self, host: usize, region: RegionId) {
        let key = self.region_at(host, region).key;
        // A peer may have invalidated it already.
        let _ = self.with_engine(host, |engine, _| engine.objects_mut().deregister(key));
    }

    fn register_part(&mut self, host: usize, region: RegionId, offset: usize, len: usize, access: Access) -> Key {
        let pd = self.domain(host);
        let Region { block, addr, .. } = self.region_at(host, region);
        let (addr, local) = (*addr + offset as u64, block.local + offset as u64);
        let part = MemoryRegion { pd, addr, len: len as u64, local, access };
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
        let srq = self.with_engine(host, |engine, _| engine.objects_mut().create_srq(pd, entries, sges));
        srq.expect("the sizes are valid")
    }

    fn create_namespace(&mut self, host: usize, config: &NamespaceConfig) -> NamespaceId {
        self.with_engine(host, |engine, _| engine.nvme().create_namespace(config)).expect("the namespace is valid")
    }

    fn create_qp(&mut self, host: usize, attributes: &QpAttributes) -> Qpn {
        self.with_engine(host, |engine, _| engine.create_qp(attributes)).expect("the attributes are valid")
    }

    fn connect_qp(&mut self, host: usize, qpn: Qpn, to: usize, connection: &QpConnection, timing: &QpTiming) {
        let connection = QpConnection { peer: PeerId(self.fabric_host(to)), ..*connection };
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
        let resumed = self.with_engine(host, |engine, now| engine.modify_to_rts(now, qpn, timing));
        resumed.expect("the queue pair is drained");
    }

    fn destroy_qp(&mut self, host: usize, qpn: Qpn) {
        self.with_engine(host, |engine, _| engine.destroy_qp(qpn)).expect("the queue pair exists");
    }

    fn set_peer_limit(&mut self, host: usize, to: usize, packets: Option<u64>) {
        let peer = PeerId(self.fabric_host(to));
        self.with_engine(host, |engine, _| engine.set_peer_limit(peer, packets));
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
        let level = self.simulation.engine(self.fabric_host(host)).objects().cq_level(cq).map_or(0, |(level, _)| level);
        if level == 0 {
            return None;
        }
        self.with_engine(host, |engine, _| engine.objects_mut().poll_cq_one(cq))
    }

    fn event(&mut self, host: usize) -> Option<AsyncEvent> {
        self.with_engine(host, |engine, _| engine.objects_mut().poll_event())
    }

    fn query(&self, host: usize, qpn: Qpn) -> Option<QpInfo> {
        self.simulation.engine(self.fabric_host(host)).query_qp(qpn)
    }

    fn stats(&self, host: usize) -> EngineStats {
        *self.simulation.engine(self.fabric_host(host)).stats()
    }

    fn finish(&mut self) -> Result<Option<String>, String> {
        // Timers of congestion control expire; no other activity may occur.
        let until = self.simulation.now() + DRAIN_TIME;
        self.simulation.advance(until);
        if !self.simulation.is_idle() {
            return Err(format!("nothing is to be done, and still something is about to happen after {DRAIN_TIME}"));
        }
        self.check_pools()?;
        let report = self.simulation.run(&mut |_| ControlFlow::Continue(()));
        report.check().map_err(|failure| failure.to_string())?;
        Ok(Some(report.trace_hash))
    }
}

impl Fabric {
    /// Checks that the recovery resources that queue pairs share are free when the queue pairs are idle.
    fn check_pools(&self) -> Result<(), String> {
        for host in 0..self.regions.len() {
            let engine = self.simulation.engine(host as u32);
            if !engine.falcon_stats().is_none_or(|stats| stats.is_idle) {
                return Err(format!("host {host} is quiet, and holds resources: {:?}", engine.falcon_stats()));
            }
            let pool = engine.pool_stats();
            if pool.units_in_use + pool.blocks_in_use > 0 {
                return Err(format!("host {host} is quiet, and its pool is in use: {pool:?}"));
            }
            check_shares(host, engine)?;
        }
        Ok(())
    }
}

/// Time without progress after which a run is considered stuck: hundreds of the longest timeouts that scenarios
/// generate.
const NO_PROGRESS_TIME_MAX: Duration = Duration::from_ms(500);

/// The same with Falcon: Swift may leave intervals between packets as long as in the backend of engines alone.
const NO_PROGRESS_TIME_MAX_FALCON: Duration = Duration::from_secs(20);

/// Final waiting time: longer than any delay that scenarios generate.
const DRAIN_TIME: Duration = Duration::from_secs(2);
