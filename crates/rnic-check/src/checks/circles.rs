//! Checks that modules of one folder use each other in one direction, or that the folder is on the list of exceptions.
//!
//! A file and the files of its own folder are one node, because a type divided over files still has one owner. An edge
//! leads from the using node to the used node; uses of modules outside the folder are not edges.

use std::collections::{BTreeMap, BTreeSet};

use crate::finding::Finding;
use crate::library::{Library, ModulePath};
use crate::ratchet::{Counted, Limit, judge};
use crate::tree::Tree;

/// Limit on modules of a folder that use each other in cycles.
pub const FOLDER: Limit = Limit {
    rule: "circles",
    table: "circle",
    unit: "modules",
    most: 0,
    remedy: "move what both need to a module below, or return a value instead of calling up",
};

/// The nodes of a folder, and the other nodes that each uses.
type Edges = BTreeMap<String, BTreeSet<String>>;

/// Reports cycles of modules.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut counted = Vec::new();
    for (package, library) in Library::all(tree) {
        for (folder, edges) in folders(&library) {
            let circles = circles(&edges);
            let path = package
                .path(&["src"].into_iter().chain(folder.iter().map(String::as_str)).collect::<Vec<_>>().join("/"));
            let names: Vec<String> = circles.iter().map(|circle| circle.join(", ")).collect();
            let amount = circles.iter().map(Vec::len).sum();
            let subject = format!("a circle of [{}]", names.join("] and ["));
            counted.push(Counted { path, line: 1, name: None, subject, amount });
        }
    }
    judge(tree, FOLDER, &counted)
}

/// Returns the edges between the modules of each folder.
fn folders(library: &Library<'_>) -> BTreeMap<ModulePath, Edges> {
    let mut folders: BTreeMap<ModulePath, Edges> = BTreeMap::new();
    for (module, _, source) in library.modules() {
        let imported = source.imports.iter().map(|import| import.path.clone());
        let written = source.paths().into_iter().map(|path| source.resolve(&path));
        for item in imported.chain(written).filter_map(|path| library.resolve(module, &path)) {
            let used = library.module_of(&item);
            let shared = module.iter().zip(used).take_while(|(a, b)| a == b).count();
            if let (Some(user), Some(used)) = (module.get(shared), used.get(shared)) {
                let edges = folders.entry(module[..shared].to_vec()).or_default();
                edges.entry(user.clone()).or_default().insert(used.clone());
            }
        }
    }
    folders
}

/// Returns the groups of nodes that reach each other.
fn circles(edges: &Edges) -> Vec<Vec<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> = edges.keys().map(|node| (node, reach(edges, node))).collect();
    let mut circles: BTreeSet<Vec<String>> = BTreeSet::new();
    for (node, others) in &reached {
        if others.contains(node) {
            let back = others.iter().filter(|other| reached.get(**other).is_some_and(|back| back.contains(node)));
            circles.insert(back.map(|other| (*other).clone()).collect());
        }
    }
    circles.into_iter().collect()
}

/// Returns all nodes that `start` uses, directly or indirectly.
fn reach<'edges>(edges: &'edges Edges, start: &String) -> BTreeSet<&'edges String> {
    let (mut found, mut open) = (BTreeSet::new(), vec![start]);
    while let Some(node) = open.pop() {
        for next in edges.get(node).into_iter().flatten() {
            if found.insert(next) {
                open.push(next);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        let manifest = ("a/Cargo.toml", "[package]\nname = \"a\"\n");
        let tree = Tree::invent(files.iter().copied().chain([manifest]));
        check(&tree).into_iter().map(|found| format!("{}: {}", found.path, found.what)).collect()
    }

    #[test]
    fn modules_that_use_each_other_are_named() {
        let files = [
            ("a/src/lib.rs", "mod b; mod c; mod d; mod e; pub use c::C;"),
            ("a/src/b.rs", "use crate::C; pub struct B;"),
            ("a/src/c.rs", "pub struct C; fn f() -> crate::d::D { crate::d::D }"),
            ("a/src/d.rs", "use super::b::B; pub struct D;"),
            ("a/src/e.rs", "use crate::b::B;"),
        ];
        assert_eq!(findings(&files), ["a/src: a circle of [b, c, d] has 3 modules, the limit is 0"]);
    }

    #[test]
    fn an_owner_may_be_divided_over_the_files_of_its_folder() {
        let files = [
            ("a/src/lib.rs", "mod b;"),
            ("a/src/b.rs", "mod c; mod d; use c::C; pub struct B;"),
            ("a/src/b/c.rs", "use super::B; use super::d::D; pub struct C;"),
            ("a/src/b/d.rs", "use crate::b::B; pub struct D; #[cfg(test)] mod tests { use crate::b::c::C; }"),
        ];
        assert_eq!(findings(&files), Vec::<String>::new());
    }

    #[test]
    fn circles_of_a_folder_within_are_its_own() {
        let files = [
            ("a/src/lib.rs", "mod b;"),
            ("a/src/b.rs", "mod c; mod d;"),
            ("a/src/b/c.rs", "use super::d::D; pub struct C;"),
            ("a/src/b/d.rs", "use super::c::C; pub struct D;"),
        ];
        assert_eq!(findings(&files), ["a/src/b: a circle of [c, d] has 2 modules, the limit is 0"]);
    }
}
