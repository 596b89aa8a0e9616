//! Checks that generated texts are up to date, so that `--write` would change no file.

use crate::finding::Finding;
use crate::generate::{self, Generated};
use crate::tree::Tree;

const RULE: &str = "generated";
const COMMAND: &str = "run `cargo run -p rnic-check -- --write`";

/// Reports generated texts that are out of date, and files that lack the markers between which text is generated.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let judge = |generated: Generated| match generated.text {
        Err(missing) => Some(Finding::new(generated.path, 1, RULE, missing, "add the markers")),
        Ok(text) => {
            let now = tree.file(generated.path).and_then(|file| file.text());
            let line = now.map_or(1, |now| first_difference(now, &text));
            (now != Some(text.as_str())).then(|| Finding::new(generated.path, line, RULE, generated.stale, COMMAND))
        }
    };
    generate::all(tree).into_iter().filter_map(judge).collect()
}

fn first_difference(now: &str, wanted: &str) -> usize {
    now.lines().zip(wanted.lines()).take_while(|(now, wanted)| now == wanted).count() + 1
}
