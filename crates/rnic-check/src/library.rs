//! The modules of one crate, and the resolution of paths within it.
//!
//! The resolution is approximate: glob imports are not followed, and an inline module counts as part of its file.

use std::collections::BTreeMap;

use crate::rust_source::RustSource;
use crate::tree::Tree;
use crate::tree::manifest::Package;

/// Path of a module from the root of its crate; the root's path is empty.
pub type ModulePath = Vec<String>;

/// The production modules of a crate's library, or of its program when it has no library.
pub struct Library<'tree> {
    modules: BTreeMap<ModulePath, (&'tree str, &'tree RustSource)>,
}

impl<'tree> Library<'tree> {
    /// Returns each package that has sources, with its library.
    pub fn all(tree: &'tree Tree) -> impl Iterator<Item = (&'tree Package, Self)> {
        let mut libraries: BTreeMap<&str, Self> = BTreeMap::new();
        for (file, source) in tree.production_rust() {
            let Some(package) = tree.package_of(&file.path) else { continue };
            let root = if tree.file(&package.path("src/lib.rs")).is_some() { "lib" } else { "main" };
            let Some(module) = module_of_file(&file.path, &package.path("src/"), root) else { continue };
            let library = libraries.entry(&package.dir).or_insert_with(|| Self { modules: BTreeMap::new() });
            library.modules.insert(module, (&file.path, source));
        }
        tree.packages().iter().filter_map(move |package| Some((package, libraries.remove(package.dir.as_str())?)))
    }

    /// Returns every module with its file and source, in order of path.
    pub fn modules(&self) -> impl Iterator<Item = (&ModulePath, &'tree str, &'tree RustSource)> {
        self.modules.iter().map(|(module, (path, source))| (module, *path, *source))
    }

    /// Returns the file of `module`.
    pub fn file(&self, module: &[String]) -> Option<&'tree str> {
        self.modules.get(module).map(|(path, _)| *path)
    }

    /// Returns the path, from the root of the crate, of the item that `path` refers to in `module`. Re-exported names
    /// are followed to their source. Returns `None` when the path refers to an item outside the crate, or to a local
    /// item.
    pub fn resolve(&self, module: &[String], path: &[String]) -> Option<ModulePath> {
        self.follow(module, path, HOPS_MAX)
    }

    fn follow(&self, module: &[String], path: &[String], hops: u32) -> Option<ModulePath> {
        let mut current = module.to_vec();
        let mut rest = path;
        match rest.first()?.as_str() {
            "crate" => (current, rest) = (Vec::new(), &rest[1..]),
            "self" => rest = &rest[1..],
            "super" => {}
            child if self.modules.contains_key(&child_path(&current, child)) => {}
            _ => return None,
        }
        while let Some(name) = rest.first() {
            if name == "super" {
                current.pop()?;
            } else if self.modules.contains_key(&child_path(&current, name)) {
                current.push(name.clone());
            } else {
                break;
            }
            rest = &rest[1..];
        }
        let re_export =
            rest.first().and_then(|name| self.modules.get(&current)?.1.import_of(name)).filter(|_| hops > 0);
        match re_export {
            Some(import) => {
                let path: Vec<String> = import.path.iter().chain(&rest[1..]).cloned().collect();
                self.follow(&current, &path, hops - 1)
            }
            None => Some(current.into_iter().chain(rest.iter().cloned()).collect()),
        }
    }

    /// Returns the longest prefix of `item`, a path from the root of the crate, that is a module.
    pub fn module_of<'path>(&self, item: &'path [String]) -> &'path [String] {
        let module_length = (0..=item.len()).rev().find(|length| self.modules.contains_key(&item[..*length]));
        &item[..module_length.unwrap_or(0)]
    }
}

fn child_path(module: &[String], name: &str) -> ModulePath {
    module.iter().cloned().chain([name.to_owned()]).collect()
}

/// Returns the module in the file at `path`, in the crate whose sources are in `folder`.
fn module_of_file(path: &str, folder: &str, root: &str) -> Option<ModulePath> {
    let inside = path.strip_prefix(folder)?.strip_suffix(".rs")?;
    if inside == root {
        return Some(Vec::new());
    }
    if inside == "main" || inside.starts_with("bin/") {
        return None;
    }
    Some(inside.trim_end_matches("/mod").split('/').map(str::to_owned).collect())
}

/// Maximum number of re-exports that are followed for one name.
const HOPS_MAX: u32 = 8;
