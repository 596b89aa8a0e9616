//! Tests of the rules on files: size, required files, scripts.

use rnic_check::checks::layout::{FILE_BYTES_MAX, REQUIRED_FILES, blobs, required_files, scripts};
use rnic_check::{SourceFile, Tree};

#[test]
fn large_files_are_found() {
    let sized = |path: &str, bytes: u64| {
        let mut file = SourceFile::synthetic(path, "");
        file.bytes = bytes;
        file
    };
    let tree = Tree::from_files([sized("fits", FILE_BYTES_MAX), sized("large", FILE_BYTES_MAX + 1)]);
    assert_eq!(blobs(&tree).into_iter().map(|found| found.path).collect::<Vec<_>>(), ["large"]);
}

#[test]
fn required_files_that_are_missing_are_found() {
    assert_eq!(required_files(&Tree::synthetic([("README.md", "")])).len(), REQUIRED_FILES.len() - 1);
}

#[test]
fn scripts_and_only_scripts_are_executable() {
    let file = |path: &str, text: &str, is_executable: bool| {
        let mut file = SourceFile::synthetic(path, text);
        file.is_executable = is_executable;
        file
    };
    let tree = Tree::from_files([
        file("good", "#!/bin/sh\n", true),
        file("page", "text", false),
        file("root.rs", "#![no_main]\n", false),
        file("not-executable", "#!/bin/sh\n", false),
        file("not-a-script", "text", true),
    ]);
    let found: Vec<_> = scripts(&tree).into_iter().map(|found| found.path).collect();
    assert_eq!(found, ["not-a-script", "not-executable"]);
}
