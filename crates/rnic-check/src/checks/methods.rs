//! Checks that types do not have too many methods, unless they are on the list of exceptions.
//!
//! Counts the functions of a type's own `impl` blocks in production code, over all files of its crate. Trait
//! implementations are not counted, because the trait prescribes their functions.

use std::collections::BTreeMap;

use crate::finding::Finding;
use crate::library::{Library, ModulePath};
use crate::ratchet::{Counted, Limit, judge};
use crate::rust_source::{RustSource, is_test_only};
use crate::tree::Tree;

/// Limit on the methods of a type.
pub const TYPE: Limit = Limit {
    rule: "methods",
    table: "type",
    unit: "methods",
    most: 60,
    remedy: "give parts of its state, with the methods on them, types of their own",
};

/// Reports types with too many methods.
pub fn check(tree: &Tree) -> Vec<Finding> {
    judge(tree, TYPE, &Library::all(tree).flat_map(|(_, library)| count(&library)).collect::<Vec<Counted>>())
}

fn count(library: &Library<'_>) -> Vec<Counted> {
    let mut types: BTreeMap<ModulePath, usize> = BTreeMap::new();
    for (module, _, source) in library.modules() {
        for (name, methods) in impls(&source.syntax.items) {
            *types.entry(whole_path(library, module, source, name)).or_default() += methods;
        }
    }
    let counted = types.into_iter().filter_map(|(item, amount)| {
        let path = library.file(library.module_of(&item))?.to_owned();
        let name = item.last()?.clone();
        Some(Counted { path, line: 1, subject: format!("type {name}"), name: Some(name), amount })
    });
    counted.collect()
}

/// Returns the types of `impl` blocks without a trait, and the number of functions in each block.
fn impls(items: &[syn::Item]) -> Vec<(Vec<String>, usize)> {
    let mut found = Vec::new();
    for item in items {
        match item {
            syn::Item::Impl(block) if block.trait_.is_none() && !block.attrs.iter().any(is_test_only) => {
                if let syn::Type::Path(path) = &*block.self_ty {
                    let name = path.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
                    found.push((name, block.items.iter().filter(|item| is_method(item)).count()));
                }
            }
            syn::Item::Mod(module) if !module.attrs.iter().any(is_test_only) => {
                found.extend(module.content.iter().flat_map(|(_, items)| impls(items)));
            }
            _ => {}
        }
    }
    found
}

/// Returns whether `item` is a function that is not only for tests.
fn is_method(item: &syn::ImplItem) -> bool {
    match item {
        syn::ImplItem::Fn(function) => !function.attrs.iter().any(is_test_only),
        _ => false,
    }
}

/// Returns the type's path from the root of its crate.
fn whole_path(library: &Library<'_>, module: &[String], source: &RustSource, name: Vec<String>) -> ModulePath {
    let imported = source.import_of(&name[0]).map(|import| [&import.path[..], &name[1..]].concat());
    let item = library.resolve(module, imported.as_ref().unwrap_or(&name));
    item.unwrap_or_else(|| [module, &name[..]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ratchet::RATCHET;

    fn findings(ratchet: &str) -> Vec<String> {
        let methods = |name: &str, count: usize| {
            let functions: String = (0..count).map(|index| format!("fn {name}{index}(&self) {{}}\n")).collect();
            format!("impl Big {{\n{functions}}}\n")
        };
        let root = format!("mod big;\npub use big::Big;\npub struct Other;\n{}", methods("a", 20));
        let big = format!(
            "mod more;\npub struct Big;\n{}impl Drop for Big {{ fn drop(&mut self) {{}} }}\n",
            methods("b", 20)
        );
        let more = format!("use crate::Big;\n{}#[cfg(test)]\n{}", methods("c", 21), methods("d", 9));
        let tree = Tree::invent([
            ("a/Cargo.toml", "[package]\nname = \"a\"\n"),
            ("a/src/lib.rs", &root),
            ("a/src/big.rs", &big),
            ("a/src/big/more.rs", &more),
            (RATCHET, ratchet),
        ]);
        check(&tree).into_iter().map(|found| format!("{}: {}", found.path, found.what)).collect()
    }

    #[test]
    fn methods_of_a_type_are_counted_over_its_files() {
        assert_eq!(findings(""), ["a/src/big.rs: type Big has 61 methods, the limit is 60"]);
        let allow = |count: usize| {
            format!("[[type]]\npath = \"a/src/big.rs\"\nname = \"Big\"\nmethods = {count}\nreason = \"for now\"\n")
        };
        assert!(findings(&allow(61)).is_empty());
        assert_eq!(findings(&allow(62)).len(), 1, "it has shrunk");
    }
}
