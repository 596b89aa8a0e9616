//! Checks that every mechanism of the papers has a test that names it, and that mechanism ids in names of tests
//! exist.

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

/// Reports the same of these papers, except for the page.
pub fn find(tree: &Tree, papers: &[Paper]) -> Vec<Finding> {
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
