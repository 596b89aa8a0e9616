//! Lints that every crate inherits, and those of the core.

use rnic_check::Tree;
use rnic_check::checks::lints::{CORE, check};

const LINTS: &str = "[lints]\nworkspace = true\n";

fn findings(name: &str, lints: &str, root: &str, more: &str) -> Vec<String> {
    let tree = Tree::synthetic([
        (format!("crates/{name}/Cargo.toml"), format!("[package]\nname = \"{name}\"\n{lints}")),
        (format!("crates/{name}/src/lib.rs"), root.to_owned()),
        (format!("crates/{name}/{more}"), String::new()),
    ]);
    check(&tree).into_iter().map(|found| format!("{}: {}", found.path, found.what)).collect()
}

#[test]
fn lints_are_inherited() {
    let expected = ["crates/rnic-host/Cargo.toml: the crate does not inherit the workspace's lints"];
    assert_eq!(findings("rnic-host", "", "", "README.md"), expected);
    assert_eq!(findings("rnic-host", "[lints]\nworkspace = false\n", "", "README.md").len(), 1);
    assert!(findings("rnic-host", LINTS, "", "clippy.toml").is_empty());
}

#[test]
fn a_core_crate_has_the_lints_of_the_core() {
    let whole = CORE.join("\n");
    assert!(findings("rnic-engine", LINTS, &whole, "README.md").is_empty());
    let replaced =
        "crates/rnic-engine/clippy.toml: a core crate has a clippy.toml, which replaces the bans of the core";
    assert_eq!(findings("rnic-engine", LINTS, &whole, "clippy.toml"), [replaced]);
    for line in CORE {
        let lacking = format!("crates/rnic-engine/src/lib.rs: the root of a core crate lacks `{line}`");
        assert_eq!(findings("rnic-engine", LINTS, &whole.replace(line, ""), "README.md"), [lacking]);
    }
}
