//! Runs every check of `rnic-check` on the real source tree, so that `cargo test` reports what they find in it.

use std::path::Path;

use rnic_check::{CHECKS, Tree};

/// Expands to one test for each check name, and to the list of these names.
macro_rules! real_tree {
    ($($check:ident)*) => {
        $(#[test] fn $check() { assert_holds(stringify!($check)); })*
        const TESTED: &[&str] = &[$(stringify!($check)),*];
    };
}

real_tree! {
    arrows cards lints floats size methods circles docs heads patterns language markdown mechanisms names dead_files
    blobs required_files scripts programs generated
}

#[test]
fn every_check_has_its_test() {
    assert_eq!(TESTED, CHECKS.iter().map(|check| check.name).collect::<Vec<_>>());
}

fn assert_holds(name: &str) {
    let root = Tree::find_root(Path::new(env!("CARGO_MANIFEST_DIR"))).expect("the workspace contains this crate");
    let tree = Tree::load(&root).expect("the tree is readable");
    let check = CHECKS.iter().find(|check| check.name == name).expect("the check exists");
    let findings: Vec<String> = (check.run)(&tree).iter().map(ToString::to_string).collect();
    assert!(
        findings.is_empty(),
        "\n{}\n{} findings; `{name}` holds that {}",
        findings.join("\n"),
        findings.len(),
        check.rule
    );
}
