//! Runs unmodified RDMA programs on the library: `make test-apps`.

#![forbid(unsafe_code)]

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use rnic_conformance::apps::{self, CASES, Conditions, KILL_CASES, Outcome, Place};
use rnic_conformance::running;

/// Runs unmodified RDMA programs on the library, under several conditions.
#[derive(Parser, Debug)]
struct Args {
    /// Directory of the rnic command, with its libraries in `lib/rnic` beside it
    #[arg(long, default_value = "target/release")]
    bin: PathBuf,
    /// Conditions to run under: plain, lossy, confined; all when none is given
    #[arg(long)]
    under: Vec<String>,
    /// Only cases whose names contain this
    #[arg(long, default_value = "")]
    only: String,
    /// Only the cases that `make test` runs
    #[arg(long)]
    quick: bool,
    /// Transport of reliable connections, instead of the default
    #[arg(long)]
    transport: Option<String>,
    /// A flag for `rnic run`, e.g. --flag=--bypass=off; may be repeated
    #[arg(long)]
    flag: Vec<String>,
    /// List the cases
    #[arg(long)]
    list: bool,
    /// Count programs that are not installed as failures
    #[arg(long)]
    require_all: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let chosen = || CASES.iter().filter(|case| case.name.contains(&args.only) && (case.quick || !args.quick));
    let mut out = std::io::stdout().lock();
    if args.list {
        for case in chosen() {
            let _ = writeln!(out, "{}", case.name);
        }
        return ExitCode::SUCCESS;
    }
    if let Err(error) = running::end_on_signal() {
        let _ = writeln!(out, "an interrupt will leave programs behind: {error}");
    }
    let wanted =
        |conditions: &&Conditions| args.under.is_empty() || args.under.iter().any(|name| name == conditions.name());
    let mut counts = [0; 3];
    for conditions in Conditions::ALL.iter().filter(wanted) {
        let place = match Place::prepare(*conditions, &args.bin, args.transport.clone(), args.flag.clone()) {
            Ok(place) => place,
            Err(error) => {
                let _ = writeln!(out, "{:9} {:34} cannot be run: {error}", conditions.name(), "");
                counts[1] += 1;
                continue;
            }
        };
        let runs = chosen().map(|case| (case.name.to_owned(), apps::run(case, &place)));
        for (name, outcome) in runs.chain(kill_runs(&args, &place)) {
            if let Some(code) = running::interrupted() {
                let _ = writeln!(out, "{:9} {name:44} interrupted", conditions.name());
                return code;
            }
            let (index, text) = match &outcome {
                Outcome::Passed(time) => (0, format!("ok       {:.1} s", time.as_secs_f64())),
                Outcome::Failed(why) => (1, format!("FAILED\n  {why}")),
                Outcome::Skipped(why) if args.require_all && why.contains("not installed") => {
                    (1, format!("FAILED {why}"))
                }
                Outcome::Skipped(why) => (2, format!("skipped  {why}")),
            };
            counts[index] += 1;
            let _ = writeln!(out, "{:9} {:44} {text}", conditions.name(), name);
        }
    }
    let [passed, failed, skipped] = counts;
    let _ = writeln!(out, "{passed} passed, {failed} failed, {skipped} skipped");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs each endless case and kills each side, shortly after the start and later.
fn kill_runs<'a>(args: &'a Args, place: &'a Place) -> impl Iterator<Item = (String, Outcome)> + 'a {
    let chosen = KILL_CASES.iter().filter(|case| !args.quick && case.name.contains(&args.only));
    chosen.flat_map(move |case| {
        let variants = [(true, 300), (true, 1_100), (false, 300), (false, 1_100)];
        variants.into_iter().map(move |(kills_server, delay_ms)| {
            let name = format!("{}: {} after {delay_ms} ms", case.name, if kills_server { "server" } else { "client" });
            (name, apps::kill(case, place, kills_server, Duration::from_millis(delay_ms)))
        })
    })
}
