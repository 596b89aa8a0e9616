//! Checks that crates depend only on the crates that the table allows.

use crate::crates::{CRATES, CrateRule, is_crate_dir, rule};
use crate::finding::Finding;
use crate::tree::Tree;
use crate::tree::manifest::{Dependency, Package};

const RULE: &str = "arrows";
const TABLE: &str = "crates/rnic-check/crates.toml";

/// Reports dependencies that the table does not allow, and crates that are missing from the table.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let crates = tree.packages().iter().filter(|package| is_crate_dir(&package.dir));
    crates
        .flat_map(|package| match rule(&package.name) {
            None => vec![unknown_crate(package)],
            Some(rule) => {
                wrong_directory(package, rule).into_iter().chain(wrong_dependencies(tree, package, rule)).collect()
            }
        })
        .collect()
}

fn unknown_crate(package: &Package) -> Finding {
    let what = format!("the crate {} is not in the table of crates", package.name);
    Finding::new(
        &package.manifest_path,
        1,
        RULE,
        what,
        format!("add its row to {TABLE}, and say in ARCHITECTURE.md why"),
    )
}

fn wrong_directory(package: &Package, rule: &CrateRule) -> Option<Finding> {
    let expected = rule.dir();
    (package.dir != expected).then(|| {
        let what = format!("the crate {} lives in {}", package.name, package.dir);
        Finding::new(&package.manifest_path, 1, RULE, what, format!("call its directory {expected}"))
    })
}

fn wrong_dependencies(tree: &Tree, package: &Package, rule: &CrateRule) -> Vec<Finding> {
    let mut findings = Vec::new();
    for dependency in package.dependencies() {
        let Some((what, instead)) = violation(&dependency, rule) else { continue };
        let is_its_line = |line: &str| {
            let rest = line.trim_start().strip_prefix(dependency.key.as_str());
            rest.is_some_and(|rest| rest.starts_with([' ', '=', '.']))
        };
        let line = tree.file(&package.manifest_path).map_or(1, |file| file.line_where(is_its_line));
        findings.push(Finding::new(&package.manifest_path, line, RULE, what, instead));
    }
    findings
}

/// Returns what is wrong with a dependency and how to correct it; `None` when it is allowed.
fn violation(dependency: &Dependency, rule: &CrateRule) -> Option<(String, String)> {
    let used = &dependency.package;
    if used.starts_with("rnic-") {
        let is_allowed = rule.may_use.contains(used) || dependency.is_dev && rule.tests_may_use.contains(used);
        return (!is_allowed).then(|| (format!("{} depends on {used}", rule.name), allowed(rule, dependency.is_dev)));
    }
    let reason = CRATES.not_in_core.get(used)?;
    (rule.core && !dependency.is_dev).then(|| {
        let what = format!("{} depends on {used}: {reason}", rule.name);
        (what, "do it in an edge crate (rnic-host, rnic-cli) and pass the result in".to_owned())
    })
}

fn allowed(rule: &CrateRule, is_dev: bool) -> String {
    let mut names = rule.may_use.clone();
    names.extend(rule.tests_may_use.iter().filter(|_| is_dev).cloned());
    let names = if names.is_empty() { "no other crate here".to_owned() } else { names.join(", ") };
    format!("dependencies go down only, and it may use {names} ({TABLE}); move the code to a crate that may")
}
