//! Passes recorded calls to an engine of another driver, and compares its decisions with the recorded ones.

use std::fmt;
use std::sync::Arc;

use rnic_engine::{
    Access, Arrival, Engine, FalconArrival, Key, MemoryRegion, NoDma, QpAttributes, QpConnection, RxOutcome,
    SendRequest, Service, TransmitKind, Transport,
};
use rnic_wire::Qpn;

use super::recording::{Call, Received, Recording, Request, What, sent};

/// The objects of a recorded engine.
#[derive(Clone, Debug)]
pub struct Objects {
    /// Address, length, key and access of the registered memory.
    pub region: (u64, u64, Key, Access),
    /// Queue pairs: number, transport, and connection.
    pub queue_pairs: Vec<(Qpn, Arc<Transport>, QpConnection)>,
}

/// Capacity of send queues and completion queues.
pub const DEPTH: u32 = 1_024;

impl Objects {
    /// Returns the attributes with which the scenario creates queue pairs of `transport`.
    pub fn attributes(
        (pd, cq): (rnic_engine::PdId, rnic_engine::CqId),
        transport: &Arc<Transport>,
        number: Option<Qpn>,
    ) -> QpAttributes {
        QpAttributes {
            pd,
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            max_send_wr: DEPTH,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            signal_all: true,
            service: Service::ReliableConnection,
            transport: Arc::clone(transport),
            number,
            nvme: None,
        }
    }
}

/// Counts of decisions that were compared and equal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Compared {
    /// Calls.
    pub calls: usize,
    /// Packets that the engine returned.
    pub sent: usize,
    /// Packets among them that were repeated.
    pub repeated: usize,
    /// Calls after which another queue pair sent than before.
    pub turns: usize,
    /// Packets that arrived out of order, or after a gap.
    pub disordered: usize,
    /// Packets that arrived with a congestion mark, and congestion notifications.
    pub congested: usize,
    /// Calls that processed timers.
    pub ticks: usize,
    /// Changes of the state of queue pairs: windows, rates, sequence numbers, counters.
    pub states: usize,
    /// Changes of the time at which the next timer expires.
    pub timers: usize,
}

/// The first decision that differs.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Number of the call.
    pub index: usize,
    /// The recorded call, its answer and the state after it.
    pub recorded: String,
    /// The same of the other engine.
    pub replayed: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call {} differs\n  recorded: {}\n  replayed: {}", self.index, self.recorded, self.replayed)
    }
}

/// Passes the calls of `recording` to `engine`, in which `objects` do not exist yet. The burst of queue pairs whose
/// rate is limited is that of the recorded engine if `as_recorded`, else that of the driver of `engine`.
///
/// # Errors
/// Returns the first difference.
///
/// # Panics
/// When the objects cannot be created.
pub fn replay(
    recording: &Recording,
    objects: &Objects,
    engine: &mut Engine,
    as_recorded: bool,
) -> Result<Compared, Box<Difference>> {
    if as_recorded {
        engine.sharing().set_burst(recording.burst);
    }
    engine.watch();
    let pd = engine.objects_mut().create_pd().expect("a protection domain is free");
    let cq = engine.objects_mut().create_cq(DEPTH).expect("the size is valid");
    let (addr, len, key, access) = objects.region;
    let region = MemoryRegion { pd, addr, len, local: addr, access };
    engine.objects_mut().register_as(key, region).expect("the key is free");
    for (number, transport, _) in &objects.queue_pairs {
        let attributes = Objects::attributes((pd, cq), transport, Some(*number));
        engine.create_qp(&attributes).expect("the number is free");
    }
    let (mut replayed, mut compared, mut last_sender) = (Recording::default(), Compared::default(), None);
    for (index, call) in recording.calls.iter().enumerate() {
        let what = repeat(engine, objects, call);
        replayed.add(engine, call.now, what);
        while engine.objects_mut().poll_cq_one(cq).is_some() {}
        let other = replayed.calls.last().expect("one has been added");
        let is_same_state = recording.states[call.state] == replayed.states[other.state];
        if call.what != other.what || call.next_timeout != other.next_timeout || !is_same_state {
            let text = |recording: &Recording, call: &Call| format!("{call:?} {:?}", recording.states[call.state]);
            let (recorded, replayed) = (text(recording, call), text(&replayed, other));
            return Err(Box::new(Difference { index, recorded, replayed }));
        }
        count(&mut compared, call, &mut last_sender);
        compared.timers += usize::from(index > 0 && recording.calls[index - 1].next_timeout != call.next_timeout);
    }
    compared.states = recording.states.len();
    Ok(compared)
}

