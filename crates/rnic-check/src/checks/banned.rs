//! Checks that no clock, entropy, socket, thread, float or hash order is used where [`crate::bans`] forbids it.
//!
//! Works on resolved names, not on their spelling: imports, renamed imports, globs and paths inside macro calls are
//! resolved within the file. Test code is left to clippy. A banned import is one finding, however often it is used.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use syn::visit::{self, Visit};

use crate::bans::{BANS, Ban, What};
use crate::finding::Finding;
use crate::rust_source::{PathUse, RustSource, TokenKind, lines_of};
use crate::tree::{SourceFile, Tree};

const RULE: &str = "banned";
/// Minimum number of characters of the reason behind a marker.
const REASON_CHARS_MIN: usize = 10;

/// Reports every use of a banned item, and every marker that lifts no ban.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, source) in tree.production_rust() {
        let Some(package) = tree.package_of(&file.path) else { continue };
        let holds = |ban: &&Ban| ban.scope.covers(&package.name) && ban.but.iter().all(|but| but.path != file.path);
        for ban in BANS.iter().filter(holds) {
            check_ban(file, source, ban, &mut findings);
        }
    }
    findings
}

fn check_ban(file: &SourceFile, source: &RustSource, ban: &Ban, findings: &mut Vec<Finding>) {
    let mut seen: BTreeSet<(usize, String)> = match ban.what {
        What::Paths(paths) => banned_paths(source, paths),
        What::Macros(names) => banned_macros(source, names),
        What::Floats => floats(source),
        What::StaticMut => static_mut(source),
    };
    seen.retain(|(line, _)| !source.is_test_line(*line));
    let mut last_line = 0;
    let mut lifting = BTreeSet::new();
    for (line, what) in seen {
        if let Some(marker) = marker_for(source, ban, line) {
            lifting.insert(marker);
        } else if line != last_line {
            let what = format!("{what}: {}", ban.because);
            findings.push(Finding::new(&file.path, line, RULE, what, advice(ban)));
        }
        last_line = line;
    }
    for line in (1..=source.line_count()).filter(|line| !source.is_test_line(*line)) {
        if ban.can_be_lifted && is_marker(ban, source.line(line)) && !lifting.contains(&line) {
            let what = format!("the marker `// {}:` lifts nothing here", ban.id);
            findings.push(Finding::new(&file.path, line, RULE, what, "remove it"));
        }
    }
}

fn advice(ban: &Ban) -> String {
    let lift =
        if ban.can_be_lifted { format!(", or lift it with `// {}: <reason>` above", ban.id) } else { String::new() };
    format!("{}{lift}", ban.instead)
}

/// Returns the line of the marker that lifts `ban` on `line`: at its end, or in the comment lines directly above.
fn marker_for(source: &RustSource, ban: &Ban, line: usize) -> Option<usize> {
    let is_comment = |line: &usize| source.line(*line).trim_start().starts_with("//");
    let above = (1..line).rev().take_while(is_comment);
    let found = core::iter::once(line).chain(above).find(|line| is_marker(ban, source.line(*line)))?;
    ban.can_be_lifted.then_some(found)
}

fn is_marker(ban: &Ban, text: &str) -> bool {
    let is_doc = ["///", "//!"].iter().any(|doc| text.trim_start().starts_with(doc));
    let marker = format!("// {}: ", ban.id);
    !is_doc && text.split_once(&marker).is_some_and(|(_, reason)| reason.trim().len() >= REASON_CHARS_MIN)
}

fn banned_paths(source: &RustSource, banned: &[&str]) -> BTreeSet<(usize, String)> {
    let is_banned = |path: &[String]| is_under(&spelled(path), banned);
    let imports = source.imports.iter().filter_map(|import| {
        let path = spelled(&import.path);
        let hides = |name: &&str| name.starts_with(&format!("{path}::"));
        if is_under(&path, banned) {
            Some((import.line, format!("`{path}`")))
        } else if import.alias == "*" && banned.iter().any(hides) {
            Some((import.line, format!("`{path}::*`, which brings in what is banned")))
        } else {
            None
        }
    });
    let uses = source.paths().into_iter().filter_map(|path| {
        let is_reported_at_import =
            !path.is_absolute && source.import_of(&path.segments[0]).is_some_and(|import| is_banned(&import.path));
        let resolved = source.resolve(&path);
        (is_banned(&resolved) && !is_reported_at_import).then(|| (path.line, format!("`{}`", spelled(&resolved))))
    });
    imports.chain(uses).collect()
}

