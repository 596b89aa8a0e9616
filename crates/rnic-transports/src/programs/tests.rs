//! Properties of all programs.

use rnic_program::{Actions, Loaded, Lowering, Stimuli, Transport};

use super::all;

/// Events for each function of each program; the lock-step with circuits has a million.
const EVENTS: u64 = 40_000;

/// State of each program in the paper (table 3), in bytes, and its lines.
const PAPER: [(&str, u32, u32); 6] =
    [("reno", 8, 48), ("new-reno", 13, 74), ("sack", 19, 193), ("ndp", 1, 20), ("dcqcn", 30, 63), ("irn", 14, 54)];

/// Runs `events` random events of both functions on `native` and on `other`, and compares all answers and states.
fn compare(native: &dyn Transport, other: &dyn Transport, seed: u64, events: u64) {
    let program = native.description();
    let mut stimuli = Stimuli::new(seed);
    let (mut parameters, mut state) = (program.defaults(), program.initial_state(&program.defaults()));
    let mut actions = program.initial_actions(&parameters);
    for event in 0..events {
        if event % 512 == 511 {
            parameters = stimuli.parameters(&program.parameters);
            state = stimuli.state(&program);
            actions = stimuli.actions();
        }
        let (mut other_state, mut other_actions) = (state.clone(), actions);
        if event % 4 == 0 {
            let visit = stimuli.periodic();
            native.periodic(&visit, &parameters, &mut state, &mut actions);
            other.periodic(&visit, &parameters, &mut other_state, &mut other_actions);
        } else {
            let packet = stimuli.incoming();
            native.incoming(&packet, &parameters, &mut state, &mut actions);
            other.incoming(&packet, &parameters, &mut other_state, &mut other_actions);
        }
        let name = &program.name;
        assert_eq!(actions, other_actions, "{name}: answers differ in event {event} of seed {seed}");
        assert_eq!(state, other_state, "{name}: states differ after event {event} of seed {seed}");
        stimuli.apply(&actions);
        actions = Actions { mark: false, from: 0.into(), to: 0.into(), restart: false, ..actions };
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
