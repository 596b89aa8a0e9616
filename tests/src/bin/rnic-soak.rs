//! Runs real NICs under random loads and faults: `make soak`.

#![forbid(unsafe_code)]

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;
use rnic_conformance::running;
use rnic_conformance::soak::{Role, Stage, Step, Verdict};

/// Random loads and faults on real NICs, with comparison of data and checks for leaks.
#[derive(Parser, Debug)]
struct Args {
    /// Directory of the rnic command, with its libraries in `lib/rnic` beside it
    #[arg(long, default_value = "target/release")]
    bin: PathBuf,
    /// Start no further step after so many seconds
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Seed that determines every step; derived from the clock when not given
    #[arg(long)]
    seed: Option<u64>,
    /// Run this step alone
    #[arg(long, requires = "seed")]
    step: Option<u64>,
    /// Print the steps without running them
    #[arg(long)]
    list: bool,
    /// Run as a part of a step (internal)
    #[arg(long, hide = true, num_args = 1..)]
    role: Vec<String>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if !args.role.is_empty() {
        return run_role(&args.role);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let seed = args.seed.unwrap_or(now);
    if args.list {
        let steps = args.step.map_or(0..100, |step| step..step + 1);
        steps.for_each(|number| print_line(&format!("{number}: {}", Step::draw(seed, number))));
        return ExitCode::SUCCESS;
    }
    let prepared = running::end_on_signal().and_then(|()| Stage::prepare(&args.bin));
    let mut stage = match prepared {
        Ok(stage) => stage,
        Err(why) => {
            eprintln!("soak: {why}");
            return ExitCode::from(2);
        }
    };
    print_line(&format!("seed {seed}"));
    let (start, time) = (Instant::now(), Duration::from_secs(args.seconds));
    let mut numbers = args.step.map_or(0..u64::MAX, |step| step..step + 1);
    let mut counts = [0_u64; 3];
    for number in numbers.by_ref().take_while(|_| start.elapsed() < time) {
        let count = perform(&mut stage, &args, seed, number);
        if let Some(code) = running::interrupted() {
            return code;
        }
        counts[count] += 1;
    }
    let trends = stage.finish();
    let mut failed = counts[1];
    for trend in trends {
        let grows = trend.grows();
        failed += u64::from(grows);
        print_line(&format!("{trend}{}", if grows { ": FAILED, it grows" } else { "" }));
        if grows {
            let seconds = args.seconds;
            print_line(&format!("  to reproduce: {}", replay_command(&args, seed, &format!("--seconds {seconds}"))));
        }
    }
    print_line(&format!(
        "{} steps right, {} failed, {} skipped, {} s",
        counts[0],
        counts[1],
        counts[2],
        start.elapsed().as_secs()
    ));
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Performs a step and prints its result; returns the index of the counter to increment.
fn perform(stage: &mut Stage, args: &Args, seed: u64, number: u64) -> usize {
    let step = &Step::draw(seed, number);
    let start = Instant::now();
    let verdict = stage.perform(step);
    let seconds = start.elapsed().as_secs_f64();
    if running::interrupted().is_some() {
        print_line(&format!("{:5} interrupted after {seconds:.1} s: {step}", step.number));
        return 1;
    }
    match verdict {
        Verdict::Right(how) => {
            print_line(&format!("{:5} ok, {how}, {seconds:.1} s: {step}", step.number));
            0
        }
        Verdict::Failed(why) => {
            print_line(&format!("{:5} FAILED, {seconds:.1} s: {step}\n  {why}", step.number));
            print_line(&format!("  to reproduce: {}", replay_command(args, seed, &format!("--step {}", step.number))));
            1
        }
        Verdict::Skipped(why) => {
            print_line(&format!("{:5} skipped: {why}: {step}", step.number));
            2
        }
    }
}

/// Returns the command that repeats the run.
fn replay_command(args: &Args, seed: u64, steps: &str) -> String {
    let profile = if cfg!(debug_assertions) { "" } else { "--release " };
    let bin = args.bin.display();
    format!(
        "cargo run {profile}--package rnic-conformance --bin rnic-soak --locked -- --bin {bin} --seed {seed} {steps}"
    )
}

fn run_role(words: &[String]) -> ExitCode {
    match Role::parse(words).map(Role::play) {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(why)) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
        None => {
            eprintln!("soak: no such role");
            ExitCode::from(2)
        }
    }
}

fn print_line(line: &str) {
    // Writing fails when the reader has closed the other end.
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
