//! `rnic sweep`, and `rnic sim --seeds`: runs of a plan with several values and seeds.

mod page;

pub use page::distribution;

use std::io;
use std::path::Path;
use std::time::Instant;

use rnic_base::similar;
use rnic_fabric::Report;
use rnic_page::number;
use rnic_reproduce::axis::Axis;
use rnic_reproduce::estimate::Estimate;
use rnic_reproduce::input::PLAN_BYTES_MAX;
use rnic_reproduce::machine::Machine;
use rnic_reproduce::run_set::{self, PointRuns, RunSet};
use rnic_reproduce::sweep::Sweep;
use serde::Serialize;

use crate::args::values::{Setting, pairs};
use crate::args::{PoolArgs, SweepArgs};
use crate::built_in::{self, Located};
use crate::console;
use crate::failure::Failure;
use crate::output::Folder;
use crate::samples::SampleSource;
use crate::shell;
use crate::table;

/// Selection of the results that are shown, and the folder in which they are written.
#[derive(Clone, Copy, Debug)]
pub struct Output<'a> {
    /// Fields of the table and the charts; the usual ones when empty.
    pub fields: &'a [String],
    /// Folder of results.
    pub out: &'a Path,
    /// True to print JSON.
    pub json: bool,
}

/// Runs `rnic sweep`.
///
/// # Errors
/// Bad input; or a run that failed, with the reason.
pub fn run(args: &SweepArgs) -> Result<(), Failure> {
    let found = built_in::plan(&args.plan)?;
    let text = found.files.read_text(&found.path, PLAN_BYTES_MAX).map_err(|error| Failure::file(&found.path, error))?;
    let task = SweepTask { found: &found, text: &text, settings: &args.settings, axes: &args.axes, seeds: args.seeds };
    let output = Output { fields: &args.fields, out: &args.out, json: args.json };
    task.execute(&args.pool, &command(args), output)
}

/// Runs a plan with the seeds 1 to `seeds`.
///
/// # Errors
/// As [`run`].
pub fn run_seeds(
    found: &Located,
    text: &str,
    settings: &[Setting],
    seeds: u32,
    command: &str,
    output: Output<'_>,
) -> Result<(), Failure> {
    let task = SweepTask { found, text, settings, axes: &[], seeds };
    task.execute(&PoolArgs::default(), command, output)
}

struct SweepTask<'a> {
    found: &'a Located,
    text: &'a str,
    settings: &'a [Setting],
    axes: &'a [Axis],
    seeds: u32,
}

impl SweepTask<'_> {
    fn execute(&self, pool: &PoolArgs, command: &str, output: Output<'_>) -> Result<(), Failure> {
        check_fields(output.fields)?;
        let seeds = (1..=u64::from(self.seeds)).collect();
        let sweep = Sweep::new(self.text, &pairs(self.settings), self.axes.to_vec(), seeds, &self.found.folder())
            .map_err(|error| Failure::file(&self.found.path, error))?;
        let start = Instant::now();
        let mut source = SampleSource::open(output.out, pool)?;
        let kept = source.fetch(sweep.runs(), None)?;
        let left = source.left(sweep.runs());
        source.run(&left, kept)?;
        let set = sweep.run_set(source.samples(), command);
        conclude(&set, output, start.elapsed().as_secs_f64())
    }
}

/// Refuses fields that no report has.
fn check_fields(fields: &[String]) -> Result<(), Failure> {
    let numbers = Report::numbers();
    match fields.iter().find(|field| !numbers.iter().any(|number| Report::is_instance(field, number))) {
        Some(unknown) => {
            let mut hint = similar::hint(unknown, numbers.iter().map(String::as_str));
            if hint.is_empty() {
                // Units are part of names: `rct.p99` is meant as `rct_us.p99`.
                let (start, end) = unknown.rsplit_once('.').unwrap_or((unknown, ""));
                let is_meant = |number: &&String| number.starts_with(start) && number.ends_with(end);
                hint = match numbers.iter().find(is_meant) {
                    Some(number) => format!("; did you mean `{number}`?"),
                    None => "; report.json of `rnic sim --out DIR` has all of a plan".to_owned(),
                };
            }
            Err(Failure::Input(format!("--field {unknown}: reports have no such number{hint}")))
        }
        None => Ok(()),
    }
}

