//! A simulation from Rust: eight hosts write to one, with three transports and without PFC.
//!
//! `cargo run --release -p rnic-examples --bin simulate`. The figures are simulated; the same plan and seed give the
//! same trace hash on every machine.

use std::error::Error;
use std::ops::ControlFlow;

use rnic_fabric::{Plan, Simulation};

const SEED: u64 = 1;

fn main() -> Result<(), Box<dyn Error>> {
    println!("transport   goodput   flow time   retransmitted   dropped   trace hash");
    for transport in ["roce-gbn", "irn", "falcon"] {
        let plan = Plan::from_toml(&plan(transport))?;
        let report = Simulation::new(&plan, SEED)?.run(&mut |_| ControlFlow::Continue(()));
        // Every run is checked from outside: each byte delivered once, no packet made or lost by the simulator itself.
        report.check()?;
        println!(
            "{transport:9} {:5.1} Gbit/s {:9.1} us avg {:15} {:9}   {}",
            report.goodput_gbps,
            report.fct_avg_us,
            report.packets_retransmitted,
            report.packets_dropped,
            report.trace_hash,
        );
    }
    Ok(())
}

/// Returns the plan of an incast; `docs/plans.md` lists all that a plan may say.
fn plan(transport: &str) -> String {
    format!(
        r#"
        name = "incast of eight"
        mtu = 4096
        [topology]
        kind = "star"
        hosts = 9
        [links]
        rate = "100Gbps"
        delay = "1us"
        [switch]
        model = "shared-buffer"
        buffer = "400KB"
        [transport]
        name = "{transport}"
        [workload]
        kind = "incast"
        senders = 8
        bytes = "1MB"
        "#
    )
}
