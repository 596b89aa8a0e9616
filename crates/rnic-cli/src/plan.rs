//! `rnic plan`: the built-in plans, a start for one of your own, and the schema of all keys.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use rnic_fabric::plan::json_schema;
use rnic_reproduce::input::{PLAN_BYTES_MAX, TRACE_BYTES_MAX};

use crate::args::{PlanAction, PlanArgs};
use crate::failure::Failure;
use crate::{built_in, console};

/// Runs `rnic plan`.
///
/// # Errors
/// A plan that does not exist; a file that exists or cannot be written.
pub fn run(args: &PlanArgs) -> Result<(), Failure> {
    match &args.action {
        PlanAction::List => {
            let width = built_in::plans().map(|(name, _)| name.len()).max().unwrap_or(0);
            for (name, text) in built_in::plans() {
                console::print(&format!("{name:width$}  {}\n", built_in::summary(text)));
            }
            Ok(())
        }
        PlanAction::Show { plan } => {
            console::print(&text_of(plan)?);
            Ok(())
        }
        PlanAction::New { file, from } => {
            let text = text_of(from)?;
            create(file, &text)?;
            let topology = copy_topology(from, &text, file)?;
            let and = topology.map_or_else(String::new, |path| format!(" and its network, {}", path.display()));
            console::line(&format!("wrote {0}{and}; run it: rnic sim {0}", file.display()));
            Ok(())
        }
        PlanAction::Schema => {
            let schema = serde_json::to_string_pretty(&json_schema()).map_err(Failure::input)?;
            console::print(&format!("{schema}\n"));
            Ok(())
        }
    }
}

fn create(file: &Path, text: &str) -> Result<(), Failure> {
    let mut output = File::create_new(file).map_err(|error| Failure::file(file, error))?;
    output.write_all(text.as_bytes()).map_err(|error| Failure::file(file, error))
}

/// Copies the file of the topology of the plan `from`, with this `text`, beside the new plan, if it has one and none of
/// that name is there; returns its path then.
fn copy_topology(from: &Path, text: &str, file: &Path) -> Result<Option<PathBuf>, Failure> {
    let plan: toml::Table = text.parse().map_err(Failure::input)?;
    let Some(name) = plan.get("topology").and_then(|table| table.get("file")?.as_str()) else { return Ok(None) };
    let found = built_in::plan(from)?;
    let source = found.path.with_file_name(name);
    let target = file.with_file_name(name);
    if target.exists() {
        return Ok(None);
    }
    let topology = found.files.read_text(&source, TRACE_BYTES_MAX).map_err(|error| Failure::file(&source, error))?;
    create(&target, &topology)?;
    Ok(Some(target))
}

fn text_of(plan: &Path) -> Result<String, Failure> {
    let found = built_in::plan(plan)?;
    found.files.read_text(&found.path, PLAN_BYTES_MAX).map_err(|error| Failure::file(&found.path, error))
}
