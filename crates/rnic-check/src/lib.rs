//! Tests of project style: the rules for the project's own source and documents, checked by code.
//!
//! ```text
//! CRATE    rnic-check (red: a rule here binds every other crate)
//! Purpose  rules of structure, style and language over the tree; texts generated from one declaration
//! May use  no other crate here
//! Must not interpret what the code does, build it or run it; write outside the generated places
//! Add here a rule: one file in checks/, one line in CHECKS, one line in tests/real_tree.rs; one about single lines: a
//!          row in patterns.toml
//! Not here what rustc, clippy or rustfmt can enforce (Cargo.toml lints; clippy.toml)
//! Tested by every rule on small synthetic trees that violate it (tests/rules), and on the tree (tests/real_tree.rs)
//! ```
//!
//! In the spirit of TigerBeetle's `tidy.zig` and rust-analyzer's `tidy.rs`. A rule is a function from a [`Tree`] to
//! [`Finding`]s. The tables that are edited by hand are `crates.toml` (permitted dependencies between crates),
//! `patterns.toml` (what no line may contain), `words.toml` (words and their replacements) and [`mechanisms`]
//! (mechanisms that the papers describe and tests must name). Rust is parsed by `syn`, Markdown by `pulldown-cmark`, so
//! comments, strings and test modules do not confuse the rules.

#![forbid(unsafe_code)]

pub mod card;
pub mod checks;
pub mod crates;
pub mod finding;
pub mod generate;
pub mod library;
pub mod mechanisms;
pub mod rust_source;
pub mod tree;

pub use checks::{CHECKS, Check};
pub use finding::Finding;
pub use tree::{SourceFile, Tree};

/// Runs every check; returns the findings in order of path and line.
pub fn run_all(tree: &Tree) -> Vec<Finding> {
    let mut findings: Vec<Finding> = CHECKS.iter().flat_map(|check| (check.run)(tree)).collect();
    findings.sort();
    findings
}
