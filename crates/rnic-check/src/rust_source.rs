//! One Rust file, as tokens and as a syntax tree.
//!
//! Both views are needed: the flat token list covers macro calls, which `syn` does not parse; the syntax tree
//! identifies items. Neither has comments other than documentation.

use std::ops::RangeInclusive;

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// A parsed Rust file.
pub struct RustSource {
    /// The syntax tree.
    pub syntax: syn::File,
    /// All tokens in order, with groups flattened.
    pub tokens: Vec<Token>,
    /// All names imported by `use` outside test code.
    pub imports: Vec<Import>,
    lines: Vec<String>,
    test_lines: Vec<RangeInclusive<usize>>,
    use_lines: Vec<RangeInclusive<usize>>,
}

/// A token and the line on which it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Type of the token.
    pub kind: TokenKind,
    /// Line, from 1.
    pub line: usize,
}

/// Type of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// A name or keyword.
    Ident(String),
    /// `::`.
    PathSep,
    /// Any other punctuation, one character at a time.
    Punct(char),
    /// A literal as written.
    Literal(String),
    /// The opening delimiter of a group.
    Open(Delimiter),
    /// The closing delimiter of a group.
    Close(Delimiter),
}

/// One name that a `use` brings into scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// The name in this file; `*` for a glob.
    pub alias: String,
    /// Full path of the imported item; for a glob, the path before the `*`.
    pub path: Vec<String>,
    /// Line, from 1.
    pub line: usize,
}

/// A path as written outside `use`, such as `time::Instant::now`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathUse {
    /// Segments of the path.
    pub segments: Vec<String>,
    /// True when the path begins with `::`.
    pub is_absolute: bool,
    /// Line, from 1.
    pub line: usize,
}

/// A function with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function<'source> {
    /// Name of the function.
    pub name: &'source str,
    /// Lines, from 1.
    pub lines: RangeInclusive<usize>,
}

impl Token {
    /// Returns `true` if the token is the name or keyword `name`.
    pub fn is_ident(&self, name: &str) -> bool {
        matches!(&self.kind, TokenKind::Ident(found) if found == name)
    }

    /// Returns the name or keyword, if the token is one; otherwise `None`.
    pub fn ident(&self) -> Option<&str> {
        if let TokenKind::Ident(name) = &self.kind { Some(name) } else { None }
    }
}

impl RustSource {
    /// Parses `text`.
    ///
    /// # Errors
    /// When `text` is not valid Rust.
    pub fn parse(text: &str) -> syn::Result<Self> {
        let syntax = syn::parse_file(text)?;
        let stream: TokenStream = text.parse()?;
        let mut tokens = Vec::new();
        flatten(stream, &mut tokens);
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let mut items = ItemSpans::default();
        if syntax.attrs.iter().any(is_test_only) {
            items.test_lines.push(1..=lines.len());
        } else {
            items.visit_file(&syntax);
        }
        let ItemSpans { imports, test_lines, use_lines } = items;
        Ok(Self { syntax, tokens, imports, lines, test_lines, use_lines })
    }

    /// Returns `true` if `line` belongs to an item that exists only under `cfg(test)`.
    pub fn is_test_line(&self, line: usize) -> bool {
        self.test_lines.iter().any(|range| range.contains(&line))
    }

    /// Returns the number of lines of test items.
    pub fn test_line_count(&self) -> usize {
        (1..=self.lines.len()).filter(|line| self.is_test_line(*line)).count()
    }

    /// Returns the number of lines outside test items.
    pub fn production_line_count(&self) -> usize {
        self.lines.len() - self.test_line_count()
    }

    /// Returns the text of `line`.
    pub fn line(&self, line: usize) -> &str {
        self.lines.get(line.wrapping_sub(1)).map_or("", String::as_str)
    }

    /// Returns the number of lines.
    pub fn line_count(&self) -> usize {
        self.lines.len()
    }

    /// Returns every path outside `use` and outside test items, with aliases not yet resolved.
    pub fn paths(&self) -> Vec<PathUse> {
        let mut paths = Vec::new();
        let mut index = 0;
        while index < self.tokens.len() {
            let line = self.tokens[index].line;
            let is_skipped = self.is_test_line(line) || self.use_lines.iter().any(|range| range.contains(&line));
            match path_at(&self.tokens, index) {
                Some((path, next)) => {
                    index = next;
                    if !is_skipped {
                        paths.push(path);
                    }
                }
                None => index += 1,
            }
        }
        paths
    }

