//! `rnic program`: transport programs and laws as reports, circuits and files.

mod header;
mod law;
mod module;

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use rnic_host::observe::{self, ControlReply, Endpoint, ProgramRequest};
use rnic_program::fields::Text;
use rnic_program::{Fields, Graph, Graphs, Initial, Law, Lowering, Scheme, Stimuli, Transport};
use rnic_program::{any, dot, file, graph, verilog};
use rnic_transports::{LoadedProgram, laws, programs};
use serde::Serialize;

use crate::args::{Form, ProgramAction, ProgramArgs};
use crate::failure::Failure;
use crate::running::{self, Answers};
use crate::{console, new, table};

/// Random events of each function in a check.
const CHECKED_EVENTS: u64 = 10_000;

/// A program, as reports describe it.
#[derive(Debug, Serialize)]
struct Summary {
    name: String,
    summary: String,
    scheme: Scheme,
    state_bits: u32,
    /// Lines of the source; none when unknown.
    lines: Option<u32>,
    /// The functions; none of a WebAssembly module, which has no graphs.
    #[serde(skip_serializing_if = "Option::is_none")]
    incoming: Option<Function>,
    #[serde(skip_serializing_if = "Option::is_none")]
    periodic: Option<Function>,
}

/// A function of a program.
#[derive(Debug, Serialize)]
struct Function {
    operations: usize,
    /// Levels of logic on the longest path: an estimate.
    levels: u32,
}

impl Function {
    fn of(graph: &Graph) -> Self {
        Self { operations: graph.operations(), levels: graph.levels().into_iter().max().unwrap_or(0) }
    }
}

/// The JSON object of `rnic program list`.
#[derive(Debug, Serialize)]
struct Listed {
    programs: Vec<Summary>,
    laws: Vec<law::Summary>,
}

/// The JSON object of `rnic program check`.
#[derive(Debug, Serialize)]
struct Checked {
    program: Summary,
    /// `native`, `interpreted` or `compiled`.
    executor: &'static str,
    events: u64,
}

