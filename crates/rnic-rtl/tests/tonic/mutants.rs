//! Mutants of the NIC's modules: each is noticed by the comparison with the model, or is the same circuit.

use std::collections::BTreeSet;
use std::path::Path;

use rnic_program::{Scheme, Transport};
use rnic_rtl::circuit::Circuit;
use rnic_rtl::mutants::Mutants;
use rnic_rtl::mutants::family::Family;
use rnic_rtl::proof::{Verdict, compare_forms};
use rnic_rtl::tools::are_installed;
use rnic_rtl::verilated::{Model, Verilated};
use rnic_transports::programs::find;

use crate::bench::{Case, SHORT_TIMEOUTS, try_hostile, try_network};
use crate::credit::{self, Check};
use crate::nic::emit;
use crate::{wheel, wild};
use same::{RATE, SAME};
use traffic::{calm, check_crowd, try_grants, try_idle, try_trickle};

mod same;
mod traffic;

/// Modules with mutants; those that only connect others have none.
const PLACES: &[&str] = &[
    "tonic/dd_engine",
    "tonic/dd_merge",
    "tonic/dd_generate",
    "tonic/dd_incoming0",
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

const NIC: Family = Family { name: "tonic", places: PLACES, same: SAME, open: &[] };

/// Modules that only credit by rates has.
const OF_RATES: [&str; 6] = ["cr_rate", "cr_pace", "cr_oldest", "cr_growth", "cr_divide", "wheel"];

/// Cycles that notice most mutants, and those after which one that lives is taken for the same circuit.
const SHORT: u64 = 4_096;
const LONG: u64 = 32_768;

/// States of registers and memories before a reset.
const RESETS: u32 = 16;

/// A circuit that is compared with the model.
struct Testbench {
    circuit: Circuit,
    traffic: Traffic,
}

/// Traffic around a circuit.
enum Traffic {
    /// Packets that say anything, to a NIC.
    Hostile(Case),
    /// A bad network around a NIC.
    Network(Case),
    /// Single segments, at a rate.
    Trickle(Case),
    /// Grants of as much as is believed.
    Grants(Case),
    /// Resets, from several states.
    Resets(Case),
    /// Inputs of one module, in this number of cycles for each of a NIC.
    Module(Check, u64),
}

impl Testbench {
    fn hostile(program: &'static dyn Transport, mutants: &Mutants, folder: &Path) -> Self {
        let case = Case { program, flows: 8, window: 64, values: &[] };
        let circuit = case.nic().circuit(&case.name(), Some(&emit(program, folder))).replaced(&mutants.files);
        Self { circuit, traffic: Traffic::Hostile(case) }
    }

    /// Returns whether a module with mutants is in the circuit.
    fn has(&self, module: &str) -> bool {
        match &self.traffic {
            Traffic::Module(..) => module == self.circuit.module,
            Traffic::Hostile(case)
            | Traffic::Network(case)
            | Traffic::Trickle(case)
            | Traffic::Grants(case)
            | Traffic::Resets(case) => case.program.description().scheme == Scheme::Rate || !OF_RATES.contains(&module),
        }
    }

    /// Returns whether a mutant differs from the model in so many cycles.
    fn is_noticed(&self, verilated: &Verilated, number: usize, cycles: u64) -> bool {
        let start_of = |seed| verilated.start_mutant(&self.circuit.name, seed, number).expect("the model starts");
        let start = || start_of(1);
        match &self.traffic {
            Traffic::Hostile(case) => {
                try_hostile(&mut case.bench_of(start()), case, case.flows, 7, cycles).is_err()
                    || try_hostile(&mut case.bench_of(start()), case, 1, 7, cycles).is_err()
            }
            Traffic::Network(case) => try_network(&mut case.bench_of(start()), case, 7, 2 * cycles).is_err(),
            Traffic::Trickle(case) => {
                [8, 2].iter().any(|full| try_trickle(&mut case.bench_of(start()), case, *full, 2 * cycles).is_err())
            }
            Traffic::Grants(case) => try_grants(&mut case.bench_of(start()), case, 7, cycles / 2).is_err(),
            Traffic::Resets(case) => (1..=RESETS).any(|seed| try_idle(&mut case.bench_of(start_of(seed)), 64).is_err()),
            Traffic::Module(check, factor) => check(&mut start(), factor * cycles).is_err(),
        }
    }
}

fn check_wheel(model: &mut Model, cycles: u64) -> Result<(), String> {
    wheel::try_wheel(model, 16, 1, cycles).map(drop)
}

fn check_large_wheel(model: &mut Model, cycles: u64) -> Result<(), String> {
    wheel::try_wheel(model, 2_048, 2, cycles).map(drop)
}

/// Returns the modules that compute credit by rates alone; wild programs with each credit scheme and both forms of
/// memories; and a program whose timers expire.
fn testbenches(mutants: &Mutants, folder: &Path) -> Vec<Testbench> {
    let modules = credit::modules().into_iter().map(|(circuit, check)| (circuit, check, 4));
    let wheels = [
        (wheel::circuit(16), check_wheel as Check, 6),
        (wheel::circuit(2_048), check_large_wheel, 6),
        (wheel::circuit(2_048), check_crowd, 6),
    ];
    let module = |(circuit, check, factor): (Circuit, Check, u64)| Testbench {
        circuit: circuit.replaced(&mutants.files),
        traffic: Traffic::Module(check, factor),
    };
    let mut testbenches: Vec<Testbench> = modules.chain(wheels).map(module).collect();
    let wild = |program: &'static dyn Transport| Testbench::hostile(program, mutants, folder);
    testbenches.extend([wild(&wild::rate::Wild), wild(&wild::token::Wild), wild(&wild::window::Wild)]);
    let Testbench { circuit, traffic } = wild(&wild::token::Wild);
    let with_tokens = |traffic| Testbench { circuit: circuit.clone(), traffic };
    if let Traffic::Hostile(case) = traffic {
        testbenches.extend([with_tokens(Traffic::Grants(case)), with_tokens(Traffic::Resets(case))]);
    }
    testbenches.push(Testbench { circuit: circuit.with("WHOLE_GROUPS", 1).called("whole"), traffic });
    let case = Case { program: &calm::Calm, flows: 8, window: 64, values: &[] };
    let circuit = case.nic().circuit(&case.name(), Some(&emit(case.program, folder))).replaced(&mutants.files);
    testbenches.push(Testbench { circuit, traffic: Traffic::Trickle(case) });
    let program = find("irn").expect("the program is registered");
    let case = Case { program, flows: 16, window: 128, values: SHORT_TIMEOUTS };
    let circuit = case.nic().circuit(&case.name(), None).replaced(&mutants.files);
    testbenches.push(Testbench { circuit, traffic: Traffic::Network(case) });
    testbenches
}

/// Returns whether a mutant is noticed in one of the circuits.
fn is_noticed(testbenches: &[Testbench], verilated: &Verilated, (number, module): (usize, &str), cycles: u64) -> bool {
    testbenches
        .iter()
        .filter(|testbench| testbench.has(module))
        .any(|testbench| testbench.is_noticed(verilated, number, cycles))
}

#[test]
#[ignore = "takes minutes: `make rtl-test`"]
fn t18_mutants_of_the_nic_are_noticed_or_are_the_same_circuit() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    let mutants = NIC.mutants().expect("the modules are there");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let testbenches = testbenches(&mutants, folder.path());
    let mut circuits: Vec<Circuit> = testbenches.iter().map(|testbench| testbench.circuit.clone()).collect();
    let mut names = BTreeSet::new();
    circuits.retain(|circuit| names.insert(circuit.name.clone()));
    let verilated = Verilated::build(&circuits).expect("the circuits compile");
    let differs = testbenches.iter().find(|testbench| testbench.is_noticed(&verilated, 0, LONG));
    let name = differs.map_or("", |testbench| testbench.circuit.name.as_str());
    assert!(differs.is_none(), "{name} without a fault");
    let noticed = |number, module: &str, cycles| is_noticed(&testbenches, &verilated, (number, module), cycles);
    NIC.run(&mutants, [SHORT, LONG], noticed).unwrap_or_else(|living| panic!("{living}"));
}

