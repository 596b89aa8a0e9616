//! Observation of an engine: the calls by which a driver drives it, and its answers.
//!
//! An observer sees everything from which an engine decides after its objects have been created, so that the same calls
//! passed to another engine with the same objects must be answered in the same way (`tests` of the repository: events
//! recorded on sockets decide the same in the fabric's engines, and the reverse).

use core::fmt::Debug;

use rnic_base::{Duration, Time};
use rnic_wire::Qpn;

use super::{Engine, build_next, process};
use crate::config::QpTiming;
use crate::error::{PostError, RxOutcome};
use crate::limiter::{LimitSource, RateLimit};
use crate::packet::{Arrival, Departure};
use crate::wr::{RecvRequest, SendRequest};
use crate::{Dma, PeerId};

/// A call of an engine, with its answer. Polls of completion queues and events are not included, as an engine does not
/// decide by them; neither are packets of queue pairs with classes ([`crate::Classes`]).
#[derive(Clone, Copy, Debug)]
pub enum DriverCall<'a> {
    /// [`Engine::modify_to_rts`], when it succeeds.
    ReadyToSend(Qpn, &'a QpTiming),
    /// [`Engine::post_send`].
    PostSend(Qpn, &'a SendRequest<'a>, Result<(), PostError>),
    /// [`Engine::post_recv`].
    PostRecv(Qpn, &'a RecvRequest<'a>, Result<(), PostError>),
    /// [`Engine::receive`].
    Receive(Arrival<'a>, RxOutcome),
    /// [`Engine::transmit`].
    Transmit(Option<Departure<'a>>),
    /// [`Engine::tick`].
    Tick,
    /// [`Engine::note_absence`].
    Absence(Duration),
    /// [`Engine::note_caught_up`].
    CaughtUp,
    /// [`Engine::set_peer_limit`].
    PeerLimit(PeerId, Option<u64>),
    /// [`Engine::set_rate_limit`], when it succeeds.
    RateLimit(Qpn, LimitSource, Option<RateLimit>),
    /// [`Engine::set_falcon_backlog`].
    FalconBacklog(u64),
}

/// A recorder of the calls of an engine.
pub trait Observer: Debug + Send + Sync {
    /// Records `call`, made at `now`; `engine` has the state after it. For a call without a time, `now` is the time of
    /// the last one that had one.
    fn note(&mut self, engine: &Engine, now: Time, call: &DriverCall<'_>);
}

/// Kind of the packet that the engine has built.
#[derive(Clone, Copy)]
enum Built {
    Roce,
    Falcon,
    Message,
}

/// Passes all further calls of `engine` to `observer`, in place of the present one.
pub fn observe(engine: &mut Engine, observer: Option<Box<dyn Observer>>) {
    engine.observer = observer;
}

/// Passes `call` to the observer.
#[cold]
#[inline(never)]
pub(super) fn note(engine: &mut Engine, call: &DriverCall<'_>) {
    if let Some(mut observer) = engine.observer.take() {
        observer.note(engine, engine.core.now, call);
        engine.observer = Some(observer);
    }
}

/// As [`Engine::receive`].
#[cold]
#[inline(never)]
pub(super) fn receive<D: Dma>(engine: &mut Engine, now: Time, arrival: Arrival<'_>, dma: &mut D) -> RxOutcome {
    let outcome = process(engine, now, arrival, dma);
    note(engine, &DriverCall::Receive(arrival, outcome));
    outcome
}

/// As [`Engine::transmit`].
#[cold]
#[inline(never)]
pub(super) fn transmit(engine: &mut Engine, now: Time) -> Option<Departure<'_>> {
    let built = build_next(engine, now).map(|departure| match departure {
        Departure::Roce(_) => Built::Roce,
        Departure::Falcon(_) => Built::Falcon,
        Departure::Message(_) => Built::Message,
    });
    if let Some(mut observer) = engine.observer.take() {
        observer.note(engine, now, &DriverCall::Transmit(built.and_then(|built| packet(engine, built))));
        engine.observer = Some(observer);
    }
    built.and_then(|built| packet(engine, built))
}

/// Returns the packet that has been built.
fn packet(engine: &Engine, built: Built) -> Option<Departure<'_>> {
    match built {
        Built::Roce => Some(Departure::Roce(&engine.core.out)),
        Built::Falcon => engine.falcon.as_deref().map(|nic| Departure::Falcon(&nic.out)),
        Built::Message => engine.core.exchange.as_deref().map(|exchange| Departure::Message(exchange.out())),
    }
}
