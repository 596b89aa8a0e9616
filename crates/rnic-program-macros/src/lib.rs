//! The attribute that records a function of a transport program as a graph of gates.
//!
//! ```text
//! CRATE    rnic-program-macros (red: with rnic-program, what runs is what is emitted)
//! Purpose  #[program]: a second form of a function, which traces it into a graph
//! May use  no other crate here
//! Must not infer types or widths: rustc does, in both forms
//! Add here a construct of the language that becomes gates; a reason why one cannot
//! Not here operations and their meaning (rnic-program)
//! Tested by unit tests of which code is rejected, and where, and by rnic-program: both forms agree on random events
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_macros))]

mod assigned;
mod lines;
mod rewrite;

use proc_macro::TokenStream;
use quote::{ToTokens, quote};
use syn::{ItemFn, parse_macro_input};

/// Makes a function usable both as Rust and as hardware. The function is unchanged; a module of the same name is added
/// with `record`, which builds the function's dataflow graph from symbolic inputs, and `LINES`, the number of lines
/// (without blank ones and comments) of the function and of all functions that it calls.
///
/// The function is straight-line code: `let`, assignments, `if` as a statement or a value, arithmetic, comparisons, the
/// methods of `U` and `Map`, and calls of other `#[program]` functions by a single name. Anything else is refused with
/// the reason, at its line.
#[proc_macro_attribute]
pub fn program(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let function = parse_macro_input!(item as ItemFn);
    let lines = lines::count(&function);
    let extra = if attribute.is_empty() {
        rewrite::function(&function, lines).unwrap_or_else(|error| error.to_compile_error())
    } else {
        quote!(compile_error!("#[program] has no arguments");)
    };
    let mut output = quote!(#[inline]);
    function.to_tokens(&mut output);
    output.extend(extra);
    output.into()
}
