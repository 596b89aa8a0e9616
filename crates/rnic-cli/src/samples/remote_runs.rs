//! Executes runs on other machines: runs are sent as lines of JSON, one per run, and samples are returned in the same
//! form.

use std::env;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use rnic_reproduce::{RunSpec, SOURCES, Sample, input};

use crate::args::PoolArgs;
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
        let spec: RunSpec = serde_json::from_str(&line)
            .map_err(|error| Failure::Input(format!("the input line is not a run: {error}")))?;
        check_sources(&spec.sources)?;
        let sample = serde_json::to_string(&spec.run()).map_err(Failure::input)?;
        console::print(&format!("{sample}\n"));
    }
    Ok(())
}

/// Writes those of `runs` that other machines can execute to a file, one per line, and reports the number of the
/// others.
///
/// # Errors
/// When the file cannot be written.
pub fn write(path: &Path, runs: &[&RunSpec]) -> Result<(), Failure> {
    let (local, remote): (Vec<&RunSpec>, Vec<&RunSpec>) = runs.iter().partition(|run| run.needs_idle_machine());
    let mut file = File::create(path).map_err(|error| Failure::file(path, error))?;
    file.write_all(lines(&remote)?.as_bytes()).map_err(|error| Failure::file(path, error))?;
    let local_note = if local.is_empty() {
        String::new()
    } else {
        format!("; {} more runs measure this machine and must be executed here", local.len())
    };
    console::line(&format!("wrote {} runs to {}{local_note}", remote.len(), path.display()));
    Ok(())
}

/// Reads samples from a file.
///
/// # Errors
/// When the file cannot be read, or contains data other than samples of this build.
pub fn read(path: &Path, mut on_sample: impl FnMut(Sample) -> Result<(), Failure>) -> Result<(), Failure> {
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
            return Err(Failure::file(
                path,
                format!("line {number} has {} MiB or more, which exceeds the maximum length of a result", most >> 20),
            ));
        }
        on_sample(sample(&line).map_err(|error| Failure::file(path, format!("line {number}: {error}")))?)?;
    }
    Ok(())
}

/// Executes `runs` on the workers of a Dask cluster.
///
/// # Errors
/// When the cluster, or a run on it, fails.
pub fn on_dask(
    scheduler: &str,
    args: &PoolArgs,
    runs: &[&RunSpec],
    mut on_sample: impl FnMut(Sample) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let own_executable = env::current_exe().map_err(Failure::input)?;
    let rnic = args.worker_rnic.as_deref().unwrap_or(&own_executable);
    let mut child = Command::new("python3")
        .args(["-c", SCRIPT, "--scheduler", scheduler, "--rnic"])
        .arg(rnic)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| Failure::Input(format!("cannot start python3: {error}")))?;
    let (input, lines) = (child.stdin.take(), lines(runs)?);
    // The process reads all its input before it writes; the thread avoids a deadlock if that changes.
    let writer = thread::spawn(move || input.map_or(Ok(()), |mut input| input.write_all(lines.as_bytes())));
    let output = child.stdout.take().expect("standard output was asked to be a pipe");
    for line in BufReader::new(output).lines() {
        on_sample(sample(&line.map_err(Failure::input)?).map_err(Failure::Input)?)?;
    }
    let _ = writer.join();
    let status = child.wait().map_err(Failure::input)?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure::Input(format!(
            "the Dask cluster at {scheduler} did not complete the runs; see its messages above"
        )))
    }
}

fn lines(runs: &[&RunSpec]) -> Result<String, Failure> {
    let lines: Result<Vec<String>, _> = runs.iter().map(serde_json::to_string).collect();
    Ok(lines.map_err(Failure::input)?.into_iter().map(|line| line + "\n").collect())
}

fn sample(line: &str) -> Result<Sample, String> {
    let sample: Sample =
        serde_json::from_str(line).map_err(|error| format!("the line is not the result of a run: {error}"))?;
    check_sources(&sample.sources).map_err(|failure| failure.to_string())?;
    Ok(sample)
}

fn check_sources(sources: &str) -> Result<(), Failure> {
    if sources == SOURCES {
        return Ok(());
    }
    Err(Failure::Input(format!(
        "the result comes from a build of other sources ({SOURCES} here, {sources} there); use the same build on all \
         machines"
    )))
}

const SCRIPT: &str = include_str!("../../../../tools/reproduce_dask.py");
