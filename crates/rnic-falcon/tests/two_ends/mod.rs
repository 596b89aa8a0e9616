//! Two delivery layers, a link between them that a test controls, and a transaction layer that only counts.

#![allow(dead_code, reason = "each test file asks for its own part")]

pub mod driver;
pub mod host;
pub mod idle;
pub mod link;
pub mod packets;
pub mod random;
pub mod stack;
pub mod upper;

use rnic_base::{Duration, RandomStream, Time};
use rnic_falcon::delivery::{AckRequestRule, DeliveryConfig, Departure};
use rnic_falcon::transaction::{Kind, Submission};
use rnic_policy::{Configured, Cwnd, Params};
use rnic_transports::{paths, recovery};
use rnic_wire::falcon::{Bitmaps, Body, OutOfWindow, Ulp};

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

/// No packet requests an acknowledgement; these are sent by count or time.
pub fn silent(mut config: DeliveryConfig) -> DeliveryConfig {
    config.ack_request = AckRequestRule { threshold: Cwnd::from_fixed(0), share: 0, of: 256 };
    config
}

/// Returns the bitmaps of an acknowledgement, if it has any.
pub fn bitmaps(departure: &Departure) -> Option<Bitmaps> {
    if let Body::ExtendedAck(_, bitmaps) = departure.packet.body { Some(bitmaps) } else { None }
}

/// Returns which windows an acknowledgement reports drops beyond.
pub fn out_of_window(departure: &Departure) -> OutOfWindow {
    match departure.packet.body {
        Body::ExtendedAck(acknowledgement, _) | Body::Ack(acknowledgement) => acknowledgement.out_of_window,
        _ => OutOfWindow::default(),
    }
}

/// A Push or a Pull of random length.
pub fn any_submission(random: &mut RandomStream, tag: u64, ulp: Option<Ulp>) -> Submission {
    let kind = if random.below(2) == 0 { Kind::Push } else { Kind::Pull };
    let length = random.between(1, 4_096) as u16;
    let payload_len = if kind == Kind::Push { u32::from(length) } else { 0 };
    Submission { kind, length, payload_len, ulp, tag, continues: false }
}
