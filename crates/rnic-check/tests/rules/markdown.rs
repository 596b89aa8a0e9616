//! Titles and links of pages.

use rnic_check::Tree;
use rnic_check::checks::markdown::check;

fn findings(text: &str) -> Vec<String> {
    let tree = Tree::synthetic([
        ("docs/page.md", text),
        ("docs/other.md", "# Other page\n\n## Why *so*, then?\n\n## Why so then\n"),
        ("src/lib.rs", ""),
    ]);
    check(&tree).into_iter().map(|found| format!("{}: {}", found.line, found.what)).collect()
}

#[test]
fn a_page_has_one_title() {
    assert!(findings("# Title\n\n```sh\n# comment\n```\n").is_empty());
    assert_eq!(findings("text\n"), ["1: the page has 0 first-level headings"]);
    assert_eq!(findings("# A\n\n# B\n"), ["3: the page has 2 first-level headings"]);
}

#[test]
fn links_to_files_directories_and_the_web_pass() {
    let good = "# T\n[a](other.md) [b](../src/lib.rs) [c](../src) [d](https://a.org/x) ![e](other.md) [f][g]\n\n\
                [g]: ../src\n";
    assert!(findings(good).is_empty());
    assert!(findings("# T\n`[a](nowhere.md)`\n").is_empty(), "code was taken for a link");
}

#[test]
fn broken_links_are_found_with_their_line() {
    let expected = "3: the link `gone.md` leads to docs/gone.md, which does not exist";
    assert_eq!(findings("# T\n\n[a](gone.md)\n"), [expected]);
    assert_eq!(findings("# T\n[a](/src/lib.rs)\n"), ["2: the link `/src/lib.rs` is absolute"]);
    assert_eq!(findings("# T\n\n| a |\n|---|\n| [a](gone.md) |\n").len(), 1, "a link in a table is not found");
}

#[test]
fn anchors_are_checked_here_and_elsewhere() {
    assert!(findings("# My T\n[a](#my-t) [b](other.md#why-so-then) [c](other.md#why-so-then-1)\n").is_empty());
    assert_eq!(findings("# T\n[a](#u)\n"), ["2: no heading here for the link `#u`"]);
    assert_eq!(findings("# T\n[a](other.md#why)\n"), ["2: docs/other.md has no heading for the link `other.md#why`"]);
}
