//! Dependencies between crates.

use rnic_check::Tree;
use rnic_check::checks::arrows::check;

fn findings(name: &str, body: &str) -> Vec<String> {
    let manifest = format!("[package]\nname = \"{name}\"\n{body}");
    let tree = Tree::synthetic([(format!("crates/{name}/Cargo.toml"), manifest)]);
    check(&tree).iter().map(|found| format!("{}: {}", found.line, found.what)).collect()
}

#[test]
fn dependencies_on_lower_crates_pass() {
    let body = "[dependencies]\nrnic-base.workspace = true\nthiserror = \"2\"\n";
    assert!(findings("rnic-wire", body).is_empty());
}

#[test]
fn dependencies_that_the_table_does_not_allow_are_found() {
    let body = "[dependencies]\nrnic-base = { workspace = true }\nrnic-engine = { workspace = true }\n";
    assert_eq!(findings("rnic-wire", body), ["5: rnic-wire depends on rnic-engine"]);
    assert_eq!(findings("rnic-fabric", "[dependencies]\nrnic-host = \"1\"\n").len(), 1);
}

#[test]
fn a_renamed_dependency_is_found() {
    let body = "[dependencies]\nx = { package = \"rnic-host\", path = \"../rnic-host\" }\n";
    assert_eq!(findings("rnic-engine", body), ["4: rnic-engine depends on rnic-host"]);
}

#[test]
fn tests_may_use_more_crates_than_the_library() {
    assert!(findings("rnic-engine", "[dev-dependencies]\nrnic-transports = \"1\"\n").is_empty());
    assert_eq!(findings("rnic-engine", "[dependencies]\nrnic-transports = \"1\"\n").len(), 1);
    assert_eq!(findings("rnic-engine", "[dev-dependencies]\nrnic-fabric = \"1\"\n").len(), 1);
}

#[test]
fn core_crates_may_not_use_listed_external_crates() {
    assert_eq!(findings("rnic-engine", "[dependencies]\nrand = \"1\"\n").len(), 1);
    assert!(findings("rnic-engine", "[dev-dependencies]\nrand = \"1\"\n").is_empty());
    assert!(findings("rnic-host", "[dependencies]\nlibc = \"1\"\n").is_empty());
}

#[test]
fn a_crate_must_be_in_the_table_and_in_its_directory() {
    assert_eq!(findings("rnic-attic", ""), ["1: the crate rnic-attic is not in the table of crates"]);
    let tree = Tree::synthetic([("crates/wire/Cargo.toml", "[package]\nname = \"rnic-wire\"\n")]);
    assert_eq!(check(&tree).len(), 1);
}
