//! The interface that the test driver requires of a network with NICs: verbs, memory, time. The driver does not depend
//! on the type of network.

mod engines;
mod fabric;
mod sockets;

use rnic_base::{BitRate, Duration, Time};
use rnic_engine::{
    Access, AsyncEvent, Completion, CqId, Engine, EngineStats, Key, NamespaceConfig, NamespaceId, Observer, PdId,
    PeerId, PostError, QpAttributes, QpConnection, QpInfo, QpTiming, RecvRequest, SendRequest, SrqId,
};
use rnic_wire::Qpn;

pub use engines::Engines;
pub use fabric::Fabric;
pub use sockets::Sockets;

/// Index of a registered memory region of a host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RegionId(pub usize);

/// Hosts with NICs, and the network between them. Hosts are numbered from zero.
pub trait Backend {
    /// Passes the calls of the engine at `host` to `observer`, and monitors queue pairs that are created from now on.
    fn observe(&mut self, host: usize, observer: Box<dyn Observer>);

    /// Returns the current time.
    fn now(&self) -> Time;

    /// Advances time by about `span`.
    fn advance(&mut self, span: Duration);

    /// Returns the number by which `host` knows the host `to`.
    fn peer(&self, host: usize, to: usize) -> PeerId;

    /// Disables all network faults from now on.
    fn end_faults(&mut self);

    /// Returns the time without any progress after which a run is considered stuck.
    fn no_progress_time_max(&self) -> Duration;

    /// Returns the protection domain of all objects at `host`.
    fn domain(&self, host: usize) -> PdId;

    /// Registers `len` bytes of memory at `host`.
    fn register(&mut self, host: usize, len: usize, access: Access) -> RegionId;

    /// Returns the address and key of a region.
    fn region(&self, host: usize, region: RegionId) -> (u64, u32);

    /// Returns the bytes of a region.
    fn bytes(&mut self, host: usize, region: RegionId) -> &mut [u8];

    /// Deregisters a region, if no peer has invalidated it. The bytes may be kept or freed.
    fn deregister(&mut self, host: usize, region: RegionId);

    /// Registers `len` bytes at `offset` of a region once more, under a separate key.
    fn register_part(&mut self, host: usize, region: RegionId, offset: usize, len: usize, access: Access) -> Key;

    /// Deregisters the key of a part, if no peer has invalidated it.
    fn deregister_part(&mut self, host: usize, key: Key);

    /// Creates a completion queue.
    fn create_cq(&mut self, host: usize, capacity: u32) -> CqId;

    /// Creates a shared receive queue.
    fn create_srq(&mut self, host: usize, entries: u32, sges: u32) -> SrqId;

    /// Creates an NVMe namespace.
    fn create_namespace(&mut self, host: usize, config: &NamespaceConfig) -> NamespaceId;

    /// Creates a queue pair.
    fn create_qp(&mut self, host: usize, attributes: &QpAttributes) -> Qpn;

    /// Takes a queue pair from its initial state to the state in which it can send, connected to a queue pair at `to`.
    /// This function fills in the peer of `connection`.
    fn connect_qp(&mut self, host: usize, qpn: Qpn, to: usize, connection: &QpConnection, timing: &QpTiming);

    /// Puts a queue pair into the error state.
    fn fail_qp(&mut self, host: usize, qpn: Qpn);

    /// Resets a queue pair to its initial state.
    fn reset_qp(&mut self, host: usize, qpn: Qpn);

    /// Drains a queue pair: it finishes the requests that it has started, and starts no new ones.
    fn drain_qp(&mut self, host: usize, qpn: Qpn);

    /// Resumes a drained queue pair.
    fn resume_qp(&mut self, host: usize, qpn: Qpn, timing: &QpTiming);

    /// Destroys a queue pair.
    fn destroy_qp(&mut self, host: usize, qpn: Qpn);

    /// Limits the packets in flight from `host` to `to`.
    fn set_peer_limit(&mut self, host: usize, to: usize, packets: Option<u64>);

    /// Limits the dequeue rate of a queue pair; `None` removes the limit.
    fn set_rate_limit(&mut self, host: usize, qpn: Qpn, rate: Option<BitRate>);

    /// Sets the weight of a queue pair among those that share the link of `host`.
    fn set_weight(&mut self, host: usize, qpn: Qpn, weight: u16);

    /// Sets the rate that the queue pairs of `host` may use in total; `None` for that of the link.
    fn set_capacity(&mut self, host: usize, capacity: Option<BitRate>);

    /// See [`rnic_engine::Engine::post_send`].
    ///
    /// # Errors
    /// As for that function.
    fn post_send(&mut self, host: usize, qpn: Qpn, request: &SendRequest<'_>) -> Result<(), PostError>;

    /// See [`rnic_engine::Engine::post_recv`].
    ///
    /// # Errors
    /// As for that function.
    fn post_recv(&mut self, host: usize, qpn: Qpn, request: &RecvRequest<'_>) -> Result<(), PostError>;

    /// See [`rnic_engine::Objects::post_srq_recv`].
    ///
    /// # Errors
    /// As for that function.
    fn post_srq_recv(&mut self, host: usize, srq: SrqId, request: &RecvRequest<'_>) -> Result<(), PostError>;

    /// Polls one completion.
    fn poll(&mut self, host: usize, cq: CqId) -> Option<Completion>;

    /// Polls one asynchronous event.
    fn event(&mut self, host: usize) -> Option<AsyncEvent>;

    /// Returns the state of a queue pair.
    fn query(&self, host: usize, qpn: Qpn) -> Option<QpInfo>;

    /// Returns the counters of the engine at `host`.
    fn stats(&self, host: usize) -> EngineStats;

    /// Finishes the run and checks that no resources are left. Returns the hash of all events of the run, where it is
    /// reproducible.
    ///
    /// # Errors
    /// Describes what was left behind.
    fn finish(&mut self) -> Result<Option<String>, String>;
}

/// Checks that queue pairs which have nothing to send have given back their parts of the link.
///
/// # Errors
/// When some have not.
fn check_shares(host: usize, engine: &Engine) -> Result<(), String> {
    let shares = engine.shares();
    let is_free = shares.members == 0 && shares.weights == 0 && shares.saturated_weights == 0;
    match is_free && shares.allocated == BitRate::ZERO {
        true => Ok(()),
        false => Err(format!("host {host} is quiet, and parts of its link are still given out: {shares:?}")),
    }
}
