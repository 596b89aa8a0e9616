//! Checks lines as text: their width, their ends, and words that do not belong in the tree.

use crate::finding::Finding;
use crate::tree::{SourceFile, Tree};

/// Maximum number of characters of a Rust line; `rustfmt.toml` has the same number, but rustfmt leaves strings and
/// comments alone.
pub const COLUMNS_MAX: usize = 120;

/// Suffixes of files in which white space is insignificant: everything but data.
const TEXT_SUFFIXES: [&str; 12] =
    [".rs", ".md", ".toml", ".sh", ".py", ".pyi", ".lua", ".sv", ".c", ".h", ".yml", ".gitignore"];

/// Markers of unfinished work, spelled in halves so that this file does not contain them.
const NOTES: [&str; 4] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX"), concat!("HA", "CK")];

/// First folders of paths that exist on one machine only.
const LOCAL_FOLDERS: [&str; 5] = ["home", "root", "tmp", "work", "Users"];

/// Reports Rust lines that are too wide.
pub fn columns(tree: &Tree) -> Vec<Finding> {
    let wide = |file: &SourceFile| -> Vec<Finding> {
        file.lines()
            .map(|(number, line)| (number, line, line.chars().count()))
            .filter(|(_, line, columns)| *columns > COLUMNS_MAX && can_be_broken(line))
            .map(|(number, _, columns)| {
                let what = format!("{columns} columns, the limit is {COLUMNS_MAX}");
                Finding::new(&file.path, number, "columns", what, "break the line")
            })
            .collect()
    };
    tree.files_ending(".rs").flat_map(wide).collect()
}

/// Reports trailing blanks, tabs in place of blanks, line ends other than a newline, and files that do not end in one
/// newline.
pub fn whitespace(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files().filter(|file| is_text(file)) {
        let Some(text) = file.text() else { continue };
        let mut finding = |line, what: &str, instead: &str| {
            findings.push(Finding::new(&file.path, line, "whitespace", what, instead));
        };
        for (index, line) in text.split('\n').enumerate() {
            if line.ends_with('\r') {
                finding(index + 1, "the line ends in a carriage return", "use plain newlines");
            } else if line.ends_with([' ', '\t']) {
                finding(index + 1, "blanks at the end of the line", "remove them");
            } else if line.starts_with('\t') && !is_makefile(file) {
                finding(index + 1, "the line begins with a tab", "indent with spaces");
            }
        }
        if !text.is_empty() && (!text.ends_with('\n') || text.ends_with("\n\n")) {
            finding(text.lines().count(), "the file does not end in exactly one newline", "end it so");
        }
    }
    findings
}

/// Reports markers of unfinished work and paths of a developer's machine.
pub fn words(tree: &Tree) -> Vec<Finding> {
    let is_own = |file: &&SourceFile| file.path != "Cargo.lock" && file.path != "LICENSE";
    let mut findings = Vec::new();
    for file in tree.files().filter(is_own) {
        for (number, line) in file.lines() {
            if let Some(note) = NOTES.iter().find(|note| has_word(line, note)) {
                let what = format!("the note `{note}`");
                let instead = "do it now, open an issue, or say plainly what is not supported";
                findings.push(Finding::new(&file.path, number, "words", what, instead));
            }
            if let Some(folder) = LOCAL_FOLDERS.iter().find(|folder| has_local_path(line, folder)) {
                let what = format!("a path under /{folder}, which exists on one machine only");
                let instead = "use a path relative to the tree, or ask the system (std::env::temp_dir, mktemp)";
                findings.push(Finding::new(&file.path, number, "words", what, instead));
            }
        }
    }
    findings
}

/// Reports table rows in Rust comments that continue on the next line, where Markdown would end the table.
pub fn rows(tree: &Tree) -> Vec<Finding> {
    let broken = |file: &SourceFile| -> Vec<Finding> {
        // Diagrams in comments are indented further, and so are not matched.
        let is_row = |line: &str| ["//! |", "/// |"].iter().any(|start| line.trim_start().starts_with(start));
        file.lines()
            .filter(|(_, line)| is_row(line) && !line.ends_with('|'))
            .map(|(number, _)| {
                let what = "a row of a table that ends in the next line";
                Finding::new(&file.path, number, "rows", what, "shorten it, or make the table a list")
            })
            .collect()
    };
    tree.files_ending(".rs").flat_map(broken).collect()
}

