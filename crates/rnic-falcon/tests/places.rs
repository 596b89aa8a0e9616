//! An adaptive engine that answers with a delay, as its connections see it: connection numbers, growth, connections
//! that leave early (F-1, F-40).
#![expect(clippy::disallowed_methods, reason = "it waits for the thread of the adaptive engine")]

mod two_ends;

use rnic_base::{BitRate, Duration, Time};
use rnic_fae::{ErasedPolicy, Event, FaeError, Filter, FlowAdmission, Latency, ProcessorConfig, StateLocation};
use rnic_falcon::adaptive::{AdaptiveEngine, Location, Placement};
use rnic_policy::FlowActions;
use rnic_policy::control::report::{Carried, CurrentSettings, Ticks};
use rnic_policy::kit::report;
use two_ends::driver;

const LOCATIONS: [Location; 2] = [Location::Behind(Latency::FALCON), Location::Thread(rnic_fae::thread::spawn)];
const FORMS: [StateLocation; 3] = [StateLocation::Table, StateLocation::Stateless, StateLocation::PREFETCHING];

/// Capacity of the engine's queue, and number of connections that use it at the same time.
const QUEUE: usize = 1_000;

fn engine(form: StateLocation, location: Location) -> AdaptiveEngine {
    driver::engine(driver::control("swift", &[]), form, location, QUEUE)
}

/// The first event of the connection with `number`, whose flow has the windows of `first`.
fn event(number: u32, now: Time, first: &FlowActions) -> Event {
    let in_force = CurrentSettings {
        fcwnd: first.fcwnd,
        ncwnd: first.ncwnd,
        gap: first.gap,
        rate: first.rate,
        rto: Ticks::of(Duration::from_ms(1)),
        ack_rate: first.ack_rate,
    };
    let report = report(0, Ticks::at(now), [100, 10, 100], in_force);
    Event { connection: number, first: true, queue: 0, report, carried: Carried::default() }
}

/// Polls until no response is outstanding, for as long as a driver would wait at most. Returns the connections that
/// were answered.
fn drain(engine: &mut AdaptiveEngine, now: &mut Time) -> Vec<u32> {
    let mut names = Vec::new();
    let patience = *now + Duration::from_secs(100);
    while let Some(at) = engine.next_at() {
        assert!(at < patience, "responses remain outstanding");
        *now = at.max(*now);
        names.extend(std::iter::from_fn(|| engine.poll(*now)).map(|(name, _)| name));
        std::thread::yield_now();
    }
    names
}

/// Many more connections than the table has room for at first: it grows while events are in progress, and each event
/// still finds its connection's state.
#[test]
fn f40_a_delayed_engine_grows_with_its_connections() {
    for (location, form) in LOCATIONS.into_iter().flat_map(|location| FORMS.map(|form| (location, form))) {
        let mut engine = engine(form, location);
        let (first, mut now) = (*engine.first(), Time::from_us(1));
        let mut told = Vec::new();
        for name in 0..QUEUE as u32 {
            let number = engine.enter(name).expect("a connection number is free");
            now += Duration::from_ns(100);
            engine.offer(now, &mut FlowAdmission::default(), &event(number, now, &first)).expect("a slot is free");
            told.extend(std::iter::from_fn(|| engine.poll(now)).map(|(name, _)| name));
        }
        told.extend(drain(&mut engine, &mut now));
        assert!(told.into_iter().eq(0..QUEUE as u32), "{form:?}, {location:?}: not one response each, in order");
    }
}

/// A connection that has left gets no response. Its number is not reused until the response to its event has arrived;
/// the next connection after that gets it.
#[test]
fn f40_a_connection_number_is_not_reused_while_its_event_is_in_progress() {
    for location in LOCATIONS {
        let mut engine = engine(StateLocation::Table, location);
        let (first, mut now) = (*engine.first(), Time::from_us(1));
        let number = engine.enter(1).expect("a connection number is free");
        engine.offer(now, &mut FlowAdmission::default(), &event(number, now, &first)).expect("the queue is empty");
        engine.deregister(number);
        assert!(!engine.is_idle() && engine.next_at().is_some(), "a response is outstanding");
        let other = engine.enter(2).expect("a connection number is free");
        assert_ne!(other, number);
        engine.deregister(other);
        assert_eq!(drain(&mut engine, &mut now), [], "a response for a removed connection");
        assert!(engine.is_idle() && engine.next_at().is_none());
        assert_eq!(engine.enter(3), Ok(number), "the number is free again");
    }
}

/// Checks that dropping an engine terminates however many events are in progress.
#[test]
fn an_engine_with_events_in_progress_can_be_dropped() {
    for location in LOCATIONS {
        let mut engine = engine(StateLocation::Stateless, location);
        let (first, now) = (*engine.first(), Time::from_us(1));
        for name in 0..QUEUE as u32 {
            let number = engine.enter(name).expect("a connection number is free");
            engine.offer(now, &mut FlowAdmission::default(), &event(number, now, &first)).expect("a slot is free");
        }
    }
}

#[test]
fn an_unavailable_thread_is_reported() {
    let location = Location::Thread(|_| Err(std::io::Error::from(std::io::ErrorKind::WouldBlock)));
    let program = ErasedPolicy(driver::control("swift", &[]));
    let config =
        ProcessorConfig { form: StateLocation::Table, connections: 0, line_rate: BitRate::gbps(200), mtu: 4_096 };
    let placement = Placement { location, queue: 64, filter: Filter::open(64) };
    assert_eq!(AdaptiveEngine::new(program, &config, &placement).err(), Some(FaeError::NoThread));
}
