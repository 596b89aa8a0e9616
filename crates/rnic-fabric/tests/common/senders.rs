//! Rates of senders, by their first queue pair.

#![allow(dead_code, reason = "each test file uses its own part")]

use rnic_base::{BitRate, Time};
use rnic_engine::{LimitSource, RateLimit};
use rnic_fabric::Simulation;
use rnic_wire::Qpn;

/// Number of the first queue pair of a host.
pub const FIRST: Qpn = Qpn::new(2);

/// Limits the first queue pair of `host`, as a user does.
pub fn limit_to(simulation: &mut Simulation, host: u32, gbps: u64) {
    let limit = RateLimit { rate: BitRate::gbps(gbps), burst_bytes: None };
    simulation.with_engine(host, |engine, now| {
        engine.set_rate_limit(now, FIRST, LimitSource::Program, Some(limit)).expect("the queue pair exists");
    });
}

/// Returns the rate at which `host` sends until `until`, with 78 bytes of headers for each packet.
pub fn rate_until(simulation: &mut Simulation, host: u32, until: Time) -> f64 {
    let sent = |simulation: &Simulation| simulation.engine(host).stats().packets_sent;
    let (before, from) = (sent(simulation), simulation.now());
    simulation.advance(until);
    let bits = (sent(simulation) - before) * (1_024 + 78) * 8;
    bits as f64 / until.since(from).as_us_f64() / 1_000.0
}

/// Returns the limit that messages of the peer put on the first queue pair of `host`.
pub fn peer_limit(simulation: &Simulation, host: u32) -> Option<BitRate> {
    simulation.engine(host).query_qp(FIRST).expect("the queue pair exists").peer_limit
}
