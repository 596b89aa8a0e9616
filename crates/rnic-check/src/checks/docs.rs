//! Checks that every Rust file and every public item is documented.
//!
//! rustc's `missing_docs` covers items exported from a library; this check also covers `pub` items of programs and of
//! private modules. Clippy's `missing_docs_in_private_items` does not distinguish these from others.

use proc_macro2::Delimiter;

use crate::finding::Finding;
use crate::rust_source::{RustSource, Token, TokenKind};
use crate::tree::{SourceFile, Tree};

const RULE: &str = "docs";

/// Reports files and public items without documentation.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings: Vec<Finding> = tree.files_ending(".rs").filter_map(undocumented_file).collect();
    for (file, source) in tree.production_rust() {
        findings.extend(undocumented_items(source).into_iter().map(|(line, name)| {
            let what = format!("public {name} has no documentation");
            Finding::new(&file.path, line, RULE, what, "say what it means, its unit and its errors")
        }));
    }
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

/// Returns items behind a `pub` whose attributes have no documentation, with their lines.
fn undocumented_items(source: &RustSource) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut is_documented = false;
    let mut rest = &source.tokens[..];
    while let Some((token, after)) = rest.split_first() {
        rest = after;
        if token.kind == TokenKind::Punct('#') {
            is_documented |= after.get(1).is_some_and(|word| word.is_ident("doc"));
            rest = &after[group_len(after)..];
            continue;
        }
        if token.is_ident("pub") && !is_documented && !source.is_test_line(token.line) {
            found.extend(public_item(after).map(|name| (token.line, name)));
        }
        is_documented = false;
    }
    found
}

/// Returns the number of tokens of the group with which `tokens` begin.
fn group_len(tokens: &[Token]) -> usize {
    let mut depth = 0_usize;
    let end = tokens.iter().position(|token| {
        match token.kind {
            TokenKind::Open(_) => depth += 1,
            TokenKind::Close(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0
    });
    end.map_or(tokens.len(), |end| end + 1)
}

/// Returns the item after `pub`; `None` for restricted visibility, `use`, a module in its own file and the field of a
/// tuple, which the documentation of the type describes.
fn public_item(after: &[Token]) -> Option<String> {
    let word = |at: usize| after.get(at).and_then(Token::ident).unwrap_or_default();
    let is_modifier = |at: usize| match word(at) {
        "async" | "unsafe" | "extern" => true,
        "const" => matches!(word(at + 1), "fn" | "async" | "unsafe" | "extern"),
        _ => matches!(after[at].kind, TokenKind::Literal(_)),
    };
    let start = (0..after.len()).find(|at| !is_modifier(*at))?;
    let [first, second, third] = after.get(start..start + 3)? else { return None };
    let kind = first.ident()?;
    match kind {
        "mod" if third.kind != TokenKind::Open(Delimiter::Brace) => None,
        "const" | "enum" | "fn" | "mod" | "static" | "struct" | "trait" | "type" | "union" => {
            Some(format!("{kind} {}", second.ident()?))
        }
        _ => (second.kind == TokenKind::Punct(':')).then(|| format!("field {kind}")),
    }
}
