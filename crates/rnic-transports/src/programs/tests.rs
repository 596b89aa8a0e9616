//! Properties of all programs.

use rnic_base::{BitRate, Duration, Psn, RandomStreams, Seq, Time};
use rnic_policy::{Control, ControlEvent, ControlView, Params, RecoveryEvent, WindowView};
use rnic_program::{Due, Fields as _, Incoming, Loaded, Lowering, Periodic, Rate, Ticks, Transport, lockstep};

use super::all;

/// Events for each function of each program; the lock-step with circuits has a million.
const EVENTS: u64 = 40_000;

/// State of each program in the paper (table 3), in bytes, and its lines.
const PAPER: [(&str, u32, u32); 6] =
    [("reno", 8, 48), ("new-reno", 13, 74), ("sack", 19, 193), ("ndp", 1, 20), ("dcqcn", 30, 63), ("irn", 14, 54)];

/// Compares the answers and states of `native` and `other`, with `events` random events.
fn compare(native: &dyn Transport, other: &dyn Transport, seed: u64, events: u64) {
    if let Err(difference) = lockstep::compare(native, other, seed, events) {
        panic!("{difference}");
    }
}

#[test]
fn t19_t28_the_graph_of_each_program_decides_as_its_native_code() {
    for (number, program) in all().enumerate() {
        let loaded = Loaded::of(program).expect("every program has graphs");
        compare(program, &loaded, 70 + number as u64, EVENTS);
    }
}

#[test]
fn t19_both_lowerings_of_each_program_are_the_same_function() {
    for program in all() {
        let graphs = program.graphs(Lowering::Predicated).expect("every program has graphs");
        let predicated = Loaded::new(program.description(), graphs).expect("the graphs are the program's");
        compare(program, &predicated, 90, EVENTS / 4);
    }
}

#[test]
fn t17_t28_programs_fit_into_the_papers_lines_state_and_a_cycle() {
    for (program, (name, bytes, lines)) in all().zip(PAPER) {
        let described = program.description();
        described.check().expect(name);
        let graphs = program.graphs(Lowering::Joins).expect(name);
        let depth = |graph: &rnic_program::Graph| graph.levels().into_iter().max().unwrap_or(0);
        let (incoming, periodic) = (depth(&graphs.incoming), depth(&graphs.periodic));
        let operations = (graphs.incoming.operations(), graphs.periodic.operations());
        eprintln!(
            "{name}: {} bits, {} lines, levels {incoming} and {periodic}, operations {operations:?}",
            described.state_bits(),
            described.lines
        );
        assert_eq!(described.name, name);
        assert!(described.state_bits() <= (bytes + 2) * 8, "{name}: {} bits of state", described.state_bits());
        assert!(described.lines <= 200.min(lines * 6 / 5 + 10), "{name}: {} lines", described.lines);
        assert!(
            incoming.max(periodic) <= rnic_program::graph::LEVELS_OF_A_CYCLE,
            "{name}: {incoming} and {periodic} levels"
        );
    }
}

/// The program and the controller written by hand get the same notifications, and their timers run at the same times:
/// rates agree within a thousandth (the program's has steps of 12 kbit/s, and its timer of 160 ns).
#[test]
fn t17_dcqcn_sets_the_rates_of_the_controller_written_by_hand() {
    use crate::control::dcqcn::Dcqcn as ByHand;
    let params = Params::defaults(ByHand::PARAMS).with(6, 100_000_000);
    let view = |now| ControlView { now, line_rate: BitRate::gbps(40), mtu: 1_024, in_flight: 0 };
    let (mut by_hand, _) = ByHand::start(&params, &view(Time::ZERO));
    let program = super::find("dcqcn").expect("it is registered");
    let description = program.description();
    let word = |name: &str, value: u64| {
        let parameter = description.parameters.iter().find(|parameter| parameter.name == name).expect(name);
        parameter.word(value)
    };
    let mut words = description.defaults();
    let line = description.parameters.iter().position(|parameter| parameter.name == "line_rate").expect("it is one");
    words[line] = word("line_rate", 40_000_000_000);
    let (mut state, mut actions) = (description.initial_state(&words), description.initial_actions(&words));
    let due = description.deadlines(Due::Time)[1];
    let mut random = RandomStreams::new(4).stream("notifications");
    let (mut rate, mut tick, mut next_cnp, mut compared) = (40e9, None, Time::from_ps(1_000_000), 0);
    while compared < 20_000 {
        // The next notification, or the next expiry of the timer.
        let is_cnp = tick.is_none_or(|tick| next_cnp < tick);
        let now = if is_cnp { next_cnp } else { tick.expect("there is one") };
        let event = if is_cnp { ControlEvent::Cnp } else { ControlEvent::Tick };
        let answer = by_hand.on_event(&event, &view(now), &params);
        rate = answer.rate.map_or(rate, |rate| rate.as_bps() as f64);
        let ticks = Ticks::new(now.as_ps() / 160_000);
        if is_cnp {
            let packet = Incoming { cnp: true, now: ticks, ..Incoming::default() };
            program.incoming(&packet, &words, &mut state, &mut actions);
            next_cnp = now + Duration::from_us(50 + random.below(3_000));
            tick = tick.or(answer.tick_after.map(|after| now + after));
        } else {
            // Its own deadline, which rounding may have put up to a tick later.
            let deadline = u32::from_le_bytes(state[due..due + 4].try_into().expect("four bytes"));
            let visit = Periodic { now: Ticks::new(deadline.into()), ..Periodic::default() };
            program.periodic(&visit, &words, &mut state, &mut actions);
            tick = answer.tick_after.map(|after| now + after);
        }
        let by_program = (actions.rate.get() * 390_625 / 32) as f64;
        assert!((by_program / rate - 1.0).abs() < 1e-3, "event {compared}: {by_program} and {rate} bit/s at {now:?}");
        compared += 1;
    }
    assert_ne!(actions.rate, Rate::new(words[line]), "the rates are never cut");
}