fn conclude(set: &RunSet, output: Output<'_>, wall_s: f64) -> Result<(), Failure> {
    let fields = shown_fields(set, output.fields);
    let results = Results::new(set, &fields);
    console::result(&console::text(|| results.text(set, wall_s)), output.json.then_some(&results));
    let folder = Folder::make(output.out)?;
    let json = serde_json::to_string(set).map_err(Failure::input)?;
    folder.write_text(run_set::FILE, &format!("{json}\n"))?;
    folder.write("runs.parquet", |file| set.write_parquet(file).map_err(io::Error::other))?;
    let page = folder.write_text("report.html", &page::page(set, &fields, &Machine::local()))?;
    console::line(&format!("wrote runs.json, runs.parquet and {}", page.display()));
    match set.failures().as_slice() {
        [] => Ok(()),
        [first, rest @ ..] => {
            let more = if rest.is_empty() { String::new() } else { format!(" (and {} more)", rest.len()) };
            Err(Failure::Check(format!("a run failed: {first}{more}")))
        }
    }
}

/// Returns the fields to show: those that were asked for, or the usual ones that all runs have.
pub fn shown_fields(set: &RunSet, wanted: &[String]) -> Vec<String> {
    if !wanted.is_empty() {
        return wanted.to_vec();
    }
    let known = set.fields();
    // Of a workload of requests, their completion times say more than those of their flows.
    let is_requests = known.iter().any(|field| field == "rct_us.avg");
    let usual: &[&str] = if is_requests {
        &["goodput_gbps", "rct_us.avg", "rct_us.p99", "packets_retransmitted", "drop_rate", "queue_max_bytes"]
    } else {
        &["goodput_gbps", "slowdown_avg", "fct_avg_us", "fct_p99_us", "packets_retransmitted", "drop_rate"]
    };
    usual.iter().filter(|field| known.iter().any(|known| known == *field)).map(|field| (*field).to_owned()).collect()
}

/// Returns an estimate as text: `93.4 +- 0.2`.
pub fn estimate_text(estimate: &Estimate) -> String {
    match estimate.half_width {
        Some(half) if half > 0.0 => format!("{} ± {}", number::short(estimate.mean), number::short(half)),
        _ => number::short(estimate.mean),
    }
}

/// The estimates of a sweep.
#[derive(Serialize)]
struct Results {
    fields: Vec<String>,
    points: Vec<PointResult>,
    failures: Vec<String>,
}

#[derive(Serialize)]
struct PointResult {
    at: Vec<(String, String)>,
    seeds: usize,
    estimates: Vec<Option<Estimate>>,
}

impl Results {
    fn new(set: &RunSet, fields: &[String]) -> Self {
        let point = |point: &PointRuns| PointResult {
            at: set.axes.iter().map(|axis| axis.key.clone()).zip(point.at.iter().cloned()).collect(),
            seeds: point.runs.len(),
            estimates: fields.iter().map(|field| point.estimate(field)).collect(),
        };
        Self { fields: fields.to_vec(), points: set.points.iter().map(point).collect(), failures: set.failures() }
    }

    fn text(&self, set: &RunSet, wall_s: f64) -> String {
        let names = set.axes.iter().map(|axis| axis.key.as_str());
        let heads: Vec<&str> = names.chain(self.fields.iter().map(String::as_str)).collect();
        let cell = |estimate: &Option<Estimate>| estimate.as_ref().map_or_else(|| "-".to_owned(), estimate_text);
        let row = |point: &PointResult| -> Vec<String> {
            point.at.iter().map(|(_, value)| value.clone()).chain(point.estimates.iter().map(cell)).collect()
        };
        let seeds = self.points.first().map_or(0, |point| point.seeds);
        let interval = if seeds > 1 { ", with half of the 95 % confidence interval" } else { "" };
        format!(
            "{}simulated; the mean over {seeds} seeds{interval}; {} runs in {}\n",
            table::results(&heads, self.points.iter().map(row).collect()),
            seeds * self.points.len(),
            number::seconds(wall_s)
        )
    }
}

/// Returns the command that repeats the sweep.
fn command(args: &SweepArgs) -> String {
    let mut words = vec!["rnic".to_owned(), "sweep".to_owned(), args.plan.display().to_string()];
    for axis in &args.axes {
        words.extend(["--vary".to_owned(), format!("{}={}", axis.key, axis.values.join(","))]);
    }
    for setting in &args.settings {
        words.extend(["--set".to_owned(), format!("{}={}", setting.key, setting.value)]);
    }
    words.extend(["--seeds".to_owned(), args.seeds.to_string()]);
    words.extend(args.fields.iter().flat_map(|field| ["--field".to_owned(), field.clone()]));
    shell::join(&words)
}
