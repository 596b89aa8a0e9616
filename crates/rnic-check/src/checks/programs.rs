//! Checks that Rust code calls by name only programs that exist on every machine or that `scripts/setup` installs.
//!
//! A test that calls a program which happens to be installed (`kill` and `sysctl` of procps, `file`, `curl`) fails on
//! the next minimal machine. When a library can do the same, no program should be called.

use proc_macro2::Delimiter;

use crate::finding::Finding;
use crate::rust_source::{Token, TokenKind};
use crate::tree::Tree;

const RULE: &str = "programs";

/// Programs that may be called, grouped by the package or script that provides them.
const KNOWN_PROGRAMS: &[(&str, &[&str])] = &[
    (
        "Debian's packages that are marked essential or required",
        &[
            "bash", "cat", "cp", "env", "false", "gunzip", "mount", "nsenter", "prlimit", "rm", "setpriv", "sh",
            "sleep", "stdbuf", "taskset", "timeout", "true", "unshare",
        ],
    ),
    ("what README asks for", &["cargo", "git", "make", "rustc"]),
    (
        "scripts/setup; a test skips itself, or does without, where they are missing",
        &["cc", "ccache", "ip", "mpicc", "promtool", "python3", "rping", "tc", "tshark"],
    ),
];

/// Reports calls of other programs.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, source) in tree.rust() {
        for (line, program) in called(&source.tokens) {
            if KNOWN_PROGRAMS.iter().any(|(_, names)| names.contains(&program)) {
                continue;
            }
            let what = format!("`{program}` is called, which a bare machine may lack");
            let instead = "use a library; or bring it in scripts/setup and add it to the table of this check";
            findings.push(Finding::new(&file.path, line, RULE, what, instead));
        }
    }
    findings
}

/// Returns the literals passed to `Command::new`, with their lines.
fn called(tokens: &[Token]) -> Vec<(usize, &str)> {
    let is_new = |at: &[Token]| {
        at[0].is_ident("Command")
            && at[1].kind == TokenKind::PathSep
            && at[2].is_ident("new")
            && at[3].kind == TokenKind::Open(Delimiter::Parenthesis)
    };
    let calls = tokens.windows(5).filter(|at| is_new(at));
    let literals = calls.filter_map(|at| match &at[4].kind {
        TokenKind::Literal(text) => Some((at[4].line, text.trim_matches('"'))),
        _ => None,
    });
    literals.filter(|(_, text)| !text.contains('/')).collect()
}
