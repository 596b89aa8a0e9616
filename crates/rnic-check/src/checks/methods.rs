//! Checks that types do not have too many methods.
//!
//! Counts the functions of a type's own `impl` blocks in production code, over all files of its crate. Trait
//! implementations are not counted, because the trait prescribes their functions.

use std::collections::BTreeMap;

use crate::finding::Finding;
use crate::library::{Library, ModulePath};
use crate::rust_source::{RustSource, is_test_only};
use crate::tree::Tree;

/// Maximum number of methods of a type.
pub const METHODS_MAX: usize = 60;

/// Reports types with too many methods.
pub fn check(tree: &Tree) -> Vec<Finding> {
    Library::all(tree).flat_map(|(_, library)| check_library(&library)).collect()
}

fn check_library(library: &Library<'_>) -> Vec<Finding> {
    let mut types: BTreeMap<ModulePath, usize> = BTreeMap::new();
    for (module, _, source) in library.modules() {
        for (name, methods) in impls(&source.syntax.items) {
            *types.entry(whole_path(library, module, source, name)).or_default() += methods;
        }
    }
    let large = types.into_iter().filter(|(_, methods)| *methods > METHODS_MAX);
    let findings = large.filter_map(|(item, methods)| {
        let path = library.file(library.module_of(&item))?;
        let what = format!("type {} has {methods} methods, the limit is {METHODS_MAX}", item.last()?);
        let instead = "give parts of its state, with the methods on them, types of their own";
        Some(Finding::new(path, 1, "methods", what, instead))
    });
    findings.collect()
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

/// Returns `true` if `item` is a function that also exists outside tests.
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
