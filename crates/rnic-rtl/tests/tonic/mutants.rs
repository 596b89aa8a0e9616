//! Mutants of the NIC's modules: each is noticed by the comparison with the model, or is the same circuit.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rnic_program::Transport;
use rnic_rtl::circuit::Circuit;
use rnic_rtl::mutants::Mutants;
use rnic_rtl::tools::are_installed;
use rnic_rtl::verilated::Verilated;
use rnic_transports::programs::find;

use crate::bench::{Case, SHORT_TIMEOUTS, try_hostile, try_network};
use crate::nic::emit;
use crate::wild;

/// Modules with mutants. The library has proofs, except for the set of flows.
const MODULES: [&str; 18] = [
    "tonic/dd_engine",
    "tonic/dd_merge",
    "tonic/dd_generate",
    "tonic/dd_incoming0",
    "tonic/dd_incoming1",
    "tonic/dd_periodic",
    "tonic/dd_marks",
    "tonic/dd_answer",
    "tonic/cr_engine",
    "tonic/cr_settings",
    "tonic/cr_rate",
    "tonic/cr_pace",
    "tonic/cr_oldest",
    "tonic/cr_growth",
    "tonic/cr_divide",
    "tonic/flow_turns",
    "tonic/wheel",
    "lib/flow_set",
];

/// Cycles that notice most mutants, and those after which one that lives is taken for the same circuit.
const SHORT: u64 = 4_096;
const LONG: u64 = 32_768;

/// Of these modules, mutants are simulated. Which of the others' that live are the same circuit is not settled yet.
const SETTLED: [&str; 6] = ["dd_merge", "dd_generate", "dd_periodic", "dd_marks", "dd_answer", "flow_turns"];

/// Mutants that are the same circuit: module, the end of the line, and the reason.
const SAME: [(&str, &str, &str); 7] = [
    (
        "dd_merge",
        "(staying > COUNT_W'(tonic_pkg::STOP)) || \
         (duty_i.back_pressured && !(staying < COUNT_W'(tonic_pkg::START)))",
        "with STOP addresses waiting a flow is back-pressured, so that the other condition holds",
    ),
    (
        "dd_generate",
        "is_marked || (is_announced || (sent < 24'(window_i.size)))",
        "the output is read only for a flow that is not idle, which has a segment: an assertion of dd_engine",
    ),
    ("dd_generate", "is_marked || (is_announced && (sent <= 24'(window_i.size)))", "as before"),
    (
        "dd_marks",
        "((last[22:0] >= 23'(most)) ? most : last[SIZE_W-1:0])",
        "with equal numbers both sides of the choice are equal",
    ),
    (
        "dd_answer",
        "(window_i >= 9'(tonic_pkg::K)) ? SIZE_W'(tonic_pkg::K) : SIZE_W'(window_i)",
        "with equal numbers both sides of the choice are equal",
    ),
    ("dd_answer", "HAS_RATE ? rate_i : 23'd1", "nothing reads a rate in schemes without one"),
    ("flow_turns", "ended_q <= 1'd1", "in a reset, when no flow has a turn that could end"),
];

/// Circuits that are compared, with the traffic around each.
struct Bed {
    case: Case,
    circuit: Circuit,
    is_network: bool,
}

/// Returns wild programs with each credit scheme and both forms of memories, and a program whose timers expire.
fn beds(mutants: &Mutants, folder: &Path) -> Vec<Bed> {
    let wild = |program: &'static dyn Transport| {
        let case = Case { program, flows: 8, window: 64, values: &[] };
        let circuit = case.nic().circuit(&case.name(), Some(&emit(program, folder))).replaced(&mutants.files);
        Bed { case, circuit, is_network: false }
    };
    let mut beds = vec![wild(&wild::rate::Wild), wild(&wild::token::Wild), wild(&wild::window::Wild)];
    let Bed { case, circuit, .. } = wild(&wild::token::Wild);
    beds.push(Bed { case, circuit: circuit.with("WHOLE_GROUPS", 1).called("whole"), is_network: false });
    let case = Case {
        program: find("irn").expect("the program is registered"),
        flows: 16,
        window: 128,
        values: SHORT_TIMEOUTS,
    };
    let circuit = case.nic().circuit(&case.name(), None).replaced(&mutants.files);
    beds.push(Bed { case, circuit, is_network: true });
    beds
}

