//! The six programs as WebAssembly modules: each has the same outputs as its native code, and passes the contract kit.
#![expect(clippy::disallowed_types, reason = "a test measures the cost of an event")]

use std::time::Instant;

use rnic_program::wasm::{WasmProgram, emit};
use rnic_program::{Loaded, Lowering, Stimuli, Transport, lockstep};

use super::{all, load};

/// Random events for each program.
const EVENTS: u64 = 100_000;

fn module_of(program: &dyn Transport) -> Vec<u8> {
    let graphs = program.graphs(Lowering::Joins).expect("it has graphs");
    emit(&program.description(), &graphs).expect("it is written")
}

#[test]
fn t28_each_program_decides_as_a_module_as_it_does_natively() {
    for program in all() {
        let module = WasmProgram::new(&module_of(program)).expect("a program");
        lockstep::compare(program, &module, 7, EVENTS).expect("equal");
    }
}

#[test]
fn t28_a_module_is_loaded_like_a_program_file() {
    for program in all() {
        let policy = load(&module_of(program)).expect("the kit takes it");
        assert_eq!(policy.name, program.description().name);
        assert!(policy.program.is_some_and(rnic_policy::ProgramPolicy::is_loaded));
    }
}

/// Prints nanoseconds per event of each form, and the ratio to native code: run it in release.
#[test]
#[ignore = "measures"]
fn print_the_cost_of_an_event_f64() {
    for program in all() {
        let graph = Loaded::of(program).expect("it has graphs");
        let module = WasmProgram::new(&module_of(program)).expect("a program");
        let forms: [&dyn Transport; 3] = [program, &graph, &module];
        let cost = forms.map(|form| {
            let description = program.description();
            let (parameters, mut stimuli) = (description.defaults(), Stimuli::new(1));
            let packets: Vec<_> = (0..1_000).map(|_| stimuli.incoming()).collect();
            let mut state = description.initial_state(&parameters);
            let runs = (0..20).map(|_| {
                let start = Instant::now();
                for packet in &packets {
                    let mut actions = description.initial_actions(&parameters);
                    form.incoming(packet, &parameters, &mut state, &mut actions);
                    std::hint::black_box(actions);
                }
                start.elapsed().as_nanos() as f64 / packets.len() as f64
            });
            runs.fold(f64::INFINITY, f64::min)
        });
        let [native, graph, module] = cost;
        println!(
            "{:9} native {native:6.1} ns, graph {graph:6.0} ns ({:4.1}), WebAssembly {module:6.0} ns ({:5.1})",
            program.description().name,
            graph / native,
            module / native
        );
    }
}
