//! Checks that crates depend only on the crates that the table allows.

use crate::crates::{CRATES_NOT_IN_CORE, CrateRule, Kind, dir_of, is_crate_dir, rule};
use crate::finding::Finding;
use crate::tree::Tree;
use crate::tree::manifest::{Dependency, Package};

const RULE: &str = "arrows";
const TABLE: &str = "crates/rnic-check/src/crates.rs";

/// Reports dependencies that the table does not allow, and crates that it does not contain.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let crates = tree.packages().iter().filter(|package| is_crate_dir(&package.dir));
    crates
        .flat_map(|package| match rule(&package.name) {
            None => vec![unknown_room(package)],
            Some(rule) => wrong_place(package).into_iter().chain(wrong_dependencies(tree, package, rule)).collect(),
        })
        .collect()
}

fn unknown_room(package: &Package) -> Finding {
    let what = format!("the crate {} is not in the table of crates", package.name);
    Finding::new(
        &package.manifest_path,
        1,
        RULE,
        what,
        format!("add its row to {TABLE}, and say in ARCHITECTURE.md why"),
    )
}

fn wrong_place(package: &Package) -> Option<Finding> {
    let expected = dir_of(&package.name);
    (package.dir != expected).then(|| {
        let what = format!("the crate {} lives in {}", package.name, package.dir);
        Finding::new(&package.manifest_path, 1, RULE, what, format!("call its directory {expected}"))
    })
}

fn wrong_dependencies(tree: &Tree, package: &Package, rule: &CrateRule) -> Vec<Finding> {
    let mut findings = Vec::new();
    for dependency in package.dependencies() {
        let Some((what, instead)) = complaint(&dependency, rule) else { continue };
        let is_its_line = |line: &str| {
            let rest = line.trim_start().strip_prefix(dependency.key.as_str());
            rest.is_some_and(|rest| rest.starts_with([' ', '=', '.']))
        };
        let line = tree.file(&package.manifest_path).map_or(1, |file| file.line_where(is_its_line));
        findings.push(Finding::new(&package.manifest_path, line, RULE, what, instead));
    }
    findings
}

/// Returns the problem of a dependency and its correction; `None` when there is no problem.
fn complaint(dependency: &Dependency, rule: &CrateRule) -> Option<(String, String)> {
    let used = dependency.package.as_str();
    if used.starts_with("rnic-") {
        let is_allowed = rule.may_use.contains(&used) || dependency.is_dev && rule.tests_may_use.contains(&used);
        return (!is_allowed).then(|| (format!("{} depends on {used}", rule.name), allowed(rule, dependency.is_dev)));
    }
    let (_, reason) = CRATES_NOT_IN_CORE.iter().find(|(name, _)| *name == used)?;
    let is_held = rule.kind == Kind::Core && !dependency.is_dev;
    is_held.then(|| {
        let what = format!("{} depends on {used}: {reason}", rule.name);
        (what, "do it in an edge crate (rnic-host, rnic-cli) and pass the result in".to_owned())
    })
}

fn allowed(rule: &CrateRule, is_dev: bool) -> String {
    let mut names: Vec<&str> = rule.may_use.to_vec();
    names.extend(rule.tests_may_use.iter().filter(|_| is_dev));
    let names = if names.is_empty() { "nothing of ours".to_owned() } else { names.join(", ") };
    format!("arrows go down only, it may use {names} ({TABLE}); move the code to the crate that may")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(name: &str, body: &str) -> Vec<String> {
        let manifest = format!("[package]\nname = \"{name}\"\n{body}");
        let tree = Tree::invent([(format!("crates/{name}/Cargo.toml"), manifest)]);
        check(&tree).iter().map(|found| format!("{}: {}", found.line, found.what)).collect()
    }

    #[test]
    fn arrows_down_are_fine() {
        let body = "[dependencies]\nrnic-base.workspace = true\nthiserror = \"2\"\n";
        assert!(findings("rnic-wire", body).is_empty());
    }

    #[test]
    fn arrows_up_and_sideways_are_found() {
        let body = "[dependencies]\nrnic-base = { workspace = true }\nrnic-engine = { workspace = true }\n";
        assert_eq!(findings("rnic-wire", body), ["5: rnic-wire depends on rnic-engine"]);
        assert_eq!(findings("rnic-fabric", "[dependencies]\nrnic-host = \"1\"\n").len(), 1);
    }

    #[test]
    fn a_renamed_dependency_does_not_hide() {
        let body = "[dependencies]\nx = { package = \"rnic-host\", path = \"../rnic-host\" }\n";
        assert_eq!(findings("rnic-engine", body), ["4: rnic-engine depends on rnic-host"]);
    }

    #[test]
    fn tests_may_use_more() {
        assert!(findings("rnic-engine", "[dev-dependencies]\nrnic-transports = \"1\"\n").is_empty());
        assert_eq!(findings("rnic-engine", "[dependencies]\nrnic-transports = \"1\"\n").len(), 1);
        assert_eq!(findings("rnic-engine", "[dev-dependencies]\nrnic-fabric = \"1\"\n").len(), 1);
    }

    #[test]
    fn the_world_stays_outside_core_rooms() {
        assert_eq!(findings("rnic-engine", "[dependencies]\nrand = \"1\"\n").len(), 1);
        assert!(findings("rnic-engine", "[dev-dependencies]\nrand = \"1\"\n").is_empty());
        assert!(findings("rnic-host", "[dependencies]\nlibc = \"1\"\n").is_empty());
    }

    #[test]
    fn a_room_must_be_in_the_table_and_in_its_place() {
        assert_eq!(findings("rnic-attic", ""), ["1: the crate rnic-attic is not in the table of crates"]);
        let tree = Tree::invent([("crates/wire/Cargo.toml", "[package]\nname = \"rnic-wire\"\n")]);
        assert_eq!(check(&tree).len(), 1);
    }
}
