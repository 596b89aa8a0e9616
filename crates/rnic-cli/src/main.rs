//! The `rnic` command.
//!
//! ```text
//! CRATE    rnic-cli (green: a newcomer may change anything that keeps the tests green)
//! Purpose  the rnic command: arguments in; tables, charts and JSON out; unmodified programs on OpenRNIC's libraries
//! May use  rnic-base, rnic-wire, rnic-program, rnic-tonic, rnic-policy, rnic-transports, rnic-engine, rnic-fabric,
//!          rnic-host, rnic-page, rnic-reproduce, rnic-rtl
//! Must not decide anything about transports; measure or simulate by itself
//! Add here an option, a column, a figure
//! Not here functions that other programs could use (rnic-host, rnic-fabric), drawing (rnic-page)
//! Tested by tests/, which run the command: every subcommand, every error line, the README's examples
//! ```
//!
//! Exit codes: 0 done and checked, 1 a failed check, 2 bad input (one line on standard error), 130 interrupted. With
//! `--json`, standard output holds exactly one JSON object and the text for users goes to standard error.

#![forbid(unsafe_code)]

mod args;
mod built_in;
mod compare;
mod console;
mod demo;
mod doctor;
mod failure;
mod fit;
mod flows;
mod heartbeat;
mod limit;
mod link;
mod list;
mod new;
mod output;
mod packaging;
mod perf;
mod plan;
mod program;
mod reproduce;
mod rtl;
mod run;
mod running;
mod samples;
mod shell;
mod signals;
mod sim;
mod sweep;
mod table;
mod top;

use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;

use args::{Cli, Command};
use failure::Failure;

/// Allocator of the command. A simulation of many connections allocates and frees rings of all sizes. With the C
/// library's allocator, a simulation with 64 Falcon connections per host runs at five sixths of the speed, one with
/// IRN connections at nine tenths.
#[global_allocator]
static HEAP: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return args::report(&error),
    };
    // `rnic run` replaces this process with the program, so it leaves the signal handlers unchanged.
    if !matches!(cli.command, Command::Run(_)) {
        console::end_on_interrupt();
    }
    let result = run(&cli.command).and_then(|()| match console::output_error() {
        Some(error) => Err(Failure::input(format!("cannot write to standard output: {error}"))),
        None => Ok(()),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            console::line(&failure.to_string());
            failure.exit_code()
        }
    }
}

fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Completions(args) => packaging::completions(args),
        Command::Compare(args) => compare::run(args),
        Command::Demo(args) => demo::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Limit(args) => limit::run(args),
        Command::List(args) => list::run(args),
        Command::Manual(args) => packaging::manual(args),
        Command::New(args) => new::run(args),
        Command::Perf(args) => perf::run(args),
        Command::Plan(args) => plan::run(args),
        Command::Program(args) => program::run(args),
        Command::Reproduce(args) => reproduce::run(args),
        Command::Rtl(args) => rtl::run(args),
        Command::Run(args) => run::run(args),
        Command::Signals(args) => signals::run(args),
        Command::Sim(args) => sim::run(args),
        Command::Sweep(args) => sweep::run(args),
        Command::Top(args) => top::run(args),
    }
}
