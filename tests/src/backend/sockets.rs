//! Real UDP sockets as a backend, or memory that NICs share: NICs of this process on loopback, real time, impairment
//! inside the NICs.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Instant;

use rnic_base::{BitRate, Duration, Time};
use rnic_engine::{
    Access, AsyncEvent, Completion, CqId, EngineStats, Key, LimitSource, NamespaceConfig, NamespaceId, Observer, PdId,
    PeerId, PostError, QpAttributes, QpConnection, QpInfo, QpTiming, RateLimit, RecvRequest, SendRequest, SrqId,
};
use rnic_host::{Impairment, Nic, NicConfig, NicError, Region};
use rnic_wire::Qpn;

use super::{Backend, RegionId};

struct Host {
    nic: Nic,
    pd: PdId,
    regions: Vec<Option<Region>>,
    /// The other hosts, by number.
    peers: Vec<Option<PeerId>>,
}

impl Host {
    /// Returns the number of packets sent. Where NICs share their machine's memory, they also send occasional identity
    /// requests; there, only the packets of queue pairs are counted.
    fn packets_sent(&self) -> u64 {
        let EngineStats { packets_sent, packets_retransmitted, acks_sent, .. } = *self.nic.engine_stats();
        match self.nic.config().shared {
            true => packets_sent + packets_retransmitted + acks_sent,
            false => self.nic.stats().datagrams_sent,
        }
    }
}

/// NICs on sockets of this process.
pub struct Sockets {
    hosts: Vec<Host>,
    start: Instant,
}

impl Sockets {
    /// Creates a NIC for each of `configs`, each of which knows all others. NICs that share their machine each have an
    /// address of it, by which the others know them.
    ///
    /// # Errors
    /// When a socket cannot be opened.
    pub fn new(configs: Vec<NicConfig>) -> Result<Self, NicError> {
        let mut hosts = Vec::new();
        for config in configs {
            let mut nic = Nic::open(config)?;
            let pd = nic.verbs().create_pd()?;
            hosts.push(Host { nic, pd, regions: Vec::new(), peers: Vec::new() });
        }
        let addresses: Vec<SocketAddr> = hosts.iter().map(|host| host.nic.local_addr()).collect();
        for (index, host) in hosts.iter_mut().enumerate() {
            for (other, address) in addresses.iter().enumerate() {
                let is_shared = address.ip().is_unspecified();
                host.peers.push(match other == index {
                    true => None,
                    false if is_shared => Some(host.nic.acquire_host(address_of(other), Some(address_of(index)))?),
                    false => Some(host.nic.acquire_peer(*address)?),
                });
            }
        }
        Ok(Self { hosts, start: Instant::now() })
    }

    fn progress(&mut self) -> bool {
        self.hosts.iter_mut().fold(false, |progressed, host| host.nic.progress() | progressed)
    }

    fn elapsed(&self) -> Duration {
        Duration::from_ns(u64::try_from(self.start.elapsed().as_nanos()).expect("the elapsed nanoseconds fit 64 bits"))
    }
}

/// Returns the address of host number `host` of this machine.
fn address_of(host: usize) -> IpAddr {
    Ipv4Addr::from_bits(Ipv4Addr::new(127, 0, 1, 0).to_bits() + host as u32).into()
}

impl Backend for Sockets {
    fn observe(&mut self, host: usize, observer: Box<dyn Observer>) {
        // The engine of a NIC is monitored in any case.
        self.hosts[host].nic.verbs().observe(Some(observer));
    }

    fn now(&self) -> Time {
        Time::ZERO + self.elapsed()
    }

    fn advance(&mut self, span: Duration) {
        let start = self.elapsed();
        while self.progress() {
            if self.elapsed() - start > span {
                return;
            }
        }
        if self.elapsed() - start < span {
            std::thread::yield_now();
        }
    }

    fn peer(&self, host: usize, to: usize) -> PeerId {
        self.hosts[host].peers[to].expect("the peer is another host")
    }

    fn end_faults(&mut self) {
        for host in &mut self.hosts {
            host.nic.set_impairment(Impairment::default());
        }
    }

