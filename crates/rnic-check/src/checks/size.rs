//! Checks that files, inline tests and functions are short, or on the list of exceptions.
//!
//! Functions of one name in one file share an entry, which applies to the longest of them.

use crate::finding::Finding;
use crate::ratchet::{Counted, Limit, judge, unknown_tables};
use crate::rust_source::function_lengths;
use crate::tree::Tree;

const RULE: &str = "size";

/// Limit on the production lines of a file: all lines except those of test items. Test files count completely.
pub const FILE: Limit =
    Limit { rule: RULE, table: "file", unit: "lines", most: 800, remedy: "split it: one idea a file" };
/// Limit on the lines of a function, from `fn` to the closing brace, so that it fits on a screen.
pub const FUNCTION: Limit = Limit {
    rule: RULE,
    table: "function",
    unit: "lines",
    most: 70,
    remedy: "keep the decisions and the state, and move pure parts out",
};
/// Maximum number of lines of test items inside a production file; more would obscure the code.
pub const INLINE_TEST_LINES_MAX: usize = 200;

/// Reports items that are too long, and entries of the list that are no longer accurate.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let (mut files, mut functions) = (Vec::new(), Vec::new());
    for (file, source) in tree.rust() {
        let is_test_file = source.production_line_count() == 0;
        let amount = if is_test_file { source.line_count() } else { source.production_line_count() };
        let subject = "the file".to_owned();
        files.push(Counted { path: file.path.clone(), line: 1, name: None, subject, amount });
        functions.extend(function_lengths(source).into_iter().map(|(name, (amount, line))| {
            let subject = format!("fn {name}");
            Counted { path: file.path.clone(), line, name: Some(name), subject, amount }
        }));
    }
    let mut findings = inline_tests(tree);
    findings.extend(judge(tree, FILE, &files));
    findings.extend(judge(tree, FUNCTION, &functions));
    findings.extend(unknown_tables(tree, RULE));
    findings
}

fn inline_tests(tree: &Tree) -> Vec<Finding> {
    let too_long = tree.production_rust().filter_map(|(file, source)| {
        let lines = source.test_line_count();
        let is_mixed = source.production_line_count() > 0;
        (is_mixed && lines > INLINE_TEST_LINES_MAX).then(|| {
            let what = format!("{lines} lines of inline tests, the limit is {INLINE_TEST_LINES_MAX}");
            let stem = file.path.trim_end_matches(".rs").rsplit('/').next().unwrap_or_default();
            Finding::new(&file.path, 1, RULE, what, format!("move them to {stem}/tests.rs beside the file"))
        })
    });
    too_long.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ratchet::RATCHET;

    const PATH: &str = "crates/rnic-x/src/lib.rs";

    fn function(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    g();\n".repeat(lines - 2))
    }

    fn findings(source: &str, ratchet: &str) -> Vec<String> {
        let manifest = "[package]\nname = \"rnic-x\"\n";
        let tree = Tree::invent([("crates/rnic-x/Cargo.toml", manifest), (PATH, source), (RATCHET, ratchet)]);
        check(&tree).into_iter().map(|found| format!("{}:{} {}", found.path, found.line, found.what)).collect()
    }

    fn allow(lines: usize) -> String {
        format!("[[function]]\npath = \"{PATH}\"\nname = \"long\"\nlines = {lines}\nreason = \"a table\"\n")
    }

    #[test]
    fn the_limit_itself_is_allowed() {
        assert!(findings(&function(FUNCTION.most), "").is_empty());
        let expected = format!("{PATH}:1 fn long has 71 lines, the limit is 70");
        assert_eq!(findings(&function(FUNCTION.most + 1), ""), [expected]);
    }

    #[test]
    fn files_count_without_their_tests() {
        let production = "const A: u8 = 1;\n".repeat(FILE.most - 1);
        let tests = "#[cfg(test)]\nmod tests {\n    const B: u8 = 1;\n}\n";
        assert_eq!(findings(&format!("{production}const B: u8 = 1;\n{tests}"), ""), Vec::<String>::new());
        assert_eq!(findings(&format!("{production}const B: u8 = 1;\nconst C: u8 = 1;\n"), "").len(), 1);
        let many = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "const B: u8 = 1;\n".repeat(INLINE_TEST_LINES_MAX));
        assert_eq!(findings(&format!("fn f() {{}}\n{many}"), "").len(), 1);
        let test_file = format!("#![cfg(test)]\n{}", "const B: u8 = 1;\n".repeat(FILE.most));
        assert_eq!(findings(&test_file, "").len(), 1, "test files have the limit too");
    }

    #[test]
    fn an_exception_holds_at_exactly_its_size() {
        assert!(findings(&function(80), &allow(80)).is_empty());
        assert_eq!(findings(&function(81), &allow(80)).len(), 1);
        assert_eq!(
            findings(&function(79), &allow(80)),
            [format!("{RATCHET}:2 fn long in {PATH} shrank from 80 to 79 lines")]
        );
    }

    #[test]
    fn an_exception_must_be_needed_and_have_a_reason() {
        assert_eq!(findings(&function(70), &allow(80)).len(), 1);
        assert_eq!(findings("fn other() {}\n", &allow(80)), [format!("{RATCHET}:2 long in {PATH} does not exist")]);
        assert_eq!(findings(&function(80), &allow(80).replace("a table", " ")).len(), 1);
        assert_eq!(findings("", "[[functoin]]\npath = \"x\"\nlines = 1\n").len(), 1);
    }
}
