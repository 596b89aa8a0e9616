//! The algorithms: one file each, and the transports composed of them.
//!
//! ```text
//! CRATE    rnic-transports (green: a newcomer may change anything that keeps the tests green)
//! Purpose  recovery, control, paths and schedule policies; profiles
//! May use  rnic-base, rnic-program, rnic-policy, rnic-jit
//! Must not depend on the engine, allocate per event, compute in floating point
//! Add here a policy: one file in its folder and one line in that folder's registry
//! Not here what every transport needs (rnic-engine)
//! Tested by the contract kit, on every registered policy; mechanism tests in rnic-engine and tests/
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_macros))]

pub mod control;
pub mod laws;
mod loaded;
pub mod paths;
pub mod profiles;
pub mod programs;
pub mod recovery;
pub mod schedule;

pub use profiles::{LoadedProgram, SelectError, label, profile, profiles, select, select_on, select_with};

/// The policies of a type that are programs.
pub(crate) trait OfPrograms: Sized + 'static {
    /// Returns the recovery policies of all transport programs.
    fn of_programs() -> &'static [Self] {
        &[]
    }
}

impl OfPrograms for rnic_policy::RecoveryPolicy {
    fn of_programs() -> &'static [Self] {
        programs::policies()
    }
}

/// Declares the policies of one type: each line declares a module and a table entry.
///
/// The file is named like the module; the type is the policy's state.
macro_rules! registry {
    ($kind:ty: $($module:ident :: $policy:ident,)+) => {
        $(pub mod $module;)+

        /// All policies of this type, in the order of the registry.
        pub const ALL: &[$kind] = &[$(<$kind>::of::<$module::$policy>(),)+];

        /// Returns all policies of this type: those of the registry, and those of programs.
        pub fn all() -> impl Iterator<Item = $kind> {
            ALL.iter().chain(<$kind as crate::OfPrograms>::of_programs()).copied()
        }

        /// Returns the policy called `name`.
        pub fn find(name: &str) -> Option<$kind> {
            all().find(|policy| policy.name == name)
        }
    };
}
pub(crate) use registry;

#[cfg(test)]
mod tests;
