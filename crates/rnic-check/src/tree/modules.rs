//! Determines the Rust files that a build reaches, and whether only as tests.
//!
//! Follows Cargo's rules for crate roots and the language's rules for `mod`, `#[path]` and `include!`. Conditions other
//! than `cfg(test)` are assumed to be true. A macro call among the items may declare modules, as a registry does: every
//! name in it counts as declared when a file of that name exists in the right directory. Not followed: `mod` in
//! function bodies.

use std::collections::BTreeMap;

use proc_macro2::{TokenStream, TokenTree};

use super::Tree;
use super::manifest::Package;
use crate::rust_source::{RustSource, TokenKind, is_test_only};

/// Use of a file in builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// Used only for tests, benches or examples.
    Test,
    /// Part of the product (a library, a program or a build script).
    Production,
}

/// Returns every Rust file that a crate root reaches.
pub fn reach(tree: &Tree) -> BTreeMap<String, Reach> {
    let mut walk = Walk { tree, found: BTreeMap::new() };
    for package in tree.packages() {
        for (root, reach) in roots(tree, package) {
            let dir = parent(&root).to_owned();
            walk.enter(&root, &dir, reach);
        }
    }
    walk.found
}

/// Returns the crate roots of a package: those that Cargo finds by itself and those that its manifest names.
fn roots(tree: &Tree, package: &Package) -> Vec<(String, Reach)> {
    let mut roots: Vec<(String, Reach)> =
        ["src/lib.rs", "src/main.rs", "build.rs"].map(|path| (package.path(path), Reach::Production)).into();
    let folders = [
        ("src/bin/", Reach::Production),
        ("tests/", Reach::Test),
        ("benches/", Reach::Test),
        ("examples/", Reach::Test),
    ];
    for (folder, reach) in folders {
        let folder = package.path(folder);
        roots.extend(tree.files_ending(".rs").filter_map(|file| {
            let inside = file.path.strip_prefix(&folder)?;
            let is_root = !inside.contains('/') || inside.ends_with("/main.rs") && inside.matches('/').count() == 1;
            is_root.then(|| (file.path.clone(), reach))
        }));
    }
    let sections = [
        ("lib", Reach::Production),
        ("bin", Reach::Production),
        ("test", Reach::Test),
        ("bench", Reach::Test),
        ("example", Reach::Test),
    ];
    for (section, reach) in sections {
        let targets: Vec<&toml::Value> = match package.manifest.get(section) {
            Some(toml::Value::Array(targets)) => targets.iter().collect(),
            Some(target) => vec![target],
            None => Vec::new(),
        };
        let paths = targets.into_iter().filter_map(|target| target.get("path")?.as_str());
        roots.extend(paths.map(|path| (join(&package.dir, path), reach)));
    }
    let build = package.manifest.get("package").and_then(|table| table.get("build")?.as_str());
    roots.extend(build.map(|path| (join(&package.dir, path), Reach::Production)));
    roots
}

struct Walk<'tree> {
    tree: &'tree Tree,
    found: BTreeMap<String, Reach>,
}

impl Walk<'_> {
    /// Marks `path` and follows its declarations; its child modules are in `child_dir`.
    fn enter(&mut self, path: &str, child_dir: &str, reach: Reach) {
        let Some(file) = self.tree.file(path) else { return };
        if self.found.get(path).is_some_and(|known| *known >= reach) {
            return;
        }
        self.found.insert(path.to_owned(), reach);
        let Some(Ok(source)) = file.rust() else { return };
        self.follow_items(&source.syntax.items, parent(path), child_dir, reach);
        for included in included_files(source) {
            let included = join(parent(path), &included);
            let dir = parent(&included).to_owned();
            self.enter(&included, &dir, reach);
        }
    }

    /// Follows the declarations of `items`: `#[path]` is relative to `path_dir`, and files of child modules are in
    /// `child_dir`.
    fn follow_items(&mut self, items: &[syn::Item], path_dir: &str, child_dir: &str, reach: Reach) {
        for item in items {
            if let syn::Item::Macro(call) = item
                && call.ident.is_none()
            {
                let names = names_in(call.mac.tokens.clone());
                names.iter().for_each(|name| self.enter_module(child_dir, name, reach));
            }
            let syn::Item::Mod(module) = item else { continue };
            let reach = if module.attrs.iter().any(is_test_only) { Reach::Test } else { reach };
            let name = module.ident.to_string();
            let inside = join(child_dir, &name);
            if let Some((_, items)) = &module.content {
                self.follow_items(items, &inside, &inside, reach);
            } else if let Some(path) = path_attribute(&module.attrs) {
                let path = join(path_dir, &path);
                let dir = parent(&path).to_owned();
                self.enter(&path, &dir, reach);
            } else {
                self.enter_module(child_dir, &name, reach);
            }
        }
    }

    fn enter_module(&mut self, child_dir: &str, name: &str, reach: Reach) {
        let inside = join(child_dir, name);
        self.enter(&format!("{inside}.rs"), &inside, reach);
        self.enter(&format!("{inside}/mod.rs"), &inside, reach);
    }
}

