//! Loading of programs in every supported form: program files, and, with the feature `wasm`, WebAssembly modules.

use crate::file::{self, FileError};
use crate::transport::Transport;
#[cfg(feature = "wasm")]
use crate::wasm::{WasmError, WasmProgram};

/// First bytes of a WebAssembly module.
const WASM_MAGIC: &[u8] = b"\0asm";

/// Reason why bytes cannot be loaded as a program.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The bytes are not a valid program file.
    #[error(transparent)]
    File(#[from] FileError),
    /// The bytes are a WebAssembly module, but not a valid program.
    #[cfg(feature = "wasm")]
    #[error(transparent)]
    Wasm(#[from] WasmError),
    /// The bytes are a WebAssembly module, and this build does not include the interpreter for them (feature `wasm`).
    #[cfg(not(feature = "wasm"))]
    #[error("it is a WebAssembly module, which this build does not run; build OpenRNIC with the feature wasm")]
    NoWasm,
}

/// Reads and checks a program.
///
/// # Errors
/// When the bytes have no known form or are invalid; the program is then not loaded.
pub fn read(bytes: &[u8]) -> Result<Box<dyn Transport>, ReadError> {
    if bytes.starts_with(WASM_MAGIC) {
        return module(bytes);
    }
    Ok(Box::new(file::read(bytes)?))
}

#[cfg(feature = "wasm")]
fn module(bytes: &[u8]) -> Result<Box<dyn Transport>, ReadError> {
    Ok(Box::new(WasmProgram::new(bytes)?))
}

#[cfg(not(feature = "wasm"))]
fn module(_: &[u8]) -> Result<Box<dyn Transport>, ReadError> {
    Err(ReadError::NoWasm)
}
