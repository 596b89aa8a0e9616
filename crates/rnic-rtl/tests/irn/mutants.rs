//! Mutants of IRN's modules: each is noticed by the comparison with the specification, or is the same circuit.

use rnic_rtl::circuit::Circuit;
use rnic_rtl::mutants::family::{Family, Listed, panics};
use rnic_rtl::spec::irn::WINDOW;
use rnic_rtl::tools::are_installed;
use rnic_rtl::verilated::Verilated;

use super::engine::{check_engine, check_pipeline, engine, pipelines};
use super::{difference, modules};

/// Modules with mutants; `irn_connection` only connects them.
const PLACES: &[&str] =
    &["irn/irn_receive_data", "irn/irn_receive_ack", "irn/irn_timeout", "irn/irn_tx_free", "irn/irn_rx_engine"];

/// Modules with the folders of all that they use, to prove the same.
const ACK: &[(&str, &[&str])] = &[("irn_receive_ack", &["irn", "lib"])];

const SAME: &[Listed] = &[
    Listed::new(
        "irn_receive_ack",
        &[
            "end_of_new = (highest_now >= behind) ? highest_now : behind",
            "end_of_all = (holes_q.lost >= end_of_new) ? holes_q.lost : end_of_new",
            "end_of_old = (holes_q.lost >= holes_q.advance) ? (holes_q.lost - holes_q.advance) : '0",
            "common_qq.again <= holes_q.advance) ? '0 : (common_qq.again - holes_q.advance)",
            "common_qq.presumed <= holes_q.advance) ? '0 : (common_qq.presumed - holes_q.advance)",
        ],
        "both choices are the same number where the two are equal",
    )
    .proved(ACK),
    Listed::new(
        "irn_receive_ack",
        &["common_q.lost <= {1'b0, search_q.highest}"],
        "no packet is between what is lost and the highest one; without a highest one, that at `una` is lost anyway",
    )
    .proved(ACK),
    Listed::new(
        "irn_receive_ack",
        &["(hole_from >= search_q.top) ? (~before_holes | below_top) : (~before_holes & below_top)"],
        "both ends of the gap are the same only where there is none",
    )
    .proved(ACK),
    Listed::new(
        "irn_receive_ack",
        &["holes_q.selective >= holes_q.highest"],
        "the highest packet is the same where the new one is it already",
    )
    .proved(ACK),
    Listed::new(
        "irn_receive_ack",
        &["({1'b0, holes_q.highest} >= holes_q.advance || common_qq.presumed > holes_q.advance)"],
        "the advance ends at a packet that has not arrived, so that the highest one is not there, but in a map without \
         any such packet, which no history has: that at `una` has not arrived",
    ),
];

const OPEN: &[Listed] = &[];

const IRN: Family = Family { name: "irn", places: PLACES, same: SAME, open: OPEN };

/// Events that notice most mutants, and those after which one that lives is taken for the same circuit.
const SHORT: u64 = 8_192;
const LONG: u64 = 1_000_000;

/// Returns whether a mutant differs from the specification in so many events.
fn is_noticed(verilated: &Verilated, (number, module): (usize, &str), events: u64) -> bool {
    let start = |name: &str| verilated.start_mutant(name, 1, number).expect("the model starts");
    let check_all = || {
        for (circuit, event) in modules::<WINDOW>().into_iter().filter(|(circuit, _)| circuit.module == module) {
            assert_eq!(difference(&mut start(&circuit.name), event, 5, events), None);
        }
        for (circuit, event) in pipelines().into_iter().filter(|(circuit, _)| circuit.module == module) {
            check_pipeline(start(&circuit.name), event, events / 4);
        }
        if ["irn_rx_engine", "irn_receive_data"].contains(&module) {
            check_engine(start("irn_rx_engine"), events as usize / 32);
        }
    };
    panics(check_all)
}

#[test]
#[ignore = "takes minutes: `make rtl-test`"]
fn i22_mutants_of_the_modules_are_noticed_or_are_the_same_circuit() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    let mutants = IRN.mutants().expect("the modules are there");
    let all = modules::<WINDOW>().into_iter().chain(pipelines()).map(|(circuit, _)| circuit).chain([engine()]);
    let circuits: Vec<Circuit> = all.map(|circuit| circuit.replaced(&mutants.files)).collect();
    let verilated = Verilated::build(&circuits).expect("the circuits compile");
    for place in PLACES {
        let module = &place[4..];
        assert!(!is_noticed(&verilated, (0, module), LONG), "{module} without a fault");
    }
    let noticed = |number, module: &str, events| is_noticed(&verilated, (number, module), events);
    IRN.run(&mutants, [SHORT, LONG], noticed).unwrap_or_else(|living| panic!("{living}"));
}

#[test]
#[ignore = "takes a minute: `make rtl-test`"]
fn i22_mutants_that_are_the_same_circuit_are_proved() {
    if !are_installed(&["yosys"]) {
        return;
    }
    IRN.check_proofs().unwrap_or_else(|missing| panic!("{missing}"));
}

#[test]
#[ignore = "writes the file"]
fn write_the_table_of_mutants() {
    IRN.write_table().expect("the file can be written");
}

#[test]
fn i22_the_table_of_mutants_is_that_of_the_modules() {
    assert_eq!(IRN.check_table(), Ok(()));
}
