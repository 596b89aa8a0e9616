//! Checks that the commands that the README and `--help` show work when typed.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{finish, rnic, root};

/// Returns the commands in the README's console blocks, unchanged.
fn commands() -> Vec<String> {
    commands_of("README.md")
}

/// Returns the commands in a page's console blocks.
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

/// A page whose commands continue each other: chapter.rs follows it.
const CHAPTER: &str = "docs/transport-in-an-hour.md";

/// Returns the names of the pages of the book.
fn pages() -> Vec<String> {
    let names = fs::read_dir(root().join("docs")).expect("the book").flatten();
    let names = names.map(|entry| format!("docs/{}", entry.file_name().to_string_lossy()));
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".md")).collect();
    names.sort_unstable();
    names
}

/// Returns the commands among the examples of `rnic WORD --help`, without explanations and without the commands that
/// read their output.
fn examples(word: &str) -> Vec<String> {
    let help = rnic(&[word, "--help"]).ok().out;
    let typed = help.lines().filter_map(|line| line.strip_prefix("  ")).filter(|line| line.starts_with("rnic "));
    let plain = |line: &str| line.split("  ").next().and_then(|rest| rest.split(" | ").next()).unwrap_or("").to_owned();
    typed.map(plain).collect()
}

/// Returns the arguments to append to a command so that it runs only briefly. `None` for commands that need more than
/// this machine or that another test file covers.
fn shortening(typed: &str) -> Option<&'static str> {
    let mut words = typed.split_whitespace().skip(1);
    match words.next() {
        // Needs two machines: see two_machines.rs.
        Some("perf") if ["10.0.0.1", "HOST", "--listen"].iter().any(|word| typed.contains(word)) => None,
        // Needs the libraries: see unmodified.rs.
        Some("run") => None,
        Some("perf") if typed.contains("--count") => Some(""),
        Some("perf") => Some("--count 20"),
        Some("sim" | "sweep") => Some("--set run.limit=100us"),
        // Needs a cluster: see reproduce.rs.
        Some("reproduce") if typed.contains("--dask") || typed.contains("--read-results") => None,
        Some("reproduce") if ["--list", "--quantities", "--write-runs"].iter().any(|word| typed.contains(word)) => {
            Some("")
        }
        // Does everything except the runs: see reproduce.rs.
        Some("reproduce") => Some("--write-runs runs.jsonl"),
        // Needs a process with a device: see program_load.rs.
        Some("program") if typed.contains(" load ") => None,
        // Tested in demo.rs.
        Some("demo") => None,
        _ => Some(""),
    }
}

/// Runs the command `typed` in a shell, in a folder that contains nothing but the plans.
fn run_in_shell(typed: &str, more: &str, folder: &Path) -> common::CommandOutput {
    let program = Path::new(env!("CARGO_BIN_EXE_rnic")).parent().expect("it is in a folder");
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{typed} {more}")]).env("PATH", path).current_dir(folder);
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    finish(shell.spawn().expect("there is a shell"))
}

#[test]
fn every_documented_command_runs() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    for name in ["plans", "experiments"] {
        let there = fs::canonicalize(root().join(name)).expect("the folder is in the source tree");
        std::os::unix::fs::symlink(there, folder.path().join(name)).expect("a link");
    }
    let help_examples = ["perf", "sim", "sweep", "compare", "plan", "list", "demo", "reproduce", "program", "new"]
        .into_iter()
        .flat_map(examples);
    // The file that Falcon's page creates with a shell command.
    fs::write(folder.path().join("secret"), [7; 32]).expect("a file in a folder of ours");
    let pages = pages().into_iter().filter(|page| page != CHAPTER).flat_map(|page| commands_of(&page));
    let all_commands = commands().into_iter().chain(pages).chain(help_examples);
    let mut commands_run = 0;
    for typed in all_commands.filter(|typed| typed.starts_with("rnic ")) {
        let Some(more) = shortening(&typed) else { continue };
        let output = run_in_shell(&typed, more, folder.path());
        assert!(output.status.success(), "{typed}: {output:#?}");
        if typed.contains("--json") {
            output.json();
        }
        commands_run += 1;
    }
    assert!(commands_run >= 45, "only {commands_run} commands were run");
}

/// Programs other than `rnic` whose commands appear on pages, and which are not run here. `make` runs in CI itself;
/// `cargo` commands run tests of packages; `tshark` runs in the tests of captures; the others need a screen or only
/// prepare the next command.
const OTHER_PROGRAMS: [&str; 8] = ["cd", "make", "cargo", "tshark", "wireshark", "export", "(umask", "kill"];

#[test]
fn pages_contain_only_known_commands() {
    for page in pages() {
        for typed in commands_of(&page) {
            let program = typed.split_whitespace().next().unwrap_or_default();
            assert!(program == "rnic" || OTHER_PROGRAMS.contains(&program), "{page}: {typed}");
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
fn every_make_target_in_the_readme_exists() {
    let makefile = fs::read_to_string(root().join("Makefile")).expect("the Makefile");
    let targets: Vec<String> =
        commands().iter().filter_map(|typed| typed.strip_prefix("make ")).map(str::to_owned).collect();
    assert!(targets.contains(&"run".to_owned()) && targets.contains(&"test".to_owned()), "{targets:?}");
    for target in targets {
        let rule = makefile.lines().find(|line| line.starts_with(&format!("{target}:")));
        assert!(rule.is_some_and(|rule| rule.contains(" ## ")), "make {target}");
    }
}
