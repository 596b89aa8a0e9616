//! Programs as WebAssembly modules.

use std::path::Path;

use rnic_program::{Graphs, Transport};

use crate::failure::Failure;

/// Returns `program` compiled to a WebAssembly module.
///
/// # Errors
/// If `program` was itself loaded from a WebAssembly module, or this build does not support such modules.
#[cfg(feature = "wasm")]
pub fn emit(program: &dyn Transport, graphs: Option<Graphs>) -> Result<Vec<u8>, Failure> {
    let description = program.description();
    let Some(graphs) = graphs else {
        return Err(Failure::input(format!("`{}` is a WebAssembly module already", description.name)));
    };
    rnic_program::wasm::emit(&description, &graphs).map_err(Failure::input)
}

/// Returns the module at `path` with the description in the file `described`; both must match.
///
/// # Errors
/// When one of them cannot be read, or they are not a valid program.
#[cfg(feature = "wasm")]
pub fn with_description(path: &Path, described: &Path) -> Result<Vec<u8>, Failure> {
    use rnic_program::{file, wasm};
    use rnic_transports::programs;

    let bytes = programs::read(described).map_err(|reason| Failure::file(described, reason))?;
    let description = file::read_description(&bytes).map_err(|reason| Failure::file(described, reason))?;
    let of_module = |reason| Failure::file(path, reason);
    let module = programs::read(path).map_err(|reason| Failure::file(path, reason))?;
    let module = wasm::with_description(&module, &description).map_err(of_module)?;
    wasm::WasmProgram::new(&module).map_err(of_module)?;
    Ok(module)
}

/// Rejects the request, because this build does not support modules.
///
/// # Errors
/// Always.
#[cfg(not(feature = "wasm"))]
pub fn emit(_: &dyn Transport, _: Option<Graphs>) -> Result<Vec<u8>, Failure> {
    Err(Failure::input(MISSING))
}

/// Rejects the request, because this build does not support modules.
///
/// # Errors
/// Always.
#[cfg(not(feature = "wasm"))]
pub fn with_description(_: &Path, _: &Path) -> Result<Vec<u8>, Failure> {
    Err(Failure::input(MISSING))
}

#[cfg(not(feature = "wasm"))]
const MISSING: &str = "this build knows no WebAssembly; build OpenRNIC with --features wasm";
