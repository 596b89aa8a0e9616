//! Follows docs/transport-in-an-hour.md literally: types its commands, makes its edits, and compares the output that it
//! shows with the real one.

mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{CommandOutput, finish, root};

const PAGE: &str = "docs/transport-in-an-hour.md";

/// A fenced block of the page: its kind and its lines.
struct Block {
    kind: String,
    lines: Vec<String>,
}

impl Block {
    /// Returns the commands of a console block.
    fn commands(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().filter_map(|line| line.strip_prefix("$ "))
    }
}

fn blocks() -> Vec<Block> {
    let text = fs::read_to_string(root().join(PAGE)).expect("the page");
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for line in text.lines() {
        match (line.strip_prefix("```"), open.take()) {
            (Some(_), Some(block)) => blocks.push(block),
            (Some(kind), None) => open = Some(Block { kind: kind.to_owned(), lines: Vec::new() }),
            (None, Some(mut block)) => {
                block.lines.push(line.to_owned());
                open = Some(block);
            }
            (None, None) => {}
        }
    }
    blocks
}

/// A folder in which the page is followed. It stands for the workspace, with one package more: cargo finds everything
/// but that package compiled, because the paths of the others in the workspace, and their features, are the same.
struct Desk {
    /// The root of that workspace.
    root: tempfile::TempDir,
    /// The folder that the last `cd` has entered.
    now: PathBuf,
    /// Output of the last command, as far as the page can show it.
    shown: String,
}

/// Beginnings of the names of variables that cargo sets for tests: to build scripts they would be changes.
const FOR_TESTS: [&str; 6] =
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_EXE_", "CARGO_CRATE_", "CARGO_TARGET_TMPDIR", "LD_LIBRARY_PATH"];

impl Desk {
    fn new() -> Self {
        let desk = tempfile::tempdir().expect("a folder for the test");
        let tree = root().canonicalize().expect("the tree exists");
        for folder in ["crates", "examples", "templates", "tests"] {
            symlink(tree.join(folder), desk.path().join(folder)).expect("a link");
        }
        fs::copy(tree.join("Cargo.lock"), desk.path().join("Cargo.lock")).expect("a copy");
        let workspace = fs::read_to_string(tree.join("Cargo.toml")).expect("the workspace");
        let member = workspace.replacen("members = [", "members = [\"ecn-reno\", ", 1);
        assert_ne!(workspace, member);
        fs::write(desk.path().join("Cargo.toml"), member).expect("the folder is writable");
        let now = desk.path().to_owned();
        let desk = Self { root: desk, now, shown: String::new() };
        desk.install_cargo();
        desk
    }

    /// Writes a `cargo` that builds with the features of all packages together, as the tests were built. It runs the
    /// tests called `program`, so only the template may have such a file.
    fn install_cargo(&self) {
        let profile = self.profile();
        let release = if profile.ends_with("release") { "--release" } else { "" };
        let build = format!(
            "CARGO_TARGET_DIR='{}' {} test --workspace --exclude my-transport --offline {release} --test program",
            profile.parent().expect("the target directory").display(),
            env!("CARGO"),
        );
        let script = format!(
            "#!/bin/sh\ncase \"$1\" in\n\
             test) exec env {build} ;;\n\
             run) while [ $# -gt 0 ] && [ \"$1\" != -- ]; do shift; done; [ $# -eq 0 ] || shift\n\
             env {build} --no-run && exec '{}/ecn-reno' \"$@\" ;;\n\
             *) exit 64 ;;\nesac\n",
            profile.display()
        );
        fs::create_dir(self.root.path().join("bin")).expect("a folder");
        let path = self.root.path().join("bin/cargo");
        fs::write(&path, script).expect("a script");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    }