/// A program of either sort.
enum Found {
    /// A transport program and its graphs; a WebAssembly module has none.
    Transport(&'static dyn Transport, Option<Graphs>),
    /// A law and its graph.
    Law(law::Found),
}

/// Runs `rnic program`.
///
/// # Errors
/// When there is no such program, a file cannot be read or written, or its contents are not a program.
pub fn run(args: &ProgramArgs) -> Result<(), Failure> {
    match &args.action {
        ProgramAction::List { json } => list(*json),
        ProgramAction::Explain { program, json } => {
            match find(program)? {
                Found::Transport(program, graphs) => explain(program, graphs.as_ref(), *json),
                Found::Law(found) => law::explain(&found, *json),
            }
            Ok(())
        }
        ProgramAction::Emit { program, form } => {
            console::print(&match find(program)? {
                Found::Transport(program, graphs) => emit(program, graphs.as_ref(), *form)?,
                Found::Law(found) => law::emit(&found, *form)?,
            });
            Ok(())
        }
        ProgramAction::Build { program, description, output } => build(program, description.as_deref(), output),
        ProgramAction::Check { file, json } => check(file, *json),
        ProgramAction::Load { pid, program, json } => load_into(*pid, program, *json),
    }
}

/// The JSON object of `rnic program load`.
#[derive(Debug, Serialize)]
struct LoadedInto {
    pid: u32,
    /// Name of the program; none for those with which the device was opened.
    program: Option<String>,
    /// Transports in which it decides, of all devices of the process.
    transports: Vec<String>,
    /// Queue pairs that exist, and keep the program with which they were created.
    queue_pairs_kept: u64,
}

/// Loads the program file `name`, or with `none` takes out what was loaded, in process `pid`.
fn load_into(pid: u32, name: &str, json: bool) -> Result<(), Failure> {
    let program_file = match name {
        "none" => None,
        _ => {
            let path = Path::new(name);
            let bytes = programs::read(path).map_err(|reason| Failure::file(path, reason))?;
            // A file that is no program is refused before the process is asked, with its name.
            read(path, &bytes)?;
            Some(bytes)
        }
    };
    let request = ProgramRequest { program_file };
    let send = |device: &Endpoint, timeout| observe::load_program(device, &request, timeout);
    let loaded = |reply| match reply {
        ControlReply::Loaded { program, transports } => Some((program, transports)),
        _ => None,
    };
    let Answers { done, mut reasons } = running::request(pid, LOAD_TIMEOUT, send, loaded)?;
    // A process may have devices with other transports: one that takes the program is enough.
    if let Some(reason) = reasons.pop().filter(|_| done.is_empty()) {
        return Err(Failure::input(reason));
    }
    let program = done.first().and_then(|(program, _)| program.clone());
    let transports: Vec<String> = done.into_iter().flat_map(|(_, transports)| transports).collect();
    let queue_pairs_kept = running::queue_pairs(pid)?;
    let kept = match queue_pairs_kept {
        0 => "there are no others".to_owned(),
        1 => "the existing one keeps its program".to_owned(),
        count => format!("the {count} existing ones keep their programs"),
    };
    let new = format!("new queue pairs of {}", transports.join(", "));
    let text = match (&program, &transports[..]) {
        (Some(program), _) => format!("process {pid}: `{program}` decides in {new}; {kept}\n"),
        (None, []) => format!("process {pid}: no program was loaded\n"),
        (None, _) => format!("process {pid}: {new} are as at the start; {kept}\n"),
    };
    console::result(&text, json.then_some(&LoadedInto { pid, program, transports, queue_pairs_kept }));
    Ok(())
}

/// Longest time for an answer: the process runs the contract kit on the program before.
const LOAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Writes the file of the program called `name`, of that in the package in this folder, or of that in the module at
/// this path, with the description in the file `described`.
fn build(name: &str, described: Option<&Path>, output: &Path) -> Result<(), Failure> {
    if Path::new(name).is_dir() && described.is_none() {
        return new::build(name.as_ref(), output);
    }
    let is_module = |path: &Path| path.extension().is_some_and(|extension| extension == "wasm");
    let bytes = match described {
        Some(described) if is_module(Path::new(name)) => module::with_description(Path::new(name), described)?,
        Some(_) => return Err(Failure::input("--description is for a WebAssembly module (FILE.wasm)")),
        None => match find(name)? {
            Found::Transport(program, graphs) if is_module(output) => module::emit(program, graphs)?,
            Found::Transport(program, _) => programs::to_file(program).map_err(Failure::input)?.into_bytes(),
            Found::Law(_) if is_module(output) => {
                return Err(Failure::input("only transport programs become WebAssembly modules"));
            }
            Found::Law((law, _)) => laws::to_file(law).map_err(Failure::input)?.into_bytes(),
        },
    };
    std::fs::write(output, bytes).map_err(|reason| Failure::file(output, reason))
}

/// Returns the program called `name`, or that of the file at this path.
fn find(name: &str) -> Result<Found, Failure> {
    if programs::is_file(name) {
        return load(Path::new(name));
    }
    if let Some(law) = law::find(name) {
        return law.map(Found::Law);
    }
    let Some(program) = programs::find(name) else {
        let known = programs::all().map(|program| program.description().name.into_owned());
        let known: Vec<String> = known.chain(laws::all().map(|(policy, _)| policy.to_owned())).collect();
        let known = known.join(", ");
        return Err(Failure::input(format!(
            "no program `{name}`; there are {known}, and files that end in .rnicp or .wasm"
        )));
    };
    let graphs = program.graphs(Lowering::Joins).map_err(Failure::input)?;
    Ok(Found::Transport(program, Some(graphs)))
}

/// Returns the program in the file at `path`.
fn load(path: &Path) -> Result<Found, Failure> {
    let bytes = programs::read(path).map_err(|reason| Failure::file(path, reason))?;
    read(path, &bytes)
}

/// Returns the program in `bytes`, the contents of the file at `path`. A command uses one program until it ends, so it
/// is not freed.
fn read(path: &Path, bytes: &[u8]) -> Result<Found, Failure> {
    if file::law_kind(bytes).is_some() {
        let law: &'static dyn Law = Box::leak(Box::new(file::read_law(bytes).map_err(|why| Failure::file(path, why))?));
        return Ok(Found::Law((law, law.graph(Lowering::Joins).map_err(Failure::input)?)));
    }
    let program = any::read(bytes).map_err(|why| Failure::file(path, why))?;
    let program: &'static dyn Transport = Box::leak(programs::prepared(program));
    // Only a module has no graphs.
    Ok(Found::Transport(program, program.graphs(Lowering::Joins).ok()))
}

fn summary(program: &dyn Transport, graphs: Option<&Graphs>) -> Summary {
    let description = program.description();
    Summary {
        state_bits: description.state_bits(),
        name: description.name.into_owned(),
        summary: description.summary.into_owned(),
        scheme: description.scheme,
        lines: Some(description.lines).filter(|lines| *lines > 0),
        incoming: graphs.map(|graphs| Function::of(&graphs.incoming)),
        periodic: graphs.map(|graphs| Function::of(&graphs.periodic)),
    }
}

fn list(json: bool) -> Result<(), Failure> {
    let mut programs = Vec::new();
    for program in programs::all() {
        let graphs = program.graphs(Lowering::Joins).map_err(Failure::input)?;
        programs.push(summary(program, Some(&graphs)));
    }
    let rows = programs.iter().map(|program| {
        vec![
            program.name.clone(),
            format!("{:?}", program.scheme).to_lowercase(),
            program.state_bits.to_string(),
            program.lines.map_or(String::new(), |lines| lines.to_string()),
            levels(program),
            program.summary.clone(),
        ]
    });
    let head = ["program", "scheme", "state, bits", "lines", "levels", ""];
    let mut text = format!("{}\n", table::results(&head, rows.collect()));
    let laws = law::all()?;
    let rows = laws.iter().map(|law| {
        let lines = law.lines.map_or(String::new(), |lines| lines.to_string());
        let Function { levels, .. } = law.decide;
        vec![
            law.name.clone(),
            law.kind.name().to_owned(),
            law.state_bits.to_string(),
            lines,
            levels.to_string(),
            law.summary.clone(),
        ]
    });
    let head = ["law", "option", "state, bits", "lines", "levels", ""];
    text += &format!("\n{}\n", table::results(&head, rows.collect()));
    console::result(&text, json.then_some(&Listed { programs, laws }));
    Ok(())
}

/// Returns the levels of both functions as text.
fn levels(program: &Summary) -> String {
    match (&program.incoming, &program.periodic) {
        (Some(incoming), Some(periodic)) => format!("{} and {}", incoming.levels, periodic.levels),
        _ => "unknown".to_owned(),
    }
}

fn explain(program: &dyn Transport, graphs: Option<&Graphs>, json: bool) {
    let summary = summary(program, graphs);
    let description = program.description();
    let mut text = format!("{}: {}\n\n", summary.name, summary.summary);
    let (window, timer) = (show_initial(&description.start.window), show_initial(&description.start.timer));
    let scheme = format!("{:?}", description.scheme).to_lowercase();
    let _ = writeln!(text, "scheme      {scheme}; window {window}, timer {timer}");
    text += &parts(&description);
    let functions = graphs.iter().flat_map(|graphs| [("incoming", &graphs.incoming), ("periodic", &graphs.periodic)]);
    functions.for_each(|(name, graph)| text += &paths(name, graph));
    console::result(&text, json.then_some(&summary));
}

fn show_initial(initial: &Initial) -> String {
    match initial {
        Initial::Constant(value) => value.to_string(),
        Initial::Parameter(name) => name.to_string(),
    }
}

/// Returns the lines about the state and the parameters of a program.
fn parts(described: &impl Fields) -> String {
    let mut text = format!("state       {} bits\n", described.state_bits());
    for field in described.state() {
        let initial = show_initial(&field.initial);
        let _ = writeln!(text, "  {:<18} {:>2} bits, from {initial}", field.name, field.bits);
    }
    text += "parameters\n";
    for parameter in described.parameters() {
        let value = parameter.show(parameter.default);
        let _ = writeln!(text, "  {:<18} {value:>9}  {}", parameter.name, parameter.help);
    }
    text
}

/// Returns the lines about the longest paths of a function.
fn paths(name: &str, graph: &Graph) -> String {
    let Function { operations, levels } = Function::of(graph);
    let of_a_cycle = graph::LEVELS_OF_A_CYCLE;
    let mut text = format!("{name}    {operations} operations, {levels} levels (estimate; a cycle has {of_a_cycle})\n");
    let mut paths: Vec<(u32, &str)> =
        graph.levels().into_iter().zip(graph.outputs().iter().map(|(port, _)| port.name.as_str())).collect();
    paths.sort_by(|one, other| other.cmp(one));
    for (levels, output) in paths.iter().take(3) {
        let _ = writeln!(text, "  {output:<18} {levels:>2} levels");
    }
    text
}

fn emit(program: &dyn Transport, graphs: Option<&Graphs>, form: Form) -> Result<String, Failure> {
    let description = program.description();
    match form {
        Form::Description => return file::write_description(&description).map_err(Failure::input),
        Form::Header => return Ok(header::emit(&description)),
        Form::Sv | Form::Graph => {}
    }
    let name: Text = description.name;
    let Some(graphs) = graphs else {
        return Err(Failure::input(format!("`{name}` is a WebAssembly module, which has no graph, and so no gates")));
    };
    let functions = [("incoming", &graphs.incoming), ("periodic", &graphs.periodic)];
    let modules = functions.map(|(function, graph)| (verilog::module_name(&name, function), graph));
    Ok(match form {
        Form::Graph => modules.map(|(module, graph)| dot::emit(&module, graph)).join("\n"),
        _ => {
            let mut text = circuit_head(&format!("The transport program `{name}`: {}", description.summary));
            text += "// Units: segments (window), bytes per 65,536 cycles of 10 ns (rate), ticks of 160 ns (timer).\n";
            let modules = modules.map(|(module, graph)| (verilog::emit(&module, graph), verilog::uses_library(graph)));
            text + &circuit(&modules)
        }
    })
}

/// Returns the comments at the head of a circuit.
fn circuit_head(about: &str) -> String {
    format!(
        "// {about}\n// Emitted by rnic {}. Inputs: in_ (event), cfg_ (parameters), state_ (state), cur_ (present \
         settings).\n// Outputs: next_ (state), act_ (actions).\n",
        env!("CARGO_PKG_VERSION")
    )
}

/// Joins the texts of modules, and adds those that they instantiate, if they do.
fn circuit(modules: &[(String, bool)]) -> String {
    let mut texts: Vec<&str> = modules.iter().map(|(text, _)| text.as_str()).collect();
    texts.extend(modules.iter().any(|(_, uses_library)| *uses_library).then_some(verilog::LIBRARY));
    texts.join("\n")
}

fn check(path: &Path, json: bool) -> Result<(), Failure> {
    let bytes = match programs::read(path) {
        Ok(bytes) => bytes,
        Err(_) if path.to_str().is_some_and(|name| find(name).is_ok()) => {
            let name = path.display();
            let build = format!("a built-in program; make a file of it by: rnic program build {name} --output FILE");
            return Err(Failure::file(path, build));
        }
        Err(reason) => return Err(Failure::file(path, reason)),
    };
    let found = read(path, &bytes)?;
    // As before every use of the file, with the contract kit.
    LoadedProgram::load(&bytes).map_err(|reason| Failure::file(path, reason))?;
    let (loaded, graphs) = match found {
        Found::Transport(program, graphs) => (program, graphs),
        Found::Law(found) => {
            law::check(path, &found, json);
            return Ok(());
        }
    };
    let program = loaded.description();
    let mut stimuli = Stimuli::new(1);
    let mut state = program.initial_state(&program.defaults());
    for _ in 0..CHECKED_EVENTS {
        let parameters = stimuli.parameters(&program.parameters);
        let mut actions = stimuli.actions();
        loaded.incoming(&stimuli.incoming(), &parameters, &mut state, &mut actions);
        loaded.periodic(&stimuli.periodic(), &parameters, &mut state, &mut actions);
    }
    let executor = loaded.executor();
    let summary = summary(loaded, graphs.as_ref());
    let text = format!(
        "{}: a program, `{}`; {} bits of state, {} levels, {}; {CHECKED_EVENTS} random events of each function, and \
         the contract kit\n",
        path.display(),
        summary.name,
        summary.state_bits,
        levels(&summary),
        executor.name(),
    );
    let checked = Checked { program: summary, executor: executor.name(), events: CHECKED_EVENTS };
    console::result(&text, json.then_some(&checked));
    Ok(())
}
