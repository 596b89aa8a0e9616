//! Checks that every mechanism of the papers has a test that names it, and that names of tests refer to existing
//! mechanisms.

use crate::finding::Finding;
use crate::mechanisms::{self, Id, PAGE, PAPERS, Paper};
use crate::tree::Tree;

const RULE: &str = "mechanisms";

/// Reports mechanisms without a test, tests that name an unknown mechanism, and a missing page.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = find(tree, PAPERS);
    if tree.file(PAGE).is_none() {
        let instead = "make an empty file and run `make generate`";
        findings.push(Finding::new(PAGE, 1, RULE, "the page is missing", instead));
    }
    findings
}

fn find(tree: &Tree, papers: &[Paper]) -> Vec<Finding> {
    let tests = mechanisms::tests(tree);
    let coverage = mechanisms::coverage(papers, &tests);
    let all = papers.iter().flat_map(|paper| (1..=paper.mechanisms.len()).map(move |number| (paper, number)));
    let untested = all.filter_map(|(paper, number)| {
        let id = Id { mark: paper.mark, number };
        let small = paper.mark.to_ascii_lowercase();
        let (what, instead) = match (coverage.contains_key(&id), paper.gaps.contains(&number)) {
            (true, false) | (false, true) => return None,
            (false, false) => (
                format!("no test names {id} ({})", paper.mechanisms[number - 1].what),
                format!("write a test `{small}{number}_...` of what an observer sees of it"),
            ),
            (true, true) => (
                format!("{id} has a test and is listed as a gap"),
                format!("take {number} out of the list of gaps, which may only get shorter"),
            ),
        };
        Some(Finding::new(PAGE, 1, RULE, what, instead))
    });
    let unlisted = tests.iter().filter_map(|test| {
        let word = mechanisms::ids(papers, &test.name).err()?;
        let what = format!("`{}` begins with `{word}`, which is no mechanism", test.name);
        Some(Finding::new(
            &test.path,
            test.line,
            RULE,
            what,
            "take a listed id, without zeros in front, or another name",
        ))
    });
    untested.chain(unlisted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanisms::example;

    fn findings(text: &str) -> Vec<String> {
        find(&example::tree(text), example::PAPERS).into_iter().map(|found| found.what).collect()
    }

    #[test]
    fn every_mechanism_needs_a_test() {
        assert!(findings("#[test]\nfn x1_x2_a() {}\n#[test]\nfn x3_b() {}\n").is_empty());
        assert_eq!(findings("#[test]\nfn x1_x2_a() {}\nfn x3_no_test() {}\n"), ["no test names X-3 (third)"]);
        let ignored = "#[test]\nfn x1_x2_a() {}\n#[test]\n#[ignore = \"long\"]\nfn x3_b() {}\n";
        assert_eq!(findings(ignored).len(), 1, "a test that is not run checks nothing");
    }

    #[test]
    fn a_gap_that_is_known_is_let_pass_until_it_is_closed() {
        let [paper] = example::PAPERS else { panic!("one paper") };
        let papers = [Paper { gaps: &[3], ..*paper }];
        let findings = |text: &str| {
            find(&example::tree(text), &papers).into_iter().map(|found| found.what).collect::<Vec<String>>()
        };
        assert!(findings("#[test]\nfn x1_x2_a() {}\n").is_empty());
        assert_eq!(findings("#[test]\nfn x1_a() {}\n"), ["no test names X-2 (second)"]);
        let closed = findings("#[test]\nfn x1_x2_x3_all() {}\n");
        assert_eq!(closed, ["X-3 has a test and is listed as a gap"]);
    }

    #[test]
    fn names_that_stand_for_nothing_are_found() {
        let text = "#[test]\nfn x1_x2_x3_all() {}\n#[test]\nfn x4_of_three() {}\n";
        assert_eq!(findings(text), ["`x4_of_three` begins with `x4`, which is no mechanism"]);
    }

    #[test]
    fn the_page_must_be_there() {
        let missing = |tree: &Tree| check(tree).iter().any(|found| found.what == "the page is missing");
        assert!(missing(&Tree::invent([("a", "")])));
        assert!(!missing(&Tree::invent([(PAGE, "# T\n")])));
    }
}
