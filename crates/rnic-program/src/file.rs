//! Program files (`.rnicp`): a program or law as its graphs, to be loaded where no compiler is.
//!
//! A file is a TOML document: the version of the format, the inputs that programs have (so that a file of another
//! version is refused by name), the description, and for each function its nodes in the order of evaluation and the
//! nodes of its outputs. That of a law has one function, `decide`. It has no loop, call, memory or trap; checking it is
//! one pass, and its size bounds its cost.

use serde::{Deserialize, Serialize};

use crate::bundle::Bundle;
use crate::graph::{Graph, GraphError, Index, Kind, NODES_MAX, Node, Op, PORTS_MAX, Port};
use crate::interface::{Actions, Incoming, Periodic};
use crate::law::{LawDescription, LawKind, LoadedLaw};
use crate::loaded::{LoadError, Loaded};
use crate::transport::{Current, Description, Graphs};

/// Maximum size of a file in bytes; the largest possible program needs half of it.
pub const FILE_BYTES_MAX: usize = 256 << 10;

/// Version of the format.
const VERSION: u32 = 2;

/// Required value of the field `format`.
const FORMAT: &str = "rnic transport program";

/// Value of the field `format` of the file of a law.
const LAW_FORMAT: &str = "rnic law";

/// The reason why a file is not a program.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file is too large.
    #[error("the file has {0} bytes, at most {max} are possible", max = FILE_BYTES_MAX)]
    TooLarge(usize),
    /// The file is not TOML, or has missing or unknown fields.
    #[error("not a program file: {0}; make one by: rnic program build NAME --output FILE")]
    Form(String),
    /// The file has another value of `format`.
    #[error("the file is a `{found}`, which this version does not read; use one of the version that wrote it")]
    Format {
        /// Value in the file.
        found: String,
    },
    /// The file has another format version.
    #[error("the file has version {found} of the format, this program reads version {VERSION}; build it again")]
    Version {
        /// The version in the file.
        found: u32,
    },
    /// The file was built for other inputs or outputs of programs than this version has.
    #[error("the file was built for programs with other inputs or outputs ({found}, not {expected}); build it again")]
    Interface {
        /// Hash of the inputs and outputs of this version.
        expected: String,
        /// Hash in the file.
        found: String,
    },
    /// The file has a law, where a transport program is needed.
    #[error("the file has a law for {kind}, not a transport program; use it as the option {kind}=FILE of a transport")]
    Law {
        /// Name of the option that takes it.
        kind: &'static str,
    },
    /// The file has a transport program, where a law is needed.
    #[error("the file has a transport program, not a law for {kind}; name it as the transport")]
    Transport {
        /// Name of the option.
        kind: &'static str,
    },
    /// The file has a law of another kind.
    #[error("the file has a law for {found}, not for {kind}; use it as the option {found}=FILE")]
    OtherKind {
        /// Kind that is needed.
        kind: &'static str,
        /// Kind of the file.
        found: &'static str,
    },
    /// Too many nodes or outputs.
    #[error(
        "function {function}: {nodes} nodes and {outputs} outputs, at most {NODES_MAX} and {PORTS_MAX} are possible"
    )]
    TooLong {
        /// `incoming`, `periodic` or `decide`.
        function: &'static str,
        /// Number of nodes.
        nodes: usize,
        /// Number of outputs.
        outputs: usize,
    },
    /// A graph is invalid.
    #[error("function {function}: {source}")]
    Graph {
        /// `incoming`, `periodic` or `decide`.
        function: &'static str,
        /// The error.
        source: GraphError,
    },
    /// The graphs and the description do not agree.
    #[error(transparent)]
    Program(#[from] LoadError),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    format: String,
    version: u32,
    interface: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "file")]
    head: Head,
    program: Description,
    incoming: Function,
    periodic: Function,
}

/// The description of a program without its functions, as in a WebAssembly module.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Described {
    #[serde(rename = "file")]
    head: Head,
    program: Description,
}

