//! Programs as WebAssembly modules (feature `wasm`): written in another language, or emitted from a graph.
//!
//! A module exports `memory` of one page, and `incoming` and `periodic`, both of type `(i32, i32) -> ()`: the address
//! of the input words and that for the output words, each of 8 bytes, little-endian, in the order of the ports of a
//! graph. Its custom section `rnic.program` is a [description](crate::file::write_description). It has no imports, no
//! floating point and no start function, and sets no globals; its memory is the same at the beginning of each call, so
//! that nothing but the state of a flow remains from one event to the next.
//!
//! A call that takes more than [`FUEL`] operations, or traps, answers with a window of zero, which is outside the
//! contract: the flow goes to a built-in program.

mod emit;
mod module;
mod run;

pub use emit::{emit, with_description};
pub use run::WasmProgram;

use crate::file::FileError;
use crate::loaded::LoadError;

/// Maximum number of operations of a call, as `wasmi` counts them: several times that of the longest of Tonic's six
/// programs.
pub const FUEL: u64 = 20_000;

/// Maximum size of a module in bytes.
pub const MODULE_BYTES_MAX: usize = 64 << 10;

/// Name of the custom section with the description.
const SECTION: &str = "rnic.program";

/// Address of the input words; C compilers place data from address 1024 on.
const INPUTS_AT: usize = 0xf000;

/// Address for the output words.
const OUTPUTS_AT: usize = 0xf800;

/// Reason why a WebAssembly module is not a valid program.
#[derive(Debug, thiserror::Error)]
pub enum WasmError {
    /// The module is too large.
    #[error("the module has {0} bytes, at most {MODULE_BYTES_MAX} are possible")]
    TooLarge(usize),
    /// The module is invalid, or uses a WebAssembly extension that programs must not use.
    #[error("not a WebAssembly module for programs: {0}")]
    Invalid(String),
    /// The module has no description.
    #[error("the module has no custom section `{SECTION}`; add it by: rnic program build FILE.wasm --description FILE")]
    NoDescription,
    /// The module contains something that programs must not contain.
    #[error("the module has {0}; {1}")]
    Forbidden(&'static str, &'static str),
    /// An export is missing or of another type.
    #[error("the module does not export {0}")]
    Export(&'static str),
    /// The description has another version, or is invalid.
    #[error(transparent)]
    Description(Box<FileError>),
}

impl From<LoadError> for WasmError {
    fn from(error: LoadError) -> Self {
        Self::Description(Box::new(error.into()))
    }
}

#[cfg(test)]
#[path = "wasm/tests.rs"]
mod tests;
