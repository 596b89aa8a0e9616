//! F-40 and F-1: decisions are the same wherever the engine runs and its state is stored, and another program needs
//! no other datapath.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it waits for the thread of the adaptive engine"
)]

mod common;

use bytemuck::{Pod, Zeroable};
use common::{Datapath, config, swift};
use rnic_base::{Duration, Time};
use rnic_fae::{
    Delayed, ErasedPolicy, Event, EventRecord, FaeError, Filter, FlowAdmission, Latency, Port, Processor, Program,
    Response, StateLocation, Typed, thread,
};
use rnic_policy::Configured;
use rnic_policy::control::report::{Carried, FlowReport, ReportKind, Ticks};
use rnic_policy::control::{ControlInterest, Cwnd};
use rnic_policy::kit::report;
use rnic_policy::{Control, ControlActions, ControlEvent, ControlPolicy, ControlView, FlowActions};
use rnic_policy::{ParamSpec, Params, ReportControl};
use rnic_transports::control::fixed_window::FixedWindow;
use rnic_transports::control::swift::Swift;

const CONNECTIONS: u32 = 50;
const EVENTS: usize = 20_000;
const FORMS: [StateLocation; 4] = [
    StateLocation::Stateless,
    StateLocation::Table,
    StateLocation::PREFETCHING,
    StateLocation::Prefetching { ahead: rnic_fae::processor::PREFETCH_DISTANCE_MAX },
];

/// The part of a response that is compared: all but the state, which travels only if the engine is stateless.
type Decision = (u32, u8, u8, FlowActions);

fn decision(response: &Response) -> Decision {
    (response.connection, response.flow, response.queue, response.actions)
}

/// Runs events one after the other, each answered before the next. Returns the decisions and the events.
fn inline<P: Program>(program: P, form: StateLocation, flows: u32) -> (Vec<Decision>, Vec<Event>) {
    let mut processor = Processor::new(program, &config(form, CONNECTIONS)).expect("it is valid");
    let mut datapath = Datapath::new(7, CONNECTIONS, flows, processor.first());
    let step = |_| {
        let event = datapath.event();
        let response = processor.handle(&EventRecord::pack(&event, false)).unpack();
        datapath.apply(&response);
        (decision(&response), event)
    };
    (0..EVENTS).map(step).unzip()
}

#[test]
fn f40_decisions_are_the_same_in_every_state_location() {
    let (decisions, events) = inline(swift(), StateLocation::Table, 1);
    for form in FORMS {
        let (others, asked) = inline(swift(), form, 1);
        assert_eq!(others, decisions, "{form:?}");
        // Decisions take effect in the datapath, so equal decisions lead to equal events, except for the state that
        // travels with them.
        let bare = |event: &Event| Event { carried: Carried::default(), ..*event };
        assert!(asked.iter().map(bare).eq(events.iter().map(bare)), "{form:?}");
    }
    let (typed, _) = inline(Typed::<Swift>::new(Params::defaults(Swift::PARAMS)), StateLocation::Table, 1);
    assert_eq!(typed, decisions, "a typed program decides differently");
    assert!(decisions.iter().any(|(.., actions)| actions.fcwnd < Cwnd::packets(4)), "no window was reduced");
}

/// Events of all kinds, including values that a record truncates or rounds: responses are the same with a record and
/// without.
#[test]
fn f40_decisions_are_the_same_without_records() {
    for flows in [1, 4] {
        let (_, events) = inline(swift(), StateLocation::Table, flows);
        for form in FORMS {
            let make = || Processor::new(swift(), &config(form, CONNECTIONS)).expect("it is valid");
            let (mut with, mut without) = (make(), make());
            for (index, event) in events.iter().enumerate() {
                let mut event = *event;
                let odd = (index as u16).wrapping_mul(40_503);
                let report = &mut event.report;
                match index % 7 {
                    0 => report.in_force.fcwnd = Cwnd::from_fixed(u64::from(odd) * 4_999),
                    1 => (report.in_force.ncwnd, report.ecn) = (odd, odd),
                    2 => (report.acked, report.hops, report.rx_level) = (odd, odd as u8, odd as u8),
                    3 => (report.occupancy, report.label, event.queue) = (odd as u8, u32::from(odd) << 8, 7),
                    4 => report.kind = ReportKind::Retransmitted { count: odd as u8, early: odd & 256 != 0 },
                    5 => report.kind = ReportKind::Nacked { code: odd as u8 % 9 },
                    // The number now belongs to another connection.
                    _ => event.first |= index % 5 == 0,
                }
                let recorded = with.handle(&EventRecord::pack(&event, false)).unpack();
                let answer = without.respond(Time::from_ps(u64::from(event.report.t4.get()) << 17), &event);
                assert_eq!(answer, recorded, "{form:?}, {flows} flows: {event:?}");
            }
        }
    }
}

