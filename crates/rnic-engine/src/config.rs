//! Settings with which an engine and its queue pairs are created.

use std::sync::Arc;

use rnic_base::{BitRate, Duration, Psn};
use rnic_fae::Spawn;
use rnic_falcon::resources::ResourceConfig;
use rnic_wire::{Qpn, RnrTimer};

use crate::limiter::BurstDefault;
use crate::namespace::NvmeRole;
use crate::processors::ProcessorConfig;
use crate::state::Service;
use crate::transport::Transport;
use crate::{CqId, PdId, PeerId, SrqId};

/// Settings of an engine.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Rate of the link that the engine sends on: congestion controllers start at this rate, and pacing never exceeds
    /// it.
    pub line_rate: BitRate,
    /// Seed of the generator of memory region keys and of queue pair numbers that the engine chooses itself. It
    /// provides no secrecy: a few of these values suffice to compute it. Drivers that are connected to a network
    /// choose keys and numbers ([`crate::Objects::register_as`], [`QpAttributes::number`]) with an unpredictable
    /// generator; simulations derive this seed from the simulation seed.
    pub secret: u64,
    /// Burst of queue pairs whose dequeue rate is limited.
    pub burst: BurstDefault,
    /// Time without data after which a queue pair is no longer counted among those that share the link, if its
    /// scheduler sets rates. A queue pair that only waits for its rate or its turn stays counted.
    pub idle_after: Duration,
    /// Threads on which schedulers run; with `None`, a scheduler processes each event at once.
    pub processors: Option<ProcessorConfig>,
    /// Starts the thread of a Falcon adaptive engine that is configured to run on one (`fae_place`). With `None`, the
    /// default, no thread is started, and queue pairs that require one are rejected. Simulations use `None`, because
    /// a thread must not influence their results.
    pub adaptive_thread: Option<Spawn>,
    /// Bytes of the NIC's buffers for Falcon requests that arrive out of order. With `None`, the default, they follow
    /// from the option `resources` of the transport, as all other resources do.
    pub falcon_receive_bytes: Option<u64>,
}

impl EngineConfig {
    /// Least value of [`Self::falcon_receive_bytes`]: buffers for two requests of any length. A lower one has the same
    /// effect.
    pub const FALCON_RECEIVE_BYTES_MIN: u64 = ResourceConfig::RECEIVE_BYTES_MIN;
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            line_rate: BitRate::gbps(100),
            secret: 0,
            burst: BurstDefault::default(),
            idle_after: Duration::from_ms(1),
            processors: None,
            adaptive_thread: None,
            falcon_receive_bytes: None,
        }
    }
}

/// Attributes with which a queue pair is created.
#[derive(Clone, Debug)]
pub struct QpAttributes {
    /// Protection domain.
    pub pd: PdId,
    /// Completion queue of the send queue.
    pub send_cq: CqId,
    /// Completion queue of the receive queue.
    pub recv_cq: CqId,
    /// Shared receive queue from which receives are taken; without one, the queue pair has its own receive queue.
    pub srq: Option<SrqId>,
    /// Maximum number of send queue entries; 64 bytes each, plus 16 per scatter/gather entry.
    pub max_send_wr: u32,
    /// Maximum number of receive queue entries; 48 bytes each, plus 16 per scatter/gather entry.
    pub max_recv_wr: u32,
    /// Maximum number of scatter/gather entries of a send request.
    pub max_send_sge: u32,
    /// Maximum number of scatter/gather entries of a receive request.
    pub max_recv_sge: u32,
    /// True when every send request generates a completion, regardless of its flags.
    pub signal_all: bool,
    /// Service type. Unreliable services do not use the recovery, congestion control and scheduling of `transport`.
    pub service: Service,
    /// Transport of the queue pair. Unreliable services use only its path selection.
    pub transport: Arc<Transport>,
    /// Queue pair number; with `None`, the engine chooses one.
    pub number: Option<Qpn>,
    /// Role in NVMe (initiator or target), for reliable connections on Falcon; `None` for RDMA.
    pub nvme: Option<NvmeRole>,
}

/// Attributes that a queue pair needs before it can receive (the transition to [`crate::QpState::ReadyToReceive`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpConnection {
    /// Peer at the remote end.
    pub peer: PeerId,
    /// Number of the remote queue pair.
    pub dest_qpn: Qpn,
    /// First PSN that will be received.
    pub rq_psn: Psn,
    /// Payload bytes of a full packet, a multiple of four; the same at both ends.
    pub mtu: u32,
    /// RNR delay that this end requests from the peer when no receive is posted.
    pub min_rnr_timer: RnrTimer,
    /// Maximum number of Reads and atomics of the peer that this end executes concurrently.
    pub max_dest_rd_atomic: u32,
}

/// Attributes that a queue pair needs before it can send (the transition to [`crate::QpState::ReadyToSend`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpTiming {
    /// First PSN to be sent.
    pub sq_psn: Psn,
    /// Number of consecutive timeouts without progress after which the connection fails. The transport determines the
    /// duration of each timeout.
    pub retry_count: u32,
    /// Number of consecutive receiver-not-ready NAKs after which the connection fails; with `None`, requests are
    /// retried indefinitely.
    pub rnr_retry: Option<u32>,
    /// Maximum number of outstanding Reads and atomics of this end: the number that the peer executes concurrently.
    pub max_rd_atomic: u32,
}
