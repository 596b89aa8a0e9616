//! Rust files that no other declares.

use rnic_check::Tree;
use rnic_check::checks::dead_files::check;

fn dead(files: &[(&str, &str)]) -> Vec<String> {
    let manifest = ("a/Cargo.toml", "[package]\nname = \"a\"\n[[bin]]\nname = \"x\"\npath = \"other/x.rs\"\n");
    check(&Tree::synthetic(files.iter().copied().chain([manifest]))).into_iter().map(|found| found.path).collect()
}

#[test]
fn modules_are_declared_beside_or_above_their_files() {
    let files = [
        ("a/src/lib.rs", "mod b; mod in_line { mod d; } #[path = \"odd/e.rs\"] mod other;"),
        ("a/src/b.rs", "mod c;"),
        ("a/src/b/c.rs", ""),
        ("a/src/odd/e.rs", "mod f; include!(\"g.rs\");"),
        ("a/src/odd/f/mod.rs", ""),
        ("a/src/odd/g.rs", ""),
        ("a/src/dead.rs", ""),
        ("a/src/b/dead.rs", "mod dead;"),
        ("docs/example.rs", ""),
    ];
    assert_eq!(dead(&files), ["a/src/b/dead.rs", "a/src/dead.rs"]);
}

#[test]
fn a_registry_declares_modules_by_name() {
    let files = [
        ("a/src/lib.rs", "registry! { one { two::Two } }"),
        ("a/src/one.rs", ""),
        ("a/src/two/mod.rs", ""),
        ("a/src/forgotten.rs", ""),
    ];
    assert_eq!(dead(&files), ["a/src/forgotten.rs"]);
}

#[test]
fn named_and_discovered_roots_need_no_declaration() {
    let files = [
        ("a/other/x.rs", ""),
        ("a/build.rs", ""),
        ("a/src/main.rs", ""),
        ("a/src/bin/y.rs", ""),
        ("a/src/bin/z/main.rs", ""),
        ("a/tests/t.rs", "mod common;"),
        ("a/tests/common/mod.rs", ""),
        ("a/tests/common/dead.rs", ""),
    ];
    assert_eq!(dead(&files), ["a/tests/common/dead.rs"]);
}
