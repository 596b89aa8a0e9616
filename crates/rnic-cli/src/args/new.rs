//! Arguments of `rnic new`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Arguments of `rnic new`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct NewArgs {
    /// Contents of the package
    #[arg(value_enum)]
    pub kind: NewKind,

    /// Name: of the folder, the package, and the program or controller
    pub name: String,

    /// Source tree of OpenRNIC on which the package depends; without it, the tree from which this command was built, or
    /// the public repository when that tree does not exist
    #[arg(long, value_name = "DIR")]
    pub path: Option<PathBuf>,

    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// Packages that can be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NewKind {
    /// A transport program: loss recovery and congestion control in two functions
    Transport,
    /// A congestion controller
    Controller,
    /// A law: a controller, scheduler or path policy as a program, which is loaded from a file
    Law,
}

const EXAMPLES: &str = "\
Makes the folder NAME, a cargo package of its own: a commented text to change, its tests, a plan, and a README with \
the commands to type. Nothing that exists is overwritten.

Examples:
  rnic new transport my-reno
  rnic new controller my-aimd
  rnic new law my-law";
