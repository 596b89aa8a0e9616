//! Arguments of `rnic program`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// Arguments of `rnic program`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ProgramArgs {
    /// Action.
    #[command(subcommand)]
    pub action: ProgramAction,
}

const EXAMPLES: &str = "\
A transport program decides on loss recovery and congestion control (Tonic, NSDI'20). It runs as native code, is \
loaded as a file, and is emitted as SystemVerilog; all forms decide equally. A law is such a program for congestion \
control, scheduling or paths alone.

  rnic program list
  rnic program explain new-reno
  rnic program emit new-reno --as sv > new_reno.sv
  rnic program build new-reno -o new-reno.rnicp && rnic program check new-reno.rnicp
  rnic program load 4711 new-reno.rnicp";

/// Actions of `rnic program`.
#[derive(Debug, Subcommand)]
pub enum ProgramAction {
    /// List the programs, with their state and depth
    List {
        /// Print one JSON object on standard output
        #[arg(long)]
        json: bool,
    },

    /// Show state, parameters and longest paths of a program
    Explain {
        /// Name of a program, or a program file (*.rnicp)
        program: String,

        /// Print one JSON object on standard output
        #[arg(long)]
        json: bool,
    },

    /// Print a program as a circuit or a picture
    Emit {
        /// Name of a program, or a program file (*.rnicp)
        program: String,

        /// Form
        #[arg(long = "as", value_enum, default_value_t = Form::Sv)]
        form: Form,
    },

    /// Write a program file
    Build {
        /// Name of a program; the folder of a package of `rnic new transport`, which cargo builds; or a WebAssembly
        /// module (*.wasm) that was compiled from another language
        program: String,

        /// Put this description (`emit --as description`) into the WebAssembly module
        #[arg(long, value_name = "FILE")]
        description: Option<PathBuf>,

        /// File to write: with the name FILE.wasm, a WebAssembly module
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
    },

    /// Load a program file into a running process, for the queue pairs that it creates from then on
    Load {
        /// ID of the process, as `rnic top` shows it
        #[arg(value_name = "PID", value_parser = process_id)]
        pid: u32,

        /// Program file (*.rnicp), or `none` to unload the loaded programs
        #[arg(value_name = "FILE")]
        program: String,

        /// Print one JSON object on standard output
        #[arg(long)]
        json: bool,
    },

    /// Check a program file: its form, its graphs, a run of random events, and the contract kit
    Check {
        /// Program file (*.rnicp)
        file: PathBuf,

        /// Print one JSON object on standard output
        #[arg(long)]
        json: bool,
    },
}

/// Reads the ID of a process.
fn process_id(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "not the ID of a process; `rnic top` shows those of processes with a device".to_owned())
}

/// Forms that a program is emitted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// SystemVerilog: a module for each function, and the modules that they instantiate, if any
    Sv,
    /// Graphviz
    Graph,
    /// The description of the program (TOML), which a WebAssembly module needs
    Description,
    /// C: the positions of inputs and outputs of a WebAssembly module
    Header,
}
