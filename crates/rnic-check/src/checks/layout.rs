//! Checks the files of the tree: none is too large, required ones exist, scripts and only scripts are executable.

use crate::finding::Finding;
use crate::tree::Tree;

/// Maximum size of a file, in bytes: version control keeps every version of it indefinitely.
pub const FILE_BYTES_MAX: u64 = 256 << 10;

/// Files that the project must have, each with its content.
pub const REQUIRED_FILES: &[(&str, &str)] = &[
    (".ci/run", "commands that run on every change"),
    ("ARCHITECTURE.md", "picture, code map, invariants, the life of one Write"),
    ("CHANGELOG.md", "results that moved, added, changed, fixed"),
    ("CONTRIBUTING.md", "how to add a policy, a fault, a header, an experiment"),
    ("Cargo.lock", "the exact dependencies"),
    ("GLOSSARY.md", "terms, each with one meaning, its source and our type"),
    ("LICENSE", "Apache-2.0"),
    ("Makefile", "the commands"),
    ("README.md", "purpose, and a first result"),
    ("clippy.toml", "the bans that clippy checks"),
    ("rust-toolchain.toml", "the pinned toolchain"),
    ("rustfmt.toml", "the format"),
];

/// Reports files that are too large.
pub fn blobs(tree: &Tree) -> Vec<Finding> {
    let large = tree.files().filter(|file| file.bytes > FILE_BYTES_MAX);
    let finding = |path: &str, bytes: u64| {
        let what = format!("{} KiB, the limit is {} KiB", bytes >> 10, FILE_BYTES_MAX >> 10);
        Finding::new(path, 1, "blobs", what, "generate it, shrink it, or fetch it when it is needed")
    };
    large.map(|file| finding(&file.path, file.bytes)).collect()
}

/// Reports required files that are missing.
pub fn required_files(tree: &Tree) -> Vec<Finding> {
    let missing = REQUIRED_FILES.iter().filter(|(path, _)| tree.file(path).is_none());
    let finding = |path: &str, content: &str| {
        Finding::new(path, 1, "required_files", "the file is missing", format!("write it: {content}"))
    };
    missing.map(|(path, content)| finding(path, content)).collect()
}

/// Reports scripts that cannot be executed, and executable files that are not scripts.
pub fn scripts(tree: &Tree) -> Vec<Finding> {
    let finding = |path: &str, what: &str, instead: &str| Some(Finding::new(path, 1, "scripts", what, instead));
    tree.files()
        .filter_map(|file| match (file.text().is_some_and(|text| text.starts_with("#!/")), file.is_executable) {
            (true, false) => finding(&file.path, "a script that cannot be executed", "chmod +x it"),
            (false, true) => finding(&file.path, "executable, but not a script", "chmod -x it"),
            _ => None,
        })
        .collect()
}
