//! The mechanisms that the papers describe, and the naming of tests that check them.
//!
//! The tables are [`PAPERS`]; to add a paper, add a file in `mechanisms/` and a line in that table. A test names a
//! mechanism by the beginning of its function's name: `i7_...` checks I-7, `r3_r4_...` checks. Names are
//! used rather than comments, because a failing run prints them. `docs/mechanisms.md` is generated from the tables
//! and the tests; the check `mechanisms` finds ids without a test, and names with an unknown id.

mod falcon;
mod fasr;
mod irn;
mod scr;
mod tonic;

use core::fmt::{self, Write as _};
use std::collections::BTreeMap;

use crate::rust_source::{RustSource, Token, TokenKind};
use crate::tree::Tree;

/// Path of the generated page.
pub const PAGE: &str = "docs/mechanisms.md";

/// Every paper whose mechanisms must have tests.
pub const PAPERS: &[Paper] = &[irn::PAPER, fasr::PAPER, falcon::PAPER, falcon::PROBES, scr::PAPER, tonic::PAPER];

/// A paper and its mechanisms.
#[derive(Debug)]
pub struct Paper {
    /// Prefix of its ids; written in lower case in names of tests.
    pub mark: &'static str,
    /// Title of the paper and where it was published.
    pub name: &'static str,
    /// Mechanisms, numbered from 1 without gaps.
    pub mechanisms: &'static [Mechanism],
    /// Numbers of the mechanisms that are known to have no test yet. The list may only get shorter.
    pub gaps: &'static [usize],
}

/// A mechanism that the implementation must have.
#[derive(Debug)]
pub struct Mechanism {
    /// Description, in one line.
    pub what: &'static str,
    /// Section of the paper that describes it.
    pub section: &'static str,
    /// Aspects that no test checks, and the reason; empty when all are checked.
    pub left_out: &'static str,
}

/// Id of a mechanism: I-7 is the seventh mechanism of the paper with the prefix I.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    /// Prefix of the paper.
    pub mark: &'static str,
    /// Number within the paper.
    pub number: usize,
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.mark, self.number)
    }
}

/// A test function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Test {
    /// Path of its file.
    pub path: String,
    /// Line of its name.
    pub line: usize,
    /// Name of the function.
    pub name: String,
    /// True when the test is ignored by default.
    pub is_ignored: bool,
}

/// Returns every test function of the tree, including those inside macro calls.
pub fn tests(tree: &Tree) -> Vec<Test> {
    let of_file = |(path, source): (&str, &RustSource)| {
        functions(&source.tokens)
            .into_iter()
            .filter(|(attributes, ..)| attributes.iter().any(|name| name == "test"))
            .map(|(attributes, line, name)| {
                let is_ignored = attributes.iter().any(|name| name == "ignore");
                Test { path: path.to_owned(), line, name, is_ignored }
            })
            .collect::<Vec<_>>()
    };
    tree.rust().map(|(file, source)| (file.path.as_str(), source)).flat_map(of_file).collect()
}

/// Returns functions as tuples (first word of each attribute, line, name).
fn functions(tokens: &[Token]) -> Vec<(Vec<String>, usize, String)> {
    let mut found = Vec::new();
    let mut attributes = Vec::new();
    let mut index = 0;
    while let Some(token) = tokens.get(index) {
        let next = tokens.get(index + 1);
        match (&token.kind, next.map(|next| &next.kind)) {
            (TokenKind::Punct('#'), Some(TokenKind::Open(_))) => {
                attributes.extend(tokens.get(index + 2).and_then(Token::ident).map(str::to_owned));
                index = end_of_group(tokens, index + 1);
            }
            (TokenKind::Ident(word), Some(TokenKind::Ident(name))) if word == "fn" => {
                found.push((std::mem::take(&mut attributes), tokens[index + 1].line, name.clone()));
                index += 1;
            }
            (TokenKind::Ident(word), _) if matches!(word.as_str(), "pub" | "async" | "unsafe" | "const") => {}
            _ => attributes.clear(),
        }
        index += 1;
    }
    found
}

