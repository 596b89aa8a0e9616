//! The calls of an engine, recorded in memory.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rnic_base::{Csig, Duration, Time};
use rnic_engine::{
    Arrival, BurstDefault, Departure, DriverCall, Engine, FalconTransmit, LimitSource, Observer, PeerId, PostError,
    QpSnapshot, QpTiming, RateLimit, RxMeta, RxOutcome, SendFlags, SendOp, SendRequest, Sge, Sharing, Transmit,
    TransmitKind,
};
use rnic_wire::falcon::{self, FlowLabel};
use rnic_wire::{Format, Headers, Packet, Qpn};

/// A send request that owns its list of memory.
#[derive(Clone, PartialEq, Debug)]
pub struct Request {
    /// Identifier of the request.
    pub wr_id: u64,
    /// Operation.
    pub op: SendOp,
    /// Local memory.
    pub sges: Vec<Sge>,
    /// Modifiers.
    pub flags: SendFlags,
}

/// A received packet without its payload.
#[derive(Clone, PartialEq, Debug)]
pub enum Received {
    /// A packet of the RoCE family.
    Roce(Format, Packet, RxMeta),
    /// A Falcon packet, its sender, its label, whether it was marked, its hops and its congestion signal.
    Falcon(falcon::Packet, PeerId, FlowLabel, bool, u8, Option<Csig>),
}

impl Received {
    /// Returns the queue pair to which it is sent.
    pub fn to(&self) -> Qpn {
        match self {
            Self::Roce(_, packet, _) => packet.dest_qpn,
            Self::Falcon(packet, ..) => Qpn::new(packet.cid.get()),
        }
    }

    /// Returns whether it is marked, or notifies of a marked packet.
    pub fn tells_of_congestion(&self) -> bool {
        match self {
            Self::Roce(_, packet, meta) => meta.congested || matches!(packet.headers, Headers::Cnp),
            Self::Falcon(_, _, _, marked, ..) => *marked,
        }
    }
}

/// A packet that the engine has returned.
#[derive(Clone, PartialEq, Debug)]
pub enum Sent {
    /// A packet of the RoCE family.
    Roce(Transmit),
    /// A Falcon packet.
    Falcon(FalconTransmit),
}

impl Sent {
    /// Returns its queue pair, its sequence number and its type.
    pub fn summary(&self) -> (Qpn, Option<u32>, TransmitKind) {
        match self {
            Self::Roce(sent) => (sent.from, Some(sent.packet.psn.value()), sent.kind),
            Self::Falcon(sent) => (sent.from, sent.packet.body.psn().map(|psn| psn.value()), sent.kind),
        }
    }
}

/// A call of an engine, with its answer.
#[derive(Clone, PartialEq, Debug)]
pub enum What {
    /// A queue pair may send.
    ReadyToSend(Qpn, QpTiming),
    /// Work.
    PostSend(Qpn, Box<Request>, Result<(), PostError>),
    /// A packet has arrived.
    Receive(Box<Received>, RxOutcome),
    /// The driver can send a packet.
    Transmit(Option<Box<Sent>>),
    /// Timers are processed.
    Tick,
    /// The engine was not driven for a time.
    Absence(Duration),
    /// All packets of that time have been passed in.
    CaughtUp,
    /// The packets in flight to a peer are limited.
    PeerLimit(PeerId, Option<u64>),
    /// The rate of a queue pair is limited.
    RateLimit(Qpn, LimitSource, Option<RateLimit>),
    /// Bytes that wait for the memory of the host.
    FalconBacklog(u64),
}

/// A recorded call and the state after it.
#[derive(Clone, PartialEq, Debug)]
pub struct Call {
    /// Time of the call.
    pub now: Time,
    /// The call, and its answer.
    pub what: What,
    /// Time for which the engine has armed its next timer.
    pub next_timeout: Option<Time>,
    /// Windows, rates, counters and sequence numbers of the queue pairs, as an index of [`Recording::states`].
    pub state: usize,
}

/// The calls of an engine.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Recording {
    /// Burst of the engine's queue pairs whose rate is limited: drivers differ in it.
    pub burst: BurstDefault,
    /// The calls, in order.
    pub calls: Vec<Call>,
    /// The states that followed each other.
    pub states: Vec<Vec<QpSnapshot>>,
}

impl Recording {
    /// Adds a call of `engine`.
    pub fn add(&mut self, engine: &Engine, now: Time, what: What) {
        self.burst = Sharing::burst_of(engine);
        let state: Vec<QpSnapshot> = engine.queue_pairs().collect();
        if self.states.last() != Some(&state) {
            self.states.push(state);
        }
        self.calls.push(Call { now, what, next_timeout: engine.next_timeout(), state: self.states.len() - 1 });
    }
}

/// An observer that records the calls of an engine; its clones share the recording.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Arc<Mutex<Recording>>);

impl Recorder {
    fn recording(&self) -> MutexGuard<'_, Recording> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the calls recorded so far, and starts an empty recording.
    pub fn take(&self) -> Recording {
        std::mem::take(&mut self.recording())
    }
}

impl Observer for Recorder {
    fn note(&mut self, engine: &Engine, now: Time, call: &DriverCall<'_>) {
        self.recording().add(engine, now, owned(call));
    }
}

/// Returns a copy of `call` that borrows nothing.
///
/// # Panics
/// For a call that the scenario does not make: a receive request, or a message between NICs.
pub fn owned(call: &DriverCall<'_>) -> What {
    match *call {
        DriverCall::ReadyToSend(qpn, timing) => What::ReadyToSend(qpn, *timing),
        DriverCall::PostSend(qpn, request, answer) => {
            let SendRequest { wr_id, op, sges, flags } = *request;
            What::PostSend(qpn, Box::new(Request { wr_id, op, sges: sges.to_vec(), flags }), answer)
        }
        DriverCall::PostRecv(..) => panic!("the scenario posts no receives"),
        DriverCall::Receive(arrival, outcome) => {
            let received = match arrival {
                Arrival::Roce(format, packet, meta) => Received::Roce(format, *packet, meta),
                Arrival::Falcon(arrival) => {
                    let rnic_engine::FalconArrival { packet, peer, label, congested, hops, csig } = arrival;
                    Received::Falcon(*packet, peer, label, congested, hops, csig)
                }
                Arrival::Message(_) => panic!("the scenario has no messages"),
            };
            What::Receive(Box::new(received), outcome)
        }
        DriverCall::Transmit(departure) => What::Transmit(departure.map(|departure| Box::new(sent(&departure)))),
        DriverCall::Tick => What::Tick,
        DriverCall::Absence(length) => What::Absence(length),
        DriverCall::CaughtUp => What::CaughtUp,
        DriverCall::PeerLimit(peer, packets) => What::PeerLimit(peer, packets),
        DriverCall::RateLimit(qpn, source, limit) => What::RateLimit(qpn, source, limit),
        DriverCall::FalconBacklog(bytes) => What::FalconBacklog(bytes),
    }
}

/// Returns a copy of a packet that the engine has returned.
///
/// # Panics
/// For a message between NICs.
pub fn sent(departure: &Departure<'_>) -> Sent {
    match departure {
        Departure::Roce(transmit) => Sent::Roce(**transmit),
        Departure::Falcon(transmit) => Sent::Falcon(**transmit),
        Departure::Message(_) => panic!("the scenario has no messages"),
    }
}