/// The first fields of a file, which are read before the rest so that a file of another version is reported as such.
#[derive(Deserialize)]
struct Opening {
    #[serde(rename = "file")]
    head: Head,
}

/// A function: its nodes as operation, arguments and width, and the nodes of its outputs.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Function {
    nodes: Vec<(Op, [Index; 3], u8)>,
    outputs: Vec<Index>,
}

impl Function {
    fn of(graph: &Graph) -> Self {
        let nodes = graph.nodes().iter().map(|node| (node.op, node.args, node.width)).collect();
        Self { nodes, outputs: graph.outputs().iter().map(|(_, index)| *index).collect() }
    }
}

/// The file of a law.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LawFile {
    #[serde(rename = "file")]
    head: Head,
    law: LawDescription,
    decide: Function,
}

/// The part of a law's file that names its kind.
#[derive(Deserialize)]
struct LawOpening {
    law: LawKindOnly,
}

#[derive(Deserialize)]
struct LawKindOnly {
    kind: LawKind,
}

impl Head {
    fn current() -> Self {
        Self { format: FORMAT.to_owned(), version: VERSION, interface: interface_hash() }
    }

    fn of_law(kind: LawKind) -> Self {
        Self { format: LAW_FORMAT.to_owned(), version: VERSION, interface: law_hash(kind) }
    }

    /// Refuses heads of other versions than `expected`.
    fn check(&self, expected: &Self) -> Result<(), FileError> {
        if self.format != expected.format {
            let found = self.format.chars().filter(|c| !c.is_control()).take(40).collect();
            return Err(FileError::Format { found });
        }
        if self.version != expected.version {
            return Err(FileError::Version { found: self.version });
        }
        if self.interface != expected.interface {
            let found = self.interface.chars().filter(char::is_ascii_hexdigit).take(16).collect();
            return Err(FileError::Interface { expected: expected.interface.clone(), found });
        }
        Ok(())
    }
}

/// Returns a hash of the names and widths of all inputs and outputs of programs (FNV-1a, 64 bits).
pub fn interface_hash() -> String {
    hash(&[Incoming::ports("in"), Periodic::ports("in"), Current::ports("cur"), Actions::ports("act")].concat())
}

/// Does the same for the laws of a kind.
fn law_hash(kind: LawKind) -> String {
    hash(&kind.all_ports())
}

