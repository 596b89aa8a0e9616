//! Table of all checks, by name.

pub mod arrows;
pub mod banned;
pub mod cards;
pub mod circles;
pub mod docs;
pub mod generated;
pub mod heads;
pub mod language;
pub mod layout;
pub mod markdown;
pub mod mechanisms;
pub mod methods;
pub mod names;
pub mod parses;
pub mod programs;
pub mod size;
pub mod text;
pub mod unsafe_code;

use crate::finding::Finding;
use crate::tree::Tree;

/// A rule over the whole tree.
pub struct Check {
    /// Name of the check, used in findings and for its test in `tests/real_tree.rs`.
    pub name: &'static str,
    /// Condition that holds when the check has no findings.
    pub holds: &'static str,
    /// Function that checks the tree.
    pub run: fn(&Tree) -> Vec<Finding>,
}

/// Every check, in the order of their listing.
pub const CHECKS: &[Check] = &[
    Check { name: "parses", holds: "every .rs and .toml file parses", run: parses::check },
    Check { name: "arrows", holds: "crates depend only on the crates that the table allows", run: arrows::check },
    Check {
        name: "cards",
        holds: "every crate has a card with six headings that agrees with the table",
        run: cards::check,
    },
    Check {
        name: "banned",
        holds: "no clock, entropy, socket, thread, float or hash order where the bans say",
        run: banned::check,
    },
    Check {
        name: "size",
        holds: "files, inline tests and functions are short, or on the shrinking list",
        run: size::check,
    },
    Check {
        name: "methods",
        holds: "no type has more than 60 methods, or is on the shrinking list",
        run: methods::check,
    },
    Check {
        name: "circles",
        holds: "modules of a folder use each other in one direction, or it is on the shrinking list",
        run: circles::check,
    },
    Check { name: "unsafe_code", holds: "unsafe code stands where it may, with its reason", run: unsafe_code::check },
    Check {
        name: "docs",
        holds: "every Rust file and public item is documented; crates inherit the lints",
        run: docs::check,
    },
    Check { name: "heads", holds: "every algorithm names its source and its deviations", run: heads::check },
    Check { name: "columns", holds: "Rust lines have at most 120 columns", run: text::columns },
    Check { name: "rows", holds: "tables in Rust comments have one line a row", run: text::rows },
    Check { name: "whitespace", holds: "no trailing blanks or tabs, one newline at the end", run: text::whitespace },
    Check { name: "words", holds: "no notes to oneself, no paths of somebody's machine", run: text::words },
    Check { name: "language", holds: "words are the field's, one for one thing", run: language::check },
    Check { name: "markdown", holds: "one top heading a page; relative links lead somewhere", run: markdown::check },
    Check {
        name: "mechanisms",
        holds: "every mechanism of the papers has a test that names it",
        run: mechanisms::check,
    },
    Check { name: "names", holds: "`rnic_x::Name` in a page is a name of that crate", run: names::check },
    Check { name: "blobs", holds: "no file larger than 256 KiB", run: layout::blobs },
    Check { name: "dead_files", holds: "every Rust file is reached by a build", run: layout::dead_files },
    Check { name: "house_files", holds: "the pages that a house must have are there", run: layout::house_files },
    Check { name: "scripts", holds: "scripts can be executed, and nothing else can", run: layout::scripts },
    Check { name: "programs", holds: "code calls only programs that a machine has", run: programs::check },
    Check { name: "generated", holds: "generated texts are fresh", run: generated::check },
];
