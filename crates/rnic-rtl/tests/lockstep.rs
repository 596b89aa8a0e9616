//! The six programs of Tonic and the laws as circuits: each decides as its native code, event by event.

use rnic_program::mutate::mutants;
use rnic_program::{Graph, Graphs, Law, Loaded, LoadedLaw, Lowering, Op, Transport, lockstep, verilog};
use rnic_rtl::circuit::Circuit;
use rnic_rtl::lockstep::{Function, run, run_law};
use rnic_rtl::proof::{Verdict, compare};
use rnic_rtl::tools::are_installed;
use rnic_rtl::verilated::Verilated;
use rnic_transports::laws;
use rnic_transports::programs::all;

/// Events for each function; `RNIC_LOCKSTEP_EVENTS` replaces it.
const EVENTS: u64 = 1_000_000;

/// Mutants of each function that are simulated as circuits.
const MUTANTS: usize = 1;

fn events() -> u64 {
    let wanted = std::env::var("RNIC_LOCKSTEP_EVENTS").ok();
    wanted.map_or(EVENTS, |text| text.parse().expect("RNIC_LOCKSTEP_EVENTS is a number of events"))
}

/// The functions of all programs.
fn functions() -> impl Iterator<Item = (&'static dyn Transport, Graphs, Function)> {
    all().flat_map(|program| {
        let graphs = program.graphs(Lowering::Joins).expect("every program has graphs");
        Function::ALL.map(|function| (program, graphs.clone(), function))
    })
}

fn name(program: &dyn Transport, function: Function) -> String {
    verilog::module_name(&program.description().name, function.name())
}

/// Returns mutants of `graph`, spread over it.
fn some_mutants(graph: &Graph, count: usize) -> Vec<Graph> {
    let all = mutants(graph);
    (0..count).map(|number| all[(2 * number + 1) * all.len() / (2 * count)].clone()).collect()
}

#[test]
fn t28_circuits_of_laws_decide_as_native_code() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    let graph = |law: &dyn Law| law.graph(Lowering::Joins).expect("every law has a graph");
    let module = |law: &dyn Law| verilog::module_name(&law.description().name, "decide");
    let laws: Vec<(&dyn Law, Graph)> = laws::all().map(|(_, law)| (law, graph(law))).collect();
    let mut modules: Vec<(String, Graph)> = laws.iter().map(|(law, graph)| (module(*law), graph.clone())).collect();
    let mutant = faults_of(laws[0].0).into_iter().find(|mutant| is_noticed_in(laws[0].0, mutant, 10_000));
    let mutant = mutant.expect("most mutants are noticed");
    modules.push(("law_mutant".to_owned(), mutant));
    let circuits: Vec<Circuit> = modules.iter().map(|(name, graph)| Circuit::emitted(name, graph)).collect();
    let verilated = Verilated::build(&circuits).expect("the circuits compile without warnings");
    for (seed, (law, _)) in (31..).zip(&laws) {
        let mut model = verilated.start(&module(*law), 1).expect("the model starts");
        run_law(*law, &mut model, (seed, events() / 10)).expect("both forms are equal");
    }
    let mut model = verilated.start("law_mutant", 1).expect("the model starts");
    run_law(laws[0].0, &mut model, (31, events() / 10)).expect_err("a mutant is noticed");
}

fn faults_of(law: &dyn Law) -> Vec<Graph> {
    mutants(&law.graph(Lowering::Joins).expect("every law has a graph"))
}

fn is_noticed_in(law: &dyn Law, mutant: &Graph, events: u64) -> bool {
    let mutant = LoadedLaw::new(law.description(), mutant.clone()).expect("a mutant has the same ports");
    lockstep::compare_laws(law, &mutant, 7, events).is_err()
}

/// Of the faults in the graphs of laws, at most one in thirty is not noticed: some are none, and some matter in one
/// event of a million, such as a factor of 122,071 instead of 122,070. Proofs of products take yosys hours.
#[test]
fn t28_faults_in_graphs_of_laws_are_noticed() {
    let (mut noticed, mut unnoticed) = (0, Vec::new());
    for (name, law) in laws::all() {
        for (number, mutant) in faults_of(law).into_iter().enumerate() {
            if is_noticed_in(law, &mutant, 100_000) { noticed += 1 } else { unnoticed.push((name, number)) }
        }
    }
    assert!(unnoticed.len() * 30 <= noticed, "{noticed} mutants were noticed, and not {unnoticed:?}");
}

