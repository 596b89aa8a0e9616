//! Validation of modules before execution.

use wasmparser::{Operator, Parser, Payload};

use super::{MODULE_BYTES_MAX, SECTION, WasmError};
use crate::file;
use crate::transport::Description;

/// Returns the description of a module, after checking that the module can neither keep a value from one call to the
/// next nor access anything outside.
pub(super) fn description(bytes: &[u8]) -> Result<Description, WasmError> {
    if bytes.len() > MODULE_BYTES_MAX {
        return Err(WasmError::TooLarge(bytes.len()));
    }
    let invalid = |error: wasmparser::BinaryReaderError| WasmError::Invalid(printable(error.message()));
    let mut found = None;
    for payload in Parser::new(0).parse_all(bytes) {
        match payload.map_err(invalid)? {
            Payload::ImportSection(section) if section.count() > 0 => {
                return Err(WasmError::Forbidden("imports", "a program has its inputs only"));
            }
            Payload::StartSection { .. } => {
                return Err(WasmError::Forbidden("a start function", "link it with --no-entry"));
            }
            Payload::TableSection(section) if section.count() > 0 => {
                return Err(WasmError::Forbidden("a table", "call functions by name, not by pointer"));
            }
            Payload::CodeSectionEntry(body) => {
                for operator in body.get_operators_reader().map_err(invalid)? {
                    if matches!(operator.map_err(invalid)?, Operator::GlobalSet { .. }) {
                        return Err(WasmError::Forbidden(
                            "a function that sets a global, such as the pointer of a stack",
                            "compile it with -O2, without arrays and addresses of local variables",
                        ));
                    }
                }
            }
            Payload::CustomSection(section) if section.name() == SECTION => found = Some(section.data()),
            _ => {}
        }
    }
    let text = found.ok_or(WasmError::NoDescription)?;
    file::read_description(text).map_err(|error| WasmError::Description(Box::new(error)))
}

/// Returns one line of `text`.
pub(super) fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}