    /// Returns `path` with its first segment replaced by the path that this file imports under that name.
    pub fn resolve(&self, path: &PathUse) -> Vec<String> {
        let import = if path.is_absolute { None } else { self.import_of(&path.segments[0]) };
        match import {
            Some(import) => import.path.iter().chain(&path.segments[1..]).cloned().collect(),
            None => path.segments.clone(),
        }
    }

    /// Returns every function with a body, from `fn` to the closing brace.
    ///
    /// Uses tokens, so that functions inside macro calls (`proptest! { fn ... }`) are found too.
    pub fn functions(&self) -> Vec<Function<'_>> {
        let pairs = self.tokens.windows(2).enumerate();
        let functions = pairs.filter_map(|(index, pair)| {
            let name = pair[1].ident().filter(|_| pair[0].is_ident("fn"))?;
            Some(Function { name, lines: pair[0].line..=body_end(&self.tokens[index + 2..])? })
        });
        functions.collect()
    }

    /// Returns the import called `alias` in this file.
    pub fn import_of(&self, alias: &str) -> Option<&Import> {
        self.imports.iter().find(|import| import.alias == alias)
    }
}

fn flatten(stream: TokenStream, tokens: &mut Vec<Token>) {
    let mut trees = stream.into_iter().peekable();
    while let Some(tree) = trees.next() {
        let line = tree.span().start().line;
        let kind = match tree {
            TokenTree::Ident(ident) => TokenKind::Ident(ident.to_string()),
            TokenTree::Literal(literal) => TokenKind::Literal(literal.to_string()),
            TokenTree::Punct(punct) => {
                let is_colon = |tree: &TokenTree| matches!(tree, TokenTree::Punct(next) if next.as_char() == ':');
                let is_joined = punct.as_char() == ':' && punct.spacing() == Spacing::Joint;
                if is_joined && trees.next_if(is_colon).is_some() {
                    TokenKind::PathSep
                } else {
                    TokenKind::Punct(punct.as_char())
                }
            }
            TokenTree::Group(group) => {
                tokens.push(Token { kind: TokenKind::Open(group.delimiter()), line });
                flatten(group.stream(), tokens);
                tokens.push(Token { kind: TokenKind::Close(group.delimiter()), line: group.span_close().start().line });
                continue;
            }
        };
        tokens.push(Token { kind, line });
    }
}

/// Returns the path that begins at `start`, and the index after it; `None` when no path begins there.
fn path_at(tokens: &[Token], start: usize) -> Option<(PathUse, usize)> {
    let kind_at = |index: usize| tokens.get(index).map(|token| &token.kind);
    let before = start.checked_sub(1).and_then(kind_at);
    let is_after_sep = before == Some(&TokenKind::PathSep);
    let sep_follows = start.checked_sub(2).and_then(kind_at);
    let is_tail = matches!(sep_follows, Some(TokenKind::Ident(_) | TokenKind::Punct('>')));
    if before == Some(&TokenKind::Punct('.')) || is_after_sep && is_tail {
        return None;
    }
    let mut segments = vec![tokens[start].ident()?.to_owned()];
    let mut next = start + 1;
    while let (Some(TokenKind::PathSep), Some(TokenKind::Ident(name))) = (kind_at(next), kind_at(next + 1)) {
        segments.push(name.clone());
        next += 2;
    }
    Some((PathUse { segments, is_absolute: is_after_sep, line: tokens[start].line }, next))
}

/// Returns `true` if an attribute is a `cfg` that is true only in a test build.
pub fn is_test_only(attribute: &syn::Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else { return false };
    list.path.is_ident("cfg") && syn::parse2::<Cfg>(list.tokens.clone()).is_ok_and(|cfg| cfg.needs_test())
}

/// A condition in `cfg(...)`, reduced to the parts that determine whether it is true only in tests.
enum Cfg {
    Test,
    All(Vec<Cfg>),
    Any(Vec<Cfg>),
    Other,
}

impl Cfg {
    fn needs_test(&self) -> bool {
        match self {
            Self::Test => true,
            Self::All(parts) => parts.iter().any(Self::needs_test),
            Self::Any(parts) => !parts.is_empty() && parts.iter().all(Self::needs_test),
            Self::Other => false,
        }
    }
}

