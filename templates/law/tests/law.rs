//! The law keeps the contract, decides equally in both of its forms, and keeps the queue of a switch short.

use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;

use my_law::Law;
use rnic_fabric::{Plan, Report, Simulation};
use rnic_policy::LawPolicy;
use rnic_policy::kit::check_control;
use rnic_program::{LoadedLaw, lockstep};
use rnic_transports::laws;

/// The contract kit: random events, in any order that a network may produce. An error names the rule that is broken,
/// the step and the seed.
#[test]
fn the_contract_is_kept() -> Result<(), Box<dyn Error>> {
    let LawPolicy::Control(policy) = laws::load(laws::to_file(&Law)?.as_bytes())? else {
        return Err("the law is no controller".into());
    };
    for seed in 2..6 {
        check_control(&policy, seed, 10_000)?;
    }
    Ok(())
}

/// Native code and the interpreter of the recorded graph, from which a circuit is made, give the same answers and the
/// same state in every event.
#[test]
fn native_code_and_interpreter_decide_equally() -> Result<(), Box<dyn Error>> {
    lockstep::compare_laws(&Law, &LoadedLaw::of(&Law)?, 1, 40_000)?;
    Ok(())
}

/// Runs the plan with the controller called `control`.
fn run(control: &str) -> Result<Report, Box<dyn Error>> {
    let plan = Plan::from_toml_with(include_str!("../plan.toml"), &[("transport.control", control)], &mut |_| {
        Err("the plan names no files".to_owned())
    })?;
    let report = Simulation::new(&plan, 1)?.run(&mut |_| ControlFlow::Continue(()));
    report.check()?;
    Ok(report)
}

/// The plan, run with the law and without a controller.
#[test]
fn the_queue_is_shorter_and_the_link_stays_full() -> Result<(), Box<dyn Error>> {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("my-law.rnicp");
    std::fs::write(&file, laws::to_file(&Law)?)?;
    let name = file.to_str().ok_or("the path has other characters than UTF-8")?;
    let (without, with) = (run("line-rate")?, run(name)?);
    let queues = [without.queue_mean_bytes, with.queue_mean_bytes];
    assert!(queues[1] < queues[0] / 2.0, "{queues:?} bytes wait on average");
    let goodputs = [&without, &with].map(|report| report.steady_goodput_gbps.unwrap_or(report.goodput_gbps));
    assert!(goodputs[1] > goodputs[0] * 0.9, "{goodputs:?} Gbit/s");
    Ok(())
}
