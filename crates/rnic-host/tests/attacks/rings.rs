//! Shared-memory rings, and other users that try to obtain one.

use std::time::Duration;

use rnic_host::NicConfig;

use crate::another_user::Other;
use crate::common::{Side, drive_for};
use crate::guesses::{connected, write_and_check};

/// Another user binds the names of the peer's control socket, which the peer does not use: no payload of the
/// connection reaches that user, and the connection continues over the network.
#[test]
fn another_user_that_has_the_name_of_a_letterbox_gets_no_ring() {
    let (mut left, mut right) =
        (Side::open(NicConfig::shared()), Side::open(NicConfig { bypass: false, ..NicConfig::shared() }));
    let ports = [("RNIC_TEST_PORT", right.nic.port().to_string()), ("RNIC_TEST_VICTIM", left.nic.port().to_string())];
    let Some(mut other) = Other::start("binds_control_socket_names", &ports) else { return };
    assert_eq!(other.said("BOUND"), "3");
    let (from, _) = connected(&mut left, &mut right);
    for round in 0..3 {
        write_and_check(&mut left, &mut right, from, 200_000 + round);
        // Long enough for requests, answers, and a further request.
        drive_for(&mut left, &mut right, Duration::from_millis(500));
    }
    assert_eq!((left.nic.bypass_rings(), left.nic.stats().bypass_sent), (0, 0));
    other.tell("enough");
    let got = other.said("GOT");
    let letters: u32 = got.split(' ').next().and_then(|count| count.parse().ok()).expect("a number");
    assert!(letters > 0, "it received no probe");
    assert!(got.ends_with(" letters, 0 files"), "{got}");
}

/// Another user binds the name first, and the peer uses another one: the ring is still given to the peer.
#[test]
fn a_peer_whose_control_socket_name_is_taken_still_gets_its_ring() {
    // A port is drawn at random, so a NIC with a known seed whose port is free reveals the port in advance.
    let seeded = || NicConfig { secret: Some(0x5ec_0de), ..NicConfig::shared() };
    let port = Side::open(seeded()).nic.port();
    let mut left = Side::open(NicConfig::shared());
    let ports = [("RNIC_TEST_PORT", port.to_string()), ("RNIC_TEST_VICTIM", left.nic.port().to_string())];
    let Some(mut other) = Other::start("binds_control_socket_names", &ports) else { return };
    assert_eq!(other.said("BOUND"), "3");
    let mut right = Side::open(seeded());
    if right.nic.port() != port {
        return eprintln!("skipped: somebody else has taken port {port} meanwhile");
    }
    let (from, _) = connected(&mut left, &mut right);
    drive_for(&mut left, &mut right, Duration::from_millis(100));
    write_and_check(&mut left, &mut right, from, 200_000);
    assert_eq!((left.nic.bypass_rings(), right.nic.bypass_rings()), (1, 1));
    other.tell("enough");
    assert!(other.said("GOT").ends_with(" letters, 0 files"));
}
