//! Counts the lines of a function: those with at least one token, without attributes and comments.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::ItemFn;

/// Returns the number of lines of `function`.
pub(crate) fn count(function: &ItemFn) -> u32 {
    let mut lines = BTreeSet::new();
    let mut bare = function.clone();
    bare.attrs.clear();
    collect(bare.to_token_stream(), &mut lines);
    lines.len() as u32
}

fn collect(tokens: TokenStream, lines: &mut BTreeSet<usize>) {
    for token in tokens {
        if let TokenTree::Group(group) = &token {
            lines.insert(group.span_open().start().line);
            lines.insert(group.span_close().start().line);
            collect(group.stream(), lines);
        } else {
            lines.insert(token.span().start().line);
        }
    }
}
