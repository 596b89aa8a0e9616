//! Transport programs: recovery and congestion control as two functions each, which also become circuits.
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

use std::sync::LazyLock;

use rnic_policy::{Placement, ProgramPolicy, RecoveryPolicy};
use rnic_program::Transport;

/// A program of this crate: its name as a policy, and how its receiver treats out-of-order packets.
struct Registered {
    policy: &'static str,
    program: &'static dyn Transport,
    placement: Placement,
}

/// The programs of this crate: a new one has a line here.
const REGISTRY: &[Registered] = &[
    Registered { policy: "tonic-reno", program: &reno::Reno, placement: Placement::PlaceOutOfOrder },
    Registered { policy: "tonic-new-reno", program: &new_reno::NewReno, placement: Placement::PlaceOutOfOrder },
    Registered { policy: "tonic-sack", program: &sack::Sack, placement: Placement::PlaceOutOfOrder },
    Registered { policy: "tonic-ndp", program: &ndp::Ndp, placement: Placement::PlaceOutOfOrder },
    Registered { policy: "tonic-dcqcn", program: &dcqcn::Dcqcn, placement: Placement::Drop },
    Registered { policy: "tonic-irn", program: &irn::Irn, placement: Placement::PlaceOutOfOrder },
];

/// Returns every program, in the order in which they are listed.
pub fn all() -> impl Iterator<Item = &'static dyn Transport> {
    REGISTRY.iter().map(|registered| registered.program)
}

/// Returns the program called `name`.
pub fn find(name: &str) -> Option<&'static dyn Transport> {
    all().find(|program| program.description().name == name)
}

/// The policies of all programs, in the order in which they are listed.
static POLICIES: LazyLock<Vec<RecoveryPolicy>> = LazyLock::new(|| {
    let policy = |registered: &Registered| {
        let program = ProgramPolicy::new(registered.program).expect("tests check every registered program");
        let program = Box::leak(Box::new(program));
        RecoveryPolicy::of_program(registered.policy, program, registered.placement)
    };
    REGISTRY.iter().map(policy).collect()
});

/// Returns the recovery policies of all programs.
pub fn policies() -> &'static [RecoveryPolicy] {
    &POLICIES
}

#[cfg(test)]
mod tests;
