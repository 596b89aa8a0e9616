//! Proofs by yosys that two circuits are the same function.

use rnic_program::{Graph, verilog};

use crate::tools::{ToolError, run, write};

/// Result of a proof.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Outputs are equal for all inputs.
    Equal,
    /// There are inputs for which the graphs differ.
    Different,
}

/// Proves that two graphs with the same ports compute the same function, or finds that they do not.
///
/// # Errors
/// When yosys is missing or fails.
pub fn compare(one: &Graph, other: &Graph) -> Result<Verdict, ToolError> {
    let folder = tempfile::tempdir().map_err(|source| ToolError::File { path: "a new folder".into(), source })?;
    let at = folder.path();
    write(&at.join("program_maps.sv"), verilog::LIBRARY)?;
    write(&at.join("one.sv"), &verilog::emit("one", one))?;
    write(&at.join("other.sv"), &verilog::emit("other", other))?;
    let script = "read_verilog -sv program_maps.sv one.sv other.sv; hierarchy -check; proc; \
                  miter -equiv -flatten -make_outputs one other miter; hierarchy -top miter; flatten; opt -full; \
                  sat -prove trigger 0 miter";
    let log = run(at, "yosys", &["-p".to_owned(), script.to_owned()])?;
    if log.contains("SAT proof finished - no model found: SUCCESS!") {
        Ok(Verdict::Equal)
    } else if log.contains("SAT proof finished - model found: FAIL!") {
        Ok(Verdict::Different)
    } else {
        let lines: Vec<&str> = log.lines().collect();
        let output = lines[lines.len().saturating_sub(20)..].join("\n");
        Err(ToolError::Failed { tool: "yosys (no verdict)".to_owned(), output })
    }
}
