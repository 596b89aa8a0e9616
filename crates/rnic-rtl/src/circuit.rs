//! Circuits that can be simulated: functions of programs, emitted from their graphs, and modules written by hand.

use std::path::{Path, PathBuf};

use rnic_program::value::MAP_WORDS;
use rnic_program::{Graph, Kind, verilog};

use crate::tools::{ToolError, run, write};

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
    /// As [`Timing::Clocked`], of a module without a reset: there is no cycle before the first record.
    WithoutReset,
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
    change: Option<Change>,
    /// Files of other modules, a package first.
    pub(crate) replaced: Vec<(String, String)>,
}

/// A change of a module written by hand: a fault that a test must notice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// Module in whose file it is made.
    pub module: String,
    /// Text that is replaced, which is there exactly once.
    pub from: String,
    /// Text in its place.
    pub to: String,
}

impl Change {
    /// Returns the change of `from` to `to` in `module`.
    pub fn new(module: &str, from: &str, to: &str) -> Self {
        Self { module: module.to_owned(), from: from.to_owned(), to: to.to_owned() }
    }

    /// Returns `text` with the change.
    ///
    /// # Errors
    /// When the text to replace is not there, or several times.
    pub(crate) fn apply(&self, text: &str) -> Result<String, ToolError> {
        if text.matches(&self.from).count() == 1 {
            return Ok(text.replace(&self.from, &self.to));
        }
        let output = format!("the module does not have this text exactly once: {}", self.from);
        Err(ToolError::Failed { tool: format!("change of {}", self.module), output })
    }
}

