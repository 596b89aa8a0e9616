//! `rnic rtl`: circuits in simulated networks.

mod flow;
mod trial;

use std::path::Path;

use rnic_reproduce::input::PLAN_BYTES_MAX;
use rnic_rtl::tools;

use crate::args::{RtlAction, RtlArgs, TraceArgs};
use crate::built_in;
use crate::failure::Failure;

/// Runs `rnic rtl`.
///
/// # Errors
/// When the plan or a tool cannot be used, or the circuit decides another way.
pub fn run(args: &RtlArgs) -> Result<(), Failure> {
    let RtlAction::Trace(args) = &args.action;
    let found = built_in::plan(&args.plan)?;
    let text = found.files.read_text(&found.path, PLAN_BYTES_MAX).map_err(|error| Failure::file(&found.path, error))?;
    let table: toml::Table = toml::from_str(&text).map_err(|error| Failure::file(&args.plan, error))?;
    // The trial's network is its own, of cycles; a plan of the simulator has a topology or its default.
    if table.contains_key("network") { trial::trace(args, table) } else { flow::trace(args, &found, &text) }
}

/// Checks that Verilator is installed, before anything that takes long.
fn require_verilator() -> Result<(), Failure> {
    tools::run(Path::new("."), "verilator", &["--version".to_owned()]).map(drop).map_err(Failure::input)
}

/// Creates the file for waves, and returns its absolute path.
fn create(args: &TraceArgs) -> Result<std::path::PathBuf, String> {
    let out = &args.out;
    let path = std::path::absolute(out).map_err(|error| format!("{}: {error}", out.display()))?;
    std::fs::File::create(&path).map_err(|error| format!("{}: {error}", out.display()))?;
    Ok(path)
}
