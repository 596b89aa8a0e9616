//! Checks that every algorithm and every transport states its source and its deviations from the source.

use crate::finding::Finding;
use crate::tree::{SourceFile, Tree};

const RULE: &str = "heads";

/// Folders of algorithms and transports, one per file; files in deeper folders are parts of one, and its head covers
/// them.
const FOLDERS: &[&str] = &["profiles/", "recovery/", "control/", "paths/", "schedule/"];

/// Parts that a head must have, each at the beginning of a line.
const PARTS: &[(&str, &str)] = &[
    ("//! Source:", "name the paper and section, or the standard"),
    ("//! Deviations", "say how it differs from its source, and why; `none` is an answer"),
];

/// Reports files whose head lacks a part.
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
    PARTS.iter().filter(|(start, _)| lacks(start)).map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> usize {
        check(&Tree::invent([(path, text)])).len()
    }

    #[test]
    fn heads_of_algorithms_have_source_and_deviations() {
        let path = "crates/rnic-transports/src/recovery/new.rs";
        assert_eq!(findings(path, "//! New.\n//!\n//! Source: RFC 1.\n//!\n//! Deviations: none.\n"), 0);
        assert_eq!(findings(path, "//! New.\n//!\n//! Source: RFC 1.\n"), 1);
        assert_eq!(findings(path, "//! New, without source: or deviations.\n"), 2);
        assert_eq!(findings(path, "//! New.\n\n//! Source: RFC 1.\n//! Deviations: none.\n"), 2, "the head is over");
        assert_eq!(findings("crates/rnic-transports/src/recovery.rs", "//! A list.\n"), 0);
        assert_eq!(findings("crates/rnic-transports/src/recovery/new/part.rs", "//! A part.\n"), 0);
        assert_eq!(findings("crates/rnic-host/src/recovery/new.rs", "//! Another crate.\n"), 0);
    }
}
