//! F-40 and F-1: the same decisions wherever the engine runs and its state lies, and another program without another
//! datapath.

mod common;

use bytemuck::{Pod, Zeroable};
use common::{Datapath, config, swift};
use rnic_base::{Duration, Time};
use rnic_fae::{
    Delayed, Erased, Event, EventRecord, FaeError, Filter, FlowGate, Form, Latency, Port, Processor, Program, Response,
    Typed, thread,
};
use rnic_policy::control::report::{Carried, FlowReport, ReportKind, Ticks};
use rnic_policy::control::{ControlInterest, Cwnd};
use rnic_policy::kit::report;
use rnic_policy::profile::Configured;
use rnic_policy::{Control, ControlActions, ControlEvent, ControlPolicy, ControlView, FlowActions};
use rnic_policy::{ParamSpec, Params, ReportControl};
use rnic_transports::control::fixed_window::FixedWindow;
use rnic_transports::control::swift::Swift;

const CONNECTIONS: u32 = 50;
const EVENTS: usize = 20_000;
const FORMS: [Form; 4] =
    [Form::Stateless, Form::Table, Form::PREFETCHING, Form::Prefetching { ahead: rnic_fae::processor::AHEAD_MAX }];

/// What matters of a response: all but the state, which only travels where nothing is kept.
type Decision = (u32, u8, u8, FlowActions);

fn decision(response: &Response) -> Decision {
    (response.connection, response.flow, response.queue, response.actions)
}

/// Events one after the other, each answered before the next; answers what was decided, and what was asked.
fn inline<P: Program>(program: P, form: Form, flows: u32) -> (Vec<Decision>, Vec<Event>) {
    let mut processor = Processor::new(program, &config(form, CONNECTIONS)).expect("legal");
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
fn f40_every_form_decides_the_same() {
    let (decisions, events) = inline(swift(), Form::Table, 1);
    for form in FORMS {
        let (others, asked) = inline(swift(), form, 1);
        assert_eq!(others, decisions, "{form:?}");
        // What is in force is what was decided, so the datapath asked the same, but for what travels.
        let bare = |event: &Event| Event { carried: Carried::default(), ..*event };
        assert!(asked.iter().map(bare).eq(events.iter().map(bare)), "{form:?}");
    }
    let (typed, _) = inline(Typed::<Swift>::new(Params::defaults(Swift::PARAMS)), Form::Table, 1);
    assert_eq!(typed, decisions, "by type as by name");
    assert!(decisions.iter().any(|(.., actions)| actions.fcwnd < Cwnd::packets(4)), "and it does decide");
}

/// Events of all kinds whose values a record cuts off or rounds, too: with a record and without, the answers agree.
#[test]
fn f40_without_a_record_it_decides_the_same() {
    for flows in [1, 4] {
        let (_, events) = inline(swift(), Form::Table, flows);
        for form in FORMS {
            let make = || Processor::new(swift(), &config(form, CONNECTIONS)).expect("legal");
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
                    // The number is another connection's now.
                    _ => event.first |= index % 5 == 0,
                }
                let recorded = with.handle(&EventRecord::pack(&event, false)).unpack();
                let answer = without.answer(Time::from_ps(u64::from(event.report.t4.get()) << 17), &event);
                assert_eq!(answer, recorded, "{form:?}, {flows} flows: {event:?}");
            }
        }
    }
}

#[test]
fn f40_batches_with_prefetch_decide_as_one_by_one() {
    for flows in [1, 4] {
        let (decisions, events) = inline(swift(), Form::Table, flows);
        let records: Vec<EventRecord> = events.iter().map(|event| EventRecord::pack(event, false)).collect();
        for form in [Form::Table, Form::PREFETCHING, Form::Prefetching { ahead: 1 }] {
            let mut processor = Processor::new(swift(), &config(form, CONNECTIONS)).expect("legal");
            let mut made = Vec::new();
            for batch in records.chunks(37) {
                processor.handle_all(batch, |record| made.push(decision(&record.unpack())));
            }
            assert_eq!(made, decisions, "{form:?}, {flows} flows");
        }
    }
}

