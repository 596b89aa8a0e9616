//! Transports by name: the parts of which each is composed.

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

use rnic_policy::{Configured, ParamError, Params, Profile, ProfileError, Signals};

use crate::{control, paths, recovery, schedule};

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

/// Reason why a transport could not be composed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SelectError {
    /// No transport of that name exists.
    #[error("unknown transport `{name}`; the available transports are: {known}")]
    UnknownTransport {
        /// The requested name.
        name: String,
        /// The existing names.
        known: String,
    },
    /// No policy of that name exists.
    #[error("transport `{transport}`: unknown {kind} policy `{name}`; the available policies are: {known}")]
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
/// policy; every other name is a parameter of the profile or of one of its policies.
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
/// endpoints measure themselves; [`Signals::PROBES`] stands for NICs that exchange messages.
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
    // Policies are replaced first, regardless of the order in the plan, because the parameters of a policy only exist
    // after that.
    for (option, value) in options.clone() {
        exchange_part(&mut profile, option, value)?;
        if option == "schedule" && !profile.uses_scheduler() {
            return Err(ProfileError::NothingToSchedule(profile.name, profile.schedule.policy.name).into());
        }
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
