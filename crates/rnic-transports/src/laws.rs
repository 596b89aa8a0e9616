//! Laws: controllers, schedulers and path policies as programs, of this crate and from files.
//!
//! Each of this crate is a policy too, called `law-<name>`.

mod aimd;
mod probed;
mod water_filling;

use std::path::Path;
use std::sync::LazyLock;

use rnic_policy::kit::{Violation, check_control, check_paths, check_schedule};
use rnic_policy::{ControlPolicy, LawPolicy, PathPolicy, SchedulePolicy, law};
use rnic_program::{Law, LawKind, LoadError, LoadedLaw, Lowering, file};

use crate::loaded::LoadedFiles;
use crate::programs::{KIT, UseError, read};

/// A law of this crate and its name as a policy.
struct Registered {
    policy: &'static str,
    law: &'static dyn Law,
}

/// The laws of this crate: a new one has a line here.
const REGISTRY: &[Registered] = &[
    Registered { policy: "law-aimd", law: &aimd::Aimd },
    Registered { policy: "law-water-filling", law: &water_filling::WaterFilling },
    Registered { policy: "law-probed", law: &probed::Probed },
];

/// Returns every law of this crate, in the order in which they are listed, with its name as a policy.
pub fn all() -> impl Iterator<Item = (&'static str, &'static dyn Law)> {
    REGISTRY.iter().map(|registered| (registered.policy, registered.law))
}

/// Returns the law whose name as a policy is `name`.
pub fn find(name: &str) -> Option<&'static dyn Law> {
    all().find(|(policy, _)| *policy == name).map(|(_, law)| law)
}

/// The laws of this crate as policies.
struct Policies {
    control: Vec<ControlPolicy>,
    schedule: Vec<SchedulePolicy>,
    paths: Vec<PathPolicy>,
}

static POLICIES: LazyLock<Policies> = LazyLock::new(|| {
    let mut policies = Policies { control: Vec::new(), schedule: Vec::new(), paths: Vec::new() };
    for Registered { policy, law } in REGISTRY {
        match law::policy_of(policy, *law, false).expect("tests check every registered law") {
            LawPolicy::Control(policy) => policies.control.push(policy),
            LawPolicy::Schedule(policy) => policies.schedule.push(policy),
            LawPolicy::Paths(policy) => policies.paths.push(policy),
        }
    }
    policies
});

impl crate::OfPrograms for ControlPolicy {
    fn of_programs() -> &'static [Self] {
        &POLICIES.control
    }
}

impl crate::OfPrograms for SchedulePolicy {
    fn of_programs() -> &'static [Self] {
        &POLICIES.schedule
    }
}

impl crate::OfPrograms for PathPolicy {
    fn of_programs() -> &'static [Self] {
        &POLICIES.paths
    }
}

/// The laws that this process has loaded.
static LOADED: LoadedFiles<LawPolicy> = LoadedFiles::new();

/// Returns the contents of the file of `law`, after loading it, which takes one of the process's slots: what [`load`]
/// refuses is not written.
///
/// # Errors
/// When its function has no graph, its description has a fault, or it violates the contract.
pub fn to_file(law: &dyn Law) -> Result<String, UseError> {
    let graph = law.graph(Lowering::Joins).map_err(LoadError::from)?;
    let description = law.description();
    description.check().map_err(LoadError::from)?;
    let text = file::write_law(&description, &graph)?;
    load(text.as_bytes())?;
    Ok(text)
}

/// Checks the contents of the file of a law, runs the contract kit on it, and returns it as a policy. Equal files give
/// the same policy.
///
/// # Errors
/// When the contents are not a law, or the law violates the contract.
pub fn load(bytes: &[u8]) -> Result<LawPolicy, UseError> {
    LOADED.get(bytes, |_| policy_of(file::read_law(bytes)?))
}

/// Returns the policy of a law that was read from a file, after a run of the contract kit.
fn policy_of(law: LoadedLaw) -> Result<Result<LawPolicy, Violation>, UseError> {
    // The laws of this crate have their slots first, whatever is loaded.
    LazyLock::force(&POLICIES);
    let name = String::leak(law.description().name.to_string());
    let policy = law::policy_of(name, Box::leak(Box::new(law)), true)?;
    let (seed, events) = KIT;
    let checked = match &policy {
        LawPolicy::Control(control) => check_control(control, seed, events),
        LawPolicy::Schedule(schedule) => check_schedule(schedule, seed, events),
        LawPolicy::Paths(paths) => check_paths(paths, seed, events),
    };
    Ok(checked.map(|()| policy))
}

/// Returns the law for `kind` in the file at `path`.
///
/// # Errors
/// When the file cannot be read, is no law or one of another kind, or the law violates the contract.
pub(crate) fn load_file(kind: LawKind, path: &Path) -> Result<LawPolicy, UseError> {
    let bytes = read(path)?;
    file::check_law_kind(kind, &bytes)?;
    load(&bytes)
}

#[cfg(test)]
mod tests;
