//! Table of all checks, by name.

pub mod arrows;
pub mod cards;
pub mod circles;
pub mod dead_files;
pub mod docs;
pub mod floats;
pub mod generated;
pub mod heads;
pub mod language;
pub mod layout;
pub mod lints;
pub mod markdown;
pub mod mechanisms;
pub mod methods;
pub mod names;
pub mod patterns;
pub mod programs;
pub mod size;

use crate::finding::Finding;
use crate::tree::Tree;

/// A rule over the whole tree.
pub struct Check {
    /// Name of the check, used in findings and to name its test in `tests/real_tree.rs`.
    pub name: &'static str,
    /// Condition that is true of the tree when the check reports no findings.
    pub rule: &'static str,
    /// Function that checks the tree.
    pub run: fn(&Tree) -> Vec<Finding>,
}

/// Every check, in the order in which they are listed.
pub const CHECKS: &[Check] = &[
    Check { name: "arrows", rule: "crates depend only on the crates that the table allows", run: arrows::check },
    Check {
        name: "cards",
        rule: "every crate has a card with six headings that agrees with the table",
        run: cards::check,
    },
    Check { name: "lints", rule: "crates inherit the lints; core crates have those of the core", run: lints::check },
    Check { name: "floats", rule: "crates whose arithmetic decides a run have no floating point", run: floats::check },
    Check { name: "size", rule: "files, inline tests and functions are short", run: size::check },
    Check { name: "methods", rule: "no type has more than 60 methods", run: methods::check },
    Check { name: "circles", rule: "modules of a folder use each other in one direction", run: circles::check },
    Check { name: "docs", rule: "every Rust file and public item is documented", run: docs::check },
    Check { name: "heads", rule: "every algorithm names its source and its deviations", run: heads::check },
    Check { name: "patterns", rule: "no line has what patterns.toml forbids", run: patterns::check },
    Check { name: "language", rule: "words are the field's, one for one thing", run: language::check },
    Check { name: "markdown", rule: "one top heading a page; relative links lead somewhere", run: markdown::check },
    Check {
        name: "mechanisms",
        rule: "every mechanism of the papers has a test that names it",
        run: mechanisms::check,
    },
    Check { name: "names", rule: "`rnic_x::Name` in a page is a name of that crate", run: names::check },
    Check { name: "dead_files", rule: "every Rust file is declared by another", run: dead_files::check },
    Check { name: "blobs", rule: "no file is larger than 256 KiB", run: layout::blobs },
    Check { name: "required_files", rule: "the files that the project must have exist", run: layout::required_files },
    Check { name: "scripts", rule: "scripts, and only scripts, are executable", run: layout::scripts },
    Check { name: "programs", rule: "code calls only programs that a machine has", run: programs::check },
    Check { name: "generated", rule: "generated texts are fresh", run: generated::check },
];
