//! The command line.

mod compare;
mod demo;
mod doctor;
mod limit;
mod list;
mod new;
mod packaging;
mod perf;
mod plan;
mod pool;
mod program;
mod reproduce;
mod rtl;
mod run;
mod signals;
mod sim;
mod sweep;
mod top;
pub mod values;

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};

pub use compare::CompareArgs;
pub use demo::{DemoArgs, NoisyArgs, OtherDemo};
pub use doctor::DoctorArgs;
pub use limit::LimitArgs;
pub use list::{ListArgs, ListKind};
pub use new::{NewArgs, NewKind};
pub use packaging::{CompletionsArgs, ManualArgs, Shell};
pub use perf::PerfArgs;
pub use plan::{PlanAction, PlanArgs};
pub use pool::PoolArgs;
pub use program::{Form, ProgramAction, ProgramArgs};
pub use reproduce::{ReproduceArgs, SensitivityDesign};
pub use rtl::{RtlAction, RtlArgs, TraceArgs};
pub use run::RunArgs;
pub use signals::SignalsArgs;
pub use sim::SimArgs;
pub use sweep::SweepArgs;
pub use top::TopArgs;

use crate::console;
use crate::failure::one_line;

/// Reliable RDMA over a lossy network, simulated or real
#[derive(Debug, Parser)]
#[command(name = "rnic", version, max_term_width = 100, subcommand_required = true, arg_required_else_help = true)]
#[command(after_help = EPILOGUE)]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands of `rnic`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Transfer a file through a lossy network, real and simulated, and compare transports
    Demo(DemoArgs),

    /// Run an unmodified RDMA program on the software device
    Run(RunArgs),

    /// Report which settings and libraries `rnic run` would use here, and why
    Doctor(DoctorArgs),

    /// Monitor the processes that use the software device
    Top(TopArgs),

    /// Limit the rate of a running process or of one of its queue pairs
    Limit(LimitArgs),

    /// Print the signals of a running process, by which control programs decide
    Signals(SignalsArgs),

    /// Measure one kind of operation, over UDP between processes or machines, or simulated
    Perf(PerfArgs),

    /// Simulate a network from a plan
    Sim(SimArgs),

    /// Show the built-in plans, start one of your own, print the schema for editors
    Plan(PlanArgs),

    /// Simulate a plan with every combination of some values, over several seeds
    Sweep(SweepArgs),

    /// Compare the results of two simulations or sweeps
    Compare(CompareArgs),

    /// Show, emit, build and check transport programs
    Program(ProgramArgs),

    /// Make a package in which to write a transport or a controller
    New(NewArgs),

    /// Reproduce figures of papers and compare them with the published results
    Reproduce(ReproduceArgs),

    /// Show Tonic's circuit at work in a simulated network
    Rtl(RtlArgs),

    /// List transports with their options, policies, topologies, workloads, faults and plans
    List(ListArgs),

    /// Print the completions of a shell
    #[command(hide = true)]
    Completions(CompletionsArgs),

    /// Write manual pages
    #[command(hide = true)]
    Manual(ManualArgs),
}

const EPILOGUE: &str = "\
Quantities carry their unit: 64KiB, 240KB, 100Gbps, 20us, 1.5ms, 1%.
Every command but run and signals takes --json: one object on standard output, text for people on standard error.
Exit codes: 0 done and checked, 1 a check failed, 2 bad input, 130 interrupted.";

/// Prints help and version as clap does; every other error is reported as bad input, in one line.
pub fn report(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(2)
        }
        kind => {
            let below_zero =
                if kind == ErrorKind::UnknownArgument { below_zero(error, &command_line_words()) } else { None };
            let other = if kind == ErrorKind::UnknownArgument { option_of_others(error) } else { String::new() };
            let text = below_zero.unwrap_or_else(|| complaint(&error.to_string()) + &other);
            console::line(&format!("rnic: {text}"));
            ExitCode::from(2)
        }
    }
}

