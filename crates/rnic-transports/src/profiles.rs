//! Transports by name: the parts of which each one is composed.

mod falcon;
mod fasr;
mod irn;
mod irn_plus;
mod roce_ar;
mod roce_cx6cache;
mod roce_gbn;
mod roce_irnpaper;
mod roce_rttcc;
mod roce_sr;
mod srnic;
mod tcp;
mod tonic;

use std::path::Path;

use rnic_base::similar::hint;
use rnic_policy::{Configured, LawPolicy, ParamError, Params, Profile, ProfileError, RecoveryPolicy, Signals};
use rnic_program::{LawKind, file};

use crate::programs::{self, UseError};
use crate::{control, laws, paths, recovery, schedule};

/// Returns every transport with its defaults, in the order in which they are listed.
pub fn profiles() -> Vec<Profile> {
    let profiles = vec![
        roce_gbn::profile(),
        irn::profile(),
        roce_sr::profile(),
        roce_ar::profile(),
        roce_rttcc::profile(),
        roce_irnpaper::profile(),
        roce_cx6cache::profile(),
        tcp::profile(),
        irn_plus::profile(),
        srnic::profile(),
        fasr::profile(),
        falcon::profile(),
    ];
    profiles.into_iter().chain(tonic::profiles()).collect()
}

/// Returns the transport called `name`, with its defaults.
pub fn profile(name: &str) -> Option<Profile> {
    profiles().into_iter().find(|profile| profile.name == name)
}

/// Returns the name of a transport for readers: with the policies that have been exchanged, `roce-gbn + dcqcn`.
/// Programs from files are not named: [`Profile::loaded_programs`].
pub fn label(transport: &Profile) -> String {
    if transport.loaded_programs().is_some() {
        return transport.name.to_owned();
    }
    let policies = |profile: &Profile| {
        let Profile { recovery, control, paths, schedule, .. } = profile;
        [recovery.policy.name, control.policy.name, paths.policy.name, schedule.policy.name]
    };
    let own = profile(transport.name).map(|profile| policies(&profile));
    let exchanged = policies(transport).into_iter().zip(own.unwrap_or_default()).filter(|(chosen, own)| chosen != own);
    exchanged.fold(transport.name.to_owned(), |label, (chosen, _)| format!("{label} + {chosen}"))
}

/// Reason why a transport could not be composed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SelectError {
    /// No transport of that name exists.
    #[error(
        "unknown transport `{name}`; the available transports are: {known}; and files with a program, whose names end \
         in .rnicp, such as {name}.rnicp{}",
        hint(name, known.split(", "))
    )]
    UnknownTransport {
        /// The requested name.
        name: String,
        /// The existing names.
        known: String,
    },
    /// No policy of that name exists.
    #[error(
        "transport `{transport}`: unknown {kind} policy `{name}`; the available policies are: {known}{}",
        hint(name, known.split(", "))
    )]
    UnknownPolicy {
        /// The transport.
        transport: &'static str,
        /// `recovery`, `control`, `paths` or `schedule`.
        kind: &'static str,
        /// The requested name.
        name: String,
        /// The existing names.
        known: String,
    },
    /// A program file is not used.
    #[error("program {path}: {why}")]
    File {
        /// The file.
        path: String,
        /// The error.
        why: String,
    },
    /// A program needs another transport.
    #[error("transport `{transport}`: the program `{program}` does not run over it; name the transport `{needed}`")]
    OtherTransport {
        /// The requested transport.
        transport: &'static str,
        /// The program.
        program: &'static str,
        /// A transport over which it runs.
        needed: &'static str,
    },
    /// An option is unknown or its value is not valid.
    #[error("transport `{transport}`: {source}")]
    Option {
        /// The transport.
        transport: &'static str,
        /// The error in the option.
        source: ParamError,
    },
    /// The parts cannot be combined.
    #[error(transparent)]
    Composition(#[from] ProfileError),
}

/// Returns the transport called `name` with `options` applied: `recovery`, `control`, `paths` or `schedule` replace a
/// policy, by its name or by the path of the file of a law; `program` is the path of a program file whose program
/// decides instead of a `tonic-*` transport's own; every other name is a parameter of the profile or of one of its
/// policies. A name that ends in `.rnicp` is such a path too: the program runs over the transport that it needs.
///
/// # Errors
/// When a name is unknown, a value is not valid, or the composition is not valid.
pub fn select<'o>(
    name: &str,
    options: impl IntoIterator<Item = (&'o str, &'o str)> + Clone,
) -> Result<Profile, SelectError> {
    select_on(Signals::NONE, name, options)
}