fn count(compared: &mut Compared, call: &Call, last_sender: &mut Option<Qpn>) {
    compared.calls += 1;
    match &call.what {
        What::Transmit(Some(sent)) => {
            let (from, _, kind) = sent.summary();
            compared.sent += 1;
            compared.repeated += usize::from(kind.is_retransmission());
            if kind != TransmitKind::Ack {
                compared.turns += usize::from(last_sender.replace(from).is_some_and(|last| last != from));
            }
        }
        What::Receive(received, outcome) => {
            compared.congested += usize::from(received.tells_of_congestion());
            let is_disordered = matches!(outcome, RxOutcome::OutOfOrder | RxOutcome::Dropped(_));
            compared.disordered += usize::from(is_disordered);
        }
        What::Tick => compared.ticks += 1,
        _ => {}
    }
}

/// Makes the call once more; returns it with the answer of `engine`.
fn repeat(engine: &mut Engine, objects: &Objects, call: &Call) -> What {
    let now = call.now;
    match &call.what {
        What::ReadyToSend(qpn, timing) => {
            let (.., connection) = objects.queue_pairs.iter().find(|(number, ..)| number == qpn).expect("it exists");
            engine.modify_to_init(*qpn).expect("the queue pair is reset");
            engine.modify_to_rtr(*qpn, connection).expect("the attributes are valid");
            engine.modify_to_rts(now, *qpn, timing).expect("the attributes are valid");
            What::ReadyToSend(*qpn, *timing)
        }
        What::PostSend(qpn, request, _) => {
            let Request { wr_id, op, sges, flags } = &**request;
            let answer = engine.post_send(*qpn, &SendRequest { wr_id: *wr_id, op: *op, sges, flags: *flags });
            What::PostSend(*qpn, request.clone(), answer)
        }
        What::Receive(received, _) => {
            let arrival = match &**received {
                Received::Roce(format, packet, meta) => Arrival::Roce(*format, packet, *meta),
                Received::Falcon(packet, peer, label, congested, hops, csig) => {
                    let (peer, label, congested, hops, csig) = (*peer, *label, *congested, *hops, *csig);
                    Arrival::Falcon(FalconArrival { packet, peer, label, congested, hops, csig })
                }
            };
            What::Receive(received.clone(), engine.receive(now, arrival, &mut NoDma))
        }
        What::Transmit(_) => What::Transmit(engine.transmit(now).map(|departure| Box::new(sent(&departure)))),
        What::Tick => {
            engine.tick(now);
            What::Tick
        }
        What::Absence(length) => {
            engine.note_absence(now, *length);
            What::Absence(*length)
        }
        What::CaughtUp => {
            engine.note_caught_up();
            What::CaughtUp
        }
        What::PeerLimit(peer, packets) => {
            engine.set_peer_limit(*peer, *packets);
            What::PeerLimit(*peer, *packets)
        }
        What::RateLimit(qpn, source, limit) => {
            engine.set_rate_limit(now, *qpn, *source, *limit).expect("the rate is valid");
            What::RateLimit(*qpn, *source, *limit)
        }
        What::FalconBacklog(bytes) => {
            engine.set_falcon_backlog(*bytes);
            What::FalconBacklog(*bytes)
        }
    }
}
