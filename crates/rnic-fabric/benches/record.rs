//! Cost of recording the queues and rates of all links and hosts at 10 us: `plans/k8-permutation.toml` (128 hosts) with
//! and without, in turns. Prints, for packets of 4096 and of 1024 bytes, the speed with a recording as a share of that
//! without (the median of the ratios of neighbouring runs): by the processor time of the simulating thread, by the
//! time until the simulation has ended, and by the time until the file is complete, too. The file is written by a
//! second thread, as in the `rnic` command.
//!
//! Run `cargo bench -p rnic-fabric --bench record -- [ROUNDS]`.
#![expect(clippy::disallowed_types, reason = "a benchmark reads the clock")]
#![expect(clippy::disallowed_methods, reason = "a recording is written by a second thread, as in the command")]

#[path = "fabric/recorded.rs"]
mod recorded;

use core::ops::ControlFlow;
use std::time::Instant;

use mimalloc::MiMalloc;
use rnic_fabric::{Plan, Simulation};

use recorded::recorded;

/// Same allocator as in the `rnic` command.
#[global_allocator]
static HEAP: MiMalloc = MiMalloc;

const PLAN: &str = include_str!("../../../plans/k8-permutation.toml");
const RECORD: (&str, &str) = ("record", r#"{ interval = "10us", what = ["links", "hosts"] }"#);

/// Seconds of a run: processor time of the simulating thread, until the end, and until the file is complete.
type Times = [f64; 3];

/// Returns the processor time of this thread in seconds.
fn thread_time() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells it");
    text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).expect("a number comes first") / 1e9
}

fn run(plan: &Plan) -> Times {
    let simulation = Simulation::new(plan, 1).expect("the plan is valid");
    let (start, busy) = (Instant::now(), thread_time());
    let simulate = |mut simulation: Simulation| {
        let report = simulation.run(&mut |_| ControlFlow::Continue(()));
        report.check().unwrap_or_else(|failure| panic!("{failure}"));
        [thread_time() - busy, start.elapsed().as_secs_f64()]
    };
    if plan.record.is_none() {
        let [busy, end] = simulate(simulation);
        return [busy, end, end];
    }
    let [busy, end] = recorded(simulation, simulate);
    [busy, end, start.elapsed().as_secs_f64()]
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let rounds = std::env::args().find_map(|word| word.parse::<usize>().ok()).unwrap_or(15);
    let plan = |overrides: &[(&str, &str)]| {
        let plan = Plan::from_toml_with(PLAN, overrides, &mut |name| Err(format!("no file {name}")));
        plan.unwrap_or_else(|error| panic!("{error}"))
    };
    println!("with links and hosts of 128 hosts recorded every 10 us, by without; medians of {rounds} (least to most)");
    for mtu in ["4096", "1024"] {
        let (without, with) = (plan(&[("mtu", mtu)]), plan(&[("mtu", mtu), RECORD]));
        let pairs: Vec<(Times, Times)> = (0..rounds).map(|_| (run(&without), run(&with))).collect();
        let names = ["processor time of the simulation", "time of the simulation", "time until the file is complete"];
        for (index, name) in names.iter().enumerate() {
            let mut ratios: Vec<f64> = pairs.iter().map(|(without, with)| without[index] / with[index]).collect();
            ratios.sort_unstable_by(f64::total_cmp);
            let [times, recorded] = [0, 1].map(|side| {
                median(pairs.iter().map(|pair| if side == 0 { pair.0[index] } else { pair.1[index] }).collect())
            });
            let (least, most) = (ratios[0], ratios[rounds - 1]);
            let median = median(ratios);
            println!(
                "  {mtu} B  {name:<34}{median:5.2} ({least:.2} to {most:.2}; {:.0} ms, {:.0} without)",
                recorded * 1e3,
                times * 1e3
            );
        }
    }
}
