//! The tree: files, packages, production code and dependencies.

use std::path::Path;

use rnic_check::tree::manifest::Package;
use rnic_check::{SourceFile, Tree};

#[test]
fn directories_exist_through_their_files() {
    let tree = Tree::synthetic([("docs/a.md", ""), ("docs-old/b.md", "")]);
    assert!(tree.exists("") && tree.exists("docs") && tree.exists("docs/a.md"));
    assert!(!tree.exists("doc") && !tree.exists("docs/b.md"));
}

#[test]
fn the_nearest_package_owns_a_file() {
    let manifest = |name: &str| format!("[package]\nname = \"{name}\"\n");
    let tree = Tree::synthetic([
        ("Cargo.toml", "[workspace]\n".to_owned()),
        ("crates/a/Cargo.toml", manifest("a")),
        ("crates/a/inner/Cargo.toml", manifest("inner")),
    ]);
    let owner = |path: &str| tree.package_of(path).map(|package| package.name.as_str());
    assert_eq!(owner("crates/a/src/lib.rs"), Some("a"));
    assert_eq!(owner("crates/a/inner/src/lib.rs"), Some("inner"));
    assert_eq!(owner("crates/ab/src/lib.rs"), None);
}

#[test]
fn the_real_tree_is_found_and_has_no_build_output() {
    let root = Tree::find_root(Path::new(env!("CARGO_MANIFEST_DIR"))).expect("the workspace contains this crate");
    let tree = Tree::load(&root).expect("the tree is readable");
    assert!(tree.file("crates/rnic-check/src/tree.rs").is_some());
    assert!(tree.file(".gitignore").is_some(), "hidden files are missing");
    assert_eq!(tree.files().find(|file| file.path.starts_with("target/")).map(|file| &file.path), None);
}

#[test]
fn tests_benches_and_examples_are_not_production_code() {
    let manifest = |name: &str| format!("[package]\nname = \"{name}\"\n");
    let paths = [
        "build.rs",
        "src/lib.rs",
        "src/a/contests.rs",
        "src/a/tests.rs",
        "src/tests/b.rs",
        "tests/c.rs",
        "benches/d.rs",
    ];
    let files = paths.iter().flat_map(|path| [format!("a/{path}"), format!("tests/{path}")]);
    let tree = Tree::synthetic(
        files
            .map(|path| (path, String::new()))
            .chain([("a/Cargo.toml".to_owned(), manifest("a")), ("tests/Cargo.toml".to_owned(), manifest("b"))])
            .chain([("a/src/model.rs".to_owned(), "//! A.\n#![cfg(test)]\n".to_owned())]),
    );
    let found: Vec<_> = tree.production_rust().map(|(file, _)| file.path.as_str()).collect();
    let expected = ["build.rs", "src/a/contests.rs", "src/lib.rs"];
    let expected = ["a", "tests"].map(|package| expected.map(|path| format!("{package}/{path}"))).concat();
    assert_eq!(found, expected);
}

#[test]
fn dependencies_of_every_kind_are_seen() {
    let text = "[package]\nname = \"a\"\n[dependencies]\nb = \"1\"\nc = { package = \"d\", version = \"1\" }\n\
                [dev-dependencies]\ne.workspace = true\n[build-dependencies]\nf = \"1\"\n\
                [target.'cfg(unix)'.dependencies]\ng = \"1\"\n";
    let package = Package::read(&SourceFile::synthetic("crates/a/Cargo.toml", text)).expect("the package has a name");
    let seen: Vec<_> = package.dependencies().into_iter().map(|found| (found.package, found.is_dev)).collect();
    let expected = [("b", false), ("d", false), ("f", false), ("e", true), ("g", false)];
    assert_eq!(seen, expected.map(|(name, is_dev)| (name.to_owned(), is_dev)));
    assert_eq!(package.path("src/lib.rs"), "crates/a/src/lib.rs");
}
