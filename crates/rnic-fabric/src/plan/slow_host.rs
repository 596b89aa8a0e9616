//! Hosts with slow memory: conversion from the parsed to the checked plan.

use rnic_base::{BitRate, Time};

use super::quantity::Unit;
use super::raw;
use super::{Plan, PlanError};
use crate::fault::matches;

/// The hosts with slow memory, their rate and the interval.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlowHostPlan {
    /// A pattern for names of hosts, such as `host-1`; `*` matches any characters.
    pub hosts: String,
    /// Rate at which memory accepts payload.
    pub rate: BitRate,
    /// Time at which it starts to be slow.
    pub from: Time,
    /// Time at which the memory stops being slow; `None`: never.
    pub until: Option<Time>,
}

impl SlowHostPlan {
    /// Returns the rate at `now`, when memory is slow then.
    #[inline]
    pub(crate) fn rate(&self, now: Time) -> Option<BitRate> {
        let lasts = self.from <= now && self.until.is_none_or(|until| now < until);
        lasts.then_some(self.rate)
    }
}

pub(super) fn resolve(raw: &raw::SlowHost) -> SlowHostPlan {
    let at = |Unit(at)| Time::ZERO + at;
    SlowHostPlan { hosts: raw.hosts(), rate: raw.rate.0, from: at(raw.from()), until: raw.until.map(at) }
}

/// Checks the constraints of the table.
pub(super) fn check(plan: &Plan) -> Result<(), PlanError> {
    let Some(slow) = &plan.slow_host else { return Ok(()) };
    if plan.nic.is_none() && plan.transport.protocol.falcon().is_none() {
        return Err(PlanError::value("slow_host", "requires a NIC model; add [nic], or use the transport `falcon`"));
    }
    if slow.rate.as_bps() < RATE_MIN {
        return Err(PlanError::value("slow_host.rate", "must be at least 1Mbps"));
    }
    if slow.until.is_some_and(|until| until <= slow.from) {
        return Err(PlanError::value("slow_host.until", "must be after `from`"));
    }
    if !(0..plan.topology.hosts()).any(|host| matches(&slow.hosts, &format!("host-{host}"))) {
        return Err(PlanError::value("slow_host.hosts", "matches no host; hosts have names such as host-0 and host-1"));
    }
    Ok(())
}

/// Lowest rate in bits per second, as for links.
const RATE_MIN: u64 = 1_000_000;
