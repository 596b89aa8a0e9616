//! The program keeps the contract, decides equally in both of its forms, and delivers over a link with losses.

use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;

use my_transport::Program;
use rnic_fabric::{Plan, Simulation};
use rnic_policy::kit::check_recovery;
use rnic_program::{Loaded, lockstep};
use rnic_transports::programs;

/// The contract kit: random events, in any order that a network may produce. An error names the rule that is broken,
/// the step and the seed.
#[test]
fn the_contract_is_kept() -> Result<(), Box<dyn Error>> {
    let policy = programs::load(programs::to_file(&Program)?.as_bytes())?;
    for seed in 2..6 {
        check_recovery(&policy, seed, 10_000)?;
    }
    Ok(())
}

/// Native code and the interpreter of the recorded graph, from which a circuit is made, give the same answers and the
/// same state in every event.
#[test]
fn native_code_and_interpreter_decide_equally() -> Result<(), Box<dyn Error>> {
    lockstep::compare(&Program, &Loaded::of(&Program)?, 1, 40_000)?;
    Ok(())
}

/// The plan, run with the program file: 1 % of the data packets are lost, and every message arrives.
#[test]
fn everything_is_delivered_at_a_loss_of_1_percent() -> Result<(), Box<dyn Error>> {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("my-transport.rnicp");
    std::fs::write(&file, programs::to_file(&Program)?)?;
    let name = file.to_str().ok_or("the path has other characters than UTF-8")?;
    let plan = Plan::from_toml_with(include_str!("../plan.toml"), &[("transport.name", name)], &mut |_| {
        Err("the plan names no files".to_owned())
    })?;
    let report = Simulation::new(&plan, 1)?.run(&mut |_| ControlFlow::Continue(()));
    report.check()?;
    assert_eq!(report.flows_unfinished, 0);
    assert!(report.packets_retransmitted > 0, "nothing was lost");
    Ok(())
}