fn hash(ports: &[Port]) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for port in ports {
        let bits = if let Kind::Bits(bits) = port.kind { bits } else { 0 };
        for byte in port.name.bytes().chain([bits]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    format!("{hash:016x}")
}

/// Returns the text of a program file.
///
/// # Errors
/// When the description cannot be written; this does not happen for one that has been checked.
pub fn write(program: &Description, graphs: &Graphs) -> Result<String, FileError> {
    let head = Head::current();
    let (incoming, periodic) = (Function::of(&graphs.incoming), Function::of(&graphs.periodic));
    let file = File { head, program: program.clone(), incoming, periodic };
    toml::to_string(&file).map_err(|error| FileError::Form(error.to_string()))
}

/// Returns the text of a program's description, without its functions.
///
/// # Errors
/// When the description cannot be written; this does not happen for one that has been checked.
pub fn write_description(program: &Description) -> Result<String, FileError> {
    let described = Described { head: Head::current(), program: program.clone() };
    toml::to_string(&described).map_err(|error| FileError::Form(error.to_string()))
}

/// Reads and checks the description of a program, without its functions.
///
/// # Errors
/// As [`read`]; also when the text contains functions.
pub fn read_description(bytes: &[u8]) -> Result<Description, FileError> {
    let described: Described = parse(current(bytes)?)?;
    described.program.check().map_err(LoadError::from)?;
    Ok(described.program)
}

/// Returns the error of TOML about `text`, with its line, and whether the text may have been cut off: every file that
/// is written ends with a line.
fn form(text: &str, error: &toml::de::Error) -> FileError {
    let mut reason: String = error.message().chars().filter(|c| !c.is_control()).collect();
    if let Some(before) = error.span().and_then(|span| text.get(..span.start)) {
        reason += &format!(", line {}", before.matches('\n').count() + 1);
    }
    if !text.is_empty() && !text.ends_with('\n') {
        reason += "; it ends within a line, and may have been cut off";
    }
    FileError::Form(reason)
}

/// Reads a part of a file, or all of it.
fn parse<'t, T: Deserialize<'t>>(text: &'t str) -> Result<T, FileError> {
    toml::from_str(text).map_err(|error| form(text, &error))
}

/// Returns the text of a file, and its head.
fn opening(bytes: &[u8]) -> Result<(&str, Head), FileError> {
    if bytes.len() > FILE_BYTES_MAX {
        return Err(FileError::TooLarge(bytes.len()));
    }
    let text = str::from_utf8(bytes).map_err(|_| FileError::Form("it is not text".to_owned()))?;
    let opening: Opening = parse(text)?;
    Ok((text, opening.head))
}

/// Returns the text of a file of this version.
fn current(bytes: &[u8]) -> Result<&str, FileError> {
    let (text, head) = opening(bytes)?;
    if head.format == LAW_FORMAT {
        return Err(FileError::Law { kind: kind_of(text)?.name() });
    }
    head.check(&Head::current())?;
    Ok(text)
}

/// Returns the kind of the law in a file.
fn kind_of(text: &str) -> Result<LawKind, FileError> {
    let LawOpening { law } = parse(text)?;
    Ok(law.kind)
}

/// Returns the kind of the law in a file; nothing for a file of another form, and for a transport program.
pub fn law_kind(bytes: &[u8]) -> Option<LawKind> {
    let (text, head) = opening(bytes).ok()?;
    kind_of(text).ok().filter(|_| head.format == LAW_FORMAT)
}

/// Returns the text of the file of a law.
///
/// # Errors
/// When the description cannot be written, which no checked one causes.
pub fn write_law(law: &LawDescription, graph: &Graph) -> Result<String, FileError> {
    let file = LawFile { head: Head::of_law(law.kind), law: law.clone(), decide: Function::of(graph) };
    toml::to_string(&file).map_err(|error| FileError::Form(error.to_string()))
}

/// Reads and checks the file of a law.
///
/// # Errors
/// As [`read`].
pub fn read_law(bytes: &[u8]) -> Result<LoadedLaw, FileError> {
    let (text, head) = opening(bytes)?;
    head.check(&Head::of_law(kind_of(text)?))?;
    let LawFile { law, decide, .. } = parse(text)?;
    law.check().map_err(LoadError::from)?;
    let graph = graph("decide", law.inputs(), law.outputs(), decide)?;
    Ok(LoadedLaw::new(law, graph)?)
}

/// Checks that a file has a law of this kind, as far as its first lines tell.
///
/// # Errors
/// When it is of another kind, a transport program, or no program file.
pub fn check_law_kind(kind: LawKind, bytes: &[u8]) -> Result<(), FileError> {
    let (text, head) = opening(bytes)?;
    if head.format == FORMAT {
        return Err(FileError::Transport { kind: kind.name() });
    }
    let found = kind_of(text)?;
    if found == kind { Ok(()) } else { Err(FileError::OtherKind { kind: kind.name(), found: found.name() }) }
}

/// Reads and checks a file.
///
/// # Errors
/// When the file is too large, has another form or version, or is invalid; the program is then not loaded.
pub fn read(bytes: &[u8]) -> Result<Loaded, FileError> {
    let text = current(bytes)?;
    let file: File = parse(text)?;
    file.program.check().map_err(LoadError::from)?;
    let function = |name, inputs, read| graph(name, inputs, crate::loaded::outputs(&file.program), read);
    let incoming = function("incoming", crate::loaded::inputs::<Incoming>(&file.program), file.incoming)?;
    let periodic = function("periodic", crate::loaded::inputs::<Periodic>(&file.program), file.periodic)?;
    Ok(Loaded::new(file.program, Graphs { incoming, periodic })?)
}

/// Builds the graph of a function with the ports that follow from its description.
fn graph(function: &'static str, inputs: Vec<Port>, expected: Vec<Port>, read: Function) -> Result<Graph, FileError> {
    let (nodes, outputs) = (read.nodes.len(), read.outputs.len());
    if nodes > NODES_MAX || outputs != expected.len() {
        return Err(FileError::TooLong { function, nodes, outputs });
    }
    let nodes = read.nodes.into_iter().map(|(op, args, width)| Node { op, args, width }).collect();
    let outputs: Vec<(Port, Index)> = expected.into_iter().zip(read.outputs).collect();
    Graph::new(inputs, outputs, nodes).map_err(|source| FileError::Graph { function, source })
}

#[cfg(test)]
pub(crate) mod tests {
    use rnic_base::RandomStreams;

    use super::*;
    use crate::prelude::*;
    use crate::{Fields as _, Lowering, Stimuli, Transport};

    crate::transport! {
        /// a test
        program Repeat("repeat") {
            scheme: window,
            start: { window: cap, rate: 0, timer: rto },
        }
        state State {
            /// Number of repeats.
            repeats: 8,
        }
        parameters Parameters {
            /// segments in flight at most
            cap: 8 = 32 [1..=128],
            /// time without progress
            rto: 24 = 320 us,
        }
    }

    #[program]
    pub(super) fn incoming(i: &Incoming, p: &Parameters, s: &mut State, a: &mut Actions) {
        a.mark = i.nack;
        a.from = i.start;
        a.to = i.start + i.acked.first_zero(1).to::<24>();
        if i.nack && s.repeats < p.cap {
            s.repeats += 1;
        }
    }

    #[program]
    pub(super) fn periodic(v: &Periodic, _p: &Parameters, _s: &mut State, a: &mut Actions) {
        a.mark = v.expired;
        a.from = v.start;
        a.to = v.next;
    }

    fn text() -> String {
        let graphs = Repeat.graphs(Lowering::Joins).expect("it has graphs");
        write(&Repeat.description(), &graphs).expect("it is written")
    }

    #[test]
    fn t19_a_program_file_is_the_program() {
        let loaded = read(text().as_bytes()).expect("the file is valid");
        assert_eq!(loaded.description(), Repeat.description());
        let mut stimuli = Stimuli::new(5);
        let (mut state, mut by_file) = (vec![0], vec![0]);
        for _ in 0..2_000 {
            let packet = stimuli.incoming();
            let (mut actions, mut answers) = (Actions::default(), Actions::default());
            Repeat.incoming(&packet, &[4, 2_000], &mut state, &mut actions);
            loaded.incoming(&packet, &[4, 2_000], &mut by_file, &mut answers);
            assert_eq!((state.clone(), actions), (by_file.clone(), answers));
        }
    }

    #[test]
    fn files_of_other_versions_and_forms_are_refused_with_the_reason() {
        let reason = |text: &str| read(text.as_bytes()).expect_err("it is refused").to_string();
        assert!(reason("hello").contains("not a program file"));
        assert!(reason("hello").ends_with("make one by: rnic program build NAME --output FILE"));
        let whole = text();
        let (half, cut) = (reason(&whole[..whole.len() / 2]), "it ends within a line, and may have been cut off");
        assert!(half.contains(cut) && half.contains(", line "), "{half}");
        assert!(!reason("a = 1\nb = \n").contains(cut) && reason("a = 1\nb = \n").contains(", line 2"));
        assert!(reason(&text().replace("version = 2", "version = 7")).contains("version 7"));
        assert!(reason(&text().replace(FORMAT, "rnic wire")).contains("`rnic wire`"));
        assert!(reason(&text().replace(&interface_hash(), "0123")).contains("other inputs or outputs"));
        assert!(reason(&text().replace("bits = 8", "bits = 200")).contains("200 bits"));
        assert!(reason(&text().replace("bits = 8", "bits = 9")).contains("width"));
        assert!(reason(&" ".repeat(FILE_BYTES_MAX + 1)).contains("at most"));
        for error in [reason("[a]"), reason(&text().replace("repeat", "a\\nb"))] {
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }

    /// Passes mutants of the file `original` to `run`, which returns whether it is accepted; some are, and others are
    /// refused. `RNIC_PROGRAM_FILES` sets how many.
    fn mutate(original: &str, mut run: impl FnMut(&[u8], u64) -> bool) {
        let wanted = option_env!("RNIC_PROGRAM_FILES").and_then(|text| text.parse().ok());
        let mut random = RandomStreams::new(3).stream("files");
        let (mut accepted, mut refused) = (0, 0);
        for seed in 0..wanted.unwrap_or(20_000) {
            let mut bytes = original.as_bytes().to_vec();
            for _ in 0..random.between(1, 4) {
                let at = random.below(bytes.len() as u64) as usize;
                match random.below(4) {
                    0 => bytes[at] = b"0123456789,[]{}\"=-"[random.below(18) as usize],
                    1 => drop(bytes.remove(at)),
                    2 => bytes.insert(at, b"0123456789"[random.below(10) as usize]),
                    _ => bytes[at] = random.bits() as u8,
                }
            }
            *(if run(&bytes, seed) { &mut accepted } else { &mut refused }) += 1;
        }
        assert!(accepted > 0 && refused > 0, "{accepted} accepted, {refused} refused");
    }

    /// Mutated files are refused, or are programs that run to their end.
    #[test]
    fn t19_hostile_files_are_refused_or_harmless() {
        mutate(&text(), |bytes, seed| {
            let Ok(loaded) = read(bytes) else { return false };
            let program = loaded.description();
            let mut stimuli = Stimuli::with_invalid(seed, 128);
            let mut state = program.initial_state(&program.defaults());
            for _ in 0..16 {
                let parameters = stimuli.parameters(&program.parameters);
                let mut actions = stimuli.actions();
                loaded.incoming(&stimuli.incoming(), &parameters, &mut state, &mut actions);
                loaded.periodic(&stimuli.periodic(), &parameters, &mut state, &mut actions);
            }
            true
        });
    }

    mod marks {
        use crate::prelude::*;

        crate::law! {
            /// Halves its window after a mark.
            law Marks("marks") for control
            state State {
                window: 24 = first,
            }
            parameters Parameters {
                /// first window
                first: 24 = 1000 [1..=2000],
            }
        }

        #[program]
        pub fn decide(e: &ControlInput, p: &Parameters, s: &mut State, a: &mut ControlOutput) {
            if e.marked != 0 && s.window > p.first >> 4 {
                s.window = s.window >> 1;
            }
            a.window = s.window;
        }
    }

    #[test]
    fn t28_hostile_files_of_laws_are_refused_or_harmless() {
        let graph = marks::Marks.graph(Lowering::Joins).expect("it has a graph");
        let text = write_law(&marks::Marks.description(), &graph).expect("it is written");
        mutate(&text, |bytes, seed| {
            let Ok(loaded) = read_law(bytes) else { return false };
            let law = loaded.description();
            let ports = law.kind.event_ports();
            let mut stimuli = Stimuli::with_invalid(seed, 128);
            let mut state = law.initial_state(&law.defaults());
            let mut output = vec![0; law.kind.output_words()];
            for _ in 0..16 {
                let parameters = stimuli.parameters(&law.parameters);
                loaded.decide(&stimuli.words(&ports), &parameters, &mut state, &mut output);
            }
            true
        });
    }
}
