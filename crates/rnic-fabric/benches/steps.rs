//! Short simulations whose instructions `scripts/instructions` counts.
//!
//! `steps CASE COUNT` runs a case with COUNT hundreds of kilobytes per host and prints the number of packet-hops.
//! Without a case it does nothing.
#![expect(clippy::disallowed_methods, reason = "its command line selects what runs")]

use core::ops::ControlFlow;

use rnic_fabric::{Plan, Simulation};

const POINT_TO_POINT: &str = r#"
    name = "point-to-point"
    mtu = 4096
    topology = { kind = "point-to-point" }
    links = { rate = "100Gbps", delay = "1us" }
    transport = { name = "irn" }
    workload = { kind = "permutation", bytes = "1MB" }
"#;

const TREE: &str = r#"
    name = "tree"
    mtu = 4096
    topology = { kind = "fat-tree", k = 4 }
    links = { rate = "100Gbps", delay = "1us" }
    switch = { model = "input-queued", buffer = "400KB", pfc = { enabled = false } }
    transport = { name = "irn", cap_packets = "bdp", rto_high = "auto" }
    workload = { kind = "permutation", bytes = "1MB" }
"#;

/// Name of a case, its plan, and the values of the plan that it replaces.
type Case = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const FALCON: (&str, &str) = ("transport", r#"{ name = "falcon" }"#);

const CASES: [Case; 5] = [
    ("point-to-point", POINT_TO_POINT, &[]),
    ("permutation", TREE, &[]),
    ("permutation-fasr", TREE, &[("transport", r#"{ name = "fasr", rto_high = "200us" }"#)]),
    ("falcon", TREE, &[FALCON]),
    ("falcon-64", TREE, &[FALCON, ("workload.connections", "64")]),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let [case, count] = &arguments[..] else { return };
    let (_, text, overrides) = CASES.iter().find(|(name, ..)| name == case).expect("the case exists");
    let bytes = format!("{}KB", 100 * count.parse::<u64>().expect("the count is a number"));
    let overrides = [overrides, &[("workload.bytes", bytes.as_str())][..]].concat();
    let plan = Plan::from_toml_with(text, &overrides, &mut |name| Err(format!("no file {name}")));
    let plan = plan.unwrap_or_else(|error| panic!("{error}"));
    let report = Simulation::new(&plan, 1).expect("the plan is valid").run(&mut |_| ControlFlow::Continue(()));
    report.check().unwrap_or_else(|failure| panic!("{failure}"));
    println!("{}", report.packet_hops);
}
