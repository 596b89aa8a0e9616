//! Defaults that follow from the plan they stand in.
//!
//! A transport's own timeouts are those of its paper's network, and a run's bounds those of a short one. What a plan
//! gives stays as it is; what it leaves out fits it.

use rnic_base::{Duration, Time};
use rnic_policy::profile::AckRule;
use rnic_policy::{ParamError, ParamSpec, Profile};
use rnic_transports::SelectError;

use super::{Plan, PlanError};
use crate::fault::{FaultKind, FaultPlan};
use crate::link::PLAN_TIME_MAX;
use crate::workload::WorkloadPlan;

/// Sets the timeouts of `profile` where the plan gives none of them and its own would be wrong:
///
/// - Where nothing can be lost, thanks to PFC, there are none, "to prevent spurious retransmissions" (IRN section 4.1):
///   a pause may hold a packet for longer than any of them.
/// - Where they are shorter than a round trip in the empty network, they are IRN's RTO_high of this one: the longest
///   path and one full buffer.
///
/// Falcon's are computed from what the network does, and stay.
///
/// # Errors
/// Never in practice: the values are legal for every transport of the registry.
pub(super) fn fit_timeouts(
    profile: &mut Profile,
    is_given: impl Fn(&str) -> bool,
    plan: &Plan,
) -> Result<(), PlanError> {
    let timeouts: Vec<(&ParamSpec, u64)> = timeouts(profile).collect();
    if profile.protocol.falcon().is_some() || timeouts.iter().any(|(spec, _)| is_given(spec.name)) {
        return Ok(());
    }
    let transport = profile.name;
    let option = |source: ParamError| SelectError::Option { transport, source };
    if is_lossless(plan) {
        for (spec, _) in timeouts {
            // Zero is none, where it may be; else the longest that there is, longer than any wait.
            let value = if spec.min == 0 { 0 } else { spec.max };
            profile.set(spec.name, &format!("{value}ps")).map_err(option)?;
        }
        return Ok(());
    }
    let (round_trip, packet) = plan.round_trip();
    let unasked = match profile.acks {
        AckRule::EveryPacket => 0,
        AckRule::OnRequest => u64::from(profile.ack_every_packets),
    };
    // Until so many packets have left, nobody is asked for an acknowledgement.
    let answered = round_trip + packet * unasked;
    let fitting = (plan.auto_timeout() + packet * unasked).max(answered);
    for (spec, value) in timeouts {
        if value > 0 && Duration::from_ps(value) < answered {
            let value = fitting.as_ps().clamp(spec.min, spec.max);
            profile.set(spec.name, &format!("{value}ps")).map_err(option)?;
        }
    }
    Ok(())
}

/// The fixed timeouts among a transport's options: not the floor of those that are computed.
pub(super) fn timeouts(profile: &Profile) -> impl Iterator<Item = (&'static ParamSpec, u64)> {
    profile.options().filter(|(spec, _)| spec.is_timeout() && spec.name != FLOOR)
}

/// Returns whether no packet can be lost: PFC has all the bytes that it needs, and no fault loses any.
pub(super) fn is_lossless(plan: &Plan) -> bool {
    let Some(switch) = &plan.switch else { return false };
    let loses = |fault: &FaultPlan| match fault.kind {
        FaultKind::Delay { .. } | FaultKind::Reorder { .. } | FaultKind::Duplicate(_) | FaultKind::Slow { .. } => false,
        FaultKind::Drop(_)
        | FaultKind::Burst { .. }
        | FaultKind::BurstOfLength { .. }
        | FaultKind::Corrupt(_)
        | FaultKind::Down { .. } => true,
    };
    switch.pfc_slack().is_some_and(|slack| slack >= plan.skid()) && !plan.faults.iter().any(loses)
}

/// After how long without any useful packet a run has failed: longer than a repair takes that waits for timeouts.
pub(super) fn patience(profile: &Profile) -> Duration {
    // Of those that are there; the longest that an option can say stands for none.
    let longest = timeouts(profile).filter(|(spec, value)| *value < spec.max).map(|(_, value)| value).max();
    Duration::from_ps(longest.unwrap_or(0)).saturating_mul(3).max(STALL_AFTER)
}

/// When a run is cut off: a while after the last thing that its workload begins by the clock.
pub(super) fn limit(workload: &WorkloadPlan) -> Time {
    let latest = workload.latest_start().since(Time::ZERO);
    let limit = if latest < LIMIT { LIMIT } else { latest + LIMIT };
    Time::ZERO + limit.min(PLAN_TIME_MAX)
}

const STALL_AFTER: Duration = Duration::from_ms(50);
const LIMIT: Duration = Duration::from_secs(10);
/// The least timeout of transports that compute theirs.
const FLOOR: &str = "rto_min";
