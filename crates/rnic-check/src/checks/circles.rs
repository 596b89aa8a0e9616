//! Checks that modules of one folder use each other in one direction.
//!
//! A file and the files of its own folder are one node, because a type divided over files still has one owner. An edge
//! leads from the using node to the used node; uses of modules outside the folder are not edges.

use std::collections::{BTreeMap, BTreeSet};

use crate::finding::Finding;
use crate::library::{Library, ModulePath};
use crate::tree::Tree;

/// The nodes of a folder, each with the other nodes that it uses.
type Edges = BTreeMap<String, BTreeSet<String>>;

/// Reports modules that use each other in cycles.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (package, library) in Library::all(tree) {
        for (folder, edges) in folders(&library) {
            let circles: Vec<String> =
                circles(&edges).iter().map(|circle| format!("[{}]", circle.join(", "))).collect();
            if !circles.is_empty() {
                let path = package.path(&format!("src/{}", folder.join("/")));
                let what = format!("modules use each other in a circle: {}", circles.join(" and "));
                let instead = "move what both need to a module below, or return a value instead of calling up";
                findings.push(Finding::new(path.trim_end_matches('/'), 1, "circles", what, instead));
            }
        }
    }
    findings
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

/// Returns the groups of nodes in which every node can reach every other.
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
