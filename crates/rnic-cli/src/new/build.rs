//! The program file of a package, from its source.

use std::path::{Path, absolute};
use std::process::Command;

use crate::failure::Failure;

/// Runs the binary of the package in `folder`, which writes the file of its program to `output`. Messages of the
/// compiler go to standard error.
///
/// # Errors
/// When there is no cargo, the package does not compile, or the file is not written.
pub fn build(folder: &Path, output: &Path) -> Result<(), Failure> {
    let manifest = folder.join("Cargo.toml");
    if !manifest.is_file() {
        return Err(Failure::file(folder, "no package: there is no Cargo.toml; `rnic new transport NAME` makes one"));
    }
    let output = absolute(output).map_err(|error| Failure::file(output, error))?;
    let mut cargo = Command::new("cargo");
    cargo.args(["run", "--quiet", "--manifest-path"]).arg(&manifest).arg("--").arg(&output);
    let status = cargo.status().map_err(|error| Failure::input(format!("cargo: {error}; install Rust")))?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure::file(folder, "no program file was written, as cargo reports above"))
    }
}
