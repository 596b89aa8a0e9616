//! Runs plans with every transport and compares the results with a checked-in table: a change that is not meant to
//! change behaviour leaves every trace, every report and every completion as it was.
//!
//! Where a change is intended, write the table anew and state in the changelog what has changed and why: `cargo test
//! -p rnic-fabric --test gates -- --ignored write`.
#![expect(clippy::disallowed_methods, reason = "the gates are in a file")]

mod common;

use std::fmt::Write as _;
use std::path::PathBuf;

use common::*;
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use rnic_base::TraceHash;
use rnic_fabric::{Plan, Simulation};

/// The transports, with timeouts that are short enough for small networks.
const ALL_TRANSPORTS: [(&str, &str); 11] = [
    ("roce-gbn", r#"{ name = "roce-gbn", rto = "100us" }"#),
    ("roce-sr", r#"{ name = "roce-sr", rto = "100us" }"#),
    ("irn", r#"{ name = "irn", cap_packets = 64, rto_low = "50us", rto_high = "200us" }"#),
    ("srnic", r#"{ name = "srnic", cap_packets = 64, rto_low = "50us", rto_high = "200us" }"#),
    ("fasr", r#"{ name = "fasr", rto_high = "200us" }"#),
    ("tcp", r#"{ name = "tcp" }"#),
    ("falcon", r#"{ name = "falcon" }"#),
    ("falcon weak", r#"{ name = "falcon", ordering = "weak" }"#),
    ("falcon with sprayed flows", r#"{ name = "falcon", flows = 4, paths = "spray" }"#),
    ("falcon with four flows", r#"{ name = "falcon", flows = 4 }"#),
    ("falcon with a slow engine", r#"{ name = "falcon", fae_interface = "8us" }"#),
];

/// Keys of a plan, and the values that replace them.
type Overrides = &'static [(&'static str, &'static str)];

/// Variants that must not change the results: packets as bytes, with payload, in parts on threads.
const FORMS: [(&str, Overrides, usize); 4] = [
    ("encoded", &[("wire", "encoded")], 1),
    ("checked", &[("payload", "checked")], 1),
    ("in three parts", &[], 3),
    ("all at once", &[("wire", "encoded"), ("payload", "checked")], 3),
];

/// Index of the variant in [`FORMS`] that every plan supports.
const IN_PARTS: usize = 2;

/// Plans of `plans/`, the keys that make them short, and `true` if they run with all transports rather than with
/// their own.
const PLANS: [(&str, Overrides, bool); 9] = [
    ("falcon", &[("workload.bytes", "200KB")], false),
    ("fasr-fig7a", &[("workload.duration", "1ms"), ("run.warmup", "100us")], false),
    ("fasr-fig7bc", &[("workload.duration", "1ms"), ("run.warmup", "100us"), ("workload.queue_pairs", "200")], false),
    ("incast", &[("workload.repeats", "2"), ("workload.bytes", "1MB")], false),
    ("irn-default", &[("workload.duration", "1ms"), ("run.warmup", "100us")], false),
    ("k10-poisson", &[("workload.duration", "100us"), ("run.warmup", "10us")], false),
    ("k8-permutation", &[("workload.bytes", "40KB")], true),
    ("nvme", &[("workload.duration", "1ms"), ("run.warmup", "100us")], false),
    ("point-to-point-loss", &[("workload.count", "200")], true),
];

/// One row of the table.
struct Row {
    case: String,
    transport: &'static str,
    text: String,
    overrides: Vec<(&'static str, &'static str)>,
}

/// The hashes of a run.
#[derive(PartialEq, Eq, Debug)]
struct Outcome {
    trace: String,
    report: String,
    completions: String,
}

impl Row {
    fn new(case: &str, text: &str, overrides: &[(&'static str, &'static str)], transport: Option<usize>) -> Self {
        let chosen = transport.map(|index| ALL_TRANSPORTS[index]);
        let overrides = overrides.iter().copied().chain(chosen.map(|(_, value)| ("transport", value))).collect();
        Self {
            case: case.to_owned(),
            transport: chosen.map_or("its own", |(name, _)| name),
            text: text.to_owned(),
            overrides,
        }
    }

    fn all() -> Vec<Self> {
        let mut rows = Vec::new();
        for (name, text, overrides) in cases() {
            rows.extend((0..ALL_TRANSPORTS.len()).map(|index| Self::new(name, text, &overrides, Some(index))));
        }
        for (name, overrides, with_all) in PLANS {
            let path = root().join(format!("plans/{name}.toml"));
            let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            rows.push(Self::new(name, &text, overrides, None));
            if with_all {
                rows.extend((0..ALL_TRANSPORTS.len()).map(|index| Self::new(name, &text, overrides, Some(index))));
            }
        }
        rows
    }

    fn plan(&self, more: &[(&'static str, &'static str)]) -> Plan {
        let overrides = [&self.overrides[..], more].concat();
        let plan = Plan::from_toml_with(&self.text, &overrides, &mut |name| Err(format!("no file {name}")));
        plan.unwrap_or_else(|error| panic!("{self}: {error}"))
    }

    fn run(&self, more: &[(&'static str, &'static str)], parts: usize) -> Outcome {
        let mut simulation = Simulation::in_parts(&self.plan(more), 7, parts).expect("the plan is valid");
        if parts > 1 {
            simulation.set_runner(Box::new(Threads));
        }
        let report = simulation.run(&mut |_| std::ops::ControlFlow::Continue(()));
        assert_eq!(report.violations, Vec::<String>::new(), "{self}");
        let completions = simulation.completion_hash();
        Outcome { trace: report.trace_hash.clone(), report: hash(&report.to_json().to_string()), completions }
    }

    fn line(&self, outcome: &Outcome) -> String {
        let Outcome { trace, report, completions } = outcome;
        format!("{self},{trace},{report},{completions}")
    }
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{},{}", self.case, self.transport)
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn table() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/gates.csv")
}

fn hash(text: &str) -> String {
    let mut hash = TraceHash::new();
    text.bytes().for_each(|byte| hash.add_word(byte.into()));
    hash.to_string()
}

#[test]
fn results_match_the_checked_in_table() {
    let text = std::fs::read_to_string(table()).expect("tests/gates.csv can be read");
    let expected: Vec<&str> = text.lines().skip(1).collect();
    let rows = Row::all();
    let lines: Vec<String> = rows.par_iter().map(|row| row.line(&row.run(&[], 1))).collect();
    assert_eq!(lines.len(), expected.len(), "rows of the table: write it anew");
    let mut changed = String::new();
    for (now, before) in lines.iter().zip(expected).filter(|(now, before)| now != before) {
        let _ = write!(changed, "\n  was {before}\n  is  {now}");
    }
    assert!(changed.is_empty(), "case, transport, trace, report, completions:{changed}");
}

/// Runs each row in one of the other variants.
#[test]
fn representations_and_parts_change_no_result() {
    let rows: Vec<(usize, Row)> = Row::all().into_iter().enumerate().collect();
    rows.par_iter().for_each(|(index, row)| {
        // Transports that follow each other in the rows get different variants, so that each transport is run in
        // every variant. Hosts with NVMe support neither packets as bytes nor payload.
        let form = if row.case == "nvme" { IN_PARTS } else { (index + index / ALL_TRANSPORTS.len()) % FORMS.len() };
        let (name, more, parts) = FORMS[form];
        let (plain, other) = (row.run(&[], 1), row.run(more, parts));
        assert_eq!((&plain.trace, &plain.completions), (&other.trace, &other.completions), "{row}: {name}");
    });
}

#[test]
#[ignore = "writes the table"]
fn write() {
    let rows = Row::all();
    let lines: Vec<String> = rows.par_iter().map(|row| row.line(&row.run(&[], 1)) + "\n").collect();
    std::fs::write(table(), format!("case,transport,trace,report,completions\n{}", lines.concat()))
        .expect("tests/gates.csv can be written");
}