impl syn::parse::Parse for Cfg {
    fn parse(input: syn::parse::ParseStream<'_>) -> syn::Result<Self> {
        let name: syn::Ident = input.parse()?;
        if input.peek(syn::token::Paren) {
            let inside;
            syn::parenthesized!(inside in input);
            let parts = inside.parse_terminated(Self::parse, syn::Token![,])?.into_iter().collect();
            return Ok(match name.to_string().as_str() {
                "all" => Self::All(parts),
                "any" => Self::Any(parts),
                _ => Self::Other,
            });
        }
        if input.peek(syn::Token![=]) {
            input.parse::<syn::Token![=]>()?;
            input.parse::<syn::Lit>()?;
            return Ok(Self::Other);
        }
        Ok(if name == "test" { Self::Test } else { Self::Other })
    }
}

/// Visitor of the items of a file that records test items and imports.
#[derive(Default)]
struct ItemSpans {
    imports: Vec<Import>,
    test_lines: Vec<RangeInclusive<usize>>,
    use_lines: Vec<RangeInclusive<usize>>,
}

impl ItemSpans {
    fn add_use_tree(&mut self, tree: &syn::UseTree, prefix: &mut Vec<String>) {
        let line = tree.span().start().line;
        match tree {
            syn::UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.add_use_tree(&path.tree, prefix);
                prefix.pop();
            }
            syn::UseTree::Name(name) => self.add_use_name(&name.ident, &name.ident, prefix, line),
            syn::UseTree::Rename(rename) => self.add_use_name(&rename.ident, &rename.rename, prefix, line),
            syn::UseTree::Glob(_) => self.imports.push(Import { alias: "*".to_owned(), path: prefix.clone(), line }),
            syn::UseTree::Group(group) => group.items.iter().for_each(|item| self.add_use_tree(item, prefix)),
        }
    }

    fn add_use_name(&mut self, name: &syn::Ident, alias: &syn::Ident, prefix: &[String], line: usize) {
        let mut path = prefix.to_vec();
        let mut alias = alias.to_string();
        if name == "self" {
            if alias == "self" {
                alias = path.last().cloned().unwrap_or_default();
            }
        } else {
            path.push(name.to_string());
        }
        self.imports.push(Import { alias, path, line });
    }

    fn record_test(&mut self, attributes: &[syn::Attribute], span: proc_macro2::Span) -> bool {
        let is_test = attributes.iter().any(is_test_only);
        if is_test {
            self.test_lines.push(lines_of(span));
        }
        is_test
    }
}

impl<'ast> Visit<'ast> for ItemSpans {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !self.record_test(item_attributes(item), item.span()) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        let attributes: &[syn::Attribute] = match item {
            syn::ImplItem::Const(item) => &item.attrs,
            syn::ImplItem::Fn(item) => &item.attrs,
            syn::ImplItem::Macro(item) => &item.attrs,
            _ => &[],
        };
        if !self.record_test(attributes, item.span()) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.use_lines.push(lines_of(item.span()));
        self.add_use_tree(&item.tree, &mut Vec::new());
    }
}

/// Returns the first and last line of a span.
pub fn lines_of(span: proc_macro2::Span) -> RangeInclusive<usize> {
    span.start().line..=span.end().line
}

/// Returns the attributes of an item.
pub fn item_attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::ExternCrate(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::ForeignMod(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Union(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns the line on which the body of a function ends, given the tokens after the function's name; `None` when the
/// function has no body.
fn body_end(tokens: &[Token]) -> Option<usize> {
    let mut depth = 0_usize;
    let mut body_depth = None;
    for (index, token) in tokens.iter().enumerate() {
        match token.kind {
            TokenKind::Punct(';') if depth == 0 => return None,
            TokenKind::Open(delimiter) => {
                // A brace directly after `<` or `,` is a constant generic argument in the signature.
                let before = index.checked_sub(1).map(|before| &tokens[before].kind);
                let is_generic = matches!(before, Some(TokenKind::Punct('<' | ',')));
                if depth == 0 && delimiter == Delimiter::Brace && !is_generic {
                    body_depth = Some(depth);
                }
                depth += 1;
            }
            TokenKind::Close(_) => {
                depth = depth.checked_sub(1)?;
                if body_depth == Some(depth) {
                    return Some(token.line);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
#[path = "rust_source/tests.rs"]
mod tests;
