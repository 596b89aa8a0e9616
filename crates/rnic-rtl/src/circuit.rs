//! Circuits that can be simulated: functions of programs, emitted from their graphs, and modules written by hand.

use std::path::{Path, PathBuf};

use rnic_program::value::MAP_WORDS;
use rnic_program::{Graph, Kind, verilog};

use crate::tools::{ToolError, write};

/// Width of maps in emitted circuits.
const MAP_BITS: u32 = 128;

/// Input or output of a circuit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wire {
    /// Name of the port.
    pub name: String,
    /// Width in bits.
    pub bits: u32,
    /// Number of 64-bit words of a record that hold the value, lowest bits first.
    pub words: usize,
}

impl Wire {
    /// Returns a wire of `bits` bits, in as few words as hold them.
    pub fn new(name: &str, bits: u32) -> Self {
        Self { name: name.to_owned(), bits, words: bits.div_ceil(u64::BITS) as usize }
    }
}

/// Returns the number of words of a record with a value for each of `wires`.
pub fn record_words(wires: &[Wire]) -> usize {
    wires.iter().map(|wire| wire.words).sum()
}

/// Meaning of a record of inputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timing {
    /// The outputs are a function of the inputs of the same record.
    Combinational,
    /// A record is a cycle of `clk`: its outputs are those before the rising edge, which see the inputs of the same
    /// record. Before the first record, `rst_n` is low for two cycles in which all inputs are zero.
    Clocked,
}

/// A circuit: its module, where the text of it is, and its ports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Circuit {
    /// Name by which the model is started; different from those of all circuits that are built together.
    pub name: String,
    /// Name of the module.
    pub module: String,
    /// Values of parameters that differ from the module's defaults.
    pub parameters: Vec<(String, u64)>,
    /// Inputs, without `clk` and `rst_n`, in the order of a record's words.
    pub inputs: Vec<Wire>,
    /// Outputs, in the order of a record's words.
    pub outputs: Vec<Wire>,
    /// Meaning of a record.
    pub timing: Timing,
    text: Text,
}

/// Place of a circuit's text.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Text {
    /// Emitted: the text itself.
    Emitted(String),
    /// Written by hand: folders of the repository's folder `rtl`, which are searched for the file of each module.
    Folders(Vec<&'static str>),
}

impl Circuit {
    /// Returns the circuit that is emitted for a graph.
    pub fn emitted(name: &str, graph: &Graph) -> Self {
        let wire = |name: &str, kind: Kind| match kind {
            Kind::Bits(bits) => Wire::new(name, bits.into()),
            Kind::Map => Wire { words: MAP_WORDS, ..Wire::new(name, MAP_BITS) },
        };
        Self {
            name: name.to_owned(),
            module: name.to_owned(),
            parameters: Vec::new(),
            inputs: graph.inputs().iter().map(|port| wire(&port.name, port.kind)).collect(),
            outputs: graph.outputs().iter().map(|(port, _)| wire(&port.name, port.kind)).collect(),
            timing: Timing::Combinational,
            text: Text::Emitted(verilog::emit(name, graph)),
        }
    }

    /// Returns the circuit of a module written by hand, in the file of its name. Modules that it instantiates are found
    /// in `folders` of `rtl`, the first of which holds the module itself.
    pub fn written(
        module: &str,
        folders: &[&'static str],
        timing: Timing,
        inputs: &[(&str, u32)],
        outputs: &[(&str, u32)],
    ) -> Self {
        let wires = |ports: &[(&str, u32)]| ports.iter().map(|(name, bits)| Wire::new(name, *bits)).collect();
        Self {
            name: module.to_owned(),
            module: module.to_owned(),
            parameters: Vec::new(),
            inputs: wires(inputs),
            outputs: wires(outputs),
            timing,
            text: Text::Folders(folders.to_vec()),
        }
    }

    /// Sets a parameter.
    #[must_use]
    pub fn with(mut self, parameter: &str, value: u64) -> Self {
        self.parameters.push((parameter.to_owned(), value));
        self
    }

    /// Changes the name by which the model is started.
    #[must_use]
    pub fn called(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Writes text that is not in a file yet into `folder`, and returns the arguments that name the text to Verilator:
    /// packages first.
    pub(crate) fn sources(&self, folder: &Path) -> Result<Vec<String>, ToolError> {
        let folders = match &self.text {
            Text::Emitted(text) => {
                write(&folder.join("program_maps.sv"), verilog::LIBRARY)?;
                write(&folder.join(format!("{}.sv", self.module)), text)?;
                return Ok(vec![format!("{}.sv", self.module), "program_maps.sv".to_owned()]);
            }
            Text::Folders(folders) => folders,
        };
        let mut arguments = vec![rtl_folder().join("lint.vlt").display().to_string()];
        for name in folders {
            let at = rtl_folder().join(name);
            let entries = std::fs::read_dir(&at);
            let entries = entries.map_err(|source| ToolError::File { path: at.display().to_string(), source })?;
            let mut packages: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
            packages.retain(|path| path.to_string_lossy().ends_with("_pkg.sv"));
            packages.sort();
            arguments.extend(packages.iter().map(|path| path.display().to_string()));
        }
        for name in folders {
            arguments.extend(["-y".to_owned(), rtl_folder().join(name).display().to_string()]);
        }
        let own = rtl_folder().join(folders[0]).join(format!("{}.sv", self.module));
        arguments.push(own.display().to_string());
        Ok(arguments)
    }

    /// Compares the ports with those of the model in Verilator's header.
    ///
    /// # Errors
    /// The first port that the header does not have, or has with another width.
    pub(crate) fn check_ports(&self, header: &str) -> Result<(), ToolError> {
        let is_there = |direction: &str, wire: &Wire| {
            header.lines().map(str::trim).any(|line| {
                let port = line.strip_prefix("VL_").and_then(|line| line.strip_prefix(direction));
                let rest = port.and_then(|port| port.split_once("(&")).map(|(_, rest)| rest);
                let mut parts = rest.unwrap_or_default().split([',', ')']);
                parts.next() == Some(wire.name.as_str())
                    && parts.next().is_some_and(|top| top.parse() == Ok(wire.bits - 1))
                    && parts.next() == Some("0")
            })
        };
        let wrong_input = self.inputs.iter().find(|wire| !is_there("IN", wire));
        let wrong = wrong_input.or_else(|| self.outputs.iter().find(|wire| !is_there("OUT", wire)));
        match wrong {
            None => Ok(()),
            Some(Wire { name, bits, .. }) => Err(ToolError::Failed {
                tool: format!("comparison of the ports of {}", self.module),
                output: format!("the module has no port {name} of {bits} bits in this direction"),
            }),
        }
    }
}

/// Returns the repository's folder of modules written by hand.
pub fn rtl_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../rtl")
}