/// Returns whether a line contains more than one word, unlike an address or a test vector in hexadecimal.
fn can_be_broken(line: &str) -> bool {
    line.trim_matches(['/', '!', ' ']).contains(' ')
}

fn is_text(file: &SourceFile) -> bool {
    TEXT_SUFFIXES.iter().any(|suffix| file.path.ends_with(suffix))
        || is_makefile(file)
        || file.text().is_some_and(|text| text.starts_with("#!/"))
}

fn is_makefile(file: &SourceFile) -> bool {
    file.path.ends_with("Makefile")
}

fn has_word(line: &str, word: &str) -> bool {
    let is_word_char = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        let after = line[start + word.len()..].chars().next();
        !before.is_some_and(is_word_char) && !after.is_some_and(is_word_char)
    })
}

/// Returns whether `line` contains `/folder/` at the beginning of a path, not in the middle of one or of an address.
fn has_local_path(line: &str, folder: &str) -> bool {
    let path = format!("/{folder}/");
    let is_inside = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '}' | ')' | '*' | '~');
    line.match_indices(&path).any(|(start, _)| !line[..start].chars().next_back().is_some_and(is_inside))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(check: fn(&Tree) -> Vec<Finding>, path: &str, text: &str) -> Vec<usize> {
        check(&Tree::invent([(path, text)])).into_iter().map(|found| found.line).collect()
    }

    #[test]
    fn columns_are_characters_and_only_of_rust() {
        let wide = format!("a {}", "é".repeat(COLUMNS_MAX - 2));
        assert!(lines(columns, "a.rs", &wide).is_empty());
        let address = format!("/// <https://a.org/{}>\n", "b".repeat(COLUMNS_MAX));
        assert!(lines(columns, "a.rs", &address).is_empty(), "it cannot be broken");
        assert_eq!(lines(columns, "a.rs", &format!("\n{wide}x\n")), [2]);
        assert!(lines(columns, "a.md", &format!("{wide}x\n")).is_empty());
    }

    #[test]
    fn rows_end_where_they_begin() {
        let table = "//! | a | b |\n//! |---|---|\n//! | long\n//! | 2 |\n    /// | c |\nlet or = a\n    | b;\n";
        assert_eq!(lines(rows, "a.rs", table), [3]);
    }

    #[test]
    fn blanks_and_line_ends_are_found() {
        assert_eq!(lines(whitespace, "a.md", "a \nb\n\tc\nd\r\n"), [1, 3, 4]);
        assert_eq!(lines(whitespace, "a.rs", "a"), [1]);
        assert_eq!(lines(whitespace, "a.rs", "a\n\n"), [2]);
        assert_eq!(lines(whitespace, "script", "#!/bin/sh\na \n"), [2]);
        assert!(lines(whitespace, "Makefile", "a:\n\tb\n").is_empty());
        assert!(lines(whitespace, "golden.txt", "a \n\n").is_empty(), "data may look as it likes");
    }

    #[test]
    fn notes_are_found_as_whole_words() {
        for note in NOTES {
            assert_eq!(lines(words, "a.md", &format!("x\nsee {note}: later\n")), [2]);
            assert!(lines(words, "a.md", &format!("MY{note}S and {}\n", note.to_lowercase())).is_empty());
            assert!(lines(words, "LICENSE", note).is_empty());
        }
    }

    #[test]
    fn local_paths_are_found_where_they_begin() {
        for folder in LOCAL_FOLDERS {
            assert_eq!(lines(words, "a.rs", &format!("open(\"/{folder}/x\")\n")), [1]);
            assert_eq!(lines(words, "a.sh", &format!("cd /{folder}/x\n")), [1]);
            assert!(
                lines(words, "a.md", &format!("docs/{folder}/x https://a.org/{folder}/b ${{X}}/{folder}/y\n"))
                    .is_empty()
            );
        }
    }
}
