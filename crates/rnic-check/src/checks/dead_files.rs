//! Checks that every Rust file of a package is a crate root or is declared: a file beside or above it mentions its
//! module, or any file has its name in a literal (`#[path]`, `include!`).
//!
//! Any mention counts, because a macro may declare modules, as a registry does.

use std::collections::BTreeSet;

use crate::finding::Finding;
use crate::rust_source::TokenKind;
use crate::tree::manifest::Package;
use crate::tree::{SourceFile, Tree};

/// Folders of a package each of whose files, and each of whose folders with a `main.rs`, is a crate.
const FOLDERS_OF_ROOTS: [&str; 4] = ["src/bin", "tests", "benches", "examples"];

/// Reports Rust files of a package that no other file declares.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let tokens = tree.rust().flat_map(|(_, source)| &source.tokens);
    let literals: BTreeSet<&str> = tokens
        .filter_map(|token| match &token.kind {
            TokenKind::Literal(text) => text.trim_matches('"').rsplit('/').next(),
            _ => None,
        })
        .collect();
    let is_dead = |path: &str| {
        let Some(package) = tree.package_of(path) else { return false };
        let name = path.rsplit('/').next().unwrap_or(path);
        !is_root(tree, package, path) && !literals.contains(name) && !is_declared(tree, path)
    };
    let dead = tree.files_ending(".rs").filter(|file| is_dead(&file.path));
    let instead = "declare it with `mod`, or remove it";
    dead.map(|file| Finding::new(&file.path, 1, "dead_files", "no file declares this one", instead)).collect()
}

/// Returns whether Cargo finds the crate root `path` by itself, or the manifest names it.
fn is_root(tree: &Tree, package: &Package, path: &str) -> bool {
    let inside = package.inside(path);
    let (folder, name) = inside.rsplit_once('/').unwrap_or(("", inside));
    let quoted = format!("\"{inside}\"");
    let is_in = |folder: &str| FOLDERS_OF_ROOTS.contains(&folder);
    matches!(inside, "src/lib.rs" | "src/main.rs" | "build.rs")
        || is_in(folder)
        || name == "main.rs" && folder.rsplit_once('/').is_some_and(|(above, _)| is_in(above))
        || tree.file(&package.manifest_path).and_then(SourceFile::text).is_some_and(|text| text.contains(&quoted))
}

/// Returns whether a file in which the module of `path` can be declared mentions its name: the file of the module
/// above, or one of the same folder.
fn is_declared(tree: &Tree, path: &str) -> bool {
    let module = path.trim_end_matches(".rs").trim_end_matches("/mod");
    let Some((folder, name)) = module.rsplit_once('/') else { return false };
    tree.rust().any(|(file, source)| {
        let is_near = file.path.rsplit_once('/').is_some_and(|(near, _)| near == folder);
        let is_above = is_near || file.path.strip_suffix(".rs") == Some(folder);
        is_above && file.path != path && source.tokens.iter().any(|token| token.is_ident(name))
    })
}
