//! Checks `rnic new`: the packages that it makes, and the errors. The chapter's test builds one.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{CommandOutput, command, finish, root};

fn rnic_in(folder: &Path, arguments: &[&str]) -> CommandOutput {
    finish(command(arguments).current_dir(folder).spawn().expect("the command starts"))
}

/// Returns the paths of all files in `folder`, in order.
fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let name = entry.file_name().into_string().expect("a name of letters");
        if entry.path().is_dir() {
            found.extend(files(&entry.path()).into_iter().map(|inside| format!("{name}/{inside}")));
        } else {
            found.push(name);
        }
    }
    found.sort_unstable();
    found
}

#[test]
fn every_file_of_a_template_is_in_the_package() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    for kind in ["transport", "controller", "law"] {
        let name = format!("own-{kind}");
        let made = rnic_in(folder.path(), &["new", kind, &name, "--json"]).json();
        let made: Vec<&str> =
            made["files"].as_array().expect("files").iter().filter_map(|file| file.as_str()).collect();
        let expected = files(&root().join("templates").join(kind));
        assert_eq!(made, expected);
        assert_eq!(files(&folder.path().join(&name)), expected);
        let manifest = fs::read_to_string(folder.path().join(&name).join("Cargo.toml")).expect("a manifest");
        let tree = root().canonicalize().expect("the tree exists");
        assert!(manifest.contains(&format!("path = \"{}/crates/rnic-policy\"", tree.display())), "{manifest}");
        // Cargo finds every dependency for this platform, as in the versions of this workspace. Unlike `tree`,
        // `metadata` needs those of other platforms, too, which a build does not download.
        fs::copy(root().join("Cargo.lock"), folder.path().join(&name).join("Cargo.lock")).expect("a copy");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["tree", "--offline"]).current_dir(folder.path().join(&name));
        let tree = cargo.output().expect("cargo runs");
        assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
        let readme = fs::read_to_string(folder.path().join(&name).join("README.md")).expect("a page");
        assert!(readme.lines().count() <= 22, "the README has to fit onto a screen: {readme}");
    }
}

#[test]
fn nothing_is_overwritten_and_every_error_is_one_line() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let there = folder.path().join("there");
    fs::create_dir(&there).expect("a folder");
    fs::write(there.join("Cargo.toml"), "mine").expect("a file");
    fs::write(folder.path().join("file"), "mine").expect("a file");
    for name in ["there", "file"] {
        rnic_in(folder.path(), &["new", "transport", name]).assert_refused(2, &[name, "exists already"]);
    }
    for name in ["irn", "Reno", "../up", "match"] {
        rnic_in(folder.path(), &["new", "transport", name]).assert_refused(2, &[name, "choose another"]);
    }
    rnic_in(folder.path(), &["new", "transport", "new", "--path", "there"])
        .assert_refused(2, &["there", "source tree"]);
    rnic_in(folder.path(), &["program", "build", ".", "-o", "x"]).assert_refused(2, &["no Cargo.toml", "rnic new"]);
    rnic_in(folder.path(), &["new", "tansport", "new"]).assert_refused(2, &["tansport", "transport"]);
    assert_eq!(files(folder.path()), ["file", "there/Cargo.toml"]);
    assert_eq!(fs::read(there.join("Cargo.toml")).expect("it is there"), b"mine");
}