/// Does the same as [`select`], for a network that provides the signals `network` in addition to those that the
/// endpoints measure themselves; [`Signals::PROBES`] means that the NICs exchange messages.
///
/// # Errors
/// As [`select`].
pub fn select_on<'o>(
    network: Signals,
    name: &str,
    options: impl IntoIterator<Item = (&'o str, &'o str)> + Clone,
) -> Result<Profile, SelectError> {
    let profile = base(name, options.clone().into_iter())?;
    compose(network, profile, options)
}

/// A program that was loaded from a file, to be put into transports.
#[derive(Clone, Copy, Debug)]
pub enum LoadedProgram {
    /// A transport program.
    Transport(RecoveryPolicy),
    /// A law.
    Law(LawPolicy),
}

impl LoadedProgram {
    /// Loads a program from `bytes`, the contents of a program file, and checks that it fulfils the contract of its
    /// interface ([`rnic_policy::kit`]).
    ///
    /// # Errors
    /// If the contents are not a valid program, or the program violates the contract.
    pub fn load(bytes: &[u8]) -> Result<Self, UseError> {
        match file::law_kind(bytes) {
            Some(_) => laws::load(bytes).map(Self::Law),
            None => programs::load(bytes).map(Self::Transport),
        }
    }

    /// Returns the name of the program.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Transport(policy) => policy.name,
            Self::Law(law) => law.name(),
        }
    }

    /// Returns the option of transports that such a program replaces.
    pub const fn option(&self) -> &'static str {
        match self {
            Self::Transport(_) => "program",
            Self::Law(law) => law.kind().name(),
        }
    }
}

/// Does the same as [`select_on`], with the programs `loaded`, which have been loaded already, in place of those that
/// the transport and its options name.
///
/// # Errors
/// As [`select`]; [`SelectError::OtherTransport`] when a program does not run over this transport.
pub fn select_with<'o>(
    network: Signals,
    name: &str,
    loaded: &[LoadedProgram],
    options: impl IntoIterator<Item = (&'o str, &'o str)> + Clone,
) -> Result<Profile, SelectError> {
    let is_replaced = |option: &str| loaded.iter().any(|program| program.option() == option);
    let options: Vec<_> = options.into_iter().filter(|(option, _)| !is_replaced(option)).collect();
    let options = options.iter().copied();
    let named = if programs::is_file(name) && is_replaced("program") { needed_by(name)? } else { name.to_owned() };
    let mut profile = base(&named, options.clone())?;
    for program in loaded {
        match *program {
            LoadedProgram::Transport(policy) => profile = use_program(profile, policy)?,
            LoadedProgram::Law(law) => put(&mut profile, law),
        }
    }
    compose(network, profile, options)
}

/// Returns the built-in transport that the program in the file at `path` needs.
fn needed_by(path: &str) -> Result<String, SelectError> {
    program_of(path).map(|policy| transport_needed(&policy).to_owned())
}

/// Returns the transport called `name` with the program that `name` or the option `program` stands for.
fn base<'o>(name: &str, options: impl Iterator<Item = (&'o str, &'o str)>) -> Result<Profile, SelectError> {
    let mut profile = if programs::is_file(name) {
        let policy = program_of(name)?;
        use_program(known_profile(transport_needed(&policy))?, policy)?
    } else {
        known_profile(name)?
    };
    if let Some((_, path)) = options.into_iter().find(|(option, _)| *option == "program") {
        profile = use_program(profile, program_of(path)?)?;
    }
    Ok(profile)
}

/// Puts `law` into `profile`, with its defaults.
fn put(profile: &mut Profile, law: LawPolicy) {
    match law {
        LawPolicy::Control(policy) => {
            profile.control = Configured { policy, params: Params::defaults(policy.params) };
        }
        LawPolicy::Schedule(policy) => {
            profile.schedule = Configured { policy, params: Params::defaults(policy.params) };
        }
        LawPolicy::Paths(policy) => profile.paths = Configured { policy, params: Params::defaults(policy.params) },
    }
}

