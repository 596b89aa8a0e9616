//! Writes circuits that are emitted, for the tools in `tools/rtl`: `rnic-circuits FOLDER`.
//!
//! The folder gets `programs/`, the functions of all transport programs; `predicated/`, the same functions traced with
//! predicated writes; `random/`, 70 random programs; and `random.json`, their seeds, levels and bits of state.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rnic_program::graph::LEVELS_MAX;
use rnic_program::{Graph, Lowering, random, verilog};
use rnic_rtl::lockstep::Function;
use rnic_rtl::tools::{ToolError, write};
use rnic_transports::programs::all;

/// Number of random programs (Tonic, section 6.1.2).
const RANDOM: u64 = 70;

fn main() -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1) else {
        eprintln!("usage: rnic-circuits FOLDER");
        return ExitCode::from(2);
    };
    match write_all(Path::new(&folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rnic-circuits: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write_all(folder: &Path) -> Result<(), ToolError> {
    for (name, lowering) in [("programs", Lowering::Joins), ("predicated", Lowering::Predicated)] {
        let at = &new_folder(folder, name)?;
        write(&at.join("program_maps.sv"), verilog::LIBRARY)?;
        for program in all() {
            let graphs = program.graphs(lowering);
            for function in Function::ALL {
                let module = verilog::module_name(&program.description().name, function.name());
                graphs.iter().try_for_each(|graphs| write_module(at, &module, function.of(graphs)))?;
            }
        }
    }
    let at = &new_folder(folder, "random")?;
    write(&at.join("program_maps.sv"), verilog::LIBRARY)?;
    let mut rows = Vec::new();
    for seed in 0..RANDOM {
        let levels = random::LEVELS_MIN + (seed * u64::from(LEVELS_MAX - random::LEVELS_MIN) / (RANDOM - 1)) as u32;
        let (module, graph) = (format!("random_{seed:02}"), random::program(seed, levels));
        write_module(at, &module, &graph)?;
        let (bits, operations) = (random::state_bits(&graph), graph.operations());
        let numbers = format!(r#""levels": {levels}, "state_bits": {bits}, "operations": {operations}"#);
        rows.push(format!(r#"  {{"module": "{module}", "seed": {seed}, {numbers}}}"#));
    }
    write(&folder.join("random.json"), &format!("[\n{}\n]\n", rows.join(",\n")))
}

fn new_folder(folder: &Path, name: &str) -> Result<PathBuf, ToolError> {
    let folder = folder.join(name);
    let made = std::fs::create_dir_all(&folder);
    made.map_err(|source| ToolError::File { path: folder.display().to_string(), source }).map(|()| folder)
}

fn write_module(folder: &Path, module: &str, graph: &Graph) -> Result<(), ToolError> {
    write(&folder.join(format!("{module}.sv")), &verilog::emit(module, graph))
}
