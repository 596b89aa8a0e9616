//! Words and openings of comments.

use rnic_check::Tree;
use rnic_check::checks::language::{WORDS, check};

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
    let tree = Tree::synthetic([
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
    assert!(lines("docs/a.md", "# A\n\nIt is under way.\n").is_empty(), "an excepted page was checked");
    assert!(lines("CHANGELOG.md", "# A\n\nA stranger.\n").is_empty(), "the changelog was checked");
}

#[test]
fn only_first_words_of_comment_blocks_are_checked() {
    let text = "//! A.\n\n/// What it is.\n/// Who is it?\n#[derive(Debug)]\n\
                    pub struct A {\n    /// Whether.\n    pub b: u8,\n}\n";
    assert_eq!(lines("crates/a/src/lib.rs", text), [3, 7]);
    assert_eq!(lines("crates/a/tests/b.rs", text), [3, 7], "tests are not checked");
}

#[test]
fn a_row_has_all_its_columns() {
    let tree = Tree::synthetic([(WORDS, "[[word]]\nnow = \"a\"\nwhy = \"b\"\n")]);
    assert!(check(&tree)[0].what.contains("missing field `better`"));
    assert_eq!(check(&Tree::synthetic([("a.md", "# A\n")])).len(), 1, "a missing table is not found");
}
