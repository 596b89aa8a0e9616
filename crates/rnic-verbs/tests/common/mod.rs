//! The shared object, built once, and programs that run with it.

#![allow(dead_code, reason = "each test file uses its part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Where `scripts/link-verbs` has put the libraries.
pub fn libraries() -> &'static Path {
    static LIBRARIES: OnceLock<PathBuf> = OnceLock::new();
    LIBRARIES.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
        let output = Command::new(root.join("scripts/link-verbs"))
            .arg(profile)
            // The target directory of this test.
            .env("CARGO_TARGET_DIR", target_dir())
            .output()
            .expect("scripts/link-verbs runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "link-verbs: {said}{}", String::from_utf8_lossy(&output.stderr));
        PathBuf::from(said.lines().last().expect("link-verbs prints the directory"))
    })
}

/// Cargo's target directory: this program stands in `<target>/<profile>/deps/`.
fn target_dir() -> PathBuf {
    let exe = std::env::current_exe().expect("a running test knows its file");
    exe.ancestors().nth(3).expect("three directories above").to_owned()
}

/// Returns `true` if `program` is installed; if not, fails when `RNIC_REQUIRE_APPS` is set.
pub fn is_installed(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&paths).any(|dir| dir.join(program).is_file());
    if !found {
        skip(&format!("{program} is not installed"));
    }
    found
}

/// Prints why a test is skipped; fails if tests must not be skipped.
pub fn skip(reason: &str) {
    assert!(std::env::var_os("RNIC_REQUIRE_APPS").is_none(), "{reason}");
    eprintln!("skipped: {reason}");
}

/// Returns `line` as a command that uses our libraries and is ended after `seconds`.
pub fn command(line: &[&str], seconds: u32) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", &seconds.to_string()]).args(line);
    command.env("LD_LIBRARY_PATH", libraries()).env_remove("LD_PRELOAD");
    command
}

/// Returns the output of a program, for a message.
pub fn output_text(output: &Output) -> String {
    format!(
        "{}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
