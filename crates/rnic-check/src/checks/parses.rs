//! Checks that every .rs and .toml file parses; the other checks ignore files that do not.

use crate::finding::Finding;
use crate::tree::Tree;

/// Reports files that do not parse.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let rust = tree.files_ending(".rs").filter_map(|file| {
        let error = file.rust()?.as_ref().err()?;
        let line = error.span().start().line.max(1);
        Some(Finding::new(&file.path, line, "parses", format!("not Rust: {error}"), "make it compile"))
    });
    let toml = tree.files_ending(".toml").filter_map(|file| {
        let text = file.text()?;
        let error = text.parse::<toml::Table>().err()?;
        let offset = error.span().map_or(0, |span| span.start.min(text.len()));
        let line = text.as_bytes()[..offset].iter().filter(|byte| **byte == b'\n').count() + 1;
        Some(Finding::new(&file.path, line, "parses", format!("not TOML: {}", error.message()), "correct it"))
    });
    rust.chain(toml).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_files_are_named_with_their_line() {
        let tree = Tree::invent([("a.rs", "fn f() {\n}\nfn (\n"), ("b.toml", "a = 1\nb = \n"), ("c.rs", "fn f() {}")]);
        let places: Vec<_> = check(&tree).into_iter().map(|found| (found.path, found.line)).collect();
        assert_eq!(places, [("a.rs".to_owned(), 3), ("b.toml".to_owned(), 2)]);
    }
}
