//! Small plans, and functions that run them.

#![allow(dead_code, reason = "each test file uses its own part")]

pub mod traces;

use core::ops::ControlFlow;
use std::io::Write;
use std::sync::{Arc, Mutex};

use rayon::iter::{IndexedParallelIterator, IntoParallelRefMutIterator, ParallelIterator};
use rnic_fabric::simulation::{Part, PartRunner};
use rnic_fabric::{NodeOrder, Plan, Report, Simulation};

/// Three transports with options that suit a small lossy network: timeouts short enough for tests.
pub const TRANSPORTS: [&str; 3] = [
    "{ name = \"irn\", cap_packets = 64, rto_low = \"50us\", rto_high = \"200us\" }",
    "{ name = \"roce-gbn\", rto = \"100us\" }",
    "{ name = \"srnic\", cap_packets = 64, rto_low = \"50us\", rto_high = \"200us\" }",
];

/// Plan with two hosts and a wire.
pub const WIRE: &str = r#"
    name = "wire"
    mtu = 1024
    topology = { kind = "point-to-point" }
    links = { rate = "100Gbps", delay = "1us" }
    transport = { name = "irn" }
    workload = { kind = "closed-loop", op = "write-imm", message = "10KB", depth = 4, count = 50 }
"#;

/// Plan with six hosts and a switch; five send to one.
pub const STAR: &str = r#"
    name = "star"
    mtu = 1024
    topology = { kind = "star", hosts = 6 }
    links = { rate = "100Gbps", delay = "1us" }
    switch = { model = "input-queued", buffer = "60KB", pfc = { enabled = false } }
    transport = { name = "irn" }
    workload = { kind = "incast", senders = 5, bytes = "500KB" }
"#;

/// Plan with sixteen hosts, three layers of switches and random flows.
pub const TREE: &str = r#"
    name = "tree"
    mtu = 1024
    topology = { kind = "fat-tree", k = 4 }
    links = { rate = "40Gbps", delay = "2us", fabric = { delay = "1us" } }
    switch = { model = "input-queued", buffer = "100KB", pfc = { enabled = false } }
    transport = { name = "irn" }
    workload = { kind = "poisson", load = "60%", sizes = "irn-heavy-tail", duration = "1ms" }
"#;

/// A graph of six hosts, three switches in a row and a fourth beside the second one, with links of several rates: the
/// file `graph.topo` of the plans here.
pub const GRAPH: &str = "
    host host-[0-5]
    switch s[0-2] side
    link host-[0,1] s0 100Gbps 1us
    link host-[2,3] s1 40Gbps 700ns
    link host-[4,5] s2 100Gbps 1us
    link s0 s1 200Gbps 2us
    link s0 side 25Gbps 1us
    link side s2 25Gbps 1us
    link s1 s2 10Gbps 2us
    link s1 s2 200Gbps 3us
";

/// Plan with the hosts and switches of [`GRAPH`] and random flows.
pub const OWN: &str = r#"
    name = "own"
    mtu = 1024
    topology = { kind = "file", file = "graph.topo" }
    switch = { model = "input-queued", buffer = "100KB", pfc = { enabled = false } }
    transport = { name = "irn" }
    workload = { kind = "poisson", load = "40%", sizes = "irn-heavy-tail", duration = "400us" }
"#;

/// Faults of every kind, mild enough for go-back-N to get through.
pub const FAULTS: (&str, &str) = (
    "fault",
    r#"[
        { kind = "drop", probability = "1%" },
        { kind = "burst", probability = "0.1%", length = 4, packets = "data" },
        { kind = "reorder", probability = "1%", displacement = 3 },
        { kind = "duplicate", probability = "1%" },
        { kind = "corrupt", probability = "1%" },
        { kind = "delay", jitter = "300ns", packets = "acks" },
        { kind = "down", from = "20us", until = "40us", links = "host-1>*" },
    ]"#,
);

/// Name of a case, text of its plan, and the values that it replaces.
pub type Case = (&'static str, &'static str, Vec<(&'static str, &'static str)>);

