//! The contract kit: checks that every policy must pass before it may be registered.
//!
//! Each check drives a policy with a long, seeded, random but *legal* sequence of events, twice in lockstep, and
//! verifies every action it returns. It needs no engine, so a policy outside this repository can be checked too:
//!
//! ```no_run
//! # let policy: rnic_policy::RecoveryPolicy = todo!();
//! rnic_policy::kit::check_recovery(&policy, 1, 10_000).expect("keeps the contract");
//! ```
//!
//! [`report`] and [`Flows`] are for tests of a single policy: a datapath's report, and the settings in force after the
//! policy's actions.

mod control;
mod lanes;
mod paths;
mod recovery;
mod reports;
mod schedule;

pub use control::check_control;
pub use paths::check_paths;
pub use recovery::check_recovery;
pub use reports::{Flows, report};
pub use schedule::check_schedule;

use rnic_base::{BitRate, Duration, RandomStream};

use crate::control::signals::Signals;
use crate::control::{ControlActions, ControlInterest};
use crate::params::{ParamSpec, Params};

/// A violation of the contract by a policy, with the values that reproduce it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("policy `{policy}` violates its contract at step {step} of seed {seed}: {what}")]
pub struct Violation {
    /// Name of the policy that violates the contract.
    pub policy: &'static str,
    /// The seed of the run.
    pub seed: u64,
    /// Number of the event at which the violation occurred.
    pub step: u64,
    /// Description of the violation.
    pub what: String,
}

/// Returns parameter values for a run: the defaults if `use_defaults`, otherwise random values within the ranges of
/// `specs`, often at a bound.
fn draw_params(specs: &[ParamSpec], random: &mut RandomStream, use_defaults: bool) -> Params {
    let mut params = Params::defaults(specs);
    if !use_defaults {
        for (index, spec) in specs.iter().enumerate() {
            // Errors are most likely at the bounds of the range.
            let value = match random.below(4) {
                0 => spec.min,
                1 => spec.max,
                2 => spec.default,
                _ => random.between(spec.min, spec.max),
            };
            params = params.with(index, value);
        }
    }
    params
}

/// Checks that a controller subscribes to the events of the signals that it needs, and to no others.
fn check_interest(interest: &ControlInterest) -> Result<(), String> {
    let needs = |signals| interest.needs.has_any(signals);
    let subscribed = [
        ("acks or round-trip", needs(Signals::ACKS | Signals::ROUND_TRIP), interest.acked),
        ("sent", needs(Signals::SENT), interest.sent),
        ("cnp", needs(Signals::CNP), interest.cnp_interval.is_some()),
        ("marks", needs(Signals::MARKS), interest.echo),
    ];
    match subscribed.into_iter().find(|(_, needs, subscribed)| needs != subscribed) {
        Some((name, true, _)) => Err(format!("the policy needs the signal {name} but does not subscribe to it")),
        Some((name, ..)) => {
            Err(format!("the policy subscribes to the signal {name} but does not declare that it needs it"))
        }
        None => Ok(()),
    }
}

/// Checks the bounds that hold for all actions of a controller.
fn check_actions(actions: &ControlActions, line_rate: BitRate) -> Result<(), String> {
    if actions.window.is_some_and(|window| window.fixed() == 0) {
        return Err("the policy sets a window of zero".to_owned());
    }
    if let Some(rate) = actions.rate
        && (rate == BitRate::ZERO || rate > line_rate)
    {
        return Err(format!("the policy sets a rate of {rate}, which is zero or exceeds the link rate of {line_rate}"));
    }
    if actions.tick_after.is_some_and(|after| after < Duration::from_us(1)) {
        return Err(format!("the policy requests a tick after {:?}, which is less than 1us", actions.tick_after));
    }
    if actions.probe.is_some_and(|timeout| timeout < Duration::from_us(1)) {
        return Err(format!("the policy requests a probe that is lost after {:?}, less than 1us", actions.probe));
    }
    Ok(())
}

/// Checks the bounds that hold for every table of parameters.
fn check_specs(policy: &'static str, specs: &[ParamSpec]) -> Result<(), Violation> {
    let violation = |what: String| Violation { policy, seed: 0, step: 0, what };
    if specs.len() > crate::params::PARAMS_MAX {
        return Err(violation(format!("the policy has {} parameters, more than PARAMS_MAX", specs.len())));
    }
    for spec in specs {
        if !(spec.min..=spec.max).contains(&spec.default) {
            return Err(violation(format!("the default value of parameter `{}` is outside its bounds", spec.name)));
        }
        if spec.name.is_empty()
            || spec.name.chars().any(|c| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'))
        {
            return Err(violation(format!(
                "the parameter name `{}` contains characters other than lower-case letters, digits and underscores",
                spec.name
            )));
        }
        if spec.help.is_empty() || specs.iter().filter(|other| other.name == spec.name).count() > 1 {
            return Err(violation(format!("parameter `{}` has no help text or is declared twice", spec.name)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod control_tests;
#[cfg(test)]
mod tests;
