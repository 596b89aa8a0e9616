//! Checks that unsafe code is only in crates for which the table allows it, and that each use states why it is sound.
//!
//! Tests and benches may use it too (a counting allocator is the only way to show that nothing is allocated), with the
//! same comment: `// SAFETY: ...` above the block, impl or function, or a `# Safety` section in its docs.

use proc_macro2::Delimiter;

use crate::crates::{CRATES, rule};
use crate::finding::Finding;
use crate::rust_source::{RustSource, Token, TokenKind};
use crate::tree::Tree;

const RULE: &str = "unsafe_code";

/// Reports unsafe code in crates that may not contain it, and uses without a reason.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let production: Vec<&str> = tree.production_rust().map(|(file, _)| file.path.as_str()).collect();
    let mut findings = Vec::new();
    for (file, source) in tree.rust() {
        let rule = tree.package_of(&file.path).and_then(|package| rule(&package.name));
        let is_known_place = rule.is_some_and(|rule| rule.unsafe_because.is_some());
        for (line, kind) in unsafe_places(source) {
            let is_production = production.contains(&file.path.as_str()) && !source.is_test_line(line);
            if is_production && !is_known_place {
                let what = format!("unsafe {kind} in a crate that may not hold any");
                let instead = format!("do it safely, or in {}", crates_with_unsafe());
                findings.push(Finding::new(&file.path, line, RULE, what, instead));
            }
            if kind.needs_reason() && !has_reason(source, line) {
                let what = format!("unsafe {kind} without its reason");
                findings.push(Finding::new(
                    &file.path,
                    line,
                    RULE,
                    what,
                    "write `// SAFETY: why this is sound` above it",
                ));
            }
        }
    }
    findings
}

fn crates_with_unsafe() -> String {
    let names: Vec<&str> = CRATES.iter().filter(|rule| rule.unsafe_because.is_some()).map(|rule| rule.name).collect();
    names.join(" or ")
}

/// Type of the unsafe construct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnsafeKind {
    Block,
    Function,
    Impl,
    Trait,
    Extern,
    Attribute,
}

impl UnsafeKind {
    fn needs_reason(self) -> bool {
        // An unsafe attribute (`no_mangle`) is one self-explanatory line.
        self != Self::Attribute
    }
}

impl core::fmt::Display for UnsafeKind {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Block => "block",
            Self::Function => "fn",
            Self::Impl => "impl",
            Self::Trait => "trait",
            Self::Extern => "extern block",
            Self::Attribute => "attribute",
        })
    }
}

fn unsafe_places(source: &RustSource) -> Vec<(usize, UnsafeKind)> {
    let places = source.tokens.iter().enumerate().filter(|(_, token)| token.is_ident("unsafe"));
    places.filter_map(|(index, token)| Some((token.line, kind_of(&source.tokens[index + 1..])?))).collect()
}

/// Returns the construct that the tokens after `unsafe` form; `None` for the type of a function pointer and for a
/// safe-item marker.
fn kind_of(after: &[Token]) -> Option<UnsafeKind> {
    let mut rest = after;
    let mut is_extern = false;
    loop {
        let (first, tail) = rest.split_first()?;
        match &first.kind {
            TokenKind::Open(Delimiter::Brace) => {
                return Some(if is_extern { UnsafeKind::Extern } else { UnsafeKind::Block });
            }
            TokenKind::Open(Delimiter::Parenthesis) => return Some(UnsafeKind::Attribute),
            TokenKind::Ident(word) if word == "fn" => {
                return tail.first().and_then(Token::ident).map(|_| UnsafeKind::Function);
            }
            TokenKind::Ident(word) if word == "impl" => return Some(UnsafeKind::Impl),
            TokenKind::Ident(word) if word == "trait" || word == "auto" => return Some(UnsafeKind::Trait),
            TokenKind::Ident(word) if word == "extern" => is_extern = true,
            TokenKind::Ident(word) if word == "async" => {}
            TokenKind::Literal(_) if is_extern => {}
            _ => return None,
        }
        rest = tail;
    }
}

fn has_reason(source: &RustSource, line: usize) -> bool {
    source.comments_above(line).iter().any(|comment| comment.contains("SAFETY:") || comment.contains("# Safety"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(rule: &str, lib: &str) -> Vec<String> {
        let manifest = format!("[package]\nname = \"{rule}\"\n");
        let tree = Tree::invent([
            (format!("crates/{rule}/Cargo.toml"), manifest),
            (format!("crates/{rule}/src/lib.rs"), lib.to_owned()),
        ]);
        check(&tree).into_iter().map(|found| format!("{}: {}", found.line, found.what)).collect()
    }

    #[test]
    fn only_some_rooms_may_hold_it() {
        let block = "fn f() {\n    // SAFETY: the pointer is ours\n    unsafe { g() }\n}\n";
        assert!(findings("rnic-host", block).is_empty());
        assert_eq!(findings("rnic-engine", block), ["3: unsafe block in a crate that may not hold any"]);
        assert_eq!(findings("rnic-cli", "#[unsafe(no_mangle)]\nfn f() {}\n").len(), 1);
    }

    #[test]
    fn tests_may_with_a_reason() {
        let alloc =
            |reason: &str| format!("#[cfg(test)]\nmod tests {{\n    {reason}\n    unsafe impl A for B {{}}\n}}\n");
        assert!(findings("rnic-engine", &alloc("// SAFETY: forwards to the system")).is_empty());
        assert_eq!(findings("rnic-engine", &alloc("")), ["4: unsafe impl without its reason"]);
    }

    #[test]
    fn every_piece_needs_its_own_reason() {
        let lacking = |code: &str| findings("rnic-host", code).len();
        assert_eq!(lacking("fn f() { let x = unsafe { g() }; }\n"), 1);
        assert_eq!(lacking("unsafe fn f() {}\n"), 1);
        assert_eq!(lacking("unsafe extern \"C\" { fn f(); }\n"), 1);
        assert_eq!(lacking("pub unsafe extern \"C\" fn f() {}\n"), 1);
        assert_eq!(lacking("unsafe trait A {}\n"), 1);
        assert_eq!(lacking("/// Does.\n///\n/// # Safety\n/// `a` is valid.\n#[inline]\npub unsafe fn f() {}\n"), 0);
        assert_eq!(lacking("fn f() {\n    // SAFETY: ours\n    let x = g(\n        unsafe { h() });\n}\n"), 0);
        assert_eq!(lacking("fn f() {\n    // SAFETY: ours\n    g();\n    unsafe { h() };\n}\n"), 1);
    }

    #[test]
    fn types_and_words_are_not_unsafe_code() {
        let code = "type F = unsafe extern \"C\" fn(u8);\ntype G = unsafe fn();\n// unsafe { }\n\
                    const A: &str = \"unsafe {\";\n";
        assert!(findings("rnic-engine", code).is_empty());
    }
}
