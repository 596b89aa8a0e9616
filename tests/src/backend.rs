//! What the body needs of a network with NICs: verbs, memory, time. It does not know which network it is.

mod engines;
mod fabric;
mod sockets;

use rnic_base::{Duration, Time};
use rnic_engine::{
    Access, AsyncEvent, Completion, CqId, EngineStats, Key, NamespaceConfig, NamespaceId, PdId, PostError,
    QpAttributes, QpConnection, QpInfo, QpTiming, RecvRequest, SendRequest, SrqId,
};
use rnic_wire::Qpn;

pub use engines::Engines;
pub use fabric::Fabric;
pub use sockets::Sockets;

/// Registered memory of a host, by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RegionId(pub usize);

/// Hosts with NICs, and the network between them. Hosts are numbered from zero.
pub trait Backend {
    /// Present time.
    fn now(&self) -> Time;

    /// Lets time pass: about so much.
    fn advance(&mut self, span: Duration);

    /// From now on the network is a good one.
    fn end_faults(&mut self);

    /// Without any progress for so long, something is stuck.
    fn patience(&self) -> Duration;

    /// The protection domain of everything at `host`.
    fn domain(&self, host: usize) -> PdId;

    /// Registers `len` bytes of memory at `host`.
    fn register(&mut self, host: usize, len: usize, access: Access) -> RegionId;

    /// Address and key of a region.
    fn region(&self, host: usize, region: RegionId) -> (u64, u32);

    /// The bytes of a region.
    fn bytes(&mut self, host: usize, region: RegionId) -> &mut [u8];

    /// Takes a registration back, if no peer has done so. The bytes stay where they are, or go.
    fn deregister(&mut self, host: usize, region: RegionId);

    /// Registers `len` bytes at `offset` of a region once more, under a key of their own.
    fn register_part(&mut self, host: usize, region: RegionId, offset: usize, len: usize, access: Access) -> Key;

    /// Takes the key of a part back, if no peer has done so.
    fn deregister_part(&mut self, host: usize, key: Key);

    /// Makes a completion queue.
    fn create_cq(&mut self, host: usize, capacity: u32) -> CqId;

    /// Makes a shared receive queue.
    fn create_srq(&mut self, host: usize, entries: u32, sges: u32) -> SrqId;

    /// Makes a namespace of NVMe.
    fn create_namespace(&mut self, host: usize, config: &NamespaceConfig) -> NamespaceId;

    /// Makes a queue pair.
    fn create_qp(&mut self, host: usize, attributes: &QpAttributes) -> Qpn;

    /// Takes a queue pair from its beginning to where it can send, connected to a queue pair at `to`. The peer in
    /// `connection` is filled in here.
    fn connect_qp(&mut self, host: usize, qpn: Qpn, to: usize, connection: &QpConnection, timing: &QpTiming);

    /// Puts a queue pair into the error state.
    fn fail_qp(&mut self, host: usize, qpn: Qpn);

    /// Takes a queue pair back to its beginning.
    fn reset_qp(&mut self, host: usize, qpn: Qpn);

    /// Lets a queue pair finish what it has begun, and begin nothing new.
    fn drain_qp(&mut self, host: usize, qpn: Qpn);

    /// Lets a drained queue pair go on.
    fn resume_qp(&mut self, host: usize, qpn: Qpn, timing: &QpTiming);

    /// Ends a queue pair.
    fn destroy_qp(&mut self, host: usize, qpn: Qpn);

    /// Bounds the packets under way from `host` to `to`.
    fn set_peer_limit(&mut self, host: usize, to: usize, packets: Option<u64>);

    /// See [`rnic_engine::Engine::post_send`].
    ///
    /// # Errors
    /// As there.
    fn post_send(&mut self, host: usize, qpn: Qpn, request: &SendRequest<'_>) -> Result<(), PostError>;

    /// See [`rnic_engine::Engine::post_recv`].
    ///
    /// # Errors
    /// As there.
    fn post_recv(&mut self, host: usize, qpn: Qpn, request: &RecvRequest<'_>) -> Result<(), PostError>;

    /// See [`rnic_engine::Objects::post_srq_recv`].
    ///
    /// # Errors
    /// As there.
    fn post_srq_recv(&mut self, host: usize, srq: SrqId, request: &RecvRequest<'_>) -> Result<(), PostError>;

    /// Takes a completion.
    fn poll(&mut self, host: usize, cq: CqId) -> Option<Completion>;

    /// Takes a notice.
    fn event(&mut self, host: usize) -> Option<AsyncEvent>;

    /// What there is to know about a queue pair.
    fn query(&self, host: usize, qpn: Qpn) -> Option<QpInfo>;

    /// What the engine at `host` has counted.
    fn stats(&self, host: usize) -> EngineStats;

    /// The end: nothing may be left behind. Answers the hash of everything that happened, where that is the same every
    /// time.
    ///
    /// # Errors
    /// What was left behind.
    fn finish(&mut self) -> Result<Option<String>, String>;
}
