//! Models of circuits by Verilator, as child processes.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rnic_program::{Graph, verilog};

use crate::shim;
use crate::tools::{ToolError, run, write};

/// An executable, built with Verilator, that simulates several SystemVerilog modules.
#[derive(Debug)]
pub struct Verilated {
    folder: tempfile::TempDir,
    names: Vec<String>,
}

impl Verilated {
    /// Emits `modules` (names and graphs), lints them, and compiles their models.
    ///
    /// # Errors
    /// When a tool is missing, warns or fails.
    pub fn build(modules: &[(String, &Graph)]) -> Result<Self, ToolError> {
        let folder = tempfile::tempdir().map_err(|source| ToolError::File { path: "a new folder".into(), source })?;
        let at = folder.path();
        write(&at.join("program_maps.sv"), verilog::LIBRARY)?;
        write(&at.join("main.cpp"), &shim::text(modules))?;
        for (name, graph) in modules {
            write(&at.join(format!("{name}.sv")), &verilog::emit(name, graph))?;
        }
        let root = run(at, "verilator", &["--getenv".into(), "VERILATOR_ROOT".into()])?;
        let compiler = Compiler { folder: at.to_owned(), include: Path::new(root.trim()).join("include") };
        compiler.models(modules)?;
        compiler.link(modules)?;
        Ok(Self { folder, names: modules.iter().map(|(name, _)| name.clone()).collect() })
    }

    /// Starts the model of the module called `name`.
    ///
    /// # Errors
    /// When there is no such module, or the process cannot be started.
    pub fn start(&self, name: &str, graph: &Graph) -> Result<Model, ToolError> {
        let failed = |source| ToolError::Start { tool: format!("the model of {name}"), source };
        let number = self.names.iter().position(|known| known == name);
        let number = number.ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))?;
        let mut child = Command::new(self.folder.path().join("models"))
            .arg(number.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let ends = child.stdin.take().zip(child.stdout.take());
        let (input, output) = ends.ok_or_else(|| failed(std::io::ErrorKind::BrokenPipe.into()))?;
        Ok(Model { child, input, output, inputs: shim::input_words(graph), outputs: graph.outputs().len() })
    }
}

/// Compiles SystemVerilog modules with Verilator.
struct Compiler {
    folder: PathBuf,
    include: PathBuf,
}

impl Compiler {
    /// Makes an object file of each module: two at a time, on as many processors as CI has.
    fn models(&self, modules: &[(String, &Graph)]) -> Result<(), ToolError> {
        let names: Vec<&str> = modules.iter().map(|(name, _)| name.as_str()).collect();
        let (first, second) = names.split_at(names.len() / 2);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| second.iter().try_for_each(|name| self.model(name)));
            first.iter().try_for_each(|name| self.model(name))?;
            other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn model(&self, name: &str) -> Result<(), ToolError> {
        let arguments = format!(
            "--cc -O3 --no-timing --x-assign unique --x-initial unique -Wall -Wno-DECLFILENAME -Wno-UNUSEDSIGNAL \
             -Wno-UNSIGNED --prefix V{name} --top-module {name} --Mdir {name} {name}.sv program_maps.sv"
        );
        run(&self.folder, "verilator", &words(&arguments))?;
        let folder = self.folder.join(name);
        let entries = std::fs::read_dir(&folder)
            .map_err(|source| ToolError::File { path: folder.display().to_string(), source })?;
        let mut sources: Vec<String> =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        sources.retain(|file| file.ends_with(".cpp"));
        sources.sort();
        let all: String = sources.iter().map(|file| format!("#include \"{file}\"\n")).collect();
        write(&folder.join("all.cxx"), &all)?;
        self.compile(&format!("{name}/all.cxx"), &format!("{name}.o"))
    }

    fn compile(&self, source: &str, object: &str) -> Result<(), ToolError> {
        let include = self.include.display();
        let arguments = format!("-O1 -std=c++17 -w -I{include} -I{include}/vltstd -I. -c {source} -o {object}");
        run(&self.folder, "g++", &words(&arguments)).map(drop)
    }

    fn link(&self, modules: &[(String, &Graph)]) -> Result<(), ToolError> {
        let include = self.include.display();
        let folders: String = modules.iter().map(|(name, _)| format!(" -I{name}")).collect();
        let objects: String = modules.iter().map(|(name, _)| format!(" {name}.o")).collect();
        let arguments = format!(
            "-O1 -std=c++17 -w -I{include} -I{include}/vltstd{folders} main.cpp {include}/verilated.cpp \
             {include}/verilated_threads.cpp{objects} -o models -lpthread"
        );
        run(&self.folder, "g++", &words(&arguments)).map(drop)
    }
}

fn words(arguments: &str) -> Vec<String> {
    arguments.split_whitespace().map(str::to_owned).collect()
}

/// The running model of one module.
#[derive(Debug)]
pub struct Model {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
    inputs: usize,
    outputs: usize,
}

impl Model {
    /// Runs the circuit on `records`, each of which has one word per input of the module, and returns the words of the
    /// outputs.
    ///
    /// # Errors
    /// When the process has ended.
    ///
    /// # Panics
    /// When the last record is not complete.
    pub fn run(&mut self, records: &[u64]) -> std::io::Result<Vec<u64>> {
        assert_eq!(records.len() % self.inputs, 0, "a record is not complete");
        let count = records.len() / self.inputs;
        let mut bytes = (count as u64).to_le_bytes().to_vec();
        bytes.extend(records.iter().flat_map(|word| word.to_le_bytes()));
        self.input.write_all(&bytes)?;
        self.input.flush()?;
        let mut answer = vec![0; count * self.outputs * 8];
        self.output.read_exact(&mut answer)?;
        let word = |bytes: &[u8]| u64::from_le_bytes(core::array::from_fn(|at| bytes[at]));
        Ok(answer.chunks_exact(8).map(word).collect())
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
