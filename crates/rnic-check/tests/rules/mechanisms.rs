//! Mechanisms of papers and the tests that name them.

use rnic_check::Tree;
use rnic_check::checks::mechanisms::{check, find};
use rnic_check::mechanisms::{Id, Mechanism, PAGE, PAPERS, Paper, ids, page, tests};

const fn plain(what: &'static str) -> Mechanism {
    Mechanism { what, section: "1", left_out: "" }
}

/// An invented paper with three mechanisms.
const EXAMPLE: &[Paper] = &[Paper {
    mark: "X",
    name: "An invented paper",
    mechanisms: &[plain("first"), plain("second"), Mechanism { left_out: "the hardware", ..plain("third") }],
    gaps: &[],
}];

fn tree(text: &str) -> Tree {
    Tree::synthetic([("crates/a/src/b/tests.rs", text)])
}

fn findings(text: &str) -> Vec<String> {
    find(&tree(text), EXAMPLE).into_iter().map(|found| found.what).collect()
}

#[test]
fn every_mechanism_needs_a_test() {
    assert!(findings("#[test]\nfn x1_x2_a() {}\n#[test]\nfn x3_b() {}\n").is_empty());
    assert_eq!(findings("#[test]\nfn x1_x2_a() {}\nfn x3_no_test() {}\n"), ["no test names X-3 (third)"]);
    let ignored = "#[test]\nfn x1_x2_a() {}\n#[test]\n#[ignore = \"long\"]\nfn x3_b() {}\n";
    assert_eq!(findings(ignored).len(), 1, "an ignored test counts");
}

#[test]
fn a_listed_gap_passes_until_it_has_a_test() {
    let [paper] = EXAMPLE else { panic!("there is one paper") };
    let papers = [Paper { gaps: &[3], ..*paper }];
    let findings = |text: &str| find(&tree(text), &papers).into_iter().map(|found| found.what).collect::<Vec<String>>();
    assert!(findings("#[test]\nfn x1_x2_a() {}\n").is_empty());
    assert_eq!(findings("#[test]\nfn x1_a() {}\n"), ["no test names X-2 (second)"]);
    let closed = findings("#[test]\nfn x1_x2_x3_all() {}\n");
    assert_eq!(closed, ["X-3 has a test and is listed as a gap"]);
}

#[test]
fn unknown_mechanism_ids_are_found() {
    let text = "#[test]\nfn x1_x2_x3_all() {}\n#[test]\nfn x4_of_three() {}\n";
    assert_eq!(findings(text), ["`x4_of_three` begins with `x4`, which is no mechanism"]);
}

#[test]
fn a_missing_page_is_found() {
    let missing = |tree: &Tree| check(tree).iter().any(|found| found.what == "the page is missing");
    assert!(missing(&Tree::synthetic([("a", "")])));
    assert!(!missing(&Tree::synthetic([(PAGE, "# T\n")])));
}

fn id(number: usize) -> Id {
    Id { mark: "X", number }
}

#[test]
fn names_begin_with_ids() {
    let found = |name: &str| ids(EXAMPLE, name);
    assert_eq!(found("x2_the_second"), Ok(vec![id(2)]));
    assert_eq!(found("x1_x3_both"), Ok(vec![id(1), id(3)]));
    for other in ["the_x2_is_not_first", "x_r20_a_row", "y1_of_another_paper", "x", "x2nd", ""] {
        assert_eq!(found(other), Ok(vec![]), "{other}");
    }
    for wrong in ["x4", "x0", "x02", "x99999999999999999999999"] {
        assert_eq!(found(&format!("{wrong}_of_three")), Err(wrong.to_owned()));
    }
}

#[test]
fn tests_are_functions_with_the_attribute_in_macros_too() {
    let text = "#[test]\nfn x1_plain() { fn x2_inner() {} }\nfn x2_helper() {}\n#[test] #[ignore = \"long\"]\n\
                fn x2_long() {}\nproptest! {\n  #[test]\n  fn x3_random(a in 0..9) {}\n}\n#[test]\n\
                const A: u8 = 1;\nfn x2_not_this() {}\n#[cfg(any(test))]\nfn x2_nor_this() {}";
    let found: Vec<_> = tests(&tree(text)).into_iter().map(|test| (test.line, test.is_ignored)).collect();
    assert_eq!(found, [(2, false), (5, true), (8, false)]);
}

#[test]
fn the_page_lists_tests_by_file_and_what_is_left_out() {
    let invented = tree("#[test]\nfn x1_a() {}\n#[test]\nfn x3_x1_b() {}\n");
    let page = page(EXAMPLE, &tests(&invented));
    let link = "[a/b/tests.rs](../crates/a/src/b/tests.rs)";
    assert!(page.contains(&format!("| X-1 | first (1) | {link}: `x1_a`, `x3_x1_b` |  |\n")), "{page}");
    assert!(page.contains(&format!("| X-3 | third (1) | {link}: `x3_x1_b` | the hardware |\n")), "{page}");
    assert!(page.contains("| X-2 | second (1) | none |  |\n"), "{page}");
}

#[test]
fn ids_of_the_papers_are_complete() {
    let counts: Vec<_> = PAPERS.iter().map(|paper| (paper.mark, paper.mechanisms.len())).collect();
    assert_eq!(counts, [("I", 28), ("R", 27), ("F", 43), ("probe", 10), ("S", 28), ("T", 29)]);
    for mechanism in PAPERS.iter().flat_map(|paper| paper.mechanisms) {
        let Mechanism { what, section, left_out } = mechanism;
        assert!(what.len() > 20 && !section.is_empty(), "{what}");
        assert!(
            ![what, section, left_out].iter().any(|text| text.contains('|')),
            "{what}: the text would break the table"
        );
    }
}
