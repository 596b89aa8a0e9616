//! Checks that the crates whose arithmetic decides a run use no floating point, because its results differ between
//! machines and hardware has none.
//!
//! Functions that compute for people alone, whose results are printed, are called `fmt` or `..._f64`. Test code may use
//! floating point. Clippy has no lint for this: `float_arithmetic` finds neither comparisons nor functions such as
//! `sqrt`.

use std::collections::BTreeSet;

use crate::finding::Finding;
use crate::rust_source::{RustSource, TokenKind};
use crate::tree::Tree;

/// Packages in which the rule applies.
const INTEGER_CRATES: [&str; 9] = [
    "rnic-base",
    "rnic-program",
    "rnic-stream",
    "rnic-tonic",
    "rnic-policy",
    "rnic-engine",
    "rnic-transports",
    "rnic-fae",
    "rnic-scr",
];

/// Reports every line with a floating-point type or literal.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, source) in tree.production_rust() {
        if tree.package_of(&file.path).is_some_and(|package| INTEGER_CRATES.contains(&package.name.as_str())) {
            let instead = "compute in integers; for printing use a function called `..._f64` or the body of a Display";
            findings.extend(floats(source).into_iter().map(|line| {
                let what = "floating point: its results differ between machines and hardware has none";
                Finding::new(&file.path, line, "floats", what, instead)
            }));
        }
    }
    findings
}

fn floats(source: &RustSource) -> BTreeSet<usize> {
    let is_printing = |name: &str| name == "fmt" || name.ends_with("_f64");
    let printing: Vec<_> = source.functions().into_iter().filter(|function| is_printing(function.name)).collect();
    let mut found = BTreeSet::new();
    let mut is_after_dot = false;
    for token in &source.tokens {
        let is_float = match &token.kind {
            TokenKind::Ident(name) => name == "f32" || name == "f64",
            // The token of `0.1` in `pair.0.1` is a literal after a dot, not a float.
            TokenKind::Literal(text) => !is_after_dot && is_float(text),
            _ => false,
        };
        is_after_dot = token.kind == TokenKind::Punct('.');
        if is_float
            && !source.is_test_line(token.line)
            && !printing.iter().any(|function| function.lines.contains(&token.line))
        {
            found.insert(token.line);
        }
    }
    found
}

fn is_float(literal: &str) -> bool {
    matches!(syn::parse_str(literal), Ok(syn::Lit::Float(_)))
        || literal.ends_with("f64") && matches!(syn::parse_str(literal), Ok(syn::Lit::Int(_)))
}
