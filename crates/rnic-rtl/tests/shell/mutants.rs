//! Mutants of the header shell: each is noticed by the comparison with rnic-wire, or is the same circuit.

use rnic_rtl::mutants::family::{Family, Listed, panics};
use rnic_rtl::tools::are_installed;
use rnic_rtl::verilated::Verilated;

use super::{check_collector, check_decoder, collector, decoder, receive_and_send, shell};

/// Modules with mutants.
const PLACES: &[&str] = &["shell/header_decode", "shell/header_collect", "shell/header_build", "shell/header_shell"];

const SAME: &[Listed] = &[
    Listed::new(
        "header_collect",
        &["length_o = (total_q >= MAX) ? MAX[4:0] : total_q[4:0]"],
        "both choices are the same number where the two are equal",
    )
    .proved(&[("header_collect", &["shell", "lib"])]),
    Listed::new(
        "header_build",
        &["is_last = beat_q == BEAT_W'(BEATS + 1)", "beat_q <= is_last ? '0 : beat_q - 1'b1"],
        "a header of twelve bytes has at most two beats, whose numbers have one bit",
    )
    .proved(&[("header_build", &["shell", "lib"])]),
];

const OPEN: &[Listed] = &[];

const SHELL: Family = Family { name: "shell", places: PLACES, same: SAME, open: OPEN };

/// Packets that notice most mutants, and those after which one that lives is taken for the same circuit.
const SHORT: u64 = 400;
const LONG: u64 = 5_000;

/// States of registers before a reset.
const RESETS: u32 = 8;

/// Returns whether a mutant differs from rnic-wire in so many packets.
fn is_noticed(verilated: &Verilated, (number, module): (usize, &str), packets: u64) -> bool {
    let start = |name: &str, seed| verilated.start_mutant(name, seed, number).expect("the model starts");
    panics(|| {
        if module == "header_decode" {
            check_decoder(start(module, 1), 20 * packets as usize);
        }
        if module == "header_collect" {
            check_collector(start(module, 1), 31, packets as usize);
        }
        for data_bits in [64, 512] {
            let name = format!("header_shell_{data_bits}");
            for seed in 1..=RESETS {
                let packets = if seed == 1 { packets } else { 20 };
                receive_and_send(start(&name, seed), data_bits, seed.into(), packets as usize);
            }
        }
    })
}

#[test]
#[ignore = "takes minutes: `make rtl-test`"]
fn t1_mutants_of_the_modules_are_noticed_or_are_the_same_circuit() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    let mutants = SHELL.mutants().expect("the modules are there");
    let circuits = [decoder(), collector(), shell(64), shell(512)].map(|circuit| circuit.replaced(&mutants.files));
    let verilated = Verilated::build(&circuits).expect("the circuits compile");
    assert!(!is_noticed(&verilated, (0, "header_decode"), LONG), "the shell without a fault");
    let noticed = |number, module: &str, events| is_noticed(&verilated, (number, module), events);
    SHELL.run(&mutants, [SHORT, LONG], noticed).unwrap_or_else(|living| panic!("{living}"));
}

#[test]
#[ignore = "takes a minute: `make rtl-test`"]
fn t1_mutants_that_are_the_same_circuit_are_proved() {
    if !are_installed(&["yosys"]) {
        return;
    }
    SHELL.check_proofs().unwrap_or_else(|missing| panic!("{missing}"));
}

#[test]
#[ignore = "writes the file"]
fn write_the_table_of_mutants() {
    SHELL.write_table().expect("the file can be written");
}

#[test]
fn t1_the_table_of_mutants_is_that_of_the_modules() {
    assert_eq!(SHELL.check_table(), Ok(()));
}
