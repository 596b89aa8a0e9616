//! Commands for packages and shells, which the list of subcommands leaves out.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Arguments of `rnic completions`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  rnic completions bash > ~/.local/share/bash-completion/completions/rnic")]
pub struct CompletionsArgs {
    /// Shell that reads the text
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Shells with completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// GNU Bash
    Bash,
    /// Z shell
    Zsh,
    /// fish
    Fish,
}

/// Arguments of `rnic manual`.
#[derive(Args, Clone, Debug)]
pub struct ManualArgs {
    /// Directory in which to write rnic.1 and a page for each subcommand
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}
