//! Threads on which schedulers run: conversion from the parsed to the checked plan.

use rnic_base::BitRate;
use rnic_engine::{PoolConfig, PoolSizes, PoolTimes, SignalKind, SteeringMode, Strategy};

use super::raw;
use super::{Plan, PlanError};

/// Returns the threads of each NIC, on links of `line_rate`.
pub(super) fn resolve(raw: &raw::Processors, line_rate: BitRate) -> Result<PoolConfig, PlanError> {
    let threads = u16::try_from(raw.threads()).unwrap_or(u16::MAX);
    let sizes = PoolSizes { in_band: threads, ..PoolSizes::FIGURES };
    sizes.check().map_err(|error| PlanError::value("processors.threads", error.to_string()))?;
    let steering = match raw.steering() {
        raw::Steering::Software => SteeringMode::Software,
        // Each host has its own key, which the simulation draws.
        raw::Steering::Hardware => SteeringMode::Hardware { key: 0 },
    };
    let strategy = match raw.coalesce() {
        raw::Coalesce::None => Strategy::None,
        raw::Coalesce::Accumulate => Strategy::Accumulate,
        raw::Coalesce::WhileStable => Strategy::WhileStable,
    };
    let times =
        PoolTimes { trigger: raw.trigger().0, work: raw.work().0, fold: raw.fold().0, install: raw.install().0 };
    let config = PoolConfig { sizes, steering, times, ..PoolConfig::figures(line_rate) };
    Ok(config.with_strategy(SignalKind::Tx, strategy))
}

/// Checks the constraints of the table.
pub(super) fn check(plan: &Plan) -> Result<(), PlanError> {
    let schedule = &plan.transport.schedule;
    if plan.processors.is_some() && !(schedule.policy.uses_events)(&schedule.params) {
        let what = format!(
            "run schedulers that set rates, and `{}` sets none; choose transport.schedule = \"water-filling\"",
            schedule.policy.name
        );
        return Err(PlanError::value("processors", what));
    }
    Ok(())
}
