//! Mutants of the NIC's modules: each is noticed by the comparison with the model, or is the same circuit.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rnic_program::{Scheme, Transport};
use rnic_rtl::circuit::{Circuit, rtl_folder};
use rnic_rtl::mutants::{Mutant, Mutants};
use rnic_rtl::tools::are_installed;
use rnic_rtl::verilated::{Model, Verilated};
use rnic_transports::programs::find;

use crate::bench::{Case, SHORT_TIMEOUTS, try_hostile, try_network};
use crate::credit::{self, Check};
use crate::nic::emit;
use crate::{wheel, wild};
use same::{OPEN, SAME, Same};

mod same;

/// Modules with mutants; those that only connect others have none. The library has proofs, except for the set of flows.
const MODULES: [&str; 17] = [
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

/// Modules that only credit by rates has.
const OF_RATES: [&str; 6] = ["cr_rate", "cr_pace", "cr_oldest", "cr_growth", "cr_divide", "wheel"];

/// Cycles that notice most mutants, and those after which one that lives is taken for the same circuit.
const SHORT: u64 = 4_096;
const LONG: u64 = 32_768;

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
            Traffic::Hostile(case) | Traffic::Network(case) => {
                case.program.description().scheme == Scheme::Rate || !OF_RATES.contains(&module)
            }
        }
    }

    /// Returns whether a mutant differs from the model in so many cycles.
    fn is_noticed(&self, verilated: &Verilated, number: usize, cycles: u64) -> bool {
        let start = || verilated.start_mutant(&self.circuit.name, 1, number).expect("the model starts");
        match &self.traffic {
            Traffic::Hostile(case) => {
                try_hostile(&mut case.bench_of(start()), case, case.flows, 7, cycles).is_err()
                    || try_hostile(&mut case.bench_of(start()), case, 1, 7, cycles).is_err()
            }
            Traffic::Network(case) => try_network(&mut case.bench_of(start()), case, 7, 2 * cycles).is_err(),
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
    let wheels = [(wheel::circuit(16), check_wheel as Check, 6), (wheel::circuit(2_048), check_large_wheel, 6)];
    let module = |(circuit, check, factor): (Circuit, Check, u64)| Testbench {
        circuit: circuit.replaced(&mutants.files),
        traffic: Traffic::Module(check, factor),
    };
    let mut testbenches: Vec<Testbench> = modules.chain(wheels).map(module).collect();
    let wild = |program: &'static dyn Transport| Testbench::hostile(program, mutants, folder);
    testbenches.extend([wild(&wild::rate::Wild), wild(&wild::token::Wild), wild(&wild::window::Wild)]);
    let Testbench { circuit, traffic } = wild(&wild::token::Wild);
    testbenches.push(Testbench { circuit: circuit.with("WHOLE_GROUPS", 1).called("whole"), traffic });
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
    let mutants = Mutants::of(&MODULES).expect("the modules are there");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let testbenches = testbenches(&mutants, folder.path());
    let circuits: Vec<Circuit> = testbenches.iter().map(|testbench| testbench.circuit.clone()).collect();
    let verilated = Verilated::build(&circuits).expect("the circuits compile");
    println!("compiled");
    let wanted = std::env::var("RNIC_MUTANTS").ok();
    let numbers = wanted.as_ref().map_or((1..=mutants.list.len()).collect(), |text| numbers(text));
    if wanted.is_none() {
        let differs = testbenches.iter().find(|testbench| testbench.is_noticed(&verilated, 0, LONG));
        assert!(
            differs.is_none(),
            "{} without a fault",
            differs.map_or("", |testbench| testbench.circuit.name.as_str())
        );
    }
    let after_short = survivors(&testbenches, &verilated, (&mutants, &numbers), SHORT);
    let (known, unknown): (Vec<usize>, Vec<usize>) =
        after_short.iter().partition(|number| is_known(&mutants.list[**number - 1]));
    println!("{} mutants, {} live at first, {} are known", numbers.len(), after_short.len(), known.len());
    let alive = survivors(&testbenches, &verilated, (&mutants, &unknown), LONG);
    let alive: Vec<String> = alive.iter().map(|number| mutants.list[number - 1].to_string()).collect();
    assert!(alive.is_empty(), "{} mutants live:\n{}", alive.len(), alive.join("\n"));
    let listed: usize = SAME.iter().chain(OPEN).map(|same| same.after.len()).sum();
    assert!(wanted.is_some() || known.len() == listed, "some that are said to live are noticed, or do not exist");
}

/// Reads numbers of mutants, such as `12,40-52`: `RNIC_MUTANTS` has those that are run instead of all.
fn numbers(text: &str) -> Vec<usize> {
    let number = |text: &str| text.parse::<usize>().expect("RNIC_MUTANTS has numbers");
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        number(first)..=number(last)
    };
    text.split(',').flat_map(range).collect()
}