    fn no_progress_time_max(&self) -> Duration {
        NO_PROGRESS_TIME_MAX
    }

    fn domain(&self, host: usize) -> PdId {
        self.hosts[host].pd
    }

    fn register(&mut self, host: usize, len: usize, access: Access) -> RegionId {
        let Host { nic, pd, regions, .. } = &mut self.hosts[host];
        regions.push(Some(nic.verbs().register(*pd, len, access).expect("the memory can be registered")));
        RegionId(regions.len() - 1)
    }

    fn region(&self, host: usize, region: RegionId) -> (u64, u32) {
        let region = self.hosts[host].regions[region.0].as_ref().expect("the region is registered");
        (region.addr(), region.key().0)
    }

    fn bytes(&mut self, host: usize, region: RegionId) -> &mut [u8] {
        let Host { nic, regions, .. } = &mut self.hosts[host];
        nic.bytes_mut(regions[region.0].as_ref().expect("the region is registered"))
    }

    fn deregister(&mut self, host: usize, region: RegionId) {
        let Host { nic, regions, .. } = &mut self.hosts[host];
        if let Some(region) = regions[region.0].take() {
            nic.verbs().deregister(region);
        }
    }

    fn register_part(&mut self, host: usize, region: RegionId, offset: usize, len: usize, access: Access) -> Key {
        let Host { nic, pd, regions, .. } = &mut self.hosts[host];
        let region = regions[region.0].as_ref().expect("the region is registered");
        nic.verbs().register_part(*pd, region, offset..offset + len, access).expect("the access rights are valid")
    }

    fn deregister_part(&mut self, host: usize, key: Key) {
        self.hosts[host].nic.verbs().deregister_part(key);
    }

    fn create_cq(&mut self, host: usize, capacity: u32) -> CqId {
        self.hosts[host].nic.verbs().create_cq(capacity).expect("the size is valid")
    }

    fn create_srq(&mut self, host: usize, entries: u32, sges: u32) -> SrqId {
        let Host { nic, pd, .. } = &mut self.hosts[host];
        nic.verbs().create_srq(*pd, entries, sges).expect("the sizes are valid")
    }

    fn create_namespace(&mut self, host: usize, config: &NamespaceConfig) -> NamespaceId {
        self.hosts[host].nic.verbs().nvme().create_namespace(config).expect("the namespace is valid")
    }

    fn create_qp(&mut self, host: usize, attributes: &QpAttributes) -> Qpn {
        self.hosts[host].nic.verbs().create_qp(attributes).expect("the attributes are valid")
    }

    fn connect_qp(&mut self, host: usize, qpn: Qpn, to: usize, connection: &QpConnection, timing: &QpTiming) {
        let connection = QpConnection { peer: self.peer(host, to), ..*connection };
        let nic = &mut self.hosts[host].nic;
        nic.verbs().modify_to_init(qpn).expect("the queue pair is reset");
        nic.verbs().modify_to_rtr(qpn, &connection).expect("the attributes are valid");
        nic.verbs().modify_to_rts(qpn, timing).expect("the attributes are valid");
    }

    fn fail_qp(&mut self, host: usize, qpn: Qpn) {
        self.hosts[host].nic.verbs().modify_to_error(qpn).expect("the queue pair exists");
    }

    fn reset_qp(&mut self, host: usize, qpn: Qpn) {
        self.hosts[host].nic.verbs().modify_to_reset(qpn).expect("the queue pair exists");
    }

    fn drain_qp(&mut self, host: usize, qpn: Qpn) {
        self.hosts[host].nic.verbs().modify_to_sqd(qpn).expect("the queue pair is ready to send");
    }

    fn resume_qp(&mut self, host: usize, qpn: Qpn, timing: &QpTiming) {
        self.hosts[host].nic.verbs().modify_to_rts(qpn, timing).expect("the queue pair is drained");
    }

    fn destroy_qp(&mut self, host: usize, qpn: Qpn) {
        self.hosts[host].nic.verbs().destroy_qp(qpn).expect("the queue pair exists");
    }

