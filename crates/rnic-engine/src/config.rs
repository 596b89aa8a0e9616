//! What an engine and its queue pairs are made with.

use std::sync::Arc;

use rnic_base::{BitRate, Psn};
use rnic_fae::Spawn;
use rnic_wire::{Qpn, RnrTimer};

use crate::namespace::NvmeRole;
use crate::state::Service;
use crate::transport::Transport;
use crate::{CqId, PdId, PeerId, SrqId};

/// An engine's own settings.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Rate of the link it sends on: what controllers start from and pacing is bounded by.
    pub line_rate: BitRate,
    /// Scatters the keys of memory regions and the numbers of queue pairs that the engine chooses by itself. It hides
    /// nothing: some of them give it away. Bodies that face a network choose both ([`crate::Objects::register_as`],
    /// [`QpAttributes::number`]) by a generator that cannot be predicted; simulations derive this from the seed.
    pub secret: u64,
    /// Starts the thread of a Falcon adaptive engine that is to have one (`fae_place`); `None`, the default: nobody
    /// does, and queue pairs that want it are refused. So it is in simulations, which a thread must not decide.
    pub adaptive_thread: Option<Spawn>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self { line_rate: BitRate::gbps(100), secret: 0, adaptive_thread: None }
    }
}

/// What a queue pair is made with.
#[derive(Clone, Debug)]
pub struct QpAttributes {
    /// Protection domain.
    pub pd: PdId,
    /// Where completions of the send queue go.
    pub send_cq: CqId,
    /// Where completions of the receive queue go.
    pub recv_cq: CqId,
    /// Take receives from here instead of from an own queue.
    pub srq: Option<SrqId>,
    /// Entries of the send queue, at most; 64 bytes each, plus 16 per scatter/gather entry.
    pub max_send_wr: u32,
    /// Entries of the receive queue, at most; 48 bytes each, plus 16 per scatter/gather entry.
    pub max_recv_wr: u32,
    /// Scatter/gather entries of a send request, at most.
    pub max_send_sge: u32,
    /// Scatter/gather entries of a receive request, at most.
    pub max_recv_sge: u32,
    /// Every send request completes visibly, whatever its flags.
    pub signal_all: bool,
    /// What it promises. Unreliable services use no recovery, congestion control or scheduling of `transport`.
    pub service: Service,
    /// How the queue pair delivers. Unreliable services take no more from it than its way of choosing a path.
    pub transport: Arc<Transport>,
    /// Its number; `None` lets the engine choose.
    pub number: Option<Qpn>,
    /// The end of NVMe that it is; RDMA where there is none. For reliable connections on Falcon.
    pub nvme: Option<NvmeRole>,
}

/// What a queue pair must know before it can receive (the step to [`crate::QpState::ReadyToReceive`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpConnection {
    /// Who is at the other end.
    pub peer: PeerId,
    /// The queue pair there.
    pub dest_qpn: Qpn,
    /// The first PSN that will come in.
    pub rq_psn: Psn,
    /// Payload bytes of a full packet, a multiple of four; the same at both ends.
    pub mtu: u32,
    /// The wait that we ask for when no receive is posted.
    pub min_rnr_timer: RnrTimer,
    /// Reads and atomics of the peer that we serve at a time.
    pub max_dest_rd_atomic: u32,
}

/// What a queue pair must know before it can send (the step to [`crate::QpState::ReadyToSend`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpTiming {
    /// The first PSN that goes out.
    pub sq_psn: Psn,
    /// Timeouts in a row without progress after which the peer is given up. How long each takes is the transport's
    /// business.
    pub retry_count: u32,
    /// Receiver-not-ready answers in a row after which the peer is given up; `None` waits for ever.
    pub rnr_retry: Option<u32>,
    /// Our reads and atomics that may be outstanding; what the peer serves at a time.
    pub max_rd_atomic: u32,
}