mod wrong {
    use rnic_program::prelude::*;

    rnic_program::transport! {
        /// Closes its window after as many events as its parameter says, which the contract forbids.
        program Wrong("wrong") {
            scheme: window,
            start: { window: cap, rate: 0, timer: rto },
        }
        state State {
            events: 16,
        }
        parameters Parameters {
            /// Segments in flight at most.
            cap: 8 = 32 [1..=128],
            /// Time without progress after which the oldest segment is repeated.
            rto: 24 = 320 us,
            /// Events until the window is closed: more than the kit has.
            patience: 16 = 20000 [20000..=65535],
        }
    }

    #[program]
    pub(super) fn incoming(i: &Incoming, p: &Parameters, s: &mut State, a: &mut Actions) {
        s.events = s.events.saturating_add(1);
        a.mark = i.nack;
        a.from = i.start;
        a.to = i.start + 1;
        if s.events >= p.patience {
            a.window = u(0);
        }
    }

    #[program]
    pub(super) fn periodic(v: &Periodic, p: &Parameters, s: &mut State, a: &mut Actions) {
        s.events = s.events.saturating_add(1);
        a.mark = v.expired;
        a.from = v.start;
        a.to = v.start + 1;
        if s.events >= p.patience {
            a.window = u(0);
        }
    }
}

/// Returns the contents of the file of `program`.
fn file_of(program: &dyn Transport) -> String {
    super::to_file(program).expect("it has graphs")
}

/// The file with which the engine's tests check that a replaced program is counted.
const WRONG_FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../rnic-engine/tests/common/wrong.rnicp");

#[test]
fn the_file_of_the_engines_tests_is_current() {
    let file = super::read(WRONG_FILE.as_ref()).expect("it is in the source tree");
    assert!(file == file_of(&wrong::Wrong).into_bytes(), "run write_the_file_of_the_engines_tests");
}

#[test]
#[ignore = "writes rnic-engine/tests/common/wrong.rnicp"]
#[expect(clippy::disallowed_methods, reason = "it writes the file")]
fn write_the_file_of_the_engines_tests() {
    std::fs::write(WRONG_FILE, file_of(&wrong::Wrong)).expect("the folder is writable");
}