/// Place of a circuit's text.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Text {
    /// Emitted: the text itself.
    Emitted(String),
    /// Written by hand: folders of the repository's folder `rtl`, which are searched for the file of each module.
    Folders(Vec<String>),
    /// Gates that yosys makes of a module written by hand, with these folders and parameters.
    Gates(Vec<String>, Vec<(String, u64)>),
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
            change: None,
            replaced: Vec::new(),
        }
    }

    /// Returns the circuit of a clocked module without a reset, in a text that has emitted functions and this module
    /// around them.
    pub(crate) fn around(module: &str, inputs: Vec<Wire>, outputs: Vec<Wire>, text: String) -> Self {
        Self {
            name: module.to_owned(),
            module: module.to_owned(),
            parameters: Vec::new(),
            inputs,
            outputs,
            timing: Timing::WithoutReset,
            text: Text::Emitted(text),
            change: None,
            replaced: Vec::new(),
        }
    }

    /// Returns the circuit of a module written by hand, in the file of its name. Modules that it instantiates are found
    /// in `folders` of `rtl`, the first of which holds the module itself.
    pub fn written(
        module: &str,
        folders: &[&str],
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
            text: Text::Folders(folders.iter().map(|folder| (*folder).to_owned()).collect()),
            change: None,
            replaced: Vec::new(),
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

    /// Makes a change in one of the modules, which are written by hand.
    #[must_use]
    pub fn changed(mut self, change: Change) -> Self {
        self.change = Some(change);
        self
    }

    /// Replaces modules by others with these names and texts, a package first.
    #[must_use]
    pub fn replaced(mut self, files: &[(String, String)]) -> Self {
        files.clone_into(&mut self.replaced);
        self
    }

    /// Returns whether some of the text is not that of `rtl`.
    pub(crate) const fn is_changed(&self) -> bool {
        self.change.is_some() || !self.replaced.is_empty()
    }

    /// Replaces a module written by hand by the gates that yosys makes of its file, without any change.
    #[must_use]
    pub fn as_gates(mut self) -> Self {
        if let Text::Folders(folders) = &self.text {
            self.text = Text::Gates(folders.clone(), std::mem::take(&mut self.parameters));
        }
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
            Text::Gates(folders, parameters) => {
                return write_gates(&self.module, folders, parameters, folder).map(|file| vec![file]);
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
        // The folder of a changed module is searched before the others. Messages of assertions have its name: it is
        // relative, so that a compiler's cache knows them in another folder.
        let changed = self.changed_files(folders)?;
        let changed = (!changed.is_empty()).then(|| write_changed(&changed, folder, &self.name)).transpose()?;
        if let (Some(at), Some((package, _))) = (&changed, self.replaced.first()) {
            arguments.push(at.join(package).display().to_string());
        }
        arguments.extend(changed.iter().flat_map(|at| ["-y".to_owned(), at.display().to_string()]));
        for name in folders {
            arguments.extend(["-y".to_owned(), rtl_folder().join(name).display().to_string()]);
        }
        let file = format!("{}.sv", self.module);
        let own = changed.map(|at| at.join(&file)).filter(|path| folder.join(path).exists());
        let own = own.unwrap_or_else(|| rtl_folder().join(&folders[0]).join(&file));
        arguments.push(own.display().to_string());
        Ok(arguments)
    }

    /// Returns the names and texts of changed modules, which are in one of `folders` of `rtl`.
    fn changed_files(&self, folders: &[String]) -> Result<Vec<(String, String)>, ToolError> {
        let mut files = self.replaced.clone();
        if let Some(change) = &self.change {
            let file = format!("{}.sv", change.module);
            let mut all =
                folders.iter().map(|folder| modules(folder)).collect::<Result<Vec<_>, _>>()?.into_iter().flatten();
            let found = all.find(|(name, _)| *name == file);
            let (_, text) = found.ok_or_else(|| ToolError::Failed {
                tool: format!("change of {}", change.module),
                output: "no folder has this module".into(),
            })?;
            files.push((file, change.apply(&text)?));
        }
        Ok(files)
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

/// Warnings about netlists that say nothing of the circuit.
const NETLIST_WARNINGS: &str = "/* verilator lint_off WIDTH */\n/* verilator lint_off UNOPTFLAT */\n";

/// Synthesises a module into gates, writes them into a file in `at`, and returns its name.
fn write_gates(module: &str, folders: &[String], parameters: &[(String, u64)], at: &Path) -> Result<String, ToolError> {
    let mut files = Vec::new();
    for folder in folders {
        files.extend(modules(folder)?.into_iter().map(|(name, _)| rtl_folder().join(folder).join(name)));
    }
    files.sort_by_key(|path| !path.to_string_lossy().ends_with("_pkg.sv"));
    let files: String = files.iter().map(|path| format!(" {}", path.display())).collect();
    let settings: String = parameters.iter().map(|(name, value)| format!(" -set {name} {value}")).collect();
    let chparam = if settings.is_empty() { String::new() } else { format!("chparam{settings} {module}; ") };
    let file = format!("{module}_gates.sv");
    let script = format!(
        "read_verilog -sv{files}; {chparam}synth -flatten -top {module}; splitnets; opt_clean -purge; \
         write_verilog -noattr {file}"
    );
    run(at, "yosys", &["-p".to_owned(), script])?;
    let unread = |source| ToolError::File { path: at.join(&file).display().to_string(), source };
    let text = std::fs::read_to_string(at.join(&file)).map_err(unread)?;
    write(&at.join(&file), &format!("{NETLIST_WARNINGS}{text}"))?;
    Ok(file)
}

/// Writes the files of changed modules into a new folder in `folder`, and returns its name there.
fn write_changed(files: &[(String, String)], folder: &Path, circuit: &str) -> Result<PathBuf, ToolError> {
    let name = PathBuf::from(format!("{circuit}_changed"));
    let at = folder.join(&name);
    std::fs::create_dir_all(&at).map_err(|source| ToolError::File { path: at.display().to_string(), source })?;
    files.iter().try_for_each(|(file, text)| write(&at.join(file), text))?;
    Ok(name)
}

/// Returns the names of the files in `folder` of the repository's folder `rtl`, packages first, and their texts.
///
/// # Errors
/// When one cannot be read.
pub fn modules(folder: &str) -> Result<Vec<(String, String)>, ToolError> {
    let at = rtl_folder().join(folder);
    let unread = |source| ToolError::File { path: at.display().to_string(), source };
    let entries = std::fs::read_dir(&at).map_err(unread)?;
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name.ends_with(".sv"));
    names.sort_by_key(|name| (!name.ends_with("_pkg.sv"), name.clone()));
    let read = |name: String| std::fs::read_to_string(at.join(&name)).map(|text| (name, text)).map_err(unread);
    names.into_iter().map(read).collect()
}

/// Returns the repository's folder of modules written by hand.
pub fn rtl_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../rtl")
}
