//! Two delivery layers, a link between them that does what it is told, and a transaction layer that only counts.

#![allow(dead_code, reason = "each test file asks for its own part")]

pub mod host;
pub mod idle;
pub mod link;
pub mod packets;
pub mod stack;
pub mod upper;

use rnic_base::{Duration, Time};
use rnic_falcon::delivery::{AckRequestRule, DeliveryConfig, Departure};
use rnic_policy::{Configured, Cwnd, Params};
use rnic_transports::{paths, recovery};
use rnic_wire::falcon::{Bitmaps, Body, OutOfWindow};

pub fn us(us: u64) -> Time {
    Time::from_us(us)
}

pub fn micros(us: u64) -> Duration {
    Duration::from_us(us)
}

/// A connection's parameters with these policies, by name.
pub fn config_of(recovery_name: &str, paths_name: &str) -> DeliveryConfig {
    let recovery = recovery::find(recovery_name).expect("a registered recovery policy");
    let paths = paths::find(paths_name).expect("a registered path policy");
    let recovery = Configured { policy: recovery, params: Params::defaults(recovery.params) };
    DeliveryConfig::new(recovery, Configured { policy: paths, params: Params::defaults(paths.params) })
}

/// The usual: RACK-TLP on one path.
pub fn config() -> DeliveryConfig {
    config_of("rack-tlp", "ecmp")
}

/// Sets a parameter of the recovery policy.
pub fn tune(config: &mut DeliveryConfig, name: &str, value: &str) {
    let recovery = &mut config.recovery;
    assert_eq!(recovery.params.set(recovery.policy.params, name, value), Ok(true), "{name}");
}

/// Nothing asks for acknowledgements; they come by count or time.
pub fn silent(mut config: DeliveryConfig) -> DeliveryConfig {
    config.ack_request = AckRequestRule { threshold: Cwnd::from_fixed(0), share: 0, of: 256 };
    config
}

/// Its bitmaps.
pub fn bitmaps(departure: &Departure) -> Option<Bitmaps> {
    if let Body::ExtendedAck(_, bitmaps) = departure.packet.body { Some(bitmaps) } else { None }
}

/// What it says was dropped beyond a window.
pub fn out_of_window(departure: &Departure) -> OutOfWindow {
    match departure.packet.body {
        Body::ExtendedAck(acknowledgement, _) | Body::Ack(acknowledgement) => acknowledgement.out_of_window,
        _ => OutOfWindow::default(),
    }
}