#[test]
fn a_loaded_program_that_answers_outside_its_contract_is_replaced_for_that_flow() {
    let text = file_of(&wrong::Wrong);
    let loaded = super::load(text.as_bytes()).expect("it passes the kit, which has not as many events");
    let built_in = super::policies().iter().find(|policy| policy.name == "tonic-new-reno").expect("registered");
    let [words, own_words] = [&loaded, built_in].map(|policy| policy.words(&Params::defaults(policy.params)));
    let una = Seq::start(Psn::new(0xff_ffff));
    let view = WindowView {
        now: Time::from_ps(1_000_000_000),
        una,
        next: una + 20,
        highest_sacked: None,
        sacked: None,
        marked: None,
        sent: 20,
    };
    let acked = RecoveryEvent::Acked { packets: 1, rtt: None };
    let nacked = RecoveryEvent::Nacked { sack: Some(una + 5), losses: None, is_new: true, advanced: false };
    let mut state = loaded.new_state(&words);
    assert!(!loaded.answer(&mut state, &acked, &view, &words).replaced);
    assert!((2..20_000).all(|_| !loaded.answer(&mut state, &nacked, &view, &words).replaced));
    let first = loaded.answer(&mut state, &nacked, &view, &words);
    assert!(first.replaced && first.window.is_some_and(|window| window > 0), "{first:?}");
    let mut own_state = built_in.new_state(&own_words);
    built_in.answer(&mut own_state, &nacked, &view, &own_words);
    for _ in 0..3 {
        let answer = loaded.answer(&mut state, &nacked, &view, &words);
        assert_eq!(answer, built_in.answer(&mut own_state, &nacked, &view, &own_words), "not the substitute's answer");
    }
    let impatient = text.replace("= 20000\n", "= 0\n");
    assert_ne!(text, impatient);
    let error = super::load(impatient.as_bytes()).expect_err("the kit sees the closed window").to_string();
    assert!(
        error.contains("`wrong`")
            && error.contains("incoming with i.")
            && error.contains("a.window is 0")
            && error.lines().count() == 1,
        "{error}"
    );
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test writes the file that it reads")]
fn a_program_file_is_a_transport_by_its_path_and_by_an_option() {
    let path = std::env::temp_dir().join(format!("rnic-transports-{}.rnicp", std::process::id()));
    std::fs::write(&path, file_of(&super::irn::Irn)).expect("it is written");
    let text = path.to_str().expect("a path of letters");
    let by_path = crate::select(text, [("cap", "40")]).expect("a transport");
    assert_eq!((by_path.name, by_path.recovery.policy.name), ("tonic-irn", "irn"));
    let by_option = crate::select("tonic-irn", [("program", text)]).expect("a transport");
    assert!(by_option.recovery.policy.is_of(&by_path.recovery.policy), "one file was loaded twice");
    for (transport, needed) in [("irn", "tonic-irn"), ("tonic-dcqcn", "tonic-irn"), ("tonic-ndp", "tonic-irn")] {
        let error = crate::select(transport, [("program", text)]).expect_err("it does not run over it").to_string();
        assert!(error.contains(&format!("`{needed}`")) && error.lines().count() == 1, "{error}");
    }
    std::fs::write(&path, "[file]").expect("it is written");
    for text in [text, "absent.rnicp"] {
        let error = crate::select(text, []).expect_err("it is no program").to_string();
        assert!(error.contains(text) && error.lines().count() == 1, "{error}");
    }
    std::fs::remove_file(&path).expect("the file exists");
}

/// Declares a program in `$module` that marks up to `i.next + $beyond`, and whose interval of notifications is `$ns`.
macro_rules! marking {
    ($module:ident, $beyond:literal, $ns:literal) => {
        mod $module {
            use rnic_program::prelude::*;

            rnic_program::transport! {
                /// Marks what is outstanding.
                program Marking("marking") {
                    scheme: window,
                    start: { window: 32, rate: 0, timer: rto },
                }
                state State {
                    events: 16,
                }
                parameters Parameters {
                    /// Time without progress after which segments are repeated.
                    rto: 24 = 320 us,
                    /// At most one notification in this time.
                    cnp_interval: 24 = $ns ns,
                }
            }

            #[program]
            pub(super) fn incoming(i: &Incoming, p: &Parameters, s: &mut State, a: &mut Actions) {
                a.mark = i.cnp;
                a.from = i.start;
                a.to = i.next + $beyond;
                a.timer = p.rto;
                s.events = s.events.saturating_add(1);
            }

            #[program]
            pub(super) fn periodic(v: &Periodic, p: &Parameters, s: &mut State, a: &mut Actions) {
                a.mark = v.expired;
                a.from = v.start;
                a.to = v.next;
                a.timer = p.rto;
                s.events = u(0);
            }
        }
    };
}

marking!(hasty, 7, 4000);
marking!(frequent, 0, 100);

#[test]
fn no_file_is_written_that_is_refused_when_it_is_used() {
    let error = super::to_file(&hasty::Marking).expect_err("it marks what was not sent").to_string();
    let expected = "incoming with i.cnp: a.mark is set, and a.to is 7 beyond i.next";
    assert!(error.contains(expected) && error.lines().count() == 1, "{error}");
    let error = super::to_file(&frequent::Marking).expect_err("the interval is too short").to_string();
    assert!(error.contains("the default, 100 ns, is less than the minimum, 160 ns"), "{error}");
}
