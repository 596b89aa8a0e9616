//! Checks the wording: standard terms of the field, one term for each thing, and the first word of comments.
//!
//! `words.toml` in this crate's directory lists the words to avoid and their replacements. A comment states a fact,
//! so its first word must not be a question word, nor, in documentation, a pronoun that refers to another item; this
//! holds for tests too.

use serde::Deserialize;

use crate::finding::Finding;
use crate::rust_source::{RustSource, TokenKind};
use crate::tree::{SourceFile, Tree};

const RULE: &str = "language";

/// Path of the table of words.
pub const WORDS: &str = "crates/rnic-check/words.toml";

/// Words with which a comment must not begin: they begin a question or leave the subject open.
const FORBIDDEN_OPENINGS: [&str; 9] =
    ["what", "who", "whom", "whose", "whether", "whoever", "whatever", "nobody", "somebody"];

/// Words with which documentation must not begin: they refer to another item, which pages and tooltips do not show.
const FORBIDDEN_DOC_OPENINGS: [&str; 6] = ["it", "its", "they", "their", "them", "ours"];

/// Path of this file, which is skipped because it contains the words that it searches for.
const THIS_FILE: &str = "crates/rnic-check/src/checks/language.rs";

/// Tests of this crate, whose multi-line strings contain such comments.
const OWN_TESTS: &str = "crates/rnic-check/tests/";

/// Pages that are not checked: their text is quoted from elsewhere, or is about the words themselves.
const QUOTING_PAGES: [&str; 3] = ["LICENSE", "NOTICE", "CHANGELOG.md"];

#[derive(Deserialize)]
struct Table {
    word: Vec<Row>,
}

/// A row of the table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// Word to avoid, in lower case; several words are separated by one blank.
    now: String,
    better: String,
    why: String,
    /// `true` if the word must not occur in identifiers either.
    #[serde(default)]
    names: bool,
    /// Beginnings of the paths of files in which the word is permitted, because it has its ordinary meaning there.
    #[serde(default)]
    except: Vec<String>,
}

/// A piece of text to check.
#[derive(Debug, PartialEq, Eq)]
enum Piece<'tree> {
    /// A line of a comment; `true` for the first line of its block.
    Comment(&'tree str, bool),
    /// A line of a page, or a string literal in code.
    Text(&'tree str),
    /// An identifier.
    Name(&'tree str),
}

/// Reports words that the table lists, and comments that begin with a question word.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let table = match read(tree) {
        Ok(table) => table,
        Err(what) => return vec![Finding::new(WORDS, 1, RULE, what, "see the head of the file")],
    };
    let mut findings = Vec::new();
    for (file, source) in tree.production_rust().filter(|(file, _)| file.path != THIS_FILE) {
        for (line, piece) in pieces_of_rust(file, source) {
            judge(&table, file, line, &piece, &mut findings);
        }
    }
    for (file, _) in tree.rust().filter(|(file, _)| !file.path.starts_with(OWN_TESTS) && file.path != THIS_FILE) {
        for (line, piece) in comments(file, |_| true) {
            check_opening(file, line, &piece, &mut findings);
        }
    }
    for file in tree.files_ending(".md").filter(|file| !QUOTING_PAGES.contains(&file.path.as_str())) {
        for (line, text) in prose(file) {
            judge(&table, file, line, &Piece::Text(text), &mut findings);
        }
    }
    findings
}

/// Reports a comment that begins with a question word, and documentation that begins with a pronoun.
fn check_opening(file: &SourceFile, line: usize, piece: &Piece<'_>, findings: &mut Vec<Finding>) {
    let Piece::Comment(text, true) = piece else { return };
    let text = words_of(&without_code(text));
    let first = text.split(' ').next().unwrap_or_default();
    let is_doc = || file.lines().nth(line - 1).is_some_and(|(_, line)| is_doc_line(line));
    if FORBIDDEN_OPENINGS.contains(&first) || FORBIDDEN_DOC_OPENINGS.contains(&first) && is_doc() {
        let what = format!("a comment that opens with `{first}`");
        findings.push(Finding::new(&file.path, line, RULE, what, "state the fact: \"Returns ...\", \"Number of ...\""));
    }
}

