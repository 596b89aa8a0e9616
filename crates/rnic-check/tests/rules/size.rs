//! Lengths of files and functions.

use rnic_check::Tree;
use rnic_check::checks::size::{FILE_LINES_MAX, FUNCTION_LINES_MAX, INLINE_TEST_LINES_MAX, check};

const PATH: &str = "crates/rnic-x/src/lib.rs";

fn function(lines: usize) -> String {
    format!("fn long() {{\n{}}}\n", "    g();\n".repeat(lines - 2))
}

fn findings(source: &str) -> Vec<String> {
    let manifest = "[package]\nname = \"rnic-x\"\n";
    let tree = Tree::synthetic([("crates/rnic-x/Cargo.toml", manifest), (PATH, source)]);
    check(&tree).into_iter().map(|found| format!("{}:{} {}", found.path, found.line, found.what)).collect()
}

#[test]
fn the_limit_itself_is_allowed() {
    assert!(findings(&function(FUNCTION_LINES_MAX)).is_empty());
    let expected = format!("{PATH}:1 fn long has 71 lines, the limit is 70");
    assert_eq!(findings(&function(FUNCTION_LINES_MAX + 1)), [expected]);
}

#[test]
fn files_count_without_their_tests() {
    let production = "const A: u8 = 1;\n".repeat(FILE_LINES_MAX - 1);
    let tests = "#[cfg(test)]\nmod tests {\n    const B: u8 = 1;\n}\n";
    assert_eq!(findings(&format!("{production}const B: u8 = 1;\n{tests}")), Vec::<String>::new());
    assert_eq!(findings(&format!("{production}const B: u8 = 1;\nconst C: u8 = 1;\n")).len(), 1);
    let many = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "const B: u8 = 1;\n".repeat(INLINE_TEST_LINES_MAX));
    assert_eq!(findings(&format!("fn f() {{}}\n{many}")).len(), 1);
    let test_file = format!("#![cfg(test)]\n{}", "const B: u8 = 1;\n".repeat(FILE_LINES_MAX));
    assert_eq!(findings(&test_file).len(), 1, "a test file above the limit is not found");
}
