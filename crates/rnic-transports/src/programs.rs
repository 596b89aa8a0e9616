//! Transport programs: each is a pair of functions that implement recovery and congestion control, and from which
//! SystemVerilog can be generated.
//!
//! Source: Tonic (NSDI'20) section 6.1.1, whose six programs these are. Each is a recovery policy too, called
//! `tonic-<program>`.

mod dcqcn;
mod irn;
mod ndp;
mod new_reno;
mod reno;
mod sack;
mod tcp;

use std::io::Read as _;
use std::path::Path;
use std::sync::LazyLock;

pub use rnic_program::file::FILE_BYTES_MAX;

use rnic_policy::kit::{Violation, check_recovery};
use rnic_policy::{LawError, ProgramPolicy, RecoveryPolicy};
#[cfg(feature = "jit")]
use rnic_program::Loaded;
use rnic_program::any::{self, ReadError};
use rnic_program::file::{self, FileError};
use rnic_program::{Description, LoadError, Lowering, Receiver, Scheme, Transport};

use crate::loaded::LoadedFiles;

/// A program of this crate and its name as a policy.
struct Registered {
    policy: &'static str,
    program: &'static dyn Transport,
}

/// The programs of this crate: a new one has a line here.
const REGISTRY: &[Registered] = &[
    Registered { policy: "tonic-reno", program: &reno::Reno },
    Registered { policy: "tonic-new-reno", program: &new_reno::NewReno },
    Registered { policy: "tonic-sack", program: &sack::Sack },
    Registered { policy: "tonic-ndp", program: &ndp::Ndp },
    Registered { policy: "tonic-dcqcn", program: &dcqcn::Dcqcn },
    Registered { policy: "tonic-irn", program: &irn::Irn },
];

/// Largest number of programs that a process loads from files: each stays in memory until the process ends, because a
/// connection may use it.
const LOADED_MAX: usize = 64;

/// Seed and number of the events of the contract kit before a program is used.
pub(crate) const KIT: (u64, u64) = (1, 10_000);

/// Returns every program, in the order in which they are listed.
pub fn all() -> impl Iterator<Item = &'static dyn Transport> {
    REGISTRY.iter().map(|registered| registered.program)
}

/// Returns the program called `name`, or the one that is the policy of this name.
pub fn find(name: &str) -> Option<&'static dyn Transport> {
    let is_it = |registered: &&Registered| registered.policy == name || registered.program.description().name == name;
    REGISTRY.iter().find(is_it).map(|registered| registered.program)
}

/// The policies of all programs, in the order in which they are listed.
static POLICIES: LazyLock<Vec<RecoveryPolicy>> = LazyLock::new(|| {
    let policy = |registered: &Registered| {
        let program = ProgramPolicy::new(registered.program).expect("tests check every registered program");
        RecoveryPolicy::of_program(registered.policy, Box::leak(Box::new(program)))
    };
    REGISTRY.iter().map(policy).collect()
});

/// Returns the recovery policies of all programs.
pub fn policies() -> &'static [RecoveryPolicy] {
    &POLICIES
}

/// Returns the built-in transport whose packets and receiver a program like `description` needs, and whose program
/// takes over where it answers outside the contract.
pub fn transport_of(description: &Description) -> &'static str {
    match (description.receiver, description.scheme) {
        (Receiver::Drops, _) => "tonic-dcqcn",
        (Receiver::Places, Scheme::Window) => "tonic-new-reno",
        (Receiver::Places, Scheme::Rate) => "tonic-irn",
        (Receiver::Places, Scheme::Token) => "tonic-ndp",
    }
}