#[test]
fn f40_decisions_are_the_same_in_batches_with_prefetch() {
    for flows in [1, 4] {
        let (decisions, events) = inline(swift(), StateLocation::Table, flows);
        let records: Vec<EventRecord> = events.iter().map(|event| EventRecord::pack(event, false)).collect();
        for form in [StateLocation::Table, StateLocation::PREFETCHING, StateLocation::Prefetching { ahead: 1 }] {
            let mut processor = Processor::new(swift(), &config(form, CONNECTIONS)).expect("it is valid");
            let mut made = Vec::new();
            for batch in records.chunks(37) {
                processor.handle_all(batch, |record| made.push(decision(&record.unpack())));
            }
            assert_eq!(made, decisions, "{form:?}, {flows} flows");
        }
    }
}

#[test]
fn f40_decisions_are_the_same_behind_a_latency_and_on_a_thread() {
    for flows in [1, 4] {
        let (decisions, events) = inline(swift(), StateLocation::Table, flows);
        let make = || Processor::new(swift(), &config(StateLocation::PREFETCHING, CONNECTIONS)).expect("it is valid");

        let mut delayed = Delayed::new(make(), Latency::FALCON, 64, Filter::open(64));
        let (mut made, mut now) = (Vec::new(), Time::ZERO);
        for event in &events {
            now += Duration::from_ns(100);
            delayed.offer(now, &mut FlowAdmission::default(), event).expect("the engine keeps up");
            while let Some(record) = delayed.poll(now) {
                made.push(decision(&record.unpack()));
            }
        }
        while let Some(at) = delayed.next_at() {
            made.push(decision(&delayed.poll(at).expect("the response is due").unpack()));
        }
        assert_eq!(made, decisions, "behind a latency, {flows} flows");

        // Rings for a tenth of these events: both become full and empty, with few context switches even on a busy
        // machine.
        let some = EVENTS / 5;
        let mut port = Port::start(make(), some / 10, Filter::open(some / 10), thread::spawn).expect("a thread starts");
        let mut made = Vec::new();
        for event in &events[..some] {
            while port.offer(&mut FlowAdmission::default(), event).is_err() {
                made.extend(port.poll().map(|record| decision(&record.unpack())));
            }
        }
        while made.len() < some {
            made.extend(port.poll().map(|record| decision(&record.unpack())));
        }
        assert_eq!(made, decisions[..some], "on a thread, {flows} flows");
        assert!(port.poll().is_none());
    }
}

#[test]
fn a_thread_that_sleeps_wakes_for_an_event_and_ends_with_its_port() {
    let processor = Processor::new(swift(), &config(StateLocation::Table, 1)).expect("it is valid");
    let mut datapath = Datapath::new(3, 1, 1, processor.first());
    let mut port = Port::start(processor, 4, Filter::open(4), thread::spawn).expect("a thread starts");
    let mut gate = FlowAdmission::default();
    for _ in 0..20 {
        std::thread::park_timeout(std::time::Duration::from_millis(3));
        port.offer(&mut gate, &datapath.event()).expect("no event is outstanding");
        let response = loop {
            if let Some(record) = port.poll() {
                break record.unpack();
            }
            std::thread::yield_now();
        };
        gate.note_response();
        datapath.apply(&response);
    }
}

/// 234 ns of interface and 66 ns of work: an event alone is answered after 300 ns, each further one 66 ns after the
/// one before.
#[test]
fn a_latency_includes_the_interface_and_the_work_of_earlier_events() {
    let processor = Processor::new(swift(), &config(StateLocation::Table, CONNECTIONS)).expect("it is valid");
    let mut datapath = Datapath::new(5, CONNECTIONS, 1, processor.first());
    let mut delayed = Delayed::new(processor, Latency::FALCON, 16, Filter::open(16));
    let at = Time::from_us(5);
    for _ in 0..4 {
        delayed.offer(at, &mut FlowAdmission::default(), &datapath.event()).expect("the queue has a free slot");
    }
    assert_eq!(delayed.waiting(), 3, "one event is being processed");
    let mut arrivals = Vec::new();
    while let Some(next) = delayed.next_at() {
        assert!(delayed.poll(next - Duration::from_ps(1)).is_none(), "the response arrived too early");
        assert!(delayed.poll(next).is_some());
        arrivals.push(next.since(at).as_ns());
    }
    assert_eq!(arrivals, [300, 366, 432, 498]);
    let slow = Latency { interface: Duration::from_us(32), ..Latency::FALCON };
    let processor = Processor::new(swift(), &config(StateLocation::Table, CONNECTIONS)).expect("it is valid");
    let mut delayed = Delayed::new(processor, slow, 16, Filter::open(16));
    delayed.offer(at, &mut FlowAdmission::default(), &datapath.event()).expect("the queue has a free slot");
    assert_eq!(delayed.next_at().map(|next| next.since(at)), Some(Duration::from_ns(32_066)), "the latency of F-R20");
}