/// Returns the plans whose traces are compared.
pub fn cases() -> Vec<Case> {
    let ecn = ("switch.ecn", r#"{ kmin = "5KB", kmax = "50KB", pmax = "10%" }"#);
    let shared = ("switch", r#"{ model = "shared-buffer", buffer = "300KB", alpha = "1/2" }"#);
    let pfc = ("switch.pfc.enabled", "true");
    let lossless = ("switch", r#"{ model = "shared-buffer", buffer = "700KB", pfc = {} }"#);
    vec![
        ("wire", WIRE, vec![]),
        ("wire with faults", WIRE, vec![FAULTS]),
        ("star that drops", STAR, vec![ecn]),
        ("star with faults", STAR, vec![FAULTS]),
        ("star that pauses", STAR, vec![pfc]),
        ("star with a shared buffer", STAR, vec![shared, ecn]),
        ("star with a shared buffer that pauses", STAR, vec![lossless]),
        ("tree", TREE, vec![]),
        ("tree that pauses", TREE, vec![pfc]),
    ]
}

/// Returns the plan with some keys replaced.
pub fn plan(text: &str, overrides: &[(&str, &str)]) -> Plan {
    let plan = Plan::from_toml_with(text, overrides, &mut |name| match name {
        "graph.topo" => Ok(GRAPH.to_owned()),
        name => Err(format!("no file {name}")),
    });
    plan.unwrap_or_else(|error| panic!("{error}"))
}

/// Returns a simulation of such a plan.
pub fn simulation(text: &str, overrides: &[(&str, &str)], seed: u64) -> Simulation {
    Simulation::new(&plan(text, overrides), seed).expect("the plan is valid")
}

/// Runs the simulation to its end.
pub fn finish(mut simulation: Simulation) -> Report {
    simulation.run(&mut |_| ControlFlow::Continue(()))
}

/// Creates and runs a simulation; asserts that all checks of its report pass and that every flow is complete.
pub fn run(text: &str, overrides: &[(&str, &str)], seed: u64) -> Report {
    let report = finish(simulation(text, overrides, seed));
    report.check().unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(report.flows_unfinished, 0);
    report
}

/// Asserts that `report` does not depend on the order in which the nodes of a window are processed, on the number of
/// parts, or on threads.
pub fn assert_independent_of_order_and_parts(
    report: &Report,
    text: &str,
    overrides: &[(&str, &str)],
    seed: u64,
    what: &str,
) {
    let mut backwards = simulation(text, overrides, seed);
    backwards.set_node_order(NodeOrder::Backward);
    assert_eq!(report.to_json(), finish(backwards).to_json(), "backwards: {what}");
    let plan = plan(text, overrides);
    for parts in [2, 3] {
        let mut in_parts = Simulation::in_parts(&plan, seed, parts).expect("the plan is valid");
        in_parts.set_runner(Box::new(Threads));
        assert_eq!(report.to_json(), finish(in_parts).to_json(), "in {parts} parts: {what}");
    }
}

/// Runs each part on a thread of the pool.
pub struct Threads;

impl PartRunner for Threads {
    fn run(&mut self, parts: &mut [Part]) {
        parts.par_iter_mut().with_max_len(1).for_each(Part::run);
    }
}

/// Returns a simulation of a host that reads from or writes to the drive of another one, in commands of 16 KiB, over
/// a wire that loses packets.
pub fn nvme(op: &str) -> Simulation {
    let drive = r#"{ read_rate = "26Gbps", read_latency = "60us", write_rate = "12Gbps", write_latency = "15us",
        queue_depth = 128 }"#;
    let workload = format!(
        r#"{{ kind = "nvme", op = "{op}", message = "16KiB", depth = 16, from = 0, to = 1, duration = "1ms",
        drive = {drive} }}"#
    );
    let with = [
        ("mtu", "4096"),
        ("transport", r#"{ name = "falcon", ordering = "unordered" }"#),
        ("workload", workload.as_str()),
        ("fault", r#"[{ kind = "drop", probability = "2%" }]"#),
    ];
    simulation(WIRE, &with, 3)
}

/// Runs the same simulation with a capture; returns the report and the capture.
pub fn nvme_captured(op: &str) -> (Report, Vec<u8>) {
    let mut simulation = nvme(op);
    let file = Shared::default();
    simulation.capture_to(file.clone()).expect("writing to memory succeeds");
    let report = finish(simulation);
    report.check().unwrap_or_else(|failure| panic!("{failure}"));
    (report, file.bytes())
}

/// A file in memory that outlives the simulation.
#[derive(Clone, Default)]
pub struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no thread has panicked").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Shared {
    /// Returns the bytes that were written.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.lock().expect("no thread has panicked").clone()
    }
}
