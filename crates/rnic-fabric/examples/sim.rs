//! Runs a plan and prints its report: `sim PLAN.toml [seed=N] [key=value ...]`, keys as in the plan.

use core::ops::ControlFlow;
use std::process::ExitCode;

use rnic_fabric::{Plan, Simulation};

#[expect(clippy::disallowed_types, reason = "an example stands at the edge: it may look at the clock")]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((path, settings)) = arguments.split_first() else {
        eprintln!("usage: sim PLAN.toml [seed=N] [key=value ...]");
        return ExitCode::from(2);
    };
    let settings: Vec<(&str, &str)> = settings.iter().filter_map(|setting| setting.split_once('=')).collect();
    let seed = settings.iter().find(|(key, _)| *key == "seed").map_or(1, |(_, seed)| seed.parse().unwrap_or(1));
    let overrides: Vec<(&str, &str)> = settings.into_iter().filter(|(key, _)| *key != "seed").collect();
    let folder = std::path::Path::new(path).parent().unwrap_or(std::path::Path::new("."));
    let mut read = |name: &str| std::fs::read_to_string(folder.join(name)).map_err(|error| error.to_string());
    let plan = std::fs::read_to_string(path)
        .map_err(|error| format!("{path}: {error}"))
        .and_then(|text| Plan::from_toml_with(&text, &overrides, &mut read).map_err(|error| error.to_string()));
    let simulation = plan.and_then(|plan| Simulation::new(&plan, seed).map_err(|error| error.to_string()));
    let mut simulation = match simulation {
        Ok(simulation) => simulation,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let start = std::time::Instant::now();
    let mut report = simulation.run(&mut |_| ControlFlow::Continue(()));
    report.wall_s = Some(start.elapsed().as_secs_f64());
    println!("{:#}", report.to_json());
    let rate = report.packet_hops as f64 / start.elapsed().as_secs_f64() / 1e6;
    eprintln!("{rate:.2} million packet-hops a second");
    match report.check() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::from(1)
        }
    }
}
