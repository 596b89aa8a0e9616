//! Models of circuits by Verilator, as child processes.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::circuit::{Circuit, record_words};
use crate::shim;
use crate::tools::{ToolError, run, write};

/// Variable that names a folder into which every model writes its coverage when it ends.
const COVERAGE: &str = "RNIC_RTL_COVERAGE";

/// Number of models that have been started: tests of a process start models of one name and seed, each with a file.
static STARTED: AtomicU64 = AtomicU64::new(0);

/// An executable, built with Verilator, that simulates several circuits.
#[derive(Debug)]
pub struct Verilated {
    folder: tempfile::TempDir,
    circuits: Vec<Circuit>,
    coverage: Option<OsString>,
    has_waves: bool,
}

impl Verilated {
    /// Lints `circuits` and compiles their models.
    ///
    /// # Errors
    /// When a tool is missing, warns or fails, or a port is not as declared.
    pub fn build(circuits: &[Circuit]) -> Result<Self, ToolError> {
        Self::build_with(circuits, false)
    }

    /// Does the same for models that can write waves ([`Verilated::start_with_waves`]), which makes them slower. The
    /// compiler needs zlib.
    ///
    /// # Errors
    /// As [`Verilated::build`].
    pub fn build_with_waves(circuits: &[Circuit]) -> Result<Self, ToolError> {
        Self::build_with(circuits, true)
    }

    fn build_with(circuits: &[Circuit], has_waves: bool) -> Result<Self, ToolError> {
        let folder = tempfile::tempdir().map_err(|source| ToolError::File { path: "a new folder".into(), source })?;
        let (at, coverage) = (folder.path(), std::env::var_os(COVERAGE));
        write(&at.join("main.cpp"), &shim::text(circuits))?;
        let root = run(at, "verilator", &["--getenv".into(), "VERILATOR_ROOT".into()])?;
        let include = Path::new(root.trim()).join("include");
        let compiler = Compiler { folder: at.to_owned(), include, has_coverage: coverage.is_some(), has_waves };
        compiler.models(circuits)?;
        compiler.link(circuits)?;
        Ok(Self { folder, circuits: circuits.to_vec(), coverage, has_waves })
    }

    /// Starts the model of the circuit called `name`. Registers and memories that a reset does not set have random
    /// values, which follow from `seed`.
    ///
    /// # Errors
    /// When there is no such circuit, or the process cannot be started.
    pub fn start(&self, name: &str, seed: u32) -> Result<Model, ToolError> {
        self.start_model(name, seed, None, 0)
    }

    /// Does the same, and writes the values of all signals over time to `file`, in the format FST, until the model is
    /// dropped. Only models built with waves do.
    ///
    /// # Errors
    /// As [`Verilated::start`].
    pub fn start_with_waves(&self, name: &str, seed: u32, file: &Path) -> Result<Model, ToolError> {
        self.start_model(name, seed, Some(file), 0)
    }

    /// Starts the model of a circuit with [`Mutants`](crate::mutants::Mutants) as the one with this number; 0 is the
    /// circuit without a fault.
    ///
    /// # Errors
    /// As [`Verilated::start`].
    pub fn start_mutant(&self, name: &str, seed: u32, number: usize) -> Result<Model, ToolError> {
        self.start_model(name, seed, None, number)
    }

