//! Programs in any form in which they are loaded: program files, and with the feature `wasm` WebAssembly modules.

use crate::file::{self, FileError};
use crate::transport::Transport;
#[cfg(feature = "wasm")]
use crate::wasm::{WasmError, WasmProgram};

/// First bytes of a WebAssembly module.
const WASM_MAGIC: &[u8] = b"\0asm";

/// The reason why bytes are not a program.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// They are not a program file.
    #[error(transparent)]
    File(#[from] FileError),
    /// They are a WebAssembly module, which is not a program.
    #[cfg(feature = "wasm")]
    #[error(transparent)]
    Wasm(#[from] WasmError),
    /// They are a WebAssembly module, and nothing here runs those.
    #[cfg(not(feature = "wasm"))]
    #[error("it is a WebAssembly module, which this build does not run; build OpenRNIC with the feature wasm")]
    NoWasm,
}

/// Reads and checks a program.
///
/// # Errors
/// When the bytes have no known form, or any fault; nothing is kept of them then.
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
