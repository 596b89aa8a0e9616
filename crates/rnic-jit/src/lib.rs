//! Transport programs as machine code, made of their graphs when they are loaded.
//!
//! ```text
//! CRATE    rnic-jit (amber: what it compiles is decided by graphs)
//! Purpose  machine code of a program's two functions, by Cranelift; memory for it, and the calls of it
//! May use  rnic-program
//! Must not decide anything that a graph does not; contain unsafe code outside of `code.rs`
//! Add here an operation that graphs have got
//! Not here checks of graphs, their interpreter (rnic-program); which programs are compiled (rnic-transports)
//! Tested by lock-step with the interpreter, over the six programs and their mutants (rnic-transports, feature `jit`)
//! ```
//!
//! Without the feature `cranelift` the crate is empty.

#![cfg_attr(not(feature = "cranelift"), forbid(unsafe_code))]

#[cfg(feature = "cranelift")]
mod code;
#[cfg(feature = "cranelift")]
mod compiled;
#[cfg(feature = "cranelift")]
mod emit;

#[cfg(feature = "cranelift")]
pub use code::CompileError;
#[cfg(feature = "cranelift")]
pub use compiled::Compiled;

#[cfg(all(test, feature = "cranelift"))]
mod tests;
