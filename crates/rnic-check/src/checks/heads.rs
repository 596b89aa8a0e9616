//! Checks that the module documentation (head) of every algorithm and every transport states the source and the
//! deviations from it.

use crate::finding::Finding;
use crate::tree::{SourceFile, Tree};

const RULE: &str = "heads";

/// Folders of algorithms and transports, one per file. Files in deeper folders belong to the algorithm or transport
/// of the parent file, whose head covers them.
const FOLDERS: &[&str] = &["profiles/", "recovery/", "control/", "paths/", "schedule/"];

/// Parts that a head must have, each at the beginning of a line.
const REQUIRED_PARTS: &[(&str, &str)] = &[
    ("//! Source:", "name the paper and section, or the standard"),
    ("//! Deviations", "say how it differs from its source, and why; `none` is an answer"),
];

/// Reports files of algorithms and transports whose module documentation lacks a part of [`REQUIRED_PARTS`].
pub fn check(tree: &Tree) -> Vec<Finding> {
    tree.files_ending(".rs").filter(|file| is_algorithm(&file.path)).flat_map(missing).collect()
}

fn is_algorithm(path: &str) -> bool {
    let inside = path.strip_prefix("crates/rnic-transports/src/").unwrap_or_default();
    FOLDERS.iter().any(|folder| inside.strip_prefix(folder).is_some_and(|name| !name.contains('/')))
}

fn missing(file: &SourceFile) -> Vec<Finding> {
    let head: Vec<&str> = file.lines().map(|(_, line)| line).take_while(|line| line.starts_with("//!")).collect();
    let lacks = |start: &str| !head.iter().any(|line| line.starts_with(start));
    let finding = |(start, instead): &(&str, &str)| {
        Finding::new(&file.path, 1, RULE, format!("the head has no line that begins with `{start}`"), *instead)
    };
    REQUIRED_PARTS.iter().filter(|(start, _)| lacks(start)).map(finding).collect()
}
