//! Calls of external tools for hardware design, and checks whether they are installed.

use std::path::Path;
use std::process::Command;

/// Variable that makes the absence of a tool an error.
const REQUIRE: &str = "RNIC_REQUIRE_VERILATOR";

/// Reason why an external tool failed.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The tool could not be started.
    #[error("{tool} cannot be started ({source}); install it by: apt-get install verilator yosys g++")]
    Start {
        /// Name of the tool.
        tool: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The tool ended with an error.
    #[error("{tool} failed:\n{output}")]
    Failed {
        /// Name of the tool.
        tool: String,
        /// The end of its output.
        output: String,
    },
    /// A file could not be written or read.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Returns whether all `tools` are installed.
///
/// # Panics
/// When one is missing and `RNIC_REQUIRE_VERILATOR=1` demands them.
pub fn are_installed(tools: &[&str]) -> bool {
    let is_missing = |tool: &&&str| {
        let version = if **tool == "yosys" { "-V" } else { "--version" };
        !Command::new(tool).arg(version).output().is_ok_and(|output| output.status.success())
    };
    let Some(missing) = tools.iter().find(is_missing) else { return true };
    let is_required = std::env::var_os(REQUIRE).is_some_and(|value| value == "1");
    assert!(!is_required, "{missing} is missing, and {REQUIRE}=1 demands it: apt-get install verilator yosys g++");
    eprintln!("skipped: no {missing}; apt-get install verilator yosys g++");
    false
}

/// Runs a tool in `folder` and returns its output.
///
/// # Errors
/// When it cannot be started, or fails.
pub fn run(folder: &Path, tool: &str, arguments: &[String]) -> Result<String, ToolError> {
    let output = Command::new(tool).args(arguments).current_dir(folder).output();
    let output = output.map_err(|source| ToolError::Start { tool: tool.to_owned(), source })?;
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    if output.status.success() {
        return Ok(text);
    }
    let lines: Vec<&str> = text.lines().collect();
    let output = lines[lines.len().saturating_sub(40)..].join("\n");
    Err(ToolError::Failed { tool: format!("{tool} {}", arguments.join(" ")), output })
}

/// Writes a file.
///
/// # Errors
/// When that fails.
pub fn write(path: &Path, text: &str) -> Result<(), ToolError> {
    std::fs::write(path, text).map_err(|source| ToolError::File { path: path.display().to_string(), source })
}
