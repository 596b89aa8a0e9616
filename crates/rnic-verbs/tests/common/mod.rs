//! The shared object, built once, and programs that run over it.

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
            // The target directory of this test, wherever that is.
            .env("CARGO_TARGET_DIR", target_dir())
            .output()
            .expect("scripts/link-verbs runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "link-verbs: {said}{}", String::from_utf8_lossy(&output.stderr));
        PathBuf::from(said.lines().last().expect("it says where"))
    })
}

/// Cargo's target directory: this program stands in `<target>/<profile>/deps/`.
fn target_dir() -> PathBuf {
    let exe = std::env::current_exe().expect("a running test knows its file");
    exe.ancestors().nth(3).expect("three directories above").to_owned()
}

/// `program` is installed; without `RNIC_REQUIRE_APPS`, a test may go without.
pub fn is_installed(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&paths).any(|dir| dir.join(program).is_file());
    if !found {
        skip(&format!("{program} is not installed"));
    }
    found
}

/// Says why something is not tested; fails where that is not allowed.
pub fn skip(reason: &str) {
    assert!(std::env::var_os("RNIC_REQUIRE_APPS").is_none(), "{reason}");
    eprintln!("skipped: {reason}");
}

/// `line` as a command over our libraries, ended after `seconds`.
pub fn command(line: &[&str], seconds: u32) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", &seconds.to_string()]).args(line);
    command.env("LD_LIBRARY_PATH", libraries()).env_remove("LD_PRELOAD");
    command
}

/// What a program has said, for a message.
pub fn said(output: &Output) -> String {
    format!(
        "{}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
