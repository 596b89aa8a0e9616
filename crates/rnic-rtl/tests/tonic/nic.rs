//! The whole NIC: `tonic_top` against the model.

use std::path::Path;

use rnic_program::Transport;
use rnic_rtl::circuit::{Circuit, rtl_folder};
use rnic_rtl::tonic::generated::program_files;
use rnic_rtl::tonic::nic::Bench;
use rnic_rtl::tools::are_installed;
use rnic_rtl::verilated::Verilated;
use rnic_transports::programs::{all, find};

use crate::bench::{Case, SHORT_TIMEOUTS, run_hostile, run_ideal, run_network};
use crate::wild;

/// Cycles for each program and kind of traffic; `RNIC_TONIC_CYCLES` replaces it.
pub fn cycles() -> u64 {
    let wanted = std::env::var("RNIC_TONIC_CYCLES").ok();
    wanted.map_or(100_000, |text| text.parse().expect("RNIC_TONIC_CYCLES is a number of cycles"))
}

/// Writes the files of a program that is not registered; returns their folder.
pub fn emit(program: &dyn Transport, at: &Path) -> String {
    let files = program_files(program).expect("the program has graphs");
    for file in &files {
        let path = at.join(&file.path);
        std::fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("the folder can be created");
        std::fs::write(path, &file.text).expect("the file can be written");
    }
    let folder = files[0].path.split('/').next().expect("a path has a folder");
    at.join(folder).display().to_string()
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
    let cases: Vec<Case> =
        programs.iter().map(|program| Case { program: *program, flows: 8, window: 64, values: &[] }).collect();
    let circuits: Vec<Circuit> =
        cases.iter().map(|case| case.nic().circuit(&case.name(), Some(&emit(case.program, folder.path())))).collect();
    let verilated = Verilated::build(&circuits).expect("the circuits compile without warnings");
    let (mut events, mut conflicts) = ([0; 32], [0; 5]);
    let mut add = |bench: &Bench| {
        events.iter_mut().zip(bench.events).for_each(|(sum, count)| *sum += count);
        conflicts.iter_mut().zip(bench.conflicts).for_each(|(sum, count)| *sum += count);
    };
    for (seed, case) in (1..).zip(&cases) {
        let mut bench = case.bench(&verilated, 1);
        let left = run_hostile(&mut bench, case, case.flows, seed, cycles());
        add(&bench);
        // One busy flow, whose events often coincide.
        let mut bench = case.bench(&verilated, 2);
        let left = left + run_hostile(&mut bench, case, 1, seed, 2 * cycles());
        assert!(left > cycles() / 100, "{}: {left} addresses left", case.name());
        println!("{}: {left} addresses, {:?}", case.name(), bench.tonic.counters());
        add(&bench);
    }
    println!("merge cases hit (I0 = 1, I1 = 2, P = 4, G = 8, D = 16): {events:?}");
    // The program is not called for a packet and a visit of one flow in one cycle, so their answers never meet.
    let is_possible = |case: usize| case & 0b110 != 0b110;
    let enough = (0..).zip(&events).all(|(case, count)| if is_possible(case) { *count >= 1_000 } else { *count == 0 });
    assert!(enough, "{events:?}");
    println!("conflicts of calls of the program: {conflicts:?}");
    assert!(conflicts.iter().all(|count| *count >= 1_000), "{conflicts:?}");
}

#[test]
fn t4_t5_t13_t20_all_programs_run_equally() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    let cases: Vec<Case> =
        all().map(|program| Case { program, flows: 16, window: 128, values: SHORT_TIMEOUTS }).collect();
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

/// Returns the case of a registered program.
fn case(name: &str, flows: u16, window: u16, values: &'static [(&'static str, u64)]) -> Case {
    Case { program: find(name).expect("the program is registered"), flows, window, values }
}