#[test]
fn the_first_event_of_a_connection_starts_from_the_initial_state() {
    let run = |form, used: bool| {
        let mut processor = Processor::new(swift(), &config(form, 1)).expect("it is valid");
        let mut datapath = Datapath::new(9, 1, 1, processor.first());
        let fresh = datapath.event();
        assert!(fresh.first);
        if used {
            for _ in 0..100 {
                let event = datapath.event();
                let record = processor.handle(&EventRecord::pack(&event, false));
                datapath.apply(&record.unpack());
            }
        }
        processor.handle(&EventRecord::pack(&fresh, false)).unpack().actions
    };
    for form in [StateLocation::Table, StateLocation::Stateless] {
        assert_eq!(run(form, true), run(form, false), "{form:?}");
    }
}

/// A program that returns the time: the low 24 bits as a timeout, the other bits as a window.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Clock(u64);

impl Control for Clock {
    const NAME: &'static str = "clock";
    const SUMMARY: &'static str = "returns the time of the event";
    const PARAMS: &'static [ParamSpec] = &[];

    fn start(_: &Params, view: &ControlView) -> (Self, ControlActions) {
        (Self(0), FixedWindow::start(&Params::defaults(FixedWindow::PARAMS), view).1)
    }

    fn interest(_: &Params) -> ControlInterest {
        ControlInterest { reports: true, ..ControlInterest::default() }
    }

    fn on_event(&mut self, _: &ControlEvent, view: &ControlView, params: &Params) -> ControlActions {
        let (first, count) = (Self::start(params, view).1, Ticks::count(view.now));
        let said = |flow| FlowActions { rto: Ticks::new(count as u32), ncwnd: (count >> Ticks::BITS) as u16, ..flow };
        ControlActions { flow: first.flow.map(said), ..first }
    }
}

impl ReportControl for Clock {}

/// Returns the time, in ticks, that an engine gives its program for events that happen at `times`; `ask` hands an
/// event to the engine.
fn told_at(times: &[Time], mut ask: impl FnMut(&mut Processor<Typed<Clock>>, Time, &Event) -> Response) -> Vec<u64> {
    let program = Typed::<Clock>::new(Params::defaults(&[]));
    let mut processor = Processor::new(program, &config(StateLocation::Table, 1)).expect("it is valid");
    let in_force = processor.first().in_force();
    let mut tell = |at: &Time| {
        let report = report(0, Ticks::at(*at), [100, 0, 100], in_force);
        let event = Event { connection: 0, first: false, queue: 0, report, carried: Carried::default() };
        let actions = ask(&mut processor, *at, &event).actions;
        u64::from(actions.rto.get()) | u64::from(actions.ncwnd) << Ticks::BITS
    };
    times.iter().map(&mut tell).collect()
}

/// Holds whether the first event falls early or late in the 24-bit range, and however long a pause between events is.
#[test]
fn a_program_gets_the_time_at_which_its_event_occurred() {
    let times = [1_500_000, 1_500_010, 2_900_000, 2_900_001, 9_000_000, 60_000_000, 60_000_001].map(Time::from_us);
    let ticks = times.map(Ticks::count);
    assert_eq!(told_at(&times, |engine, at, event| engine.respond(at, event)), ticks);
    let recorded = |event: &Event| EventRecord::pack(event, false);
    let waited = |engine: &mut Processor<_>, at, event: &Event| engine.handle_at(at, &recorded(event)).unpack();
    assert_eq!(told_at(&times, waited), ticks);
    let late = |engine: &mut Processor<_>, at, event: &Event| {
        engine.handle_at(at + Duration::from_ms(700), &recorded(event)).unpack()
    };
    assert_eq!(told_at(&times, late), ticks, "the time of the event, not of its processing");
    // Without the caller's clock, events that are frequent enough suffice to derive the time; longer pauses lose
    // whole wraps.
    let alone = |engine: &mut Processor<_>, _, event: &Event| engine.handle(&recorded(event)).unpack();
    assert_eq!(told_at(&times[..4], alone), ticks[..4]);
    let long = told_at(&times[3..5], alone);
    assert_eq!((ticks[4] - ticks[3]) - (long[1] - (ticks[3] & 0xff_ffff)), 2 << Ticks::BITS, "6.1 s appear as 1.7 s");
    // An event that is slightly older than the one before neither sets the time back nor counts as a wrap.
    let disorder = [1_500_000, 1_400_000, 1_500_001].map(Time::from_us);
    let (first, last) = (Ticks::count(disorder[0]), Ticks::count(disorder[2]));
    assert_eq!(told_at(&disorder, alone), [first, first, last]);
    assert_eq!(told_at(&disorder, |engine, at, event| engine.respond(at, event)), [first, first, last]);
}

