//! Transports by name: which parts make one.

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

use rnic_policy::{Configured, ParamError, Params, Profile, ProfileError, Signals};

use crate::{control, paths, recovery, schedule};

/// Every transport, with its defaults, in the order in which they are listed.
pub fn profiles() -> Vec<Profile> {
    vec![
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
    ]
}

/// The transport called `name`, with its defaults.
pub fn profile(name: &str) -> Option<Profile> {
    profiles().into_iter().find(|profile| profile.name == name)
}

/// Why a transport could not be made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SelectError {
    /// No such transport.
    #[error("unknown transport `{name}`; there are: {known}")]
    UnknownTransport {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// No such policy.
    #[error("transport `{transport}`: unknown {kind} policy `{name}`; there are: {known}")]
    UnknownPolicy {
        /// The transport.
        transport: &'static str,
        /// `recovery`, `control`, `paths` or `schedule`.
        kind: &'static str,
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// An option is unknown or its value illegal.
    #[error("transport `{transport}`: {source}")]
    Option {
        /// The transport.
        transport: &'static str,
        /// What is wrong.
        source: ParamError,
    },
    /// The parts do not fit together.
    #[error(transparent)]
    Composition(#[from] ProfileError),
}

/// The transport called `name` with `options` applied: `recovery`, `control`, `paths` or `schedule` exchange a part,
/// every other name is a parameter of the profile or of one of its parts.
///
/// # Errors
/// When a name is unknown, a value illegal, or the composition cannot be right.
pub fn select<'o>(
    name: &str,
    options: impl IntoIterator<Item = (&'o str, &'o str)> + Clone,
) -> Result<Profile, SelectError> {
    select_on(Signals::NONE, name, options)
}

/// The same on a network that gives the signals `network` beside those that ends measure on their own.
///
/// # Errors
/// As [`select`].
pub fn select_on<'o>(
    network: Signals,
    name: &str,
    options: impl IntoIterator<Item = (&'o str, &'o str)> + Clone,
) -> Result<Profile, SelectError> {
    let known = || profiles().iter().map(|profile| profile.name).collect::<Vec<_>>().join(", ");
    let mut profile =
        profile(name).ok_or_else(|| SelectError::UnknownTransport { name: name.to_owned(), known: known() })?;
    // Parts first, whatever the order in the plan: their parameters do not exist before.
    for (option, value) in options.clone() {
        if option == "schedule" && !profile.asks_scheduler() {
            return Err(ProfileError::NothingToSchedule(profile.name).into());
        }
        exchange_part(&mut profile, option, value)?;
    }
    for (option, value) in options {
        if !matches!(option, "recovery" | "control" | "paths" | "schedule") {
            let transport = profile.name;
            profile.set(option, value).map_err(|source| SelectError::Option { transport, source })?;
        }
    }
    profile.set_network(network);
    profile.check()?;
    Ok(profile)
}

fn exchange_part(profile: &mut Profile, kind: &str, name: &str) -> Result<(), SelectError> {
    /// Looks `name` up in the registry of `$kind` and puts it into the field of that name, with its defaults.
    macro_rules! exchange {
        ($kind:ident) => {{
            let policy = $kind::find(name).ok_or_else(|| SelectError::UnknownPolicy {
                transport: profile.name,
                kind: stringify!($kind),
                name: name.to_owned(),
                known: $kind::ALL.iter().map(|policy| policy.name).collect::<Vec<_>>().join(", "),
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
