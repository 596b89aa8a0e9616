//! An adaptive engine that takes its time, as its connections see it: numbers, growth, who leaves early (F-1, F-40).

use rnic_base::{BitRate, Duration, Time};
use rnic_fae::{Erased, Event, FaeError, Filter, FlowGate, Form, Latency, ProcessorConfig};
use rnic_falcon::adaptive::{AdaptiveEngine, Location, Placement};
use rnic_policy::control::report::{Carried, InForce, Ticks};
use rnic_policy::kit::report;
use rnic_policy::{Configured, FlowActions, Params};

const LOCATIONS: [Location; 2] = [Location::Behind(Latency::FALCON), Location::Thread(rnic_fae::thread::spawn)];
const FORMS: [Form; 3] = [Form::Table, Form::Stateless, Form::PREFETCHING];

/// Events that can wait, and connections that ask at a time.
const QUEUE: usize = 1_000;

fn engine(form: Form, location: Location) -> AdaptiveEngine {
    let policy = rnic_transports::control::find("swift").expect("a registered control policy");
    let program = Erased(Configured { policy, params: Params::defaults(policy.params) });
    let config = ProcessorConfig { form, connections: 0, line_rate: BitRate::gbps(200), mtu: 4_096 };
    let placement = Placement { location, queue: QUEUE, filter: Filter::open(QUEUE) };
    AdaptiveEngine::new(program, &config, &placement).expect("Swift runs everywhere")
}

/// The first event of the connection with `number`, whose flow has the windows of `first`.
fn event(number: u32, now: Time, first: &FlowActions) -> Event {
    let in_force = InForce {
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

/// Answers that come until none is owed, and for whom; never more than a driver would wait.
fn drain(engine: &mut AdaptiveEngine, now: &mut Time) -> Vec<u32> {
    let mut names = Vec::new();
    let patience = *now + Duration::from_secs(100);
    while let Some(at) = engine.next_at() {
        assert!(at < patience, "answers are owed for ever");
        *now = at.max(*now);
        names.extend(std::iter::from_fn(|| engine.poll(*now)).map(|(name, _)| name));
        std::thread::yield_now();
    }
    names
}

/// Many more connections than there is room for at first: the table grows while events are under way, and each finds
/// its own state.
#[test]
fn f40_an_engine_that_takes_its_time_grows_with_its_connections() {
    for (location, form) in LOCATIONS.into_iter().flat_map(|location| FORMS.map(|form| (location, form))) {
        let mut engine = engine(form, location);
        let (first, mut now) = (*engine.first(), Time::from_us(1));
        let mut told = Vec::new();
        for name in 0..QUEUE as u32 {
            let number = engine.enter(name).expect("24 bits are not at an end");
            now += Duration::from_ns(100);
            engine.offer(now, &mut FlowGate::default(), &event(number, now, &first)).expect("all can wait");
            told.extend(std::iter::from_fn(|| engine.poll(now)).map(|(name, _)| name));
        }
        told.extend(drain(&mut engine, &mut now));
        assert!(told.into_iter().eq(0..QUEUE as u32), "{form:?}, {location:?}: each is answered, in their order");
    }
}

/// Who is gone hears nothing, whoever comes next has another number until the answer is there, and then that one.
#[test]
fn f40_a_number_rests_while_its_event_is_under_way() {
    for location in LOCATIONS {
        let mut engine = engine(Form::Table, location);
        let (first, mut now) = (*engine.first(), Time::from_us(1));
        let number = engine.enter(1).expect("there is room");
        engine.offer(now, &mut FlowGate::default(), &event(number, now, &first)).expect("nothing waits");
        engine.leave(number);
        assert!(!engine.is_idle() && engine.next_at().is_some(), "an answer is owed");
        let other = engine.enter(2).expect("there is room");
        assert_ne!(other, number);
        engine.leave(other);
        assert_eq!(drain(&mut engine, &mut now), [], "nobody asked");
        assert!(engine.is_idle() && engine.next_at().is_none());
        assert_eq!(engine.enter(3), Ok(number), "it is free again");
    }
}

/// However much is under way: an engine that is let go of ends.
#[test]
fn an_engine_ends_with_events_under_way() {
    for location in LOCATIONS {
        let mut engine = engine(Form::Stateless, location);
        let (first, now) = (*engine.first(), Time::from_us(1));
        for name in 0..QUEUE as u32 {
            let number = engine.enter(name).expect("there is room");
            engine.offer(now, &mut FlowGate::default(), &event(number, now, &first)).expect("all can wait");
        }
    }
}

#[test]
fn a_system_that_gives_no_thread_is_told_of() {
    let location = Location::Thread(|_| Err(std::io::Error::from(std::io::ErrorKind::WouldBlock)));
    let policy = rnic_transports::control::find("swift").expect("a registered control policy");
    let program = Erased(Configured { policy, params: Params::defaults(policy.params) });
    let config = ProcessorConfig { form: Form::Table, connections: 0, line_rate: BitRate::gbps(200), mtu: 4_096 };
    let placement = Placement { location, queue: 64, filter: Filter::open(64) };
    assert_eq!(AdaptiveEngine::new(program, &config, &placement).err(), Some(FaeError::NoThread));
}
