//! Computes the fingerprint of everything that the result of a run depends on: the sources of the crates below the
//! fabric, of trials, and the versions of their dependencies. Stored results are valid as long as it stays the same; a
//! change of the report, the command or the host does not affect it. The build settings are recorded beside it, because
//! measured results depend on them too.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

fn main() -> io::Result<()> {
    // Read at run time, because a build directory may serve several checkouts, and this program is built for one of
    // them.
    let crate_dir = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let root = Path::new(&crate_dir).join("../..");
    let mut files = vec![root.join("Cargo.lock")];
    for sources in SOURCES {
        let dir = root.join("crates").join(sources);
        println!("cargo::rerun-if-changed={}", dir.display());
        collect(&dir, &mut files)?;
    }
    println!("cargo::rerun-if-changed={}", root.join("Cargo.lock").display());
    files.sort();
    let mut digest = Sha256::new();
    for file in files {
        let name = file.strip_prefix(&root).unwrap_or(&file).display().to_string();
        let content = fs::read(&file)?;
        // Includes the length, so that moving bytes from one file to the next changes the digest.
        digest.update(format!("{name} {}\n", content.len()));
        digest.update(content);
    }
    let hex: String = digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    println!("cargo::rustc-env=RNIC_SOURCES={hex}");
    println!("cargo::rustc-env=RNIC_BUILD={}", build()?);
    Ok(())
}

/// Describes what determines how fast the same sources run: level of optimisation, compiler, permitted instructions.
fn build() -> io::Result<String> {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let output = Command::new(variable("RUSTC")).arg("--version").output()?;
    // The text is printed inside brackets, so its own brackets are removed.
    let compiler = String::from_utf8_lossy(&output.stdout).replace(['(', ')'], "");
    let (level, features) = (variable("OPT_LEVEL"), variable("CARGO_CFG_TARGET_FEATURE"));
    Ok(format!("opt-level {level}, {}, {features}", compiler.trim()))
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

/// The sources of a run, simulated or as a trial.
const SOURCES: [&str; 13] = [
    "rnic-base/src",
    "rnic-wire/src",
    "rnic-program-macros/src",
    "rnic-program/src",
    "rnic-tonic/src",
    "rnic-policy/src",
    "rnic-transports/src",
    "rnic-fae/src",
    "rnic-falcon/src",
    "rnic-nvme/src",
    "rnic-engine/src",
    "rnic-fabric/src",
    "rnic-reproduce/src/trial",
];
