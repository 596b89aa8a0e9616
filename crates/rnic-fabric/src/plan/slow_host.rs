//! Hosts with slow memory: conversion from the parsed to the checked plan.

use rnic_base::{BitRate, Time};

use super::raw::{self, Unit};
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
    /// Time at which it stops to be slow; `None`: never.
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

pub(super) fn resolve(raw: raw::SlowHost) -> SlowHostPlan {
    let at = |at: Option<Unit<_>>| at.map(|Unit(at)| Time::ZERO + at);
    let raw::SlowHost { hosts, rate: Unit(rate), from, until } = raw;
    let hosts = hosts.unwrap_or_else(|| "*".to_owned());
    SlowHostPlan { hosts, rate, from: at(from).unwrap_or(Time::ZERO), until: at(until) }
}

/// Checks the constraints of the table.
pub(super) fn check(plan: &Plan) -> Result<(), PlanError> {
    let Some(slow) = &plan.slow_host else { return Ok(()) };
    if plan.nic.is_none() && plan.transport.protocol.falcon().is_none() {
        return Err(PlanError::value("slow_host", "needs a NIC whose memory is modelled: give [nic], or use falcon"));
    }
    if slow.rate.as_bps() < RATE_MIN {
        return Err(PlanError::value("slow_host.rate", "must be at least 1Mbps"));
    }
    if slow.until.is_some_and(|until| until <= slow.from) {
        return Err(PlanError::value("slow_host.until", "must be after `from`"));
    }
    if !(0..plan.topology.hosts()).any(|host| matches(&slow.hosts, &format!("host-{host}"))) {
        return Err(PlanError::value("slow_host.hosts", "is no host: they are called host-0, host-1, .."));
    }
    Ok(())
}

/// Lowest rate in bits per second, as for links.
const RATE_MIN: u64 = 1_000_000;