#[test]
#[ignore = "takes a minute: `make rtl-test`"]
fn t18_mutants_that_are_the_same_circuit_are_proved() {
    if !are_installed(&["yosys"]) {
        return;
    }
    NIC.check_proofs().unwrap_or_else(|missing| panic!("{missing}"));
}

/// A proof that nothing can refute would call every mutant the same circuit: of an output, of the next value of a
/// register, and of an input of a memory.
#[test]
#[ignore = "takes seconds: `make rtl-test`"]
fn t18_a_mutant_that_is_another_circuit_is_not_proved() {
    if !are_installed(&["yosys"]) {
        return;
    }
    for (place, after) in [
        ("tonic/dd_answer", "answer_o.timer = timer_i[23] == 1'b0 ? 24'h7FFFFF : timer_i"),
        ("tonic/cr_divide", "high = high + {1'b0, by}"),
        ("tonic/wheel", ".clear_i(!is_period"),
    ] {
        let module = place.rsplit('/').next().unwrap_or_default();
        let mutants = Mutants::of(&[place]).expect("the module is there");
        let number = (1..).zip(&mutants.list).find(|(_, mutant)| mutant.after.ends_with(after));
        let (number, _) = number.unwrap_or_else(|| panic!("{module} has a mutant with {after}"));
        let verdict = compare_forms(module, RATE, &mutants.fixed(0), &mutants.fixed(number));
        assert_eq!(verdict.expect("yosys has a verdict"), Verdict::Different, "{module}: {after}");
    }
}

#[test]
#[ignore = "writes the file"]
fn write_the_table_of_mutants() {
    NIC.write_table().expect("the file can be written");
}

/// After a change of a module: `cargo test --package rnic-rtl --test tonic -- --ignored write_the`, then
/// `tools/rtl/report.py page`.
#[test]
fn t18_the_table_of_mutants_is_that_of_the_modules() {
    assert_eq!(NIC.check_table(), Ok(()));
}

#[test]
fn t18_a_mutant_has_one_other_operator_constant_or_condition() {
    let list = |module: &str| {
        let mutants = Mutants::of(&[module]).expect("the module is there");
        mutants.list.iter().map(|mutant| mutant.after.clone()).collect::<Vec<_>>()
    };
    // A width, and an output that only tests read, have none.
    assert!(list("lib/flow_set").iter().all(|after| !after.contains("(F - 1)'")));
    assert!(list("tonic/dd_engine").iter().all(|after| !after.contains("debug_events_o")));
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
