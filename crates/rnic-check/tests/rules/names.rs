//! Names of code in pages.

use rnic_check::Tree;
use rnic_check::checks::names::check;

fn findings(page: &str) -> Vec<String> {
    let tree = Tree::synthetic([
        ("crates/rnic-x/Cargo.toml", "[package]\nname = \"rnic-x\"\n"),
        ("crates/rnic-x/src/lib.rs", "pub mod deep { pub struct Thing<T>(T); pub fn act() {} }\n"),
        ("GLOSSARY.md", page),
        ("CHANGELOG.md", "`rnic_x::Gone`\n"),
    ]);
    check(&tree).into_iter().map(|found| format!("{}: {}", found.line, found.what)).collect()
}

#[test]
fn existing_names_and_unknown_crates_pass() {
    assert!(
        findings("`rnic_x::deep::Thing<u8>` `rnic_x::deep` `rnic_x::act()` `rnic_y::Planned` `rnic_x` Gone\n")
            .is_empty()
    );
}

#[test]
fn a_name_that_does_not_exist_is_found() {
    assert_eq!(findings("text\n\n| `rnic_x::deep::Gone` |\n"), ["3: rnic_x has no `Gone`"]);
}