/// The reason why a program file is not used.
#[derive(Debug, thiserror::Error)]
pub enum UseError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] std::io::Error),
    /// The file is not a program.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A program cannot be written as a file.
    #[error(transparent)]
    File(#[from] FileError),
    /// The program has a fault.
    #[error(transparent)]
    Program(#[from] LoadError),
    /// A law cannot be used.
    #[error(transparent)]
    Law(#[from] LawError),
    /// The program violates the contract of policies.
    #[error(transparent)]
    Contract(#[from] Violation),
    /// The process has loaded too many.
    #[error("the process has loaded {LOADED_MAX} programs already, and can load more after a restart only")]
    Many,
}

/// The programs that this process has loaded.
static LOADED: LoadedFiles<RecoveryPolicy> = LoadedFiles::new();

/// Returns whether `name`, which stands for a transport or a program, is the path of a program file (`.rnicp`) or of a
/// program as a WebAssembly module (`.wasm`).
pub fn is_file(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "rnicp" || extension == "wasm")
}

/// Returns the bytes of the program file at `path`, at most one more than a file may have.
///
/// # Errors
/// When it cannot be read.
#[expect(clippy::disallowed_types, reason = "a program file is an option of a transport, which is selected by texts")]
pub fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the contents of the file of `program`, after loading it: what [`load`] refuses is not written.
///
/// # Errors
/// When a function of it has no graph, its description has a fault, or it violates the contract.
pub fn to_file(program: &dyn Transport) -> Result<String, UseError> {
    let graphs = program.graphs(Lowering::Joins).map_err(LoadError::from)?;
    let description = program.description();
    description.check().map_err(LoadError::from)?;
    let text = file::write(&description, &graphs)?;
    load(text.as_bytes())?;
    Ok(text)
}

/// Checks the contents of a program file, runs the contract kit on the program, and returns it as a policy. Equal files
/// give the same policy. A program that violates the contract counts as a loaded one, as it stays in memory too.
///
/// # Errors
/// When the contents are not a program, or the program violates the contract.
pub fn load(bytes: &[u8]) -> Result<RecoveryPolicy, UseError> {
    LOADED.get(bytes, |known| if known == LOADED_MAX { Err(UseError::Many) } else { policy_of(any::read(bytes)?) })
}

/// Returns the policy of a program that was read from a file, after a run of the contract kit.
fn policy_of(program: Box<dyn Transport>) -> Result<Result<RecoveryPolicy, Violation>, UseError> {
    let program = prepared(program);
    let description = program.description();
    let substitute = policies().iter().find(|policy| policy.name == transport_of(&description));
    // Connections keep the program for as long as they exist, and profiles are copied freely.
    let program: &'static dyn Transport = Box::leak(program);
    let mut program = ProgramPolicy::new(program)?;
    if let Some(substitute) = substitute.and_then(|policy| policy.program) {
        program = program.with_substitute(substitute);
    }
    let name = String::leak(description.name.to_string());
    let policy = RecoveryPolicy::of_program(name, Box::leak(Box::new(program)));
    let (seed, events) = KIT;
    Ok(check_recovery(&policy, seed, events).map(|()| policy))
}

/// Returns `program` as machine code if it has graphs, and this processor has a compiler; otherwise `program`.
#[cfg(feature = "jit")]
pub fn prepared(program: Box<dyn Transport>) -> Box<dyn Transport> {
    let graphs = program.graphs(Lowering::Joins).ok();
    let graph = graphs.and_then(|graphs| Loaded::new(program.description(), graphs).ok());
    match graph.map(rnic_jit::Compiled::new) {
        Some(Ok(compiled)) => Box::new(compiled),
        _ => program,
    }
}

/// Returns `program`: this build has no compiler for graphs (feature `jit`).
#[cfg(not(feature = "jit"))]
pub fn prepared(program: Box<dyn Transport>) -> Box<dyn Transport> {
    program
}

#[cfg(all(test, any(feature = "jit", feature = "wasm")))]
mod cost;
#[cfg(test)]
mod ignored_tests;
#[cfg(all(test, feature = "jit"))]
mod jit_tests;
#[cfg(test)]
mod tests;
#[cfg(all(test, feature = "wasm"))]
mod wasm_tests;
