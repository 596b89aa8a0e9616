//! Checks what `make install` installs, that it works where it is installed, and that `make uninstall` removes it.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{CommandOutput, finish, root};

/// Returns a folder with the command and the libraries, which do nothing.
fn built() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let libraries = folder.path().join("lib/rnic");
    fs::create_dir_all(&libraries).expect("folders are made");
    for name in ["libibverbs.so.1", "librnic-shim.so", "librnic_sockets.so"] {
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-x", "c", "/dev/null", "-o"]).arg(libraries.join(name));
        assert!(compiler.status().expect("there is a compiler").success());
    }
    fs::hard_link(env!("CARGO_BIN_EXE_rnic"), folder.path().join("rnic"))
        .or_else(|_| fs::copy(env!("CARGO_BIN_EXE_rnic"), folder.path().join("rnic")).map(|_| ()))
        .expect("a link or a copy");
    folder
}

fn run(command: &mut Command) -> CommandOutput {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("RNIC_") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    finish(command.spawn().expect("the command starts"))
}

fn script(action: &str, built: &Path, destination: &Path) -> CommandOutput {
    let mut script = Command::new(root().join("scripts/install"));
    run(script.arg(action).arg(built).env("PREFIX", "/opt/x").env("DESTDIR", destination)).ok()
}

/// Returns all files and links below `folder`, by their paths in it.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).expect("a folder").flatten() {
            if entry.file_type().expect("a type").is_dir() {
                folders.push(entry.path());
            } else {
                found.push(entry.path().strip_prefix(folder).expect("below").to_owned());
            }
        }
    }
    found.sort();
    found
}

#[test]
fn an_installation_is_complete_works_alone_and_is_removed() {
    let (built, destination, elsewhere) =
        (built(), tempfile::tempdir().expect("one"), tempfile::tempdir().expect("two"));
    script("install", built.path(), destination.path());
    // Again, over what is there.
    script("install", built.path(), destination.path());
    let prefix = destination.path().join("opt/x");
    let installed = files(&prefix);
    for expected in [
        "bin/rnic",
        "lib/openrnic/libibverbs.so.1",
        "lib/openrnic/librdmacm.so.1",
        "lib/openrnic/librnic-shim.so",
        "lib/openrnic/librnic_sockets.so",
        "share/bash-completion/completions/rnic",
        "share/fish/vendor_completions.d/rnic.fish",
        "share/man/man1/rnic.1",
        "share/man/man1/rnic-sim.1",
        "share/openrnic/plans/irn-default.toml",
        "share/openrnic/plans/own-flows.csv",
        "share/zsh/site-functions/_rnic",
    ] {
        assert!(installed.contains(&PathBuf::from(expected)), "{expected}: {installed:#?}");
    }
    let rnic = |arguments: &[&str]| {
        let mut command = Command::new(prefix.join("bin/rnic"));
        run(command.args(arguments).current_dir(elsewhere.path()))
    };
    let shown = rnic(&["run", "--show", "--sockets"]).ok();
    let libraries = prefix.canonicalize().expect("a folder").join("lib/openrnic");
    assert!(shown.out.contains(&format!("{}/librnic_sockets.so", libraries.display())), "{shown:#?}");
    assert_eq!(rnic(&["run", "--", "sh", "-c", "exit 7"]).status.code(), Some(7));
    assert!(rnic(&["sim", "incast", "--set", "run.limit=100us"]).ok().out.contains("incast: irn, seed 1"));
    assert!(rnic(&["reproduce", "--list"]).ok().out.contains("irn/fig1"));
    rnic(&["reproduce", "irn/arithmetic", "--out", "out"]).ok();
    rnic(&["list"]).ok();
    rnic(&["new", "transport", "my-reno"]).ok();
    script("uninstall", built.path(), destination.path());
    assert_eq!(files(destination.path()), Vec::<PathBuf>::new());
}

#[test]
fn an_installation_without_a_build_says_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let mut script = Command::new(root().join("scripts/install"));
    let output = run(script.arg("install").arg(folder.path()).env("DESTDIR", folder.path()));
    assert_eq!(output.status.code(), Some(1), "{output:#?}");
    assert!(output.err.contains("run make build"), "{output:#?}");
}

#[test]
fn every_command_has_a_manual_page_and_completions_name_it() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    common::rnic(&["manual".as_ref(), folder.path().as_os_str()]).ok();
    let help = common::rnic(&["--help"]).ok().out;
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let commands = commands.filter_map(|line| line.strip_prefix("  ")).filter(|line| !line.starts_with(' '));
    let names: Vec<&str> = commands.filter_map(|line| line.split(' ').next()).filter(|name| *name != "help").collect();
    assert!(names.len() >= 13, "{names:?}");
    for shell in ["bash", "zsh", "fish"] {
        let text = common::rnic(&["completions", shell]).ok().out;
        assert!(names.iter().all(|name| text.contains(name)) && text.contains("threads"), "{shell}");
    }
    for name in names {
        let page = fs::read_to_string(folder.path().join(format!("rnic-{name}.1"))).expect(name);
        assert!(page.contains(".SH NAME") && page.contains(".SH SYNOPSIS"), "{name}: {page}");
    }
    let page = fs::read_to_string(folder.path().join("rnic-sim.1")).expect("a page");
    assert!(page.contains("rnic sim irn\\-default") && page.contains("\\-\\-threads"), "{page}");
}

/// Runs the steps of action.yml as `scripts/try-action` does, with a tarball of the installed files.
#[test]
fn the_action_installs_a_tarball_and_puts_the_command_on_the_path() {
    if !Command::new("python3").args(["-c", "import yaml"]).output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no python3 with PyYAML (python3-yaml)");
        return;
    }
    let (built, folder) = (built(), tempfile::tempdir().expect("a folder for the test"));
    let mut install = Command::new(root().join("scripts/install"));
    install.arg("install").arg(built.path()).env("PREFIX", "").env("DESTDIR", folder.path().join("openrnic-1"));
    run(&mut install).ok();
    let tarball = folder.path().join("openrnic-1.tar.gz");
    let mut pack = Command::new("python3");
    pack.args(["-m", "tarfile", "-c"]).arg(&tarball).arg("openrnic-1").current_dir(folder.path());
    run(&mut pack).ok();
    let action = |inputs: &[String], command: &[&str]| {
        let mut script = Command::new(root().join("scripts/try-action"));
        run(script.args(inputs).arg("--").args(command).current_dir(folder.path()))
    };
    // `rnic doctor`, the last step, refuses libraries that do nothing: the step that installs has passed.
    let output = action(&[format!("tarball={}", tarball.display())], &["rnic", "list"]);
    assert!(output.out.contains("rnic 0.") && output.out.contains("/openrnic/lib/openrnic/"), "{output:#?}");
    assert!(output.err.contains("try-action: a step failed with code 1"), "{output:#?}");
    let output = action(&["tarball=/nowhere.tar.gz".to_owned()], &["rnic", "list"]);
    assert!(!output.status.success() && output.err.contains("/nowhere.tar.gz"), "{output:#?}");
    assert_eq!(action(&["tarbal=x".to_owned()], &["true"]).status.code(), Some(2));
}
