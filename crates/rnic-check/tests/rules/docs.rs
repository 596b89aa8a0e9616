//! Documentation of files and items.

use rnic_check::Tree;
use rnic_check::checks::docs::check;

fn findings(lib: &str) -> Vec<String> {
    let tree = Tree::synthetic([
        ("crates/rnic-x/Cargo.toml", "[package]\nname = \"rnic-x\"\n"),
        ("crates/rnic-x/src/lib.rs", lib),
    ]);
    check(&tree).into_iter().map(|found| format!("{}: {}", found.line, found.what)).collect()
}

#[test]
fn a_file_begins_with_documentation() {
    assert!(findings("#![no_main]\n//! About.\n").is_empty());
    assert_eq!(findings("// About.\nfn f() {}\n"), ["1: the file does not say what it is"]);
    assert_eq!(findings("").len(), 1);
}

#[test]
fn every_kind_of_public_item_is_seen() {
    for code in [
        "pub struct A;",
        "pub enum A {}",
        "pub trait A {}",
        "pub const A: u8 = 1;",
        "pub static A: u8 = 1;",
        "pub type A = u8;",
        "pub fn a() {}",
        "pub mod a {}",
        "/// Doc.\npub struct A { pub a: u8 }",
        "impl A { pub fn a() {} }",
        "impl A { pub const A: u8 = 1; }",
        "/// Doc.\n#[inline]\nfn a() {}\n#[inline]\npub const unsafe extern \"C\" fn b() {}",
        "mod private { pub fn a() {} }",
    ] {
        assert_eq!(findings(&format!("//! About.\n{code}\n")).len(), 1, "{code}");
    }
}

#[test]
fn private_items_and_tests_need_no_documentation() {
    let code = "//! About.\nfn f() {}\npub(crate) struct A { b: u8 }\nimpl B for A { fn g() {} }\nenum C { D }\n\
                pub mod file;\npub use A as E;\n\
                /// Doc.\n#[derive(Debug)]\npub struct G;\n/// Doc.\npub struct F(pub u8);\n\
                #[cfg(test)]\nmod tests { pub fn h() {} }\n";
    assert_eq!(findings(code), Vec::<String>::new());
}
