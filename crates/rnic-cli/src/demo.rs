//! `rnic demo`: transfers a real file over a lossy network, or lets two tenants share a link, in under a minute.

mod comparison;
mod find;
mod noisy;
mod page;
mod real;
mod simulated;
mod summary;

use std::fs;
use std::path::Path;

use rnic_reproduce::machine::Machine;

use crate::args::{DemoArgs, OtherDemo};
use crate::console;
use crate::failure::Failure;
use crate::output::Folder;
use crate::shell;

use comparison::{Comparison, Run};

/// Runs `rnic demo`.
///
/// # Errors
/// Bad input, or a file that did not arrive as it was sent.
pub fn run(args: &DemoArgs) -> Result<(), Failure> {
    if let Some(OtherDemo::NoisyNeighbour(noisy)) = &args.other {
        return noisy::run(noisy);
    }
    let path = find::file(args.file.as_deref())?;
    let folder = Folder::make(&args.out)?;
    let content = read(&path)?;
    let mut comparison = comparison(args, &path, content.len() as u64);
    console::line(&summary::announcement(&comparison, &path));
    for transport in TRANSPORTS {
        comparison.runs.push(follow(transport, "UDP", || real::transfer(&content, transport, args))?);
    }
    for transport in TRANSPORTS {
        comparison.runs.push(follow(transport, "simulation", || simulated::transfer(&content, transport, args))?);
    }
    console::result(&console::text(|| summary::text(&comparison)), args.json.then_some(&comparison));
    write(&folder, &comparison)?;
    if comparison.is_verified() {
        return Ok(());
    }
    Err(Failure::Check("check failed: the received file differs from the sent file".to_owned()))
}

/// Executes one run and shows a spinner while it runs.
fn follow(transport: &str, body: &str, run: impl FnOnce() -> Result<Run, Failure>) -> Result<Run, Failure> {
    let spinner = console::spinner(&format!("{transport}, {body}"));
    let result = run();
    spinner.finish_and_clear();
    result
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let bytes = fs::metadata(path).map_err(|error| Failure::file(path, error))?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(Failure::file(
            path,
            format!("the file has {bytes} bytes; the demonstration transfers at most 1 GiB"),
        ));
    }
    fs::read(path).map_err(|error| Failure::file(path, error))
}

/// Returns the command that repeats the demonstration.
fn words(args: &DemoArgs) -> Vec<String> {
    let mut words = vec!["rnic".to_owned(), "demo".to_owned()];
    words.extend(args.file.iter().flat_map(|file| ["--file".to_owned(), file.display().to_string()]));
    words.extend(["--loss".to_owned(), args.loss.to_string(), "--reorder".to_owned(), args.reorder.to_string()]);
    words.extend(["--seed".to_owned(), args.seed.to_string()]);
    words
}

fn comparison(args: &DemoArgs, path: &Path, bytes: u64) -> Comparison {
    Comparison {
        file: path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
        bytes,
        loss: args.loss.as_f64(),
        reorder: args.reorder.as_f64(),
        seed: args.seed,
        write_bytes: WRITE_BYTES.into(),
        depth: DEPTH,
        mtu: MTU,
        command: shell::join(&words(args)),
        machine: Machine::local(),
        runs: Vec::new(),
    }
}

fn write(folder: &Folder, comparison: &Comparison) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(comparison).map_err(Failure::input)?;
    folder.write_text("demo.json", &format!("{json}\n"))?;
    let page = folder.write_text("demo.html", &page::page(comparison))?;
    let page = fs::canonicalize(&page).unwrap_or(page);
    console::line(&format!("The chart: {} (figures: demo.json beside it)", page.display()));
    Ok(())
}

/// Transports to compare: first the transport that RoCE adapters implement, then the alternatives.
const TRANSPORTS: [&str; 3] = ["roce-gbn", "irn", "falcon"];
/// Size of one Write, in bytes.
const WRITE_BYTES: u32 = 64 << 10;
/// Writes in flight.
const DEPTH: u32 = 32;
/// Payload bytes of a full packet.
const MTU: u32 = 4096;
/// Maximum file size in bytes: both simulated hosts hold the file in memory, and so do both processes.
const FILE_BYTES_MAX: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::args::{Cli, Command};

    #[test]
    fn the_printed_command_repeats_the_demonstration() {
        let parsed = |words: &[String]| match Cli::try_parse_from(words).map(|cli| cli.command) {
            Ok(Command::Demo(args)) => (args.file, args.loss, args.reorder, args.seed),
            other => panic!("{words:?}: {other:?}"),
        };
        for options in [&[][..], &["--file", "a b", "--loss", "0.12%", "--reorder", "0", "--seed", "7"]] {
            let given = [&["rnic", "demo"][..], options].concat().into_iter().map(str::to_owned).collect::<Vec<_>>();
            let Ok(Cli { command: Command::Demo(args) }) = Cli::try_parse_from(&given) else { panic!("{given:?}") };
            assert_eq!(parsed(&words(&args)), parsed(&given));
        }
    }

    #[test]
    fn the_examples_of_help_texts_are_commands() {
        let mut command = Cli::command();
        let demo = command.find_subcommand_mut("demo").expect("it exists");
        let noisy = demo.find_subcommand("noisy-neighbour").and_then(|noisy| noisy.get_after_help()).cloned();
        let texts = [demo.get_after_help().cloned(), noisy].map(|text| text.expect("it has examples").to_string());
        let lines: Vec<&str> =
            texts.iter().flat_map(|text| text.lines()).filter_map(|line| line.strip_prefix("  rnic ")).collect();
        assert!(lines.len() >= 5, "{lines:?}");
        for line in lines {
            let words = line.split("  ").next().unwrap_or_default().split(' ');
            assert!(Cli::try_parse_from(["rnic"].into_iter().chain(words)).is_ok(), "{line}");
        }
    }

    #[test]
    fn help_and_readme_name_the_transports_that_are_shown() {
        let command = Cli::command();
        let help = command.find_subcommand("demo").and_then(|demo| demo.get_after_help()).map(ToString::to_string);
        let readme = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).expect("it exists");
        let paragraph = readme.split("\n\n").find(|paragraph| paragraph.starts_with("`make run` builds"));
        let paragraph = paragraph.expect("the README has the paragraph");
        for transport in TRANSPORTS {
            assert!(help.as_ref().is_some_and(|help| help.contains(transport)), "{transport}: {help:?}");
            assert!(paragraph.contains(&format!("`{transport}`")), "{transport}: {paragraph}");
        }
    }
}
