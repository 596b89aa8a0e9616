//! Methods of types.

use rnic_check::Tree;
use rnic_check::checks::methods::check;

fn findings(in_folder: usize) -> Vec<String> {
    let methods = |name: &str, count: usize| {
        let functions: String = (0..count).map(|index| format!("fn {name}{index}(&self) {{}}\n")).collect();
        format!("impl Big {{\n{functions}}}\n")
    };
    let root = format!("mod big;\npub use big::Big;\npub struct Other;\n{}", methods("a", 20));
    let big =
        format!("mod more;\npub struct Big;\n{}impl Drop for Big {{ fn drop(&mut self) {{}} }}\n", methods("b", 20));
    let more = format!("use crate::Big;\n{}#[cfg(test)]\n{}", methods("c", in_folder), methods("d", 9));
    let tree = Tree::synthetic([
        ("a/Cargo.toml", "[package]\nname = \"a\"\n"),
        ("a/src/lib.rs", &root),
        ("a/src/big.rs", &big),
        ("a/src/big/more.rs", &more),
    ]);
    check(&tree).into_iter().map(|found| format!("{}: {}", found.path, found.what)).collect()
}

#[test]
fn methods_of_a_type_are_counted_over_its_files() {
    assert_eq!(findings(20), Vec::<String>::new());
    assert_eq!(findings(21), ["a/src/big.rs: type Big has 61 methods, the limit is 60"]);
}