/// Returns a path as text, with `core` and `alloc` replaced by `std`.
fn spelled(path: &[String]) -> String {
    let text = path.join("::");
    match text.split_once("::") {
        Some(("core" | "alloc", rest)) => format!("std::{rest}"),
        _ => text,
    }
}

fn is_under(path: &str, banned: &[&str]) -> bool {
    banned.iter().any(|name| path.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with("::")))
}

fn banned_macros(source: &RustSource, names: &[&str]) -> BTreeSet<(usize, String)> {
    let is_banned = |path: &PathUse| {
        let resolved = source.resolve(path);
        let is_std = resolved.len() == 1 || matches!(resolved[0].as_str(), "std" | "core");
        path.is_macro_call && is_std && resolved.last().is_some_and(|name| names.contains(&name.as_str()))
    };
    let calls = source.paths().into_iter().filter(|path| is_banned(path));
    calls.map(|path| (path.line, format!("`{}!`", path.segments.join("::")))).collect()
}

fn static_mut(source: &RustSource) -> BTreeSet<(usize, String)> {
    let pairs = source.tokens.windows(2).filter(|pair| pair[0].is_ident("static") && pair[1].is_ident("mut"));
    pairs.map(|pair| (pair[0].line, "`static mut`".to_owned())).collect()
}

fn floats(source: &RustSource) -> BTreeSet<(usize, String)> {
    let mut printing = PrintingFunctions::default();
    printing.visit_file(&source.syntax);
    let mut found = BTreeSet::new();
    let mut is_after_dot = false;
    for token in &source.tokens {
        let text = match &token.kind {
            TokenKind::Ident(name) if name == "f32" || name == "f64" => Some(name),
            // The token of `0.1` in `pair.0.1` is a literal after a dot, not a float.
            TokenKind::Literal(text) if !is_after_dot && is_float(text) => Some(text),
            _ => None,
        };
        is_after_dot = token.kind == TokenKind::Punct('.');
        if let Some(text) = text.filter(|_| !printing.lines.iter().any(|range| range.contains(&token.line))) {
            found.insert((token.line, format!("floating point (`{text}`)")));
        }
    }
    found
}

fn is_float(literal: &str) -> bool {
    matches!(syn::parse_str(literal), Ok(syn::Lit::Float(_)))
        || literal.ends_with("f64") && matches!(syn::parse_str(literal), Ok(syn::Lit::Int(_)))
}

/// Functions that may compute in floating point because their results are only printed for people: those called
/// `..._f64`, and the `fmt` of the formatting traits.
#[derive(Default)]
struct PrintingFunctions {
    lines: Vec<RangeInclusive<usize>>,
    is_in_fmt_impl: bool,
}

const FORMATTING_TRAITS: [&str; 4] = ["Debug", "Display", "LowerExp", "UpperExp"];

impl<'ast> Visit<'ast> for PrintingFunctions {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.take(&function.sig, syn::spanned::Spanned::span(function));
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.take(&function.sig, syn::spanned::Spanned::span(function));
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        self.take(&function.sig, syn::spanned::Spanned::span(function));
        visit::visit_trait_item_fn(self, function);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let name = item.trait_.as_ref().and_then(|(path, _)| path.segments.last());
        let outer = self.is_in_fmt_impl;
        self.is_in_fmt_impl = name.is_some_and(|name| FORMATTING_TRAITS.iter().any(|known| name.ident == known));
        visit::visit_item_impl(self, item);
        self.is_in_fmt_impl = outer;
    }
}

impl PrintingFunctions {
    fn take(&mut self, signature: &syn::Signature, span: proc_macro2::Span) {
        let name = signature.ident.to_string();
        if name.ends_with("_f64") || self.is_in_fmt_impl && name == "fmt" {
            self.lines.push(lines_of(span));
        }
    }
}

#[cfg(test)]
#[path = "banned/tests.rs"]
mod tests;
