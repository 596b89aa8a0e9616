//! Runs every check over the tree around the current directory, or writes the generated files.

#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs, io};

use rnic_check::{CHECKS, Tree, generate, run_all};

const USAGE: &str = "\
usage: rnic-check [--write | --list]
  without arguments: checks the tree; one line a finding, exit code 1 when there are any
  --write            writes the generated texts (ARCHITECTURE's table of crates, docs/mechanisms.md)
  --list             names the checks and what each holds";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => check(),
        ["--write"] => write(),
        ["--list"] => {
            CHECKS.iter().for_each(|check| println!("{:<12} {}", check.name, check.rule));
            Ok(ExitCode::SUCCESS)
        }
        ["--help" | "-h"] => {
            println!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
        _ => Err(io::Error::other(format!("unknown arguments: {}\n{USAGE}", arguments.join(" ")))),
    };
    done.unwrap_or_else(|error| {
        eprintln!("rnic-check: {error}");
        ExitCode::from(2)
    })
}

fn load() -> io::Result<(std::path::PathBuf, Tree)> {
    let here = env::current_dir()?;
    let root = Tree::find_root(&here)
        .ok_or_else(|| io::Error::other(format!("no workspace at or above {}", here.display())))?;
    let tree = Tree::load(&root)?;
    Ok((root, tree))
}

fn check() -> io::Result<ExitCode> {
    let (_, tree) = load()?;
    let findings = run_all(&tree);
    findings.iter().for_each(|finding| println!("{finding}"));
    eprintln!("{} checks over {} files, {} findings", CHECKS.len(), tree.files().count(), findings.len());
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn write() -> io::Result<ExitCode> {
    let (root, tree) = load()?;
    for made in generate::all(&tree) {
        match made.text {
            Ok(text) => write_if_changed(&root, made.path, &text)?,
            Err(missing) => eprintln!("{}: not written, {missing}", made.path),
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn write_if_changed(root: &Path, path: &str, text: &str) -> io::Result<()> {
    let target = root.join(path);
    if fs::read_to_string(&target).is_ok_and(|now| now == text) {
        return Ok(());
    }
    println!("wrote {path}");
    fs::write(target, text)
}