/// Returns whether a mutant differs from the model in so many cycles of one of the circuits.
fn is_noticed(beds: &[Bed], verilated: &Verilated, number: usize, cycles: u64) -> bool {
    beds.iter().any(|Bed { case, circuit, is_network }| {
        let start = || case.bench_of(verilated.start_mutant(&circuit.name, 1, number).expect("the model starts"));
        if *is_network {
            return try_network(&mut start(), case, 7, 2 * cycles).is_err();
        }
        try_hostile(&mut start(), case, case.flows, 7, cycles).is_err()
            || try_hostile(&mut start(), case, 1, 7, cycles).is_err()
    })
}

#[test]
#[ignore = "takes minutes: `make rtl-test`"]
fn t18_mutants_of_the_nic_are_noticed_or_are_the_same_circuit() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    let mutants = Mutants::of(&MODULES).expect("the modules are there");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let beds = beds(&mutants, folder.path());
    let circuits: Vec<Circuit> = beds.iter().map(|bed| bed.circuit.clone()).collect();
    let verilated = Verilated::build(&circuits).expect("the circuits compile");
    println!("compiled");
    assert!(!is_noticed(&beds, &verilated, 0, LONG), "the circuits without a fault");
    let is_settled = |number: &usize| SETTLED.contains(&mutants.list[number - 1].module.as_str());
    let numbers: Vec<usize> = (1..=mutants.list.len()).filter(is_settled).collect();
    let after_short = survivors(&beds, &verilated, &numbers, SHORT);
    let is_known = |number: &&usize| {
        let mutant = &mutants.list[**number - 1];
        SAME.iter().any(|(module, after, _)| *module == mutant.module && mutant.after.ends_with(after))
    };
    let (known, unknown): (Vec<usize>, Vec<usize>) = after_short.iter().partition(is_known);
    println!(
        "{} mutants, {} live at first, {} of them are the same circuit",
        numbers.len(),
        after_short.len(),
        known.len()
    );
    let alive = survivors(&beds, &verilated, &unknown, LONG);
    let alive: Vec<String> = alive.iter().map(|number| mutants.list[number - 1].to_string()).collect();
    assert!(alive.is_empty(), "{} mutants live:\n{}", alive.len(), alive.join("\n"));
    assert_eq!(known.len(), SAME.len(), "some that are said to be the same circuit are noticed, or do not exist");
}

/// Returns which mutants are not noticed in so many cycles.
fn survivors(beds: &[Bed], verilated: &Verilated, numbers: &[usize], cycles: u64) -> Vec<usize> {
    let next = AtomicUsize::new(0);
    let alive = Mutex::new(Vec::new());
    let work = || {
        while let Some(number) = numbers.get(next.fetch_add(1, Ordering::Relaxed)) {
            if !is_noticed(beds, verilated, *number, cycles) {
                alive.lock().expect("no thread panics").push(*number);
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
    let mut alive = alive.into_inner().expect("no thread panics");
    alive.sort_unstable();
    alive
}

#[test]
fn t18_a_mutant_has_one_other_operator_constant_or_condition() {
    let list = |module: &str| {
        let mutants = Mutants::of(&[module]).expect("the module is there");
        mutants.list.iter().map(|mutant| mutant.after.clone()).collect::<Vec<_>>()
    };
    assert_eq!(
        list("tonic/cr_growth"),
        [
            "assign passed = now_i + since_i",
            "assign elapsed = (passed[23] && passed[22]) ? 23'd4194304 : passed[22:0]",
            "assign elapsed = (passed[23] || passed[22]) == 1'b0 ? 23'd4194304 : passed[22:0]",
            "assign elapsed = (passed[23] || passed[22]) ? 23'd4194305 : passed[22:0]",
            "assign growth_o = {23'd1, elapsed} * {23'd0, rate_i}",
            "assign growth_o = {23'd0, elapsed} + {23'd0, rate_i}",
            "assign growth_o = {23'd0, elapsed} * {23'd1, rate_i}",
        ]
    );
}
