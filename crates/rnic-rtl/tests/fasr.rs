//! FaSR's circuits decide as their specification, event by event and cycle by cycle.
//!
//! `RNIC_LOCKSTEP_EVENTS` replaces the number of events of each comparison.

#[path = "fasr/bench.rs"]
mod bench;
#[path = "../../rnic-engine/tests/common/mod.rs"]
mod common;
#[path = "fasr/decisions.rs"]
mod decisions;
#[path = "fasr/engine.rs"]
mod engine;
#[path = "fasr/module.rs"]
mod module;
#[path = "fasr/modules.rs"]
mod modules;
#[path = "fasr/mutants.rs"]
mod mutants;
#[path = "fasr/parts.rs"]
mod parts;
#[path = "fasr/pools.rs"]
mod pools;
#[path = "fasr/top.rs"]
mod top;
#[path = "fasr/yosys.rs"]
mod yosys;

use std::sync::OnceLock;

use rnic_base::{RandomStream, RandomStreams};
use rnic_rtl::circuit::Circuit;
use rnic_rtl::spec::fasr::Pack;
use rnic_rtl::tools::are_installed;
use rnic_rtl::verilated::{Model, Verilated};

/// Records in a batch for a circuit.
const BATCH: usize = 2_048;

fn events() -> u64 {
    let wanted = std::env::var("RNIC_LOCKSTEP_EVENTS").ok();
    wanted.map_or(1_000_000, |text| text.parse().expect("RNIC_LOCKSTEP_EVENTS is a number of events"))
}

/// Returns all circuits.
fn circuits() -> [Circuit; 14] {
    [
        modules::place(),
        modules::rx(),
        modules::tx(),
        modules::pool1(),
        modules::pool2(),
        modules::sr("fasr_sr"),
        modules::sr("fasr_gbn"),
        modules::top("fasr_top", 0),
        modules::top("fasr_gbn_top", 1),
        modules::send(),
        modules::rto(),
        modules::cc(),
        modules::update(),
        modules::manager(),
    ]
}

/// The models of all circuits, built once; `None` without Verilator.
fn verilated() -> Option<&'static Verilated> {
    static BUILT: OnceLock<Option<Verilated>> = OnceLock::new();
    let build = || {
        are_installed(&["verilator", "g++"])
            .then(|| Verilated::build(&circuits()).expect("the circuits compile without warnings"))
    };
    BUILT.get_or_init(build).as_ref()
}

/// Outputs that are expected, port by port, and a description of their event.
type Expected = (Vec<Pack>, Box<dyn Fn() -> String>);

/// A comparison of a circuit with expected outputs.
struct Differences {
    model: Model,
    seed: u64,
    records: Vec<u64>,
    expected: Vec<Expected>,
    compared: u64,
}

impl Differences {
    fn new(model: Model, seed: u64) -> Self {
        Self { model, seed, records: Vec::new(), expected: Vec::new(), compared: 0 }
    }

    fn stream(&self, name: &str) -> RandomStream {
        RandomStreams::new(self.seed).stream(name)
    }

    /// Passes a record of inputs; its outputs are compared port by port. `what` describes the event.
    fn push(&mut self, inputs: Vec<u64>, outputs: Vec<Pack>, what: impl Fn() -> String + 'static) {
        self.records.extend(inputs);
        self.expected.push((outputs, Box::new(what)));
        if self.expected.len() == BATCH {
            self.compare();
        }
    }

    fn compare(&mut self) {
        let answers = self.model.run(&self.records).unwrap_or_default();
        let mut at = 0;
        for (outputs, what) in &self.expected {
            for (port, output) in outputs.iter().enumerate() {
                let end = at + output.width().div_ceil(64) as usize;
                let found = answers.get(at..end).unwrap_or_default();
                assert!(
                    output.is_equal(found),
                    "seed {}, event {}: output {port} is {found:x?}, not {:x?}: {}",
                    self.seed,
                    self.compared,
                    output.words(),
                    what(),
                );
                at = end;
            }
            self.compared += 1;
        }
        self.records.clear();
        self.expected.clear();
    }

    fn finish(mut self) {
        self.compare();
    }
}