fn names_in(tokens: TokenStream) -> Vec<String> {
    let mut names = Vec::new();
    for tree in tokens {
        match tree {
            TokenTree::Ident(name) => names.push(name.to_string()),
            TokenTree::Group(group) => names.extend(names_in(group.stream())),
            _ => {}
        }
    }
    names
}

fn path_attribute(attributes: &[syn::Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        syn::Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. }) => Some(path.value()),
            _ => None,
        },
        _ => None,
    })
}

fn included_files(source: &RustSource) -> Vec<String> {
    let literal = |window: &[crate::rust_source::Token]| match (&window[1].kind, &window[2].kind, &window[3].kind) {
        (TokenKind::Punct('!'), TokenKind::Open(_), TokenKind::Literal(text)) if window[0].is_ident("include") => {
            syn::parse_str::<syn::LitStr>(text).ok().map(|text| text.value())
        }
        _ => None,
    };
    source.tokens.windows(4).filter_map(literal).collect()
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

/// Returns `path` relative to `dir`, with `.` and `..` resolved.
pub fn join(dir: &str, path: &str) -> String {
    let mut parts: Vec<&str> = dir.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<(String, Reach)> {
        let manifest = ("a/Cargo.toml", "[package]\nname = \"a\"\n[[bin]]\nname = \"x\"\npath = \"other/x.rs\"\n");
        let tree = Tree::invent(files.iter().copied().chain([manifest]));
        tree.reach().iter().map(|(path, reach)| (path.clone(), *reach)).collect()
    }

    fn production(paths: &[&str]) -> Vec<(String, Reach)> {
        paths.iter().map(|path| ((*path).to_owned(), Reach::Production)).collect()
    }

    #[test]
    fn modules_are_followed_by_the_rules_of_the_language() {
        let files = [
            ("a/src/lib.rs", "mod b; mod in_line { mod d; } #[path = \"odd/e.rs\"] mod e;"),
            ("a/src/b.rs", "mod c;"),
            ("a/src/b/c.rs", ""),
            ("a/src/in_line/d.rs", ""),
            ("a/src/odd/e.rs", "mod f; include!(\"g.rs\");"),
            ("a/src/odd/f/mod.rs", ""),
            ("a/src/odd/g.rs", ""),
            ("a/src/dead.rs", ""),
            ("a/src/c.rs", ""),
        ];
        let expected = ["b.rs", "b/c.rs", "in_line/d.rs", "lib.rs", "odd/e.rs", "odd/f/mod.rs", "odd/g.rs"]
            .map(|path| format!("a/src/{path}"));
        assert_eq!(found(&files), production(&expected.each_ref().map(String::as_str)));
    }

    #[test]
    fn a_registry_declares_modules_by_name() {
        let files = [
            (
                "a/src/lib.rs",
                "macro_rules! registry { ($($m:ident)*) => { $(mod $m;)* } } registry! { one { two::Two } }",
            ),
            ("a/src/one.rs", ""),
            ("a/src/two/mod.rs", ""),
            ("a/src/forgotten.rs", ""),
        ];
        assert_eq!(found(&files), production(&["a/src/lib.rs", "a/src/one.rs", "a/src/two/mod.rs"]));
    }

    #[test]
    fn named_and_discovered_roots_count() {
        let files = [
            ("a/other/x.rs", ""),
            ("a/src/bin/y.rs", ""),
            ("a/src/bin/z/main.rs", ""),
            ("a/tests/t.rs", "mod common;"),
            ("a/tests/common/mod.rs", ""),
            ("a/tests/common/dead.rs", ""),
        ];
        let mut expected = production(&["a/other/x.rs", "a/src/bin/y.rs", "a/src/bin/z/main.rs"]);
        expected.extend(["a/tests/common/mod.rs", "a/tests/t.rs"].map(|path| (path.to_owned(), Reach::Test)));
        assert_eq!(found(&files), expected);
    }

    #[test]
    fn a_file_under_cfg_test_is_a_test_unless_something_else_needs_it() {
        let files = [
            ("a/src/lib.rs", "#[cfg(test)] mod tests; #[cfg(test)] mod model; mod user;"),
            ("a/src/tests.rs", ""),
            ("a/src/model.rs", ""),
            ("a/src/user.rs", "#[path = \"model.rs\"] mod model;"),
        ];
        let mut expected = production(&["a/src/lib.rs", "a/src/model.rs", "a/src/user.rs"]);
        expected.insert(2, ("a/src/tests.rs".to_owned(), Reach::Test));
        assert_eq!(found(&files), expected);
    }
}
