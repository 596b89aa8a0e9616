//! What the README tells people to type works.

mod common;

use std::fs;

use common::{command, finish, root};

/// The commands of the README's console blocks, as they stand there.
fn commands() -> Vec<String> {
    let text = fs::read_to_string(root().join("README.md")).expect("the README");
    let mut is_console = false;
    let mut commands = Vec::new();
    for line in text.lines() {
        if let Some(kind) = line.strip_prefix("```") {
            is_console = kind == "console";
        } else if let Some(typed) = line.strip_prefix("$ ").filter(|_| is_console) {
            commands.push(typed.to_owned());
        }
    }
    commands
}

/// What makes a command of the README short. The rest of it stays as it is.
fn shortening(words: &[&str]) -> Option<&'static [&'static str]> {
    match words[0] {
        // Needs two machines: see two_machines.rs.
        "perf" if words.iter().any(|word| word.contains("10.0.0.1")) => None,
        "perf" => Some(&["--count", "20"]),
        "sim" => Some(&["--set", "run.limit=100us"]),
        _ => Some(&[]),
    }
}

#[test]
fn every_command_of_the_readme_runs() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let plans = fs::canonicalize(root().join("plans")).expect("the plans");
    std::os::unix::fs::symlink(plans, folder.path().join("plans")).expect("a link");
    let mut ran = 0;
    for typed in commands() {
        let Some(rest) = typed.strip_prefix("rnic ") else { continue };
        let mut words: Vec<&str> = rest.split_whitespace().collect();
        let Some(more) = shortening(&words) else { continue };
        words.extend(more);
        let child = command(&words).current_dir(folder.path()).spawn().expect("the command starts");
        let said = finish(child).ok();
        if words.contains(&"--json") {
            said.json();
        }
        ran += 1;
    }
    assert!(ran >= 10, "the README shows what the command can do: {ran}");
}

#[test]
fn every_target_of_make_that_the_readme_names_is_there() {
    let makefile = fs::read_to_string(root().join("Makefile")).expect("the Makefile");
    let targets: Vec<String> =
        commands().iter().filter_map(|typed| typed.strip_prefix("make ")).map(str::to_owned).collect();
    assert!(targets.contains(&"run".to_owned()) && targets.contains(&"test".to_owned()), "{targets:?}");
    for target in targets {
        assert!(makefile.contains(&format!("\n{target}: ## ")), "make {target}");
    }
}