#[test]
fn f40_behind_a_latency_and_on_a_thread_it_decides_the_same() {
    for flows in [1, 4] {
        let (decisions, events) = inline(swift(), Form::Table, flows);
        let make = || Processor::new(swift(), &config(Form::PREFETCHING, CONNECTIONS)).expect("legal");

        let mut delayed = Delayed::new(make(), Latency::FALCON, 64, Filter::open(64));
        let (mut made, mut now) = (Vec::new(), Time::ZERO);
        for event in &events {
            now += Duration::from_ns(100);
            delayed.offer(now, &mut FlowGate::default(), event).expect("the engine keeps up");
            while let Some(record) = delayed.poll(now) {
                made.push(decision(&record.unpack()));
            }
        }
        while let Some(at) = delayed.next_at() {
            made.push(decision(&delayed.poll(at).expect("it said when").unpack()));
        }
        assert_eq!(made, decisions, "behind a latency, {flows} flows");

        // Rings of a tenth: both ends fill and run empty, and a busy machine takes turns a few times only.
        let some = EVENTS / 5;
        let mut port = Port::start(make(), some / 10, Filter::open(some / 10), thread::spawn).expect("a thread");
        let mut made = Vec::new();
        for event in &events[..some] {
            while port.offer(&mut FlowGate::default(), event).is_err() {
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
    let processor = Processor::new(swift(), &config(Form::Table, 1)).expect("legal");
    let mut datapath = Datapath::new(3, 1, 1, processor.first());
    let mut port = Port::start(processor, 4, Filter::open(4), thread::spawn).expect("a thread");
    let mut gate = FlowGate::default();
    for _ in 0..20 {
        std::thread::park_timeout(std::time::Duration::from_millis(3));
        port.offer(&mut gate, &datapath.event()).expect("nothing waits");
        let response = loop {
            if let Some(record) = port.poll() {
                break record.unpack();
            }
            std::thread::yield_now();
        };
        gate.answered();
        datapath.apply(&response);
    }
}

/// 234 ns of interface and 66 ns of work: alone after 300 ns, behind others 66 ns after them.
#[test]
fn a_latency_is_the_interface_and_the_work_of_those_before() {
    let processor = Processor::new(swift(), &config(Form::Table, CONNECTIONS)).expect("legal");
    let mut datapath = Datapath::new(5, CONNECTIONS, 1, processor.first());
    let mut delayed = Delayed::new(processor, Latency::FALCON, 16, Filter::open(16));
    let at = Time::from_us(5);
    for _ in 0..4 {
        delayed.offer(at, &mut FlowGate::default(), &datapath.event()).expect("there is room");
    }
    assert_eq!(delayed.waiting(), 3, "one is being worked on");
    let mut arrivals = Vec::new();
    while let Some(next) = delayed.next_at() {
        assert!(delayed.poll(next - Duration::from_ps(1)).is_none(), "not before");
        assert!(delayed.poll(next).is_some());
        arrivals.push(next.since(at).as_ns());
    }
    assert_eq!(arrivals, [300, 366, 432, 498]);
    let slow = Latency { interface: Duration::from_us(32), ..Latency::FALCON };
    let processor = Processor::new(swift(), &config(Form::Table, CONNECTIONS)).expect("legal");
    let mut delayed = Delayed::new(processor, slow, 16, Filter::open(16));
    delayed.offer(at, &mut FlowGate::default(), &datapath.event()).expect("there is room");
    assert_eq!(delayed.next_at().map(|next| next.since(at)), Some(Duration::from_ns(32_066)), "F-R20 adds to it");
}

#[test]
fn the_first_event_of_a_connection_finds_nothing_of_the_one_before() {
    let run = |form, used: bool| {
        let mut processor = Processor::new(swift(), &config(form, 1)).expect("legal");
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
    for form in [Form::Table, Form::Stateless] {
        assert_eq!(run(form, true), run(form, false), "{form:?}");
    }
}

/// Answers what time it is: the low 24 bits as a timeout, the others as a window.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Clock(u64);

impl Control for Clock {
    const NAME: &'static str = "clock";
    const SUMMARY: &'static str = "says what time it is";
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

/// What a program is told of the time, in ticks, by an engine to which `ask` hands events that happen so.
fn told_at(times: &[Time], mut ask: impl FnMut(&mut Processor<Typed<Clock>>, Time, &Event) -> Response) -> Vec<u64> {
    let program = Typed::<Clock>::new(Params::defaults(&[]));
    let mut processor = Processor::new(program, &config(Form::Table, 1)).expect("legal");
    let in_force = processor.first().in_force();
    let mut tell = |at: &Time| {
        let report = report(0, Ticks::at(*at), [100, 0, 100], in_force);
        let event = Event { connection: 0, first: false, queue: 0, report, carried: Carried::default() };
        let actions = ask(&mut processor, *at, &event).actions;
        u64::from(actions.rto.get()) | u64::from(actions.ncwnd) << Ticks::BITS
    };
    times.iter().map(&mut tell).collect()
}

/// Whether the first event comes late or early on the circle of 24 bits, and however long nothing happens.
#[test]
fn a_program_is_told_when_its_event_happened() {
    let times = [1_500_000, 1_500_010, 2_900_000, 2_900_001, 9_000_000, 60_000_000, 60_000_001].map(Time::from_us);
    let ticks = times.map(Ticks::count);
    assert_eq!(told_at(&times, |engine, at, event| engine.answer(at, event)), ticks);
    let recorded = |event: &Event| EventRecord::pack(event, false);
    let waited = |engine: &mut Processor<_>, at, event: &Event| engine.handle_at(at, &recorded(event)).unpack();
    assert_eq!(told_at(&times, waited), ticks);
    let late = |engine: &mut Processor<_>, at, event: &Event| {
        engine.handle_at(at + Duration::from_ms(700), &recorded(event)).unpack()
    };
    assert_eq!(told_at(&times, late), ticks, "when it happened, and not when its turn came");
    // Events alone tell the time where they come often enough; beyond that, whole circles are missing.
    let alone = |engine: &mut Processor<_>, _, event: &Event| engine.handle(&recorded(event)).unpack();
    assert_eq!(told_at(&times[..4], alone), ticks[..4]);
    let long = told_at(&times[3..5], alone);
    assert_eq!((ticks[4] - ticks[3]) - (long[1] - (ticks[3] & 0xff_ffff)), 2 << Ticks::BITS, "6.1 s seem to be 1.7");
    // What is a little older than the event before it brings nobody back, and nobody a circle ahead.
    let disorder = [1_500_000, 1_400_000, 1_500_001].map(Time::from_us);
    let (first, last) = (Ticks::count(disorder[0]), Ticks::count(disorder[2]));
    assert_eq!(told_at(&disorder, alone), [first, first, last]);
    assert_eq!(told_at(&disorder, |engine, at, event| engine.answer(at, event)), [first, first, last]);
}

/// Two connections of one engine, one of them behind a queue: its shares fall, with its window. The other's answers are
/// what they would be were it alone.
#[test]
fn f36_congestion_of_one_connection_lowers_its_shares_and_no_others() {
    const CALM: u32 = 0;
    let run = |form, delays: &[u32]| {
        let mut processor = Processor::new(swift(), &config(form, 2)).expect("legal");
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
        assert_eq!(beside, alone, "{form:?}: it knows nothing of the other");
        assert!(congested.fcwnd < Cwnd::ONE && calm.fcwnd > Cwnd::packets(8), "{form:?}: {calm:?}, {congested:?}");
        // Codes of smaller shares are larger.
        let shares = |of: &FlowActions| [of.alpha_requests.get(), of.alpha_responses.get()];
        assert!(shares(&congested).iter().zip(shares(&calm)).all(|(code, other)| *code > other + 2), "{form:?}");
    }
}

/// Another program for the same datapath: a window of 16 packets.
fn fixed() -> Erased {
    let mut params = Params::defaults(FixedWindow::PARAMS);
    assert_eq!(params.set(FixedWindow::PARAMS, "window", "16"), Ok(true));
    Erased(Configured { policy: ControlPolicy::of::<FixedWindow>(), params })
}

#[test]
fn f1_another_program_runs_without_another_datapath() {
    let (decisions, _) = inline(fixed(), Form::PREFETCHING, 1);
    assert!(decisions.iter().all(|(.., actions)| actions.fcwnd == Cwnd::packets(16)));
}

/// Fills its block of state, and reads no reports.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Large([u64; 8]);

impl Control for Large {
    const NAME: &'static str = "large";
    const SUMMARY: &'static str = "keeps as much as there is";
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
fn engines_that_cannot_be_are_refused() {
    let refusal = |form| Processor::new(fixed(), &config(form, 1)).err();
    assert_eq!(refusal(Form::Stateless), Some(FaeError::NotStateless), "its state does not travel");
    assert_eq!(refusal(Form::Prefetching { ahead: 65 }), Some(FaeError::TooFarAhead(65)));
    let many = config(Form::Stateless, (1 << 24) + 1);
    assert_eq!(Processor::new(swift(), &many).err(), Some(FaeError::TooManyConnections((1 << 24) + 1)));
    let policy = rnic_transports::control::find("dcqcn").expect("it is registered");
    let told = Erased(Configured { policy, params: Params::defaults(policy.params) });
    assert_eq!(Processor::new(told, &config(Form::Table, 1)).err(), None, "it is told of events");
    let policy = ControlPolicy::of::<Large>();
    let large = Erased(Configured { policy, params: Params::default() });
    assert_eq!(Processor::new(large, &config(Form::Table, 1)).err(), Some(FaeError::NoReports), "no place beside it");
}
