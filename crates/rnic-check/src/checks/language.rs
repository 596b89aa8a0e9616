//! Words: the field's, one for one thing; and how comments open.
//!
//! `words.toml` in this crate's directory lists what is not written here, and what is written instead. A comment states
//! a fact: it does not open with a bare question word.

use crate::finding::Finding;
use crate::rust_source::{RustSource, TokenKind};
use crate::tree::{SourceFile, Tree};

const RULE: &str = "language";

/// The table of words.
pub const WORDS: &str = "crates/rnic-check/words.toml";

/// Words that open a question, or a riddle.
const OPENINGS: [&str; 9] = ["what", "who", "whom", "whose", "whether", "whoever", "whatever", "nobody", "somebody"];

/// This file, which has the words that it looks for.
const HERE: &str = "crates/rnic-check/src/checks/language.rs";

/// Pages whose texts are quoted from elsewhere, or are about the words themselves.
const QUOTING: [&str; 3] = ["LICENSE", "NOTICE", "CHANGELOG.md"];

/// A row of the table.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    /// Lower case; several words have one blank between them.
    word: String,
    better: String,
    why: String,
    /// True when it is not for names either.
    is_for_names: bool,
    /// Files in which it means what it says, by the beginnings of their paths.
    except: Vec<String>,
}

/// A kind of text, with its line.
#[derive(Debug, PartialEq, Eq)]
enum Piece<'tree> {
    /// A line of a comment; true when it is the first of its block.
    Comment(&'tree str, bool),
    /// A line of a page, or a literal of the code.
    Text(&'tree str),
    /// An identifier.
    Name(&'tree str),
}

/// Names words of the table, and comments that open as questions do.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let table = match read(tree) {
        Ok(table) => table,
        Err(what) => return vec![Finding::new(WORDS, 1, RULE, what, "see the head of the file")],
    };
    let mut findings = Vec::new();
    for (file, source) in tree.production_rust().filter(|(file, _)| file.path != HERE) {
        for (line, piece) in pieces_of_rust(file, source) {
            judge(&table, file, line, &piece, &mut findings);
        }
    }
    for file in tree.files_ending(".md").filter(|file| !QUOTING.contains(&file.path.as_str())) {
        for (line, text) in prose(file) {
            judge(&table, file, line, &Piece::Text(text), &mut findings);
        }
    }
    findings
}

fn judge(table: &[Row], file: &SourceFile, line: usize, piece: &Piece<'_>, findings: &mut Vec<Finding>) {
    let text = match piece {
        Piece::Comment(text, _) | Piece::Text(text) => words_of(&without_code(text)),
        Piece::Name(name) => words_of(&split_name(name)),
    };
    if let Piece::Comment(_, true) = piece
        && let Some(first) = text.split(' ').next().filter(|first| OPENINGS.contains(first))
    {
        let what = format!("a comment that opens with `{first}`");
        findings.push(Finding::new(&file.path, line, RULE, what, "state the fact: \"Returns ...\", \"Number of ...\""));
    }
    let is_name = matches!(piece, Piece::Name(_));
    for row in table.iter().filter(|row| !is_name || row.is_for_names) {
        let is_meant = row.except.iter().any(|start| file.path.starts_with(start.as_str()));
        if !is_meant && format!(" {text} ").contains(&format!(" {} ", row.word)) {
            let what = format!("the word `{}`: {}", row.word, row.why);
            findings.push(Finding::new(&file.path, line, RULE, what, format!("write {}", row.better)));
        }
    }
}

/// Reads the table.
///
/// # Errors
/// When it is missing, or a row lacks one of its columns.
fn read(tree: &Tree) -> Result<Vec<Row>, String> {
    let text = tree.file(WORDS).and_then(SourceFile::text).ok_or("there is no table of words")?;
    let table: toml::Table = text.parse().map_err(|error| format!("it does not parse: {error}"))?;
    let rows = table.get("word").and_then(toml::Value::as_array).ok_or("it has no `[[word]]`")?;
    rows.iter()
        .map(|row| {
            let column = |key: &str| {
                let value = row.get(key).and_then(toml::Value::as_str).map(str::to_owned);
                value.filter(|value| !value.is_empty()).ok_or(format!("a row without `{key}`: {row}"))
            };
            let except = row.get("except").and_then(toml::Value::as_array).map_or(&[][..], Vec::as_slice);
            Ok(Row {
                word: column("now")?.to_lowercase(),
                better: column("better")?,
                why: column("why")?,
                is_for_names: row.get("names").and_then(toml::Value::as_bool).unwrap_or(false),
                except: except.iter().filter_map(toml::Value::as_str).map(str::to_owned).collect(),
            })
        })
        .collect()
}

