//! Mutants of the library's modules: for each, a proof fails that holds for the module.

use rnic_rtl::mutants::Mutants;
use rnic_rtl::mutants::family::{Family, Listed};
use rnic_rtl::proof::{holds_always_with, holds_with};
use rnic_rtl::tools::are_installed;

/// A proof: its name, the parameters, and if it is by induction.
type Proof = (&'static str, &'static [(&'static str, u64)], bool);

/// Modules with the proofs that concern them. Memories are in the tests of the circuits that have them.
const PROOFS: &[(&str, &[Proof])] = &[
    ("below_mask", &[("masks_proof", &[("W", 16)], false)]),
    ("range_mask", &[("masks_proof", &[("W", 16)], false)]),
    ("serial_after", &[("serial_after_proof", &[], false)]),
    ("first_set", &[("first_set_proof", &[("W", 20)], false), ("first_set_proof", &[], false)]),
    ("first_set_isolated", &[("first_set_proof", &[("W", 20)], false)]),
    ("first_in_ring", &[("first_in_ring_proof", &[], false)]),
    ("last_in_ring", &[("last_in_ring_proof", &[("W", 32)], false)]),
    ("popcount_group", &[("popcount_proof", &[("W", 16)], false)]),
    ("popcount", &[("popcount_proof", &[("W", 22)], false), ("popcount_step_proof", &[("W", 43)], false)]),
    ("some_set", &[("some_set_proof", &[("W", 64)], false)]),
    ("some_of_sets", &[("some_set_proof", &[("W", 64)], false)]),
    ("ram_live", &[("ram_live_proof", &[], true)]),
];

const PLACES: &[&str] = &[
    "lib/below_mask",
    "lib/range_mask",
    "lib/serial_after",
    "lib/first_set",
    "lib/first_set_isolated",
    "lib/first_in_ring",
    "lib/last_in_ring",
    "lib/popcount_group",
    "lib/popcount",
    "lib/some_set",
    "lib/some_of_sets",
    "lib/ram_live",
];

const SAME: &[Listed] = &[];

const OPEN: &[Listed] = &[];

const LIBRARY: Family = Family { name: "lib", places: PLACES, same: SAME, open: OPEN };

/// Returns whether a proof fails for a mutant.
fn is_noticed(mutants: &Mutants, number: usize, module: &str) -> bool {
    let files = mutants.fixed(number);
    let (_, proofs) = PROOFS.iter().find(|(name, _)| *name == module).expect("the module has a proof");
    let fails = |(proof, parameters, by_induction): &Proof| {
        let holds = if *by_induction { holds_always_with } else { holds_with };
        !holds(proof, &["lib"], parameters, &files).expect("yosys has a verdict")
    };
    proofs.iter().any(fails)
}

#[test]
#[ignore = "takes minutes: `make rtl-test`"]
fn t21_mutants_of_the_library_are_noticed_or_are_the_same_circuit() {
    if !are_installed(&["yosys"]) {
        return;
    }
    let mutants = LIBRARY.mutants().expect("the modules are there");
    for (module, _) in PROOFS {
        assert!(!is_noticed(&mutants, 0, module), "{module} without a fault");
    }
    let noticed = |number, module: &str, _| is_noticed(&mutants, number, module);
    LIBRARY.run(&mutants, [1, 1], noticed).unwrap_or_else(|living| panic!("{living}"));
}

#[test]
#[ignore = "writes the file"]
fn write_the_table_of_mutants() {
    LIBRARY.write_table().expect("the file can be written");
}

#[test]
fn t21_the_table_of_mutants_is_that_of_the_modules() {
    assert_eq!(LIBRARY.check_table(), Ok(()));
}