    fn start_model(&self, name: &str, seed: u32, waves: Option<&Path>, mutant: usize) -> Result<Model, ToolError> {
        let failed = |source| ToolError::Start { tool: format!("the model of {name}"), source };
        let number = self.circuits.iter().position(|circuit| circuit.name == name);
        let number = number.ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))?;
        let mut command = Command::new(self.folder.path().join("models"));
        // Seeds of Verilator are 1 to 2^31 - 1.
        let seed = seed % (i32::MAX as u32 - 1) + 1;
        command.args([number.to_string(), "+verilator+rand+reset+2".into(), format!("+verilator+seed+{seed}")]);
        if mutant != 0 {
            command.arg(format!("+mutant={mutant}"));
        }
        if let Some(folder) = &self.coverage {
            let file = format!("{name}-{}-{}.dat", std::process::id(), STARTED.fetch_add(1, Ordering::Relaxed));
            command.env("RNIC_RTL_COVERAGE_FILE", Path::new(folder).join(file));
        }
        if let Some(file) = waves {
            command.env("RNIC_RTL_WAVES_FILE", file);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let ends = child.stdin.take().zip(child.stdout.take());
        let (input, output) = ends.ok_or_else(|| failed(std::io::ErrorKind::BrokenPipe.into()))?;
        let Circuit { inputs, outputs, .. } = &self.circuits[number];
        let (inputs, outputs) = (record_words(inputs), record_words(outputs));
        let writes_at_end = self.coverage.is_some() || self.has_waves;
        Ok(Model { child, input: Some(input), output, inputs, outputs, writes_at_end })
    }
}

/// Compiles SystemVerilog modules with Verilator.
struct Compiler {
    folder: PathBuf,
    include: PathBuf,
    has_coverage: bool,
    has_waves: bool,
}

impl Compiler {
    /// Makes an object file of each model: two at a time, on as many processors as CI has.
    fn models(&self, circuits: &[Circuit]) -> Result<(), ToolError> {
        let (first, second) = circuits.split_at(circuits.len() / 2);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| second.iter().try_for_each(|circuit| self.model(circuit)));
            first.iter().try_for_each(|circuit| self.model(circuit))?;
            other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn model(&self, circuit: &Circuit) -> Result<(), ToolError> {
        let Circuit { name, module, parameters, .. } = circuit;
        let mut arguments = words(
            "--cc -O3 --no-timing --assert --x-assign unique --x-initial unique -Wall -Wno-DECLFILENAME \
             -Wno-UNUSEDSIGNAL -Wno-UNSIGNED",
        );
        // The lines that a circuit with a fault reaches say nothing of the one without.
        if self.has_coverage && !circuit.is_changed() {
            // Where Verilator 5.006 divides a block, counts read what its variables are at the end. Where it does not,
            // a block whose output selects its own input is evaluated until it does not change.
            arguments.extend(words("--coverage-line -fno-reorder -fno-split -Wno-UNOPTFLAT"));
        }
        if !circuit.replaced.is_empty() {
            // A fault may be what a lint would find.
            arguments.push("-Wno-lint".to_owned());
        }
        if self.has_waves {
            arguments.push("--trace-fst".to_owned());
        }
        arguments.extend(words(&format!("--prefix V{name} --top-module {module} --Mdir {name}")));
        arguments.extend(parameters.iter().map(|(parameter, value)| format!("-G{parameter}={value}")));
        arguments.extend(circuit.sources(&self.folder)?);
        run(&self.folder, "verilator", &arguments)?;
        let folder = self.folder.join(name);
        let unread = |source| ToolError::File { path: folder.display().to_string(), source };
        let header = std::fs::read_to_string(folder.join(format!("V{name}.h"))).map_err(unread)?;
        circuit.check_ports(&header)?;
        let entries = std::fs::read_dir(&folder).map_err(unread)?;
        let mut sources: Vec<String> =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        sources.retain(|file| file.ends_with(".cpp"));
        sources.sort();
        let all: String = sources.iter().map(|file| format!("#include \"{file}\"\n")).collect();
        write(&folder.join("all.cxx"), &all)?;
        self.compile(&format!("{name}/all.cxx"), &format!("{name}.o"))
    }

    /// Returns the compiler's arguments for every file.
    fn flags(&self) -> String {
        let include = self.include.display();
        let (coverage, waves) = (u8::from(self.has_coverage), u8::from(self.has_waves));
        format!(
            "-O1 -std=c++17 -w -DVM_COVERAGE={coverage} -DVM_TRACE={waves} -DVM_TRACE_FST={waves} -I{include} \
             -I{include}/vltstd -I."
        )
    }

