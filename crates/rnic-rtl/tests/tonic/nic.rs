//! The whole NIC: `tonic_top` against the model.

use std::path::Path;

use rnic_program::Transport;
use rnic_rtl::circuit::Circuit;
use rnic_rtl::tonic::generated::program_files;
use rnic_rtl::tools::are_installed;
use rnic_rtl::verilated::Verilated;
use rnic_transports::programs::all;

use crate::bench::{Case, run_hostile, run_network};
use crate::wild;

/// Cycles for each program and kind of traffic; `RNIC_TONIC_CYCLES` replaces it.
fn cycles() -> u64 {
    let wanted = std::env::var("RNIC_TONIC_CYCLES").ok();
    wanted.map_or(100_000, |text| text.parse().expect("RNIC_TONIC_CYCLES is a number of cycles"))
}

/// Writes the files of a program that is not registered; returns their folder.
fn emit(program: &dyn Transport, at: &Path) -> &'static str {
    let files = program_files(program).expect("the program has graphs");
    for file in &files {
        let path = at.join(&file.path);
        std::fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("the folder can be created");
        std::fs::write(path, &file.text).expect("the file can be written");
    }
    let folder = files[0].path.split('/').next().expect("a path has a folder");
    Box::leak(at.join(folder).display().to_string().into_boxed_str())
}

fn circuit(case: &Case) -> Circuit {
    case.nic().circuit(&case.name(), None)
}

#[test]
fn t2_t18_programs_of_any_behaviour_run_equally_and_all_conflicts_occur() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder can be made");
    let programs: [&'static dyn Transport; 3] = [&wild::window::Wild, &wild::rate::Wild, &wild::token::Wild];
    let cases: Vec<Case> = programs.iter().map(|program| Case { program: *program, flows: 8, window: 64 }).collect();
    let circuits: Vec<Circuit> =
        cases.iter().map(|case| case.nic().circuit(&case.name(), Some(emit(case.program, folder.path())))).collect();
    let verilated = Verilated::build(&circuits).expect("the circuits compile without warnings");
    let mut events = [0; 32];
    for (seed, case) in (1..).zip(&cases) {
        let mut bench = case.bench(&verilated, 1);
        let left = run_hostile(&mut bench, case, case.flows, seed, cycles());
        events.iter_mut().zip(bench.events).for_each(|(sum, count)| *sum += count);
        // One busy flow, whose events often coincide.
        let mut bench = case.bench(&verilated, 2);
        let left = left + run_hostile(&mut bench, case, 1, seed, 2 * cycles());
        assert!(left > cycles() / 100, "{}: {left} addresses left", case.name());
        println!("{}: {left} addresses, {:?}", case.name(), bench.tonic.counters());
        events.iter_mut().zip(bench.events).for_each(|(sum, count)| *sum += count);
    }
    println!("merge cases hit (I0 = 1, I1 = 2, P = 4, G = 8, D = 16): {events:?}");
    assert!(events.iter().all(|count| *count >= 1_000), "{events:?}");
}

#[test]
fn t4_t5_t13_t20_all_programs_run_equally() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    let cases: Vec<Case> = all().map(|program| Case { program, flows: 16, window: 128 }).collect();
    let circuits: Vec<Circuit> = cases.iter().map(circuit).collect();
    let verilated = Verilated::build(&circuits).expect("the circuits compile without warnings");
    for (seed, case) in (1..).zip(&cases) {
        let mut bench = case.bench(&verilated, 1);
        let left = run_network(&mut bench, case, seed, cycles());
        println!("{}: {left} addresses, {:?}", case.name(), bench.tonic.counters());
        let mut bench = case.bench(&verilated, 2);
        let lies = run_hostile(&mut bench, case, case.flows, seed, cycles());
        println!("{}: {lies} addresses among lies, {:?}", case.name(), bench.tonic.counters());
        assert!(left > 1_000 && lies > 1_000, "{}: {left} and {lies} addresses left", case.name());
    }
}
