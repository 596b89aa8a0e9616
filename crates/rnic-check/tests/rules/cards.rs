//! Heads of crates.

use rnic_check::Tree;
use rnic_check::checks::cards::check;

const GOOD: &str = "//! About.\n//!\n//! ```text\n//! CRATE    rnic-wire (amber: careful)\n//! Purpose  p\n\
                    //! May use  rnic-base\n//! Must not m\n//! Add here a\n//! Not here n\n//! Tested by t\n\
                    //! ```\n";

fn findings(lib: &str) -> Vec<String> {
    let manifest = "[package]\nname = \"rnic-wire\"\n";
    let tree = Tree::synthetic([("crates/rnic-wire/Cargo.toml", manifest), ("crates/rnic-wire/src/lib.rs", lib)]);
    check(&tree).into_iter().map(|found| found.what).collect()
}

#[test]
fn a_complete_and_correct_card_passes() {
    assert_eq!(findings(GOOD), Vec::<String>::new());
}

#[test]
fn a_program_without_library_carries_the_card_itself() {
    let manifest = "[package]\nname = \"rnic-wire\"\n";
    let tree =
        Tree::synthetic([("crates/rnic-wire/Cargo.toml", manifest), ("crates/rnic-wire/src/main.rs", "//! x\n")]);
    assert_eq!(check(&tree).len(), 1);
}

#[test]
fn every_error_of_a_card_is_found() {
    assert_eq!(findings("//! About.\n"), ["the crate has no header"]);
    assert_eq!(findings(&GOOD.replace("rnic-wire", "rnic-wine")).len(), 1);
    assert_eq!(findings(&GOOD.replace("amber", "mauve")), ["the crate's colour is `mauve`"]);
    assert_eq!(findings(&GOOD.replace("//! Not here n\n", "")), ["the header has no text under `Not here`"]);
}

#[test]
fn may_use_must_be_what_the_table_says() {
    let expected =
        "the header permits rnic-base, rnic-policy under `May use`, but the table of crates permits rnic-base";
    assert_eq!(findings(&GOOD.replace("May use  rnic-base", "May use  rnic-base, rnic-policy")), [expected]);
    assert_eq!(findings(&GOOD.replace("May use  rnic-base", "May use  no other crate here")).len(), 1);
}
