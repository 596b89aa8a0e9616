//! Acknowledgements that programs ignore.

use rnic_base::{Psn, RandomStream, RandomStreams, Seq, Time};
use rnic_policy::kit::check_recovery;
use rnic_policy::{Params, ProgramPolicy, RecoveryEvent, RecoveryPolicy, TimerChange, WindowView};
use rnic_program::mutate::mutants;
use rnic_program::transport::{Condition, Setting};
use rnic_program::{
    Actions, Description, Fields as _, Graphs, Id, Incoming, Loaded, Lowering, Map, Needs, Offset, Periodic, Rate,
    RecordError, Stimuli, Ticks, Transport, U,
};

use super::{all, find};

/// Returns any acknowledgement that reports nothing else.
fn plain(random: &mut RandomStream) -> Incoming {
    let old_start = Id::new(random.bits());
    let most = if random.below(2) == 0 { 4 } else { 255 };
    let start = old_start + Id::new(1 + random.below(most));
    let mut map = || Map::from_u128(u128::from(random.bits()) << random.below(65) & u128::from(random.bits()));
    let (acked, marked) = (map(), map());
    Incoming {
        ack: true,
        cum: start,
        sack: Id::new(random.bits()),
        start,
        old_start,
        next: start + Id::new(random.below(129)),
        total_sent: Id::new(random.bits()),
        now: Ticks::new(random.bits()),
        newly: Offset::new(random.below(256)),
        times_sent: U::new(random.bits()),
        acked,
        marked,
        ..Incoming::default()
    }
}

/// Passes `events` acknowledgements to `program` in states in which `conditions` hold, and returns an answer that
/// changes something, if there is one.
fn change(program: &dyn Transport, conditions: &[Condition], seed: u64, events: u64) -> Option<(Incoming, Actions)> {
    let description = program.description();
    let mut random = RandomStreams::new(seed).stream("plain acknowledgements");
    let mut stimuli = Stimuli::new(seed);
    (0..events).find_map(|_| {
        let parameters = stimuli.parameters(&description.parameters);
        let mut words: Vec<u64> = description.state_words(&stimuli.state(&description)).collect();
        let mut settings = Actions { mark: false, from: Id::new(0), to: Id::new(0), ..stimuli.actions() };
        for condition in conditions {
            let value = description.initial(&condition.value, &parameters);
            match condition.setting {
                Setting::State(at) => words[at] = value,
                Setting::Window => settings.window = Offset::new(value),
                Setting::Rate => settings.rate = Rate::new(value),
                Setting::Timer => settings.timer = Ticks::new(value),
            }
        }
        let mut state = vec![0; description.state_bytes()];
        description.store_state(&words, &mut state);
        let (before, packet, mut actions) = (state.clone(), plain(&mut random), settings);
        program.incoming(&packet, &parameters, &mut state, &mut actions);
        let expected = Actions { restart: true, from: actions.from, to: actions.to, ..settings };
        (state != before || actions != expected).then_some((packet, actions))
    })
}

#[test]
fn t14_only_dcqcn_sets_a_rate() {
    let setting = all().filter(|program| program.needs().expect("every program has graphs").rate);
    assert_eq!(setting.map(|program| program.description().name).collect::<Vec<_>>(), ["dcqcn"]);
}

#[test]
fn t19_programs_ignore_the_acknowledgements_that_change_nothing() {
    let expected = [("ndp", 0), ("dcqcn", 0), ("irn", 6)];
    for program in all() {
        let name = program.description().name;
        let conditions = program.needs().expect("every program has graphs").ignored;
        let count = conditions.as_ref().map(Vec::len);
        let of_it = expected.iter().find(|(other, _)| *other == name);
        assert_eq!(count, of_it.map(|(_, count)| *count), "{name}: {conditions:?}");
        if let Some(conditions) = conditions {
            assert_eq!(change(program, &conditions, 60, 5_000), None, "{name}");
        }
    }
}

/// Each operation of a program, and each that may be in its place, is evaluated as the interpreter does.
#[test]
fn t19_mutants_of_programs_ignore_only_what_changes_nothing() {
    let (mut ignoring, mut changing) = (0, 0);
    for program in all() {
        let (description, graphs) = (program.description(), program.graphs(Lowering::Joins).expect("it has graphs"));
        for mutant in mutants(&graphs.incoming) {
            let graphs = Graphs { incoming: mutant, ..graphs.clone() };
            let mutant = Loaded::new(description.clone(), graphs).expect("its ports are those of the program");
            let Some(conditions) = mutant.needs().expect("it has graphs").ignored else {
                changing += 1;
                continue;
            };
            ignoring += 1;
            if let Some(change) = change(&mutant, &conditions, 61, 200) {
                panic!("{}: {conditions:?}: {change:?} of {:?}", description.name, mutant.graphs_ref().incoming);
            }
        }
    }
    assert!(ignoring > 40 && changing > 100, "{ignoring} ignore some, {changing} none");
}

#[test]
fn t19_only_ndp_retransmits_nothing_when_packets_are_reordered() {
    let tolerant = all().filter(|program| program.needs().expect("every program has graphs").tolerates_reordering);
    assert_eq!(tolerant.map(|program| program.description().name).collect::<Vec<_>>(), ["ndp"]);
}

