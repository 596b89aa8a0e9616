//! Generated texts, and those that are out of date.

use rnic_check::Tree;
use rnic_check::checks::generated::check;
use rnic_check::generate::{MAP, all};

const PAGE: &str = "# T\n\nThe crates:\n<!-- crates:begin -->\nold\n<!-- crates:end -->\n\nafter\n";

fn tree_with(page: &str) -> Tree {
    let card = "//! About.\n//!\n//! ```text\n//! CRATE    rnic-wire (amber: careful)\n\
                //! Purpose  bytes | meaning\n//! May use  rnic-base\n//! Add here a header\n//! ```\n";
    Tree::synthetic([
        (MAP, page),
        ("crates/rnic-wire/Cargo.toml", "[package]\nname = \"rnic-wire\"\n"),
        ("crates/rnic-wire/src/lib.rs", card),
    ])
}

#[test]
fn the_table_replaces_the_text_between_the_markers() {
    let page = all(&tree_with(PAGE)).remove(0).text.expect("the page has markers");
    let row = "| [rnic-wire](crates/rnic-wire/src/lib.rs) (amber) | bytes \\| meaning | rnic-base | a header |\n";
    assert!(page.contains(row), "{page}");
    assert!(page.starts_with("# T\n\nThe crates:\n<!-- crates:begin -->\n| crate |"));
    assert!(page.ends_with("|\n<!-- crates:end -->\n\nafter\n") && !page.contains("old"));
}

#[test]
fn fresh_texts_pass_and_stale_ones_are_named_with_their_line() {
    let stale = tree_with(PAGE);
    let locations: Vec<_> = check(&stale).into_iter().map(|found| (found.path, found.line)).collect();
    assert_eq!(locations, [(MAP.to_owned(), 5)]);
    let fresh = all(&stale).remove(0).text.expect("the page has markers");
    assert!(check(&tree_with(&fresh)).is_empty());
}

#[test]
fn a_page_without_markers_is_named() {
    assert_eq!(check(&tree_with("# T\n")).len(), 1);
}