fn known_profile(name: &str) -> Result<Profile, SelectError> {
    let known = || profiles().iter().map(|profile| profile.name).collect::<Vec<_>>().join(", ");
    profile(name).ok_or_else(|| SelectError::UnknownTransport { name: name.to_owned(), known: known() })
}

/// Returns the error of the program file at `path`.
fn of_file(path: &str, fault: &UseError) -> SelectError {
    let mut why = fault.to_string();
    if matches!(fault, UseError::Unreadable(_)) && Path::new(path).is_relative() {
        why += "; the path is relative to the folder in which the command runs";
    }
    SelectError::File { path: path.chars().filter(|c| !c.is_control()).collect(), why }
}

/// Returns the policy of the program in the file at `path`.
fn program_of(path: &str) -> Result<RecoveryPolicy, SelectError> {
    let bytes = programs::read(Path::new(path)).map_err(|error| of_file(path, &error.into()))?;
    programs::load(&bytes).map_err(|fault| of_file(path, &fault))
}

/// Returns the built-in transport that `policy` needs; `None` if it is not a transport program.
fn transport_needed(policy: &RecoveryPolicy) -> &'static str {
    policy.program.map_or("", |program| programs::transport_of(program.description()))
}

/// Returns `profile` with the program `policy` instead of its own. The profile must be a transport with a program and
/// the receiver that `policy` needs, with pulls if `policy` uses them.
///
/// # Errors
/// When `profile` is not such a transport.
fn use_program(mut profile: Profile, policy: RecoveryPolicy) -> Result<Profile, SelectError> {
    let own = &profile.recovery.policy;
    let is_token = transport_needed(&policy) == "tonic-ndp";
    if own.program.is_none() || own.placement != policy.placement || profile.pulls.is_some() != is_token {
        let needed = transport_needed(&policy);
        return Err(SelectError::OtherTransport { transport: profile.name, program: policy.name, needed });
    }
    profile.recovery = Configured { policy, params: Params::defaults(policy.params) };
    Ok(profile)
}

/// Applies `options` to `profile`, as [`select_on`] does; `program` has been applied.
fn compose<'o>(
    network: Signals,
    mut profile: Profile,
    options: impl IntoIterator<Item = (&'o str, &'o str)> + Clone,
) -> Result<Profile, SelectError> {
    // Policies are replaced first, regardless of the order in the plan, because the parameters of a policy only exist
    // after that.
    for (option, value) in options.clone() {
        exchange_part(&mut profile, option, value)?;
        if option == "schedule" && !profile.uses_scheduler() {
            return Err(ProfileError::NothingToSchedule(profile.name, profile.schedule.policy.name).into());
        }
    }
    for (option, value) in options {
        if !matches!(option, "recovery" | "control" | "paths" | "schedule" | "program") {
            let transport = profile.name;
            profile.set(option, value).map_err(|source| SelectError::Option { transport, source })?;
        }
    }
    profile.set_network(network);
    profile.check()?;
    Ok(profile)
}

fn exchange_part(profile: &mut Profile, kind: &str, name: &str) -> Result<(), SelectError> {
    let law_kind = [LawKind::Control, LawKind::Schedule, LawKind::Paths].into_iter().find(|law| law.name() == kind);
    if let Some(law_kind) = law_kind.filter(|_| programs::is_file(name)) {
        put(profile, laws::load_file(law_kind, Path::new(name)).map_err(|fault| of_file(name, &fault))?);
        return Ok(());
    }
    /// Finds the policy `name` in the registry of `$kind` and stores it in the field of that kind, with its defaults.
    macro_rules! exchange {
        ($kind:ident) => {{
            let policy = $kind::find(name).ok_or_else(|| SelectError::UnknownPolicy {
                transport: profile.name,
                kind: stringify!($kind),
                name: name.to_owned(),
                known: $kind::all().map(|policy| policy.name).collect::<Vec<_>>().join(", "),
            })?;
            if policy.name != profile.$kind.policy.name {
                profile.$kind = Configured { policy, params: Params::defaults(policy.params) };
            }
        }};
    }
    match kind {
        "recovery" => exchange!(recovery),
        "control" => exchange!(control),
        "paths" => exchange!(paths),
        "schedule" => exchange!(schedule),
        _ => {}
    }
    Ok(())
}
