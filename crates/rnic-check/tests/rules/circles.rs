//! Modules that use each other.

use rnic_check::Tree;
use rnic_check::checks::circles::check;

fn findings(files: &[(&str, &str)]) -> Vec<String> {
    let manifest = ("a/Cargo.toml", "[package]\nname = \"a\"\n");
    let tree = Tree::synthetic(files.iter().copied().chain([manifest]));
    check(&tree).into_iter().map(|found| format!("{}: {}", found.path, found.what)).collect()
}

#[test]
fn modules_that_use_each_other_are_named() {
    let files = [
        ("a/src/lib.rs", "mod b; mod c; mod d; mod e; pub use c::C;"),
        ("a/src/b.rs", "use crate::C; pub struct B;"),
        ("a/src/c.rs", "pub struct C; fn f() -> crate::d::D { crate::d::D }"),
        ("a/src/d.rs", "use super::b::B; pub struct D;"),
        ("a/src/e.rs", "use crate::b::B;"),
    ];
    assert_eq!(findings(&files), ["a/src: modules use each other in a circle: [b, c, d]"]);
}

#[test]
fn a_module_and_the_files_of_its_folder_may_use_each_other() {
    let files = [
        ("a/src/lib.rs", "mod b;"),
        ("a/src/b.rs", "mod c; mod d; use c::C; pub struct B;"),
        ("a/src/b/c.rs", "use super::B; use super::d::D; pub struct C;"),
        ("a/src/b/d.rs", "use crate::b::B; pub struct D; #[cfg(test)] mod tests { use crate::b::c::C; }"),
    ];
    assert_eq!(findings(&files), Vec::<String>::new());
}

#[test]
fn circles_in_a_subfolder_are_reported_for_the_subfolder() {
    let files = [
        ("a/src/lib.rs", "mod b;"),
        ("a/src/b.rs", "mod c; mod d;"),
        ("a/src/b/c.rs", "use super::d::D; pub struct C;"),
        ("a/src/b/d.rs", "use super::c::C; pub struct D;"),
    ];
    assert_eq!(findings(&files), ["a/src/b: modules use each other in a circle: [c, d]"]);
}