/// Two connections of one engine, one of them with a queue on its path: its shares fall together with its window. The
/// decisions for the other are the same as without the first.
#[test]
fn f36_congestion_of_one_connection_lowers_only_its_own_shares() {
    const CALM: u32 = 0;
    let run = |form, delays: &[u32]| {
        let mut processor = Processor::new(swift(), &config(form, 2)).expect("it is valid");
        let first = *processor.first();
        let mut contexts = [(Carried::default(), first, true); 2];
        let mut calm = Vec::new();
        for turn in 0..200 {
            for (connection, delay) in (0..).zip(delays.iter().copied()) {
                let (carried, in_force, is_first) = contexts[connection as usize];
                let told = report(0, Ticks::new(1_000 + turn * 1_000), [delay, 0, delay], in_force.in_force());
                let report = FlowReport { acked: 4, hops: 3, ..told };
                let event = Event { connection, first: is_first, queue: 0, report, carried };
                let response = processor.handle(&EventRecord::pack(&event, false)).unpack();
                contexts[connection as usize] = (response.carried, response.actions, false);
                if connection == CALM {
                    calm.push(response.actions);
                }
            }
        }
        (calm, contexts.map(|(_, actions, _)| actions))
    };
    for form in FORMS {
        let (alone, _) = run(form, &[50]);
        let (beside, [calm, congested]) = run(form, &[50, 2_000]);
        assert_eq!(beside, alone, "{form:?}: the other connection changed its decisions");
        assert!(congested.fcwnd < Cwnd::ONE && calm.fcwnd > Cwnd::packets(8), "{form:?}: {calm:?}, {congested:?}");
        // Smaller shares have larger codes.
        let shares = |of: &FlowActions| [of.alpha_requests.get(), of.alpha_responses.get()];
        assert!(shares(&congested).iter().zip(shares(&calm)).all(|(code, other)| *code > other + 2), "{form:?}");
    }
}

/// Another program for the same datapath: a window of 16 packets.
fn fixed() -> ErasedPolicy {
    let mut params = Params::defaults(FixedWindow::PARAMS);
    assert_eq!(params.set(FixedWindow::PARAMS, "window", "16"), Ok(true));
    ErasedPolicy(Configured { policy: ControlPolicy::of::<FixedWindow>(), params })
}

#[test]
fn f1_another_program_runs_on_the_same_datapath() {
    let (decisions, _) = inline(fixed(), StateLocation::PREFETCHING, 1);
    assert!(decisions.iter().all(|(.., actions)| actions.fcwnd == Cwnd::packets(16)));
}

/// A program that uses its full block of state, and reads no reports.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Large([u64; 8]);

impl Control for Large {
    const NAME: &'static str = "large";
    const SUMMARY: &'static str = "uses its full block of state";
    const PARAMS: &'static [ParamSpec] = &[];

    fn start(_: &Params, _: &ControlView) -> (Self, ControlActions) {
        (Self::zeroed(), ControlActions::default())
    }

    fn interest(_: &Params) -> ControlInterest {
        ControlInterest { acked: true, ..ControlInterest::default() }
    }

    fn on_event(&mut self, _: &ControlEvent, _: &ControlView, _: &Params) -> ControlActions {
        ControlActions::default()
    }
}

#[test]
fn invalid_engine_configurations_are_refused() {
    let refusal = |form| Processor::new(fixed(), &config(form, 1)).err();
    assert_eq!(refusal(StateLocation::Stateless), Some(FaeError::NotStateless), "its state cannot be carried");
    assert_eq!(refusal(StateLocation::Prefetching { ahead: 65 }), Some(FaeError::PrefetchTooFar(65)));
    let many = config(StateLocation::Stateless, (1 << 24) + 1);
    assert_eq!(Processor::new(swift(), &many).err(), Some(FaeError::TooManyConnections((1 << 24) + 1)));
    let policy = rnic_transports::control::find("dcqcn").expect("the policy is registered");
    let told = ErasedPolicy(Configured { policy, params: Params::defaults(policy.params) });
    assert_eq!(Processor::new(told, &config(StateLocation::Table, 1)).err(), None, "events are reported to it");
    let policy = ControlPolicy::of::<Large>();
    let large = ErasedPolicy(Configured { policy, params: Params::default() });
    assert_eq!(
        Processor::new(large, &config(StateLocation::Table, 1)).err(),
        Some(FaeError::NoReports),
        "no space for the adapter"
    );
}