/// Returns comments, literals and names of production code.
fn pieces_of_rust<'tree>(file: &'tree SourceFile, source: &'tree RustSource) -> Vec<(usize, Piece<'tree>)> {
    let mut pieces = Vec::new();
    let (mut last, mut is_fenced) = (None, false);
    for (number, line) in file.lines().filter(|(number, _)| !source.is_test_line(*number)) {
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

/// Returns whether a line is a comment, which the parser hands on as a literal.
fn is_doc(source: &RustSource, line: usize) -> bool {
    source.line(line).trim_start().starts_with("//")
}

/// Returns the lines of a page outside of its code blocks.
fn prose(file: &SourceFile) -> impl Iterator<Item = (usize, &str)> {
    let mut is_fenced = false;
    file.lines().filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        !is_fence && !is_fenced
    })
}

/// Returns a line without what stands between backticks, and without the targets of links.
fn without_code(line: &str) -> String {
    let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join(" code ");
    prose.split("](").enumerate().fold(String::new(), |text, (index, part)| {
        let part = if index == 0 { part } else { part.split_once(')').map_or("", |(_, rest)| rest) };
        text + " " + part
    })
}

/// Returns the words of an identifier: of `snake_case` and of `CamelCase`.
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

/// Returns the words of a text in lower case with one blank between them. Hyphens, underscores and apostrophes join.
fn words_of(text: &str) -> String {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '\'');
    let words = text.split(|c: char| !is_part(c)).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = r#"
[[word]]
now = "stranger"
better = "unknown peer"
why = "a metaphor"
names = true
[[word]]
now = "under way"
better = "in flight"
why = "one word"
except = ["docs/"]
"#;

    fn found(path: &str, text: &str) -> Vec<(usize, String)> {
        let tree = Tree::invent([
            (WORDS, TABLE),
            (path, text),
            ("crates/a/Cargo.toml", "[package]\nname = \"a\"\nversion = \"0.1.0\"\n"),
        ]);
        check(&tree).into_iter().map(|found| (found.line, found.what)).collect()
    }

    fn lines(path: &str, text: &str) -> Vec<usize> {
        found(path, text).into_iter().map(|(line, _)| line).collect()
    }

    #[test]
    fn words_are_found_in_comments_literals_names_and_pages() {
        let text = "//! A crate.\n\n/// A stranger.\npub fn f() -> &'static str {\n    // Under way.\n\
                    \"a Stranger\"\n}\nstruct TheStranger;\nfn take_stranger() {}\nfn under() -> u8 { way() }\n";
        let mut lines_found = lines("crates/a/src/lib.rs", text);
        lines_found.sort_unstable();
        assert_eq!(lines_found, [3, 5, 6, 8, 9]);
        assert_eq!(lines("a.md", "# A\n\nNo strangers, a stranger.\n"), [3]);
    }

    #[test]
    fn code_is_not_prose() {
        assert!(lines("a.md", "# A\n\n```text\nstranger\n```\n\n`stranger` [b](stranger.md)\n").is_empty());
        assert!(lines("crates/a/src/lib.rs", "//! ```text\n//! stranger\n//! ```\n//! `stranger`\n").is_empty());
        assert!(lines("docs/a.md", "# A\n\nIt is under way.\n").is_empty(), "an exception");
        assert!(lines("CHANGELOG.md", "# A\n\nA stranger.\n").is_empty(), "what was written stays");
    }

    #[test]
    fn openings_of_blocks_are_judged_and_no_other_lines() {
        let text = "//! A.\n\n/// What it is.\n/// Who is it?\n#[derive(Debug)]\n\
                    pub struct A {\n    /// Whether.\n    pub b: u8,\n}\n";
        assert_eq!(lines("crates/a/src/lib.rs", text), [3, 7]);
    }

    #[test]
    fn a_row_has_all_its_columns() {
        let tree = Tree::invent([(WORDS, "[[word]]\nnow = \"a\"\nwhy = \"b\"\n")]);
        assert!(check(&tree)[0].what.contains("without `better`"));
        assert_eq!(check(&Tree::invent([("a.md", "# A\n")])).len(), 1, "no table");
    }
}
