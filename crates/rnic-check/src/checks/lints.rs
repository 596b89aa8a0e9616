//! Checks that every crate inherits the workspace's lints, and that the lints of the core apply to every core crate.
//!
//! Clippy enforces the bans (`clippy.toml` at the root), and rustc that there is no unsafe code. Cargo reports neither
//! a crate that does not inherit the lints nor a clippy.toml that replaces the root's.

use crate::crates::{is_crate_dir, rule};
use crate::finding::Finding;
use crate::tree::Tree;
use crate::tree::manifest::Package;

const RULE: &str = "lints";

/// Lines that the root of every core crate has.
pub const CORE: [&str; 2] = ["#![forbid(unsafe_code)]", "#![cfg_attr(not(test), deny(clippy::disallowed_macros))]"];

/// Reports crates to which not all lints apply.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let crates = tree.packages().iter().filter(|package| is_crate_dir(&package.dir));
    crates.flat_map(|package| uninherited(package).into_iter().chain(missing_in_core(tree, package))).collect()
}

fn uninherited(package: &Package) -> Option<Finding> {
    let inherits = package.manifest.get("lints").and_then(|lints| lints.get("workspace")?.as_bool());
    (inherits != Some(true)).then(|| {
        let what = "the crate does not inherit the workspace's lints";
        Finding::new(&package.manifest_path, 1, RULE, what, "add `[lints]` with `workspace = true`")
    })
}

fn missing_in_core(tree: &Tree, package: &Package) -> Vec<Finding> {
    if !rule(&package.name).is_some_and(|rule| rule.core) {
        return Vec::new();
    }
    let own = tree.file(&package.path("clippy.toml")).map(|file| {
        let what = "a core crate has a clippy.toml, which replaces the bans of the core";
        Finding::new(&file.path, 1, RULE, what, "remove it, and lift a ban where needed by `expect` with a reason")
    });
    let lines = tree.root_file(package).into_iter().flat_map(|file| {
        CORE.iter().filter(|wanted| !file.lines().any(|(_, line)| line == **wanted)).map(|wanted| {
            let what = format!("the root of a core crate lacks `{wanted}`");
            Finding::new(&file.path, 1, RULE, what, "add it below the head of the file")
        })
    });
    own.into_iter().chain(lines).collect()
}