#[test]
fn t4_t5_t23_1024_flows_send_an_address_each_cycle_while_an_acknowledgement_arrives_in_each() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    const FLOWS: u64 = 1_024;
    let case = case("reno", FLOWS as u16, 128, &[]);
    let verilated = Verilated::build(&[circuit(&case)]).expect("the circuit compiles without warnings");
    // Commands of the 1024 flows come in the first 4096 cycles; then 10^5 cycles without any.
    let (start, cycles) = (6_000, cycles().max(100_000));
    let mut bench = case.bench(&verilated, 1);
    let left = run_ideal(&mut bench, &case, 300, start + cycles);
    // The first command is taken in cycle 0, the limit in cycle 1.
    println!("first address in cycle {}, {} in {} cycles", left[0].0, left.len(), start + cycles);
    assert!(left[0].0 <= 1 + 12, "the first address is valid in cycle {}", left[0].0);
    let steady: Vec<_> = left.iter().filter(|(cycle, _)| *cycle >= start).collect();
    assert_eq!(steady.len() as u64, cycles, "an address in each cycle");
    let mut last = [0; FLOWS as usize];
    for (cycle, flow) in steady {
        let turn = core::mem::replace(&mut last[usize::from(*flow)], *cycle);
        assert!(turn == 0 || cycle - turn == FLOWS, "flow {flow} in cycle {turn} and {cycle}");
    }
    let (delivery, _) = bench.tonic.counters();
    assert!(delivery.packets >= cycles, "an acknowledgement in each cycle: {delivery:?}");
    assert_eq!((delivery.repeats, delivery.ignored), (0, 0));
}

#[test]
fn t20_a_rate_of_20_gbps_sends_1500_bytes_each_60_cycles() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    // 25 bytes a cycle; and 19.9 Gbit/s, which no prefix of the rate says exactly.
    const FULL: &[(&str, u64)] = &[("line_rate", 1_638_400), ("rto", 8_000)];
    const ODD: &[(&str, u64)] = &[("line_rate", 1_630_208), ("rto", 8_000)];
    let cases = [case("dcqcn", 8, 128, FULL), case("dcqcn", 8, 128, ODD)];
    let verilated = Verilated::build(&[circuit(&cases[0])]).expect("the circuit compiles without warnings");
    for (case, rate) in cases.iter().zip([1_638_400, 1_630_208]) {
        let cycles = cycles();
        let mut bench = case.bench(&verilated, 1);
        let left = run_ideal(&mut bench, case, 100, cycles);
        let mut counts = [0_u64; 8];
        left.iter().for_each(|(_, flow)| counts[usize::from(*flow)] += 1);
        // Bytes at the rate, and the burst of four segments with which a flow begins.
        let least = (cycles - 100) * rate / (1_500 << 16);
        assert!(counts.iter().all(|count| (least..=least + 6).contains(count)), "{least}: {counts:?}");
        let waits = bench.tonic.counters().1.waits;
        assert!(waits > 7 * least, "{waits} waits");
    }
}

#[test]
#[ignore = "takes a minute: `make rtl-test`"]
fn t24_1024_and_2048_flows_run_equally_with_windows_of_256() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    let cases = [case("irn", 2_048, 256, SHORT_TIMEOUTS), case("sack", 1_024, 256, SHORT_TIMEOUTS)];
    let circuits: Vec<Circuit> = cases.iter().map(circuit).collect();
    let verilated = Verilated::build(&circuits).expect("the circuits compile without warnings");
    for (seed, case) in (1..).zip(&cases) {
        let mut bench = case.bench(&verilated, 1);
        let left = run_network(&mut bench, case, seed, cycles() / 2);
        assert!(left as u64 > cycles() / 40, "{}: {left} addresses left", case.name());
        let mut bench = case.bench(&verilated, 2);
        run_hostile(&mut bench, case, case.flows, seed, cycles() / 2);
        println!("{}: {left} addresses, {:?}", case.name(), bench.tonic.counters());
    }
}

#[test]
fn t2_few_wires_connect_the_engines() {
    let text = |file: &str| std::fs::read_to_string(rtl_folder().join("tonic").join(file)).expect("the file is there");
    // Neither engine instantiates a module of the other.
    for (file, other) in
        [("dd_engine.sv", "cr_"), ("dd_context.sv", "cr_"), ("cr_engine.sv", "dd_"), ("cr_context.sv", "dd_")]
    {
        let modules = text(file);
        let found = modules.lines().find(|line| line.trim_start().starts_with(other));
        assert_eq!(found, None, "{file}");
    }
    // An address or a command: valid, 11 bits of flow, the address or the command. Back: valid and flow.
    let package = std::fs::read_to_string(rtl_folder().join("gen/k256/tonic_pkg.sv")).expect("the package is there");
    let width =
        package.lines().find_map(|line| line.trim().strip_prefix("localparam int unsigned FORWARD_W = 17 + ENTRY_W"));
    assert!(width.is_some(), "the width of the wires forward");
    let bits = 1 + 11 + 17 + 27;
    assert!(bits <= 64, "{bits} wires forward");
}