#[test]
fn t28_both_lowerings_of_laws_without_products_are_proved_equal() {
    if !are_installed(&["yosys"]) {
        return;
    }
    for (name, law) in laws::all() {
        let [joins, other] = [Lowering::Joins, Lowering::Predicated].map(|lowering| law.graph(lowering).expect(name));
        if joins.nodes().iter().all(|node| node.op != Op::Mul) {
            assert_eq!(compare(&joins, &other).expect("yosys has a verdict"), Verdict::Equal, "{name}");
        }
    }
}

#[test]
fn t19_t28_circuits_decide_as_native_code_in_a_million_events_of_each_function() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    let functions: Vec<_> = functions().collect();
    let mut modules: Vec<(String, Graph)> = Vec::new();
    for (program, graphs, function) in &functions {
        let graph = function.of(graphs);
        modules.push((name(*program, *function), graph.clone()));
        for (number, mutant) in some_mutants(graph, MUTANTS).into_iter().enumerate() {
            modules.push((format!("{}_mutant{number}", name(*program, *function)), mutant));
        }
    }
    let circuits: Vec<Circuit> = modules.iter().map(|(name, graph)| Circuit::emitted(name, graph)).collect();
    let verilated = Verilated::build(&circuits).expect("the circuits compile without warnings");
    for (seed, (program, graphs, function)) in (1..).zip(&functions) {
        let loaded = Loaded::of(*program).expect("every program has graphs");
        let mut model = verilated.start(&name(*program, *function), 1).expect("the model starts");
        run(*program, *function, Some(&mut model), Some(&loaded), (seed, events())).expect("all forms are equal");
        for number in 0..MUTANTS {
            let mutant = format!("{}_mutant{number}", name(*program, *function));
            let mut model = verilated.start(&mutant, 1).expect("the model starts");
            let result = run(*program, *function, Some(&mut model), None, (seed, events()));
            let noticed = result.is_err_and(|difference| difference.form == "circuit");
            let graph = &modules.iter().find(|(name, _)| *name == mutant).expect("it was built").1;
            assert!(noticed || is_equal(function.of(graphs), graph), "{mutant} was not noticed");
        }
    }
}

/// Returns whether yosys proves that two graphs are the same function; false without yosys.
fn is_equal(one: &Graph, other: &Graph) -> bool {
    are_installed(&["yosys"]) && compare(one, other).expect("yosys has a verdict") == Verdict::Equal
}

/// The interpreter runs the mutants: the events notice a fault anywhere in a graph, or yosys proves that it is none.
#[test]
fn t19_faults_in_graphs_are_noticed() {
    let (mut noticed, mut unnoticed) = (0, Vec::new());
    for (program, graphs, function) in functions() {
        for (number, mutant) in mutants(function.of(&graphs)).into_iter().enumerate() {
            if is_noticed(program, (&graphs, function), &mutant, 100_000) {
                noticed += 1;
            } else {
                unnoticed.push((
                    format!("{} {number}", name(program, function)),
                    program,
                    graphs.clone(),
                    function,
                    mutant,
                ));
            }
        }
    }
    assert!(unnoticed.len() * 20 <= noticed, "{} of {noticed} mutants were not noticed", unnoticed.len());
    if are_installed(&["yosys"]) {
        for (name, program, graphs, function, mutant) in &unnoticed {
            let verdict = compare(function.of(graphs), mutant).expect("yosys has a verdict");
            let is_none = verdict == Verdict::Equal;
            assert!(is_none || is_noticed(*program, (graphs, *function), mutant, 5_000_000), "{name} is not noticed");
        }
    }
}

fn is_noticed(program: &dyn Transport, original: (&Graphs, Function), mutant: &Graph, events: u64) -> bool {
    let (graphs, function) = original;
    let mut changed = graphs.clone();
    match function {
        Function::Incoming => changed.incoming = mutant.clone(),
        Function::Periodic => changed.periodic = mutant.clone(),
    }
    let loaded = Loaded::new(program.description(), changed).expect("a mutant has the same ports");
    run(program, function, None, Some(&loaded), (7, events)).is_err()
}

#[test]
fn t19_both_lowerings_of_each_function_are_proved_equal() {
    if !are_installed(&["yosys"]) {
        return;
    }
    for (program, graphs, function) in functions() {
        let predicated = program.graphs(Lowering::Predicated).expect("every program has graphs");
        let verdict = compare(function.of(&graphs), function.of(&predicated)).expect("yosys has a verdict");
        assert_eq!(verdict, Verdict::Equal, "{}", name(program, function));
    }
}
