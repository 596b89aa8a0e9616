//! What the README and `--help` tell people to type works.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{finish, rnic, root};

/// The commands of the README's console blocks, as they stand there.
fn commands() -> Vec<String> {
    commands_of("README.md")
}

/// The commands of a page's console blocks.
fn commands_of(page: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(page)).expect("the page");
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

/// The pages of the book.
fn pages() -> Vec<String> {
    let names = fs::read_dir(root().join("docs")).expect("the book").flatten();
    let names = names.map(|entry| format!("docs/{}", entry.file_name().to_string_lossy()));
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".md")).collect();
    names.sort_unstable();
    names
}

/// The commands among the examples of `rnic WORD --help`, without what explains them or reads their output.
fn examples(word: &str) -> Vec<String> {
    let help = rnic(&[word, "--help"]).ok().out;
    let typed = help.lines().filter_map(|line| line.strip_prefix("  ")).filter(|line| line.starts_with("rnic "));
    let alone = |line: &str| line.split("  ").next().and_then(|rest| rest.split(" | ").next()).unwrap_or("").to_owned();
    typed.map(alone).collect()
}

/// What makes a command short; the rest of it stays as it is. None for those that need more than this machine.
fn shortening(typed: &str) -> Option<&'static str> {
    let mut words = typed.split_whitespace().skip(1);
    match words.next() {
        // Needs two machines: see two_machines.rs.
        Some("perf") if ["10.0.0.1", "HOST", "--listen"].iter().any(|word| typed.contains(word)) => None,
        // Needs the libraries: see unmodified.rs.
        Some("run") => None,
        Some("perf") if typed.contains("--count") => Some(""),
        Some("perf") => Some("--count 20"),
        Some("sim") => Some("--set run.limit=100us"),
        // Needs a cluster; see reproduce.rs.
        Some("reproduce") if typed.contains("--dask") || typed.contains("--read-results") => None,
        Some("reproduce") if ["--list", "--quantities", "--write-runs"].iter().any(|word| typed.contains(word)) => {
            Some("")
        }
        // Everything but the runs; see reproduce.rs.
        Some("reproduce") => Some("--write-runs runs.jsonl"),
        // See demo.rs.
        Some("demo") => None,
        _ => Some(""),
    }
}

/// Types it into a shell, in a folder with nothing but the plans.
fn type_in(typed: &str, more: &str, folder: &Path) -> common::Said {
    let program = Path::new(env!("CARGO_BIN_EXE_rnic")).parent().expect("it is in a folder");
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{typed} {more}")]).env("PATH", path).current_dir(folder);
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    finish(shell.spawn().expect("there is a shell"))
}

#[test]
fn every_command_that_people_are_told_to_type_runs() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    for name in ["plans", "experiments"] {
        let there = fs::canonicalize(root().join(name)).expect("it is in the tree");
        std::os::unix::fs::symlink(there, folder.path().join(name)).expect("a link");
    }
    let helped = ["perf", "sim", "list", "demo", "reproduce"].into_iter().flat_map(examples);
    // What Falcon's page has a command of the shell for.
    fs::write(folder.path().join("secret"), [7; 32]).expect("a file in a folder of ours");
    let pages = pages().into_iter().flat_map(|page| commands_of(&page));
    let told = commands().into_iter().chain(pages).chain(helped);
    let mut ran = 0;
    for typed in told.filter(|typed| typed.starts_with("rnic ")) {
        let Some(more) = shortening(&typed) else { continue };
        let said = type_in(&typed, more, folder.path());
        assert!(said.status.success(), "{typed}: {said:#?}");
        if typed.contains("--json") {
            said.json();
        }
        ran += 1;
    }
    assert!(ran >= 45, "the README and the help show what the command can do: {ran}");
}

/// Programs beside `rnic` that pages have commands of, and where those run: `make` in CI itself; `cargo`, whose
/// packages have tests; `tshark` in the tests of captures; the rest needs a screen, or the next command.
const OTHERS: [&str; 6] = ["make", "cargo", "tshark", "wireshark", "export", "(umask"];

#[test]
fn pages_have_no_commands_that_nothing_runs() {
    for page in pages() {
        for typed in commands_of(&page) {
            let program = typed.split_whitespace().next().unwrap_or_default();
            assert!(program == "rnic" || OTHERS.contains(&program), "{page}: {typed}");
        }
    }
}

#[test]
fn every_page_of_the_book_is_in_its_table_of_contents() {
    let table = fs::read_to_string(root().join("docs/SUMMARY.md")).expect("the table");
    for page in pages().iter().filter_map(|page| page.strip_prefix("docs/")).filter(|page| *page != "SUMMARY.md") {
        assert!(table.contains(&format!("]({page})")), "docs/SUMMARY.md lacks {page}");
    }
}

#[test]
fn every_target_of_make_that_the_readme_names_is_there() {
    let makefile = fs::read_to_string(root().join("Makefile")).expect("the Makefile");
    let targets: Vec<String> =
        commands().iter().filter_map(|typed| typed.strip_prefix("make ")).map(str::to_owned).collect();
    assert!(targets.contains(&"run".to_owned()) && targets.contains(&"test".to_owned()), "{targets:?}");
    for target in targets {
        let rule = makefile.lines().find(|line| line.starts_with(&format!("{target}:")));
        assert!(rule.is_some_and(|rule| rule.contains(" ## ")), "make {target}");
    }
}