/// Reports the words of the table in a piece of text.
fn judge(table: &[Row], file: &SourceFile, line: usize, piece: &Piece<'_>, findings: &mut Vec<Finding>) {
    let text = match piece {
        Piece::Comment(text, _) | Piece::Text(text) => words_of(&without_code(text)),
        Piece::Name(name) => words_of(&split_name(name)),
    };
    let is_name = matches!(piece, Piece::Name(_));
    for row in table.iter().filter(|row| !is_name || row.names) {
        let is_meant = row.except.iter().any(|start| file.path.starts_with(start.as_str()));
        if !is_meant && format!(" {text} ").contains(&format!(" {} ", row.now)) {
            let what = format!("the word `{}`: {}", row.now, row.why);
            findings.push(Finding::new(&file.path, line, RULE, what, format!("write {}", row.better)));
        }
    }
}

/// Reads the table.
///
/// # Errors
/// When the table is missing, or a row lacks one of its columns.
fn read(tree: &Tree) -> Result<Vec<Row>, String> {
    let text = tree.file(WORDS).and_then(SourceFile::text).ok_or("there is no table of words")?;
    toml::from_str(text).map(|table: Table| table.word).map_err(|error| format!("it does not parse: {error}"))
}

/// Returns comments, string literals and identifiers of production code, with their line numbers.
fn pieces_of_rust<'tree>(file: &'tree SourceFile, source: &'tree RustSource) -> Vec<(usize, Piece<'tree>)> {
    let mut pieces = comments(file, |line| !source.is_test_line(line));
    for token in source.tokens.iter().filter(|token| !source.is_test_line(token.line)) {
        match &token.kind {
            TokenKind::Ident(name) => pieces.push((token.line, Piece::Name(name))),
            TokenKind::Literal(text) if text.contains('"') && !is_doc(source, token.line) => {
                pieces.push((token.line, Piece::Text(text)));
            }
            _ => {}
        }
    }
    pieces
}

/// Returns the lines of comments among the lines that `is_included` accepts, with their numbers.
fn comments(file: &SourceFile, is_included: impl Fn(usize) -> bool) -> Vec<(usize, Piece<'_>)> {
    let mut pieces = Vec::new();
    let (mut last, mut is_fenced) = (None, false);
    for (number, line) in file.lines().filter(|(number, _)| is_included(*number)) {
        let trimmed = line.trim_start();
        let Some(comment) = trimmed.strip_prefix("//") else {
            (last, is_fenced) = (None, false);
            continue;
        };
        let mark = comment.chars().next().filter(|mark| matches!(mark, '/' | '!'));
        let comment = comment.trim_start_matches(['/', '!']).trim_start();
        if comment.starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced {
            pieces.push((number, Piece::Comment(comment, last != Some(mark))));
        }
        last = Some(mark);
    }
    pieces
}

/// Returns `true` if a line is a comment: the parser returns doc comments as literals.
fn is_doc(source: &RustSource, line: usize) -> bool {
    source.line(line).trim_start().starts_with("//")
}

/// Returns `true` for a line of documentation.
fn is_doc_line(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("///") || line.starts_with("//!")
}

/// Returns the lines of a page that are outside code blocks.
fn prose(file: &SourceFile) -> impl Iterator<Item = (usize, &str)> {
    let mut is_fenced = false;
    file.lines().filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        !is_fence && !is_fenced
    })
}

/// Returns a line without the text between backticks and without the targets of links.
fn without_code(line: &str) -> String {
    let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join(" code ");
    prose.split("](").enumerate().fold(String::new(), |text, (index, part)| {
        let part = if index == 0 { part } else { part.split_once(')').map_or("", |(_, rest)| rest) };
        text + " " + part
    })
}

/// Splits an identifier, in `snake_case` or `CamelCase`, into words.
fn split_name(name: &str) -> String {
    let mut text = String::new();
    for c in name.chars() {
        if c.is_uppercase() {
            text.push(' ');
        }
        text.push(if c == '_' { ' ' } else { c });
    }
    text
}

/// Returns the words of a text in lower case, separated by one blank. Hyphens, underscores and apostrophes are parts
/// of words.
fn words_of(text: &str) -> String {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '\'');
    let words = text.split(|c: char| !is_part(c)).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect::<Vec<_>>().join(" ")
}
