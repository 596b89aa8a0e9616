//! Transport programs: recovery and congestion control as two functions each, which also become circuits.
//!
//! Source: Tonic (NSDI'20) section 6.1.1, whose six programs these are.

mod dcqcn;
mod irn;
mod ndp;
mod new_reno;
mod reno;
mod sack;
mod tcp;

use rnic_program::Transport;

/// Every program, in the order in which they are listed.
pub const ALL: &[&dyn Transport] = &[&reno::Reno, &new_reno::NewReno, &sack::Sack, &ndp::Ndp, &dcqcn::Dcqcn, &irn::Irn];

/// Returns the program called `name`.
pub fn find(name: &str) -> Option<&'static dyn Transport> {
    ALL.iter().copied().find(|program| program.description().name == name)
}

#[cfg(test)]
mod tests;
