//! Checks that every Rust file and every public item is documented, and that every crate inherits the workspace's
//! lints.
//!
//! rustc's `missing_docs` covers items exported from a library; this check also covers public items of programs and of
//! private modules.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::finding::Finding;
use crate::rust_source::item_attributes;
use crate::tree::manifest::Package;
use crate::tree::{SourceFile, Tree};

const RULE: &str = "docs";

/// Reports files and public items without documentation, and crates that do not inherit the lints.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings: Vec<Finding> = tree.files_ending(".rs").filter_map(undocumented_file).collect();
    for (file, source) in tree.production_rust() {
        let mut items = PublicItems::default();
        items.visit_file(&source.syntax);
        items.undocumented.retain(|(line, _)| !source.is_test_line(*line));
        findings.extend(items.undocumented.into_iter().map(|(line, name)| {
            let what = format!("public {name} has no documentation");
            Finding::new(&file.path, line, RULE, what, "say what it means, its unit and its errors")
        }));
    }
    findings.extend(tree.packages().iter().filter_map(uninherited_lints));
    findings
}

fn undocumented_file(file: &SourceFile) -> Option<Finding> {
    let mut lines = file.text()?.lines().filter(|line| !line.is_empty() && !line.starts_with("#!["));
    let is_documented = lines.next().is_some_and(|line| line.starts_with("//! "));
    (!is_documented).then(|| {
        let what = "the file does not say what it is";
        Finding::new(&file.path, 1, RULE, what, "begin it with a `//!` line; an algorithm names its source there")
    })
}

fn uninherited_lints(package: &Package) -> Option<Finding> {
    let inherits = package.manifest.get("lints").and_then(|lints| lints.get("workspace")?.as_bool());
    let is_crate = crate::crates::is_crate_dir(&package.dir);
    (is_crate && inherits != Some(true)).then(|| {
        let what = "the crate does not inherit the workspace's lints";
        Finding::new(&package.manifest_path, 1, RULE, what, "add `[lints]` with `workspace = true`")
    })
}

/// Collects public items without a doc comment.
#[derive(Default)]
struct PublicItems {
    undocumented: Vec<(usize, String)>,
}

impl PublicItems {
    fn take(&mut self, visibility: &syn::Visibility, attributes: &[syn::Attribute], line: usize, name: String) {
        let is_public = matches!(visibility, syn::Visibility::Public(_));
        if is_public && !is_documented(attributes) {
            self.undocumented.push((line, name));
        }
    }

    fn take_members(&mut self, fields: &syn::Fields) {
        for field in fields.iter() {
            // Fields of a tuple are described by the documentation of the type.
            if let Some(name) = &field.ident {
                self.take(&field.vis, &field.attrs, name.span().start().line, format!("field {name}"));
            }
        }
    }
}

fn is_documented(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident("doc"))
}

impl<'ast> Visit<'ast> for PublicItems {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let named = match item {
            syn::Item::Const(item) => Some((&item.vis, &item.ident, "const")),
            syn::Item::Enum(item) => Some((&item.vis, &item.ident, "enum")),
            syn::Item::Fn(item) => Some((&item.vis, &item.sig.ident, "fn")),
            // A module in its own file is documented there.
            syn::Item::Mod(item) if item.content.is_some() => Some((&item.vis, &item.ident, "mod")),
            syn::Item::Static(item) => Some((&item.vis, &item.ident, "static")),
            syn::Item::Struct(item) => Some((&item.vis, &item.ident, "struct")),
            syn::Item::Trait(item) => Some((&item.vis, &item.ident, "trait")),
            syn::Item::Type(item) => Some((&item.vis, &item.ident, "type")),
            syn::Item::Union(item) => Some((&item.vis, &item.ident, "union")),
            _ => None,
        };
        if let Some((visibility, name, kind)) = named {
            self.take(visibility, item_attributes(item), name.span().start().line, format!("{kind} {name}"));
        }
        visit::visit_item(self, item);
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.take_members(&item.fields);
        visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        for variant in &item.variants {
            let line = variant.ident.span().start().line;
            self.take(&item.vis, &variant.attrs, line, format!("variant {}::{}", item.ident, variant.ident));
        }
        visit::visit_item_enum(self, item);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        for member in &item.items {
            if let syn::TraitItem::Fn(function) = member {
                let name = &function.sig.ident;
                self.take(&item.vis, &function.attrs, member.span().start().line, format!("fn {}::{name}", item.ident));
            }
        }
        visit::visit_item_trait(self, item);
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        match item {
            syn::ImplItem::Fn(function) => {
                let name = &function.sig.ident;
                self.take(&function.vis, &function.attrs, name.span().start().line, format!("fn {name}"));
            }
            syn::ImplItem::Const(constant) => {
                let name = &constant.ident;
                self.take(&constant.vis, &constant.attrs, name.span().start().line, format!("const {name}"));
            }
            _ => {}
        }
        visit::visit_impl_item(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(lib: &str, lints: &str) -> Vec<String> {
        let manifest = format!("[package]\nname = \"rnic-x\"\n{lints}");
        let tree = Tree::invent([("crates/rnic-x/Cargo.toml", manifest), ("crates/rnic-x/src/lib.rs", lib.to_owned())]);
        check(&tree).into_iter().map(|found| format!("{}: {}", found.line, found.what)).collect()
    }

    const LINTS: &str = "[lints]\nworkspace = true\n";

    #[test]
    fn a_file_begins_with_what_it_is() {
        assert!(findings("#![no_main]\n//! About.\n", LINTS).is_empty());
        assert_eq!(findings("// About.\nfn f() {}\n", LINTS), ["1: the file does not say what it is"]);
        assert_eq!(findings("", LINTS).len(), 1);
    }

    #[test]
    fn every_kind_of_public_item_is_seen() {
        for code in [
            "pub struct A;",
            "pub enum A {}",
            "pub trait A {}",
            "pub const A: u8 = 1;",
            "pub static A: u8 = 1;",
            "pub type A = u8;",
            "pub fn a() {}",
            "pub mod a {}",
            "/// Doc.\npub struct A { pub a: u8 }",
            "/// Doc.\npub enum A { B }",
            "/// Doc.\npub trait A { fn a(); }",
            "impl A { pub fn a() {} }",
            "impl A { pub const A: u8 = 1; }",
            "mod private { pub fn a() {} }",
        ] {
            assert_eq!(findings(&format!("//! About.\n{code}\n"), LINTS).len(), 1, "{code}");
        }
    }

    #[test]
    fn what_is_not_public_or_is_a_test_is_left_alone() {
        let code = "//! About.\nfn f() {}\npub(crate) struct A { b: u8 }\nimpl B for A { fn g() {} }\nenum C { D }\n\
                    pub mod file;\npub use A as E;\n/// Doc.\npub struct F(pub u8);\n\
                    #[cfg(test)]\nmod tests { pub fn h() {} }\n";
        assert_eq!(findings(code, LINTS), Vec::<String>::new());
    }

    #[test]
    fn lints_are_inherited() {
        assert_eq!(findings("//! About.\n", ""), ["1: the crate does not inherit the workspace's lints"]);
        assert_eq!(findings("//! About.\n", "[lints]\nworkspace = false\n").len(), 1);
    }
}
