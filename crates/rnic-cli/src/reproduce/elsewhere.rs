//! Executes runs on other machines: runs are sent as lines of JSON, one per run, and samples are returned as lines.

use std::env;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use rnic_reproduce::{RunSpec, SOURCES, Sample, input};

use crate::args::ReproduceArgs;
use crate::console;
use crate::failure::Failure;

/// Executes the run on each line of standard input and writes its sample to standard output.
///
/// # Errors
/// A line that is not a run, or a run of another build.
pub fn work() -> Result<(), Failure> {
    for line in io::stdin().lock().lines() {
        let line = line.map_err(Failure::input)?;
        if line.trim().is_empty() {
            continue;
        }
        let spec: RunSpec = serde_json::from_str(&line).map_err(|error| Failure::Input(format!("no run: {error}")))?;
        check_sources(&spec.sources)?;
        let sample = serde_json::to_string(&spec.run()).map_err(Failure::input)?;
        console::print(&format!("{sample}\n"));
    }
    Ok(())
}

/// Writes those of `runs` that can be executed elsewhere to a file, one per line, and reports how many cannot.
///
/// # Errors
/// When it cannot be written.
pub fn write(path: &Path, runs: &[&RunSpec]) -> Result<(), Failure> {
    let (here, away): (Vec<&RunSpec>, Vec<&RunSpec>) = runs.iter().partition(|run| run.is_alone());
    let mut file = File::create(path).map_err(|error| Failure::file(path, error))?;
    file.write_all(lines(&away)?.as_bytes()).map_err(|error| Failure::file(path, error))?;
    let stay =
        if here.is_empty() { String::new() } else { format!("; {} runs are measured and stay here", here.len()) };
    console::line(&format!("wrote {} runs to {}{stay}", away.len(), path.display()));
    Ok(())
}

/// Reads samples from a file.
///
/// # Errors
/// When it cannot be read, contains something else, or samples of another build.
pub fn read(path: &Path, mut done: impl FnMut(Sample) -> Result<(), Failure>) -> Result<(), Failure> {
    let file = input::open(path).map_err(|error| Failure::file(path, error))?;
    let mut file = BufReader::new(file);
    for number in 1.. {
        let mut line = String::new();
        let most = input::LINE_BYTES_MAX;
        let read = (&mut file).take(most).read_line(&mut line).map_err(|error| Failure::file(path, error))?;
        if read == 0 {
            break;
        }
        if read as u64 == most {
            return Err(Failure::file(path, format!("line {number} has {} MiB or more, no sample has", most >> 20)));
        }
        done(sample(&line).map_err(|error| Failure::file(path, format!("line {number}: {error}")))?)?;
    }
    Ok(())
}

/// Executes `runs` on the workers of a Dask cluster.
///
/// # Errors
/// When the cluster, or a run on it, fails.
pub fn on_dask(
    scheduler: &str,
    args: &ReproduceArgs,
    runs: &[&RunSpec],
    mut done: impl FnMut(Sample) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let here = env::current_exe().map_err(Failure::input)?;
    let rnic = args.worker_rnic.as_deref().unwrap_or(&here);
    let mut child = Command::new("python3")
        .args(["-c", SCRIPT, "--scheduler", scheduler, "--rnic"])
        .arg(rnic)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| Failure::Input(format!("python3: {error}")))?;
    let (input, lines) = (child.stdin.take(), lines(runs)?);
    // The process reads all its input before it writes; the thread avoids a deadlock if that changes.
    let feeder = thread::spawn(move || input.map_or(Ok(()), |mut input| input.write_all(lines.as_bytes())));
    let output = child.stdout.take().expect("standard output was asked to be a pipe");
    for line in BufReader::new(output).lines() {
        done(sample(&line.map_err(Failure::input)?).map_err(Failure::Input)?)?;
    }
    let _ = feeder.join();
    let status = child.wait().map_err(Failure::input)?;
    if status.success() { Ok(()) } else { Err(Failure::Input(format!("the cluster at {scheduler} has not done it"))) }
}

fn lines(runs: &[&RunSpec]) -> Result<String, Failure> {
    let lines: Result<Vec<String>, _> = runs.iter().map(serde_json::to_string).collect();
    Ok(lines.map_err(Failure::input)?.into_iter().map(|line| line + "\n").collect())
}

fn sample(line: &str) -> Result<Sample, String> {
    let sample: Sample = serde_json::from_str(line).map_err(|error| format!("no sample: {error}"))?;
    check_sources(&sample.sources).map_err(|failure| failure.to_string())?;
    Ok(sample)
}

fn check_sources(sources: &str) -> Result<(), Failure> {
    if sources == SOURCES {
        return Ok(());
    }
    Err(Failure::Input(format!("this command was built from other sources ({SOURCES} here, {sources} there)")))
}

const SCRIPT: &str = include_str!("../../../../tools/reproduce_dask.py");