/// Returns the index of the token that closes the group opened at `open`.
fn end_of_group(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate().skip(open) {
        match token.kind {
            TokenKind::Open(_) => depth += 1,
            TokenKind::Close(_) if depth == 1 => return index,
            TokenKind::Close(_) => depth -= 1,
            _ => {}
        }
    }
    tokens.len()
}

/// Returns the ids at the beginning of a test's name: its leading words, as long as each is the prefix of one of
/// `papers` followed by a number.
///
/// # Errors
/// The word that looks like an id but is unknown.
pub fn ids(papers: &[Paper], name: &str) -> Result<Vec<Id>, String> {
    let mut found = Vec::new();
    for word in name.split('_') {
        let digits = |paper: &Paper| {
            let digits = word.strip_prefix(paper.mark.to_ascii_lowercase().as_str())?;
            let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
            is_number.then(|| digits.to_owned())
        };
        let Some((paper, digits)) = papers.iter().find_map(|paper| Some((paper, digits(paper)?))) else { break };
        let number = digits.parse().unwrap_or(0);
        let is_listed = (1..=paper.mechanisms.len()).contains(&number) && !digits.starts_with('0');
        if !is_listed {
            return Err(word.to_owned());
        }
        found.push(Id { mark: paper.mark, number });
    }
    Ok(found)
}

/// Returns the tests that name each mechanism; ignored tests are not counted.
pub fn coverage(papers: &[Paper], tests: &[Test]) -> BTreeMap<Id, Vec<Test>> {
    let mut coverage: BTreeMap<Id, Vec<Test>> = BTreeMap::new();
    for test in tests.iter().filter(|test| !test.is_ignored) {
        for id in ids(papers, &test.name).unwrap_or_default() {
            coverage.entry(id).or_default().push(test.clone());
        }
    }
    coverage
}

const HEAD: &str = "\
# Mechanisms and their tests

Generated by `make generate` from the tables in `crates/rnic-check/src/mechanisms` and the names of the tests: the test
`i7_...` checks I-7. `rnic-check` fails when a mechanism without a test is not in the list of known gaps, which may only
get shorter. The last column names the aspects that no test checks, and the reason.
";

/// Returns the text of [`PAGE`].
pub fn page(papers: &[Paper], tests: &[Test]) -> String {
    let coverage = coverage(papers, tests);
    let mut page = HEAD.to_owned();
    for paper in papers {
        let _ = writeln!(page, "\n## {}\n\n| id | mechanism | tests | not checked |\n|---|---|---|---|", paper.name);
        for (number, mechanism) in (1..).zip(paper.mechanisms) {
            let id = Id { mark: paper.mark, number };
            let tests = coverage.get(&id).map_or_else(|| "none".to_owned(), |tests| links(tests));
            let Mechanism { what, section, left_out } = mechanism;
            let _ = writeln!(page, "| {id} | {what} ({section}) | {tests} | {left_out} |");
        }
    }
    page
}

/// Formats links to tests by file, with one link per file.
fn links(tests: &[Test]) -> String {
    let mut by_file: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for test in tests {
        by_file.entry(&test.path).or_default().push(format!("`{}`", test.name));
    }
    let cell = |(path, names): (&str, Vec<String>)| format!("[{}](../{path}): {}", short(path), names.join(", "));
    by_file.into_iter().map(cell).collect::<Vec<_>>().join("; ")
}

/// Returns a path without the parts that all paths have: `rnic-engine/irn_mechanisms/order.rs`.
fn short(path: &str) -> String {
    let parts = path.split('/').filter(|part| !matches!(*part, "crates" | "src" | "tests"));
    parts.collect::<Vec<_>>().join("/")
}
