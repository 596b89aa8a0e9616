//! Properties that every reader of a user's file must have for arbitrary input: one function for each reader.
//!
//! The fuzz target in `/fuzz` calls these with the fuzzer's input, `tests/fuzz_readers.rs` with a seeded random stream.
//! Each function returns whether the reader accepted the input. They panic when a property is violated.

use core::fmt::Display;

use rnic_base::{BitRate, Duration};
use rnic_fabric::topology::file::{Defaults, FileError, FileFormat, read};
use rnic_fabric::workload::chakra::ChakraPlan;
use rnic_fabric::workload::distribution::{Distribution, ShareMeaning, SizesForm};
use rnic_fabric::workload::{FlowFormat, Operation, read_flows};

/// A reader under test and the check of its properties.
#[derive(Clone, Copy)]
pub struct Target {
    /// Name by which the fuzzer selects it, and of its corpus.
    pub name: &'static str,
    /// Checks one input; returns whether the reader accepted it.
    pub check: fn(&[u8]) -> bool,
}

/// All targets.
pub const TARGETS: [Target; 11] = [
    Target { name: "flows_list", check: |data| flows(data, Some(FlowFormat::List)) },
    Target { name: "flows_csv", check: |data| flows(data, Some(FlowFormat::Csv)) },
    Target { name: "flows_hpcc", check: |data| flows(data, Some(FlowFormat::Hpcc)) },
    Target { name: "flows_htsim", check: |data| flows(data, Some(FlowFormat::Htsim)) },
    Target { name: "flows_any", check: |data| flows(data, None) },
    Target { name: "sizes", check: sizes },
    Target { name: "chakra", check: chakra },
    Target { name: "topology_graph", check: |data| topology(data, Some(FileFormat::Graph)) },
    Target { name: "topology_hpcc", check: |data| topology(data, Some(FileFormat::Hpcc)) },
    Target { name: "topology_htsim", check: |data| topology(data, Some(FileFormat::Htsim)) },
    Target { name: "topology_any", check: |data| topology(data, None) },
];

/// Number of hosts of the flows.
const HOSTS: u32 = 8;

/// Checks that an error is one line.
fn check_error(error: &impl Display) {
    let text = error.to_string();
    assert!(!text.is_empty() && text.lines().count() == 1, "{text:?}");
    assert!(text.len() < 1_000, "{text:?}");
}

/// Flows have two different hosts, and there are not more of them than lines.
fn flows(data: &[u8], format: Option<FlowFormat>) -> bool {
    let Ok(text) = core::str::from_utf8(data) else { return false };
    match read_flows(text, format, HOSTS) {
        Ok(file) => {
            assert!(!file.flows.is_empty() && file.flows.len() <= text.split(['\n', '\r']).count());
            assert!(file.flows.iter().all(|flow| flow.src < HOSTS && flow.dst < HOSTS && flow.src != flow.dst));
            assert!(file.triggers.is_none_or(|triggers| triggers.links.len() == file.flows.len()));
            true
        }
        Err(error) => {
            check_error(&error);
            false
        }
    }
}

/// The mean of a distribution is not above its largest size.
fn sizes(data: &[u8]) -> bool {
    let Ok(text) = core::str::from_utf8(data) else { return false };
    let mut is_accepted = false;
    for shares in [None, Some(ShareMeaning::Cumulative), Some(ShareMeaning::Each)] {
        match Distribution::from_file(text, SizesForm { shares, unit: None }) {
            Ok(distribution) => {
                assert!(distribution.mean_milli_bytes() / 1_000 <= distribution.largest());
                is_accepted = true;
            }
            Err(error) => check_error(&error),
        }
    }
    is_accepted
}

/// Both halves of the input are the traces of two ranks.
fn chakra(data: &[u8]) -> bool {
    let (first, second) = data.split_at(data.len() / 2);
    match ChakraPlan::from_traces(&[first.to_vec(), second.to_vec()], Operation::Send) {
        Ok(plan) => {
            assert!(plan.ranks == 2 && plan.nodes >= 2);
            true
        }
        Err(error) => {
            check_error(&error);
            false
        }
    }
}

/// Errors name a place in the text, and each port of an accepted graph has one link.
fn topology(data: &[u8], format: Option<FileFormat>) -> bool {
    let text = String::from_utf8_lossy(data);
    let link = (Some(BitRate::gbps(100)), Some(Duration::from_us(1)));
    match read(&text, format, &Defaults { host: link, fabric: link }) {
        Ok(read) => {
            let topology = read.topology;
            let ports: usize = (0..topology.node_count() as u32).map(|node| topology.ports(node)).sum();
            assert_eq!(ports, 2 * topology.links.len());
            assert!(topology.hosts >= 2);
            true
        }
        Err(error) => {
            check_error(&error);
            if let FileError::At { line, column, .. } = error {
                let place = text.lines().nth(line - 1).expect("the line exists");
                assert!(place.chars().count() >= column, "{line}:{column} of {place:?}");
            }
            false
        }
    }
}
