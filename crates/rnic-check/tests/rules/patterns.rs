//! Lines that no file may have.

use rnic_check::Tree;
use rnic_check::checks::patterns::{PATTERNS, check};

fn lines(path: &str, text: &str) -> Vec<usize> {
    check(&Tree::synthetic([(path, text)])).into_iter().map(|found| found.line).collect()
}

#[test]
fn every_pattern_has_correct_examples() {
    for pattern in PATTERNS.iter() {
        assert!(!pattern.finds.is_empty() && !pattern.passes.is_empty(), "{pattern:?}");
        for line in &pattern.finds {
            assert!(pattern.matches(line), "not found: {line:?} by {pattern:?}");
        }
        for line in &pattern.passes {
            assert!(!pattern.matches(line), "found: {line:?} by {pattern:?}");
        }
    }
}

#[test]
fn patterns_are_found_in_the_files_that_they_name() {
    assert_eq!(lines("a.md", "a \nb\n\tc\nd\r\n"), [1, 4]);
    assert_eq!(lines("scripts/b", "#!/bin/sh\na \n"), [2]);
    assert!(lines("golden.txt", "a \n\n").is_empty(), "a data file was checked");
    assert_eq!(lines("a.rs", &format!("\n// {}\n", "word ".repeat(23) + "abc")), [2]);
    assert!(lines("a.md", &format!("\n// {}\n", "word ".repeat(23) + "abc")).is_empty());
    assert_eq!(lines("golden.txt", &format!("a\n{}: b\n", ["TO", "DO"].concat())), [2]);
    assert!(lines("LICENSE", &["TO", "DO"].concat()).is_empty());
}
