//! Every check on the real tree: what `cargo test` says about the project's own text.

use std::path::Path;

use rnic_check::{CHECKS, Tree};

/// One test for each name, and the list of them.
macro_rules! real_tree {
    ($($check:ident)*) => {
        $(#[test] fn $check() { assert_holds(stringify!($check)); })*
        const TESTED: &[&str] = &[$(stringify!($check)),*];
    };
}

real_tree! {
    parses arrows cards banned size methods circles unsafe_code docs heads columns rows whitespace words language
    markdown mechanisms names blobs dead_files house_files scripts programs generated
}

#[test]
fn every_check_has_its_test() {
    assert_eq!(TESTED, CHECKS.iter().map(|check| check.name).collect::<Vec<_>>());
}

fn assert_holds(name: &str) {
    let root = Tree::find_root(Path::new(env!("CARGO_MANIFEST_DIR"))).expect("the workspace is around this crate");
    let tree = Tree::load(&root).expect("the tree is readable");
    let check = CHECKS.iter().find(|check| check.name == name).expect("the check exists");
    let findings: Vec<String> = (check.run)(&tree).iter().map(ToString::to_string).collect();
    assert!(
        findings.is_empty(),
        "\n{}\n{} findings; `{name}` holds that {}",
        findings.join("\n"),
        findings.len(),
        check.holds
    );
}