/// Returns the words of the command line. Invalid UTF-8 is replaced, because the words are only displayed.
fn command_line_words() -> Vec<String> {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Returns the message for a negative number after an option that takes a value: clap reads the number as an option,
/// and its advice for unknown options does not help here.
fn below_zero(error: &clap::Error, words: &[String]) -> Option<String> {
    let Some(ContextValue::String(refused)) = error.get(ContextKind::InvalidArg) else { return None };
    let is_negative =
        |word: &str| word.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    // Of an unknown argument that begins with one dash, clap names only the first character.
    let is_refused_number = |word: &str| is_negative(word) && word.starts_with(refused.as_str());
    // Arguments after `--` belong to the program to be run.
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let pair = words[..end].windows(2).find(|pair| is_refused_number(&pair[1]) && takes_value(&words[1], &pair[0]))?;
    Some(format!("{} {}: the value must not be negative", pair[0], pair[1]))
}

/// Returns `true` if `option` of the subcommand `name` takes a value.
fn takes_value(name: &str, option: &str) -> bool {
    let (command, long) = (Cli::command(), option.strip_prefix("--"));
    let mut arguments = command.find_subcommand(name).into_iter().flat_map(clap::Command::get_arguments);
    arguments.any(|argument| long.is_some() && argument.get_long() == long && argument.get_action().takes_values())
}

/// Returns `; ...` with the subcommands that have the unknown option, or nothing.
fn option_of_others(error: &clap::Error) -> String {
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidArg) else { return String::new() };
    let Some(long) = unknown.strip_prefix("--") else { return String::new() };
    let cli = Cli::command();
    let has = |command: &&clap::Command| {
        !command.is_hide_set() && command.get_arguments().any(|argument| argument.get_long() == Some(long))
    };
    let names: Vec<String> =
        cli.get_subcommands().filter(has).map(|command| format!("`rnic {}`", command.get_name())).collect();
    if names.is_empty() { String::new() } else { format!("; an option of {}", names.join(", ")) }
}

/// Returns clap's message without its heading, usage, advice on help, and advice to pass an unknown option as a value.
fn complaint(text: &str) -> String {
    let is_message_line = |line: &&str| !line.starts_with("Usage:") && !line.starts_with("For more information");
    let is_advice = |line: &&str| !line.trim_start().starts_with("tip: to pass '");
    let message: Vec<&str> = text.lines().take_while(is_message_line).filter(is_advice).collect();
    let message = message.join("\n").replace("\n\n  tip: ", "; ");
    one_line(message.strip_prefix("error: ").unwrap_or(&message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_argument_declaration_is_valid() {
        Cli::command().debug_assert();
    }

    /// Checks that help is wrapped by clap alone: a paragraph of the text below the options is one line.
    #[test]
    fn a_paragraph_of_help_is_one_line() {
        let mut commands = vec![Cli::command()];
        while let Some(command) = commands.pop() {
            let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with("  ")) {
                assert!(line.ends_with(['.', ':']), "{}: a line is broken: {line}", command.get_name());
            }
            commands.extend(command.get_subcommands().cloned());
        }
    }

    #[test]
    fn negative_numbers_are_reported_as_negative() {
        let error = |text: &str| {
            let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            below_zero(&Cli::try_parse_from(&words).expect_err(text), &words)
        };
        assert_eq!(error("rnic perf --loss -1% --json").as_deref(), Some("--loss -1%: the value must not be negative"));
        for other in [
            "rnic perf -x",
            "rnic perf --json -h",
            "rnic perf -1",
            "rnic perf --json -5",
            "rnic perf --jsn -5",
            "rnic perf --listen 127.0.0.1 --wrong --loss=-1%",
        ] {
            assert_eq!(error(other), None, "{other}");
        }
    }

    #[test]
    fn argument_errors_are_one_line_and_keep_the_tip() {
        let error = Cli::try_parse_from(["rnic", "list", "--jsn"]).expect_err("no such option");
        let error = complaint(&error.to_string());
        assert_eq!(error, "unexpected argument '--jsn' found; a similar argument exists: '--json'");
        let error = Cli::try_parse_from(["rnic", "run", "--los", "1%", "x"]).expect_err("no such option");
        let error = complaint(&error.to_string());
        assert_eq!(error, "unexpected argument '--los' found; a similar argument exists: '--loss'");
    }

    #[test]
    fn an_option_of_another_command_is_named() {
        let advice = |text: &str| option_of_others(&Cli::try_parse_from(text.split(' ')).expect_err(text));
        assert_eq!(advice("rnic sim incast --vary transport=irn,falcon"), "; an option of `rnic sweep`");
        assert_eq!(advice("rnic sweep incast --plot"), "");
        assert_eq!(advice("rnic perf -x"), "");
    }
}
