//! The six programs as machine code: each decides as its graph does, and is loaded so.
#![expect(clippy::disallowed_types, reason = "a test measures the cost of an event")]

use std::time::Instant;

use rnic_base::RandomStreams;
use rnic_jit::Compiled;
use rnic_program::mutate::mutants;
use rnic_program::{Executor, Graphs, Loaded, Lowering, Transport, lockstep};

use super::cost::ns_per_event_f64;
use super::{all, load, to_file};

/// Random events for each program: of four, three are packets and one is a visit.
const EVENTS: u64 = 400_000;

/// Events for each mutant.
const EVENTS_OF_A_MUTANT: u64 = 100_000;

/// Mutants of each program.
const MUTANTS: usize = 12;

fn compiled(program: &Loaded) -> Compiled {
    Compiled::new(program.clone()).expect("this processor has a compiler")
}

#[test]
fn t28_each_program_decides_as_machine_code_as_it_is_interpreted() {
    for program in all() {
        let graph = Loaded::of(program).expect("it has graphs");
        lockstep::compare(&graph, &compiled(&graph), 7, EVENTS).expect("equal");
    }
}

#[test]
fn t28_mutants_decide_as_machine_code_as_they_are_interpreted() {
    let mut random = RandomStreams::new(12).stream("mutants");
    for program in all() {
        let graphs = program.graphs(Lowering::Joins).expect("it has graphs");
        let (incoming, periodic) = (mutants(&graphs.incoming), mutants(&graphs.periodic));
        for seed in 0..MUTANTS as u64 {
            let mut draw =
                |mutants: &[rnic_program::Graph]| mutants[random.below(mutants.len() as u64) as usize].clone();
            let graphs = Graphs { incoming: draw(&incoming), periodic: draw(&periodic) };
            let graph = Loaded::new(program.description(), graphs).expect("its ports are those of the program");
            lockstep::compare(&graph, &compiled(&graph), seed, EVENTS_OF_A_MUTANT).expect("equal");
        }
    }
}

#[test]
fn t28_a_program_file_is_loaded_as_machine_code() {
    for program in all() {
        let policy = load(to_file(program).expect("it has graphs").as_bytes()).expect("the kit takes it");
        let loaded = policy.program.expect("it is a program");
        assert!(loaded.is_loaded());
        assert_eq!(loaded.executor(), Executor::Compiled);
    }
}

/// Prints nanoseconds per event of each form, and the ratio to native code: run it in release.
#[test]
#[ignore = "measures"]
fn print_the_cost_of_a_compiled_event_f64() {
    for program in all() {
        let graph = Loaded::of(program).expect("it has graphs");
        let start = Instant::now();
        let machine_code = compiled(&graph);
        let made = start.elapsed().as_micros();
        let forms: [&dyn Transport; 3] = [program, &graph, &machine_code];
        let [native, graph, machine_code] = forms.map(ns_per_event_f64);
        println!(
            "{:9} native {native:6.1} ns, graph {graph:6.0} ns ({:4.1}), compiled {machine_code:6.0} ns ({:4.1}), \
             made in {made} us",
            program.description().name,
            graph / native,
            machine_code / native
        );
    }
}
