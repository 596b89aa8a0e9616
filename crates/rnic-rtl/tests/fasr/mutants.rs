//! Mutants of FaSR's modules: each is noticed by the comparison with the specification, or is the same circuit.

use rnic_rtl::circuit::Circuit;
use rnic_rtl::mutants::family::{Family, Listed, panics};
use rnic_rtl::tools::are_installed;
use rnic_rtl::verilated::Verilated;

use super::circuits;
use super::decisions::{check_place, check_receiver, check_sender};
use super::module::{check_gbn, check_sr};
use super::parts::{check_cc, check_manager, check_rto, check_send, check_update};
use super::pools::{check_blocks, check_units};
use super::top::{check_gbn_layer, check_held, check_layer, check_waits};

/// Modules with mutants; those that only connect others have none.
const PLACES: &[&str] = &[
    "fasr/fasr_rx",
    "fasr/fasr_tx",
    "fasr/fasr_place",
    "fasr/fasr_pool1",
    "fasr/fasr_pool2",
    "fasr/fasr_sr",
    "fasr/fasr_gbn",
    "fasr/fasr_manager",
    "fasr/fasr_cc",
    "fasr/fasr_update",
    "fasr/fasr_rto",
    "fasr/fasr_send",
    "fasr/fasr_fifo",
    "fasr/fasr_top",
];

/// Modules that only the transport layer has.
const OF_LAYERS: [&str; 7] =
    ["fasr_manager", "fasr_cc", "fasr_update", "fasr_rto", "fasr_send", "fasr_fifo", "fasr_top"];

/// Folders of all modules.
const FOLDERS: &[&str] = &["fasr", "lib"];

const SAME: &[Listed] = &[
    Listed::new(
        "fasr_tx",
        &["(advance[9:0] > lane_i.run)) ? '0 : lane_i.run - advance[9:0]"],
        "both choices are zero where the two are equal",
    )
    .proved(&[("fasr_tx", FOLDERS)]),
    Listed::new(
        "fasr_tx",
        &["(to_last <= 24'd10))", "(to_last < 24'd11))"],
        "ten packets behind the first of the tail block, none of the block's ten bits is set",
    ),
    Listed::new(
        "fasr_place",
        &["4'(offset + {index, 3'd0} - {2'd0, index, 1'd0})", "4'(offset - {index, 3'd0} - {2'd1, index, 1'd0})"],
        "the position has four bits, to which neither term adds",
    )
    .proved(&[("fasr_place", FOLDERS)]),
    Listed::new("fasr_sr", &["link = 1'd1"], "without a block that is taken, none is linked")
        .proved(&[("fasr_sr", FOLDERS)]),
];

const OPEN: &[Listed] = &[];

const FASR: Family = Family { name: "fasr", places: PLACES, same: SAME, open: OPEN };

/// Events that notice most mutants, and those after which one that lives is taken for the same circuit.
const SHORT: u64 = 20_000;
const LONG: u64 = 200_000;

/// States of registers and memories before a reset.
const RESETS: u32 = 8;

/// Returns whether a mutant differs from the specification in so many events.
fn is_noticed(verilated: &Verilated, (number, module): (usize, &str), events: u64) -> bool {
    let start = |name: &str, seed| verilated.start_mutant(name, seed, number).expect("the model starts");
    // In the layers there are some two events for each packet, in ten cycles each.
    let (packets, limit) = ((events / 500) as u32, 200_000 + 40 * events);
    panics(|| {
        if module == "fasr_place" {
            check_place(start(module, 1), events);
        }
        if ["fasr_rx", "fasr_place"].contains(&module) {
            check_receiver(start("fasr_rx", 1), events);
        }
        if ["fasr_tx", "fasr_place"].contains(&module) {
            check_sender(start("fasr_tx", 1), events);
        }
        if module == "fasr_pool1" {
            (1..=RESETS).for_each(|seed| _ = check_units(start(module, seed), events));
        }
        if module == "fasr_pool2" {
            (1..=RESETS).for_each(|seed| _ = check_blocks(start(module, seed), events));
        }
        if ["fasr_sr", "fasr_rx", "fasr_tx", "fasr_place", "fasr_pool1", "fasr_pool2"].contains(&module) {
            check_sr(start("fasr_sr", 4), events);
        }
        if module == "fasr_gbn" {
            check_gbn(start(module, 4), events);
        }
        if ["fasr_send", "fasr_fifo"].contains(&module) {
            check_held(|| start("fasr_send", 5));
            check_send(start("fasr_send", 6), events);
        }
        match module {
            "fasr_rto" => check_rto(start(module, 6), events),
            "fasr_cc" => check_cc(start(module, 6), events),
            "fasr_update" => check_update(start(module, 6), events),
            "fasr_manager" => check_manager(start(module, 6), events),
            _ => {}
        }
        if OF_LAYERS.contains(&module) {
            for seed in 9..9 + RESETS {
                check_layer(start("fasr_top", seed), if seed == 9 { packets } else { 4 }, limit);
            }
            check_gbn_layer(start("fasr_gbn_top", 9), packets, limit);
            if module == "fasr_top" {
                check_waits(|| start(module, 9));
            }
        }
    })
}

#[test]
#[ignore = "takes minutes: `make rtl-test`"]
fn r17_mutants_of_the_modules_are_noticed_or_are_the_same_circuit() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    let mutants = FASR.mutants().expect("the modules are there");
    let circuits: Vec<Circuit> = circuits().into_iter().map(|circuit| circuit.replaced(&mutants.files)).collect();
    let verilated = Verilated::build(&circuits).expect("the circuits compile");
    for place in PLACES {
        let module = &place[5..];
        assert!(!is_noticed(&verilated, (0, module), LONG), "{module} without a fault");
    }
    let noticed = |number, module: &str, events| is_noticed(&verilated, (number, module), events);
    FASR.run(&mutants, [SHORT, LONG], noticed).unwrap_or_else(|living| panic!("{living}"));
}

#[test]
#[ignore = "takes a minute: `make rtl-test`"]
fn r17_mutants_that_are_the_same_circuit_are_proved() {
    if !are_installed(&["yosys"]) {
        return;
    }
    FASR.check_proofs().unwrap_or_else(|missing| panic!("{missing}"));
}

#[test]
#[ignore = "writes the file"]
fn write_the_table_of_mutants() {
    FASR.write_table().expect("the file can be written");
}

#[test]
fn r17_the_table_of_mutants_is_that_of_the_modules() {
    assert_eq!(FASR.check_table(), Ok(()));
}
