//! Packet-hops per second of user time on one core in fat-trees of different sizes, whose state does not fit into the
//! caches of a processor.
//!
//! Every host sends to one other at 100 Gbit/s with IRN (`plans/k8-permutation.toml`). A hop is a packet on a link;
//! acknowledgements count. The time to create the network is not included. Networks are simulated in turns, and the
//! fastest turn of each counts.
//!
//! Run `cargo bench -p rnic-fabric --bench scale`; `-- 8 32` names other numbers of ports per switch.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads its arguments and its processor time")]

use core::ops::ControlFlow;

use mimalloc::MiMalloc;
use rnic_fabric::{Plan, Simulation};

/// Same allocator as in the `rnic` command.
#[global_allocator]
static HEAP: MiMalloc = MiMalloc;

const PLAN: &str = include_str!("../../../plans/k8-permutation.toml");

const TURNS: usize = 3;

fn main() {
    let given: Vec<u32> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let sizes = if given.is_empty() { vec![8, 16, 32] } else { given };
    let mut best = vec![0.0f64; sizes.len()];
    for _ in 0..TURNS {
        for (ports, best) in sizes.iter().zip(&mut best) {
            *best = best.max(rate(*ports));
        }
    }
    println!("fabric, permutation, fastest of {TURNS}: million packet-hops per second of user time");
    for (ports, best) in sizes.iter().zip(&best) {
        println!("  k={ports:<3} {:>6} hosts {best:6.2}", ports * ports * ports / 4);
    }
}

/// Returns million packet-hops per second of user time in a fat-tree of switches with `ports` ports.
fn rate(ports: u32) -> f64 {
    // About as many packets in each network.
    let hosts = ports * ports * ports / 4;
    let bytes = format!("\"{}KB\"", (BYTES_KB / hosts).max(200));
    let overrides = [("topology.k", &*ports.to_string()), ("workload.bytes", &*bytes)];
    let plan = Plan::from_toml_with(PLAN, &overrides, &mut |name| Err(format!("no file {name}")));
    let mut simulation = Simulation::new(&plan.expect("the plan is valid"), 1).expect("the plan is valid");
    let start = user_seconds();
    let report = simulation.run(&mut |_| ControlFlow::Continue(()));
    let seconds = user_seconds() - start;
    report.check().unwrap_or_else(|failure| panic!("{failure}"));
    report.packet_hops as f64 / seconds / 1e6
}

/// Kilobytes that all hosts of a network send together.
const BYTES_KB: u32 = 6_000_000;

/// Returns the user time of this process: field 14 of proc(5)'s stat, in ticks of 10 ms.
fn user_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux has it");
    let after_name = stat.rsplit(')').next().expect("the name is in parentheses");
    let ticks: f64 =
        after_name.split_whitespace().nth(11).and_then(|field| field.parse().ok()).expect("it is a number");
    ticks / 100.0
}