/// Returns whether a mutant is said to be the same circuit, or that traffic is missing.
fn is_known(mutant: &Mutant) -> bool {
    let is_it = |same: &&Same| same.module == mutant.module && same.after.iter().any(|end| mutant.after.ends_with(end));
    SAME.iter().chain(OPEN).any(|same| is_it(&same))
}

/// Returns which mutants are not noticed in so many cycles.
fn survivors(
    testbenches: &[Testbench],
    verilated: &Verilated,
    (mutants, numbers): (&Mutants, &[usize]),
    cycles: u64,
) -> Vec<usize> {
    let next = AtomicUsize::new(0);
    let alive = Mutex::new(Vec::new());
    let work = || {
        while let Some(number) = numbers.get(next.fetch_add(1, Ordering::Relaxed)) {
            let module = mutants.list[number - 1].module.as_str();
            if !is_noticed(testbenches, verilated, (*number, module), cycles) {
                println!("alive {number} {cycles}: {}", mutants.list[number - 1]);
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

/// Returns how many mutants of a module are in a list.
fn listed(list: &[Same], module: &str) -> usize {
    list.iter().filter(|same| same.module == module).map(|same| same.after.len()).sum()
}

/// Returns how many mutants each module has, how many of them are the same circuit, and how many live without that.
fn table(mutants: &Mutants) -> String {
    let line = |place: &&str| {
        let module = place.rsplit('/').next().unwrap_or(place);
        let all = mutants.list.iter().filter(|mutant| mutant.module == module).count();
        let (same, open) = (listed(SAME, module), listed(OPEN, module));
        let noticed = all - same - open;
        format!("  \"{module}\": {{ \"mutants\": {all}, \"noticed\": {noticed}, \"same\": {same}, \"open\": {open} }}")
    };
    format!("{{\n{}\n}}\n", MODULES.iter().map(line).collect::<Vec<_>>().join(",\n"))
}

fn table_file() -> PathBuf {
    rtl_folder().join("mutants.json")
}

#[test]
#[ignore = "writes the file"]
fn write_the_table_of_mutants() {
    let mutants = Mutants::of(&MODULES).expect("the modules are there");
    std::fs::write(table_file(), table(&mutants)).expect("the file can be written");
}

/// After a change of a module: `cargo test --package rnic-rtl --test tonic -- --ignored write_the`, then
/// `tools/rtl/report.py page`.
#[test]
fn t18_the_table_of_mutants_is_that_of_the_modules() {
    let mutants = Mutants::of(&MODULES).expect("the modules are there");
    for Same { module, after, reason } in SAME.iter().chain(OPEN) {
        for end in *after {
            let is_it = |mutant: &&Mutant| mutant.module == *module && mutant.after.ends_with(end);
            // A line may be there for each of several credit schemes.
            let lines: BTreeSet<&str> = mutants.list.iter().filter(is_it).map(|mutant| mutant.after.as_str()).collect();
            assert_eq!(lines.len(), 1, "lines of {module} with {end} ({reason})");
        }
    }
    let count = |list: &[Same]| list.iter().map(|same| same.after.len()).sum::<usize>();
    let (faults, open) = (mutants.list.len() - count(SAME), count(OPEN));
    assert!(50 * open <= faults, "{open} of {faults} faults are not noticed");
    let text = std::fs::read_to_string(table_file()).expect("the file is there");
    assert_eq!(text, table(&mutants), "rtl/mutants.json");
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
