//! Checks that files, inline tests and functions are short.

use crate::finding::Finding;
use crate::tree::Tree;

const RULE: &str = "size";

/// Maximum number of production lines of a file: all lines except those of test items. Test files count completely.
pub const FILE_LINES_MAX: usize = 800;
/// Maximum number of lines of a function, from `fn` to the closing brace, so that it fits on a screen.
pub const FUNCTION_LINES_MAX: usize = 70;
/// Maximum number of lines of test items inside a production file; more would obscure the code.
pub const INLINE_TEST_LINES_MAX: usize = 200;

/// Reports items that are too long.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = inline_tests(tree);
    for (file, source) in tree.rust() {
        let mut limit = |line, subject: &str, lines, maximum, instead| {
            if lines > maximum {
                let what = format!("{subject} has {lines} lines, the limit is {maximum}");
                findings.push(Finding::new(&file.path, line, RULE, what, instead));
            }
        };
        let production = source.production_line_count();
        let lines = if production == 0 { source.line_count() } else { production };
        limit(1, "the file", lines, FILE_LINES_MAX, "split it: one idea a file");
        for function in source.functions() {
            let remedy = "keep the decisions and the state, and move pure parts out";
            let subject = format!("fn {}", function.name);
            limit(*function.lines.start(), &subject, function.lines.count(), FUNCTION_LINES_MAX, remedy);
        }
    }
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
