//! Checks the files of the tree: no blobs, no dead files, required pages exist, scripts are executable.

use crate::finding::Finding;
use crate::tree::Tree;

/// Maximum size of a file, in bytes: version control keeps every version of it indefinitely.
pub const FILE_BYTES_MAX: u64 = 256 << 10;

/// Files that the project must have, each with its purpose.
pub const HOUSE_FILES: &[(&str, &str)] = &[
    (".ci/run", "what is run on every change"),
    ("ARCHITECTURE.md", "picture, code map, invariants, the life of one Write"),
    ("CHANGELOG.md", "results that moved, added, changed, fixed"),
    ("CONTRIBUTING.md", "how to add a policy, a fault, a header, an experiment"),
    ("Cargo.lock", "the exact dependencies"),
    ("GLOSSARY.md", "word, one meaning, source, our type"),
    ("LICENSE", "Apache-2.0"),
    ("Makefile", "the commands"),
    ("README.md", "what it is, and a first result"),
    ("clippy.toml", "the bans that clippy holds"),
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

/// Reports Rust files of a package that no crate root reaches.
pub fn dead_files(tree: &Tree) -> Vec<Finding> {
    let dead = tree
        .files_ending(".rs")
        .filter(|file| tree.package_of(&file.path).is_some() && !tree.reach().contains_key(&file.path));
    let instead = "declare it with `mod`, or remove it";
    dead.map(|file| Finding::new(&file.path, 1, "dead_files", "no build reaches this file", instead)).collect()
}

/// Reports required files that are missing.
pub fn house_files(tree: &Tree) -> Vec<Finding> {
    let missing = HOUSE_FILES.iter().filter(|(path, _)| tree.file(path).is_none());
    missing
        .map(|(path, role)| Finding::new(*path, 1, "house_files", "the file is missing", format!("write it: {role}")))
        .collect()
}

/// Reports scripts that cannot be executed, and executable files that are not scripts.
pub fn scripts(tree: &Tree) -> Vec<Finding> {
    let finding = |path: &str, what: &str, instead: &str| Some(Finding::new(path, 1, "scripts", what, instead));
    tree.files()
        .filter_map(|file| match (file.text().is_some_and(|text| text.starts_with("#!/")), file.is_executable) {
            (true, false) => finding(&file.path, "a script that cannot be executed", "chmod +x it"),
            (false, true) => finding(&file.path, "executable, but no script", "chmod -x it"),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::SourceFile;

    #[test]
    fn large_files_are_found() {
        let sized = |path: &str, bytes: u64| {
            let mut file = SourceFile::invent(path, "");
            file.bytes = bytes;
            file
        };
        let tree = Tree::from_files([sized("fits", FILE_BYTES_MAX), sized("large", FILE_BYTES_MAX + 1)]);
        assert_eq!(blobs(&tree).into_iter().map(|found| found.path).collect::<Vec<_>>(), ["large"]);
    }

    #[test]
    fn dead_files_are_found_in_packages_only() {
        let tree = Tree::invent([
            ("a/Cargo.toml", "[package]\nname = \"a\"\n"),
            ("a/src/lib.rs", "mod live;"),
            ("a/src/live.rs", ""),
            ("a/src/dead.rs", ""),
            ("docs/example.rs", ""),
        ]);
        assert_eq!(dead_files(&tree).into_iter().map(|found| found.path).collect::<Vec<_>>(), ["a/src/dead.rs"]);
    }

    #[test]
    fn a_house_without_files_misses_them_all() {
        assert_eq!(house_files(&Tree::invent([("README.md", "")])).len(), HOUSE_FILES.len() - 1);
    }

    #[test]
    fn scripts_and_only_scripts_are_executable() {
        let file = |path: &str, text: &str, is_executable: bool| {
            let mut file = SourceFile::invent(path, text);
            file.is_executable = is_executable;
            file
        };
        let tree = Tree::from_files([
            file("good", "#!/bin/sh\n", true),
            file("page", "text", false),
            file("root.rs", "#![no_main]\n", false),
            file("lame", "#!/bin/sh\n", false),
            file("odd", "text", true),
        ]);
        assert_eq!(scripts(&tree).into_iter().map(|found| found.path).collect::<Vec<_>>(), ["lame", "odd"]);
    }
}
