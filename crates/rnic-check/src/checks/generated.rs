//! Checks that generated texts are up to date: `--write` would change no file.

use crate::finding::Finding;
use crate::generate::{self, Generated};
use crate::tree::Tree;

const RULE: &str = "generated";
const COMMAND: &str = "run `cargo run -p rnic-check -- --write`";

/// Reports generated texts that are out of date, and missing markers for them.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let judge = |generated: Generated| match generated.text {
        Err(missing) => Some(Finding::new(generated.path, 1, RULE, missing, "add the markers")),
        Ok(text) => {
            let now = tree.file(&generated.path).and_then(|file| file.text());
            let line = now.map_or(1, |now| first_difference(now, &text));
            (now != Some(text.as_str())).then(|| Finding::new(generated.path, line, RULE, generated.stale, COMMAND))
        }
    };
    generate::all(tree).into_iter().filter_map(judge).collect()
}

fn first_difference(now: &str, wanted: &str) -> usize {
    now.lines().zip(wanted.lines()).take_while(|(now, wanted)| now == wanted).count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::MAP;
    use crate::generate::tests::{PAGE, tree_with};

    #[test]
    fn fresh_texts_pass_and_stale_ones_are_named_with_their_line() {
        let stale = tree_with(PAGE, "");
        let wanted: Vec<_> =
            generate::all(&stale).into_iter().map(|made| (made.path, made.text.expect("markers"))).collect();
        let places: Vec<_> = check(&stale).into_iter().map(|found| (found.path, found.line)).collect();
        assert_eq!(places, [(MAP.to_owned(), 5), ("clippy.toml".to_owned(), 1)]);
        let text = |path: &str| &wanted.iter().find(|(found, _)| found == path).expect("it is generated").1;
        assert!(check(&tree_with(text(MAP), text("clippy.toml"))).is_empty());
    }

    #[test]
    fn a_page_without_markers_is_named() {
        assert_eq!(check(&tree_with("# T\n", "")).len(), 2);
    }
}
