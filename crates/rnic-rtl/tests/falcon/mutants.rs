//! Mutants of Falcon's modules: each is noticed by the comparison with the specification, or is the same circuit.

use rnic_rtl::mutants::family::{Family, Listed, panics};
use rnic_rtl::tools::are_installed;
use rnic_rtl::verilated::Verilated;

use super::{check_rack, check_windows, rack, rx_window};

/// Modules with mutants.
const PLACES: &[&str] = &["falcon/falcon_rx_step", "falcon/falcon_rx_window", "falcon/falcon_rack"];

const SAME: &[Listed] = &[Listed::new(
    "falcon_rack",
    &["(!has_due_q || (wait_left <= due_q))"],
    "the shortest time is the same where another is as short",
)
.proved(&[("falcon_rack", &["falcon", "lib"])])];

const OPEN: &[Listed] = &[];

const FALCON: Family = Family { name: "falcon", places: PLACES, same: SAME, open: OPEN };

/// Events that notice most mutants, and those after which one that lives is taken for the same circuit.
const SHORT: u64 = 8_192;
const LONG: u64 = 1_000_000;

/// States of registers before a reset.
const RESETS: u32 = 16;

/// Returns whether a mutant differs from the specification in so many cycles.
fn is_noticed(verilated: &Verilated, (number, module): (usize, &str), events: u64) -> bool {
    let start = |name: &str, seed| verilated.start_mutant(name, seed, number).expect("the model starts");
    panics(|| {
        if module == "falcon_rack" {
            // Before a reset, registers have other values with each seed.
            for seed in 2..=RESETS {
                check_rack(start(module, seed), 1);
            }
            check_rack(start(module, 1), events);
        } else {
            check_windows(start("falcon_rx_window", 1), events);
        }
    })
}

#[test]
#[ignore = "takes minutes: `make rtl-test`"]
fn f9_f11_mutants_of_the_modules_are_noticed_or_are_the_same_circuit() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    let mutants = FALCON.mutants().expect("the modules are there");
    let circuits = [rx_window(), rack()].map(|circuit| circuit.replaced(&mutants.files));
    let verilated = Verilated::build(&circuits).expect("the circuits compile");
    for module in ["falcon_rx_window", "falcon_rack"] {
        assert!(!is_noticed(&verilated, (0, module), LONG), "{module} without a fault");
    }
    let noticed = |number, module: &str, events| is_noticed(&verilated, (number, module), events);
    FALCON.run(&mutants, [SHORT, LONG], noticed).unwrap_or_else(|living| panic!("{living}"));
}

#[test]
#[ignore = "takes a minute: `make rtl-test`"]
fn f9_f11_mutants_that_are_the_same_circuit_are_proved() {
    if !are_installed(&["yosys"]) {
        return;
    }
    FALCON.check_proofs().unwrap_or_else(|missing| panic!("{missing}"));
}

#[test]
#[ignore = "writes the file"]
fn write_the_table_of_mutants() {
    FALCON.write_table().expect("the file can be written");
}

#[test]
fn f9_f11_the_table_of_mutants_is_that_of_the_modules() {
    assert_eq!(FALCON.check_table(), Ok(()));
}