    fn set_peer_limit(&mut self, host: usize, to: usize, packets: Option<u64>) {
        let peer = self.peer(host, to);
        self.hosts[host].nic.set_peer_limit(peer, packets);
    }

    fn set_rate_limit(&mut self, host: usize, qpn: Qpn, rate: Option<BitRate>) {
        let limit = rate.map(|rate| RateLimit { rate, burst_bytes: None });
        let set = self.hosts[host].nic.verbs().set_rate_limit(qpn, LimitSource::Program, limit);
        set.expect("the queue pair exists, and the rate is in range");
    }

    fn set_weight(&mut self, host: usize, qpn: Qpn, weight: u16) {
        let set = self.hosts[host].nic.verbs().set_weight(qpn, weight);
        set.expect("the queue pair exists, and the weight is in range");
    }

    fn set_capacity(&mut self, host: usize, capacity: Option<BitRate>) {
        self.hosts[host].nic.verbs().set_capacity(capacity);
    }

    fn post_send(&mut self, host: usize, qpn: Qpn, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.hosts[host].nic.verbs().post_send(qpn, request)
    }

    fn post_recv(&mut self, host: usize, qpn: Qpn, request: &RecvRequest<'_>) -> Result<(), PostError> {
        self.hosts[host].nic.verbs().post_recv(qpn, request)
    }

    fn post_srq_recv(&mut self, host: usize, srq: SrqId, request: &RecvRequest<'_>) -> Result<(), PostError> {
        self.hosts[host].nic.verbs().post_srq_recv(srq, request)
    }

    fn poll(&mut self, host: usize, cq: CqId) -> Option<Completion> {
        self.hosts[host].nic.verbs().poll_cq_one(cq)
    }

    fn event(&mut self, host: usize) -> Option<AsyncEvent> {
        self.hosts[host].nic.verbs().poll_event()
    }

    fn query(&self, host: usize, qpn: Qpn) -> Option<QpInfo> {
        self.hosts[host].nic.query_qp(qpn)
    }

    fn stats(&self, host: usize) -> EngineStats {
        *self.hosts[host].nic.engine_stats()
    }

    fn finish(&mut self) -> Result<Option<String>, String> {
        let sent = |sockets: &Self| sockets.hosts.iter().map(Host::packets_sent).sum::<u64>();
        self.run_for(DRAIN_TIME);
        let before = sent(self);
        self.run_for(DRAIN_TIME);
        if sent(self) > before {
            return Err(format!("nothing is to be done, and still packets leave after {DRAIN_TIME}"));
        }
        let by_memory: u64 = self.hosts.iter().map(|host| host.nic.stats().bypass_sent).sum();
        if self.hosts.iter().any(|host| host.nic.config().shared) && before > UDP_PACKETS_MAX && by_memory == 0 {
            return Err(format!("of {before} packets none went through memory"));
        }
        Ok(None)
    }
}

impl Sockets {
    /// Runs the hosts for `span`. Time during which this process is descheduled is not counted, because the hosts do
    /// nothing in it.
    fn run_for(&mut self, span: Duration) {
        let mut passed = Duration::ZERO;
        while passed < span {
            let before = self.elapsed();
            if !self.progress() {
                std::thread::yield_now();
            }
            passed += (self.elapsed() - before).min(ITERATION_TIME_MAX);
        }
    }
}

/// Number of packets after which some ring must have been attached: earlier packets use UDP.
const UDP_PACKETS_MAX: u64 = 2_000;

/// Maximum duration counted for one iteration: hosts need less for all their work, unless the process is descheduled.
const ITERATION_TIME_MAX: Duration = Duration::from_us(100);

/// Time without progress after which a run is considered stuck: a process may be descheduled for long on a busy
/// machine.
const NO_PROGRESS_TIME_MAX: Duration = Duration::from_secs(20);

/// Final waiting time: longer than any delay that scenarios generate for sockets, and than an acknowledgement needs.
const DRAIN_TIME: Duration = Duration::from_ms(4);
