//! The table of crates and their permitted dependencies, `crates.toml` in this crate's directory.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

/// The table.
pub static CRATES: LazyLock<Crates> =
    LazyLock::new(|| toml::from_str(include_str!("../crates.toml")).expect("crates.toml is a table of crates"));

/// Crates of the project, and external crates that some of them may not use.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Crates {
    /// Every crate, from the lowest layer up.
    #[serde(rename = "crate")]
    pub rules: Vec<CrateRule>,
    /// External crates on which a core crate may not depend, each with the reason.
    pub not_in_core: BTreeMap<String, String>,
}

/// One crate, under `crates/` or in a directory of its own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CrateRule {
    /// Name of its package, which is also that of its directory under `crates/`, unless `dir` is given.
    pub name: String,
    /// True if it determines what happens in a run, false if it interacts with the outside world.
    pub core: bool,
    /// Directory of the crate, when that is not under `crates/`.
    pub dir: Option<String>,
    /// Crates on which it may depend.
    pub may_use: Vec<String>,
    /// Further crates on which its tests and benches may depend.
    #[serde(default)]
    pub tests_may_use: Vec<String>,
}

impl CrateRule {
    /// Returns the directory in which the crate must be.
    pub fn dir(&self) -> String {
        self.dir.clone().unwrap_or_else(|| format!("crates/{}", self.name))
    }
}

/// Returns `true` if the package in `dir` must be in the table.
pub fn is_crate_dir(dir: &str) -> bool {
    dir.starts_with("crates/") || CRATES.rules.iter().any(|rule| rule.dir.as_deref() == Some(dir))
}

/// Returns the entry of the crate called `name`.
pub fn rule(name: &str) -> Option<&'static CrateRule> {
    CRATES.rules.iter().find(|rule| rule.name == name)
}
