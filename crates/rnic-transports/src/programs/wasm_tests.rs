//! The six programs as WebAssembly modules: each has the same outputs as its native code, and passes the contract kit.

use rnic_program::wasm::{WasmProgram, emit};
use rnic_program::{Loaded, Lowering, Transport, lockstep};

use super::cost::ns_per_event_f64;
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
        let [native, graph, module] = forms.map(ns_per_event_f64);
        println!(
            "{:9} native {native:6.1} ns, graph {graph:6.0} ns ({:4.1}), WebAssembly {module:6.0} ns ({:5.1})",
            program.description().name,
            graph / native,
            module / native
        );
    }
}
