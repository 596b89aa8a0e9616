//! Defaults that depend on the rest of the plan.
//!
//! A transport's default timeouts are chosen for the network of its paper, and the default limits of a run for a short
//! one. Values given in a plan are kept; missing values are fitted to the plan.

use rnic_base::{Duration, Time};
use rnic_policy::profile::AckRule;
use rnic_policy::{ParamError, ParamSpec, Profile};
use rnic_transports::SelectError;

use super::{Plan, PlanError};
use crate::fault::{FaultKind, FaultPlan};
use crate::link::PLAN_TIME_MAX;
use crate::switch::SwitchPlan;
use crate::workload::WorkloadPlan;

/// Sets the timeouts of `profile` when the plan gives none of them and the defaults would be wrong:
///
/// - When no packet can be lost, thanks to PFC, timeouts are disabled, "to prevent spurious retransmissions" (IRN
///   section 4.1): a pause may hold a packet for longer than any of them.
/// - When they are shorter than a round trip in the empty network, they are set to IRN's RTO_high of this network: the
///   longest path and one full buffer.
///
/// Falcon's timeouts are computed from measurements, and are kept.
///
/// # Errors
/// Never in practice: the values are legal for every transport of the registry.
pub(super) fn fit_timeouts(
    profile: &mut Profile,
    is_given: impl Fn(&str) -> bool,
    plan: &Plan,
    switches: &[SwitchPlan],
) -> Result<(), PlanError> {
    let timeouts: Vec<(&ParamSpec, u64)> = timeouts(profile).collect();
    if profile.protocol.falcon().is_some() || timeouts.iter().any(|(spec, _)| is_given(spec.name)) {
        return Ok(());
    }
    let transport = profile.name;
    let option = |source: ParamError| SelectError::Option { transport, source };
    if is_lossless(plan, switches) {
        for (spec, _) in timeouts {
            // Zero disables the timeout, where it is allowed; otherwise the largest value is used, which is longer than
            // any wait.
            let value = if spec.min == 0 { 0 } else { spec.max };
            profile.set(spec.name, &format!("{value}ps")).map_err(option)?;
        }
        return Ok(());
    }
    let (round_trip, packet) = plan.round_trip();
    let since_ack_request = match profile.acks {
        AckRule::EveryPacket => 0,
        AckRule::OnRequest => u64::from(profile.ack_every_packets),
    };
    // No acknowledgement is requested before this number of packets has been sent.
    let ack_delay = round_trip + packet * since_ack_request;
    let fitting = (plan.auto_timeout() + packet * since_ack_request).max(ack_delay);
    for (spec, value) in timeouts {
        if value > 0 && Duration::from_ps(value) < ack_delay {
            let value = fitting.as_ps().clamp(spec.min, spec.max);
            profile.set(spec.name, &format!("{value}ps")).map_err(option)?;
        }
    }
    Ok(())
}

/// Returns the fixed timeouts among a transport's options: not the lower bound of computed timeouts.
pub(super) fn timeouts(profile: &Profile) -> impl Iterator<Item = (&'static ParamSpec, u64)> {
    profile.options().filter(|(spec, _)| spec.is_timeout() && spec.name != RTO_MIN_OPTION)
}

/// Returns whether no packet can be lost in switches with these buffers (those of the class of a packet, and of its
/// acknowledgement): PFC has all the bytes that it needs, and no fault loses any.
pub(super) fn is_lossless(plan: &Plan, switches: &[SwitchPlan]) -> bool {
    let loses = |fault: &FaultPlan| match fault.kind {
        FaultKind::Delay { .. }
        | FaultKind::Reorder { .. }
        | FaultKind::Duplicate(_)
        | FaultKind::Mark(_)
        | FaultKind::Slow { .. } => false,
        FaultKind::Drop(_)
        | FaultKind::Burst { .. }
        | FaultKind::BurstOfLength { .. }
        | FaultKind::Corrupt(_)
        | FaultKind::Down { .. } => true,
    };
    let has_slack = |switch: &SwitchPlan| switch.pfc_slack().is_some_and(|slack| slack >= plan.pause_reaction_bytes());
    !switches.is_empty() && switches.iter().all(has_slack) && !plan.faults.iter().any(loses)
}

/// Returns the duration without any useful packet after which a run has failed: longer than a loss recovery that waits
/// for timeouts.
pub(super) fn stall_timeout(profile: &Profile) -> Duration {
    // The maximum over the timeouts in use; an option at its largest value means a disabled timeout.
    let longest = timeouts(profile).filter(|(spec, value)| *value < spec.max).map(|(_, value)| value).max();
    Duration::from_ps(longest.unwrap_or(0)).saturating_mul(3).max(STALL_AFTER_MIN)
}

/// Returns the time at which a run is cut off: some time after the last event that its workload schedules.
pub(super) fn limit(workload: &WorkloadPlan) -> Time {
    let latest = workload.latest_start().since(Time::ZERO);
    let limit = if latest < DEFAULT_RUN_LIMIT { DEFAULT_RUN_LIMIT } else { latest + DEFAULT_RUN_LIMIT };
    Time::ZERO + limit.min(PLAN_TIME_MAX)
}

const STALL_AFTER_MIN: Duration = Duration::from_ms(50);
const DEFAULT_RUN_LIMIT: Duration = Duration::from_secs(10);
/// Name of the smallest timeout of transports that compute their timeouts.
const RTO_MIN_OPTION: &str = "rto_min";
