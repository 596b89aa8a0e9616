//! `rnic completions` and `rnic manual`: what packages install beside the command, made from the declaration of its
//! arguments.

use std::io::{self, Write};

use clap::{Command, CommandFactory};
use clap_complete::{generate, shells};
use clap_mangen::Man;

use crate::args::{Cli, CompletionsArgs, ManualArgs, Shell};
use crate::console;
use crate::failure::Failure;
use crate::output::Folder;

/// Prints the completions of a shell.
///
/// # Errors
/// Currently none.
pub fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let (mut command, mut text) = (Cli::command(), Vec::new());
    match args.shell {
        Shell::Bash => generate(shells::Bash, &mut command, NAME, &mut text),
        Shell::Zsh => generate(shells::Zsh, &mut command, NAME, &mut text),
        Shell::Fish => generate(shells::Fish, &mut command, NAME, &mut text),
    }
    console::print(&String::from_utf8_lossy(&text));
    Ok(())
}

/// Writes the manual pages.
///
/// # Errors
/// When one cannot be written.
pub fn manual(args: &ManualArgs) -> Result<(), Failure> {
    let folder = Folder::make(&args.folder)?;
    let mut command = Cli::command();
    command.build();
    write_page(&folder, &command, NAME)?;
    for subcommand in command.get_subcommands().filter(|one| !one.is_hide_set() && one.get_name() != "help") {
        write_page(&folder, subcommand, &format!("{NAME}-{}", subcommand.get_name()))?;
    }
    Ok(())
}

/// Writes a page. Examples and explanations behind the options, whose lines are complete as they stand, are set as
/// they are.
fn write_page(folder: &Folder, command: &Command, name: &str) -> Result<(), Failure> {
    let page = Man::new(command.clone()).title(name.to_uppercase()).date("").source("OpenRNIC").manual("OpenRNIC");
    let render = |output: &mut dyn Write| -> io::Result<()> {
        page.render_title(output)?;
        page.render_name_section(output)?;
        page.render_synopsis_section(output)?;
        page.render_description_section(output)?;
        if command.get_arguments().any(|argument| !argument.is_hide_set()) {
            page.render_options_section(output)?;
        }
        if command.has_subcommands() {
            page.render_subcommands_section(output)?;
        }
        if let Some(extra) = command.get_after_help() {
            writeln!(output, ".SH EXTRA\n.nf")?;
            for line in extra.to_string().lines() {
                writeln!(output, "\\&{}", line.replace('\\', "\\\\").replace('-', "\\-"))?;
            }
            writeln!(output, ".fi")?;
        }
        Ok(())
    };
    folder.write(&format!("{name}.1"), |output| render(output)).map(|_| ())
}

const NAME: &str = "rnic";
