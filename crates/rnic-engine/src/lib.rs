//! The NIC, without its link and without its clock.
//!
//! ```text
//! CRATE    rnic-engine (red: simulator and sockets run exactly this code)
//! Purpose  verbs (QP, CQ, MR, SRQ) -> transactions -> delivery windows -> gates, pacing, scheduling
//! May use  rnic-base, rnic-wire, rnic-policy, rnic-falcon, rnic-fae, rnic-nvme, rnic-scr
//! Must not read a clock, open a socket, start a thread, touch payload, use floating point, allocate per packet
//! Add here what every transport needs: a verb, a window rule, a reason to wait
//! Not here algorithms (rnic-transports), networks (rnic-fabric), sockets and memory (rnic-host)
//! Tested by tests/ here (verbs, mechanisms by id, packet scripts), the semantics fuzz in tests/ of the repository
//! ```
//!
//! # The contract
//!
//! An [`Engine`] is a state machine. All its inputs carry the current time `now`; all its outputs are fetched by the
//! caller. After every input, in any order, the caller
//!
//! 1. takes packets from [`Engine::transmit`] while its link can accept them,
//! 2. takes completions with [`Objects::poll_cq`] and events with [`Objects::poll_event`],
//! 3. sleeps at most until [`Engine::next_timeout`], then calls [`Engine::tick`].
//!
//! Inputs are: [`Engine::post_send`], [`Engine::post_recv`] and [`Objects::post_srq_recv`] (work), [`Engine::receive`]
//! (a packet), [`Engine::tick`] (time). Time must not run backwards; equal instants are allowed.
//!
//! Payload never enters the engine: a [`Transmit`] is accompanied by a list of [`Segment`]s of registered memory from
//! which the caller gathers the payload, and during `receive` the engine instructs a [`Dma`] implementation where to
//! place the received bytes.
//!
//! A Falcon packet occupies up to two cache lines, a packet of the RoCE family one. They are separate types, which
//! [`Arrival`] and [`Departure`] distinguish. Both enums contain references, so that processing the smaller type does
//! not become more expensive.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_macros))]

mod arbiter;
mod completion;
mod config;
mod core;
mod cq;
mod dma;
mod engine;
mod error;
mod event;
mod falcon;
mod fifo;
mod latency;
mod ledger;
mod limiter;
pub mod messages;
mod mr;
mod namespace;
mod nvme;
mod objects;
mod packet;
mod peer;
mod processors;
mod pulls;
mod qp;
mod ready;
mod roce;
mod scheduling;
mod signals;
mod srq;
mod state;
mod stats;
mod timer;
mod transport;
mod unreliable;
mod verbs;
mod watch;
mod window;
mod wq;
mod wr;

pub use arbiter::{CLASS_WEIGHT_MAX, CLASSES_MAX, ClassShare, ClassShares, ClassTurns};
pub use completion::{Completion, WcFlags, WcOpcode, WcStatus};
pub use config::{EngineConfig, QpAttributes, QpConnection, QpTiming};
pub use dma::{Dma, MemoryFault, NoDma, Segment};
pub use engine::{
    Classes, DriverCall, Engine, Hints, Latencies, Messages, Nvme, Observer, PREFETCH_STEPS, QpSnapshot, Sharing,
    Signals, observe,
};
pub use error::{DropReason, MemoryError, ModifyError, PostError, ResourceError, RxOutcome};
pub use event::AsyncEvent;
pub use latency::{LatencyHistogram, LatencyTotals, OperationTimes};
pub use ledger::{Shares, WEIGHT_MAX};
pub use limiter::{BurstDefault, LimitSource, RATE_LIMIT_MIN, RateLimit};
pub use mr::windows::{Binding, WindowKind};
pub use mr::{Access, Key, MemoryRegion};
pub use namespace::{NamespaceConfig, NamespaceId, NvmeInitiator, NvmeRole};
pub use objects::Objects;
pub use packet::{
    Arrival, Departure, FalconArrival, FalconTransmit, MessageArrival, MessageTransmit, RxMeta, Transmit, TransmitKind,
};
pub use processors::ProcessorConfig;
pub use processors::threads::SchedulerThreads;
pub use qp::QpInfo;
pub use rnic_falcon::delivery::FlowView;
pub use rnic_nvme::device::{DeviceConfig, Service as DeviceService};
pub use rnic_nvme::initiator::Failure as NvmeFailure;
pub use rnic_nvme::{Reads as NvmeReads, UNIT as NVME_UNIT, UNITS_MAX as NVME_UNITS_MAX};
pub use rnic_scr::thread::HOST_THREADS_MAX as SCHEDULE_THREADS_MAX;
pub use rnic_scr::{
    Kind as SignalKind, KindCounters, PoolConfig, PoolError, PoolSizes, PoolTimes, Signal, SteeringMode, Strategy,
};
pub use rnic_wire::RnrTimer;
pub use signals::SignalSettings;
pub use srq::SrqInfo;
pub use state::{QpState, Service};
pub use stats::{EngineStats, FalconStats, PoolStats, QpStats, WaitReason};
pub use transport::Transport;
pub use watch::Traffic;
pub use wr::{DatagramAddress, RecvRequest, RemoteMemory, SendFlags, SendOp, SendRequest, Sge};

use ::core::fmt;
use ::core::num::NonZeroU32;

/// Length in bytes of the global route header that precedes a received datagram: the driver supplies it as the first
/// bytes of the payload in its [`Dma`] (over IPv4: 20 unused bytes, then the IP header; annex A17.4.5.1).
pub const GRH_LEN: u32 = 40;

/// Identifier of a protection domain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PdId(pub(crate) u32);

/// Identifier of a completion queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CqId(pub(crate) u32);

/// Identifier of a shared receive queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SrqId(NonZeroU32);

impl SrqId {
    /// Returns the identifier of the queue at `index` of the engine's table. Numbers start at 1, so that an `Option`
    /// of it needs no extra memory in a queue pair.
    pub(crate) fn at(index: usize) -> Self {
        Self(NonZeroU32::new(index as u32 + 1).expect("fewer than 2^32 shared receive queues"))
    }

    pub(crate) fn index(self) -> usize {
        self.0.get() as usize - 1
    }

    /// Returns the number by which packets of extended reliable connections refer to the shared receive queue.
    pub fn number(self) -> u32 {
        self.0.get()
    }

    pub(crate) fn numbered(number: u32) -> Option<Self> {
        NonZeroU32::new(number).map(Self)
    }
}

/// Number of a remote network address, assigned by the driver. The engine only compares these numbers, and counts
/// packets by them: a packet for a queue pair must come from the peer to which the queue pair is connected.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PeerId(pub u32);

impl PeerId {
    /// Value that represents no peer; drivers must not assign it.
    pub const NONE: Self = Self(u32::MAX);
}

/// A NIC of a peer. The NICs that share one address differ by a number, which the driver derives from the numbers of
/// their queue pairs ([`messages::config::ExchangeConfig::nic_of`]). Messages between NICs are sent to one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct NicId {
    /// Peer to which the NIC belongs.
    pub peer: PeerId,
    /// Number among the NICs of the peer; 0 where each peer is one NIC.
    pub number: u16,
}

impl NicId {
    /// Returns the NIC of a peer that has only one.
    #[must_use]
    pub const fn of(peer: PeerId) -> Self {
        Self { peer, number: 0 }
    }
}

impl fmt::Debug for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "peer {}", self.0)
    }
}
