//! The recording of time series: conversion from the parsed to the checked plan.

use rnic_base::{Duration, Time};

use super::raw::{self, RecordKind};
use super::{Plan, PlanError};
use crate::calendar::NEVER;
use crate::record::{ObjectKind, RecordPlan};
use crate::trace::TracePlan;

pub(super) fn resolve(raw: &raw::Record) -> RecordPlan {
    let kind = |kind: &RecordKind| match kind {
        RecordKind::Links => ObjectKind::Link,
        RecordKind::Switches => ObjectKind::Switch,
        RecordKind::Hosts => ObjectKind::Host,
        RecordKind::Flows => ObjectKind::Flow,
        RecordKind::Traffic => ObjectKind::Traffic,
    };
    let kinds: Vec<_> = raw.what().iter().map(kind).collect();
    RecordPlan { interval: raw.interval.0, kinds: if kinds.is_empty() { ObjectKind::ALL.to_vec() } else { kinds } }
}

/// Converts the selection of a trace.
pub(super) fn resolve_trace(raw: &raw::Trace) -> TracePlan {
    TracePlan {
        from: Time::ZERO + raw.from().0,
        until: raw.until.as_ref().map_or(NEVER, |until| Time::ZERO + until.0),
        nodes: raw.nodes(),
        queue_pairs: raw.queue_pairs(),
        events_max: raw.events_max().into(),
    }
}

/// Checks the constraints of the table.
pub(super) fn check(plan: &Plan) -> Result<(), PlanError> {
    match &plan.record {
        Some(record) if record.interval < INTERVAL_MIN => {
            Err(PlanError::value("record.interval", format!("must be at least {INTERVAL_MIN}")))
        }
        _ => Ok(()),
    }
}

/// Shortest interval: samples are taken between windows, which are as long as the shortest link delay.
const INTERVAL_MIN: Duration = Duration::from_ns(10);
