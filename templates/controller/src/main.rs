//! Simulates the plan without a controller and with this one, on two transports: `cargo run --release`.

use std::error::Error;
use std::ops::ControlFlow;
use std::process::ExitCode;

use my_controller::Controller;
use rnic_fabric::{Plan, Simulation};
use rnic_policy::ControlPolicy;

fn main() -> ExitCode {
    match compare() {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("error: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// Prints a line for each transport, without and with the controller.
fn compare() -> Result<(), Box<dyn Error>> {
    println!("transport  controller        goodput       mean queue   retransmitted");
    for transport in ["irn", "falcon"] {
        for is_own in [false, true] {
            let text = include_str!("../plan.toml");
            let mut plan = Plan::from_toml_with(text, &[("transport.name", transport)], &mut |_| {
                Err("the plan names no files".to_owned())
            })?;
            if is_own {
                plan.transport.control = ControlPolicy::configured::<Controller>();
            }
            let report = Simulation::new(&plan, 1)?.run(&mut |_| ControlFlow::Continue(()));
            report.check()?;
            println!(
                "{transport:9}  {:14} {:6.1} Gbit/s {:9.1} kB {:15}",
                plan.transport.control.policy.name,
                report.steady_goodput_gbps.unwrap_or(report.goodput_gbps),
                report.queue_mean_bytes / 1e3,
                report.packets_retransmitted
            );
        }
    }
    Ok(())
}