    /// Makes an object file. Where there is a ccache, a file that was compiled before is taken from it: the tests
    /// compile Verilator's own files again and again, and most circuits have not changed since the last run. A cache
    /// that cannot be used, such as that of a user without a home, is no reason to fail.
    fn compile(&self, source: &str, object: &str) -> Result<(), ToolError> {
        let arguments = format!("{} -c {source} -o {object}", self.flags());
        if has_ccache() && run(&self.folder, "ccache", &words(&format!("g++ {arguments}"))).is_ok() {
            return Ok(());
        }
        run(&self.folder, "g++", &words(&arguments)).map(drop)
    }

    fn link(&self, circuits: &[Circuit]) -> Result<(), ToolError> {
        let include = self.include.display();
        let folders: String = circuits.iter().map(|circuit| format!("-I{} ", circuit.name)).collect();
        let mut objects: String = circuits.iter().map(|circuit| format!("{}.o ", circuit.name)).collect();
        self.compile(&format!("{folders}main.cpp"), "main.o")?;
        let coverage = self.has_coverage.then_some("verilated_cov");
        let waves = self.has_waves.then_some("verilated_fst_c");
        for file in ["verilated", "verilated_threads"].into_iter().chain(coverage).chain(waves) {
            self.compile(&format!("{include}/{file}.cpp"), &format!("{file}.o"))?;
            objects += &format!("{file}.o ");
        }
        let zlib = if self.has_waves { "-lz" } else { "" };
        run(&self.folder, "g++", &words(&format!("main.o {objects} -o models -lpthread {zlib}"))).map(drop)
    }
}

/// Returns whether a ccache is installed.
fn has_ccache() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| Command::new("ccache").arg("--version").output().is_ok_and(|output| output.status.success()))
}

fn words(arguments: &str) -> Vec<String> {
    arguments.split_whitespace().map(str::to_owned).collect()
}

/// The running model of one circuit.
#[derive(Debug)]
pub struct Model {
    child: Child,
    input: Option<ChildStdin>,
    output: ChildStdout,
    inputs: usize,
    outputs: usize,
    /// True if the process writes a file when its input ends.
    writes_at_end: bool,
}

impl Model {
    /// Runs the circuit on `records`, each of which has the words of all inputs, and returns the words of the outputs.
    ///
    /// # Errors
    /// When the process has ended: an assertion in the circuit failed. The error is what the process has said.
    ///
    /// # Panics
    /// When the last record is not complete.
    pub fn run(&mut self, records: &[u64]) -> std::io::Result<Vec<u64>> {
        assert_eq!(records.len() % self.inputs, 0, "a record is not complete");
        let count = records.len() / self.inputs;
        let mut bytes = (count as u64).to_le_bytes().to_vec();
        bytes.extend(records.iter().flat_map(|word| word.to_le_bytes()));
        let input = self.input.as_mut().ok_or(std::io::ErrorKind::BrokenPipe)?;
        let written = input.write_all(&bytes).and_then(|()| input.flush());
        let wanted = count * self.outputs * 8;
        let mut answer = Vec::with_capacity(wanted);
        (&mut self.output).take(wanted as u64).read_to_end(&mut answer)?;
        if answer.len() < wanted || written.is_err() {
            // Verilator writes its message where the outputs are expected.
            return Err(std::io::Error::other(String::from_utf8_lossy(&answer).into_owned()));
        }
        let word = |bytes: &[u8]| u64::from_le_bytes(core::array::from_fn(|at| bytes[at]));
        Ok(answer.chunks_exact(8).map(word).collect())
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // The end of its input ends the process, which writes coverage and waves first.
        self.input = None;
        if !self.writes_at_end {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}