/// Programs, and mutants of them, that are said to tolerate reordering mark nothing for any packet that is not trimmed,
/// and in no visit without an expired timer.
#[test]
fn t19_what_tolerates_reordering_marks_only_what_was_trimmed_or_timed_out() {
    let (mut tolerant, mut others) = (0, 0);
    for program in all() {
        let (description, graphs) = (program.description(), program.graphs(Lowering::Joins).expect("it has graphs"));
        let incoming = mutants(&graphs.incoming).into_iter().map(|incoming| Graphs { incoming, ..graphs.clone() });
        let periodic = mutants(&graphs.periodic).into_iter().map(|periodic| Graphs { periodic, ..graphs.clone() });
        for mutant in incoming.chain(periodic) {
            let mutant = Loaded::new(description.clone(), mutant).expect("its ports are those of the program");
            if !mutant.needs().expect("it has graphs").tolerates_reordering {
                others += 1;
                continue;
            }
            tolerant += 1;
            let mut stimuli = Stimuli::new(62);
            for _ in 0..200 {
                let parameters = stimuli.parameters(&description.parameters);
                let mut state = stimuli.state(&description);
                let packet = Incoming { trimmed: false, ..stimuli.incoming() };
                let mut actions = Actions { mark: false, ..stimuli.actions() };
                mutant.incoming(&packet, &parameters, &mut state, &mut actions);
                assert!(!actions.mark, "{}: {packet:?}", description.name);
                let visit = Periodic { expired: false, ..stimuli.periodic() };
                mutant.periodic(&visit, &parameters, &mut state, &mut actions);
                assert!(!actions.mark, "{}: {visit:?}", description.name);
            }
        }
    }
    assert!(tolerant > 5 && others > 100, "{tolerant} tolerate reordering, {others} do not");
}

/// A program with a wrong description of what it ignores.
struct Wrong(&'static dyn Transport);

impl Transport for Wrong {
    fn description(&self) -> Description {
        self.0.description()
    }

    fn incoming(&self, packet: &Incoming, parameters: &[u64], state: &mut [u8], actions: &mut Actions) {
        self.0.incoming(packet, parameters, state, actions);
    }

    fn periodic(&self, visit: &Periodic, parameters: &[u64], state: &mut [u8], actions: &mut Actions) {
        self.0.periodic(visit, parameters, state, actions);
    }

    fn graphs(&self, lowering: Lowering) -> Result<Graphs, RecordError> {
        self.0.graphs(lowering)
    }

    fn needs(&self) -> Result<Needs, RecordError> {
        Ok(Needs { ignored: Some(Vec::new()), ..self.0.needs()? })
    }
}

/// The next event shows a program an acknowledgement that was no event of its own, whether it ignores others or not.
#[test]
fn t19_an_acknowledgement_that_was_no_event_is_part_of_the_next_one() {
    let policy = super::policies().iter().find(|policy| policy.name == "tonic-irn").expect("it is registered");
    let words = policy.words(&Params::defaults(policy.params));
    let una = Seq::start(Psn::new(7));
    let now = Time::from_ps(1_000_000_000);
    let view = WindowView { now, una, next: una + 20, highest_sacked: None, sacked: None, marked: None, sent: 20 };
    let nacked = RecoveryEvent::Nacked { sack: None, losses: None, is_new: false, advanced: false };
    for (is_noted, expected) in [(true, TimerChange::Restart), (false, TimerChange::Continue)] {
        let mut state = policy.new_state(&words);
        if is_noted {
            policy.note_start(&mut state, Seq::start(Psn::new(4)));
        }
        let answer = policy.answer(&mut state, &nacked, &view, &words);
        assert_eq!((answer.timer, answer.recovering), (expected, true));
    }
}

/// A program is called again once it has ended its recovery, and ignores acknowledgements as before.
#[test]
fn t19_acknowledgements_are_events_in_recovery_only() {
    let policy = super::policies().iter().find(|policy| policy.name == "tonic-irn").expect("it is registered");
    let words = policy.words(&Params::defaults(policy.params));
    assert!(!policy.starts_recovering(&words));
    let view = |una: u32| WindowView {
        now: Time::from_ps(1_000_000_000),
        una: Seq::start(Psn::new(una)),
        next: Seq::start(Psn::new(20)),
        highest_sacked: None,
        sacked: None,
        marked: None,
        sent: 20,
    };
    let mut state = policy.new_state(&words);
    let nacked = RecoveryEvent::Nacked { sack: None, losses: None, is_new: false, advanced: false };
    assert!(policy.answer(&mut state, &nacked, &view(3), &words).recovering);
    let acked = |packets| RecoveryEvent::Acked { packets, rtt: None };
    assert!(policy.answer(&mut state, &acked(16), &view(19), &words).recovering, "one packet of it is outstanding");
    assert!(!policy.answer(&mut state, &acked(1), &view(20), &words).recovering);
}

#[test]
fn the_kit_finds_an_acknowledgement_that_should_not_be_ignored() {
    for name in ["reno", "irn"] {
        let program: &'static Wrong = Box::leak(Box::new(Wrong(find(name).expect("it is registered"))));
        let policy = Box::leak(Box::new(ProgramPolicy::new(program).expect("it has graphs")));
        let violation = check_recovery(&RecoveryPolicy::of_program("wrong", policy), 5, 10_000);
        let error = violation.expect_err("it changes its state").to_string();
        assert!(error.contains("should ignore it"), "{error}");
    }
}
