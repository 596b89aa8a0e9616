//! The controller keeps the contract, and shortens the queue at a congested link.

use std::error::Error;
use std::ops::ControlFlow;

use my_controller::Controller;
use rnic_fabric::{Plan, Report, Simulation};
use rnic_policy::kit::check_control;
use rnic_policy::{Configured, ControlPolicy};

/// The contract kit: random events, in any order that a transport may produce. An error names the rule that is broken,
/// the step and the seed.
#[test]
fn the_contract_is_kept() -> Result<(), Box<dyn Error>> {
    for seed in 0..20 {
        check_control(&ControlPolicy::of::<Controller>(), seed, 10_000)?;
    }
    Ok(())
}

/// Runs the plan with `control`, or with the transport's own.
fn run(control: Option<Configured<ControlPolicy>>) -> Result<Report, Box<dyn Error>> {
    let mut plan = Plan::from_toml(include_str!("../plan.toml"))?;
    if let Some(control) = control {
        plan.transport.control = control;
    }
    let report = Simulation::new(&plan, 1)?.run(&mut |_| ControlFlow::Continue(()));
    report.check()?;
    Ok(report)
}

#[test]
fn the_queue_is_shorter_and_the_link_stays_full() -> Result<(), Box<dyn Error>> {
    let (without, with) = (run(None)?, run(Some(ControlPolicy::configured::<Controller>()))?);
    let queues = [without.queue_mean_bytes, with.queue_mean_bytes];
    assert!(queues[1] < queues[0] / 2.0, "{queues:?} bytes wait on average");
    let goodputs = [&without, &with].map(|report| report.steady_goodput_gbps.unwrap_or(report.goodput_gbps));
    assert!(goodputs[1] > goodputs[0] * 0.9, "{goodputs:?} Gbit/s");
    Ok(())
}