    /// Returns the folder of the command under test.
    fn profile(&self) -> &'static Path {
        Path::new(env!("CARGO_BIN_EXE_rnic")).parent().expect("it is in a folder")
    }

    /// Runs a script in a shell, in the folder of the last `cd`.
    fn run(&mut self, script: &str) -> CommandOutput {
        let others = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{}:{others}", self.root.path().join("bin").display(), self.profile().display());
        let mut shell = Command::new("sh");
        shell.args(["-e", "-c", script]).current_dir(&self.now).process_group(0);
        for (name, _) in std::env::vars_os() {
            if FOR_TESTS.iter().any(|start| name.to_string_lossy().starts_with(start)) {
                shell.env_remove(name);
            }
        }
        shell.env("PATH", path).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = finish(shell.spawn().expect("there is a shell"));
        assert!(output.status.success(), "{script}: {output:#?}");
        let pid = output.out.split_once("process ").and_then(|(_, rest)| rest.split_once(':')).map(|(pid, _)| pid);
        let pid = pid.filter(|pid| pid.parse::<u32>().is_ok());
        self.shown = pid.map_or_else(|| output.out.clone(), |pid| output.out.replace(pid, "4711"));
        output
    }

    /// Types a command of the page.
    fn type_in(&mut self, typed: &str) {
        if let Some(folder) = typed.strip_prefix("cd ") {
            self.now.push(folder);
            return;
        }
        let output = self.run(typed);
        if typed.starts_with("rnic new ") {
            self.join_workspace();
        }
        if typed.starts_with("cargo test") {
            let passed = "test result: ok. 3 passed; 0 failed";
            assert!(output.out.contains(passed), "not three tests of the package: {output:#?}");
        }
    }

    /// Makes the new package, a workspace of its own, a member of this one.
    fn join_workspace(&mut self) {
        let path = self.now.join("ecn-reno/Cargo.toml");
        let lock = self.root.path().join("Cargo.lock");
        fs::copy(lock, self.now.join("ecn-reno/Cargo.lock")).expect("a copy");
        // As it was made, it is a workspace inside of this one. Unlike `metadata`, `tree` needs no packages of other
        // platforms, which a build does not download.
        self.run(&format!("cd ecn-reno && {} tree --offline", env!("CARGO")));
        let manifest = fs::read_to_string(&path).expect("the new package");
        let tree = root().canonicalize().expect("the tree exists");
        let (package, _) = manifest.split_once("\n# A workspace of its own").expect("it is a workspace");
        let inside = package.replace(&tree.display().to_string(), &self.root.path().display().to_string());
        assert_ne!(package, inside, "it depends on another tree");
        fs::write(path, inside).expect("the folder is writable");
    }

    /// Makes the edits of a block: in each part, behind a line that begins with `@@`, the lines that begin with a blank
    /// or with `-` are found once, and become those that begin with a blank or with `+`.
    fn edit(&self, block: &Block) {
        let name = block.lines[0].strip_prefix("--- ").expect("the name of a file");
        let path = self.now.join(name);
        let mut text = fs::read_to_string(&path).expect(name);
        let parts: Vec<&[String]> = block.lines[2..].split(|line| line.starts_with("@@")).skip(1).collect();
        assert!(!parts.is_empty(), "no edits of {name}");
        for part in parts {
            let side = |other: char| {
                let lines = part.iter().filter(|line| !line.starts_with(other));
                lines.map(|line| format!("{}\n", line.get(1..).unwrap_or_default())).collect::<String>()
            };
            let (before, after) = (side('+'), side('-'));
            assert_eq!(text.matches(&before).count(), 1, "{name} does not have once: {before}");
            text = text.replacen(&before, &after, 1);
        }
        fs::write(path, text).expect("the folder is writable");
    }

    /// Checks that the lines of a block occur in the output of the last command, in this order. `...` is for others,
    /// and 4711 for the ID of the process that the output names first.
    fn compare(&self, block: &Block) {
        assert!(block.lines.iter().any(|line| line != "..."), "a block that shows nothing");
        let mut shown = self.shown.lines();
        // A part of a list, which `rnic top` wraps where it likes.
        let unwrapped = self.shown.replace("\n    ", " ");
        for line in block.lines.iter().filter(|line| *line != "...") {
            if let Some(part) = line.strip_prefix("... ").and_then(|line| line.strip_suffix(" ...")) {
                assert!(unwrapped.contains(part), "not in the output: {part}\nThe output: {}", self.shown);
                continue;
            }
            assert!(shown.any(|other| other == line), "not in the output: {line}\nThe output: {}", self.shown);
        }
    }
}

/// Returns `true` if the programs and the libraries that a script needs are there.
fn can_run(script: &str) -> bool {
    let libraries =
        Path::new(env!("CARGO_BIN_EXE_rnic")).parent().map(|folder| folder.join("lib/rnic/libibverbs.so.1"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |name: &str| std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
    !script.contains("rnic run")
        || libraries.is_some_and(|file| file.exists()) && ["ib_write_bw", "rping"].into_iter().all(is_there)
}

/// The page works as it stands. With `--workspace`, nothing but the new package is compiled.
#[test]
fn the_chapter_works_as_it_stands() {
    let mut desk = Desk::new();
    let (mut commands, mut edits, mut comparisons) = (0, 0, 0);
    // True if the last commands were run, and have output.
    let mut has_run = true;
    for block in blocks() {
        match block.kind.as_str() {
            "console" => {
                let script: Vec<&str> = block.commands().collect();
                if script.iter().any(|typed| typed.contains(" & ")) {
                    let script = script.join("\n") + "\nwait\n";
                    has_run = can_run(&script);
                    if has_run {
                        desk.run(&script);
                    } else {
                        eprintln!("skipped: scripts/link-verbs debug was not run, or there is no perftest: {script}");
                    }
                } else {
                    script.iter().for_each(|typed| desk.type_in(typed));
                    has_run = true;
                }
                commands += script.len();
            }
            "diff" => {
                desk.edit(&block);
                edits += 1;
            }
            "toml" => {
                let name = block.lines[0].strip_prefix("# ").and_then(|line| line.split(':').next());
                fs::write(desk.now.join(name.expect("a name")), block.lines.join("\n")).expect("it is written");
            }
            _ if has_run => {
                desk.compare(&block);
                comparisons += 1;
            }
            _ => {}
        }
    }
    assert!(commands >= 15 && edits >= 1 && comparisons >= 3, "{commands}, {edits} and {comparisons} of the page");
}
