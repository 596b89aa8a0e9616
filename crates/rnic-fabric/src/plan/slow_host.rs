//! Hosts with slow memory: conversion from the parsed to the checked plan.

use rnic_base::{BitRate, Duration, Time};

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
    /// Time from the start of the interval to that of the next; `None`: there is one interval.
    pub every: Option<Duration>,
}

impl SlowHostPlan {
    /// Returns the rate at `now`, when memory is slow then.
    #[inline]
    pub(crate) fn rate(&self, now: Time) -> Option<BitRate> {
        if now < self.from {
            return None;
        }
        let lasts = self.until.is_none_or(|until| match self.every {
            Some(every) => now.since(self.from).as_ps() % every.as_ps() < until.since(self.from).as_ps(),
            None => now < until,
        });
        lasts.then_some(self.rate)
    }
}

pub(super) fn resolve(raw: &raw::SlowHost) -> SlowHostPlan {
    let at = |Unit(at)| Time::ZERO + at;
    let every = raw.every.map(|Unit(every)| every);
    SlowHostPlan { hosts: raw.hosts(), rate: raw.rate.0, from: at(raw.from()), until: raw.until.map(at), every }
}

/// Checks the constraints of the table.
pub(super) fn check(plan: &Plan) -> Result<(), PlanError> {
    let Some(slow) = &plan.slow_host else { return Ok(()) };
    if plan.nic.is_none() && !plan.uses_falcon() {
        return Err(PlanError::value("slow_host", "requires a NIC model; add [nic], or use the transport `falcon`"));
    }
    if slow.rate.as_bps() < RATE_MIN {
        return Err(PlanError::value("slow_host.rate", "must be at least 1Mbps"));
    }
    if slow.until.is_some_and(|until| until <= slow.from) {
        return Err(PlanError::value("slow_host.until", "must be after `from`"));
    }
    if let Some(every) = slow.every {
        let Some(until) = slow.until else {
            return Err(PlanError::value("slow_host.every", "requires `until`, at which the first interval ends"));
        };
        if every <= until.since(slow.from) {
            return Err(PlanError::value("slow_host.every", "must be longer than the time from `from` to `until`"));
        }
    }
    if !(0..plan.topology.hosts()).any(|host| matches(&slow.hosts, &format!("host-{host}"))) {
        return Err(PlanError::value("slow_host.hosts", "matches no host; hosts have names such as host-0 and host-1"));
    }
    Ok(())
}

/// Lowest rate in bits per second, as for links.
const RATE_MIN: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// From 3 us on, slow for 2 us of every 10 us; without a period, once.
    #[test]
    fn intervals_are_repeated() {
        let slow_at = |every: Option<u64>| -> Vec<u64> {
            let (from, until) = (Time::from_us(3), Some(Time::from_us(5)));
            let every = every.map(Duration::from_us);
            let plan = SlowHostPlan { hosts: "*".to_owned(), rate: BitRate::gbps(1), from, until, every };
            (0..30).filter(|us| plan.rate(Time::from_us(*us)).is_some()).collect()
        };
        assert_eq!(slow_at(Some(10)), [3, 4, 13, 14, 23, 24]);
        assert_eq!(slow_at(None), [3, 4]);
    }
}
